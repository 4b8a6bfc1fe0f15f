/* SPDX-License-Identifier: MIT */
/*
 * test_counters.c - the counters page: what it says of calls, connections,
 * memory operations and streams, what a look costs, and where there is none.
 */
#include "unit/conn/pair.h"
#include "unit/patience.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE patience_ns(20)
#define CALLS 40u

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	return 0;
}

static void open_both(struct pair *p)
{
	pair_open(p, NULL, NULL);
	assert_int_equal(skein_rpc_handle(p->server, 1, on_echo, NULL), 0);
}

static void call(struct skein_conn *conn, unsigned n)
{
	uint8_t byte = 0;

	while (n--)
		assert_int_equal(skein_rpc_call(conn, 1, &byte, 1, &byte, 1,
						PATIENCE, NULL),
				 0);
}

static void enter(struct skein_engine *eng)
{
	assert_int_equal(engine_enter(eng->e, ENV_NEVER), 0);
}

/* A beat that is due. */
static void publish(struct skein_engine *eng)
{
	enter(eng);
	eng->counters.next_ns = 0;
	counters_beat(eng, env_now_ns(eng->env));
	engine_leave(eng->e);
}

/* As another process has it. */
static void look(struct skein_engine *eng, struct counters_record *rec)
{
	struct counters_page copy;

	counters_copy(eng->counters.page, &copy);
	assert_int_equal(counters_decode(&copy, sizeof(copy), rec), 0);
}

static uint64_t value(struct skein_engine *eng, enum counter c)
{
	struct counters_record rec;

	publish(eng);
	look(eng, &rec);
	return rec.values[c];
}

/* No beat publishes, and there is no page: sums change by themselves only. */
static void hold_beats(struct skein_engine *eng)
{
	enter(eng);
	assert_null(eng->counters.page);
	eng->counters.next_ns = ENV_NEVER;
	engine_leave(eng->e);
}

/* Runs the client until all its connections are silent. */
static void rest(struct skein_engine *eng)
{
	uint64_t end = env_now_ns(eng->env) + PATIENCE;
	unsigned active;

	do {
		skein_engine_progress(eng);
		enter(eng);
		active = eng->polls.active;
		engine_leave(eng->e);
		assert_true(env_now_ns(eng->env) < end);
	} while (active);
}

static void test_calls(void **state)
{
	struct skein_engine *c, *s;
	struct counters_record rec;
	struct skein_conn *conn;
	struct pair p;

	open_both(&p);
	c = p.client->engine;
	s = p.server->engine;
	conn = connect_to(&p);
	wait_ups(&p, 1);
	call(conn, CALLS);
	publish(c);
	look(c, &rec);
	assert_int_equal(rec.pid, getpid());
	assert_memory_equal(rec.ctx, p.client->id, sizeof(rec.ctx));
	assert_non_null(strchr(rec.device, '('));
	assert_int_equal(rec.values[COUNTER_CALLS], CALLS);
	assert_int_equal(rec.values[COUNTER_SERVED], 0);
	assert_true(rec.values[COUNTER_MESSAGES] >= CALLS);
	assert_true(rec.values[COUNTER_BYTES] >= 64 * CALLS);
	assert_int_equal(rec.values[COUNTER_CONNS_OPENED], 1);
	assert_int_equal(rec.values[COUNTER_CONNS_ACCEPTED], 0);
	assert_int_equal(value(s, COUNTER_SERVED), CALLS);
	assert_int_equal(value(s, COUNTER_CALLS), 0);
	assert_true(value(s, COUNTER_MESSAGES) >= CALLS);
	assert_int_equal(value(s, COUNTER_CONNS_ACCEPTED), 1);
	/* Looked at again, nothing is counted twice. */
	assert_int_equal(value(c, COUNTER_CALLS), CALLS);
	pair_close(&p);
}

