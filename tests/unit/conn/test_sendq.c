/* SPDX-License-Identifier: MIT */
/*
 * test_tx.c - the sending side that threads share: work requests of several
 * threads leave in lists and each ends once, with its own status; calls of a
 * module go into one message; the thread that holds is alone; nothing is
 * posted behind a close.
 */
#include "unit/cm.h"
#include "unit/device.h"

#include "base/list.h"
#include "conn/state.h"
#include "conn/mem/mem_handle.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <skein/skein.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 6u
#define OPS 2000u

struct fixture {
	struct skein_ctx *server, *client;
	struct skein_mem *shared, *mine;
	struct skein_remote remote;
	struct skein_conn *conn;
	/* what the hooks see; the leader's */
	struct skein_conn *lane;
	unsigned adds, messages, undone, most;
	uint64_t next[THREADS];
	bool refuse;
	atomic_uint inside;
};

static struct fixture f;

static struct skein_ctx *open_ctx(void)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .background = true};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

/* Before threads use it. */
static void combine_at_least(struct skein_conn *conn, unsigned least)
{
	struct engine *e = conn->eng->e;

	assert_int_equal(engine_enter(e, ENV_NEVER), 0);
	assert_non_null(conn->sendq);
	conn->sendq->q.least = least;
	engine_leave(e);
}

static int setup(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = 1};
	struct skein_listener *l;

	memset(&f, 0, sizeof(f));
	f.server = open_ctx();
	assert_int_equal(skein_listener_open(f.server, "127.0.0.1:0", NULL, &l),
			 0);
	assert_int_equal(skein_mem_new(f.server, 65536, &f.shared), 0);
	assert_int_equal(skein_mem_share(f.shared, "m",
					 SKEIN_MEM_READ | SKEIN_MEM_WRITE |
						 SKEIN_MEM_ATOMIC),
			 0);
	f.client = open_ctx();
	assert_int_equal(skein_mem_new(f.client, 65536, &f.mine), 0);
	assert_int_equal(skein_conn_open(f.client, skein_listener_addr(l),
					 &attr, &f.conn),
			 0);
	f.remote.size = sizeof(f.remote);
	assert_int_equal(skein_mem_find(f.conn, "m", SKEIN_S(20), &f.remote),
			 0);
	f.lane = f.conn;
	return 0;
}

static int teardown(void **state)
{
	skein_conn_close(f.conn, SKEIN_S(5));
	skein_ctx_close(f.client);
	skein_ctx_close(f.server);
	return 0;
}

/* --- work requests ------------------------------------------------------ */

/* One thread's WRITE or FETCH_ADD of its own eight bytes, and how it ended. */
struct one {
	struct conn_req req;
	struct conn_op op;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	_Atomic int ends;
	enum ibv_wc_status status;
};

static void one_done(struct conn_op *op, enum ibv_wc_status status)
{
	struct one *o = container_of(op, struct one, op);

	o->status = status;
	atomic_fetch_add_explicit(&o->ends, 1, memory_order_release);
}

static void one_init(struct one *o, uint64_t off)
{
	memset(o, 0, sizeof(*o));
	conn_req_init(&o->req);
	o->req.kind = CONN_REQ_WR;
	o->req.wr = &o->wr;
	o->req.op = &o->op;
	o->op.done = one_done;
	o->wr.sg_list = &o->sge;
	o->wr.num_sge = 1;
	o->wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	o->wr.wr.atomic.remote_addr = f.remote.addr + off;
	o->wr.wr.atomic.rkey = f.remote.rkey;
	o->wr.wr.atomic.compare_add = 1;
	o->sge = (struct ibv_sge){(uintptr_t)skein_mem_addr(f.mine) + off, 8,
				  f.mine->region->mr->lkey};
}

static void one_wait(struct one *o, int ends)
{
	while (atomic_load_explicit(&o->ends, memory_order_acquire) < ends)
		sched_yield();
}

static int one_submit(struct one *o)
{
	int rc;

	while ((rc = conn_sendq_submit(f.conn, &o->req)) == -EAGAIN)
		sched_yield();
	return rc;
}

static void *adder(void *arg)
{
	uint64_t off = (uintptr_t)arg * 8, *word;
	struct one o;

	word = (uint64_t *)(void *)((char *)skein_mem_addr(f.mine) + off);
	one_init(&o, off);
	for (int i = 0; i < (int)OPS; i++) {
		assert_int_equal(one_submit(&o), 0);
		one_wait(&o, i + 1);
		assert_int_equal(o.status, IBV_WC_SUCCESS);
		assert_int_equal(*word, i);
	}
	combiner_node_settle(&f.conn->sendq->q, &o.req.node);
	assert_int_equal(atomic_load(&o.ends), OPS);
	return NULL;
}

static void run(void *(*fn)(void *), pthread_t t[THREADS])
{
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, fn, (void *)i), 0);
}

