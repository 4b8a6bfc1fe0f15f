/* SPDX-License-Identifier: MIT */
/*
 * The order in which a copy's bytes become visible, store by store. A child is
 * single-stepped through a copy, or through the post of a WRITE, and after each
 * instruction its parent looks at the destination: the new bytes are a
 * beginning of it that grows, by no store that crosses a cache line or tears an
 * aligned word, and the tail comes alone and last. Unlike an onlooker on
 * another core this does not depend on luck: a copy in any other order, such as
 * libc's, fails at once.
 */
#include "rig.h"

#include "dev/soft/exec/copy.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	LEN_MAX = 5000,
	ROOM = 8192,
	MARGIN = 64,
	STEPS_MAX = 1 << 20,
};

/* What is copied: len bytes, from an address that is `from` modulo 64 to one
 * that is `to`. */
struct shape {
	unsigned to, from;
	size_t len;
};

static const struct shape shapes[] = {
	{0, 0, 8},    {0, 0, 64},     {3, 0, 61},   {8, 5, 112},   {0, 0, 120},
	{0, 8, 200},  {8, 0, 248},    {0, 0, 256},  {16, 3, 300},  {1, 0, 511},
	{0, 0, 1000}, {24, 40, 2048}, {0, 0, 4096}, {63, 1, 4097}, {5, 0, 4999},
};

static char pattern(size_t i)
{
	return (char)(1 + i % 251);
}

static void fill(char *src, size_t len)
{
	for (size_t i = 0; i < len; i++)
		src[i] = pattern(i);
}

/* How many bytes from at on are the new ones. */
static size_t grown(const volatile char *dst, size_t at, size_t len)
{
	while (at < len && dst[at] == pattern(at))
		at++;
	return at;
}

/* One instruction has made [was, now) of dst visible. */
static void check_store(const char *dst, size_t was, size_t now, size_t len)
{
	uintptr_t from = (uintptr_t)dst + was, to = (uintptr_t)dst + now;
	size_t tail = len - soft_copy_tail_len((uintptr_t)dst, len);

	if (from / 64 != (to - 1) / 64)
		fail_msg("a store of bytes %zu to %zu crosses a line", was,
			 now);
	/* Where a word lies in the range as a whole, all of it comes at once */
	if (to & 7 && (to & ~7ull) >= (uintptr_t)dst &&
	    (to | 7) < (uintptr_t)dst + len)
		fail_msg("a store of bytes %zu to %zu tears a word", was, now);
	if (was < tail && now > tail)
		fail_msg("the tail, from %zu on, came with bytes %zu to %zu",
			 tail, was, now);
}

/* Steps the child to its SIGUSR1, looking on. Zeroes lie around dst, too. */
static void look_on(pid_t pid, const char *dst, size_t len)
{
	static const char zeroes[ROOM];
	size_t have = 0, now;
	int st;

	for (long i = 0; i < STEPS_MAX; i++) {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &st, 0), pid);
		assert_true(WIFSTOPPED(st));
		if (WSTOPSIG(st) == SIGUSR1)
			break;
		assert_int_equal(WSTOPSIG(st), SIGTRAP);
		now = grown(dst, have, len);
		if (memcmp(dst + now, zeroes, len - now + MARGIN) != 0)
			fail_msg("bytes behind %zu of %zu came first", now,
				 len);
		if (now != have)
			check_store(dst, have, now, len);
		have = now;
	}
	assert_int_equal(have, len);
	assert_memory_equal(dst - MARGIN, zeroes, MARGIN);
}

/* Waits until the child has stopped itself, ready to be stepped. */
static void await_stop(pid_t pid)
{
	int st;

	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
}

static void reap(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* --- the copy itself ---------------------------------------------------- */

static void copy_stepped(char *dst, const struct shape *s)
{
	static char src[ROOM];
	static _Alignas(64) char from[ROOM];
	pid_t pid;

	fill(src, s->len);
	memcpy(from + s->from, src, s->len);
	memset(dst, 0, ROOM);
	dst += MARGIN + s->to;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		soft_copy(dst, from + s->from, s->len);
		raise(SIGUSR1);
		_exit(0);
	}
	await_stop(pid);
	look_on(pid, dst, s->len);
	reap(pid);
}

static void test_copy(void **state)
{
	char *dst = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(dst != MAP_FAILED);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		copy_stepped(dst, &shapes[i]);
	munmap(dst, ROOM);
}

/* --- through the device ------------------------------------------------- */

struct job {
	struct shape shape;
	int pieces; /* of the source */
};

static void job_wr(const struct job *job, struct rig_end *e,
		   const struct rig_addr *peer, struct ibv_sge *sge,
		   struct ibv_send_wr *wr)
{
	uint64_t at = (uintptr_t)e->buf + job->shape.from;
	size_t left = job->shape.len, part;

	for (int i = 0; i < job->pieces; i++) {
		part = i + 1 == job->pieces ? left : left / 2 | 1;
		sge[i] = (struct ibv_sge){at, (uint32_t)part, e->lkey};
		at += part;
		left -= part;
	}
	*wr = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE,
				   .sg_list = sge,
				   .num_sge = job->pieces,
				   .send_flags = IBV_SEND_SIGNALED};
	wr->wr.rdma.remote_addr = peer->buf + MARGIN + job->shape.to;
	wr->wr.rdma.rkey = peer->rkey;
}

static void poster(int sock, void *arg)
{
	const struct job *job = arg;
	struct ibv_send_wr wr, *bad;
	struct rig_addr peer;
	struct ibv_sge sge[4];
	struct rig_end e;
	struct ibv_wc wc;
	char go;

	rig_meet(&e, sock, NULL, &peer);
	job_wr(job, &e, &peer, sge, &wr);
	fill(e.buf + job->shape.from, job->shape.len);
	/* once before, so that the peer's memory is mapped */
	if (ibv_post_send(e.qp, &wr, &bad))
		_exit(1);
	rig_wait(&e, &wc);
	rig_put(sock, "w", 1);
	rig_get(sock, &go, 1);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	ibv_post_send(e.qp, &wr, &bad);
	raise(SIGUSR1);
	_exit(0);
}

static void write_stepped(const struct shape *shape, int pieces)
{
	struct job job = {*shape, pieces};
	struct rig_addr mine, peer;
	struct rig_child c;
	struct rig_end e;
	char said;

	rig_open(&e, NULL);
	rig_fork(&c, poster, &job);
	rig_addr(&e, &mine);
	rig_get(c.sock, &peer, sizeof(peer));
	rig_put(c.sock, &mine, sizeof(mine));
	rig_connect(&e, &peer);
	rig_get(c.sock, &said, 1);
	assert_int_equal(e.buf[MARGIN + shape->to], pattern(0));
	memset(e.buf, 0, ROOM);
	rig_put(c.sock, "g", 1);
	await_stop(c.pid);
	look_on(c.pid, e.buf + MARGIN + shape->to, shape->len);
	kill(c.pid, SIGKILL);
	assert_true(WIFSIGNALED(rig_join(&c)));
	rig_close(&e);
}

static void test_write(void **state)
{
	write_stepped(&(struct shape){0, 0, 120}, 1);
	write_stepped(&(struct shape){0, 0, 1000}, 1);
	write_stepped(&(struct shape){16, 3, 4096}, 1);
}

/* Of several pieces the tail may come from more than one. */
static void test_gather(void **state)
{
	write_stepped(&(struct shape){0, 0, 1000}, 2);
	write_stepped(&(struct shape){8, 1, 2048}, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_gather),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
