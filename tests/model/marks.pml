/* SPDX-License-Identifier: MIT */
/*
 * marks.pml - the marks of a completion queue of soft (src/dev/soft/shm.h,
 * src/dev/soft/cq/cq.c): a ready word per queue pair, a byte per group of them,
 * and one word `any`.
 *
 * Senders store word, group, any. The owner clears any, takes the groups that
 * are marked, and looks at their words. A poll returns at most ROOM receives; it
 * marks the group again where it stopped, and where a word stays that it may not
 * take yet (post_recv() has not counted the receive).
 *
 * The order is x86's: the stores of a sender become visible in their order, so
 * each is a step. A plain store of the owner waits in its core's buffer, from
 * which its own loads are answered; an exchange empties the buffer and is one
 * step.
 *
 * Checked: when the senders have ended and the owner finds no mark, it has taken
 * all.
 *
 * Variants that must fail:
 *	BROKEN_MARK_FIRST	a sender marks the group, then stores its word
 *	BROKEN_ANY_FIRST	a sender stores any, then marks the group
 *	BROKEN_PLAIN_ANY	any is cleared by load and store
 *	BROKEN_PLAIN_GROUP	a group is taken by load and store
 *	BROKEN_CLEAR_LATE	a group is cleared behind the look at its words
 *	BROKEN_FULL		a full poll leaves its group without a mark
 *	BROKEN_LEFT		so does one that leaves a word
 */
#define SENDERS 3 /* 0 and 1 in group 0, 2 in group 1 */
#define GROUPS 2
#define MSGS(i) (2 - i / 2)
#define ROOM 1

byte word[SENDERS], seen[SENDERS];
bool group[GROUPS], any;
bool any_late, group_late[GROUPS]; /* clears in the owner's buffer */
bool counted;			   /* the receives of sender 0 */
byte ended;

proctype sender(byte i)
{
	byte n;

	do
	:: n < MSGS(i) ->
		n++;
#ifdef BROKEN_MARK_FIRST
		group[i / 2] = true;
		word[i]++;
		any = true
#else
		word[i]++;
#ifdef BROKEN_ANY_FIRST
		any = true;
		group[i / 2] = true
#else
		group[i / 2] = true;
		any = true
#endif
#endif
	:: else -> break
	od;
	ended++
}

/* what leaves the owner's buffer */
active proctype drain()
{
end:
	do
	:: atomic { any_late -> any = false; any_late = false }
	:: atomic { group_late[0] -> group[0] = false; group_late[0] = false }
	:: atomic { group_late[1] -> group[1] = false; group_late[1] = false }
	od
}

active proctype post_recv()
{
	counted = true
}

/* Its own stores reach memory in their order. */
inline mark(g)
{
	atomic { group_late[g] = false; group[g] = true };
	atomic { any_late = false; any = true }
}

inline look(g)
{
	left = false;
	w = g * 2;
	do
	:: w < SENDERS && w < g * 2 + 2 && got < ROOM ->
		if
		:: word[w] != seen[w] && (w != 0 || counted) ->
			seen[w]++;
			got++
		:: word[w] != seen[w] && w == 0 && !counted -> left = true
		:: word[w] == seen[w] -> w++
		fi;
		if
		:: left -> w++
		:: else -> skip
		fi
	:: else -> break
	od
}

active proctype owner()
{
	byte g, w, got;
	bool left;

	do
	:: any && !any_late ->
#ifdef BROKEN_PLAIN_ANY
		any_late = true;
#else
		any = false;
#endif
		got = 0;
		g = 0;
		do
		:: g < GROUPS && got < ROOM ->
			if
			:: group[g] && !group_late[g] ->
#ifdef BROKEN_CLEAR_LATE
				look(g);
				group[g] = false;
#else
#ifdef BROKEN_PLAIN_GROUP
				group_late[g] = true;
#else
				group[g] = false;
#endif
				look(g);
#endif
				if
#ifndef BROKEN_FULL
				:: got == ROOM -> mark(g)
#endif
#ifndef BROKEN_LEFT
				:: left -> mark(g)
#endif
				:: else -> skip
				fi
			:: else -> skip
			fi;
			g++
		:: else -> break
		od
	:: ended == SENDERS && counted && !any && !any_late &&
	   !group_late[0] && !group_late[1] ->
		break
	od;
	w = 0;
	do
	:: w < SENDERS -> assert(seen[w] == MSGS(w)); w++
	:: else -> break
	od
}

init {
	atomic { run sender(0); run sender(1); run sender(2) }
}
