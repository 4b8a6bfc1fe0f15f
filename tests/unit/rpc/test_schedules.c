/* SPDX-License-Identifier: MIT */
/*
 * test_schedules.c - whole conversations under random schedules: each call is
 * answered exactly once, answers are not crossed, requests are executed in the
 * order sent, none is lost, ends that sleep are woken. Each seed is a run.
 */
#include <errno.h>
#include <stdlib.h>

#include "env/env.h"
#include "unit/cm.h"
#include "pair.h"

#define CALLS_MAX 400
#define DATA_MAX 6000
#define ID 7

struct call {
	struct run *run;
	unsigned n;
	unsigned resp_len, resp_max;
	int ended;
	enum skein_outcome outcome;
	int status;
};

struct run {
	struct pair *p;
	struct call calls[CALLS_MAX];
	unsigned made, ended, executed;
	int last_executed;
	bool executed_n[CALLS_MAX];
	bool large, deadlines;
	/* requests in other hands, and how many go there, in percent */
	struct later {
		struct skein_rpc_req *req;
		uint32_t head[2];
	} later[CALLS_MAX];
	unsigned later_count, later_percent;
	unsigned overtaken; /* answers that came before an elder's */
	int last_ended;
};

static struct skein_env *env;
static struct run run;

static uint8_t pattern(unsigned n, unsigned i)
{
	return (uint8_t)(n * 131 + i * 7 + (i >> 8));
}

static void check_data(struct skein_rpc_req *req, uint32_t n)
{
	const uint8_t *data = skein_rpc_req_data(req);

	assert_int_equal((uintptr_t)data % 8, 0);
	for (unsigned i = 8; i < skein_rpc_req_len(req); i++)
		assert_int_equal(data[i], pattern(n, i));
}

/* Builds the result. */
static int respond(struct skein_rpc_req *req, const uint32_t head[2])
{
	uint8_t *resp;

	if (head[1] == 0xffffffffu)
		return -ENOENT;
	/* Growing keeps what is there, also from inline to large. */
	resp = skein_rpc_resp_buf(req, head[1] < 5 ? head[1] : 5);
	if (!resp)
		return -ENOMEM;
	for (unsigned i = 0; i < head[1] && i < 5; i++)
		resp[i] = pattern(head[0] + 1, i);
	resp = skein_rpc_resp_buf(req, head[1]);
	if (!resp)
		return -ENOMEM;
	for (unsigned i = 5; i < head[1]; i++)
		resp[i] = pattern(head[0] + 1, i);
	return 0;
}

static int put_off(struct skein_rpc_req *req, const uint32_t head[2])
{
	struct later *l = &run.later[run.later_count];
	struct skein_rpc_req *again;

	if (head[0] % 3 == 0) /* what was built is forgotten */
		(void)skein_rpc_resp_buf(req, head[1]);
	if (skein_rpc_defer(req, &l->req))
		return -ENOMEM;
	memcpy(l->head, head, sizeof(l->head));
	run.later_count++;
	assert_int_equal(skein_rpc_defer(req, &again), -EALREADY);
	assert_null(skein_rpc_resp_buf(req, skein_rpc_resp_max(req)));
	assert_null(skein_rpc_req_conn(l->req));
	return head[0] % 2 ? 0 : -EIO; /* does not count */
}

/* Somebody answers, in any order. */
static void answer_one(void)
{
	struct later l;
	unsigned i;

	if (!run.later_count)
		return;
	i = (unsigned)prng_below(&run.p->rng, run.later_count);
	l = run.later[i];
	run.later[i] = run.later[--run.later_count];
	check_data(l.req, l.head[0]);
	assert_int_equal(skein_rpc_answer(l.req, respond(l.req, l.head)), 0);
}

static int handler(struct skein_rpc_req *req, void *arg)
{
	const uint8_t *data = skein_rpc_req_data(req);
	uint32_t head[2];

	assert_true(skein_rpc_req_len(req) >= 8);
	memcpy(head, data, 8);
	check_data(req, head[0]);
	assert_true(head[0] < run.made);
	assert_false(run.executed_n[head[0]]);
	/* FIFO */
	assert_true((int)head[0] > run.last_executed);
	run.last_executed = (int)head[0];
	run.executed_n[head[0]] = true;
	run.executed++;
	if (prng_below(&run.p->rng, 100) < run.later_percent)
		return put_off(req, head);
	return respond(req, head);
}

