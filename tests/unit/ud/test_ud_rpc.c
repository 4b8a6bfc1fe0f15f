/* SPDX-License-Identifier: MIT */
/*
 * Calls over datagrams (bench/ud): both ends in one thread, driven in turns,
 * under a clock of the test's. Payloads, credits, loss, each request once,
 * and how many lists and completions a burst costs.
 */
#include "ud/client.h"
#include "ud/server.h"

#include "unit/device.h"
#include "env/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
	SIZE = 512, /* at most; more than is copied at the post */
	SLOTS = 32,
	CALLS_MAX = 4096,
	ROUNDS_MAX = 20000000,
	TIMEOUT = 1000,
};

struct loss {
	uint64_t number; /* of the request that is lost, or its response */
	unsigned times;
};

struct world {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ud_client c;
	struct ud_server s;
	struct loss of_client, of_server;
	size_t len;
	uint64_t now;
	unsigned want; /* calls that are still to be begun */
	unsigned done;
	unsigned executed[CALLS_MAX]; /* by number */
	unsigned answered[CALLS_MAX];
	uint64_t number[SLOTS]; /* of each slot's call */
};

/* A request: its number, and bytes that follow from it. */
static void fill(unsigned char *at, size_t len, uint64_t number)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (unsigned char)(number * 37 + i * 11 + 1);
	memcpy(at, &number, sizeof(number));
}

static void begin(struct world *w, unsigned slot)
{
	w->want--;
	w->number[slot] = ud_client_call(&w->c, slot, w->len);
	assert_true(w->number[slot] < CALLS_MAX);
	fill(ud_client_data(&w->c, slot), w->len, w->number[slot]);
}

/* Not an echo: a buffer that was never written would do for one. */
static void on_done(void *arg, unsigned slot, const void *data, size_t len)
{
	const unsigned char *at = data;
	unsigned char want[SIZE];
	struct world *w = arg;

	assert_int_equal(len, w->len);
	fill(want, len, w->number[slot]);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(at[i] ^ 0xff, want[i]);
	w->answered[w->number[slot]]++;
	w->done++;
	if (w->want)
		begin(w, slot);
}

static size_t on_request(void *arg, const void *data, size_t len, void *resp)
{
	const unsigned char *at = data;
	unsigned char want[SIZE], *to = resp;
	struct world *w = arg;
	uint64_t number;

	memcpy(&number, at, sizeof(number));
	assert_true(number < CALLS_MAX);
	fill(want, len, number);
	assert_memory_equal(at, want, len);
	w->executed[number]++;
	for (size_t i = 0; i < len; i++)
		to[i] = at[i] ^ 0xff;
	return len;
}

static bool on_lose(void *arg, const struct ud_head *head)
{
	struct loss *l = arg;

	if (!l->times || head->number != l->number)
		return false;
	l->times--;
	return true;
}

static void open_ends(struct world *w, unsigned slots, unsigned credits,
		      unsigned recvs)
{
	struct ud_port_conf port = {.dev = w->dev, .pd = w->pd, .size = SIZE};
	struct ud_client_conf cc = {.port = port,
				    .slots = slots,
				    .credits = credits,
				    .timeout_ns = TIMEOUT,
				    .done = on_done,
				    .arg = w};
	struct ud_server_conf sc = {.port = port,
				    .sessions = 2,
				    .slots = slots,
				    .handler = on_request,
				    .arg = w};
	struct dev_qp_addr addr;

	cc.port.lose = sc.port.lose = on_lose;
	cc.port.lose_arg = &w->of_client;
	sc.port.lose_arg = &w->of_server;
	sc.port.recvs = recvs;
	assert_int_equal(ud_client_open(&w->c, &cc), 0);
	assert_int_equal(ud_server_open(&w->s, &sc), 0);
	/* the other session is nobody's */
	ud_port_addr(&w->c.port, &addr);
	assert_int_equal(ud_server_connect(&w->s, 1, &addr), 0);
	ud_port_addr(&w->s.port, &addr);
	assert_int_equal(ud_client_connect(&w->c, &addr, 1), 0);
	w->len = 64;
}

static unsigned client(struct world *w)
{
	unsigned n;

	assert_int_equal(ud_client_round(&w->c, w->now, &n), 0);
	return n;
}

static unsigned server(struct world *w)
{
	unsigned n;

	assert_int_equal(ud_server_round(&w->s, &n), 0);
	return n;
}