static void join(pthread_t t[THREADS])
{
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

/* Meanwhile the owner posts for itself, too. */
static void test_wrs(void **state)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	struct engine *e = f.conn->eng->e;
	pthread_t t[THREADS];
	int rc;

	combine_at_least(f.conn, 3);
	run(adder, t);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(engine_enter(e, ENV_NEVER), 0);
		conn_sendq_hold(f.conn);
		rc = conn_post(f.conn, &wr, NULL);
		assert_true(rc == 0 || rc == -EAGAIN);
		conn_sendq_release(f.conn);
		engine_leave(e);
	}
	join(t);
	assert_true(f.conn->sendq->stats.send_wrs >= THREADS * OPS);
	assert_true(f.conn->sendq->stats.doorbells <
		    f.conn->sendq->stats.send_wrs);
	print_message("%.2f work requests a doorbell\n",
		      (double)f.conn->sendq->stats.send_wrs /
			      (double)f.conn->sendq->stats.doorbells);
}

/* --- a list whose middle fails ------------------------------------------ */

struct member {
	struct one o;
	pthread_t thread;
	int rc;
};

static void *submit_member(void *arg)
{
	struct member *m = arg;

	m->rc = conn_sendq_submit(f.conn, &m->o.req);
	return NULL;
}

/* Three in one list, the second with a wrong key: all but it are told by what
 * is certain. The first has been carried out. */
static void test_chain(void **state)
{
	struct engine *e = f.conn->eng->e;
	struct combiner_node *tail;
	struct member m[3];

	combine_at_least(f.conn, 1);
	for (unsigned i = 0; i < 3; i++)
		one_init(&m[i].o, 64 * i);
	m[1].o.wr.wr.atomic.rkey ^= 0x5a5a5a;
	assert_int_equal(engine_enter(e, ENV_NEVER), 0);
	conn_sendq_hold(f.conn);
	for (unsigned i = 0; i < 3; i++) {
		tail = atomic_load(&f.conn->sendq->q.tail);
		assert_int_equal(pthread_create(&m[i].thread, NULL,
						submit_member, &m[i]),
				 0);
		while (!atomic_load(&tail->next))
			sched_yield();
	}
	conn_sendq_release(f.conn);
	engine_leave(e);
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(m[i].thread, NULL);
		assert_int_equal(m[i].rc, 0);
		one_wait(&m[i].o, 1);
	}
	/* in one list; whatever else was posted was alone */
	assert_int_equal(engine_enter(e, ENV_NEVER), 0);
	assert_int_equal(f.conn->sendq->stats.send_wrs -
				 f.conn->sendq->stats.doorbells,
			 2);
	engine_leave(e);
	assert_int_equal(m[0].o.status, IBV_WC_SUCCESS);
	assert_int_equal(m[1].o.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(m[2].o.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(*(uint64_t *)skein_mem_addr(f.shared), 1);
	assert_int_equal(((uint64_t *)skein_mem_addr(f.shared))[16], 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(atomic_load(&m[i].o.ends), 1);
}

/* --- calls -------------------------------------------------------------- */

struct body {
	uint64_t thread, seq;
};

static int add(void *state, struct combiner_node *n)
{
	struct body *b = (void *)n->bytes;

	assert_int_equal(atomic_fetch_add(&f.inside, 1), 0);
	atomic_fetch_sub(&f.inside, 1);
	if (f.refuse && b->seq % 7 == 3 && f.undone++ % 2)
		return -EAGAIN;
	assert_int_equal(b->seq, f.next[b->thread]);
	f.next[b->thread]++;
	f.adds++;
	return 0;
}

static unsigned seal(void *state, struct combiner_node *first, unsigned n,
		     struct conn_sendq_wr out[CONN_SENDQ_MSG_WRS])
{
	f.messages++;
	if (n > f.most)
		f.most = n;
	for (unsigned i = 0; i < 2; i++) {
		out[i].wr.opcode = IBV_WR_RDMA_WRITE;
		out[i].wr.send_flags = 0;
		out[i].wr.sg_list = NULL;
		out[i].wr.num_sge = 0;
		out[i].wr.wr.rdma.remote_addr = 0;
		out[i].wr.wr.rdma.rkey = 0;
	}
	return 1 + (f.messages & 1);
}

static void posted(void *state, unsigned n, int rc)
{
	assert_int_equal(rc, 0);
	assert_int_equal(n, 1 + (f.messages & 1));
}

static const struct conn_sendq_ops hooks = {
	.add = add, .seal = seal, .posted = posted};

static void *caller(void *arg)
{
	uint64_t me = (uintptr_t)arg;
	struct conn_req r;
	struct body b;
	int rc;

	conn_req_init(&r);
	r.kind = CONN_REQ_CALL;
	for (uint64_t i = 0; i < OPS; i++) {
		b = (struct body){me, i};
		memcpy(r.node.bytes, &b, sizeof(b));
		r.node.len = sizeof(b);
		while ((rc = conn_sendq_submit(f.conn, &r)) == -EAGAIN)
			sched_yield();
		assert_int_equal(rc, 0);
	}
	combiner_node_settle(&f.conn->sendq->q, &r.node);
	return NULL;
}

static void *mixed(void *arg)
{
	return (uintptr_t)arg % 2 ? caller(arg) : adder(arg);
}

static void test_calls(void **state)
{
	struct engine *e = f.conn->eng->e;
	pthread_t t[THREADS];

	combine_at_least(f.conn, 1);
	f.refuse = true;
	assert_int_equal(engine_enter(e, ENV_NEVER), 0);
	conn_sendq_hooks(f.conn, &hooks, &f);
	engine_leave(e);
	run(caller, t);
	join(t);
	assert_int_equal(f.adds, THREADS * OPS);
	assert_true(f.undone > 0);
	memset(f.next, 0, sizeof(f.next));
	run(mixed, t);
	join(t);
	print_message("%.2f calls a message, %u requests at most\n",
		      (double)f.adds / f.messages, f.most);
}

/* --- two in one post ---------------------------------------------------- */

static struct {
	int (*post)(struct ibv_qp *qp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad);
	unsigned at; /* this one of a list is refused */
} picky;

static int picky_post(struct ibv_qp *qp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad)
{
	struct ibv_send_wr one;

	for (unsigned i = 0; wr; wr = wr->next, i++) {
		one = *wr;
		one.next = NULL;
		*bad = wr;
		if (i == picky.at)
			return ENOMEM;
		assert_int_equal(picky.post(qp, &one, bad), 0);
	}
	return 0;
}

/* Writes two words to the peer, and the device refuses the at-th. */
static int two_words(unsigned at, uint64_t value, unsigned *n)
{
	uint64_t words[2] = {value, value + 1};
	struct ibv_context *dev = f.conn->qp->context;
	struct ibv_send_wr wr[2] = {0};
	struct ibv_sge sge[2];
	int rc;

	for (unsigned i = 0; i < 2; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)&words[i], 8, 0};
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_INLINE;
		wr[i].wr.rdma.remote_addr = f.remote.addr + i * 8;
		wr[i].wr.rdma.rkey = f.remote.rkey;
	}
	picky.at = at;
	picky.post = dev->ops.post_send;
	dev->ops.post_send = picky_post;
	rc = conn_sendq_post_two(f.conn->sendq, &wr[0], &wr[1], n);
	dev->ops.post_send = picky.post;
	return rc;
}

