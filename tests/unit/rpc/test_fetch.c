/* SPDX-License-Identifier: MIT */
/*
 * test_fetch.c - answers that the calling end READs, under random schedules:
 * READs whose words are taken at moments of their own, recalls, sleep, answers
 * that are deferred, replied and large ones between them, deadlines, cancels.
 * Each call ends once with its own answer. The pair's device watches the rules
 * for READs (docs/protocol/rpc.md, "Fetching and recall"). Each seed is a run.
 */
#include <errno.h>
#include <stdlib.h>

#include "env/env.h"
#include "rpc/server/mirror.h"
#include "unit/cm.h"
#include "pair.h"

#define CALLS_MAX 600u
#define DATA_MAX 1500u
#define ID 7
#define SEEDS 100u

struct call {
	unsigned n, len;
	int ended;
};

struct later {
	struct skein_rpc_req *req;
	uint32_t head[2];
};

static struct run {
	struct pair p;
	struct rpc_mirror *mirror;
	struct call calls[CALLS_MAX];
	unsigned made, ended;
	bool executed[CALLS_MAX];
	bool trouble; /* deadlines and cancels */
	bool flips;   /* recalls and sleep */
	struct later later[CALLS_MAX];
	unsigned later_count, later_percent;
} run;

static struct skein_env *env;
/* of all seeds */
static uint64_t fetched, reads, found_none, recalls, resent;

static unsigned rnd(unsigned n)
{
	return (unsigned)prng_below(&run.p.rng, n);
}

static uint8_t pattern(unsigned n, unsigned i)
{
	return (uint8_t)(n * 131 + i * 7 + (i >> 8));
}

static int respond(struct skein_rpc_req *req, const uint32_t head[2])
{
	uint8_t *resp = skein_rpc_resp_buf(req, head[1]);

	if (!resp)
		return -ENOMEM;
	for (unsigned i = 0; i < head[1]; i++)
		resp[i] = pattern(head[0], i);
	return 0;
}

static int handler(struct skein_rpc_req *req, void *arg)
{
	struct later *l = &run.later[run.later_count];
	uint32_t head[2];

	memcpy(head, skein_rpc_req_data(req), 8);
	assert_true(head[0] < run.made && !run.executed[head[0]]);
	run.executed[head[0]] = true;
	if (rnd(100) >= run.later_percent)
		return respond(req, head);
	assert_int_equal(skein_rpc_defer(req, &l->req), 0);
	memcpy(l->head, head, sizeof(l->head));
	run.later_count++;
	return 0;
}

static void answer_one(void)
{
	struct later l;
	unsigned i;

	if (!run.later_count)
		return;
	i = rnd(run.later_count);
	l = run.later[i];
	run.later[i] = run.later[--run.later_count];
	assert_int_equal(skein_rpc_answer(l.req, respond(l.req, l.head)), 0);
}

static void done(void *arg, const struct skein_rpc_result *res)
{
	struct call *call = arg;
	const uint8_t *data = res->data;

	assert_int_equal(call->ended++, 0);
	run.ended++;
	if (res->outcome != SKEIN_DONE) {
		assert_true(run.trouble);
		assert_true(res->status == -ETIMEDOUT ||
			    res->status == -ECANCELED);
		return;
	}
	assert_true(run.executed[call->n]);
	assert_int_equal(res->status, 0);
	assert_int_equal(res->len, call->len);
	for (unsigned i = 0; i < call->len; i++)
		assert_int_equal(data[i], pattern(call->n, i));
}

static unsigned some_len(void)
{
	switch (rnd(10)) {
	case 0:
		return rnd(DATA_MAX);
	case 1:
		return rnd(300);
	default:
		return rnd(25);
	}
}

