/* SPDX-License-Identifier: MIT */
/*
 * test_lanes.c - handles of several lanes: opened, accepted on one engine or
 * several, closed and broken at every point, opened again; peers that do not
 * keep to the rules.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/conn/lanes_rig.h"
#include "unit/patience.h"

static int shape_of(struct skein_conn *conn, unsigned qps)
{
	assert_int_equal(conn_lanes(conn), qps);
	for (unsigned i = 0; i < qps; i++) {
		assert_int_equal(conn_lane_index(conn_lane(conn, i)), i);
		assert_ptr_equal(conn_lane_head(conn_lane(conn, i)), conn);
		assert_int_equal(conn_lane(conn, i)->phase, CONN_P_READY);
		assert_true(conn_is_ready(conn_lane(conn, i)));
	}
	return 0;
}

static void test_open(void **state)
{
	static const unsigned qps[] = {1, 2, 8, 100};
	struct skein_conn *conn;
	struct rig r;

	for (size_t i = 0; i < 4; i++) {
		rig_open(&r, 0, NULL);
		conn = rig_connect(&r, qps[i], NULL);
		shape_of(conn, qps[i]);
		/* One server engine: one link for all. */
		for (unsigned k = 0; k < qps[i]; k++)
			assert_ptr_equal(conn_lane(conn, k)->peer, conn->peer);
		assert_int_equal(r.ups, 1);
		assert_int_equal(r.n_states, 1);
		RIG_UNTIL(&r, told.readies == 2 * (int)qps[i]);
		assert_int_equal(atomic_load(&r.listener->admission.conns),
				 qps[i]);
		/* Of one QP nothing is said. */
		if (qps[i] > 1)
			assert_int_equal(r.accepted->lanes->count, qps[i]);
		else
			assert_null(r.accepted->lanes);
		rig_end(&r, conn);
		assert_int_equal(r.ends, 1);
		assert_int_equal(r.last, SKEIN_CONN_CLOSING);
		rig_close(&r);
	}
}

static void test_default(void **state)
{
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, 0, NULL);
	conn = rig_connect(&r, 0, NULL);
	assert_non_null(conn->sendq);
	assert_non_null(r.accepted->sendq);
	assert_int_equal(conn_lanes(conn), 1);
	assert_int_equal(conn_lane_index(conn), 0);
	assert_ptr_equal(conn_lane_head(conn), conn);
	assert_ptr_equal(conn_lane(conn, 0), conn);
	rig_end(&r, conn);
	rig_close(&r);
}

/* No message or list is for more requests than the send queue takes at once. */
static void test_bound(void **state)
{
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, 0, NULL);
	r.client->dev->caps.qp_wr_max = 8;
	conn = rig_connect(&r, 2, NULL);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(conn_sendq_queue(conn_lane(conn, i))->bound,
				 8 - CONN_SQ_OWN - CONN_SENDQ_MSG_WRS);
	rig_end(&r, conn);
	rig_close(&r);
}

/* What the environment says goes for those who say nothing. */
static void test_conf(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, 0, NULL);
	setenv("SKEIN_QPS", "3", 1);
	setenv("SKEIN_COMBINE", "5", 1);
	setenv("SKEIN_COMBINE_LEAST", "4", 1);
	conn = rig_connect(&r, 0, NULL);
	shape_of(conn, 3);
	assert_int_equal(conn_combine(conn), 5);
	assert_int_equal(conn_lane(conn, 2)->sendq->q.bound, 5);
	assert_int_equal(conn_lane(conn, 2)->sendq->q.least, 4);
	rig_end(&r, conn);
	attr.combine = 7;
	conn = rig_connect(&r, 2, &attr);
	shape_of(conn, 2);
	assert_int_equal(conn_combine(conn), 7);
	rig_end(&r, conn);
	setenv("SKEIN_QPS", "1025", 1);
	assert_int_equal(skein_conn_open(r.client, "127.0.0.1:9", &attr, &conn),
			 -ERANGE);
	unsetenv("SKEIN_QPS");
	unsetenv("SKEIN_COMBINE");
	unsetenv("SKEIN_COMBINE_LEAST");
	attr.qps = 1025;
	assert_int_equal(skein_conn_open(r.client, "127.0.0.1:9", &attr, &conn),
			 -ERANGE);
	rig_close(&r);
}

