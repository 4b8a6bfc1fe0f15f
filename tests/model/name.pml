/* SPDX-License-Identifier: MIT */
/*
 * name.pml - a UD QP leaves its SRQ (src/dev/soft/ud/srq.c), whose receives
 * senders claim for it and for another QP.
 *
 * A sender looks at the gate, claims, writes the name of the QP that it means
 * into the receive, looks at the gate again, writes the message. The owner
 * posts receives again as they complete; at some time it shuts the gate of QP X
 * and waits until no claim bears its name. What is modelled is an interleaving
 * of single steps: the claim is a locked operation, and the owner does a
 * membarrier(2) between the gate and the claims. claim.pml has the claim itself.
 *
 * Checked: nobody writes for X once it has left; X waits for nobody who means
 * the other QP, one who has stopped for good included (an invalid end state).
 *
 * Variants that must fail:
 *	BROKEN_LATE	the name is written behind the look at the gate
 *	BROKEN_LOOK	the gate is not looked at again
 *	BROKEN_STALE	a receive is posted with the name of the message before
 */
#define SLOTS 2
#define MSGS 2
#define X 1
#define Y 2

#define POSTED 1
#define CLAIMED 2
#define DONE 3

byte st[SLOTS] = POSTED, name[SLOTS];
bool gate = true, gone;
byte ended;

proctype sender(byte dest; bool stops)
{
	byte s, n;

	do
	:: n < MSGS ->
		n++;
		if
		:: dest == X && !gate -> break
		:: else -> skip
		fi;
		if
		:: atomic { st[0] == POSTED -> st[0] = CLAIMED; s = 0 }
		:: atomic { st[1] == POSTED -> st[1] = CLAIMED; s = 1 }
		fi;
		if
		:: stops -> goto out
		:: true -> skip
		fi;
#ifndef BROKEN_LATE
		name[s] = dest;
#endif
#ifndef BROKEN_LOOK
		if
		:: dest == X && !gate -> st[s] = DONE; break
		:: else -> skip
		fi;
#endif
#ifdef BROKEN_LATE
		name[s] = dest;
#endif
		assert(dest != X || !gone);
		if
		:: stops -> goto out
		:: true -> skip
		fi;
		assert(dest != X || !gone);
		st[s] = DONE
	:: else -> break
	od;
out:
	ended++
}

#ifdef BROKEN_STALE
#define post(s) st[s] = POSTED
#else
#define post(s) name[s] = 0; st[s] = POSTED
#endif

/* poll_cq(), and the owner that posts again what is done */
active proctype poster()
{
end:
	do
	:: st[0] == DONE -> post(0)
	:: st[1] == DONE -> post(1)
	od
}

active proctype owner()
{
	gate = false;
	do
	:: (st[0] == CLAIMED && name[0] == X) ->
		(st[0] != CLAIMED || name[0] != X)
	:: (st[1] == CLAIMED && name[1] == X) ->
		(st[1] != CLAIMED || name[1] != X)
	:: else -> break
	od;
	gone = true;
	/* receives of the two that stopped are held, the others' are not */
	ended == 2
}

init {
	atomic { run sender(X, false); run sender(Y, true) }
}
