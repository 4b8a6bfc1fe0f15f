/* SPDX-License-Identifier: MIT */
/*
 * fetch.pml - responses that the client fetches, and the switch to replies: the
 * rules of docs/protocol/rpc.md, "Fetching and recall".
 *
 * N calls use S reservations in turn. The server builds each answer in its
 * mirror, cell by cell, in any order of calls. One READ at a time takes cells
 * of a reservation at moments of their own and lands later, in memory that no
 * reply reaches. A recall asks for a reply to every fetched reservation from
 * Head on; later calls ask for a reply themselves. A cell holds the number of
 * the call that it is of; 0: nothing.
 *
 * With -DORDERED the device declares ordered_read: cells are taken in ascending
 * order, and a canary that is bound to the first word proves the body. Without
 * it they are taken in any order, and the tail is a checksum.
 *
 * Checked: what is taken is the call's own answer, as a whole; each call is taken
 * once; the mirror does not change under a reply that is on its way; no call
 * waits for ever (an invalid end state).
 *
 * Variants that must fail:
 *	BROKEN_FIRST	(ORDERED) the server stores the head before the body
 *	BROKEN_UNBOUND	(ORDERED) the canary says nothing of the first word
 *	BROKEN_SUM	(not ORDERED) the canary alone is looked at
 *	BROKEN_BUILT	a recall passes by answers that are built
 *	BROKEN_BOTH	a call is taken from a READ, and from the reply too
 *	BROKEN_FREE	an answer that was taken frees its reservation at once,
 *			though a reply is to come
 */
#define N 3
#define S 2

#define SLOT(i) ((i) % S)

/* The cells of a reservation: the first word, the canary, the body, the tail. */
typedef message {
	byte first, canary, body, tail
}

message mirror[S]; /* at the server */
message space[S];  /* at the client: where replies land */
message landing;   /* ... and the READ */

byte replies[S]; /* on their way from this reservation */

/* The one READ. */
byte read_call;	   /* of which call, and 1; 0: none */
bool read_landed;
byte got;	   /* bits: the cells that were taken */
message taking;

/* Of each call, at the client. */
bool recalled[N], taken[N], back[N]; /* back: its reply has come */
bool by_reply[N];		     /* it asked for a reply itself */
byte sent, head;		     /* calls that were made; that are over */

/* Of each call, at the server. */
bool wanted[N], built[N], to_reply[N], replied[N];

#define REQ 0
#define RECALL 1
chan to_server = [N + 1] of { byte, byte, bool }; /* kind, call or Head, reply */
chan to_client = [N] of { byte };		  /* a call's reply */

#ifdef ORDERED
#ifdef BROKEN_UNBOUND
#define WHOLE(m, i) (m.canary == (i) + 1)
#else
#define WHOLE(m, i) (m.canary == (i) + 1 && m.first == (i) + 1)
#endif
#define NEXT_CELL(k) (got == (1 << (k)) - 1)
#else
#ifdef BROKEN_SUM
#define WHOLE(m, i) (m.canary == (i) + 1)
#else
#define WHOLE(m, i) \
	(m.canary == (i) + 1 && m.first == (i) + 1 && \
	 m.body == (i) + 1 && m.tail == (i) + 1)
#endif
#define NEXT_CELL(k) ((got & (1 << (k))) == 0)
#endif

#define TO_REPLY(i) (to_reply[i] && built[i] && !replied[i])

proctype server()
{
	byte kind, i, k;
	bool reply;

	do
	:: d_step {
		to_server?kind,i,reply ->
		if
		:: kind == REQ ->
			wanted[i] = true;
			to_reply[i] = reply
		:: kind == RECALL ->
			k = i;
			do
			:: k < N ->
				if
				:: wanted[k] && !to_reply[k] ->
#ifdef BROKEN_BUILT
					to_reply[k] = !built[k]
#else
					to_reply[k] = true
#endif
				:: else -> skip
				fi;
				k++
			:: else -> break
			od;
			k = 0
		fi;
		i = 0; kind = 0; reply = false
	   }
	:: atomic {
		/* Any answer that is not built yet. */
		if
		:: wanted[0] && !built[0] -> i = 0
		:: wanted[1] && !built[1] -> i = 1
		:: wanted[2] && !built[2] -> i = 2
		fi;
		assert(replies[SLOT(i)] == 0)
	   }
#ifdef BROKEN_FIRST
	   mirror[SLOT(i)].first = i + 1;
	   mirror[SLOT(i)].canary = i + 1;
#endif
	   mirror[SLOT(i)].body = i + 1;
	   mirror[SLOT(i)].tail = i + 1;
	   mirror[SLOT(i)].first = i + 1;
	   d_step {
		mirror[SLOT(i)].canary = i + 1;
		built[i] = true;
		i = 0
	   }
	:: atomic {
		/* Any that is to be replied. */
		if
		:: TO_REPLY(0) -> i = 0
		:: TO_REPLY(1) -> i = 1
		:: TO_REPLY(2) -> i = 2
		fi;
		replied[i] = true;
		replies[SLOT(i)]++;
		to_client!i;
		i = 0
	   }
	:: head == N -> break
	od
}