/* Lanes are spread over the engines of the server; those of one engine share a
 * link. */
static void test_engines(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .shard = 6};
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, RIG_ENGINES, NULL);
	conn = rig_connect(&r, 10, &attr);
	shape_of(conn, 10);
	for (unsigned i = 0; i < 10; i++) {
		assert_ptr_equal(conn_lane(conn, i)->peer,
				 conn_lane(conn, i % RIG_ENGINES)->peer);
		assert_ptr_equal(r.accepted->lanes->lane[i]->eng,
				 r.engines[(6 + i) % RIG_ENGINES]);
		if (i && i < RIG_ENGINES)
			assert_ptr_not_equal(conn_lane(conn, i)->peer,
					     conn->peer);
	}
	assert_int_equal(atomic_load(&r.listener->peers), RIG_ENGINES);
	rig_end(&r, conn);
	assert_int_equal(r.ends, 1);
	rig_close(&r);
}

static void test_blocking(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = 8};
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, 0, NULL);
	assert_int_equal(engine_background_start(r.server->engine->e), 0);
	assert_int_equal(skein_conn_open(r.client,
					 skein_listener_addr(r.listener), &attr,
					 &conn),
			 0);
	shape_of(conn, 8);
	RIG_UNTIL(&r, atomic_load(&r.ups) == 1);
	skein_conn_close(conn, SKEIN_S(5));
	assert_int_equal(atomic_load(&r.client->engine->n_conns), 0);
	rig_close(&r);
	assert_int_equal(r.ups, 1);
	assert_int_equal(r.ends, 1);
	assert_int_equal(r.last, SKEIN_CONN_CLOSING);
}

/* --- breaking ---------------------------------------------------------- */

static void lanes_down(struct rig *r, struct skein_conn *conn, int err)
{
	const char *text;

	RIG_UNTIL(r, skein_conn_get_state(conn) == SKEIN_CONN_BROKEN);
	assert_int_equal(skein_conn_error(conn, &text), err);
	for (unsigned i = 0; i < conn_lanes(conn); i++) {
		assert_int_equal(conn_lane(conn, i)->phase, CONN_P_DOWN);
		assert_null(conn_lane(conn, i)->qp);
	}
	RIG_UNTIL(r, r->ends == 1);
	assert_int_equal(r->last, SKEIN_CONN_BROKEN);
	assert_int_equal(r->n_states, 2);
}

static void test_break(void **state)
{
	struct skein_conn *conn;
	const char *text;
	struct rig r;

	for (unsigned lane = 0; lane < 6; lane++) {
		for (unsigned engines = 0; engines < 4; engines += 3) {
			rig_open(&r, engines, NULL);
			conn = rig_connect(&r, 6, NULL);
			conn_break(conn_lane(conn, lane), -EIO, "a test");
			lanes_down(&r, conn, -EIO);
			skein_conn_error(conn, &text);
			assert_non_null(strstr(text, "a test"));
			if (lane)
				assert_non_null(strstr(text, " of 6: "));
			rig_end(&r, conn);
			rig_close(&r);
		}
	}
}

static void test_break_there(void **state)
{
	struct skein_conn *conn;
	struct rig r;

	for (unsigned lane = 0; lane < 6; lane++) {
		for (unsigned engines = 0; engines < 4; engines += 3) {
			rig_open(&r, engines, NULL);
			conn = rig_connect(&r, 6, NULL);
			conn_break(r.accepted->lanes->lane[lane], -EIO,
				   "a test");
			lanes_down(&r, conn, -ECONNRESET);
			rig_end(&r, conn);
			rig_close(&r);
		}
	}
}

/* Two at once, at both ends. */
static void test_break_twice(void **state)
{
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, 3, NULL);
	conn = rig_connect(&r, 6, NULL);
	conn_break(conn_lane(conn, 4), -EIO, "a test");
	conn_break(conn_lane(conn, 2), -EPIPE, "another");
	conn_break(r.accepted->lanes->lane[1], -EIO, "a third");
	conn_break(r.accepted->lanes->lane[3], -EIO, "a fourth");
	lanes_down(&r, conn, -EIO);
	rig_end(&r, conn);
	rig_close(&r);
}