static bool add_call(void)
{
	struct call *call = &run.calls[run.made];
	uint32_t data[2] = {run.made};
	struct rpc_client_req r = {.payload = data,
				   .len = sizeof(data),
				   .timeout_ns = SKEIN_FOREVER,
				   .done = done,
				   .arg = call,
				   .id = ID,
				   .thread = 1};

	if (run.made == CALLS_MAX)
		return false;
	*call = (struct call){.n = run.made, .len = some_len()};
	data[1] = call->len;
	r.resp_max = call->len + rnd(20);
	if (!rnd(10)) /* too long to be fetched */
		r.resp_max = 2 * RPC_FETCH_LEN_MAX;
	if (run.trouble && !rnd(5))
		r.timeout_ns = rnd(30000);
	if (rpc_client_add(&run.p.client, &r))
		return false;
	run.made++;
	return true;
}

/* Threads combine some calls in a message, which may fail to leave. */
static void make_calls(void)
{
	struct rpc_client *c = &run.p.client;
	unsigned n = 1 + rnd(4), before = run.made;
	uint64_t off;
	uint32_t len;
	int rc;

	while (n-- && add_call())
		;
	if (run.made == before)
		return;
	rpc_client_seal(c, &off, &len);
	rc = c->tx.port->ops->write(c->tx.port, off, len, NULL);
	rpc_client_posted(c, rc);
	if (rc)
		run.made = before;
	run.p.ends[0].woken = true;
}

static bool is_this(const struct rpc_wanted *w, skein_rpc_done_fn *fn,
		    const void *arg)
{
	return fn == done && arg == w->arg;
}

static void cancel_one(void)
{
	struct rpc_wanted w = {.is = is_this, .done = done};

	if (!run.trouble || !run.made)
		return;
	w.arg = &run.calls[rnd(run.made)];
	(void)rpc_client_cancel(&run.p.client, &w);
}

static void send_own(void)
{
	struct rpc_client *c = &run.p.client;

	if (rpc_client_wants_send(c))
		assert_true(rpc_client_send_own(c) >= 0);
}

/* As an engine does before it sleeps (module.c). */
static bool client_may_sleep(void)
{
	struct rpc_client *c = &run.p.client;
	struct rpc_event *ev = &run.p.ends[0].port.event;

	if (rpc_client_has_work(c))
		return false;
	if (!rpc_client_busy(c))
		return true;
	if (!rpc_rfetch_may_sleep(c)) {
		send_own();
		return false;
	}
	if (!rpc_event_want_sleep(ev, run.p.now_ns)) {
		assert_int_equal(rpc_event_flush(&run.p.ends[0].port), 0);
		return false;
	}
	return !rpc_client_has_work(c);
}

static void client_round(bool may_sleep)
{
	struct pair_end *e = &run.p.ends[0];
	struct rpc_client *c = &run.p.client;
	int rc;

	if (atomic_load(&e->any_ended))
		e->woken = true; /* a completion wakes */
	if (e->asleep && !e->woken && !e->port.event.doze_end_ns)
		return;
	e->asleep = e->woken = false;
	pair_complete(e);
	rc = rpc_client_poll(c, run.p.now_ns);
	if (rc < 0)
		fail_msg("client: %d", rc);
	send_own();
	assert_int_equal(rpc_event_flush(&e->port), 0);
	if (!rnd(4)) /* too early, or late */
		c->rx.rf.wait_ns = rnd(4) ? rnd(100) : rnd(3000);
	if (run.flips && !rnd(20) && e->port.event.rx == RPC_RX_POLLING)
		c->rx.rf.wanted = rnd(4) ? RPC_MODE_ALL : rnd(RPC_MODE_ALL);
	if (run.flips && !rnd(60))
		c->rx.rf.recall = true;
	if (!rc && may_sleep)
		e->asleep = client_may_sleep();
}

static void server_round(void)
{
	int rc = rpc_server_poll(&run.p.server);

	if (rc < 0)
		fail_msg("server: %d", rc);
	assert_int_equal(rpc_event_flush(&run.p.ends[1].port), 0);
}

