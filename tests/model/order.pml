/* SPDX-License-Identifier: MIT */
/*
 * order.pml - the order rings of a shared receive queue (src/dev/soft/srq/take.c,
 * order.c, srq.c). The claims themselves are claim.pml's: here a claim is one
 * step.
 *
 * Two QPs' peers send messages into SLOTS receives. One may die
 * between any two steps, the other once gives a claimed receive back unused;
 * without a receive they wait to be rung. The owner posts, reaps by the rings,
 * sweeps the dead. Words have one writer or change by a CAS, and where a store
 * is followed by a load of what the other side stores there is a membarrier at
 * one end, so interleavings are all there is to check.
 *
 * Checked: each QP's messages arrive in order, once; all that was DONE arrives,
 * though its sender be dead; no receive is lost; nobody waits for ever (an
 * invalid end state).
 *
 * Variants that must fail:
 *	BROKEN_EARLY	the entry is written before DONE, and believed
 *	BROKEN_LAP	an entry does not say its lap
 *	BROKEN_SWEEP	DONE without an entry is not looked for
 *	BROKEN_CLAIMED	what a dead one has claimed is not posted again
 *	BROKEN_LOOK	no second look after `waiting` was set
 *	BROKEN_CLEAR	`waiting` is cleared after the waiters were rung
 */
#define SLOTS 2
#define QPS 2
/* and one given back: more than a lap; the other dies at its first */
#define MSGS(q) (2 - q)

#define FREE 0
#define POSTED 1
#define CLAIMED 2
#define DONE 3

byte w_st[SLOTS], w_id[SLOTS];
byte data[SLOTS];	  /* the message; 0: given back unused */
byte e_lap[QPS * SLOTS];  /* 0: never written */
byte e_slot[QPS * SLOTS];
bool waiting, parked[QPS], rung[QPS];
bool dead[QPS];
byte finished[QPS]; /* messages that were DONE: what must arrive */
byte next[QPS];	    /* messages that have arrived */
byte reap[QPS];	    /* entries that were taken */
byte ended;

/* One of them: what they do alike is looked at once. */
#define may_die if :: me == 1 -> goto die :: true -> skip fi

inline look(ok, slot)
{
	atomic {
		if
		:: w_st[0] == POSTED -> slot = 0; ok = true
		:: w_st[0] != POSTED && w_st[1] == POSTED -> slot = 1; ok = true
		:: else -> ok = false
		fi;
		if
		:: ok -> w_st[slot] = CLAIMED; w_id[slot] = me
		:: else -> skip
		fi
	}
}

inline entry(n, slot)
{
	atomic {
		e_slot[me * SLOTS + n % SLOTS] = slot;
		e_lap[me * SLOTS + n % SLOTS] = n / SLOTS + 1
	}
}

proctype peer(byte me)
{
	byte n, slot, msg = 1;
	bool ok, gave;

again:
	if :: msg > MSGS(me) -> goto done :: else -> skip fi;
	look(ok, slot);
	if
	:: ok -> goto have
	:: else -> skip
	fi;
	if
	:: !waiting ->
		waiting = true;
#ifndef BROKEN_LOOK
		look(ok, slot);
		if :: ok -> goto have :: else -> skip fi
#endif
	:: else -> skip
	fi;
	if
	:: !parked[me] -> parked[me] = true; goto again
	:: else -> skip
	fi;
	rung[me];
	rung[me] = false;
	goto again;
have:
	may_die;
	if
	:: me == 0 && !gave -> gave = true; data[slot] = 0
	:: else -> data[slot] = msg
	fi;
	may_die;
#ifdef BROKEN_EARLY
	entry(n, slot);
	may_die;
	atomic { w_st[slot] = DONE;
		if :: data[slot] -> finished[me]++ :: else -> skip fi };
#else
	atomic { w_st[slot] = DONE;
		if :: data[slot] -> finished[me]++ :: else -> skip fi };
	may_die;
	entry(n, slot);
#endif
	n++;
	may_die;
	/* what is in the slot may be another's by now */
	if
	:: finished[me] == msg -> msg++; parked[me] = false
	:: else -> skip
	fi;
	goto again;
die:
	dead[me] = true;
done:
	ended++
}

