/* SPDX-License-Identifier: MIT */
/*
 * test_memory.c - the shared memory of connections that have made one call: a
 * page is made when it is used, and not where the system could refuse it then.
 * Both ends are driven in turns by one thread.
 */
#include "unit/cm.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conn/ctx.h"
#include "env/env.h"
#include <skein/skein.h>

#define CONNS 4u
#define FILES (2 * CONNS)
#define ECHO 7
#define FILE_NAME "/memfd:skein-rpc "

/* The two pages that a call of a few bytes uses: control words and requests,
 * answers. */
#define USED 8192

struct ends {
	struct skein_ctx *server, *client;
	struct skein_listener *l;
	struct skein_conn *conns[CONNS];
};

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	return 0;
}

static void on_done(void *arg, const struct skein_rpc_result *res)
{
	assert_int_equal(res->status, 0);
	*(bool *)arg = true;
}

static void turns(struct ends *e)
{
	skein_ctx_progress(e->client);
	skein_ctx_progress(e->server);
}

static void begin(struct ends *e)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = "soft",
				      .wait = SKEIN_WAIT_POLL};

	assert_int_equal(skein_ctx_open(&attr, &e->server), 0);
	assert_int_equal(skein_ctx_open(&attr, &e->client), 0);
	assert_int_equal(skein_rpc_handle(e->server, ECHO, on_echo, NULL), 0);
	assert_int_equal(
		skein_listener_open(e->server, "127.0.0.1:0", NULL, &e->l), 0);
}

static void one_call_each(struct ends *e)
{
	for (unsigned i = 0; i < CONNS; i++) {
		struct skein_conn **conn = &e->conns[i];
		bool done = false;

		assert_int_equal(skein_conn_open_async(
					 e->client, skein_listener_addr(e->l),
					 NULL, conn),
				 0);
		while (skein_conn_get_state(*conn) == SKEIN_CONN_CONNECTING)
			turns(e);
		assert_int_equal(skein_rpc_call_async(*conn, ECHO, "x", 1, 8,
						      SKEIN_S(60), on_done,
						      &done),
				 0);
		while (!done)
			turns(e);
	}
}

static void end(struct ends *e)
{
	for (unsigned i = 0; i < CONNS; i++)
		skein_conn_close(e->conns[i], 0);
	skein_ctx_close(e->client);
	skein_ctx_close(e->server);
}

static bool known(const struct stat *files, unsigned n, const struct stat *st)
{
	for (unsigned i = 0; i < n; i++)
		if (files[i].st_ino == st->st_ino)
			return true;
	return false;
}

/* The files of rings that this process has open, each once: how many. */
static unsigned ring_files(struct stat *files)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *d;
	unsigned n = 0;

	assert_non_null(dir);
	while ((d = readdir(dir))) {
		char name[64] = "";
		struct stat st;

		if (readlinkat(dirfd(dir), d->d_name, name, sizeof(name) - 1) <
			    0 ||
		    strncmp(name, FILE_NAME, strlen(FILE_NAME)) != 0 ||
		    fstat(atoi(d->d_name), &st) || known(files, n, &st))
			continue;
		assert_in_range(n, 0, FILES - 1);
		files[n++] = st;
	}
	closedir(dir);
	return n;
}

static void test_pages_that_are_used(void **state)
{
	struct stat files[FILES];
	struct ends e;

	begin(&e);
	if (!env_mem_on_demand(e.client->env)) {
		print_message("skipped: this system counts pages that it "
			      "promises\n");
		skip();
	}
	one_call_each(&e);
	assert_int_equal(ring_files(files), FILES);
	for (unsigned i = 0; i < FILES; i++) {
		assert_true(files[i].st_size > 512 << 10);
		assert_int_equal(files[i].st_blocks * 512, USED);
	}
	end(&e);
}

static bool may_refuse(struct skein_env *env)
{
	return false;
}

/* A page that is missing at its first use would be SIGBUS: all are made. */
static void test_all_pages(void **state)
{
	struct stat files[FILES];
	struct env_ops ops;
	struct ends e;

	begin(&e);
	ops = *e.client->env->ops;
	ops.mem_on_demand = may_refuse;
	e.client->env->ops = e.server->env->ops = &ops;
	one_call_each(&e);
	assert_int_equal(ring_files(files), FILES);
	for (unsigned i = 0; i < FILES; i++)
		assert_true(files[i].st_blocks * 512 >= files[i].st_size);
	end(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages_that_are_used),
		cmocka_unit_test(test_all_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
