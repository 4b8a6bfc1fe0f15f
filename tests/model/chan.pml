/* SPDX-License-Identifier: MIT */
/*
 * chan.pml - a completion channel: ring, claim and arm
 * (src/dev/soft/cq/chan.c).
 *
 * One CQ on the channel, two threads that complete receives and ring, a program
 * of one thread that arms, looks and sleeps, another thread of it that arms
 * once, and the control thread. A ringer may stop for good, or die, between any
 * two of its steps. A death is told to the control thread. It does not know for
 * how long a count may be under way: that it looks at any moment stands for
 * each length of its patience.
 *
 * Claims: a count that is taken finds an event (EAGAIN behind poll(2) is an
 * assertion), and when nothing can move any more, the program has seen every
 * message but the last one of a ringer that has stopped.
 *
 * Variants that must fail:
 *	BROKEN_HELP	a ringer that finds an event without its count adds one
 *	BROKEN_NO_ASK	it does nothing
 *	BROKEN_NO_SPARE	a count is made up without a spare event
 *	BROKEN_SAID	the ringer says that it has counted before it has
 *	BROKEN_OWED	no lock: the event is gone before it is owed
 *	BROKEN_DEATH	the control thread does not look when a ringer has died
 */
#define MESSAGES 2

mtype = { not, any, fired };

mtype armed = not;
byte events;	/* fired, ever */
bool counted[8]; /* each of them, by what its ringer or the control thread says */
byte fd;	/* counts in the channel */
byte owed, spare;
bool asked, locked;
byte there[2], seen[2]; /* messages of each ringer */
bool stopped[2];

inline lock()
{
	atomic { !locked -> locked = true }
}

inline stop_or_die(k)
{
	if
	:: true
	:: stopped[k] = true; goto gone
	:: atomic {
#ifndef BROKEN_DEATH
		asked = true; /* died */
#endif
		goto gone }
	fi
}

proctype ringer(byte k)
{
	byte i, e;
	bool ours;

	for (i : 1 .. MESSAGES) {
		there[k]++;
		atomic {
			ours = false;
			if
			:: armed == any ->
				armed = fired;
				e = events;
				events++;
				ours = true
#ifdef BROKEN_HELP
			:: armed == fired && !counted[events - 1] -> fd++
#else
#ifndef BROKEN_NO_ASK
			:: armed == fired && !counted[events - 1] ->
				asked = true
#endif
#endif
			:: else -> skip
			fi }
		if
		:: ours ->
			stop_or_die(k);
#ifdef BROKEN_SAID
			counted[e] = true;
			stop_or_die(k);
			fd++
#else
			fd++;
			stop_or_die(k);
			counted[e] = true
#endif
		:: else -> skip
		fi
	}
gone:	skip
}

/* Where an event is there, a thread that takes sees the change and `owed`
 * together. */
inline arm()
{
#ifdef BROKEN_OWED
	was = armed;
	atomic { was = armed; armed = any };
	if
	:: was == fired -> owed++
	:: else -> skip
	fi
#else
	lock();
	atomic {
		if
		:: armed == fired -> owed++
		:: else -> skip
		fi;
		armed = any;
		locked = false }
#endif
}

proctype program()
{
	mtype was;

	do
	:: arm();
		seen[0] = there[0];
		seen[1] = there[1];
endsleeps:	fd > 0;
		lock();
		fd--;
		atomic {
			if
			:: owed > 0 -> owed--
			:: owed == 0 && armed == fired -> armed = not
			:: owed == 0 && armed != fired && spare > 0 -> spare--
			:: else -> assert(false) /* EAGAIN */
			fi;
			locked = false }
	od
}

proctype other()
{
	mtype was;

	arm();
	was = not
}

proctype control()
{
	byte e;

endlooks:
	do
	:: atomic { asked -> asked = false };
		lock();
		atomic {
			for (e : 0 .. events - 1) {
				if
				:: !counted[e] ->
					counted[e] = true;
					fd++;
#ifndef BROKEN_NO_SPARE
					spare++
#endif
				:: else -> skip
				fi
			}
			e = 0;
			locked = false }
	od
}

proctype judge()
{
	timeout -> assert((seen[0] == there[0] ||
			   (stopped[0] && seen[0] + 1 == there[0])) &&
			  (seen[1] == there[1] ||
			   (stopped[1] && seen[1] + 1 == there[1])))
}

init
{
	atomic {
		run ringer(0);
		run ringer(1);
		run program();
		run other();
		run control();
		run judge()
	}
}
