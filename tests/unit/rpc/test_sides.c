/* SPDX-License-Identifier: MIT */
/*
 * test_sides.c - a client whose two sides are different threads', as on a
 * lane: threads combine their calls and lead in turns, with random delays and
 * posts that fail, while the owner finds responses, times calls out, READs
 * Head and large results, and sends large requests. Every call ends once, with
 * its own answer; calls of one thread are executed in their order.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/list.h"
#include "conn/handle/combiner.h"
#include "env/env.h"
#include "unit/cm.h"
#include "pair.h"

#define THREADS 5
#define CALLS 200
#define UNDER_WAY 5
#define ID 3
#define OWNER THREADS /* its calls */

struct call {
	struct world *w;
	uint32_t thread, n, resp_len;
	atomic_int ended;
};

/* What the leader is given. */
struct offer {
	struct combiner_node node;
	struct rpc_client_req req;
};

struct world {
	struct pair pair;
	struct combiner q;
	struct combiner_node own;
	pthread_mutex_t lock;
	struct call calls[THREADS + 1][CALLS];
	int64_t executed[THREADS + 1]; /* the last; the server's */
	atomic_uint open[THREADS + 1];
	atomic_uint left; /* calls to end */
	atomic_bool over;
	bool deadlines;
	atomic_ulong late, refused, alone;
};

static struct skein_env *env;

static void delay(struct prng *r)
{
	switch (prng_below(r, 8)) {
	case 0:
		sched_yield();
		break;
	case 1:
		for (volatile unsigned i = 0; i < 300; i++)
			;
		break;
	}
}

static void done(void *arg, const struct skein_rpc_result *res)
{
	struct call *call = arg;
	struct world *w = call->w;
	const uint32_t *data = res->data;

	assert_int_equal(atomic_fetch_add(&call->ended, 1), 0);
	if (res->outcome == SKEIN_DONE) {
		assert_int_equal(res->status, 0);
		assert_int_equal(res->len, call->resp_len);
		assert_int_equal(data[0], call->thread);
		assert_int_equal(data[1], call->n);
		assert_int_equal(((const uint8_t *)data)[call->resp_len - 1],
				 (uint8_t)call->n);
	} else {
		assert_true(w->deadlines);
		assert_int_equal(res->outcome, SKEIN_UNKNOWN);
		atomic_fetch_add(&w->late, 1);
	}
	atomic_fetch_sub(&w->open[call->thread], 1);
	atomic_fetch_sub(&w->left, 1);
}

static int handler(struct skein_rpc_req *req, void *arg)
{
	struct world *w = arg;
	uint32_t head[3];
	uint8_t *resp;

	memcpy(head, skein_rpc_req_data(req), sizeof(head));
	assert_true(head[0] <= OWNER);
	assert_true((int64_t)head[1] > w->executed[head[0]]);
	w->executed[head[0]] = head[1];
	resp = skein_rpc_resp_buf(req, head[2]);
	if (!resp)
		return -ENOMEM;
	memset(resp, (int)head[1], head[2]);
	memcpy(resp, head, 8);
	return 0;
}

static struct prng *leader_rng(void)
{
	static _Thread_local struct prng r;
	static atomic_uint seeds;
	static _Thread_local bool begun;

	if (!begun)
		prng_init(&r, atomic_fetch_add(&seeds, 1));
	begun = true;
	return &r;
}

/* What conn's leader does (sendq.c). */
static void send_all(struct combiner *q, struct combiner_node *first,
		     unsigned n)
{
	struct world *w = container_of(q, struct world, q);
	struct rpc_client *c = &w->pair.client;
	struct prng *r = leader_rng();
	struct combiner_node *node = first;
	struct offer *o;
	unsigned i, added = 0;
	uint64_t off;
	uint32_t len;
	int rc;

	for (i = 0; i < n; i++, node = i < n ? combiner_next(node) : NULL) {
		o = container_of(node, struct offer, node);
		node->result = rpc_client_add(c, &o->req);
		added += !node->result;
		delay(r);
	}
	if (!added)
		return;
	rpc_client_seal(c, &off, &len);
	delay(r);
	rc = c->tx.port->ops->write(c->tx.port, off, len, NULL);
	delay(r);
	rpc_client_posted(c, rc);
	if (added == 1)
		atomic_fetch_add(&w->alone, 1);
	for (i = 0, node = first; rc && i < n;
	     i++, node = i < n ? combiner_next(node) : NULL)
		if (!node->result)
			node->result = rc;
}