/* What a connection did stays when it ends. */
static void test_ended(void **state)
{
	struct skein_engine *c, *s;
	struct skein_conn *conn;
	struct pair p;

	open_both(&p);
	c = p.client->engine;
	s = p.server->engine;
	for (unsigned i = 1; i <= 2; i++) {
		conn = connect_to(&p);
		call(conn, CALLS);
		skein_conn_close(conn, PATIENCE);
		while (atomic_load(&p.ends) < (int)i)
			env_yield(p.client->env);
		assert_int_equal(value(c, COUNTER_CALLS), i * CALLS);
		assert_int_equal(value(s, COUNTER_SERVED), i * CALLS);
		assert_int_equal(value(c, COUNTER_OPENED), i);
		assert_int_equal(value(s, COUNTER_ACCEPTED), i);
		assert_int_equal(value(c, COUNTER_CONNS_OPENED), 0);
		assert_int_equal(value(s, COUNTER_CONNS_ACCEPTED), 0);
	}
	assert_int_equal(value(c, COUNTER_BROKEN), 0);
	pair_close(&p);
}

/* Some of a client's counts begin anew with each attempt. */
static void test_connects_again(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .reconnect = true};
	struct skein_engine *c;
	struct skein_conn *conn;
	struct pair p;

	open_both(&p);
	c = p.client->engine;
	attr.timeout_ns = PATIENCE;
	assert_int_equal(skein_conn_open(p.client,
					 skein_listener_addr(p.listener), &attr,
					 &conn),
			 0);
	call(conn, CALLS);
	enter(c);
	conn_break(conn, -SKEIN_EPEER, "made up");
	engine_leave(c->e);
	while (skein_conn_get_state(conn) == SKEIN_CONN_READY)
		skein_engine_progress(c);
	assert_int_equal(value(c, COUNTER_CALLS), CALLS);
	assert_int_equal(skein_conn_wait(conn, PATIENCE), 0);
	call(conn, 1);
	assert_int_equal(value(c, COUNTER_CALLS), CALLS + 1);
	assert_int_equal(value(c, COUNTER_BROKEN), 1);
	assert_int_equal(value(c, COUNTER_GARBAGE), 1);
	assert_int_equal(value(c, COUNTER_CONNS_OPENED), 1);
	assert_int_equal(value(c, COUNTER_OPENED), 2);
	pair_close(&p);
}

/* As a connection becomes silent its counts are taken: no later look has to
 * find it. */
static void test_silent(void **state)
{
	struct skein_engine *c;
	struct skein_conn *conn;
	struct pair p;

	open_both(&p);
	c = p.client->engine;
	hold_beats(c);
	conn = connect_to(&p);
	call(conn, CALLS);
	rest(c);
	assert_int_equal(c->counters.sum[COUNTER_CALLS], CALLS);
	assert_null(c->counters.page);
	pair_close(&p);
}

#define MANY (2 * COUNTERS_TURN + COUNTERS_TURN / 2)

/* A look costs what is active, and of silent connections a few in turns. */
static void test_turns(void **state)
{
	static struct skein_conn *conns[MANY];
	struct skein_engine *c;
	struct pair p;
	unsigned i;

	open_both(&p);
	c = p.client->engine;
	hold_beats(c);
	for (i = 0; i < MANY; i++)
		conns[i] = connect_to(&p);
	rest(c);
	enter(c);
	/* As if each of them had made one call more. */
	for (i = 0; i < MANY; i++)
		conns[i]->counted[COUNTER_CALLS]--;
	engine_leave(c->e);
	assert_int_equal(value(c, COUNTER_CALLS), COUNTERS_TURN);
	assert_int_equal(value(c, COUNTER_CALLS), 2 * COUNTERS_TURN);
	assert_int_equal(value(c, COUNTER_CALLS), MANY);
	assert_int_equal(value(c, COUNTER_CALLS), MANY);
	/* Before each sleep: those that are active alone. */
	enter(c);
	for (i = 0; i < MANY; i++)
		conns[i]->counted[COUNTER_CALLS]--;
	conn_active(conns[0]);
	counters_arm(c);
	engine_leave(c->e);
	assert_int_equal(c->counters.sum[COUNTER_CALLS], MANY + 1);
	pair_close(&p);
}

