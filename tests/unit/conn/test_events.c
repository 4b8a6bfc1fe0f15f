/* SPDX-License-Identifier: MIT */
/*
 * test_events.c - asynchronous events of the device: the connection they name
 * breaks and says why, on whatever engine it is, and each is acknowledged.
 */
#include "unit/cm.h"
#include "unit/patience.h"

#include "conn/state.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <poll.h>
#include <string.h>

struct end {
	struct skein_ctx *ctx;
	_Atomic(struct skein_conn *) accepted;
	atomic_int ups, ends, err;
	char story[CONN_STORY_MAX];
	char log[512]; /* the last line */
};

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct end *e = arg;
	const char *text;

	if (state == SKEIN_CONN_READY) {
		e->accepted = conn;
		e->ups++;
		return;
	}
	e->err = skein_conn_error(conn, &text);
	strcpy(e->story, text);
	e->ends++;
}

static void on_log(void *arg, enum skein_log_level level, const char *line)
{
	struct end *e = arg;

	/* devices say their names, when they are asked to */
	if (level >= SKEIN_LOG_INFO)
		print_message("skein: info: %s\n", line);
	else
		snprintf(e->log, sizeof(e->log), "%s", line);
}

static void open_end(struct end *e)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = "soft",
				      .log = on_log,
				      .log_arg = e};

	memset(e, 0, sizeof(*e));
	assert_int_equal(skein_ctx_open(&attr, &e->ctx), 0);
}

static void both(struct end *a, struct end *b)
{
	skein_ctx_progress(a->ctx);
	skein_ctx_progress(b->ctx);
	env_yield(a->ctx->env);
}

/* A connection of a, on engine, to b. */
static struct skein_conn *join(struct end *a, struct skein_engine *engine,
			       struct end *b, struct skein_listener **listener)
{
	struct skein_listener_attr l = {
		.size = sizeof(l), .on_conn = on_conn, .arg = b};
	struct skein_conn_attr c = {.size = sizeof(c), .engine = engine};
	struct skein_conn *conn;
	int ups = b->ups;

	if (!*listener)
		assert_int_equal(skein_listener_open(b->ctx, "127.0.0.1:0", &l,
						     listener),
				 0);
	assert_int_equal(skein_conn_open_async(a->ctx,
					       skein_listener_addr(*listener),
					       &c, &conn),
			 0);
	while (skein_conn_get_state(conn) != SKEIN_CONN_READY ||
	       b->ups == ups) {
		if (engine)
			skein_engine_progress(engine);
		both(a, b);
	}
	return conn;
}

/* Both ends, and a connection from a to b. */
static struct skein_conn *open_both(struct end *a, struct end *b,
				    struct skein_listener **listener)
{
	*listener = NULL;
	open_end(a);
	open_end(b);
	return join(a, NULL, b, listener);
}

static void close_both(struct end *a, struct end *b)
{
	skein_ctx_close(a->ctx);
	skein_ctx_close(b->ctx);
}

/* --- a READ --------------------------------------------------------------- */

static void on_done(void *arg, int status)
{
	*(int *)arg = status;
}

/* a reads the memory of b. */
struct reading {
	struct end a, b;
	struct skein_conn *conn;
	struct skein_mem *shared, *local;
	struct skein_remote r;
	int status;
};

static void reading_open(struct reading *t)
{
	struct skein_listener *listener;
	int rc;

	memset(t, 0, sizeof(*t));
	t->r.size = sizeof(t->r);
	t->status = 1;
	t->conn = open_both(&t->a, &t->b, &listener);
	assert_int_equal(skein_mem_new(t->b.ctx, 64, &t->shared), 0);
	assert_int_equal(skein_mem_new(t->a.ctx, 64, &t->local), 0);
	assert_int_equal(skein_mem_share(t->shared, "x", SKEIN_MEM_READ), 0);
	do {
		both(&t->a, &t->b);
		rc = skein_mem_find(t->conn, "x", SKEIN_MS(1), &t->r);
	} while (rc);
}

static void read_begin(struct reading *t, uint32_t rkey_xor)
{
	t->r.rkey ^= rkey_xor;
	assert_int_equal(skein_mem_read_async(t->conn, t->local, 0, &t->r, 0, 8,
					      on_done, &t->status),
			 0);
}

/* The end whose memory was asked for breaks by its device's event: the other
 * does not even run. */
