/* SPDX-License-Identifier: MIT */
/*
 * event.pml - going to sleep: docs/protocol/rpc.md, section 8.
 *
 * One direction of messages. The wire there is one queue pair: plain messages,
 * messages that wake, and granted, in order. The wire back carries ask and
 * poll in order. The sender is one thread: it sends, or takes what came, or
 * stops running its engine when it has sent everything.
 *
 * Checked: the receiver gets every message. Asleep with a message in its ring
 * and nothing under way that wakes it is an invalid end state.
 *
 * Variants that must fail:
 *	BROKEN_EARLY	the receiver sleeps before granted has come
 *	BROKEN_LATE_BIT	the sender grants before it sets its bit
 *	BROKEN_LOOK	the receiver does not look once more before it sleeps
 *	BROKEN_POLL	poll takes another way than ask, and may be overtaken
 */
#define N 4 /* messages */

mtype = { plain, wake, granted, ask, poll };

chan there = [N + 4] of { mtype };
chan back = [4] of { mtype };
chan back_poll = [4] of { mtype };

byte ring;   /* messages in the receiver's memory */
byte events; /* receive completions not yet taken */
bool armed, notified; /* the completion queue: one event for one request */
bool grant;  /* one of them is granted */

#ifdef BROKEN_POLL
#define POLL_CHAN back_poll
#else
#define POLL_CHAN back
#endif

proctype device()
{
	mtype m;

end:	do
	:: atomic { there?m ->
		if
		:: m == plain -> ring++
		:: m == wake -> ring++; events++
		:: m == granted -> grant = true; events++
		fi;
		if
		:: m != plain && armed -> armed = false; notified = true
		:: else
		fi }
	od
}

proctype sender()
{
	bool wakes;
	byte sent;

end:	do
	:: sent < N -> atomic {
		if
		:: wakes -> there!wake
		:: else -> there!plain
		fi;
		sent++ }
	:: back?ask ->
#ifdef BROKEN_LATE_BIT
		there!granted;
		if
		:: sent < N -> there!plain; sent++
		:: true
		fi;
		wakes = true
#else
		wakes = true;
		there!granted
#endif
	:: POLL_CHAN?poll -> wakes = false
	/* its program does something else from now on */
	:: sent == N -> break
	od
}

mtype = { polling, asked, event };

proctype receiver()
{
	mtype state = polling;
	byte got;

	do
	:: got == N -> break
	:: else ->
		/* a round */
		if
		:: atomic { events > 0 -> events = 0;
			if
			:: grant -> grant = false; state = event
			:: else
			fi }
		:: atomic { ring > 0 -> ring--; got++ };
			if
			/* busy: it would rather poll */
			:: state == event -> POLL_CHAN!poll; state = polling
			:: true
			fi
		:: ring == 0 && events == 0 ->
			/* fruitless: it wants to sleep */
			if
			:: state == polling -> back!ask; state = asked
#ifdef BROKEN_EARLY
			:: state != polling ->
#else
			:: state == asked -> skip
			:: state == event ->
#endif
				armed = true;
				if
#ifndef BROKEN_LOOK
				:: ring > 0 || events > 0 -> skip
				:: else -> notified
#else
				:: true -> notified
#endif
				fi;
				atomic { armed = false; notified = false }
			fi
		fi
	od
}

init {
	atomic {
		run device();
		run sender();
		run receiver()
	}
}