static void done(void *arg, const struct skein_rpc_result *res)
{
	struct call *call = arg;
	const uint8_t *data = res->data;

	assert_int_equal(call->ended++, 0);
	run.overtaken += (int)call->n < run.last_ended;
	run.last_ended = (int)call->n;
	call->outcome = res->outcome;
	call->status = res->status;
	run.ended++;
	if (res->outcome != SKEIN_DONE) {
		assert_true(res->status < 0);
		return;
	}
	assert_true(run.executed_n[call->n] || res->status == -ENOMEM);
	if (res->status)
		return;
	assert_int_equal(res->len, call->resp_len);
	for (unsigned i = 0; i < call->resp_len; i++)
		assert_int_equal(data[i], pattern(call->n + 1, i));
}

static unsigned some_len(struct prng *r, bool large)
{
	switch (prng_below(r, large ? 12 : 8)) {
	case 0:
		return (unsigned)prng_below(r, 900);
	case 8:
		return (unsigned)prng_below(r, DATA_MAX);
	default:
		return (unsigned)prng_below(r, 80);
	}
}

static void make_call(void)
{
	static uint8_t data[DATA_MAX + 8];
	struct pair *p = run.p;
	struct prng *r = &p->rng;
	struct call *call = &run.calls[run.made];
	unsigned len = 8 + some_len(r, run.large);
	uint64_t timeout = SKEIN_FOREVER;
	uint32_t head[2];
	int rc;

	if (run.made == CALLS_MAX)
		return;
	*call = (struct call){.run = &run, .n = run.made};
	call->resp_len = some_len(r, run.large);
	call->resp_max = call->resp_len + (unsigned)prng_below(r, 50);
	head[0] = call->n;
	head[1] = prng_below(r, 20) ? call->resp_len : 0xffffffffu;
	memcpy(data, head, 8);
	for (unsigned i = 8; i < len; i++)
		data[i] = pattern(call->n, i);
	if (run.deadlines && !prng_below(r, 4))
		timeout = prng_below(r, 3000000);
	run.made++;
	rc = pair_call(p, ID, data, len, call->resp_max, timeout, done, call);
	if (rc) {
		assert_true(rc == -EAGAIN || rc == -ENOMEM);
		run.made--;
	}
}

/* One end runs a round, or tries to sleep as an engine does. */
static void end_round(int i, bool may_sleep)
{
	struct pair *p = run.p;
	struct pair_end *e = &p->ends[i];
	int rc;

	if (e->asleep && !e->woken && !e->port.event.doze_end_ns)
		return;
	e->asleep = e->woken = false;
	rc = i ? rpc_server_poll(&p->server) : pair_poll(p, p->now_ns);
	if (rc < 0)
		fail_msg("end %d: %d", i, rc);
	assert_int_equal(rpc_event_flush(&e->port), 0);
	if (rc || !may_sleep)
		return;
	if (!i && !rpc_client_busy(&p->client)) {
		e->asleep = true;
		return;
	}
	if (!rpc_event_want_sleep(&e->port.event, p->now_ns)) {
		assert_int_equal(rpc_event_flush(&e->port), 0);
		return;
	}
	if (i ? !rpc_server_has_work(&p->server)
	      : !p->client.tx.open_count && !rpc_client_has_work(&p->client))
		e->asleep = true;
}

static void step(bool sleepy)
{
	struct pair *p = run.p;

	switch (prng_below(&p->rng, 8)) {
	case 0:
		make_call();
		/* a thread that calls is awake */
		p->ends[0].woken = true;
		break;
	case 1:
		end_round(0, sleepy);
		break;
	case 2:
		end_round(1, sleepy);
		break;
	case 3:
		p->now_ns += prng_below(&p->rng, 100000);
		break;
	case 5:
		answer_one();
		break;
	case 4:
		if (!prng_below(&p->rng, 8))
			pair_credits(p);
		break;
	default:
		pair_move(p);
	}
}

/* Lets both ends go on until all calls have ended; must come to an end. */
static void drain(bool sleepy)
{
	struct pair *p = run.p;
	unsigned rounds = 0;

	p->opts.eagain_percent = 0;
	while (run.ended < run.made) {
		assert_true(rounds++ < 200000);
		pair_credits(p);
		if (p->ends[0].port.event.owe_wake ||
		    p->ends[1].port.event.owe_wake ||
		    p->ends[0].port.event.owe_granted ||
		    p->ends[1].port.event.owe_granted)
			p->ends[0].woken = p->ends[1].woken = true;
		/* Nothing under way, both asleep, calls open: lost. */
		if (pair_quiet(p) && p->ends[0].asleep && p->ends[1].asleep &&
		    !run.later_count)
			assert_true(p->ends[0].woken || p->ends[1].woken ||
				    p->ends[0].port.event.doze_end_ns ||
				    p->ends[1].port.event.doze_end_ns);
		p->now_ns += 1000;
		end_round(0, sleepy);
		end_round(1, sleepy);
		pair_move(p);
		if (!prng_below(&p->rng, 4))
			answer_one();
	}
}