/* Memory operations leave a connection silent. */
static void test_memory(void **state)
{
	struct skein_remote r = {.size = sizeof(r)};
	struct skein_mem *shared, *local;
	struct skein_conn *conn;
	struct skein_engine *c;
	struct pair p;
	uint64_t bytes;

	open_both(&p);
	c = p.client->engine;
	assert_int_equal(skein_mem_new(p.server, 4096, &shared), 0);
	assert_int_equal(skein_mem_new(p.client, 4096, &local), 0);
	assert_int_equal(skein_mem_share(shared, "board", SKEIN_MEM_WRITE), 0);
	conn = connect_to(&p);
	assert_int_equal(skein_mem_find(conn, "board", PATIENCE, &r), 0);
	rest(c);
	bytes = value(c, COUNTER_BYTES);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(skein_mem_write(conn, local, 0, &r, 0, 1000,
						 PATIENCE),
				 0);
	assert_true(value(c, COUNTER_BYTES) >= bytes + 10000);
	pair_close(&p);
}

#define SENT 100u

static void send_over(struct skein_stream *a, struct skein_stream *b)
{
	char text[SENT] = "";
	size_t n;

	assert_int_equal(skein_stream_write(a, text, SENT, PATIENCE, &n), 0);
	assert_int_equal(n, SENT);
	assert_int_equal(skein_stream_read(b, text, SENT, PATIENCE, &n), 0);
	assert_int_equal(n, SENT);
}

static void test_streams(void **state)
{
	struct skein_stream_listener_attr at = {
		.size = sizeof(at), .number = 7, .backlog = 2};
	struct skein_stream_attr attr = {.size = sizeof(attr), .number = 7};
	struct skein_stream_listener *streams;
	struct skein_stream *a, *b;
	struct skein_engine *c, *s;
	struct pair p;

	open_both(&p);
	c = p.client->engine;
	s = p.server->engine;
	assert_int_equal(skein_stream_listen(p.server, &at, &streams), 0);
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(
			skein_stream_open(p.client,
					  skein_listener_addr(p.listener),
					  &attr, &a),
			0);
		assert_int_equal(skein_stream_accept(streams, PATIENCE, &b), 0);
		send_over(a, b);
		assert_int_equal(value(c, COUNTER_STREAMS), 1);
		assert_int_equal(value(c, COUNTER_STREAM_TX),
				 (2 * i - 1) * SENT);
		assert_int_equal(value(s, COUNTER_STREAM_RX),
				 (2 * i - 1) * SENT);
		/* These are looked at as the stream ends. */
		send_over(a, b);
		assert_int_equal(skein_stream_close(a, 0), 0);
		skein_stream_close(b, 0);
		assert_int_equal(value(c, COUNTER_STREAMS), 0);
		assert_int_equal(value(c, COUNTER_STREAM_TX), 2 * i * SENT);
	}
	pair_close(&p);
}

/* A new engine has no page, sleeps until the first is due, and then for as long
 * as it likes. */
