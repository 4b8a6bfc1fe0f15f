/* SPDX-License-Identifier: MIT */
/*
 * engine.pml - who runs the engine next (src/env/engine/engine.c): callers that wait
 * in places while another owns it, hand-over on leaving, passing on by one who
 * no longer needs it, and the background thread that parks.
 *
 * The wake protocol of a single waiter is wait.pml's; here wake and sleep are
 * whole steps. The one store whose buffering matters, owner = 0 on leaving, has
 * a buffer. Each caller waits for its own reply, which arrives at any time and
 * is noticed by the thread that runs the engine; it may give up at a deadline.
 *
 * Claim: every caller ends, and in the end the background thread has the
 * engine or is on its way to it; else spin reports an invalid end state.
 */
#define CALLERS 3
#define BACK CALLERS
#define NOBODY 255

byte owner = NOBODY;
bool leaving[4];	/* owner = NOBODY is in thread i's store buffer */
bool locked;
bool in_place[CALLERS];
byte n_places;
bool reply[CALLERS], done[CALLERS];
bool armed[4], token[4];
bool parked;

#define is_free() (owner == NOBODY)

inline lock()	{ atomic { !locked -> locked = true } }
inline unlock() { locked = false }

inline wake(j)
{
	if
	:: atomic { armed[j] -> armed[j] = false; token[j] = true }
	:: else -> skip
	fi
}

proctype drain(byte i)
{
end:
	do
	:: atomic { leaving[i] -> owner = NOBODY; leaving[i] = false }
	od
}

/* The network: replies come when they come. */
proctype world(byte i)
{
	reply[i] = true
}

/* Any of the places: more than the code allows, which takes the oldest. */
inline wake_a_place()
{
	lock();
	if
	:: in_place[0] -> wake(0)
	:: in_place[1] -> wake(1)
	:: in_place[2] -> wake(2)
	:: !in_place[0] && !in_place[1] && !in_place[2] -> skip
	fi;
	unlock()
}

inline leave(i)
{
	leaving[i] = true;
#ifndef BROKEN_NO_FENCE_LEAVE
	!leaving[i];
#endif
	if
	:: n_places -> wake_a_place()
	:: else ->
		if
		:: parked -> wake(BACK)
		:: else -> skip
		fi
	fi
}

inline pass_on()
{
#ifndef BROKEN_NO_PASS_ON
	if
	:: is_free() ->
		if
		:: n_places -> wake_a_place()
		:: else ->
#ifndef BROKEN_PASS_ON_FORGETS_BACK
			if
			:: parked -> wake(BACK)
			:: else -> skip
			fi
#else
			skip
#endif
		fi
	:: else -> skip
	fi
#else
	skip
#endif
}

/* A round: replies become results, and the callers that wait for them are
 * woken. */
inline round(k)
{
	k = 0;
	do
	:: k < CALLERS ->
		if
		:: reply[k] && !done[k] ->
			done[k] = true;
			lock();
			if
			:: in_place[k] -> wake(k)
			:: else -> skip
			fi;
			unlock()
		:: else -> skip
		fi;
		k++
	:: else -> break
	od
}

#define work_is_there() ((reply[0] && !done[0]) || \
			 (reply[1] && !done[1]) || (reply[2] && !done[2]))

proctype caller(byte i)
{
	byte k;
	bool late = false;

again:
	if
	:: done[i] -> goto passing
	:: else -> skip
	fi;
	if
	:: atomic { is_free() -> owner = i }
	:: else -> goto wait
	fi;
	do	/* engine_run() */
	:: done[i] -> break
	:: else ->
		/* asleep until there is work: wait.pml; or the deadline */
		if
		:: work_is_there() -> round(k)
		:: done[i] -> skip
		:: break
		:: /* let_go(): gives its core away, and wakes nobody */
			leaving[i] = true;
#ifndef BROKEN_NO_FENCE_LET_GO
			!leaving[i];
#endif
			goto again
		fi
	od;
	leave(i);
	goto out;

wait:	/* engine_await() */
	lock();
	in_place[i] = true;
	n_places++;
	unlock();
	do
	:: done[i] -> break
	:: is_free() -> break
	:: else ->
		if
		:: late -> break
		:: else -> skip
		fi;
		armed[i] = true;
		if
		:: done[i] || is_free() -> armed[i] = false; break
		:: else -> skip
		fi;
		if	/* env_waiter_sleep() */
		:: atomic { token[i] -> token[i] = false }
		:: i != 2 -> late = true	/* the last has no deadline */
		fi;
		armed[i] = false
	od;
	lock();
	in_place[i] = false;
	n_places--;
	unlock();
	if
	:: late && !done[i] -> goto passing
	:: else -> goto again
	fi;

passing:
	pass_on();
out:	skip
}

proctype background()
{
	byte k;

	do
	:: if
	   :: atomic { is_free() -> owner = BACK } ->
		do	/* engine_run(), giving way */
		:: n_places -> break
		:: else ->
end_run:		if
			:: work_is_there() -> round(k)
			:: n_places -> skip
			fi
		od;
		leave(BACK)
	   :: else -> skip
	   fi;
	   if
	   :: skip		/* a nap: it ends by itself */
	   :: !is_free() ->	/* back_park() */
		parked = true;
		armed[BACK] = true;
		if
		:: is_free() -> armed[BACK] = false
		:: else ->
			atomic { token[BACK] -> token[BACK] = false };
			armed[BACK] = false
		fi;
		parked = false
	   fi
	od
}

init {
	atomic {
		run drain(0);
		run drain(1);
		run drain(2);
		run drain(BACK);
		run world(0);
		run world(2);
		run caller(0);
		run caller(2);
#ifdef WITH_BACK
		run background()	/* in place of the third caller */
#else
		run caller(1)
#endif
	}
}
