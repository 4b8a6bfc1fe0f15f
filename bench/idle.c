/* SPDX-License-Identifier: MIT */
/*
 * idle.c - what a connected pair of processes costs while nothing is called.
 *
 *	idle SECONDS
 *
 * The server runs its engine, the client's background thread runs the
 * client's; both wait by events. After a call each process measures its own
 * processor time over SECONDS. Prints, as shares of one core, the server's and
 * the client's.
 */
#include "skein/skein.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	ECHO = 1
};

static _Noreturn void die(const char *what, int rc)
{
	fprintf(stderr, "idle: %s: %s\n", what, skein_strerror(rc));
	exit(1);
}

static double cpu_s(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
	       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1e-6;
}

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	return 0;
}

static struct skein_ctx *ctx_new(bool background)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .wait = SKEIN_WAIT_EVENT,
				      .background = background};
	struct skein_ctx *ctx;
	int rc = skein_ctx_open(&attr, &ctx);

	if (rc)
		die("ctx", rc);
	return ctx;
}

/* Tells its address by the pipe, serves, and tells its share. */
static int server(int out, uint64_t idle_ns)
{
	struct skein_ctx *ctx = ctx_new(false);
	struct skein_engine *e = skein_ctx_engine(ctx);
	struct skein_listener *l;
	double before;
	int rc;

	rc = skein_rpc_handle(ctx, ECHO, on_echo, NULL);
	if (!rc)
		rc = skein_listener_open(ctx, "127.0.0.1:0", NULL, &l);
	if (rc)
		die("listener", rc);
	dprintf(out, "%s\n", skein_listener_addr(l));
	/* the client connects and calls within the first second */
	skein_engine_run(e, SKEIN_S(1));
	before = cpu_s();
	skein_engine_run(e, idle_ns);
	printf("server %.6f\n", (cpu_s() - before) * 1e9 / (double)idle_ns);
	skein_engine_run(e, SKEIN_S(2)); /* the client leaves meanwhile */
	skein_ctx_close(ctx);
	return 0;
}

static int client(const char *addr, uint64_t idle_ns)
{
	struct skein_ctx *ctx = ctx_new(true);
	struct timespec warm = {.tv_sec = 1}, idle;
	struct skein_conn *conn;
	double before;
	int rc = skein_conn_open(ctx, addr, NULL, &conn);

	if (rc)
		die("connect", rc);
	rc = skein_rpc_call(conn, ECHO, NULL, 0, NULL, 0, SKEIN_S(5), NULL);
	if (rc)
		die("call", rc);
	nanosleep(&warm, NULL);
	before = cpu_s();
	idle.tv_sec = (time_t)(idle_ns / 1000000000u);
	idle.tv_nsec = (long)(idle_ns % 1000000000u);
	nanosleep(&idle, NULL);
	printf("client %.6f\n", (cpu_s() - before) * 1e9 / (double)idle_ns);
	skein_conn_close(conn, SKEIN_S(1));
	skein_ctx_close(ctx);
	return 0;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 4;
	char addr[128];
	int fds[2], status = 0, rc;
	uint64_t idle_ns;
	pid_t pid;
	FILE *in;

	if (!(seconds >= 1 && seconds <= 3600) || pipe(fds)) {
		fprintf(stderr, "usage: idle SECONDS (1 to 3600)\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	idle_ns = (uint64_t)(seconds * 1e9);
	pid = fork();
	if (pid == 0)
		_exit(server(fds[1], idle_ns));
	close(fds[1]);
	in = fdopen(fds[0], "r");
	if (pid < 0 || !in || !fgets(addr, sizeof(addr), in))
		return 1;
	addr[strcspn(addr, "\n")] = '\0';
	rc = client(addr, idle_ns);
	waitpid(pid, &status, 0);
	return rc || status;
}