static const struct combiner_ops ops = {send_all};

static void call_fill(struct world *w, struct call *call, struct prng *r,
		      struct rpc_client_req *req, uint32_t *data, size_t len)
{
	call->resp_len = 9 + (uint32_t)prng_below(r, 80);
	if (!prng_below(r, 20))
		call->resp_len = 1000 + (uint32_t)prng_below(r, 2000);
	data[0] = call->thread;
	data[1] = call->n;
	data[2] = call->resp_len;
	*req = (struct rpc_client_req){.payload = data,
				       .len = len,
				       .resp_max = call->resp_len,
				       .timeout_ns = SKEIN_FOREVER,
				       .done = done,
				       .arg = call,
				       .id = ID,
				       .thread = (uint16_t)(call->thread + 1)};
	if (w->deadlines && !prng_below(r, 4))
		req->timeout_ns = prng_below(r, 40);
}

struct thread {
	struct world *w;
	unsigned i;
	pthread_t id;
};

static void *thread_main(void *arg)
{
	struct thread *t = arg;
	struct world *w = t->w;
	uint32_t data[64] = {0};
	struct prng r;
	struct offer o;
	int rc;

	prng_init(&r, t->i + 100);
	combiner_node_init(&o.node);
	for (uint32_t n = 0; n < CALLS; n++) {
		struct call *call = &w->calls[t->i][n];

		while (atomic_load(&w->open[t->i]) >= UNDER_WAY)
			sched_yield();
		call_fill(w, call, &r, &o.req, data, 12 + prng_below(&r, 200));
		atomic_fetch_add(&w->open[t->i], 1);
		while ((rc = combiner_submit(&w->q, &o.node)) == -EAGAIN) {
			atomic_fetch_add(&w->refused, 1);
			sched_yield();
		}
		assert_int_equal(rc, 0);
		delay(&r);
	}
	combiner_node_settle(&w->q, &o.node);
	return NULL;
}

/* A large request, sometimes: 1 when it was sent. */
static uint32_t owner_calls(struct world *w, uint32_t n, struct prng *r)
{
	static uint32_t data[1000];
	struct call *call = &w->calls[OWNER][n];
	struct rpc_client_req req;
	int rc;

	if (n == CALLS || prng_below(r, 4))
		return 0;
	call_fill(w, call, r, &req, data, 3000 + prng_below(r, 900));
	combiner_hold(&w->q, &w->own);
	rc = rpc_client_add_large(&w->pair.client, &req);
	combiner_release(&w->q, &w->own);
	assert_true(!rc || rc == -EAGAIN);
	return !rc;
}

/* As a lane's owner learns that there is something for it to send: by these words
 * alone. */
static bool attends(struct rpc_client *c)
{
	if (!c->rx.look && !atomic_load(&c->published.look))
		return false;
	atomic_exchange(&c->published.look, false);
	c->rx.look = false;
	return rpc_client_wants_send(c);
}

static void owner(struct world *w, uint32_t large)
{
	struct rpc_client *c = &w->pair.client;
	struct prng *r = leader_rng();
	uint32_t n = CALLS - large;
	uint64_t now = 1;

	while (atomic_load(&w->left)) {
		pair_complete(&w->pair.ends[0]);
		assert_true(rpc_client_poll(c, now++) >= 0);
		delay(r);
		n += owner_calls(w, n, r);
		if (!attends(c))
			continue;
		combiner_hold(&w->q, &w->own);
		delay(r);
		assert_true(rpc_client_send_own(c) >= 0);
		combiner_release(&w->q, &w->own);
		c->rx.look = rpc_client_wants_send(c);
	}
}