static void test_access(void **state)
{
	struct reading t;

	reading_open(&t);
	read_begin(&t, 1);
	while (!t.b.ends)
		skein_ctx_progress(t.b.ctx);
	assert_int_equal(t.b.err, -EACCES);
	assert_non_null(strstr(t.b.story, "memory that it may not touch"));
	while (t.status == 1)
		skein_ctx_progress(t.a.ctx);
	assert_int_equal(t.status, -EACCES);
	close_both(&t.a, &t.b);
}

/* --- CLOSE is seen before the end of the request that it is for ---------- */

static bool is_held; /* what has completed at a */
static int (*real_poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

static int held_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return is_held ? 0 : real_poll_cq(cq, n, wc);
}

/* a sees the end of nothing before read_end(). */
static void reading_open_held(struct reading *t)
{
	struct ibv_context *v;

	reading_open(t);
	strcpy(skein_mem_addr(t->shared), "bytes");
	v = t->conn->qp->context;
	real_poll_cq = v->ops.poll_cq;
	v->ops.poll_cq = held_poll_cq;
	is_held = true;
}

/* b has broken it, and a has heard so; the READ is still under way, and a waits
 * for it as long as the test likes. */
static void told(struct reading *t)
{
	while (!t->conn->bye_got)
		both(&t->a, &t->b);
	assert_int_equal(t->conn->phase, CONN_P_READY);
	t->conn->deadline_ns += SKEIN_S(3600);
	while (!t->b.ends)
		both(&t->a, &t->b);
	assert_int_equal(t->status, 1);
}

/* status 0: in harsh mode it may have been too late, too. */
static void read_end(struct reading *t, int status, int err, const char *text)
{
	const char *story;

	is_held = false;
	while (skein_conn_get_state(t->conn) == SKEIN_CONN_READY ||
	       t->status == 1)
		skein_ctx_progress(t->a.ctx);
	if (status || !getenv("SKEIN_SOFT_HARSH"))
		assert_int_equal(t->status, status);
	assert_int_equal(skein_conn_error(t->conn, &story), err);
	assert_non_null(strstr(story, text));
	close_both(&t->a, &t->b);
}

/* The READ is refused: b's device tells b so, and b tells a, before a looks. */
static void test_told_first(void **state)
{
	struct reading t;

	reading_open_held(&t);
	read_begin(&t, 1);
	told(&t);
	assert_int_equal(t.b.err, -EACCES);
	read_end(&t, -EACCES, -EACCES, "denied access");
}

/* The READ comes too late: that is no reason. */
static void test_told_late(void **state)
{
	struct reading t;

	reading_open_held(&t);
	conn_break(t.b.accepted, -EIO, "the test breaks it");
	while (!t.b.ends)
		skein_ctx_progress(t.b.ctx);
	read_begin(&t, 0);
	told(&t);
	read_end(&t, -SKEIN_EDEAD, -ECONNRESET, "its own log has");
}

/* The device writes there, and has not said yet that it has: no other word tells. */
__attribute__((no_sanitize("thread"))) static bool has_landed(
	const struct reading *t)
{
	const volatile char *at = skein_mem_addr(t->local);

	return at[4] == 's';
}

/* The READ is carried out, and b has a reason of its own. */
static void told_behind(struct reading *t)
{
	reading_open_held(t);
	read_begin(t, 0);
	while (!has_landed(t))
		both(&t->a, &t->b);
	conn_break(t->b.accepted, -EIO, "the test breaks it");
	told(t);
}

/* When all has ended that was under way, a waits no longer. */
static void test_told_other(void **state)
{
	struct reading t;

	told_behind(&t);
	read_end(&t, 0, -ECONNRESET, "its own log has");
}

/* Never seen, how the READ ended: a waits for a moment. */
static void test_told_alone(void **state)
{
	struct reading t;

	told_behind(&t);
	t.conn->deadline_ns = 0;
	while (t.status == 1)
		both(&t.a, &t.b);
	read_end(&t, -ECONNRESET, -ECONNRESET, "its own log has");
}

/* b is gone a moment later: that is not why it has broken the connection. */
static void test_told_and_gone(void **state)
{
	struct reading t;

	told_behind(&t);
	skein_ctx_close(t.b.ctx);
	while (skein_conn_get_state(t.conn) == SKEIN_CONN_READY)
		skein_ctx_progress(t.a.ctx);
	open_end(&t.b);
	read_end(&t, -ECONNRESET, -ECONNRESET, "its own log has");
}

/* --- a device that says what it is told to ------------------------------ */

static struct {
	struct ibv_async_event ev;
	bool full;
	int acked;
	const struct dev_ops *was;
	struct dev_ops ops;
} script;

