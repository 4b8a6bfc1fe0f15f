/* SPDX-License-Identifier: MIT */
/*
 * node_threads.pml - two threads of a client that wait for their node service
 * (src/vqp/node/client.c: sleep_once()). The stores and fences are node.pml's.
 *
 * Each thread waits for one reply. Under the lock a thread takes what is in the
 * ring, for both. One that is not done sleeps at the socket, if the other thread
 * does not: it sets the word, looks at the ring and waits for a wake-up. Else it is
 * parked until the turn has moved, which the sleeper does when it has looked.
 *
 * Claim: both end. Each -DBROKEN_... must be reported.
 */
byte ring, taken;  /* replies put, replies taken */
byte order[2];	   /* the thread that each is for */
bool done[2];
bool word;	   /* the client sleeps */
bool to_client;	   /* a wake-up in the socket */
bool lock, sleeper;
byte turn;

active proctype service()
{
	byte first;

	if
	:: first = 0
	:: first = 1
	fi;
	order[0] = first;
	order[1] = 1 - first;
	do
	:: ring == 2 -> break
	:: else ->
		ring++;
		atomic {
			if
			:: word -> word = false; to_client = true
			:: else -> skip
			fi
		}
	od
}

inline take()
{
	do
	:: taken != ring -> done[order[taken]] = true; taken++
	:: else -> break
	od
}

inline enter()
{
	atomic { !lock -> lock = true }
}

proctype thread(byte i)
{
	byte seen, t;

	do
	:: enter();
		take();
		if
		:: done[i] -> lock = false; break
#ifdef BROKEN_TWO_SLEEP
		:: else ->
#else
		:: !done[i] && !sleeper ->
#endif
			sleeper = true;
			seen = taken;
			lock = false;
			word = true;
			if
			:: ring != seen -> skip
			:: else -> to_client
			fi;
			word = false;
			enter();
			sleeper = false;
			to_client = false;
#ifndef BROKEN_NO_TURN
			turn++;
#endif
			lock = false
#ifndef BROKEN_TWO_SLEEP
		:: !done[i] && sleeper ->
#ifdef BROKEN_TURN_LATE
			lock = false;
			t = turn;
#else
			t = turn;
			lock = false;
#endif
			turn != t
#endif
		fi
	od
}

init {
	atomic { run thread(0); run thread(1) }
}