/* Until it is there: a device may take its time. */
static void await_word(unsigned i, uint64_t value)
{
	_Atomic uint64_t *w = skein_mem_addr(f.shared);

	while (atomic_load(&w[i]) != value)
		sched_yield();
}

static void test_two(void **state)
{
	struct engine *e = f.conn->eng->e;
	struct optable *t = &f.conn->ops;
	uint32_t taken, unsignalled;
	unsigned n;

	assert_int_equal(engine_enter(e, ENV_NEVER), 0);
	conn_sendq_hold(f.conn);
	/* Past where one of them is signalled, so that both ways are undone. */
	for (uint64_t v = 10; v < 10 + 3ull * t->half; v += 2) {
		taken = t->taken;
		unsignalled = t->unsignalled;
		assert_int_equal(two_words(0, v, &n), -EAGAIN);
		assert_int_equal(n, 0);
		assert_int_equal(t->taken, taken);
		assert_int_equal(t->unsignalled, unsignalled);
		if (!conn_sendq_clear(f.conn->sendq))
			break;
		assert_int_equal(two_words(2, v, &n), 0);
		assert_int_equal(n, 2);
		await_word(0, v);
		await_word(1, v + 1);
	}
	assert_int_equal(atomic_load(&f.conn->sendq->broke), 0);
	assert_int_equal(two_words(1, 1, &n), 0);
	assert_int_equal(n, 1);
	await_word(0, 1);
	assert_int_equal(atomic_load(&f.conn->sendq->broke), -ENOMEM);
	conn_sendq_release(f.conn);
	engine_leave(e);
}

/* --- the end ------------------------------------------------------------ */

static atomic_uint refused;

/* Until it is told that nothing goes any more; what was taken ends. */
static void *until_closed(void *arg)
{
	struct one o;
	int rc, n = 0;

	one_init(&o, (uintptr_t)arg * 8);
	while ((rc = one_submit(&o)) == 0)
		one_wait(&o, ++n);
	assert_int_equal(rc, -ENOTCONN);
	assert_int_equal(atomic_load(&o.ends), n);
	combiner_node_settle(&f.conn->sendq->q, &o.req.node);
	atomic_fetch_add(&refused, 1);
	return NULL;
}

static void test_break(void **state)
{
	struct engine *e = f.conn->eng->e;
	pthread_t t[THREADS];

	combine_at_least(f.conn, 1);
	atomic_store(&refused, 0);
	run(until_closed, t);
	/* in the middle of it */
	while (!*(volatile uint64_t *)skein_mem_addr(f.shared))
		sched_yield();
	assert_int_equal(engine_enter(e, ENV_NEVER), 0);
	conn_break(f.conn, -EIO, "for a test");
	engine_leave(e);
	engine_kick(e);
	join(t);
	assert_int_equal(atomic_load(&refused), THREADS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
		T(test_wrs), T(test_chain), T(test_calls),
		T(test_two), T(test_break),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