static void test_first_page(void **state)
{
	uint64_t begun, deadline;
	struct skein_engine *c;
	struct pair p;
	int fd;

	pair_open(&p, NULL, NULL);
	c = p.client->engine;
	begun = env_now_ns(c->env);
	enter(c);
	if (!c->counters.page) {
		deadline = counters_deadline(c);
		assert_true(deadline <= begun + COUNTERS_PERIOD_NS);
	}
	engine_leave(c->e);
	skein_engine_run(c, COUNTERS_PERIOD_NS);
	while (!c->counters.page)
		skein_engine_run(c, COUNTERS_PERIOD_NS);
	assert_true(counters_deadline(c) == ENV_NEVER);
	fd = c->counters.fd;
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	pair_close(&p);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* Before it sleeps: the page is right as long as it does. */
static void test_sleeps(void **state)
{
	struct counters_record rec;
	struct skein_engine *c;
	struct skein_conn *conn;
	struct pair p;
	uint64_t end;

	open_both(&p);
	c = p.client->engine;
	conn = connect_to(&p);
	publish(c);
	enter(c);
	c->counters.next_ns = ENV_NEVER; /* no beat does it */
	engine_leave(c->e);
	call(conn, CALLS);
	end = env_now_ns(c->env) + PATIENCE;
	do {
		skein_engine_run(c, SKEIN_MS(10));
		look(c, &rec);
		assert_true(env_now_ns(c->env) < end);
	} while (rec.values[COUNTER_CALLS] != CALLS);
	pair_close(&p);
}

/* A child has its parent's memory, but for the page. */
static void test_fork(void **state)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	struct counters_record before, after;
	struct skein_ctx *ctx;
	int status;
	pid_t pid;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	publish(ctx->engine);
	look(ctx->engine, &before);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		ctx->engine->counters.next_ns = 0;
		counters_beat(ctx->engine, ENV_NEVER);
		counters_arm(ctx->engine);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	look(ctx->engine, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	skein_ctx_close(ctx);
}

static const struct env_ops *real_ops;

static int refuse(struct skein_env *env, const char *name, size_t len, int *fd,
		  void **addr)
{
	if (!strcmp(name, COUNTERS_NAME))
		return -EPERM;
	return real_ops->mem_alloc(env, name, len, fd, addr);
}

static void no_line(void *arg, enum env_log_level level, const char *msg)
{
	fail_msg("\"%s\" was logged", msg);
}

/* Where memfd_create(2) is refused there is none, and all else works. */
static void test_refused(void **state)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	struct skein_ctx *ctx;
	struct skein_env *env;
	struct env_ops ops;

	assert_int_equal(env_real_new(&env), 0);
	real_ops = env->ops;
	ops = *env->ops;
	ops.mem_alloc = refuse;
	env->ops = &ops;
	env->log_level = ENV_LOG_WARN;
	assert_int_equal(ctx_open_env(env, &attr, &ctx), 0);
	env->log = no_line;
	publish(ctx->engine);
	assert_null(ctx->engine->counters.page);
	assert_true(counters_deadline(ctx->engine) == ENV_NEVER);
	publish(ctx->engine);
	skein_ctx_close(ctx);
	env->ops = real_ops;
	env_real_free(env);
}

static void test_decode(void **state)
{
	struct counters_page page = {.magic = COUNTERS_MAGIC,
				     .len = sizeof(page),
				     .pid = 7,
				     .device = "soft (\x1b[31m\xff)"};
	struct counters_record rec = {.pid = 1};

	page.values[COUNTERS - 1] = 5;
	assert_int_equal(counters_decode(&page, sizeof(page) - 1, &rec),
			 -EINVAL);
	page.len++;
	assert_int_equal(counters_decode(&page, sizeof(page), &rec), -EINVAL);
	page.len--;
	page.magic++;
	assert_int_equal(counters_decode(&page, sizeof(page), &rec), -EINVAL);
	page.magic = 0;
	assert_int_equal(counters_decode(&page, sizeof(page), &rec), -EAGAIN);
	page.magic = COUNTERS_MAGIC;
	assert_int_equal(rec.pid, 1);
	assert_int_equal(counters_decode(&page, sizeof(page), &rec), 0);
	assert_int_equal(rec.pid, 7);
	assert_string_equal(rec.device, "soft (?[31m?)");
	assert_int_equal(rec.values[COUNTERS - 1], 5);
	memset(page.device, 'x', sizeof(page.device));
	assert_int_equal(counters_decode(&page, sizeof(page), &rec), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_connects_again),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_first_page),
		cmocka_unit_test(test_sleeps),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_decode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
