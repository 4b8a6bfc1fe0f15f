/* SPDX-License-Identifier: MIT */
/*
 * test_aqp.c - credits at the receiver and the scheduler of QPs: what is garbage,
 * what is owed, and many senders with many lanes under random schedules by an
 * injected clock, where at any time the active QPs keep within their bound and
 * at rest no credit is lost or made.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "conn/conn.h"
#include "rpc/sched/aqp.h"
#include "unit/cm.h"
#include <skein/error.h>

#define MS 1000000ull
#define LANES 8
#define SENDERS 12
#define QUEUE 256

static struct skein_env *env;

/* --- one lane ----------------------------------------------------------- */

struct wire {
	struct rpc_port port;
	uint32_t sent[QUEUE]; /* immediates to the caller */
	unsigned head, tail;
	int fails; /* the next signals */
};

static int signal_out(struct rpc_port *port, uint32_t imm)
{
	struct wire *w = container_of(port, struct wire, port);

	if (w->fails) {
		w->fails--;
		return -EAGAIN;
	}
	assert_int_equal(CONN_IMM_KIND(imm), CONN_IMM_CREDITS);
	assert_true(w->tail - w->head < QUEUE);
	w->sent[w->tail++ % QUEUE] = CONN_IMM_VALUE(imm);
	return 0;
}

static const struct rpc_port_ops ops = {.signal = signal_out};

static unsigned kicks;

static void kick(void *arg)
{
	kicks++;
}

static void test_question(void **state)
{
	struct wire w = {.port.ops = &ops};
	struct rpc_lane_server l;

	rpc_lane_server_init(&l, 32, kick, NULL);
	/* Taken in before the requests that it came behind. */
	assert_int_equal(rpc_lane_server_imm(&l, RPC_CREDITS_ASK(3, 4)), 0);
	assert_int_equal(rpc_lane_server_round(&l, 5, 2, false), 0);
	assert_int_equal(rpc_lane_server_send(&l, &w.port), 0);
	assert_int_equal(rpc_lane_server_round(&l, 20, 12, true), 1);
	w.fails = 2;
	assert_int_equal(rpc_lane_server_send(&l, &w.port), 0);
	assert_int_equal(rpc_lane_server_send(&l, &w.port), 0);
	assert_int_equal(rpc_lane_server_send(&l, &w.port), 1);
	assert_int_equal(rpc_lane_server_send(&l, &w.port), 0);
	assert_int_equal(w.tail, 1);
	assert_int_equal(w.sent[0], 32);
	assert_int_equal(l.credit.left, 32 - 16 + 32);
	assert_int_equal(atomic_load(&l.util), 3);
	/* declined; a grant that nobody asked for comes in its place */
	atomic_store(&l.keep, false);
	assert_int_equal(rpc_lane_server_imm(&l, RPC_CREDITS_ASK(1, 0)), 0);
	assert_int_equal(rpc_lane_server_round(&l, 60, 44, true), 1);
	assert_false(atomic_load(&l.active));
	assert_int_equal(l.credit.left, 16);
	atomic_store(&l.keep, true);
	atomic_store(&l.wake, true);
	assert_true(rpc_lane_server_has_work(&l));
	assert_int_equal(rpc_lane_server_round(&l, 60, 44, true), 0);
	assert_false(rpc_lane_server_has_work(&l));
	assert_int_equal(rpc_lane_server_send(&l, &w.port), 1);
	assert_int_equal(w.sent[1], 32);
	assert_int_equal(l.credit.left, 48);
	assert_true(atomic_load(&l.active));
	/* woken and put to rest again before the lane looked: neither */
	atomic_store(&l.wake, true);
	atomic_store(&l.keep, false);
	assert_int_equal(rpc_lane_server_round(&l, 60, 44, true), 0);
	assert_int_equal(rpc_lane_server_send(&l, &w.port), 0);
}

