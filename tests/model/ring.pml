/* SPDX-License-Identifier: MIT */
/*
 * ring.pml - the request ring of docs/protocol/rpc.md, sections 1 and 2:
 * positions, spill, canaries, Head that arrives late.
 *
 * A ring of R lines and P lines of spill; each line has two cells that the
 * device writes one after the other, in ascending order. The first cell of a
 * message is its head, the last its tail. own[] says whose bytes a cell holds
 * and is looked at by assertions only.
 *
 * Checked: no unread cell is overwritten, what is read is the message as a
 * whole and in order, no message is lost (a reader that waits for ever is an
 * invalid end state), nothing of an old lap is taken for new.
 *
 * Variants that must fail:
 *	BROKEN_ROOM	the writer thinks that one line more is free
 *	BROKEN_CANARY	the canary names the place, not the position
 *	BROKEN_ORDER	the device writes the tail first
 */
#define R 4
#define P 2
#define N 9 /* messages: several laps */

#define CELLS 12 /* 2 * (R + P) */
#define DATA 100 /* a payload is never a canary */

#ifdef BROKEN_CANARY
#define CANARY(p) ((p) % R + 1)
#else
#define CANARY(p) ((p) + 1)
#endif

#ifdef BROKEN_ROOM
#define FITS(head, tail, n) ((tail) + (n) - (head) <= R + 1)
#else
#define FITS(head, tail, n) ((tail) + (n) - (head) <= R)
#endif

/* the first position behind n lines at p */
#define LAP_END(p) ((p) - (p) % R + R)
#define NEXT(p, n) ((p) + (n) < LAP_END(p) -> (p) + (n) : LAP_END(p))

byte cell[CELLS], own[CELLS];
byte lines[CELLS]; /* of the message whose head is here */
byte head;	   /* the reader's; the writer learns it late */

proctype writer()
{
	byte tail, known, sent, n, i, at;

	do
	:: sent < N ->
		if
		:: n = 1
		:: n = 2
		fi;
		do
		:: FITS(known, tail, n) -> break
		:: !FITS(known, tail, n) && known != head -> known = head
		od;
		at = 2 * (tail % R);
#ifdef BROKEN_ORDER
		d_step {
			cell[at + 2 * n - 1] = CANARY(tail);
			own[at + 2 * n - 1] = tail + 1;
		}
#endif
		i = 0;
		do
		:: i < 2 * n ->
			d_step {
				if
				:: i == 0 ->
					cell[at] = CANARY(tail);
					lines[at] = n
				:: i == 2 * n - 1 ->
					cell[at + i] = CANARY(tail)
				:: else ->
					cell[at + i] = DATA
				fi;
				own[at + i] = tail + 1;
				i++
			}
		:: else -> break
		od;
		tail = NEXT(tail, n);
		sent++
	:: else -> break
	od
}

proctype reader()
{
	byte got, n, i, at;

	do
	:: got < N ->
		at = 2 * (head % R);
		/* the poll */
		cell[at] == CANARY(head);
		n = lines[at];
		cell[at + 2 * n - 1] == CANARY(head);
		/* the handler reads it all, one cell at a time */
		i = 0;
		do
		:: i < 2 * n ->
			assert(own[at + i] == head + 1);
			i++
		:: else -> break
		od;
		head = NEXT(head, n);
		got++
	:: else -> break
	od
}

init {
	atomic {
		run writer();
		run reader()
	}
}