/* The device and the server. */
static void *other_end(void *arg)
{
	struct world *w = arg;

	while (!atomic_load(&w->over)) {
		pthread_mutex_lock(&w->lock);
		for (int i = 0; i < 8 && pair_move(&w->pair); i++)
			;
		pthread_mutex_unlock(&w->lock);
		assert_true(rpc_server_poll(&w->pair.server) >= 0);
		sched_yield();
	}
	return NULL;
}

static void run(struct pair_opts opts, unsigned bound, uint32_t large,
		bool deadlines)
{
	struct thread threads[THREADS];
	struct world *w = calloc(1, sizeof(*w));
	pthread_t server;

	assert_non_null(w);
	pthread_mutex_init(&w->lock, NULL);
	opts.seed = bound;
	opts.shared = true;
	opts.lock = &w->lock;
	pair_init(&w->pair, &opts);
	assert_int_equal(
		rpc_handlers_add(&w->pair.handlers, env, ID, handler, w), 0);
	combiner_init(&w->q, env, &ops, bound);
	combiner_node_init(&w->own);
	w->deadlines = deadlines;
	for (uint32_t t = 0; t <= OWNER; t++) {
		w->executed[t] = -1;
		for (uint32_t n = 0; n < CALLS; n++) {
			w->calls[t][n].w = w;
			w->calls[t][n].thread = t;
			w->calls[t][n].n = n;
		}
	}
	atomic_store(&w->left, THREADS * CALLS + large);
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].w = w;
		threads[i].i = i;
		assert_int_equal(pthread_create(&threads[i].id, NULL,
						thread_main, &threads[i]),
				 0);
	}
	assert_int_equal(pthread_create(&server, NULL, other_end, w), 0);
	owner(w, large);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i].id, NULL);
	/* dead calls hold the window until they are answered */
	while (rpc_client_busy(&w->pair.client)) {
		pair_complete(&w->pair.ends[0]);
		assert_true(rpc_client_poll(&w->pair.client, 1u << 30) >= 0);
		if (rpc_client_wants_send(&w->pair.client))
			assert_true(rpc_client_send_own(&w->pair.client) >= 0);
	}
	atomic_store(&w->over, true);
	pthread_join(server, NULL);
	for (uint32_t t = 0; t < THREADS; t++)
		for (uint32_t n = 0; n < CALLS; n++)
			assert_int_equal(atomic_load(&w->calls[t][n].ended), 1);
	if (!deadlines)
		assert_int_equal(atomic_load(&w->late), 0);
	combiner_node_settle(&w->q, &w->own);
	pair_fini(&w->pair);
	rpc_handlers_fini(&w->pair.handlers, env);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static void test_combined(void **state)
{
	run((struct pair_opts){.geom = {1024, 1024, 64}}, 16, 0, false);
	run((struct pair_opts){.geom = {1024, 1024, 64}}, 3, 0, false);
}

/* No room: in the ring, the response space and the send queue. */
static void test_scarce(void **state)
{
	run((struct pair_opts){.geom = {32, 64, 16}, .eagain_percent = 20}, 16,
	    0, false);
	run((struct pair_opts){.geom = {64, 32, 16}, .eagain_percent = 5}, 2, 0,
	    false);
}

static void test_large(void **state)
{
	run((struct pair_opts){.geom = {64, 128, 16}, .eagain_percent = 10}, 8,
	    50, false);
}

static void test_deadlines(void **state)
{
	run((struct pair_opts){.geom = {64, 128, 16}, .eagain_percent = 10}, 8,
	    50, true);
}

/* A checksum proves bytes that are being written while it reads them: to the
 * thread sanitizer a race. */
static void test_unordered(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	run((struct pair_opts){.geom = {64, 128, 16}, .unordered = true}, 8, 20,
	    false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_combined),
		cmocka_unit_test(test_scarce),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_unordered),
	};
	int rc = env_real_new(&env);

	if (rc)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	env_real_free(env);
	return rc;
}
