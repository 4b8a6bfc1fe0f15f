/* SPDX-License-Identifier: MIT */
/*
 * service.c in this thread, which is its clients too: they attach by hand and
 * write to their rings. Rounds and sleeps are counted by a clock of the test's.
 */
#include "bed.h"
#include "vqp/node/attached.h"
#include "vqp/node/service.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static char folder[64], path[96];
static pid_t meta_pid;
static struct skein_ctx *ctx;
static struct skein_node *node;

/* --- the clock ---------------------------------------------------------- */

static struct {
	struct skein_env env;
	struct env_ops ops;
	const struct env_ops *real;
	uint64_t now_ns;
	unsigned rounds, sleeps;
} fake;

static uint64_t fake_now(struct skein_env *env)
{
	return fake.now_ns += 1000;
}

static enum env_idle_verdict fake_idle(struct env_waiter *w, unsigned round)
{
	fake.rounds++;
	return round < 10 ? ENV_IDLE_AGAIN : ENV_IDLE_SLEEP;
}

static int fake_sleep(struct env_waiter *w, uint64_t deadline_ns)
{
	fake.sleeps++;
	if (deadline_ns > fake.now_ns)
		fake.now_ns = deadline_ns;
	return fake.real->waiter_sleep(w, 0);
}

/* Half a second of the service, by its own clock. */
static void half_second(void)
{
	struct skein_env *env = node->env;

	fake.env = *env;
	fake.real = env->ops;
	fake.ops = *env->ops;
	fake.ops.now_ns = fake_now;
	fake.ops.idle = fake_idle;
	fake.ops.waiter_sleep = fake_sleep;
	fake.env.ops = &fake.ops;
	fake.now_ns = env_now_ns(env);
	fake.rounds = fake.sleeps = 0;
	node->fds_ns = 0;
	node->pool->publish[0].due_ns = UINT64_MAX; /* no beat meanwhile */
	node->env = &fake.env;
	assert_int_equal(skein_node_run(node, SKEIN_MS(500), NULL), -ETIMEDOUT);
	node->env = env;
	node->pool->publish[0].due_ns = 0;
	node->fds_ns = 0;
}

/* --- clients by hand ---------------------------------------------------- */

static void serve(void)
{
	skein_node_run(node, SKEIN_MS(1), NULL);
}

struct client {
	int fd;
	void *rings;
	struct ring ring;
	struct attach_msg m; /* the last answer */
};

static void client_send(struct client *c, enum attach_kind kind, uint64_t len)
{
	attach_fill(&c->m, kind);
	c->m.len = len;
	c->m.access = REMOTE;
	assert_int_equal(local_send(c->fd, &c->m, sizeof(c->m), NULL, 0), 0);
}

/* The answer; its first descriptor, or -1. */
static int client_answer(struct client *c)
{
	uint8_t buf[ATTACH_LEN];
	int fds[LOCAL_FDS], n = 0, i;
	ssize_t got = -EAGAIN;

	/* one that was refused finds its answer behind the error */
	for (i = 0; i < 1000 && (got == -EAGAIN || got == -ECONNRESET); i++) {
		serve();
		got = local_recv(c->fd, buf, sizeof(buf), fds, &n);
	}
	assert_int_equal(got, ATTACH_LEN);
	assert_int_equal(attach_decode(buf, sizeof(buf), &c->m), 0);
	if (n > 1)
		close(fds[1]);
	return n ? fds[0] : -1;
}

static void client_open(struct client *c)
{
	int fd;

	assert_int_equal(local_connect(path, &c->fd), 0);
	client_send(c, ATTACH_HELLO, 0);
	fd = client_answer(c);
	assert_int_equal(c->m.status, 0);
	assert_int_equal(local_map(fd, RING_LEN, true, &c->rings), 0);
	close(fd);
	ring_init(&c->ring, c->rings);
}

static void client_close(struct client *c)
{
	local_unmap(c->rings, RING_LEN);
	close(c->fd);
}

static struct node_client *first_client(void)
{
	assert_false(list_empty(&node->clients));
	return container_of(node->clients.next, struct node_client, link);
}

/* --- the bed ------------------------------------------------------------ */

static int group_setup(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/skein-service-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	start(&meta_pid, meta_main, meta_addr, sizeof(meta_addr));
	ctx = ctx_quiet();
	return 0;
}

static int group_teardown(void **state)
{
	skein_ctx_close(ctx);
	reap(&meta_pid);
	rmdir(folder);
	return 0;
}

static void node_open(struct skein_node_attr *a)
{
	a->size = sizeof(*a);
	a->meta = meta_addr;
	assert_int_equal(skein_node_open(ctx, path, a, &node), 0);
}