static int scripted_get(struct dev *dev, struct ibv_async_event *ev)
{
	if (!script.full)
		return -EAGAIN;
	*ev = script.ev;
	script.full = false;
	return 0;
}

static void scripted_ack(struct dev *dev, struct ibv_async_event *ev)
{
	script.acked += ev->event_type == script.ev.event_type;
}

static struct {
	unsigned changes;
	int looks;
} port;

static int scripted_refresh(struct dev *dev, unsigned *changes)
{
	port.looks++;
	*changes = port.changes;
	return 0;
}

/* a's device, in place of what it says by itself. */
static void script_start(struct end *a)
{
	script.was = a->ctx->dev->ops;
	script.ops = *script.was;
	script.ops.get_async_event = scripted_get;
	script.ops.ack_async_event = scripted_ack;
	a->ctx->dev->ops = &script.ops;
}

static void script_stop(struct end *a)
{
	a->ctx->dev->ops = script.was;
}

static void said(struct end *a, struct end *b, enum ibv_event_type type)
{
	script.ev.event_type = type;
	script.acked = 0;
	script.full = true;
	while (!script.acked)
		both(a, b);
	assert_int_equal(script.acked, 1);
}

static void say_port(struct end *a, struct end *b, enum ibv_event_type type,
		     int port_num)
{
	script.ev.element.port_num = port_num;
	said(a, b, type);
}

static void say_qp(struct end *a, struct end *b, enum ibv_event_type type,
		   struct ibv_qp *qp)
{
	script.ev.element.qp = qp;
	said(a, b, type);
}

static void test_scripted(void **state)
{
	struct skein_listener *listener;
	struct skein_conn *conn[3];
	struct skein_engine *other;
	struct skein_conn *c = NULL;
	struct end a, b;
	const char *text;

	conn[0] = open_both(&a, &b, &listener);
	assert_int_equal(skein_engine_new(a.ctx, SKEIN_WAIT_POLL, &other), 0);
	conn[1] = join(&a, other, &b, &listener);
	conn[2] = join(&a, other, &b, &listener);
	script_start(&a);

	say_port(&a, &b, IBV_EVENT_PORT_ERR, 1);
	assert_non_null(strstr(a.log, "port 1 is down"));
	say_qp(&a, &b, IBV_EVENT_COMM_EST, conn[0]->qp);
	/* read by the default engine, for a connection of another one */
	say_qp(&a, &b, IBV_EVENT_QP_FATAL, conn[1]->qp);
	while (skein_conn_get_state(conn[1]) == SKEIN_CONN_READY)
		skein_engine_progress(other);
	assert_int_equal(skein_conn_error(conn[1], &text), -EIO);
	assert_non_null(strstr(text, "a fatal error of its QP"));
	assert_int_equal(skein_conn_get_state(conn[0]), SKEIN_CONN_READY);
	assert_int_equal(skein_conn_get_state(conn[2]), SKEIN_CONN_READY);

	say_port(&a, &b, IBV_EVENT_DEVICE_FATAL, 1);
	while (skein_conn_get_state(conn[0]) == SKEIN_CONN_READY ||
	       skein_conn_get_state(conn[2]) == SKEIN_CONN_READY) {
		skein_engine_progress(other);
		both(&a, &b);
	}
	assert_int_equal(skein_conn_error(conn[0], NULL), -ENODEV);
	assert_int_equal(skein_conn_error(conn[2], NULL), -ENODEV);
	/* The context says so, and does not even try. */
	assert_int_equal(skein_ctx_error(a.ctx, &text), -ENODEV);
	assert_non_null(strstr(text, "skein0"));
	assert_non_null(strstr(text, "close the context"));
	assert_int_equal(skein_conn_open(a.ctx, skein_listener_addr(listener),
					 NULL, &c),
			 -ENODEV);
	script_stop(&a);
	close_both(&a, &b);
}

/* Events of the port: the device looks again, and connections end when what
 * they were made with is gone; a reconnecting one comes back. */