static void test_reconnect(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .reconnect = true};
	struct skein_conn *conn, *lanes[6];
	uint64_t id;
	struct rig r;

	rig_open(&r, 2, NULL);
	conn = rig_connect(&r, 6, &attr);
	for (unsigned i = 0; i < 6; i++)
		lanes[i] = conn_lane(conn, i);
	for (unsigned lane = 0; lane < 6; lane++) {
		id = conn->lanes->id;
		conn_break(conn_lane(conn, lane), -EIO, "a test");
		RIG_UNTIL(&r, skein_conn_get_state(conn) != SKEIN_CONN_READY);
		RIG_UNTIL(&r, skein_conn_get_state(conn) == SKEIN_CONN_READY);
		RIG_UNTIL(&r, r.ups == (int)lane + 2);
		shape_of(conn, 6);
		assert_true(conn->lanes->id != id);
		/* The same to the threads that hold them. */
		for (unsigned i = 0; i < 6; i++)
			assert_ptr_equal(lanes[i], conn_lane(conn, i));
	}
	assert_int_equal(r.n_states, 1 + 2 * 6);
	rig_end(&r, conn);
	rig_close(&r);
}

/* --- on the way -------------------------------------------------------- */

/* Closed, or broken at either end, k rounds after it was begun: for every k
 * until it is up. */
enum interruption {
	CLOSED,
	LINK_LOST,
	LINK_LOST_THERE,
	LISTENER_CLOSED,
	INTERRUPTIONS,
};

static void lose_link(struct skein_engine *eng)
{
	struct list_node *n;

	list_for_each(n, &eng->peers) {
		conn_peer_down(container_of(n, struct conn_peer, eng_link),
			       -SKEIN_EDEAD, "a test");
		break;
	}
}

/* True: it was up before. */
static bool interrupted(enum interruption how, unsigned engines, int rounds)
{
	struct skein_listener *l;
	struct skein_conn *conn;
	struct rig r;
	bool up;

	rig_open(&r, engines, NULL);
	conn = rig_start(&r, 5, NULL);
	for (int i = 0; i < rounds; i++)
		rig_round(&r);
	up = skein_conn_get_state(conn) == SKEIN_CONN_READY && r.ups;
	if (how == LINK_LOST)
		lose_link(r.client->engine);
	if (how == LINK_LOST_THERE)
		lose_link(engines ? r.engines[rounds % engines]
				  : r.server->engine);
	if (how == LISTENER_CLOSED) {
		l = r.listener;
		/* The client answers, or each round would be a timeout. */
		assert_int_equal(engine_background_start(r.client->engine->e),
				 0);
		skein_listener_close(l);
		RIG_UNTIL(&r, skein_conn_get_state(conn) == SKEIN_CONN_BROKEN);
		skein_conn_close(conn, 0);
		r.listener = NULL;
	} else {
		if (how != CLOSED)
			for (int i = 0; i < 10; i++)
				rig_round(&r);
		rig_end(&r, conn);
	}
	rig_close(&r);
	assert_int_equal(r.ups, r.ends);
	return up;
}

static void test_interrupted(void **state)
{
	for (unsigned how = 0; how < INTERRUPTIONS; how++)
		for (unsigned engines = 0; engines < 4; engines += 3)
			for (int rounds = 0;; rounds++)
				if (interrupted(how, engines, rounds))
					break;
}

/* The n-th allocation of either end fails: it is told as what it is, or made
 * good; nothing is left, and the next attempt works. */
static void test_scarce(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = 5};
	struct skein_conn *conn;
	bool hit = true;
	struct rig r;
	int n, rc, failed = 0, late = 0;

	rig_open(&r, 3, NULL);
	for (n = 0; hit; n++) {
		alloc_sweep_begin(&r.sweep, n);
		rc = skein_conn_open_async(r.client,
					   skein_listener_addr(r.listener),
					   &attr, &conn);
		if (rc == 0) {
			RIG_UNTIL(&r, skein_conn_get_state(conn) !=
					      SKEIN_CONN_CONNECTING);
			for (int i = 0; i < 10; i++)
				rig_round(&r);
			rc = skein_conn_error(conn, NULL);
			skein_conn_close(conn, 0);
		}
		failed += rc != 0;
		late += rc == -ETIMEDOUT;
		RIG_UNTIL(&r, !atomic_load(&r.client->engine->n_conns));
		hit = alloc_sweep_end(&r.sweep);
		assert_true(hit || rc == 0);
		RIG_UNTIL(&r, !atomic_load(&r.listener->admission.conns));
		assert_int_equal(r.ups, r.ends);
		assert_true(list_empty(&r.server->handles));
	}
	/* Five lanes at each end, of some allocations each. */
	assert_true(n > 50 && failed > 50);
	assert_int_equal(late, 0); /* who has no memory says so */
	rig_close(&r);
}