/* --- sleeping ----------------------------------------------------------- */

/* A client that leaves its completions unread while its requests wait: the
 * service sleeps. */
static void test_unread(void **state)
{
	struct skein_node_attr a = {0};
	struct ring_req q = {.op = RING_OP_NEW};
	struct ring_comp comp;
	struct client c;
	unsigned i;

	node_open(&a);
	client_open(&c);
	half_second();
	assert_in_range(fake.sleeps, 5, 10);
	assert_in_range(fake.rounds, 5, 200);
	for (i = 0; i < RING_FULL + 10; i++) {
		assert_int_equal(ring_put(&c.ring, &q), 0);
		if (i % 32 == 31)
			serve();
	}
	half_second();
	assert_true(ring_has(&first_client()->serve.ring));
	assert_in_range(fake.sleeps, 5, 10);
	assert_in_range(fake.rounds, 5, 200);
	/* and wakes up when they are read */
	while (ring_comp_take(&c.ring, &comp))
		;
	half_second();
	for (i = 0; ring_comp_take(&c.ring, &comp); i++)
		;
	assert_int_equal(i, 10);
	client_close(&c);
	skein_node_close(node);
}

/* --- limits ------------------------------------------------------------- */

static char said[4096];

static void note_log(void *arg, enum env_log_level level, const char *line)
{
	size_t at = strlen(said);

	snprintf(said + at, sizeof(said) - at, "%s\n", line);
}

/* The lines since the last look have these words, and are so many. */
static void assert_said(const char *words, unsigned lines)
{
	const char *at;
	unsigned n = 0;

	for (at = said; (at = strchr(at, '\n')); at++)
		n++;
	if (n != lines || (words && !strstr(said, words)))
		fail_msg("not \"%s\" in %u lines:\n%s", words ? words : "",
			 lines, said);
	said[0] = '\0';
}

static int mem_made(struct client *c, uint64_t len)
{
	int fd;

	client_send(c, ATTACH_MEM, len);
	fd = client_answer(c);
	if (fd >= 0)
		close(fd);
	return c->m.status;
}

static struct ring_comp asked(struct client *c, const struct ring_req *q)
{
	struct ring_comp comp = {0};
	unsigned i;

	assert_int_equal(ring_put(&c->ring, q), 0);
	for (i = 0; i < 100 && !ring_comp_has(&c->ring); i++)
		serve();
	assert_true(ring_comp_take(&c->ring, &comp));
	assert_int_equal(comp.kind, RING_REPLY);
	return comp;
}

static int vqp_made(struct client *c, uint32_t *id)
{
	struct ring_req q = {.op = RING_OP_NEW};
	struct ring_comp comp = asked(c, &q);

	*id = comp.imm;
	return -(int)comp.len;
}

static int bound(struct client *c, uint32_t id, uint32_t port)
{
	struct ring_req q = {.op = RING_OP_BIND, .vqp = id, .rkey = port};

	return -(int)asked(c, &q).len;
}

static void freed(struct client *c, uint32_t id)
{
	struct ring_req q = {.op = RING_OP_FREE, .vqp = id};

	assert_int_equal(ring_put(&c->ring, &q), 0);
	serve();
}

/* A service takes long requests piece by piece (test_piece.c); a program's own pool
 * does not. */
static void test_pieces(void **state)
{
	struct skein_node_attr a = {0};

	node_open(&a);
	assert_int_equal(node->pool->e.conf.piece, VQP_PIECE);
	skein_node_close(node);
}

static void test_memories(void **state)
{
	struct skein_node_attr a = {0};
	struct client c;

	node_open(&a);
	ctx->env->log = note_log;
	client_open(&c);
	said[0] = '\0';
	for (unsigned i = 0; i < SERVE_MEMS; i++)
		assert_int_equal(mem_made(&c, 1), 0);
	assert_said(NULL, 0);
	assert_int_equal(mem_made(&c, 1), -EDQUOT);
	assert_said("a client may have 64 memories", 1);
	assert_int_equal(mem_made(&c, 1), -EDQUOT);
	assert_said(NULL, 0);
	client_close(&c);
	skein_node_close(node);
	ctx->env->log = NULL;
}

/* What a client may have, and what all of its user may: refused by the call, said
 * once, and given back. */
/* A quarter is kept for domains with few: with 4 at most. */
static void test_few_memories(void **state)
{
	struct skein_node_attr a = {0};
	struct client c;

	node_open(&a);
	node->mems_max = 8;
	ctx->env->log = note_log;
	client_open(&c);
	said[0] = '\0';
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(mem_made(&c, 1), 0);
	assert_said(NULL, 0);
	assert_int_equal(mem_made(&c, 1), -EDQUOT);
	assert_said("its domain have 4 memories of 8", 1);
	client_close(&c);
	skein_node_close(node);
	ctx->env->log = NULL;
}