static void test_port(void **state)
{
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct end a, b;
	const char *text;

	conn = open_both(&a, &b, &listener);
	conn->dial->reconnect = true;
	script_start(&a);
	script.ops.refresh = scripted_refresh;

	port.changes = DEV_CHANGE_PORT;
	say_port(&a, &b, IBV_EVENT_PORT_ERR, 1);
	say_port(&a, &b, IBV_EVENT_PORT_ACTIVE, 1);
	port.changes = 0;
	say_port(&a, &b, IBV_EVENT_GID_CHANGE, 1);
	assert_int_equal(port.looks, 3);
	say_port(&a, &b, IBV_EVENT_LID_CHANGE, 2); /* not ours */
	assert_int_equal(port.looks, 3);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);

	port.changes = DEV_CHANGE_ADDR;
	say_port(&a, &b, IBV_EVENT_LID_CHANGE, 1);
	assert_int_equal(port.looks, 4);
	while (skein_conn_get_state(conn) == SKEIN_CONN_READY)
		both(&a, &b);
	assert_int_equal(skein_conn_error(conn, &text), -EADDRNOTAVAIL);
	assert_non_null(strstr(text, "gone from the port"));
	while (skein_conn_get_state(conn) != SKEIN_CONN_READY)
		both(&a, &b);
	assert_int_equal(skein_ctx_error(a.ctx, &text), 0);
	assert_string_equal(text, "");
	script_stop(&a);
	close_both(&a, &b);
}

/* A port that is down: the context says so at once, connections end with that
 * cause when it stays so, and all is well when it is back. */
static void test_port_down(void **state)
{
	struct skein_listener *listener;
	struct skein_conn *conn, *again;
	struct end a, b;
	const char *text;

	conn = open_both(&a, &b, &listener);
	script_start(&a);

	say_port(&a, &b, IBV_EVENT_PORT_ERR, 1);
	assert_int_equal(skein_ctx_error(a.ctx, &text), -ENETDOWN);
	assert_non_null(strstr(text, "port 1 is down"));
	for (int i = 0; i < 100; i++)
		both(&a, &b);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	/* It comes back in time: nothing was. */
	say_port(&a, &b, IBV_EVENT_PORT_ACTIVE, 1);
	assert_int_equal(skein_ctx_error(a.ctx, &text), 0);
	assert_string_equal(text, "");
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);

	/* As if it had been so for long. */
	say_port(&a, &b, IBV_EVENT_PORT_ERR, 1);
	atomic_store(&a.ctx->port_down_ns,
		     env_now_ns(a.ctx->env) - CTX_PORT_DOWN_NS);
	while (skein_conn_get_state(conn) == SKEIN_CONN_READY)
		both(&a, &b);
	assert_int_equal(skein_conn_error(conn, &text), -ENETDOWN);
	assert_non_null(strstr(text, "port is down"));
	/* What neither sends nor is sent to has ended at the other end, too. */
	while (!b.ends)
		both(&a, &b);
	assert_int_equal(skein_conn_open_async(a.ctx,
					       skein_listener_addr(listener),
					       NULL, &again),
			 0);
	while (skein_conn_get_state(again) == SKEIN_CONN_CONNECTING)
		both(&a, &b);
	assert_int_equal(skein_conn_error(again, NULL), -ENETDOWN);
	say_port(&a, &b, IBV_EVENT_PORT_ACTIVE, 1);
	join(&a, NULL, &b, &listener);
	script_stop(&a);
	close_both(&a, &b);
}

/* QP_FATAL by the device's own doing: a completion queue that overflows. */
static void test_overflow(void **state)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct pollfd pfd = {.events = POLLIN};
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct end a, b;
	const char *text;
	struct dev *dev;

	conn = open_both(&a, &b, &listener);
	dev = a.ctx->dev;
	assert_int_equal(dev->ops->resize_cq(dev, conn->cq->cq, 16), 0);
	for (int i = 0; i < 100; i++)
		(void)ibv_post_send(conn->qp, &wr, &bad);
	/* Nobody polls before it is full: these completions are nobody's. */
	pfd.fd = dev->verbs->async_fd;
	patience_met(poll(&pfd, 1, patience_ms(30)) == 1, 30, "an event");
	while (skein_conn_get_state(conn) == SKEIN_CONN_READY)
		both(&a, &b);
	assert_int_equal(skein_conn_error(conn, &text), -EIO);
	assert_true(strstr(text, "completion queue has failed") ||
		    strstr(text, "fatal error of its QP"));
	/* The other end hears of it, and its other connections go on. */
	while (!b.ends)
		both(&a, &b);
	close_both(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_access),
		cmocka_unit_test(test_told_first),
		cmocka_unit_test(test_told_late),
		cmocka_unit_test(test_told_other),
		cmocka_unit_test(test_told_alone),
		cmocka_unit_test(test_told_and_gone),
		cmocka_unit_test(test_scripted),
		cmocka_unit_test(test_port),
		cmocka_unit_test(test_port_down),
		cmocka_unit_test(test_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