/* From the request that spent half of the credits until the question is in. */
static void test_expects(void **state)
{
	struct rpc_lane_server l;

	rpc_lane_server_init(&l, 32, kick, NULL);
	assert_int_equal(rpc_lane_server_round(&l, 40, 15, true), 0);
	assert_false(rpc_lane_server_expects(&l));
	assert_int_equal(rpc_lane_server_round(&l, 41, 16, true), 0);
	assert_true(rpc_lane_server_expects(&l));
	assert_int_equal(rpc_lane_server_imm(&l, RPC_CREDITS_ASK(1, 0)), 0);
	assert_false(rpc_lane_server_expects(&l));
	/* One that was declined does not ask. */
	atomic_store(&l.keep, false);
	assert_int_equal(rpc_lane_server_round(&l, 41, 16, true), 1);
	assert_false(rpc_lane_server_expects(&l));
	l.owes = false;
	assert_false(rpc_lane_server_expects(&l));
}

static struct rpc_lane_server asked_of(uint32_t c)
{
	struct rpc_lane_server l;

	rpc_lane_server_init(&l, c, kick, NULL);
	return l;
}

static void test_garbage(void **state)
{
	struct rpc_lane_server l = asked_of(32);

	assert_int_equal(rpc_lane_server_imm(&l, 0), -SKEIN_EPEER);
	assert_int_equal(rpc_lane_server_imm(&l, 65), -SKEIN_EPEER);
	/* memory operations without credits */
	l = asked_of(32);
	assert_int_equal(rpc_lane_server_imm(&l, RPC_CREDITS_ASK(1, 33)),
			 -SKEIN_EPEER);
	/* requests without */
	l = asked_of(32);
	assert_int_equal(rpc_lane_server_round(&l, 33, 33, false),
			 -SKEIN_EPEER);
	/* as many requests as they like in the messages that have them */
	l = asked_of(32);
	assert_int_equal(rpc_lane_server_round(&l, 320, 32, false), 0);
	assert_int_equal(rpc_lane_server_round(&l, 321, 33, false),
			 -SKEIN_EPEER);
	/* too early */
	l = asked_of(32);
	assert_int_equal(rpc_lane_server_round(&l, 15, 15, true), 0);
	assert_int_equal(rpc_lane_server_imm(&l, RPC_CREDITS_ASK(1, 0)), 0);
	assert_int_equal(rpc_lane_server_round(&l, 15, 15, false), 0);
	assert_int_equal(rpc_lane_server_round(&l, 15, 15, true), -SKEIN_EPEER);
	/* twice, before the decision and before the answer */
	l = asked_of(32);
	assert_int_equal(rpc_lane_server_imm(&l, 1), 0);
	assert_int_equal(rpc_lane_server_imm(&l, 1), -SKEIN_EPEER);
	l = asked_of(32);
	assert_int_equal(rpc_lane_server_imm(&l, 1), 0);
	assert_int_equal(rpc_lane_server_round(&l, 16, 16, true), 1);
	assert_int_equal(rpc_lane_server_round(&l, 32, 32, true), 0);
	assert_int_equal(rpc_lane_server_imm(&l, 1), -SKEIN_EPEER);
	/* of an inactive one */
	l = asked_of(32);
	atomic_store(&l.keep, false);
	assert_int_equal(rpc_lane_server_imm(&l, 1), 0);
	assert_int_equal(rpc_lane_server_round(&l, 16, 16, true), 1);
	l.owes = false;
	assert_int_equal(rpc_lane_server_imm(&l, 1), -SKEIN_EPEER);
}

/* --- many --------------------------------------------------------------- */

struct pipe_end {
	struct credit credit;
	bool question; /* under way, or not answered yet */
	uint32_t ops;  /* since the last question */
	/* messages: sent, and of these there */
	uint64_t sent, arrived;
	uint32_t imm;	     /* a question under way, or 0 */
	uint64_t imm_behind; /* it came behind so many */
	uint64_t used, granted;
};

struct sender {
	bool here;
	unsigned lanes;
	struct pipe_end ends[LANES];
	struct rpc_lane_server served[LANES];
	struct wire wires[LANES];
	unsigned weight;
};