static void test_limits(void **state)
{
	struct skein_node_attr a = {.mem_max = 16384,
				    .vqps_max = 3,
				    .ports_max = 2,
				    .user_times = 2};
	struct client c[3];
	uint32_t id[4], other;
	unsigned i, k;

	node_open(&a);
	ctx->env->log = note_log;
	for (k = 0; k < 3; k++)
		client_open(&c[k]);
	said[0] = '\0';
	/* memory */
	assert_int_equal(mem_made(&c[0], 16385), -EDQUOT);
	assert_said("may have 16384 bytes of memory (skein node --memory)", 1);
	assert_int_equal(mem_made(&c[0], 16384), 0);
	assert_int_equal(mem_made(&c[0], 1), -EDQUOT);
	assert_said(NULL, 0);
	assert_int_equal(mem_made(&c[1], 16000), 0);
	assert_int_equal(mem_made(&c[2], 385), -EDQUOT);
	assert_said("may have 32768 bytes of memory "
		    "(skein node --user-times, --memory)",
		    1);
	assert_int_equal(mem_made(&c[2], 384), 0);
	/* vqps */
	for (i = 0; i < 3; i++)
		assert_int_equal(vqp_made(&c[0], &id[i]), 0);
	assert_int_equal(vqp_made(&c[0], &id[3]), -EDQUOT);
	assert_said("may have 3 virtual queue pairs (skein node --vqps)", 1);
	/* ports: one in use is another error, and takes none */
	assert_int_equal(bound(&c[0], id[0], 5), 0);
	assert_int_equal(bound(&c[0], id[1], 5), -EADDRINUSE);
	assert_int_equal(bound(&c[0], id[1], 6), 0);
	assert_int_equal(bound(&c[0], id[2], 7), -EDQUOT);
	assert_said("may have 2 ports (skein node --ports)", 1);
	freed(&c[0], id[0]);
	assert_int_equal(bound(&c[0], id[2], 7), 0);
	assert_int_equal(vqp_made(&c[0], &id[3]), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(vqp_made(&c[1], &other), 0);
	assert_int_equal(vqp_made(&c[2], &other), -EDQUOT);
	assert_said("may have 6 virtual queue pairs", 1);
	/* one that goes leaves its part to the others, but for memory that peers
	 * may know yet */
	client_close(&c[1]);
	for (i = 0; i < 100 && node->n_clients == 3; i++)
		serve();
	assert_false(list_empty(&node->pool->leased));
	container_of(node->pool->leased.next, struct pool_mem, link)->keep_ns =
		UINT64_MAX - 1;
	assert_int_equal(vqp_made(&c[2], &other), 0);
	assert_int_equal(mem_made(&c[2], 385), -EDQUOT);
	client_close(&c[0]);
	client_close(&c[2]);
	skein_node_close(node);
	ctx->env->log = NULL;
}

/* One too many is told when it may come again. */
static void test_door(void **state)
{
	struct skein_node_attr a = {.clients_max = 1};
	struct client c, d;

	node_open(&a);
	client_open(&c);
	assert_int_equal(local_connect(path, &d.fd), 0);
	client_send(&d, ATTACH_HELLO, 0);
	client_answer(&d);
	assert_int_equal(d.m.status, -SKEIN_EBUSY);
	assert_int_equal(d.m.len, 100);
	close(d.fd);
	client_close(&c);
	skein_node_close(node);
}

/* One that has said hello while the service stood still is not silent: it keeps
 * its place, however late the service reads. */
static void test_spoke(void **state)
{
	struct skein_node_attr a = {.clients_max = 1};
	struct client c, d;
	unsigned i;

	node_open(&a);
	assert_int_equal(local_connect(path, &c.fd), 0);
	for (i = 0; i < 1000 && !node->n_clients; i++)
		serve();
	assert_int_equal(node->n_clients, 1);
	/* both come before the service looks, and the door is the first that it
	 * finds */
	assert_int_equal(local_connect(path, &d.fd), 0);
	client_send(&c, ATTACH_HELLO, 0);
	first_client()->since_ns -= SKEIN_S(1);
	client_send(&d, ATTACH_HELLO, 0);
	client_answer(&d);
	assert_int_equal(d.m.status, -SKEIN_EBUSY);
	close(client_answer(&c));
	assert_int_equal(c.m.status, 0);
	close(d.fd);
	close(c.fd);
	/* a silent one goes */
	for (i = 0; i < 1000 && node->n_clients; i++)
		serve();
	assert_int_equal(local_connect(path, &c.fd), 0);
	for (i = 0; i < 1000 && !node->n_clients; i++)
		serve();
	first_client()->since_ns -= SKEIN_S(1);
	client_open(&d);
	client_close(&d);
	close(c.fd);
	skein_node_close(node);
}

/* --- domains ------------------------------------------------------------ */

static uint16_t newest_domain(void)
{
	return container_of(node->clients.prev, struct node_client, link)
		->serve.domain;
}

static void serve_until(unsigned clients)
{
	unsigned i;

	for (i = 0; i < 20000 && node->n_clients != clients; i++)
		serve();
	assert_int_equal(node->n_clients, clients);
}

/* Processes of one user are of two domains where one of them is in a network
 * namespace of its own; a door's name is the same domain for all. */
static void test_spaces(void **state)
{
	struct skein_node_attr a = {0};
	struct client c, d;
	uint64_t end = now_ms() + patience_ms(20);
	uint16_t first;
	int go[2], status;
	char x = 0;
	pid_t pid;

	node_open(&a);
	client_open(&c);
	first = newest_domain();
	assert_int_not_equal(first, 0);
	client_open(&d);
	assert_int_equal(newest_domain(), first);
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (!pid) {
		close(go[1]);
		if (unshare(CLONE_NEWNET) &&
		    unshare(CLONE_NEWUSER | CLONE_NEWNET))
			_exit(77);
		if (local_connect(path, &d.fd))
			_exit(1);
		/* until the test has looked */
		_exit(read(go[0], &x, 1) < 0);
	}
	close(go[0]);
	while (!waitpid(pid, &status, WNOHANG) && node->n_clients < 3) {
		assert_true(now_ms() < end);
		serve();
	}
	if (node->n_clients == 3) {
		assert_int_not_equal(container_of(node->clients.prev,
						  struct node_client, link)
					     ->domain->number,
				     first);
		close(go[1]);
		waitpid(pid, &status, 0);
	} else { /* namespaces are not to be had here */
		assert_int_equal(WEXITSTATUS(status), 77);
		close(go[1]);
	}
	client_close(&c);
	client_close(&d);
	serve_until(0);
	skein_node_close(node);
}

/* Memory that a client brings along: what is not sealed, too short or named as
 * memory that is there is not taken. */
static void test_brought(void **state)
{
	struct skein_node_attr a = {0};
	struct client c;
	int fd = memfd_create("x", MFD_ALLOW_SEALING), made;
	static const struct {
		uint64_t len;
		uint32_t id;
		int seals, err;
	} row[] = {
		{4096, 0x70005, 0, -EPERM},
		{8192, 0x70005, F_SEAL_SHRINK, -EPERM},
		{4096, 0x00005, F_SEAL_SHRINK, -EEXIST},
		{4096, 0x70040, F_SEAL_SHRINK, -EEXIST},
		{0, 0x70005, F_SEAL_SHRINK, -EINVAL},
		{4096, 0x70005, F_SEAL_SHRINK, 0},
		{4096, 0x80005, F_SEAL_SHRINK, -EEXIST},
	};
	unsigned i;

	assert_int_equal(ftruncate(fd, 4096), 0);
	node_open(&a);
	client_open(&c);
	client_send(&c, ATTACH_MEM, 4096);
	made = client_answer(&c);
	assert_int_equal(c.m.status, 0);
	close(made);
	for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		assert_int_equal(fcntl(fd, F_ADD_SEALS, row[i].seals), 0);
		attach_fill(&c.m, ATTACH_MEM_AGAIN);
		c.m.len = row[i].len;
		c.m.id = row[i].id;
		c.m.access = REMOTE;
		c.m.region = 0x30001; /* there is one */
		assert_int_equal(local_send(c.fd, &c.m, sizeof(c.m), &fd, 1),
				 0);
		client_answer(&c);
		assert_int_equal(c.m.status, row[i].err);
		if (!row[i].err)
			assert_int_not_equal(c.m.region & 0xffff, 1);
	}
	/* without a descriptor */
	attach_fill(&c.m, ATTACH_MEM_AGAIN);
	c.m.len = 4096;
	assert_int_equal(local_send(c.fd, &c.m, sizeof(c.m), NULL, 0), 0);
	client_answer(&c);
	assert_int_equal(c.m.status, -EBADF);
	close(fd);
	client_close(&c);
	skein_node_close(node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unread),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_memories),
		cmocka_unit_test(test_few_memories),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_door),
		cmocka_unit_test(test_spoke),
		cmocka_unit_test(test_spaces),
		cmocka_unit_test(test_brought),
	};

	if (!getenv("SKEIN_DEVICE"))
		setenv("SKEIN_DEVICE", "soft", 1);
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