static unsigned one_run(const struct pair_opts *opts, bool large,
			bool deadlines, bool sleepy, unsigned later_percent)
{
	struct pair p;
	unsigned steps;

	memset(&run, 0, sizeof(run));
	run.p = &p;
	run.last_executed = -1;
	run.large = large;
	run.deadlines = deadlines;
	run.later_percent = later_percent;
	pair_init(&p, opts);
	assert_int_equal(rpc_handlers_add(&p.handlers, env, ID, handler, NULL),
			 0);
	steps = 200 + (unsigned)prng_below(&p.rng, 2000);
	while (steps--)
		step(sleepy);
	drain(sleepy);
	for (unsigned n = 0; n < run.made; n++) {
		struct call *call = &run.calls[n];

		assert_int_equal(call->ended, 1);
		/* What was called not sent was never executed; without
		 * deadlines nothing but done is an answer. */
		if (call->outcome == SKEIN_NOT_SENT)
			assert_false(run.executed_n[n]);
		if (!deadlines)
			assert_int_equal(call->outcome, SKEIN_DONE);
	}
	/* those whose caller did not wait for them */
	while (run.later_count)
		answer_one();
	pair_fini(&p);
	rpc_handlers_fini(&p.handlers, env);
	return run.overtaken;
}

static void many(struct pair_opts opts, uint64_t seeds, bool large,
		 bool deadlines, bool sleepy)
{
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		opts.seed = seed;
		opts.eagain_percent = seed % 3 ? 0 : 20;
		opts.batch_max = (unsigned)(1 + seed % 9);
		one_run(&opts, large, deadlines, sleepy, 0);
	}
}

static void test_ordered(void **state)
{
	many((struct pair_opts){0}, 1500, false, false, false);
}

static void test_unordered(void **state)
{
	many((struct pair_opts){.unordered = true}, 800, false, false, false);
}

static void test_large(void **state)
{
	many((struct pair_opts){0}, 300, true, false, false);
	many((struct pair_opts){.unordered = true}, 150, true, false, true);
	many((struct pair_opts){.read_max = 700}, 150, true, false, false);
	many((struct pair_opts){.read_max = 304, .reads_max = 3}, 150, true,
	     false, false);
}

static void test_deadlines(void **state)
{
	many((struct pair_opts){0}, 400, true, true, false);
}

static void test_sleep(void **state)
{
	many((struct pair_opts){0}, 1000, false, false, true);
	many((struct pair_opts){.credits = 3}, 1000, false, true, true);
}

/* The low half of positions goes through zero. */
static void test_position_wraps(void **state)
{
	many((struct pair_opts){.start_pos = (1ull << 32) - 128}, 300, false,
	     false, false);
}

static void test_smallest_rings(void **state)
{
	many((struct pair_opts){.geom = {16, 16, 16}}, 400, false, false,
	     false);
}

/* Requests put off, and answered in any order. */
static void later(struct pair_opts opts, uint64_t seeds, bool large,
		  bool deadlines, bool sleepy)
{
	static const unsigned percents[] = {3, 20, 50, 100};
	unsigned overtaken = 0;

	opts.env = env;
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		opts.seed = seed;
		opts.eagain_percent = seed % 3 ? 0 : 20;
		opts.batch_max = (unsigned)(1 + seed % 9);
		opts.later_max = seed % 5 ? 0 : 3;
		opts.later_len = seed % 7 ? 0 : 4000;
		overtaken += one_run(&opts, large, deadlines, sleepy,
				     percents[seed / 4 % 4]);
	}
	assert_true(opts.in_order ? !overtaken : overtaken > seeds);
}

static void test_later(void **state)
{
	later((struct pair_opts){0}, 800, false, false, false);
	later((struct pair_opts){.unordered = true}, 400, false, false, true);
	later((struct pair_opts){.start_pos = (1ull << 32) - 128}, 200, false,
	      false, false);
}

static void test_later_large(void **state)
{
	later((struct pair_opts){0}, 400, true, false, false);
	later((struct pair_opts){.geom = {16, 16, 16}}, 200, true, false, true);
}

static void test_later_deadlines(void **state)
{
	later((struct pair_opts){0}, 400, true, true, false);
	later((struct pair_opts){.credits = 3}, 400, false, true, true);
}

/* A caller that takes answers in their order only gets no others. */
static void test_later_in_order(void **state)
{
	later((struct pair_opts){.in_order = true}, 300, true, false, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordered),
		cmocka_unit_test(test_unordered),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_position_wraps),
		cmocka_unit_test(test_smallest_rings),
		cmocka_unit_test(test_later),
		cmocka_unit_test(test_later_large),
		cmocka_unit_test(test_later_deadlines),
		cmocka_unit_test(test_later_in_order),
	};
	int rc = env_real_new(&env);

	if (rc)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	env_real_free(env);
	return rc;
}
