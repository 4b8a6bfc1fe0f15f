/* SPDX-License-Identifier: MIT */
/*
 * poller.pml - threads that sleep in one kernel epoll set beside a polling
 * thread (src/bind/socket/pollers.c, set.c; mode bpev).
 *
 * Two streams, a writer each with RECORDS records; SLEEPERS threads that take
 * from any stream and sleep in the set; its waiter is one eventfd with the
 * word `armed` in front of it; one polling thread, which looks at the streams
 * while it is awake and rests in between; the helper, which takes bells. What
 * stands between lock and unlock is one step, as all of it is under st.lock.
 *
 * A writer answers a question behind all that it has written, and then rings
 * with its next record, once.
 *
 * One thread may stay away, in a handler without an end.
 *
 * Claim: when nothing can move any more, all records were taken. A sleep that
 * is short because a question is not answered yet may end at any time.
 */
#ifndef RECORDS
#define RECORDS 2
#endif
#define STREAMS 2
#define SLEEPERS 2

byte written[STREAMS], taken[STREAMS];
bool question[STREAMS]; /* on its way to the writer */
bool rings[STREAMS];	/* the writer's: the next record rings */
bool asked[STREAMS];	/* the reader's: it has asked */
bool answered[STREAMS]; /* ... and knows the answer: it may sleep */
bool bell[STREAMS];	/* at the helper */

bool armed, token;	/* of the set's waiter */
byte asleep;		/* threads in the kernel's epoll_wait() */
bool awake = true;	/* the polling thread looks */
bool nudge;		/* its waiter's token */
bool moves;		/* it has found something; it does not rest now */
bool busy;		/* a thread works, and does not come back */

#define has(k) (written[k] > taken[k])
#define any (has(0) || has(1))

inline wake_set()
{
	if
	:: armed -> armed = false; token = true
	:: else -> skip
	fi
}

/* Asks each writer that was not asked; may: all have answered. */
inline ask_all(k, may)
{
	may = true;
	k = 0;
	do
	:: k < STREAMS ->
		if
		:: !asked[k] -> asked[k] = true; question[k] = true
		:: else -> skip
		fi;
		may = may && answered[k];
		k++
	:: else -> break
	od;
	k = 0
}

/* A thread takes a record and leaves the set. It may stay away for long, so it
 * leaves those that sleep there as if it had gone to sleep itself. */
inline take(k, may)
{
	taken[(has(0) -> 0 : 1)]++;
#ifndef BROKEN_NO_HAND_OVER
	if
	:: asleep && !awake -> ask_all(k, may)
	:: else -> skip
	fi;
	if
	:: asleep && any -> wake_set()
	:: else -> skip
	fi
#endif
}

proctype writer(byte k)
{
end:
	do
	:: atomic { question[k] ->
		question[k] = false; rings[k] = true;
		bell[k] = true /* the answer wakes the helper, too */ }
	:: atomic { written[k] < RECORDS ->
		written[k]++;
		if
		:: rings[k] -> rings[k] = false; bell[k] = true
		:: else -> skip
		fi }
	od
}

/* take_bells(): the answer, or a bell behind it. */
proctype helper()
{
	byte k = 0;

end:
	do
	:: atomic { bell[0] || bell[1] ->
		k = (bell[0] -> 0 : 1);
		bell[k] = false;
		if
		:: rings[k] -> answered[k] = true
		:: else -> asked[k] = false; answered[k] = false
		fi;
		k = 0;
#ifndef BROKEN_DEAF
		wake_set(); awake = true; nudge = true;
#endif
		moves = false }
	od
}

proctype sleeper()
{
	byte k = 0;
	bool may, watched;

	do
	:: true ->
#ifdef BROKEN_WATCH_FIRST
		watched = awake;
#endif
		atomic {
#ifndef BROKEN_WATCH_FIRST
			watched = awake;
#endif
			may = true;
			if
			:: watched -> skip
			:: else -> ask_all(k, may)
			fi;
#ifndef BROKEN_NO_LOOK
			if
			:: any -> take(k, may)
			:: else ->
#endif
				asleep++; moves = false;
#ifndef BROKEN_ARM_LATE
				armed = true;
#endif
				goto endsleeps
#ifndef BROKEN_NO_LOOK
			fi
#endif
		};
		goto again;
endsleeps:
#ifdef BROKEN_ARM_LATE
		armed = true;
#endif
		/* Without the answer it sleeps for a millisecond only. */
		atomic { token || !may ->
			asleep--;
			if
			:: token -> token = false;
#ifndef BROKEN_NO_REARM
				if
				:: asleep -> armed = true; moves = false
				:: else -> skip
				fi
#endif
			:: else ->
				if
				:: !asleep -> armed = false
				:: else -> skip
				fi
			fi;
			/* It looks, and comes back for the rest. */
			if
			:: any -> take(k, may)
			:: else -> skip
			fi };
again:		if
		:: true
		:: atomic { !busy -> busy = true }; break
		fi
	od
}

proctype polling()
{
	byte k = 0;
	bool may;

end:
	do
	:: atomic { awake && asleep && any && armed -> wake_set() }
	:: atomic { awake && !moves ->
		/* Nothing has moved for a while: it would rest. */
		may = true;
#ifndef BROKEN_REST_UNASKED
		if
		:: asleep -> ask_all(k, may)
		:: else -> skip
		fi;
#endif
		if
		:: may -> awake = false; nudge = false
		:: else -> moves = true /* until something changes */
		fi }
	:: atomic { !awake && nudge -> nudge = false }
	od
}

proctype judge()
{
	timeout -> assert(taken[0] == RECORDS && taken[1] == RECORDS)
}

init
{
	byte i;

	atomic {
		for (i : 0 .. STREAMS - 1) { run writer(i) }
		for (i : 1 .. SLEEPERS) { run sleeper() }
		run helper();
		run polling();
		run judge()
	}
}
