/* SPDX-License-Identifier: MIT */
/*
 * transfer.pml - a vqp moves between two queue pairs (src/vqp/rc.c, engine.c
 * transfer(); docs/protocol/vqp.md, "RC queue pairs").
 *
 * Sender: requests 1..N in order; each is a WRITE of its number, and a message
 * of that number. A queue pair carries its requests out in order, and completes
 * them; two queue pairs, and the receives of two, have no order. The far end of
 * RC is made after ASK; READY, which may be lost, says so. RC may fail at any
 * step: what was not carried out then is posted again on DC (the far end has
 * refused it), and the far end's queue pair is gone.
 *
 * Asserted: a request is carried out when all before it are, once; nothing is
 * posted to a far end that is not there; completions and pops are in order.
 */
#define N 4
#define DC 0
#define RC 1

chan q[2] = [N] of { byte };	/* posted, by queue pair */
chan comp = [N] of { byte };	/* completions, of both */
chan recv0 = [N] of { byte };	/* receives complete, by queue pair */
chan recv1 = [N] of { byte };
chan ask = [1] of { byte };
chan ready = [1] of { byte };

byte next = 1;		/* to be posted */
byte done = 0;		/* completed, at the sender */
byte carried = 0;	/* carried out */
byte popped = 0;
byte at = DC;		/* the queue pair that the vqp uses */
bool far = false;	/* the far end of RC is there */
bool usable = false;	/* READY was seen */
bool failed = false;
bool met = false;	/* an answer came */
bool made = false;	/* the receiver has its vqp */
byte expect = 0;
bool ahead[N + 2];

inline carry(k)
{
	assert(k == DC || far);
	assert(n == carried + 1);
	carried = n;
	if
	:: k == DC -> recv0 ! n
	:: else -> recv1 ! n
	fi;
	comp ! n
}

active proctype device()
{
	byte n;

	do
	:: atomic { q[DC] ? n -> carry(DC) }
	:: atomic { q[RC] ? n -> carry(RC) }
	:: done == N -> break
	od
}

active proctype far_end()
{
	byte n;

	do
	:: ask ? n -> far = true;
		if
		:: ready ! 1
		:: skip		/* lost, and ASK comes again */
		fi
	:: done == N -> break
	od
}

inline take(n)
{
	if
	:: !made ->
		made = true;
		expect = n
	:: else
	fi;
	if
	:: n < expect -> assert(false)	/* dropped: it is lost */
	:: else ->
#ifdef BROKEN_AHEAD
		assert(n == expect);
#endif
		ahead[n] = true
	fi;
	do
	:: ahead[expect] ->
		assert(expect == popped + 1);
		popped = expect;
		ahead[expect] = false;
		expect++;
		met = true	/* credit, or an answer */
	:: else -> break
	od
}

active proctype receiver()
{
	byte n;

	do
	:: atomic { recv0 ? n -> take(n) }
	:: atomic { recv1 ? n -> take(n) }
	:: popped == N -> break
	od
}

#ifdef BROKEN_DRAIN
#define DRAINED true
#else
#define DRAINED (empty(q[DC]) && empty(q[RC]) && empty(comp) && done == next - 1)
#endif
#ifdef BROKEN_FIRST
#define MAY_SWITCH true
#else
#define MAY_SWITCH (next == 1 || met)
#endif
#ifdef BROKEN_EARLY
#define USABLE (usable || nempty(ask) || far)
#else
#define USABLE usable
#endif

active proctype sender()
{
	byte n;

	do
	/* a transfer there, and back */
	:: atomic { at == DC && USABLE && !failed && DRAINED && MAY_SWITCH ->
		at = RC }
	:: atomic { at == RC && DRAINED && MAY_SWITCH -> at = DC }
	:: atomic { next <= N -> q[at] ! next; next++ }
	:: atomic { comp ? n -> assert(n == done + 1); done = n }
	:: atomic { !usable && empty(ask) && empty(ready) && !failed -> ask ! 1 }
	:: atomic { ready ? n -> usable = true }
	/* RC fails: the rest is posted again, in order, on DC */
	:: atomic { usable && !failed && (at == DC || met) ->
		failed = true;
		usable = false;
		far = false;
		if
		:: at == RC ->
			at = DC;
#ifdef BROKEN_TWICE
			n = done;
#else
			n = carried;
#endif
			next = n + 1;
			do
			:: len(q[RC]) > 0 -> q[RC] ? _
			:: else -> break
			od
		:: else
		fi;
		n = 0 }
	:: done == N -> break
	od
}
