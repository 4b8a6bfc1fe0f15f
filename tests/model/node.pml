/* SPDX-License-Identifier: MIT */
/*
 * node.pml - sleeping and waking between a client and its node service
 * (src/vqp/node/service.c, client.c), on a machine with store buffers.
 *
 * The client puts requests into its ring, one or two before it waits; the service
 * answers all that it sees. Each end that finds nothing sets its word, looks once
 * more and sleeps at its socket. The service's word is a counter, odd while it
 * sleeps, which the client can only read: it sends one message for each sleep.
 * The client's word is taken back by an exchange. A plain store goes into its
 * end's buffer (a FIFO) and reaches memory later; a fence or a locked operation
 * waits until the buffer is empty.
 *
 * Claim: every request is answered, unless an end dies (-DCLIENT_DIES,
 * -DSERVICE_DIES: at any moment); then the other one ends too. An end that
 * sleeps for ever is an invalid end state. Each -DBROKEN_... must be reported.
 */
#define REQS 3

mtype = { PUT, COMP, CLIENT_WORD, SERVICE_WORD };

byte put, comp; /* numbers in the rings, as memory has them */
bool client_word;
byte service_word;
bool to_service, to_client;	  /* a wake-up in a socket */
bool client_gone, service_gone; /* the socket's end */

chan cbuf = [4] of { mtype, byte };
chan sbuf = [4] of { mtype, byte };

active proctype drain()
{
	byte v;
end:
	do
	:: atomic { cbuf?PUT,v -> put = v }
	:: atomic { cbuf?CLIENT_WORD,v -> client_word = v }
	:: atomic { sbuf?COMP,v -> comp = v }
	:: atomic { sbuf?CLIENT_WORD,v -> client_word = v }
	:: atomic { sbuf?SERVICE_WORD,v -> service_word = v }
	od
}

active proctype client()
{
	byte n = 0, s, woken = 0;

	do
	:: n == REQS && comp == n -> break
	:: service_gone -> break	/* the life word */
#ifdef CLIENT_DIES
	:: break
#endif
	:: n < REQS && n - comp < 2 ->
		n++;
		cbuf!PUT,n;
#ifndef BROKEN_NO_FENCE_PUT
		empty(cbuf);
#endif
		s = service_word;
		if
#ifdef BROKEN_WOKEN_ONCE
		:: s % 2 == 1 && woken == 0 ->
#else
		:: s % 2 == 1 && s != woken ->
#endif
			woken = s;
			to_service = true
		:: else -> skip
		fi
	:: comp != n ->			/* waits for an answer */
#ifndef BROKEN_NO_WORD_WAIT
		cbuf!CLIENT_WORD,1;
#endif
#ifndef BROKEN_NO_FENCE_WAIT
		empty(cbuf);
#endif
		if
#ifndef BROKEN_NO_LOOK_WAIT
		:: comp == n -> skip
#endif
		:: else ->
#ifdef BROKEN_NO_END
			to_client
#else
			to_client || service_gone
#endif
		fi;
		/* a system call, then the word, then what was sent */
		cbuf!CLIENT_WORD,0;
		empty(cbuf);
		to_client = false
	od;
	client_gone = true
}

active proctype service()
{
	byte h = 0, e = 0;

	do
	:: client_gone -> break
#ifdef SERVICE_DIES
	:: break
#endif
	:: put != h ->
		h = put;
		sbuf!COMP,h;
#ifndef BROKEN_NO_FENCE_COMP
		empty(sbuf);
#endif
		if
		:: client_word ->
#ifdef BROKEN_PLAIN_CLEAR
			sbuf!CLIENT_WORD,0;
			to_client = true
#else
			atomic { empty(sbuf) -> client_word = false };
			to_client = true
#endif
		:: else -> skip
		fi
	:: put == h ->
		e++;
#ifndef BROKEN_NO_WORD_SLEEP
		sbuf!SERVICE_WORD,e;
#endif
#ifndef BROKEN_NO_FENCE_SLEEP
		empty(sbuf);
#endif
		if
#ifndef BROKEN_NO_LOOK
		:: put != h -> skip
#endif
		:: else ->
			to_service || client_gone
#ifdef BROKEN_READ_ODD
			;
			to_service = false;
			if
			:: put == h -> to_service || client_gone
			:: else -> skip
			fi
#endif
		fi;
		e++;
		sbuf!SERVICE_WORD,e;
		to_service = false
	od;
	service_gone = true
}