static void step(void)
{
	switch (rnd(10)) {
	case 0:
		if (!rnd(3))
			make_calls();
		break;
	case 1:
	case 2:
		client_round(run.flips && !rnd(60));
		break;
	case 3:
		server_round();
		break;
	case 4:
		run.p.now_ns += rnd(3000);
		break;
	case 5:
		answer_one();
		break;
	case 6:
		if (!rnd(20))
			cancel_one();
		break;
	default:
		pair_move(&run.p);
	}
}

/* Lets both ends go on until all calls have ended; must come to an end. */
static void drain(void)
{
	struct pair *p = &run.p;
	unsigned rounds = 0;

	p->opts.eagain_percent = 0;
	while (run.ended < run.made || rpc_client_busy(&p->client)) {
		assert_true(rounds++ < 200000);
		/* Nothing under way, asleep, calls open: lost. */
		if (pair_quiet(p) && p->ends[0].asleep && !run.later_count &&
		    !rpc_server_has_work(&p->server) &&
		    !rpc_event_owes(&p->ends[1].port.event))
			assert_true(p->ends[0].woken ||
				    atomic_load(&p->ends[0].any_ended) ||
				    p->ends[0].port.event.doze_end_ns);
		p->now_ns += 300;
		client_round(run.flips);
		server_round();
		pair_move(p);
		if (!rnd(4))
			answer_one();
	}
	assert_int_equal(p->client.rx.rf.tries, 0);
}

static void one_run(struct pair_opts opts, bool recalls_too)
{
	struct pair *p = &run.p;
	unsigned steps;

	memset(&run, 0, sizeof(run));
	opts.shared = true;
	opts.env = env;
	pair_init(p, &opts);
	run.trouble = opts.seed % 3 == 1;
	run.flips = recalls_too;
	run.later_percent = opts.seed % 4 == 2 ? 30 : 0;
	assert_int_equal(rpc_handlers_add(&p->handlers, env, ID, handler, NULL),
			 0);
	run.mirror = rpc_mirror_new(env, p->opts.geom.resp_lines,
				    opts.unordered_read);
	p->server.mirror = run.mirror;
	rpc_rfetch_start(&p->client, opts.unordered_read, NULL);
	steps = 500 + rnd(5000);
	while (steps--)
		step();
	drain();
	for (unsigned n = 0; n < run.made; n++)
		assert_int_equal(run.calls[n].ended, 1);
	while (run.later_count)
		answer_one();
	reads += p->ends[0].port.stats.fetch_reads;
	fetched += p->ends[0].port.stats.fetched;
	recalls += p->ends[0].port.stats.recalls;
	resent += p->ends[1].port.stats.resent;
	found_none += p->ends[0].port.stats.fetch_empty;
	pair_fini(p);
	env_free(env, run.mirror);
	rpc_handlers_fini(&p->handlers, env);
}

static void many(struct pair_opts opts, bool flips)
{
	fetched = reads = recalls = resent = found_none = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		opts.seed = seed;
		print_message("seed %u\r", (unsigned)seed);
		one_run(opts, flips);
	}
	/* each of them happens */
	print_message(
		"%lu fetched, %lu READs, %lu found none, %lu recalls, %lu resent\n",
		fetched, reads, found_none, recalls, resent);
	assert_true(fetched > SEEDS * 20 && found_none > SEEDS);
	assert_true(!flips || (recalls > SEEDS && resent > SEEDS));
}

static void test_ordered(void **state)
{
	many((struct pair_opts){.eagain_percent = 5}, false);
	many((struct pair_opts){.eagain_percent = 5}, true);
}

static void test_unordered(void **state)
{
	many((struct pair_opts){.unordered_read = true}, false);
	many((struct pair_opts){.unordered_read = true,
				.unordered = true,
				.eagain_percent = 5},
	     true);
}

static void test_small_rings(void **state)
{
	struct pair_opts opts = {.unordered_read = true, .geom = {64, 64, 32}};

	many(opts, true);
	opts.start_pos = (UINT64_C(1) << 32) - 64;
	many(opts, true);
}

/* --- recalls, one by one -------------------------------------------------- */

