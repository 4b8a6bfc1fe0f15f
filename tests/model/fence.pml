/* SPDX-License-Identifier: MIT */
/*
 * fence.pml - one side without a fence: the poster's hazard and the owner's
 * key (src/dev/soft/quiesce.c), and in the same shape the user's `busy` and the
 * revoker's `mode` (src/dev/soft/lock.c). The seldom side makes the fence of
 * the other side: by membarrier(2), or, where a sandbox refuses that call, by
 * waiting until the other side's core has taken a timer interrupt
 * (src/env/membarrier.c).
 *
 * A plain store goes into its core's buffer (a FIFO) and reaches memory at any
 * later time; a fence waits until the buffer is empty; loads read memory. An
 * interrupt empties the buffer of the core that takes it. Interrupts come at
 * any time; a wait ends when each core has taken one since the wait began.
 * That is x86's order. -DREFUSED: there is no membarrier(2).
 *
 * Claim: the poster is never inside memory that its owner has got back.
 */
#define POSTS 2
#define POSTER 0
#define OWNER 1
#define HAZARD 0
#define KEY 1

bool shared_hazard;	/* the poster is inside */
bool key = true;	/* the memory may be used */
bool inside, freed;	/* what is true, not what is seen */
bool ticked[2];		/* an interrupt since the wait began */

chan buffer[2] = [3] of { byte, bool };

#define fence(i) empty(buffer[i])

inline commit(i)
{
	buffer[i]?which[i],value[i];
	if
	:: which[i] == HAZARD -> shared_hazard = value[i]
	:: else -> key = value[i]
	fi
}

byte which[2];
bool value[2];

/* what leaves the buffer by itself */
proctype drain(byte i)
{
end:
	do
	:: atomic { nempty(buffer[i]) -> commit(i) }
	od
}

/* the timer interrupts of a core */
proctype tick(byte i)
{
end:
	do
	:: atomic {
		!ticked[i] ->
		do
		:: nempty(buffer[i]) -> commit(i)
		:: empty(buffer[i]) -> break
		od;
		ticked[i] = true
	   }
	od
}

proctype poster()
{
	byte n = 0;
	bool may;

	do
	:: n < POSTS ->
		n++;
#ifdef BROKEN_LOOK_FIRST
		may = key;
		buffer[POSTER]!HAZARD,true;
#else
		buffer[POSTER]!HAZARD,true;	/* no fence behind it */
		may = key;
#endif
		if
		:: may ->
			inside = true;
			assert(!freed);
			inside = false
		:: else -> skip
		fi;
		buffer[POSTER]!HAZARD,false
	:: else -> break
	od
}

proctype owner()
{
	buffer[OWNER]!KEY,false;
#ifdef REFUSED
#ifndef BROKEN_NO_OWN_FENCE
	fence(OWNER);
#endif
#ifndef BROKEN_NO_WAIT
	atomic { ticked[POSTER] = false; ticked[OWNER] = false };
#ifdef BROKEN_OWN_TICK
	ticked[OWNER];	/* its own core's interrupt says nothing */
#else
	ticked[POSTER];
#endif
#endif
#else
#ifndef BROKEN_NO_BARRIER
	atomic { fence(OWNER); fence(POSTER) };
#endif
#endif
	!shared_hazard;		/* it waits until the poster has left */
	freed = true;
	assert(!inside)
}

init {
	atomic {
		run drain(POSTER);
		run drain(OWNER);
		run tick(POSTER);
		run tick(OWNER);
		run poster();
		run owner()
	}
}
