/* SPDX-License-Identifier: MIT */
/*
 * bias.pml - the bias of the thread combining queue (src/conn/tcq.c): its owner
 * goes in and out by plain stores and loads; who comes otherwise takes it back.
 *
 * The queue itself is tcq.pml's: here a line in which each stands behind the one
 * before it, entered and emptied in one step each. A processor's stores go through
 * its buffer, in order, and reach memory at any time (TSO); a locked operation waits
 * until its own buffer is empty, the membarrier for one buffer after the other. A
 * thread that was alone for long enough is one that the model likes to give the
 * bias: so at any turn.
 *
 * What is sent is a number that each increments by a plain load and store.
 *
 * Claims: one at a time is inside; none of what others did inside is overlooked, so
 * that in the end all has been sent; nobody waits for ever (an invalid end state).
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef SUBMITS
#define SUBMITS 2
#endif
#define BUFFER 3

#define NONE THREADS

mtype = { v_bias, v_busy, v_sent, v_lead };

#ifdef BROKEN_ONE_BUSY
#define BUSY_OF(t) 0
#else
#define BUSY_OF(t) (t)
#endif

byte bias = NONE;
bool busy[THREADS];
byte sent;
bool lead[THREADS];

/* The line: line[0] leads, or is about to. */
byte line[THREADS];
byte n_line;
byte inside;
byte gone;

chan buf[THREADS] = [BUFFER] of { mtype, byte };
/* What is in the own buffer is seen by the own loads: how many stores to the two
 * that are read back, and the last one's value. */
byte own_bias[THREADS], own_sent[THREADS];
byte last_bias[THREADS], last_sent[THREADS];

#define SEEN_BIAS (own_bias[me] -> last_bias[me] : bias)
#define SEEN_SENT (own_sent[me] -> last_sent[me] : sent)

inline put_bias(v)
{
	atomic {
		nfull(buf[me]);
		buf[me]!v_bias, v;
		own_bias[me]++;
		last_bias[me] = v
	}
}

inline put_sent()
{
	atomic {
		nfull(buf[me]);
		buf[me]!v_sent, seen;
		own_sent[me]++;
		last_sent[me] = seen
	}
}

proctype drain(byte me)
{
	mtype what;
	byte v;

end:	do
	:: atomic {
		buf[me]?what, v;
		if
		:: what == v_bias -> bias = v; own_bias[me]--
		:: what == v_busy -> busy[BUSY_OF(me)] = v
		:: what == v_sent -> sent = v; own_sent[me]--
		:: what == v_lead -> lead[v] = true
		fi;
		what = 0;
		v = 0
	}
	od
}

inline do_inside()
{
	atomic {
		inside++;
		assert(inside == 1);
		seen = SEEN_SENT
	};
	seen++;
	put_sent();
	atomic {
		seen = 0;
		inside--
	}
}

/* By line[0], who came when there was nobody. */
inline revoke()
{
	owner = SEEN_BIAS;
	put_bias(NONE);
#ifndef BROKEN_NO_BARRIER
	empty(buf[me]);			/* a system call begins with a fence */
	i = 0;
	do
	:: i < THREADS -> empty(buf[i]); i++
	:: else -> break
	od;
	i = 0;
#endif
	!busy[BUSY_OF(owner)];
	owner = 0
}

inline leave()
{
	gives = false;
	if
	:: put_bias(me); gives = true
	:: skip
	fi;
	atomic {			/* the CAS */
		empty(buf[me]);
		if
		:: n_line == 1 -> n_line = 0
		:: else -> skip
		fi;
		i = n_line
	};
	if
	:: i > 0 ->
#ifndef BROKEN_KEPT
		if
		:: gives -> put_bias(NONE)
		:: else -> skip
		fi;
#endif
		atomic {
			nfull(buf[me]);
			buf[me]!v_lead, line[1];
			i = 1;
			do
			:: i < n_line -> line[i - 1] = line[i]; i++
			:: else -> break
			od;
			n_line--;
			line[n_line] = 0;
			i = 0
		}
	:: else -> skip
	fi;
	gives = false
}

proctype thread(byte me)
{
	byte asked, seen, owner, i;
	bool gives;

	do
	:: asked < SUBMITS ->
		asked++;
		if
		:: SEEN_BIAS == me ->
			buf[me]!v_busy, 1;
#ifndef BROKEN_LOOK_FIRST
			if
			:: SEEN_BIAS != me -> buf[me]!v_busy, 0; goto ordinary
			:: else -> skip
			fi;
#endif
			do_inside();
			buf[me]!v_busy, 0
		:: else ->
ordinary:		atomic {		/* the swap */
				empty(buf[me]);
				line[n_line] = me;
				n_line++;
				i = n_line
			};
			if
			:: i > 1 -> i = 0; lead[me]; lead[me] = false
			:: else ->
				i = 0;
				if
				:: SEEN_BIAS != NONE -> revoke()
				:: else -> skip
				fi
			fi;
			do_inside();
			leave()
		fi
	:: else -> break
	od;
	empty(buf[me]);
	gone++
}

init {
	byte i;

	atomic {
		for (i : 0 .. THREADS - 1) {
			run drain(i);
			run thread(i)
		}
	}
	gone == THREADS;
	assert(sent == THREADS * SUBMITS && n_line == 0)
}