struct many {
	struct aqp aqp;
	struct prng rng;
	struct sender s[SENDERS];
	uint64_t now_ns;
	uint32_t c;
};

static void join(struct many *m, struct sender *s)
{
	memset(s, 0, sizeof(*s));
	s->here = true;
	s->lanes = 1 + (unsigned)prng_below(&m->rng, LANES);
	s->weight = (unsigned)prng_below(&m->rng, 30);
	for (unsigned i = 0; i < s->lanes; i++) {
		credit_init(&s->ends[i].credit, m->c);
		s->ends[i].granted = m->c;
		s->wires[i].port.ops = &ops;
		rpc_lane_server_init(&s->served[i], m->c, kick, NULL);
		assert_int_equal(aqp_add(&m->aqp, &s->served[i], s, m->now_ns),
				 0);
	}
}

static void leave(struct many *m, struct sender *s)
{
	for (unsigned i = 0; i < s->lanes; i++)
		aqp_del(&m->aqp, &s->served[i]);
	s->here = false;
}

/* The caller's side: sends a message, an operation, a question. */
static void end_sends(struct many *m, struct pipe_end *e)
{
	bool may = credit_room(&e->credit, 1);

	if (may && prng_below(&m->rng, 5)) {
		credit_spend(&e->credit, 1 + (uint32_t)prng_below(&m->rng, 6));
		e->sent++;
		e->used++;
	} else if (may) {
		credit_spend(&e->credit, 1);
		e->ops++;
		e->used++;
	}
	/* now or with a later one */
	if (credit_low(&e->credit) && !e->imm && prng_below(&m->rng, 3)) {
		e->imm = RPC_CREDITS_ASK(credit_ask(&e->credit), e->ops);
		e->ops = 0;
		e->imm_behind = e->sent;
		e->question = true;
	}
}

static void end_receives(struct pipe_end *e, struct wire *w)
{
	uint32_t n;

	if (w->head == w->tail)
		return;
	n = w->sent[w->head++ % QUEUE];
	if (n)
		credit_granted(&e->credit, n);
	else
		credit_declined(&e->credit);
	e->granted += n;
	e->question = false;
}

/* The serving side: some of what is under way arrives. */
static void lane_round(struct many *m, struct pipe_end *e,
		       struct rpc_lane_server *l, struct wire *w)
{
	int rc;

	e->arrived += prng_below(&m->rng, e->sent - e->arrived + 1);
	/* Behind its requests on the wire; they may not be taken up yet. */
	if (e->imm && prng_below(&m->rng, 2)) {
		rc = rpc_lane_server_imm(l, e->imm);
		assert_int_equal(rc, 0);
		e->imm = 0;
	}
	rc = rpc_lane_server_round(l, 3 * e->arrived, e->arrived,
				   e->arrived == e->sent);
	assert_true(rc >= 0);
	if (rc)
		aqp_note(&m->aqp, m->now_ns);
	if (!prng_below(&m->rng, 4))
		w->fails = 1;
	assert_true(rpc_lane_server_send(l, &w->port) >= 0);
}

static void check_bound(struct many *m)
{
	unsigned sum = 0, all = 0, senders = 0, kept, want;

	for (unsigned i = 0; i < SENDERS; i++) {
		struct sender *s = &m->s[i];

		if (!s->here)
			continue;
		kept = 0;
		for (unsigned k = 0; k < s->lanes; k++)
			kept += atomic_load(&s->served[k].keep);
		assert_true(kept >= 1);
		sum += kept;
		all += s->lanes;
		senders++;
	}
	want = m->aqp.max > senders ? m->aqp.max : senders;
	assert_true(sum <= want && sum <= all);
}

