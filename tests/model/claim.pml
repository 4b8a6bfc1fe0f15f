/* SPDX-License-Identifier: MIT */
/*
 * claim.pml - receive slots that many producers claim (src/dev/soft/srq/claim.h).
 *
 * Producers send MSGS messages each into SLOTS slots; one may die between any
 * two steps, another may stop there for good. The owner posts, reaps, sweeps
 * the dead, deregisters the memory of the receives once, and at last takes the
 * queue away. Words change by a CAS or have one writer, and the claim is a
 * locked operation, so interleavings are all there is to check; the one place
 * where an order of a store and a later load matters (claim, then gate and key;
 * key or gate, then claims) has a fence at either end.
 *
 * Checked: who has claimed a slot found it as it was posted; a claimed slot has
 * one claimant; nobody writes into memory that was deregistered, or into a
 * queue that was taken away; messages of the living arrive, once each, whatever
 * the dead and the stopped left behind; no slot of a dead one is lost. Waiting
 * for ever is an invalid end state.
 *
 * Variants that must fail:
 *	BROKEN_POS	the CAS does not look at the position
 *	BROKEN_HELP	only who has claimed a slot moves the head
 *	BROKEN_SWEEP	a stopped claimant is taken for a dead one
 *	BROKEN_LOOK	the claimant does not look at the key again
 *	BROKEN_CLOSE	what is posted is not taken back before the end
 *	BROKEN_HEAD	the gate is read before the head
 *	BROKEN_LIFE	the next life begins at the position behind the last
 * in the worlds WITH_STOP (else: with a death), WITH_DEREG, WITH_DESTROY.
 */
#define SLOTS 2
#define PRODUCERS 2
#ifndef MSGS
#define MSGS 2
#endif
#define OWNER 9

#define FREE 0
#define POSTED 1
#define CLAIMED 2
#define DONE 3

byte head = 1, tail = 1;
byte order_pos[SLOTS], order_slot[SLOTS];
byte w_pos[SLOTS], w_id[SLOTS], w_st[SLOTS];
byte content[SLOTS]; /* the pieces of a receive: the position, here */
byte data[SLOTS];    /* the producer of the message: 0 none */
bool gate = true, key = true;
bool gone;	     /* the memory is the owner's alone */
bool given;	     /* the queue is another one's */
bool troubles;
bool dead[PRODUCERS + 1], stopped[PRODUCERS + 1];
byte sent[PRODUCERS + 1], got[PRODUCERS + 1];
byte ended;

#ifdef WITH_STOP
#define may_end if :: !troubles -> troubles = true; goto stop :: true -> skip fi
#else
#define may_end if :: !troubles -> troubles = true; goto die :: true -> skip fi
#endif

#define advance(p) atomic { if :: head == p -> head = p + 1 :: else -> skip fi }

proctype producer(byte id)
{
	byte pos, slot, c;
	bool ok;

again:
	if
	:: sent[id] == MSGS -> goto done
	:: else -> skip
	fi;
#ifdef BROKEN_HEAD
	if :: !gate -> goto done :: else -> skip fi;
	pos = head;
#else
	pos = head;
	if :: !gate -> goto done :: else -> skip fi;
#endif
	/* claim_look() */
	if
	:: atomic { order_pos[pos % SLOTS] == pos ->
			slot = order_slot[pos % SLOTS] }
	:: atomic { order_pos[pos % SLOTS] != pos ->
		if
		:: head != pos -> goto again
		/* no receive: dropped; here it waits for one */
		:: else -> skip
		fi };
		(head != pos || order_pos[pos % SLOTS] == pos || !gate);
		goto again
	fi;
	if
	:: w_st[slot] == POSTED && w_pos[slot] == pos -> skip
	:: else ->
#ifndef BROKEN_HELP
		advance(pos);
#endif
		if
		:: head == pos && !gate -> goto done
		:: head != pos -> goto again
		fi
	fi;
	c = content[slot];
	may_end;
	/* claim_take() */
	atomic {
#ifdef BROKEN_POS
		ok = (w_st[slot] == POSTED);
#else
		ok = (w_st[slot] == POSTED && w_pos[slot] == pos);
#endif
		if
		:: ok -> assert(!given);
			w_st[slot] = CLAIMED; w_id[slot] = id; w_pos[slot] = pos
		:: else -> skip
		fi
	};
	may_end;
	advance(pos);
	if :: !ok -> goto again :: else -> skip fi;
	assert(c == content[slot] && c == pos);
#ifndef BROKEN_LOOK
	if
	:: !key || !gate -> /* completes in error, untouched */
		atomic { data[slot] = 0; w_st[slot] = DONE };
		goto done
	:: else -> skip
	fi;
#endif
	assert(!gone && !given);
	assert(w_st[slot] == CLAIMED && w_id[slot] == id);
	data[slot] = id;
	may_end;
	assert(!gone && !given && data[slot] == id);
	assert(w_st[slot] == CLAIMED && w_id[slot] == id);
	atomic { w_st[slot] = DONE; sent[id]++ };
	goto again;

die:
	dead[id] = true;
	goto done;
stop:
	stopped[id] = true;
#ifdef BROKEN_SWEEP
	stopped[id] == false; /* it goes on after it was swept */
	if
	:: !given && w_st[slot] == CLAIMED && w_pos[slot] == pos -> skip
	:: else -> assert(false)
	fi
#endif
done:
	ended++
}

