/* SPDX-License-Identifier: MIT */
/*
 * sandbox.c - a process that forbids itself system calls while it runs, as
 * sandboxes do, and goes on working.
 *
 *	sandbox server CALLS		echoes; on request it enters its sandbox
 *	sandbox client CALLS ADDR	calls, enters, and does all of it again
 *
 * CALLS: barrier (membarrier alone), all (every call that has a slower way or a
 * clear error when it is refused; open too, so /proc cannot be read).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox.h"

#include <skein/skein.h>

#define ECHO 1
#define ENTER 2
#define LEN (64u << 10)
#define LARGE (8u << 20)
#define WAIT SKEIN_S(20)

static const int barrier[] = {SYS_membarrier};
static const int all[] = {
	SYS_membarrier,	      SYS_memfd_create,	     SYS_pidfd_open,
	SYS_sched_yield,      SYS_sched_setaffinity, SYS_sched_setattr,
	SYS_process_vm_readv, SYS_process_vm_writev, SYS_epoll_pwait2,
	SYS_getrandom,	      SYS_clock_nanosleep,   SYS_open,
	SYS_openat,
};

static const int *calls;
static unsigned n_calls;
static struct skein_stop *stop;

static void on_signal(int number)
{
	skein_stop_set(stop);
}

static void want(int ok, const char *what, int got)
{
	if (ok)
		return;
	fprintf(stderr, "sandbox: %s: %d\n", what, got);
	exit(1);
}

static int enter(void)
{
	int rc = sandbox_enter(calls, n_calls, EPERM);

	want(rc || syscall(SYS_membarrier, 0, 0, 0) < 0, "membarrier passes",
	     0);
	return rc;
}

static int echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -EMSGSIZE;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

static int enter_fn(struct skein_rpc_req *req, void *arg)
{
	return enter();
}

static int server(void)
{
	struct skein_listener *listener;
	struct skein_mem *mem;
	struct skein_ctx *ctx;
	int err;

	err = skein_stop_new(&stop);
	want(!err, "stop", err);
	signal(SIGTERM, on_signal);
	err = skein_ctx_open(NULL, &ctx);
	want(!err, "server: open", err);
	err = skein_rpc_handle(ctx, ECHO, echo, NULL);
	want(!err, "handle", err);
	err = skein_rpc_handle(ctx, ENTER, enter_fn, NULL);
	want(!err, "handle", err);
	err = skein_mem_new(ctx, LEN, &mem);
	want(!err, "server: memory", err);
	err = skein_mem_share(mem, "cell",
			      SKEIN_MEM_READ | SKEIN_MEM_WRITE |
				      SKEIN_MEM_ATOMIC);
	want(!err, "share", err);
	err = skein_listener_open(ctx, "127.0.0.1:0", NULL, &listener);
	want(!err, "listen", err);
	printf("listening on %s\n", skein_listener_addr(listener));
	fflush(stdout);
	err = skein_engine_run_stop(skein_ctx_engine(ctx), SKEIN_FOREVER, stop);
	want(!err, "run", err);
	skein_mem_free(mem);
	skein_listener_close(listener);
	skein_ctx_close(ctx);
	return 0;
}

static void call(struct skein_conn *conn, size_t len)
{
	static char to[LEN], back[LEN];
	struct skein_rpc_result res;
	int err;

	memset(to, (int)len, len);
	memset(back, 0, len);
	err = skein_rpc_call(conn, ECHO, to, len, back, len, WAIT, &res);
	want(!err && !res.status && res.len == len && !memcmp(to, back, len),
	     "call", err);
}

static void reach(struct skein_ctx *ctx, struct skein_conn *conn,
		  struct skein_mem *mem)
{
	struct skein_remote at = {.size = sizeof(at)};
	char *p = skein_mem_addr(mem);
	uint64_t old, again;
	int err;

	err = skein_mem_find(conn, "cell", WAIT, &at);
	want(!err, "find", err);
	memset(p, 'x', 4096);
	err = skein_mem_write(conn, mem, 0, &at, 64, 4096, WAIT);
	want(!err, "write", err);
	err = skein_mem_read(conn, mem, 8192, &at, 64, 4096, WAIT);
	want(!err && !memcmp(p, p + 8192, 4096), "read", err);
	err = skein_mem_fetch_add(conn, &at, 0, 1, WAIT, &old);
	want(!err, "add", err);
	err = skein_mem_cmp_swap(conn, &at, 0, old + 1, old, WAIT, &again);
	want(!err && again == old + 1, "swap", err);
}

/* Everything that an application does, its ends included. inside: how many ends
 * are in their sandboxes. */
static void work(struct skein_ctx *ctx, const char *addr,
		 struct skein_conn *conn, struct skein_mem *kept, int inside)
{
	static char own[LEN];
	struct skein_conn *more;
	/* A large payload has memory of its own at both ends. */
	size_t large = inside && calls == all ? 4096 : LEN / 2;
	struct skein_mem *mem;
	int err, i;

	for (i = 0; i < 300; i++)
		call(conn, i % 10 ? 64 : large);
	reach(ctx, conn, kept);
	/* of the application's own memory, which is reached in another way */
	err = skein_mem_wrap(ctx, own, sizeof(own), &mem);
	want(!err, "wrap", err);
	reach(ctx, conn, mem);
	skein_mem_free(mem);
	err = skein_mem_new(ctx, LARGE, &mem);
	if (inside < 2 || calls == barrier) {
		want(!err, "memory", err);
		reach(ctx, conn, mem);
		skein_mem_free(mem);
	} else { /* nothing can take the place of a memfd */
		want(err == -EPERM, "memory without memfd_create", err);
	}
	err = skein_conn_open(ctx, addr, NULL, &more);
	/* Its rings are new memory too. */
	if (inside && calls == all && err) {
		want(err == -EPERM || err == -ECONNRESET, "refused", err);
		return;
	}
	want(!err, "a further connection", err);
	for (i = 0; i < 30; i++)
		call(more, 64);
	reach(ctx, more, kept);
	skein_conn_close(more, WAIT);
}

static int client(const char *addr)
{
	struct skein_rpc_result res;
	struct skein_conn *conn;
	struct skein_mem *mem, *late;
	struct skein_ctx *ctx;
	int err;

	err = skein_ctx_open(NULL, &ctx);
	want(!err, "client: open", err);
	err = skein_mem_new(ctx, LEN, &mem);
	want(!err, "client: memory", err);
	err = skein_mem_new(ctx, LARGE, &late);
	want(!err, "client: memory", err);
	err = skein_conn_open(ctx, addr, NULL, &conn);
	want(!err, "connect", err);
	work(ctx, addr, conn, mem, 0);
	err = skein_rpc_call(conn, ENTER, NULL, 0, NULL, 0, WAIT, &res);
	want(!err && !res.status, "the server's sandbox", err);
	work(ctx, addr, conn, mem, 1);
	err = enter();
	want(!err, "the client's sandbox", err);
	work(ctx, addr, conn, mem, 2);
	reach(ctx, conn, late);
	skein_mem_free(late);
	skein_conn_close(conn, WAIT);
	skein_mem_free(mem);
	skein_ctx_close(ctx);
	printf("worked\n");
	return 0;
}

int main(int argc, char **argv)
{
	want(argc > 2, "usage: sandbox server|client barrier|all [ADDR]", argc);
	calls = strcmp(argv[2], "all") ? barrier : all;
	n_calls = calls == all ? sizeof(all) / sizeof(*all) : 1;
	return argc > 3 ? client(argv[3]) : server();
}