static void lone_start_with(struct pair_opts opts)
{
	struct pair *p = &run.p;

	opts.shared = true;
	opts.env = env;
	memset(&run, 0, sizeof(run));
	pair_init(p, &opts);
	assert_int_equal(rpc_handlers_add(&p->handlers, env, ID, handler, NULL),
			 0);
	run.mirror = rpc_mirror_new(env, p->opts.geom.resp_lines, false);
	p->server.mirror = run.mirror;
	rpc_rfetch_start(&p->client, false, NULL);
}

static void lone_start(struct rpc_geom geom)
{
	lone_start_with((struct pair_opts){.seed = 1, .geom = geom});
}

static void lone_stop(void)
{
	pair_fini(&run.p);
	env_free(env, run.mirror);
	rpc_handlers_fini(&run.p.handlers, env);
}

/* False: there is no room for it. */
static bool lone_add_max(unsigned len, unsigned max)
{
	struct call *call = &run.calls[run.made];
	uint32_t data[2] = {run.made, len};
	struct rpc_client_req r = {.payload = data,
				   .len = sizeof(data),
				   .resp_max = max,
				   .timeout_ns = SKEIN_FOREVER,
				   .done = done,
				   .arg = call,
				   .id = ID,
				   .thread = 1};

	*call = (struct call){.n = run.made, .len = len};
	if (rpc_client_add(&run.p.client, &r))
		return false;
	run.made++;
	return true;
}

static bool lone_add(unsigned len)
{
	return lone_add_max(len, len);
}

static void lone_flush(void)
{
	struct rpc_client *c = &run.p.client;
	uint64_t off;
	uint32_t len;

	rpc_client_seal(c, &off, &len);
	assert_int_equal(c->tx.port->ops->write(c->tx.port, off, len, NULL), 0);
	rpc_client_posted(c, 0);
}

static bool lone_call(void)
{
	if (!lone_add(8))
		return false;
	lone_flush();
	return true;
}

/* The calling end alone, for so long, a round each 100 ns. */
static void lone_rounds(uint64_t ns)
{
	struct pair *p = &run.p;

	for (uint64_t end = p->now_ns + ns; p->now_ns < end;) {
		p->now_ns += 100;
		pair_settle(p);
		pair_complete(&p->ends[0]);
		assert_true(rpc_client_poll(&p->client, p->now_ns) >= 0);
		send_own();
	}
}

static void lone_server(void)
{
	pair_settle(&run.p);
	assert_true(rpc_server_poll(&run.p.server) >= 0);
}

/* The calling end gets the answer of a call, and takes it as early as it can. */
static void lone_answer(void)
{
	struct pair *p = &run.p;
	unsigned before = run.ended;

	lone_flush();
	lone_server();
	while (run.ended == before) {
		assert_true(pair_move(p));
		assert_true(rpc_client_poll(&p->client, p->now_ns) >= 0);
	}
}

/* Each answer has the whole response space. The lap before has left the second
 * reply's length and size there. So it may be taken before those bytes of it
 * are there. They come when a READ has brought the third answer. True: the
 * schedule was like that. */
static bool late_bytes(uint64_t seed)
{
	struct pair *p = &run.p;
	struct rpc_client *c = &p->client;
	const struct rpc_geom geom = {64, 16, 16};
	const unsigned all = 16 * RPC_LINE - RPC_RESP_ROOM;
	bool late;

	lone_start_with((struct pair_opts){
		.seed = seed, .geom = geom, .unordered = true});
	c->tx.resp_inline_max = all;
	c->rx.rf.wanted = 0;
	send_own();
	for (unsigned i = 0; i < 2; i++) {
		pair_settle(p);
		assert_true(lone_add_max(8, all));
		lone_answer();
	}
	late = p->ends[1].op_count;
	p->ends[1].held = true;
	c->rx.rf.wanted = RPC_MODE_ALL;
	send_own();
	assert_true(lone_add_max(100, all));
	lone_flush();
	lone_server();
	while (c->rx.rf.state != RPC_RFETCH_WAIT) {
		p->now_ns += 100;
		assert_true(rpc_client_poll(c, p->now_ns) >= 0);
		send_own();
	}
	pair_settle(p);
	p->ends[1].held = false;
	lone_rounds(SKEIN_MS(1));
	assert_int_equal(run.ended, 3);
	assert_int_equal(p->ends[0].port.stats.fetch_empty, 0);
	lone_stop();
	return late;
}