inline ring_all()
{
	if
	:: waiting ->
#ifndef BROKEN_CLEAR
		waiting = false;
#endif
		if :: parked[0] -> rung[0] = true :: else -> skip fi;
		if :: parked[1] -> rung[1] = true :: else -> skip fi;
#ifdef BROKEN_CLEAR
		waiting = false
#endif
	:: else -> skip
	fi
}

inline post(s)
{
	w_st[s] = POSTED;
	ring_all()
}

#ifdef BROKEN_LAP
#define lap_ok(q) (e_lap[q * SLOTS + reap[q] % SLOTS] != 0)
#else
#define lap_ok(q) (e_lap[q * SLOTS + reap[q] % SLOTS] == reap[q] / SLOTS + 1)
#endif
#define e_now(q) e_slot[q * SLOTS + reap[q] % SLOTS]
#ifdef BROKEN_EARLY
#define there(q) (lap_ok(q) && w_id[e_now(q)] == q)
#else
#ifdef BROKEN_LAP
#define there(q) (lap_ok(q) && w_st[e_now(q)] == DONE)
#else
#define there(q) \
	(lap_ok(q) && w_st[e_now(q)] == DONE && w_id[e_now(q)] == q)
#endif
#endif

/* poll_cq() */
inline take(q)
{
	atomic {
		s = e_now(q);
		reap[q]++;
		if
		:: data[s] ->
			next[q]++;
			assert(data[s] == next[q]);
			w_st[s] = FREE
		:: else -> yes = true
		fi
	};
	if
	:: yes -> yes = false; post(s)
	:: else -> skip
	fi;
	s = 0
}

/* Is slot s in no entry of q that was not taken yet? */
inline missing(q, s, yes)
{
	yes = true;
	k = 0;
	do
	:: k < SLOTS ->
		if
		:: e_lap[q * SLOTS + (reap[q] + k) % SLOTS] ==
			   (reap[q] + k) / SLOTS + 1 &&
			   e_slot[q * SLOTS + (reap[q] + k) % SLOTS] == s ->
			yes = false
		:: else -> skip
		fi;
		k++
	:: else -> break
	od
}

/* How many entries there are that were not taken yet: to k. */
inline count(q)
{
	k = 0;
	do
	:: k < SLOTS && e_lap[q * SLOTS + (reap[q] + k) % SLOTS] ==
			(reap[q] + k) / SLOTS + 1 -> k++
	:: else -> break
	od
}

inline sweep(q)
{
	d_step { s = 0 };
	do
	:: s < SLOTS ->
		if
#ifndef BROKEN_CLAIMED
		:: w_st[s] == CLAIMED && w_id[s] == q -> post(s)
#endif
#ifndef BROKEN_SWEEP
		:: w_st[s] == DONE && w_id[s] == q ->
			atomic {
				missing(q, s, yes);
				if
				:: yes ->
					yes = false;
					count(q);
					e_slot[q * SLOTS + (reap[q] + k) %
					       SLOTS] = s;
					e_lap[q * SLOTS + (reap[q] + k) %
					      SLOTS] =
						(reap[q] + k) / SLOTS + 1
				:: else -> skip
				fi;
				k = 0
			}
#endif
		:: else -> skip
		fi;
		s++
	:: else -> s = 0; break
	od
}

proctype owner()
{
	byte s, k;
	bool yes, swept[QPS];

	do
	:: w_st[0] == FREE -> s = 0; post(s)
	:: w_st[1] == FREE -> s = 1; post(s)
	:: there(0) -> take(0)
	:: there(1) -> take(1)
	:: dead[0] && !swept[0] -> swept[0] = true; sweep(0)
	:: dead[1] && !swept[1] -> swept[1] = true; sweep(1)
	:: ended == QPS && (!dead[0] || swept[0]) && (!dead[1] || swept[1]) &&
	   !there(0) && !there(1) && w_st[0] != FREE && w_st[1] != FREE ->
		break
	od;
	assert(w_st[0] == POSTED && w_st[1] == POSTED);
	assert(next[0] == finished[0] && next[1] == finished[1]);
	assert(dead[0] || next[0] == MSGS(0));
	assert(dead[1] || next[1] == MSGS(1))
}

init {
	atomic {
		run peer(0);
		run peer(1);
		run owner()
	}
}