/* calls more, until all are answered; step: of the clock, each round. */
static void run(struct world *w, unsigned calls, unsigned step)
{
	unsigned all = w->done + calls;

	w->want = calls;
	for (unsigned i = 0; i < w->c.conf.slots && w->want; i++)
		begin(w, i);
	for (long i = 0; w->done < all; i++) {
		if (i == ROUNDS_MAX)
			fail_msg("%u of %u calls are answered", w->done, all);
		w->now += step;
		client(w);
		server(w);
	}
}

static void each_once(const struct world *w)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CALLS_MAX; i++) {
		assert_in_range(w->executed[i], 0, 1);
		assert_int_equal(w->executed[i], w->answered[i]);
		n += w->answered[i];
	}
	assert_int_equal(n, w->done);
	assert_int_equal(w->s.counts.executed, w->done);
}

static int up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	char err[256];

	assert_int_equal(env_real_new(&w->env), 0);
	assert_int_equal(dev_open(w->env, test_device(), -1, err, sizeof(err),
				  &w->dev),
			 0);
	assert_int_equal(w->dev->ops->alloc_pd(w->dev, &w->pd), 0);
	w->now = 1;
	*state = w;
	return 0;
}

static int down(void **state)
{
	struct world *w = *state;

	if (w->c.slots)
		ud_client_close(&w->c);
	if (w->s.sessions)
		ud_server_close(&w->s);
	w->dev->ops->dealloc_pd(w->dev, w->pd);
	dev_close(w->dev);
	env_real_free(w->env);
	free(w);
	return 0;
}

static void test_payloads(void **state)
{
	struct world *w = *state;

	open_ends(w, SLOTS, SLOTS, SLOTS);
	run(w, 1000, 0);
	w->len = SIZE; /* too much to be copied at the post */
	run(w, 1000, 0);
	each_once(w);
	assert_int_equal(w->c.counts.again, 0);
	assert_int_equal(w->c.counts.stale, 0);
}

/* The clock stands still: a request too many would be lost for ever. */
static void test_credits(void **state)
{
	struct world *w = *state;

	open_ends(w, SLOTS, 4, 4);
	run(w, 1000, 0);
	each_once(w);
	assert_int_equal(w->c.counts.under_way_max, 4);
	assert_int_equal(w->c.credits, 4);
	/* no slot was passed over */
	for (unsigned i = 0; i < SLOTS; i++)
		assert_in_range(w->number[i] / SLOTS, 1000 / SLOTS,
				1000 / SLOTS + 1);
}

/* The server has fewer receives than it gave credits: datagrams are lost. */
static void test_receives_run_out(void **state)
{
	struct world *w = *state;

	open_ends(w, 8, 8, 2);
	run(w, 1, 0); /* the path is there */
	w->want = 8;
	for (unsigned i = 0; i < 8; i++)
		begin(w, i);
	client(w);
	assert_int_equal(server(w), 2);
	assert_int_equal(client(w), 2);
	w->now += TIMEOUT - 1;
	client(w);
	assert_int_equal(w->c.counts.again, 0);
	w->now += TIMEOUT / 2; /* it looks a few times in a timeout */
	client(w);
	assert_int_equal(w->c.counts.again, 6);
	assert_int_equal(w->c.credits, 2);
	assert_int_equal(server(w), 2);
	while (w->done < 9) {
		w->now += TIMEOUT;
		client(w);
		server(w);
	}
	each_once(w);
	assert_int_equal(w->s.counts.answered_again, 0);
}

static void test_lost_request(void **state)
{
	struct world *w = *state;

	open_ends(w, 4, 4, 4);
	run(w, 1, 0); /* the path is there */
	w->of_client = (struct loss){.number = 9, .times = 2};
	run(w, 40, 1);
	each_once(w);
	assert_int_equal(w->c.port.counts.lost, 2);
	assert_int_equal(w->c.counts.again, 2);
	assert_int_equal(w->s.counts.answered_again, 0);
}

/* It was executed: the request comes again, and only its response. */
static void lost_response(struct world *w, size_t len)
{
	open_ends(w, 4, 4, 4);
	run(w, 1, 0);
	w->len = len;
	w->of_server = (struct loss){.number = 9, .times = 3};
	run(w, 40, 1);
	each_once(w);
	assert_int_equal(w->s.port.counts.lost, 3);
	assert_int_equal(w->c.counts.again, 3);
	assert_int_equal(w->s.counts.answered_again, 3);
	assert_int_equal(w->c.counts.stale, 0);
}

static void test_lost_response(void **state)
{
	lost_response(*state, 64);
}

/* What is not copied at the post must have left before its buffer is used
 * again. */
static void test_lost_large_response(void **state)
{
	struct world *w = *state;

	lost_response(w, SIZE);
	assert_int_equal(w->c.port.counts.drains, 3);
	assert_int_equal(w->s.port.counts.drains, 1);
}