/* Replies land as a whole: ring.pml has what is torn. */
proctype reply_lands()
{
	byte i;

	do
	:: d_step {
		to_client?i ->
		space[SLOT(i)].first = mirror[SLOT(i)].first;
		space[SLOT(i)].canary = mirror[SLOT(i)].canary;
		space[SLOT(i)].body = mirror[SLOT(i)].body;
		space[SLOT(i)].tail = mirror[SLOT(i)].tail;
		replies[SLOT(i)]--;
		i = 0
	   }
	:: head == N && empty(to_client) -> break
	od
}

proctype read_takes()
{
	byte s;

	do
	:: read_call && !read_landed && got != 15 ->
		s = SLOT(read_call - 1);
		if
		:: NEXT_CELL(0) -> d_step { taking.first = mirror[s].first; got = got | 1 }
		:: NEXT_CELL(1) -> d_step { taking.canary = mirror[s].canary; got = got | 2 }
		:: NEXT_CELL(2) -> d_step { taking.body = mirror[s].body; got = got | 4 }
		:: NEXT_CELL(3) -> d_step { taking.tail = mirror[s].tail; got = got | 8 }
		fi;
		s = 0
	:: d_step {
		read_call && !read_landed && got == 15 ->
		landing.first = taking.first;
		landing.canary = taking.canary;
		landing.body = taking.body;
		landing.tail = taking.tail;
		read_landed = true
	   }
	:: head == N && !read_call -> break
	od
}

/* The client takes call i from m. */
inline take(m, i)
{
	assert(m.first == i + 1 && m.body == i + 1);
	assert(!taken[i]);
	taken[i] = true
}

/* Is call i done with, so that its reservation may be used again? */
#ifdef BROKEN_FREE
#define OVER(i) (taken[i] && read_call != (i) + 1)
#else
#define OVER(i) \
	(taken[i] && read_call != (i) + 1 && (!recalled[i] || back[i]))
#endif

#define FETCHED(i) ((i) < sent && !by_reply[i] && !recalled[i] && !taken[i])

proctype client()
{
	byte i;
	bool reply; /* the mode of later calls */

	do
	:: atomic { sent < N && sent - head < S ->
		by_reply[sent] = reply;
		to_server!REQ,sent,reply;
		sent++
	   }
	:: atomic {
		/* Any that is to be fetched. */
		if
		:: !read_call && FETCHED(0) -> i = 0
		:: !read_call && FETCHED(1) -> i = 1
		:: !read_call && FETCHED(2) -> i = 2
		fi;
		read_call = i + 1;
		read_landed = false;
		got = 0;
		i = 0
	   }
	:: atomic { read_landed ->
		i = read_call - 1;
		if
		:: WHOLE(landing, i) && !taken[i] -> take(landing, i)
		:: else -> skip
		fi;
		read_call = 0;
		read_landed = false;
		got = 0;
		taking.first = 0; taking.canary = 0; taking.body = 0; taking.tail = 0;
		i = 0
	   }
	:: atomic { !read_call && !reply && sent > head &&
		    !(by_reply[head % N]) ->
		to_server!RECALL,head,false;
		i = head;
		do
		:: i < sent ->
			if
			:: !by_reply[i] -> recalled[i] = true
			:: else -> skip
			fi;
			i++
		:: else -> break
		od;
		reply = true;
		i = 0
	   }
	:: atomic {
		/* Any reply that is expected and is there. */
		if
		:: sent > 0 && (by_reply[0] || recalled[0]) && !back[0] &&
		   WHOLE(space[SLOT(0)], 0) -> i = 0
		:: sent > 1 && (by_reply[1] || recalled[1]) && !back[1] &&
		   WHOLE(space[SLOT(1)], 1) -> i = 1
		:: sent > 2 && (by_reply[2] || recalled[2]) && !back[2] &&
		   WHOLE(space[SLOT(2)], 2) -> i = 2
		fi;
		back[i] = true;
		if
		:: !taken[i] -> take(space[SLOT(i)], i)
#ifdef BROKEN_BOTH
		:: taken[i] && recalled[i] -> take(space[SLOT(i)], i)
#endif
		:: else -> skip
		fi;
		i = 0
	   }
	:: atomic { head < sent && OVER(head) -> head++ }
	:: head == N -> break
	od
}

init {
	atomic {
		run server();
		run reply_lands();
		run read_takes();
		run client()
	}
}