static void test_late_bytes(void **state)
{
	unsigned late = 0;

	for (unsigned seed = 0; seed < SEEDS; seed++)
		late += late_bytes(seed);
	assert_true(late);
}

/* A READ brings a message and the beginning of a second one. Only the rest of
 * that is READ. */
static void test_rest_of_the_second(void **state)
{
	struct rpc_stats *st = &run.p.ends[0].port.stats;

	lone_start((struct rpc_geom){256, 256, 256});
	assert_true(lone_add(8));
	lone_flush();
	lone_server();
	assert_true(lone_add(DATA_MAX));
	lone_flush();
	lone_server();
	lone_rounds(SKEIN_MS(1));
	assert_int_equal(run.ended, 2);
	assert_int_equal(st->fetched_messages, 2);
	assert_int_equal(st->fetch_rests, 1);
	assert_int_equal(st->fetch_reads, 2);
	lone_stop();
}

/* Many results in a message that is longer than any result may be. */
static void test_long_message(void **state)
{
	struct rpc_stats *st = &run.p.ends[0].port.stats;

	lone_start((struct rpc_geom){256, 256, 256});
	for (unsigned i = 0; i < 8; i++)
		lone_add(DATA_MAX);
	assert_true(8 * DATA_MAX > RPC_FETCH_LEN_MAX);
	lone_flush();
	lone_server();
	lone_rounds(SKEIN_MS(1));
	assert_int_equal(run.ended, 8);
	assert_int_equal(st->fetched_messages, 1);
	assert_int_equal(st->fetch_reads, 2); /* F bytes, and the rest */
	lone_stop();
}

/* Beyond R a message is READ on, at growing gaps; the second in a row is
 * recalled, and is not if another was quick between them. */
static void test_slow(void **state)
{
	struct rpc_stats *st = &run.p.ends[0].port.stats;

	lone_start((struct rpc_geom){64, 64, 32});
	for (unsigned i = 0; i < 4; i++) {
		assert_true(lone_call());
		lone_rounds(SKEIN_MS(5));
		/* 350 ns, twice as much after each, at most 100 us */
		assert_in_range(st->fetch_empty, RPC_FETCH_R + 40,
				RPC_FETCH_R + 65);
		lone_server();
		lone_rounds(SKEIN_MS(1));
		assert_int_equal(run.ended, 2 * i + 1);
		st->fetch_empty = 0;
		assert_true(lone_call());
		lone_server();
		lone_rounds(SKEIN_MS(1));
		assert_int_equal(run.ended, 2 * i + 2);
		assert_int_equal(st->fetch_empty, 0);
	}
	assert_int_equal(st->recalls, 0);
	/* They hardly count as what an answer takes. */
	assert_in_range(run.p.client.rx.rf.wait_ns, RPC_FETCH_WAIT_NS,
			RPC_FETCH_WAIT_NS * 11 / 10);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(st->recalls, 0);
		st->fetch_empty = 0;
		assert_true(lone_call());
		lone_rounds(SKEIN_MS(5));
		lone_server();
		lone_rounds(SKEIN_MS(1));
		if (i)
			assert_int_equal(st->fetch_empty, RPC_FETCH_R);
		lone_server(); /* what was recalled */
		lone_rounds(SKEIN_MS(1));
		assert_int_equal(run.ended, 9 + i);
	}
	assert_int_equal(st->recalls, 1);
	lone_stop();
}

/* A recall finds the ring full, and the server takes nothing: READs go on, at
 * growing gaps. sleeps: so may the program, until the next one. */
