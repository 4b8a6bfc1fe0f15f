/* SPDX-License-Identifier: MIT */
/*
 * wait.pml - arm, re-check, sleep against publish, wake (src/env/real/wait.c
 * and its one user, src/env/engine/engine.c), on a machine with store buffers.
 *
 * One sleeper, WAKERS wakers with ITEMS pieces of work each. A plain store goes
 * into its thread's buffer (a FIFO) and reaches memory at any later time; a
 * fence or a locked operation waits until the buffer is empty; loads read
 * memory. That is x86's order, and the one reordering that matters here, a
 * store after a later load, is what every weaker machine has as well.
 *
 * Claim: the sleeper consumes everything. If it can sleep while work is there
 * and nobody will wake it, spin reports an invalid end state. Each
 * -DBROKEN_... takes one thing out and must be reported.
 */
#define WAKERS 2
#define ITEMS 2
#define SLEEPER WAKERS

byte work[WAKERS];     /* published by waker i, a counter */
byte consumed[WAKERS]; /* the sleeper's own */
bool armed;
bool used;	       /* env_waiter_lead.used: it may be armed */
byte tokens;	       /* the eventfd */

/* the store buffers: of each waker for its work, of the sleeper for armed */
chan buffer[3] = [2] of { byte };

#define fence(i) empty(buffer[i])

proctype drain(byte i)
{
	byte v;
end:
	do
	:: atomic { buffer[i]?v;
		if
		:: i == SLEEPER -> armed = v
		:: else -> work[i] = v
		fi }
	od
}

proctype waker(byte i)
{
	byte n = 0;
	bool was;

	do
	:: n < ITEMS ->
		n++;
		buffer[i]!n;			/* publish */
		if
		:: !used -> skip
		:: used ->
#ifndef BROKEN_NO_FENCE_WAKE
			fence(i);
#endif
			if
			:: !armed -> skip
			:: armed ->		/* exchange: locked */
				atomic { fence(i); was = armed; armed = false };
				if
				:: was -> tokens++	/* write(eventfd) */
				:: else -> skip
				fi
			fi
		fi
	:: else -> break
	od
}

/* poll(): takes what there is; true when there was any */
inline consume(any)
{
	any = false;
	k = 0;
	do
	:: k < WAKERS ->
		if
		:: work[k] != consumed[k] ->
			consumed[k] = work[k];
			any = true
		:: else -> skip
		fi;
		k++
	:: else -> break
	od
}

proctype sleeper()
{
	byte k;
	bool any;

	do
	:: consumed[0] + consumed[1] == WAKERS * ITEMS -> break
	:: else ->
		consume(any);
		if
		:: any -> skip
		:: else ->
			if
			:: used -> skip
			:: else ->		/* the first time */
				used = true;
#ifndef BROKEN_NO_FENCE_ALL
				fence(0);	/* membarrier(2) */
				fence(1)
#endif
			fi;
			buffer[SLEEPER]!true;	/* arm */
#ifndef BROKEN_NO_FENCE_ARM
			fence(SLEEPER);
#endif
#ifndef BROKEN_NO_RECHECK
			consume(any);
#endif
			if
			:: any -> buffer[SLEEPER]!false	/* disarm */
			:: else ->
				/* epoll_wait(), then read(eventfd): a system
				 * call drains nothing by itself */
				atomic { tokens > 0 -> tokens = 0 };
				buffer[SLEEPER]!false	/* disarm */
			fi
		fi
	od
}

init {
	atomic {
		run drain(0);
		run drain(1);
		run drain(SLEEPER);
		run waker(0);
		run waker(1);
		run sleeper()
	}
}
