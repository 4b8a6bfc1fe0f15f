/* SPDX-License-Identifier: MIT */
/*
 * node_full.pml - a full ring of completions between a node service and its client
 * (src/vqp/node/serve.c, attached.c), on a machine with store buffers (see
 * node.pml).
 *
 * The service that has no room for a completion sleeps: its word is odd, it looks
 * at the client's cursor once more. The client only polls; it reads all that is
 * there, and looks at the service's word once in half a ring. It does not do so
 * for a ring that it finds full: its cursor may have been late, and then it finds
 * less (BROKEN_FULL).
 *
 * Claim: all completions arrive. A service that sleeps for ever is an invalid end
 * state. Each -DBROKEN_... must be reported.
 */
#define ROOM 4
#define LOOK 2 /* completions between two looks at the word */
#define ITEMS 7

mtype = { COMP, TAKEN, WORD };

byte comp, taken, word; /* as memory has them */
bool to_service;

chan cbuf = [4] of { mtype, byte };
chan sbuf = [4] of { mtype, byte };

active proctype drain()
{
	byte v;
end:
	do
	:: atomic { cbuf?TAKEN,v -> taken = v }
	:: atomic { sbuf?COMP,v -> comp = v }
	:: atomic { sbuf?WORD,v -> word = v }
	od
}

active proctype service()
{
	byte n = 0, e = 0;

	do
	:: n == ITEMS -> break
	:: n < ITEMS && n - taken < ROOM ->
		n++;
		sbuf!COMP,n
	:: n < ITEMS && n - taken >= ROOM ->
		e++;
		sbuf!WORD,e;
#ifndef BROKEN_NO_FENCE_SLEEP
		empty(sbuf);
#endif
		if
#ifndef BROKEN_NO_LOOK
		:: n - taken < ROOM -> skip
#endif
		:: else -> to_service
		fi;
		e++;
		sbuf!WORD,e;
		to_service = false
	od
}

active proctype client()
{
	byte got = 0, k = 0, s, woken = 0;

	do
	:: got == ITEMS -> break
	:: comp != got ->
#ifdef BROKEN_FULL
		k = 0;
#endif
		do
		:: comp != got ->
			got++;
			k++;
			cbuf!TAKEN,got
		:: else -> break
		od;
		if
#ifndef BROKEN_NO_WAKE
#ifdef BROKEN_FULL
		:: k >= ROOM ->
#else
		:: k >= LOOK ->
#endif
			k = 0;
#ifndef BROKEN_NO_FENCE_TAKE
			empty(cbuf);
#endif
			s = word;
			if
			:: s % 2 == 1 && s != woken ->
				woken = s;
				to_service = true
			:: else -> skip
			fi
#endif
		:: else -> skip
		fi
	od
}