static void step(struct many *m)
{
	struct sender *s = &m->s[prng_below(&m->rng, SENDERS)];
	unsigned i;

	if (!prng_below(&m->rng, 2000)) {
		if (s->here)
			leave(m, s);
		else
			join(m, s);
	}
	m->now_ns += prng_below(&m->rng, 20000);
	aqp_poll(&m->aqp, m->now_ns);
	check_bound(m);
	if (!s->here)
		return;
	i = (unsigned)prng_below(&m->rng, s->lanes);
	if (prng_below(&m->rng, 30) < s->weight)
		end_sends(m, &s->ends[i]);
	lane_round(m, &s->ends[i], &s->served[i], &s->wires[i]);
	if (prng_below(&m->rng, 2))
		end_receives(&s->ends[i], &s->wires[i]);
}

/* Everything arrives; then both ends have the same numbers. */
static void settle(struct many *m, struct pipe_end *e,
		   struct rpc_lane_server *l, struct wire *w)
{
	for (int i = 0; i < 50; i++) {
		lane_round(m, e, l, w);
		end_receives(e, w);
	}
	assert_int_equal(e->arrived, e->sent);
	assert_int_equal(e->granted, e->used + e->credit.left);
	assert_int_equal(l->credit.left, e->credit.left + e->ops);
	assert_true(l->credit.active == e->credit.active);
	assert_false(e->question);
	assert_true(e->credit.left <= 2 * m->c);
	/* Nobody who is to work waits for ever. */
	assert_true(l->credit.active || !atomic_load(&l->keep));
}

static void one_seed(uint64_t seed)
{
	struct many *m = calloc(1, sizeof(*m));

	prng_init(&m->rng, seed);
	m->c = seed % 4 ? CREDIT_C : 2;
	m->now_ns = 1000;
	aqp_init(&m->aqp, env, (uint32_t)(1 + prng_below(&m->rng, 40)),
		 AQP_INTERVAL_NS);
	for (unsigned i = 0; i < SENDERS; i += 2)
		join(m, &m->s[i]);
	for (int i = 0; i < 20000; i++)
		step(m);
	for (unsigned i = 0; i < SENDERS; i++) {
		struct sender *s = &m->s[i];

		for (unsigned k = 0; s->here && k < s->lanes; k++)
			settle(m, &s->ends[k], &s->served[k], &s->wires[k]);
	}
	for (unsigned i = 0; i < SENDERS; i++)
		if (m->s[i].here)
			leave(m, &m->s[i]);
	aqp_fini(&m->aqp);
	free(m);
}

static void test_many(void **state)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		one_seed(seed);
}

/* --- what the paper says ------------------------------------------------ */

struct crowd {
	struct aqp aqp;
	struct rpc_lane_server lanes[4][LANES];
};

static unsigned kept(struct crowd *c, unsigned s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LANES; i++)
		n += atomic_load(&c->lanes[s][i].keep);
	return n;
}

static void come(struct crowd *c, unsigned s, uint64_t now_ns)
{
	for (unsigned i = 0; i < LANES; i++) {
		rpc_lane_server_init(&c->lanes[s][i], CREDIT_C, kick, NULL);
		assert_int_equal(aqp_add(&c->aqp, &c->lanes[s][i], &c->lanes[s],
					 now_ns),
				 0);
	}
}

static void works(struct crowd *c, unsigned s, unsigned degrees)
{
	atomic_fetch_add(&c->lanes[s][0].util, degrees);
}