static void recall_blocked(bool sleeps)
{
	struct rpc_stats *st = &run.p.ends[0].port.stats;
	struct rpc_rfetch *f = &run.p.client.rx.rf;

	lone_start((struct rpc_geom){8, 64, 8});
	while (lone_call())
		;
	assert_int_equal(run.made, 8);
	f->recall = true;
	lone_rounds(SKEIN_MS(20));
	assert_int_equal(st->recalls, 0);
	/* 350 ns, twice as much after each, at most 1 ms */
	assert_in_range(st->fetch_empty, 20, 40);
	if (sleeps) {
		while (f->state != RPC_RFETCH_IDLE)
			lone_rounds(100);
		assert_false(rpc_client_has_work(&run.p.client));
		assert_true(rpc_rfetch_may_sleep(&run.p.client));
		assert_in_range(rpc_rfetch_next(f), run.p.now_ns + 1,
				run.p.now_ns + SKEIN_MS(1));
	}
	lone_server();
	lone_rounds(SKEIN_MS(3));
	/* The recall, if it was faster than a READ: taken, and answered. */
	lone_server();
	lone_server();
	lone_rounds(SKEIN_MS(3));
	assert_int_equal(run.ended, 8);
	assert_false(f->recall || f->blocked);
	lone_stop();
}

static void test_recall_blocked(void **state)
{
	recall_blocked(false);
	recall_blocked(true);
}

/* What a caller may not do; the server says -SKEIN_EPEER. flags: of the header,
 * or of the request. */
static void bad_request(bool mirror, uint16_t hdr_flags, uint16_t count,
			uint16_t req_flags)
{
	struct pair_opts opts = {.seed = 1, .shared = true, .env = env};
	struct pair *p = &run.p;
	struct rpc_req_meta *meta;
	uint64_t canary;
	uint8_t *at;
	uint32_t len;

	memset(&run, 0, sizeof(run));
	pair_init(p, &opts);
	assert_int_equal(rpc_handlers_add(&p->handlers, env, ID, handler, NULL),
			 0);
	if (mirror)
		p->server.mirror = rpc_mirror_new(env, 64, true);
	run.mirror = p->server.mirror;
	run.made = CALLS_MAX;
	at = p->ends[1].port.base + RPC_CTL_LEN;
	len = sizeof(struct rpc_hdr) + count * (sizeof(*meta) + 8) +
	      RPC_TAIL_LEN;
	meta = (void *)(at + sizeof(struct rpc_hdr));
	*meta = (struct rpc_req_meta){.size = 8,
				      .rpc_id = ID,
				      .resp_lines = 2,
				      .resp_max = 8,
				      .flags = req_flags};
	memset(meta + 1, 0, 8);
	canary = rpc_canary(&p->ends[1].port.secret_in, 0);
	rpc_msg_seal(at, len, count | (uint32_t)hdr_flags << 16, 0, canary,
		     RPC_TAIL_CANARY);
	assert_int_equal(rpc_server_poll(&p->server),
			 mirror && (hdr_flags ? !count : 1) ? 1 : -SKEIN_EPEER);
	pair_fini(p);
	env_free(env, run.mirror);
	rpc_handlers_fini(&p->handlers, env);
}

static void test_bad_input(void **state)
{
	bad_request(true, 0, 1, RPC_REQ_FETCH);
	bad_request(false, 0, 1, RPC_REQ_FETCH);
	bad_request(true, RPC_HDR_RECALL, 0, 0);
	bad_request(false, RPC_HDR_RECALL, 0, 0);
	bad_request(true, RPC_HDR_RECALL, 1, RPC_REQ_FETCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordered),
		cmocka_unit_test(test_unordered),
		cmocka_unit_test(test_small_rings),
		cmocka_unit_test(test_late_bytes),
		cmocka_unit_test(test_rest_of_the_second),
		cmocka_unit_test(test_long_message),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_recall_blocked),
		cmocka_unit_test(test_bad_input),
	};

	int rc = env_real_new(&env);

	if (rc)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	env_real_free(env);
	return rc;
}