/* Late, not lost: both copies arrive, one is executed, one answer counts. */
static void test_late(void **state)
{
	struct world *w = *state;

	open_ends(w, 4, 4, 4);
	run(w, 1, 0);
	w->want = 1;
	begin(w, 1);
	client(w);
	w->now += TIMEOUT;
	client(w);
	assert_int_equal(server(w), 2);
	assert_int_equal(client(w), 2);
	each_once(w);
	assert_int_equal(w->c.counts.stale, 1);
	assert_int_equal(w->s.counts.answered_again, 1);
	assert_int_equal(w->c.credits, 4);
	run(w, 40, 0);
	each_once(w);
}

/* A datagram of the client's QP, as it is given. */
static void raw(struct world *w, struct ud_head head)
{
	struct ud_head *at = ud_port_buf(&w->c.port, 0), was = *at;

	*at = head;
	assert_int_equal(ud_port_send(&w->c.port, &w->c.server, at, true), 0);
	assert_int_equal(ud_port_flush(&w->c.port), 0);
	*at = was;
	assert_int_equal(server(w), head.magic == UD_MAGIC);
}

static void test_strangers(void **state)
{
	const struct ud_head good = {UD_MAGIC, UD_REQUEST, 0, 1, 64, 8};
	struct world *w = *state;
	struct ud_head h;

	open_ends(w, 4, 4, 4);
	run(w, 12, 0); /* 4 to 15: the last of slot 0 is 12 */
	h = good;
	raw(w, h);
	assert_int_equal(w->s.counts.old, 1);
	h.number = 20; /* one was left out */
	raw(w, h);
	h.session = 2;
	h.number = 16;
	raw(w, h);
	h = good;
	h.type = UD_RESPONSE;
	raw(w, h);
	h = good;
	h.magic = 1;
	raw(w, h);
	h = good;
	h.session = 0; /* of another session: none of its numbers was used */
	raw(w, h);
	assert_int_equal(w->s.port.counts.strange, 5);
	assert_int_equal(w->s.counts.answered_again, 0);
	each_once(w);
	assert_int_equal(client(w), 0);
	run(w, 12, 0);
	each_once(w);
}

/* A burst: a list in, a list out; few completions of sends. */
static void test_lists(void **state)
{
	struct world *w = *state;
	uint64_t c, s;

	open_ends(w, 8, 8, 8);
	run(w, 8, 0);
	c = w->c.port.stats.doorbells;
	s = w->s.port.stats.doorbells;
	w->want = 8 + 8;
	for (unsigned i = 0; i < 8; i++)
		begin(w, i);
	client(w);
	assert_int_equal(w->c.port.stats.doorbells - c, 1);
	assert_int_equal(server(w), 8);
	assert_int_equal(w->s.port.stats.doorbells - s, 2);
	assert_int_equal(client(w), 8);
	assert_int_equal(w->c.port.stats.doorbells - c, 3);
	assert_int_equal(server(w), 8);
	assert_int_equal(client(w), 8);
	run(w, 2000, 0);
	/* all but the receives' */
	c = w->c.port.stats.completions - w->c.counts.answers;
	assert_in_range(c, 1, w->c.counts.calls / UD_SIGNAL_EACH);
}

static void test_limits(void **state)
{
	struct world *w = *state;
	struct ud_client_conf conf = {
		.port = {.dev = w->dev, .pd = w->pd, .size = 65535},
		.slots = 1,
		.credits = 1,
		.timeout_ns = TIMEOUT};

	assert_int_equal(ud_client_open(&w->c, &conf), -EMSGSIZE);
	conf.port.size = 64;
	conf.credits = UD_RECVS_MAX + 1;
	assert_int_equal(ud_client_open(&w->c, &conf), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_payloads, up, down),
		cmocka_unit_test_setup_teardown(test_credits, up, down),
		cmocka_unit_test_setup_teardown(test_receives_run_out, up,
						down),
		cmocka_unit_test_setup_teardown(test_lost_request, up, down),
		cmocka_unit_test_setup_teardown(test_lost_response, up, down),
		cmocka_unit_test_setup_teardown(test_lost_large_response, up,
						down),
		cmocka_unit_test_setup_teardown(test_late, up, down),
		cmocka_unit_test_setup_teardown(test_strangers, up, down),
		cmocka_unit_test_setup_teardown(test_lists, up, down),
		cmocka_unit_test_setup_teardown(test_limits, up, down),
	};

	return cmocka_run_group_tests_name("ud_rpc", tests, NULL, NULL);
}