/* --- admission --------------------------------------------------------- */

static void test_conns_max(void **state)
{
	struct skein_listener_attr l = {.size = sizeof(l), .conns_max = 8};
	struct skein_conn_attr attr = {.size = sizeof(attr), .retries = 1000};
	struct skein_conn *conn, *other;
	const char *text;
	struct rig r;

	rig_open(&r, 2, &l);
	/* More than there will ever be. */
	conn = rig_start(&r, 9, NULL);
	RIG_UNTIL(&r, skein_conn_get_state(conn) != SKEIN_CONN_CONNECTING);
	assert_int_equal(skein_conn_error(conn, &text), -SKEIN_EBUSY);
	assert_non_null(strstr(text, "cannot connect"));
	rig_end(&r, conn);
	/* All of it for one, then for the other. */
	conn = rig_connect(&r, 8, NULL);
	other = rig_start(&r, 8, &attr);
	for (int i = 0; i < 100; i++)
		rig_round(&r);
	assert_int_equal(skein_conn_get_state(other), SKEIN_CONN_CONNECTING);
	assert_true(atomic_load(&r.listener->admission.conns) <= 8);
	skein_conn_close(conn, 0);
	RIG_UNTIL(&r, skein_conn_get_state(other) == SKEIN_CONN_READY);
	rig_end(&r, other);
	rig_close(&r);
}

/* A lane in the middle meets a server that is full: all goes back, and is tried
 * again. */
static void test_lane_refused(void **state)
{
	struct skein_listener_attr l = {.size = sizeof(l), .conns_max = 8};
	struct skein_conn_attr attr = {.size = sizeof(attr), .retries = 1000};
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, 0, &l);
	conn = rig_start(&r, 6, &attr);
	/* Lane 0 is let in: there is room for it and the others ... */
	for (;;) {
		skein_ctx_progress(r.client);
		if (conn->phase == CONN_P_READY)
			break;
		skein_ctx_progress(r.server);
	}
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_CONNECTING);
	/* ... which then is gone. */
	for (int i = 0; i < 4; i++)
		assert_true(admission_conn(&r.listener->admission));
	RIG_UNTIL(&r, conn->phase == CONN_P_PAUSE);
	assert_int_equal(r.n_states, 0);
	assert_int_equal(r.ups, 0);
	for (int i = 0; i < 4; i++)
		admission_conn_gone(&r.listener->admission);
	RIG_UNTIL(&r, skein_conn_get_state(conn) == SKEIN_CONN_READY);
	assert_int_equal(conn->err, 0);
	shape_of(conn, 6);
	RIG_UNTIL(&r, r.ups == 1);
	rig_end(&r, conn);
	rig_close(&r);
}

/* --- hostile ----------------------------------------------------------- */

