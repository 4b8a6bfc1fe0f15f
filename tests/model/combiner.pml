/* SPDX-License-Identifier: MIT */
/*
 * combiner.pml - the thread combining queue (src/conn/handle/combiner.c): swap on the tail, link,
 * lead, hand over, reuse of nodes.
 *
 * THREADS threads submit SUBMITS requests each, every one with one node of its
 * own. Each statement is one access to shared memory, all of them ordered:
 * which order each needs is argued in combiner.c. The message that a leader sends is
 * one step, of at most BOUND requests.
 *
 * Claims: one leader at a time; every request is sent exactly once, before its
 * owner goes on, and in the order of the swaps; the lead is never lost (else an
 * invalid end state); nobody writes to a node that is its owner's again; a
 * leader never waits for a thread between its swap and its link (-DWITH_STOP:
 * thread 0 stops there for ever, and what is before it must end all the same).
 * -DWITH_ALONE: a leader may take along nobody of those that stand behind it
 * (combiner_alone()). -DWITH_HOLD: thread 1 holds the sending side instead of sending
 * (combiner_hold()): its turns come in the order of the swaps too, and nobody takes
 * them along.
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef SUBMITS
#define SUBMITS 2
#endif
#ifndef BOUND
#define BOUND 2
#endif

#define NONE THREADS
#define LEFT (THREADS + 1)

#ifdef WITH_HOLD
#define SOLO(t) ((t) == 1)
#else
#define SOLO(t) false
#endif

mtype = { queued, leads, done };

byte tail = NONE;
byte next[THREADS];
mtype state[THREADS];
byte leaders;
byte sent[THREADS];   /* how often */
byte asked[THREADS];  /* how many its owner has submitted */
bool lent[THREADS];   /* a follower holds a pointer to it, unlinked */

/* the order of the swaps, and how far it was sent */
byte order[THREADS * SUBMITS];
byte n_order, n_sent;

inline send_batch()
{
	atomic {
		leaders++;
		assert(leaders == 1);
	}
	last = me;
	count = (SOLO(me) -> BOUND : 1);
#ifdef WITH_ALONE
	if
	:: skip
	:: count = BOUND
	fi;
#endif
	do
	:: count < BOUND ->
		atomic {
			follower = next[last];
			if
#ifdef BROKEN_TAKES_SOLO
			:: follower < THREADS -> last = follower; count++
#else
			:: follower < THREADS && !SOLO(follower) ->
				last = follower; count++
#endif
			:: else -> break
			fi
		}
	:: else -> break
	od;
	/* the message */
	atomic {
		follower = me;
		do
		:: assert(order[n_sent] == follower);
			n_sent++;
			sent[follower]++;
			assert(follower == me || !SOLO(follower));
			assert(sent[follower] == asked[follower]);
			if
			:: follower == last -> break
			:: else -> follower = next[follower]
			fi
		od
	}
}

inline tell_all()
{
	if
	:: last != me ->
		follower = next[me];
		do
		:: after = next[follower];
			state[follower] = done;
			if
			:: follower == last -> break
			:: else -> follower = after
			fi
		od
	:: else -> skip
	fi
}

inline leave()
{
	leaders--;
	follower = next[last];
	if
	:: follower == NONE ->
#ifdef BROKEN_NO_CAS
		/* empties the queue although somebody has swapped */
		tail = NONE;
		follower = LEFT
#else
		atomic {
			if
			:: tail == last -> tail = NONE; follower = LEFT
			:: else -> skip
			fi
		};
#endif
#ifdef BROKEN_WAITS
		/* waits for the link instead of leaving its mark */
		if
		:: follower == NONE -> next[last] != NONE;
			follower = next[last]
		:: else -> skip
		fi;
#endif
#ifndef BROKEN_NO_MARK
		if
		:: follower == NONE ->
			atomic {
				if
				:: next[last] == NONE -> next[last] = LEFT;
					follower = LEFT
				:: else -> follower = next[last]
				fi
			}
		:: else -> skip
		fi
#else
		/* somebody will link some day, and nobody will tell it */
		if
		:: follower == NONE -> follower = LEFT
		:: else -> skip
		fi
#endif
	:: else -> skip
	fi;
	if
	:: follower < THREADS -> state[follower] = leads
	:: else -> skip
	fi
}

inline lead()
{
	send_batch();
#ifdef BROKEN_TOLD_FIRST
	tell_all();
	leave();
#else
	/* what tell_all() needs of its own node, before that is lent */
	leave();
	tell_all();
#endif
}

proctype thread(byte me)
{
	byte prev, last, count, follower, after;

	do
	:: asked[me] < SUBMITS ->
#ifndef BROKEN_REUSE
		next[me] != LEFT;		/* combiner_node_settle() */
#endif
		assert(!lent[me]);
		next[me] = NONE;
		state[me] = queued;
		atomic {			/* the swap */
			asked[me]++;
			prev = tail;
			tail = me;
			order[n_order] = me;
			n_order++;
			if
			:: prev < THREADS -> lent[prev] = true
			:: else -> skip
			fi
		};
		if
		:: prev == NONE -> lead()
		:: else ->
#ifdef WITH_STOP
			if
			:: me == 0 ->
end_stopped:			false		/* for ever */
			:: else -> skip
			fi;
#endif
			atomic {		/* the link */
				count = next[prev];
				next[prev] = me;
				lent[prev] = false
			};
			if
			:: count == LEFT -> lead()
			:: else ->
end_behind:			(state[me] != queued);
				if
				:: state[me] == leads -> lead()
				:: else -> skip
				fi
			fi
		fi;
		assert(sent[me] == asked[me])
	:: else -> break
	od
}

init {
	byte i;

	atomic {
		for (i : 0 .. THREADS - 1) {
			next[i] = NONE;
			state[i] = done
		}
		for (i : 0 .. THREADS - 1) {
			run thread(i)
		}
	}
#ifdef WITH_STOP
	/* A sender that is not behind the stopped one has ended, or stands behind:
	 * an end state where nobody leads, and all before it was sent. */
	timeout;
	assert(leaders == 0);
	assert(n_sent == n_order || order[n_sent] == 0)
#else
	(_nr_pr == 1);
	assert(n_sent == THREADS * SUBMITS)
#endif
}