static void test_shares(void **state)
{
	struct crowd *c = calloc(1, sizeof(*c));
	struct aqp_stats st;
	uint64_t t = 20 * MS;

	aqp_init(&c->aqp, env, 12, AQP_INTERVAL_NS);
	come(c, 0, t);
	aqp_poll(&c->aqp, t);
	assert_int_equal(kept(c, 0), 8); /* all that it has */
	come(c, 1, t);
	aqp_poll(&c->aqp, t);
	assert_int_equal(kept(c, 0), 6);
	assert_int_equal(kept(c, 1), 6);
	/* in proportion to U */
	for (int i = 0; i < 3; i++) {
		works(c, 0, 300);
		works(c, 1, 100);
		t += 10 * MS;
		aqp_poll(&c->aqp, t);
	}
	assert_int_equal(kept(c, 0), 8);
	assert_int_equal(kept(c, 1), 4);
	/* it is the ones that did something that stay */
	assert_true(atomic_load(&c->lanes[1][0].keep));
	/* not before the interval is over */
	works(c, 1, 1000);
	t += 9 * MS;
	aqp_poll(&c->aqp, t);
	assert_int_equal(kept(c, 1), 4);
	works(c, 0, 1000);
	t += 1 * MS;
	aqp_poll(&c->aqp, t);
	assert_int_equal(kept(c, 0), 6);
	assert_int_equal(kept(c, 1), 6);
	/* a newcomer at once: the average of those that work */
	t += 1 * MS;
	come(c, 2, t);
	aqp_poll(&c->aqp, t);
	assert_int_equal(kept(c, 0), 4);
	assert_int_equal(kept(c, 1), 4);
	assert_int_equal(kept(c, 2), 4);
	/* who sleeps keeps one, and counts */
	for (int i = 0; i < 3; i++) {
		works(c, 1, 10);
		works(c, 2, 10);
		t += 10 * MS;
		aqp_poll(&c->aqp, t);
	}
	assert_int_equal(kept(c, 0), 1);
	assert_int_equal(kept(c, 1) + kept(c, 2), 11);
	/* nobody works: no next time */
	for (int i = 0; i < 3; i++) {
		t += 10 * MS;
		aqp_poll(&c->aqp, t);
	}
	assert_true(atomic_load(&c->aqp.due_ns) == ENV_NEVER);
	assert_int_equal(kept(c, 0) + kept(c, 1) + kept(c, 2), 3);
	aqp_note(&c->aqp, t);
	assert_true(atomic_load(&c->aqp.due_ns) == t + 10 * MS);
	assert_true(aqp_stats(&c->aqp, &c->lanes[0], &st));
	assert_int_equal(st.lanes, LANES);
	for (unsigned s = 0; s < 3; s++)
		for (unsigned i = 0; i < LANES; i++)
			aqp_del(&c->aqp, &c->lanes[s][i]);
	assert_false(aqp_stats(&c->aqp, &c->lanes[0], &st));
	aqp_fini(&c->aqp);
	free(c);
}

/* Two engines find the interval over: it is shared once. */
static void test_once(void **state)
{
	struct crowd *c = calloc(1, sizeof(*c));
	uint64_t t = 20 * MS;

	aqp_init(&c->aqp, env, 12, AQP_INTERVAL_NS);
	come(c, 0, t);
	aqp_poll(&c->aqp, t);
	for (int i = 0; i < 2; i++) {
		works(c, 0, 7);
		t += 10 * MS;
		aqp_poll(&c->aqp, t);
	}
	works(c, 0, 5);
	aqp_share(&c->aqp, t);
	assert_int_equal(atomic_load(&c->lanes[0][0].util), 5);
	for (unsigned i = 0; i < LANES; i++)
		aqp_del(&c->aqp, &c->lanes[0][i]);
	aqp_fini(&c->aqp);
	free(c);
}

static bool no_memory(void *arg)
{
	return true;
}

static void test_short_memory(void **state)
{
	struct crowd *c = calloc(1, sizeof(*c));

	aqp_init(&c->aqp, env, 12, AQP_INTERVAL_NS);
	rpc_lane_server_init(&c->lanes[0][0], CREDIT_C, kick, NULL);
	env->alloc_fails = no_memory;
	assert_int_equal(aqp_add(&c->aqp, &c->lanes[0][0], c, 1), -ENOMEM);
	env->alloc_fails = NULL;
	aqp_del(&c->aqp, &c->lanes[0][0]);
	aqp_fini(&c->aqp);
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_question),
		cmocka_unit_test(test_expects),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_short_memory),
	};
	int rc = env_real_new(&env);

	if (rc)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	env_real_free(env);
	return rc;
}