static void test_rules(void **state)
{
	struct handshake_params p = {.ctx_id = {1, 2, 3},
				     .handle = {.id = 77, .count = 4}};
	struct skein_conn *conn[4] = {0}, *none;
	struct handshake_handle answer;
	const char *text;
	struct rig r;

	rig_open(&r, 2, NULL);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(conn_new(r.server->engine, false, &conn[i]),
				 0);
		conn[i]->listener = r.listener;
	}
	assert_int_equal(conn_new(r.server->engine, false, &none), 0);
	none->listener = r.listener;
	/* Not known yet. */
	p.handle.index = 1;
	assert_int_equal(conn_lanes_join(none, &p, &answer, &text), -ESHUTDOWN);
	p.handle.index = 0;
	assert_int_equal(conn_lanes_join(conn[0], &p, &answer, &text), 0);
	assert_int_equal(answer.id, 77);
	assert_int_equal(answer.engines, 2);
	/* Twice, of another context, of another size, from another listener. */
	assert_int_equal(conn_lanes_join(none, &p, &answer, &text),
			 -SKEIN_EPEER);
	p.handle.index = 1;
	p.ctx_id[0]++;
	assert_int_equal(conn_lanes_join(none, &p, &answer, &text), -ESHUTDOWN);
	p.ctx_id[0]--;
	p.handle.count = 5;
	assert_int_equal(conn_lanes_join(none, &p, &answer, &text),
			 -SKEIN_EPEER);
	p.handle.count = 4;
	p.handle.id++;
	assert_int_equal(conn_lanes_join(none, &p, &answer, &text), -ESHUTDOWN);
	p.handle.id--;
	assert_int_equal(conn_lanes_join(conn[1], &p, &answer, &text), 0);
	assert_int_equal(conn_lanes_join(none, &p, &answer, &text),
			 -SKEIN_EPEER);
	assert_null(none->lanes);
	assert_int_equal(atomic_load(&r.server->counts.garbage), 3);
	/* One that has broken takes nobody in. */
	conn_lane_ended(conn[1], -EIO, "a test");
	p.handle.index = 2;
	assert_int_equal(conn_lanes_join(conn[2], &p, &answer, &text),
			 -ESHUTDOWN);
	RIG_UNTIL(&r, !atomic_load(&conn[0]->poked));
	list_del(&conn[0]->pending_link);
	/* Lane 0 is the last to go. */
	assert_false(conn_lane_gone(conn[0]));
	assert_true(conn_lane_gone(conn[1]));
	assert_false(conn_lane_gone(conn[0]) && !conn[0]->poked);
	RIG_UNTIL(&r, !atomic_load(&conn[0]->poked));
	list_del(&conn[0]->pending_link);
	assert_true(conn_lane_gone(conn[0]));
	for (int i = 0; i < 4; i++) {
		if (conn[i]->lanes)
			listener_lane_gone(r.listener);
		conn_free(conn[i]);
	}
	conn_free(none);
	rig_close(&r);
}

/* Who opens lane 0 and no other is put out at the deadline. */
static void test_never_whole(void **state)
{
	struct skein_listener_attr l = {.size = sizeof(l),
					.handshake_timeout_ns = patience_ns(1)};
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, 2, &l);
	conn = rig_start(&r, 3, NULL);
	RIG_UNTIL(&r, conn->phase == CONN_P_SHAKE);
	conn->lanes->ending = true; /* it opens no others */
	RIG_UNTIL(&r, conn->phase == CONN_P_DOWN);
	RIG_UNTIL(&r, !atomic_load(&r.listener->admission.conns));
	assert_int_equal(r.ups, 0);
	assert_int_equal(r.ends, 0);
	assert_int_equal(told.readies, 1);
	rig_end(&r, conn);
	rig_close(&r);
}

/* A server that knows no handles joins nothing. */
static void test_old_server(void **state)
{
	struct handshake_params p = {.ctx_id = {1}};
	static struct conn_lanes ls = {.id = 5, .count = 2};
	struct skein_conn conn = {.lanes = &ls};

	p.handle = (struct handshake_handle){.id = 5, .count = 2};
	assert_int_equal(conn_lanes_check(&conn, &p), -SKEIN_EPEER);
	p.handle.engines = 3;
	assert_int_equal(conn_lanes_check(&conn, &p), 0);
	assert_int_equal(ls.engines, 3);
	conn.lane = 1;
	assert_int_equal(conn_lanes_check(&conn, &p), -SKEIN_EPEER);
	p.handle.index = 1;
	assert_int_equal(conn_lanes_check(&conn, &p), 0);
	/* ... nor does another process. */
	p.ctx_id[3] = 1;
	assert_int_equal(conn_lanes_check(&conn, &p), -SKEIN_EPEER);
}

/* --- deaths ------------------------------------------------------------ */

/* Another process: serves, or opens a handle, until it is killed. Says its
 * address, or that it is up, on the pipe. */
static void child_serves(int out)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .device = "soft"};
	struct skein_listener *l;
	struct skein_ctx *ctx;
	const char *addr;

	if (skein_ctx_open(&attr, &ctx) ||
	    skein_listener_open(ctx, "127.0.0.1:0", NULL, &l))
		_exit(1);
	addr = skein_listener_addr(l);
	if (write(out, addr, strlen(addr) + 1) < 0)
		_exit(1);
	skein_engine_run(skein_ctx_engine(ctx), SKEIN_FOREVER);
	_exit(1);
}