inline give_back(s)
{
	w_st[s] = FREE
}

inline post(s)
{
	content[s] = tail;
	data[s] = 0;
	atomic { w_pos[s] = tail; w_id[s] = 0; w_st[s] = POSTED };
	do
	:: tail - head >= SLOTS ->
#ifdef BROKEN_HELP
		break
#else
		i = head; advance(i)
#endif
	:: else -> break
	od;
	atomic { order_pos[tail % SLOTS] = tail; order_slot[tail % SLOTS] = s };
	tail++
}

proctype owner()
{
	byte s, i;

	do
	:: w_st[0] == FREE -> post(0)
	:: w_st[1] == FREE -> post(1)
	:: atomic { w_st[0] == DONE || w_st[1] == DONE ->
		if
		:: w_st[0] == DONE -> s = 0
		:: w_st[1] == DONE -> s = 1
		fi;
		if
		:: data[s] -> got[data[s]]++
		:: else -> skip
		fi;
		give_back(s) }
	:: atomic { w_st[0] == CLAIMED && dead[w_id[0]] -> give_back(0) }
	:: atomic { w_st[1] == CLAIMED && dead[w_id[1]] -> give_back(1) }
#ifdef BROKEN_SWEEP
	:: atomic { w_st[0] == CLAIMED && stopped[w_id[0]] ->
		stopped[w_id[0]] = false; give_back(0) }
	:: atomic { w_st[1] == CLAIMED && stopped[w_id[1]] ->
		stopped[w_id[1]] = false; give_back(1) }
#endif
	/* dereg_mr(): afterwards no message is wanted */
#ifdef WITH_DEREG
	:: key ->
		key = false;
		/* waits for the living that are inside */
		i = tail;
		(!(w_st[0] == CLAIMED && w_pos[0] < i && !dead[w_id[0]] &&
			!stopped[w_id[0]]) &&
		 !(w_st[1] == CLAIMED && w_pos[1] < i && !dead[w_id[1]] &&
			!stopped[w_id[1]]));
		gone = true
#endif
	:: gone || ended == PRODUCERS -> break
#ifdef WITH_DESTROY
	:: break
#endif
	od;
	/* destroy_qp() */
	if
	:: key && ended == PRODUCERS ->
		/* all of the living have been served */
		s = 1;
		do
		:: s <= PRODUCERS ->
			assert(dead[s] || stopped[s] || sent[s] == MSGS);
			s++
		:: else -> break
		od
	:: else -> skip
	fi;
	gate = false;
	s = 0;
	do
	:: s < SLOTS ->
#ifndef BROKEN_CLOSE
		atomic {
			if
			:: w_st[s] == POSTED ->
				w_st[s] = CLAIMED; w_id[s] = OWNER
			:: else -> skip
			fi };
#endif
		s++
	:: else -> break
	od;
	s = 0;
	do
	:: s < SLOTS ->
		atomic {
			if
			:: w_st[s] == CLAIMED && w_id[s] != OWNER ->
				if
				:: dead[w_id[s]] -> skip
				/* given up, not given away */
				:: stopped[w_id[s]] -> goto quit
				:: w_st[s] != CLAIMED -> skip
				fi
			:: else -> skip
			fi;
			if
			:: w_st[s] == DONE && data[s] ->
				got[data[s]]++; data[s] = 0
			:: else -> skip
			fi };
		s++
	:: else -> break
	od;
	given = true;
#ifdef WITH_DESTROY
	/* the next life of the area, another queue */
	do
	:: head < tail -> i = head; advance(i)
	:: else -> break
	od;
#ifndef BROKEN_LIFE
	atomic { head++; tail++ };
#endif
	s = 0;
	post(s);
#endif
	(ended == PRODUCERS);
quit:
	s = 1;
	do
	:: s <= PRODUCERS ->
		/* once each; the dead may have died behind DONE */
		assert(got[s] <= sent[s]);
		assert(!given || got[s] == sent[s]);
		s++
	:: else -> break
	od
}

init {
	atomic {
		run producer(1);
		run producer(2);
		run owner()
	}
}
