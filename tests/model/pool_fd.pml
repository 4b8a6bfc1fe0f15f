/* SPDX-License-Identifier: MIT */
/*
 * pool_fd.pml - two threads that sleep on one skein_pool_fd() of a node service's
 * client, and a third one with a call that sleeps inside the library (src/vqp/pool_fd.h,
 * node/client.c). The stores and fences of the word are node.pml's.
 *
 * Each sleeper has a vqp. Under the lock a thread takes what is in the ring, for
 * both. A sleeper that finds nothing for either empties the descriptor, sets the
 * word, looks at the ring and sleeps until the socket or the bell is readable.
 * The call sets the word too, sleeps at the socket, or until its deadline, and
 * takes the word back.
 *
 * Claim: both sleepers get all that is theirs. Each -DBROKEN_... must be
 * reported.
 */
#define ITEMS 2	/* for each */
#define CALLS 2

byte put, taken;	/* the ring */
byte to[4];
byte ready[2];		/* taken, not polled */
bool word, msg, bell;	/* the descriptor: msg || bell */
bool armed;		/* once: a thread may sleep */
bool at_socket, lock;

active proctype service()
{
	byte n[2];
	byte i;

	do
	:: n[0] + n[1] == 2 * ITEMS -> break
	:: else ->
		if
		:: n[0] < ITEMS -> i = 0
		:: n[1] < ITEMS -> i = 1
		fi;
		n[i]++;
		to[put] = i;
		put++;
		if
		:: word -> atomic { word = false; msg = true }
		:: else -> skip
		fi
	od
}

inline enter() { atomic { !lock -> lock = true } }
inline leave() { lock = false }

inline take()
{
	do
	:: taken != put -> ready[to[taken]]++; taken++; moved = true
	:: else -> break
	od
}

inline wake()
{
	if
#ifdef BROKEN_ONCE
	:: armed -> armed = false; bell = true
#else
	:: armed -> bell = true
#endif
	:: else -> skip
	fi
}

inline read_socket()
{
	if
	:: msg ->
		msg = false;
#ifndef BROKEN_READ
		wake()
#endif
	:: else -> skip
	fi
}

proctype sleeper(byte i)
{
	byte got = 0;
	bool moved;

	do
	:: enter();
		take();
		got = got + ready[i];
		ready[i] = 0;
		leave();
		if
		:: got == ITEMS -> break
		:: else -> skip
		fi;
		/* skein_pool_arm() */
		enter();
		moved = false;
#ifdef BROKEN_EMPTY
		msg = false;
		bell = false;
#endif
		take();
		if
		:: moved || ready[0] || ready[1] -> leave()
		:: else ->
			if
			:: !at_socket -> msg = false
			:: else -> skip
			fi;
			bell = false;
#ifndef BROKEN_ONCE
			armed = true;
#endif
#ifdef BROKEN_WORD_LATE
			moved = put != taken;
			word = true;
#else
			word = true;
#ifndef BROKEN_NO_LOOK
			moved = put != taken;
#endif
#endif
			if
			:: moved ->
#ifndef BROKEN_OTHERS
				wake();
#endif
				leave()
			:: else ->
#ifdef BROKEN_ONCE
				armed = true;
#endif
				leave();
				msg || bell
			fi
		fi
	od
}

proctype call()
{
	byte n = 0;
	bool moved;

	do
	:: n == CALLS -> break
	:: else ->
		n++;
		enter();
		read_socket();		/* it looks for a while first */
		take();
		if
		:: true -> leave()	/* its reply has come */
		:: true ->
			at_socket = true;
			leave();
			word = true;
			if
			:: put != taken -> skip
			:: msg -> skip
			:: true -> skip		/* the deadline */
			fi;
			word = false;
			enter();
			at_socket = false;
#ifndef BROKEN_WORD_BACK
			wake();
#endif
			read_socket();
			leave()
		fi
	od
}

init {
	atomic { run sleeper(0); run sleeper(1); run call() }
}
