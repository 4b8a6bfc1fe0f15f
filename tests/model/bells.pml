/* SPDX-License-Identifier: MIT */
/*
 * bells.pml - which thread takes a bell: those that sleep in epoll sets, or the helper
 * (src/bind/socket/bells.c).
 *
 * Two streams, each in a set of its own, with a thread each, and a forked child
 * that may sleep in the first set. The channel counts bells; each set and the
 * helper's, which is the last, wait for it exclusively: a bell tells the first
 * set in which a thread sleeps at that moment, and the helper if there is none.
 * What a set is told of stays there until a thread of it takes it; so it does
 * where the thread's buffer was full of other events. What stands between lock
 * and unlock is one step, as all of it is under st.lock.
 *
 * A stream's reader has asked once: every record rings (event mode).
 *
 * One thread may stay away, in a handler without an end. The helper may be told
 * by any change of its set, which is shown as: it joins the queue again.
 *
 * Claim: when nothing can move any more, all records were taken, but those of
 * a thread that stays away.
 */
#ifndef RECORDS
#define RECORDS 2
#endif
#define STREAMS 2

byte written[STREAMS], taken[STREAMS];
byte count;		/* bells in the channel */
bool rang[STREAMS];	/* what they are about */
bool in_kernel[STREAMS]; /* the set's thread is in epoll_wait() */
bool told[STREAMS];	/* the set's list has the channel */
bool woken[STREAMS];	/* the set's eventfd is set */
bool armed[STREAMS];	/* it may be set */
bool away[STREAMS];	/* the thread does not come back */
bool joined[STREAMS];	/* the set has the channel */
bool child_in;		/* the child is in epoll_wait() of set 0 */
bool helper_told;

#define has(k) (written[k] > taken[k])

/* The kernel's choice. A set that no thread sleeps in is told too, but does
 * not keep the bell from the next one. */
inline ring()
{
	count++;
	if
	:: joined[0] -> told[0] = true
	:: else -> skip
	fi;
	if
	:: joined[0] && (in_kernel[0] || child_in) -> skip
	:: else ->
		if
		:: joined[1] -> told[1] = true
		:: else -> skip
		fi;
		if
		:: joined[1] && in_kernel[1] -> skip
		:: else -> helper_told = true
		fi
	fi
}

inline wake(k)
{
	if
	:: armed[k] -> armed[k] = false; woken[k] = true
	:: else -> skip
	fi
}

/* Takes all in, and wakes the others. */
inline take_in(me)
{
#ifdef BROKEN_ONE
	if
	:: count -> count--;
		if
		:: rang[0] -> rang[0] = false;
			if
			:: me != 0 -> wake(0)
			:: else -> skip
			fi
		:: else -> rang[1] = false;
			if
			:: me != 1 -> wake(1)
			:: else -> skip
			fi
		fi
	:: else -> skip
	fi
#else
	count = 0;
	if
	:: rang[0] -> rang[0] = false;
		if
		:: me != 0 -> wake(0)
		:: else -> skip
		fi
	:: else -> skip
	fi;
	if
	:: rang[1] -> rang[1] = false;
#ifndef BROKEN_OWN_ONLY
		if
		:: me != 1 -> wake(1)
		:: else -> skip
		fi
#endif
	:: else -> skip
	fi
#endif
}

proctype writer(byte k)
{
end:
	do
	:: atomic { written[k] < RECORDS ->
		written[k]++; rang[k] = true; ring() }
	od
}

proctype thread(byte k)
{
	bool heard;

	do
	:: atomic {
		/* The look before the sleep. */
		if
		:: has(k) -> taken[k] = written[k]; goto leave
		:: else -> skip
		fi;
		/* It joins when it sleeps first. */
		if
		:: joined[k] -> skip
		:: else -> joined[k] = true; helper_told = count > 0;
			told[k] = count > 0
		fi;
#ifndef BROKEN_ARM_LATE
		armed[k] = true;
#endif
		in_kernel[k] = true };
#ifdef BROKEN_ARM_LATE
		armed[k] = true;
#endif
endsleeps:
		/* Out of the kernel; full: the buffer has no room for that. */
		atomic { told[k] || woken[k] ->
			in_kernel[k] = false;
			heard = false;
			if
			:: told[k] -> told[k] = false; heard = true
			:: told[k] -> skip /* full */
#ifndef BROKEN_FULL
				; heard = true
#endif
			:: else -> skip
			fi };
		atomic {
			woken[k] = false;
			armed[k] = false;
			if
			:: heard -> take_in(k)
			:: else -> skip
			fi;
			if
			:: has(k) -> taken[k] = written[k]; goto leave
			:: else -> goto again
			fi };
leave:		if
		:: true
		:: atomic { !away[0] && !away[1] -> away[k] = true }; break
		fi;
again:		skip
	od
}

/* A child that its parent's set has told: it rings again, out of the set. */
proctype child()
{
	child_in = true;
endsleeps:
	atomic { told[0] -> told[0] = false; child_in = false };
#ifndef BROKEN_CHILD
	atomic { joined[0] = false; ring() }
#endif
}

proctype helper()
{
end:
	do
	:: atomic { helper_told -> helper_told = false; take_in(9) }
	od
}

proctype judge()
{
	timeout -> assert((taken[0] == RECORDS || away[0]) &&
			  (taken[1] == RECORDS || away[1]))
}

init
{
	byte i;

	atomic {
		for (i : 0 .. STREAMS - 1) { run writer(i); run thread(i) }
		run child();
		run helper();
		run judge()
	}
}