static void child_opens(int out, const char *addr)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .device = "soft"};
	struct skein_conn_attr c = {.size = sizeof(c), .qps = 8};
	struct skein_conn *conn;
	struct skein_ctx *ctx;

	if (skein_ctx_open(&attr, &ctx) ||
	    skein_conn_open(ctx, addr, &c, &conn) || write(out, "up", 3) != 3)
		_exit(1);
	skein_engine_run(skein_ctx_engine(ctx), SKEIN_FOREVER);
	_exit(1);
}

static pid_t child(const char *addr, int *in)
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(fds[0]);
		if (addr)
			child_opens(fds[1], addr);
		child_serves(fds[1]);
	}
	close(fds[1]);
	*in = fds[0];
	return pid;
}

static void slay(pid_t pid, int in)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(in);
}

static void test_server_killed(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = 8};
	struct skein_conn *conn;
	char addr[80] = "";
	const char *text;
	struct rig r;
	uint64_t t;
	pid_t pid;
	int in;

	pid = child(NULL, &in);
	assert_true(read(in, addr, sizeof(addr)) > 0);
	rig_open(&r, 0, NULL);
	assert_int_equal(skein_conn_open(r.client, addr, &attr, &conn), 0);
	shape_of(conn, 8);
	slay(pid, in);
	t = env_now_ns(r.env);
	RIG_UNTIL(&r, skein_conn_get_state(conn) == SKEIN_CONN_BROKEN);
	assert_int_equal(skein_conn_error(conn, &text), -SKEIN_EDEAD);
	assert_non_null(strstr(text, "lost the connection"));
	/* Not by the deadline of a flush, lane by lane. */
	assert_true(env_now_ns(r.env) - t < SKEIN_S(20));
	for (unsigned i = 0; i < 8; i++)
		assert_null(conn_lane(conn, i)->qp);
	rig_end(&r, conn);
	rig_close(&r);
}

static void test_client_killed(void **state)
{
	char word[8];
	struct rig r;
	pid_t pid;
	int in;

	for (unsigned engines = 0; engines < 4; engines += 3) {
		rig_open(&r, engines, NULL);
		pid = child(skein_listener_addr(r.listener), &in);
		RIG_UNTIL(&r, r.ups == 1);
		assert_int_equal(atomic_load(&r.listener->admission.conns), 8);
		assert_int_equal(read(in, word, sizeof(word)), 3);
		slay(pid, in);
		RIG_UNTIL(&r, r.ends == 1);
		assert_int_equal(r.last, SKEIN_CONN_BROKEN);
		RIG_UNTIL(&r, !atomic_load(&r.listener->admission.conns));
		assert_true(list_empty(&r.server->handles));
		assert_true(atomic_load(&r.server->counts.deaths) > 0);
		rig_close(&r);
	}
}

/* --- draining ---------------------------------------------------------- */

/* None goes before all can: not of those that drain, nor of one that has not
 * been told yet. */
static void test_drain(void **state)
{
	struct skein_conn *conn, *lane[3];
	struct rig r;

	rig_open(&r, 0, NULL);
	conn = rig_connect(&r, 3, NULL);
	for (unsigned i = 0; i < 3; i++)
		lane[i] = conn_lane(conn, i);
	assert_true(conn_lane_stays(lane[0], false));
	assert_true(conn_lane_stays(lane[1], true));
	assert_true(conn_lane_stays(lane[2], false));
	assert_true(conn_lane_stays(lane[2], true));
	assert_true(conn_lane_stays(lane[1], false));
	assert_true(conn_lane_stays(lane[0], false));
	assert_false(conn_lane_stays(lane[2], false));
	assert_false(conn_lane_stays(lane[0], false));
	/* One that breaks is not waited for. */
	assert_true(conn_lane_stays(lane[1], true));
	conn_lane_dead(lane[1]);
	assert_false(conn_lane_stays(lane[0], false));
	rig_end(&r, conn);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_default),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_conf),
		cmocka_unit_test(test_engines),
		cmocka_unit_test(test_blocking),
		cmocka_unit_test(test_break),
		cmocka_unit_test(test_break_there),
		cmocka_unit_test(test_break_twice),
		cmocka_unit_test(test_reconnect),
		cmocka_unit_test(test_interrupted),
		cmocka_unit_test(test_scarce),
		cmocka_unit_test(test_conns_max),
		cmocka_unit_test(test_lane_refused),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_never_whole),
		cmocka_unit_test(test_old_server),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_server_killed),
		cmocka_unit_test(test_client_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
