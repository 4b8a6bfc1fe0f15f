/* SPDX-License-Identifier: MIT */
/*
 * pair.h - two contexts in one process: a server that runs by itself, and a
 * client that runs when it waits.
 */
#ifndef SKEIN_TESTS_CONN_PAIR_H
#define SKEIN_TESTS_CONN_PAIR_H

#include "unit/cm.h"
#include "unit/device.h"

#include "conn/state.h"

#include <stdatomic.h>
#include <string.h>
#include <skein/skein.h>

struct pair {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	/* written by the server's threads */
	_Atomic(struct skein_conn *) accepted;
	atomic_int ups, ends, last;
};

static inline void on_conn(void *arg, struct skein_conn *conn,
			   enum skein_conn_state state)
{
	struct pair *p = arg;

	if (state == SKEIN_CONN_READY) {
		p->accepted = conn;
		p->ups++;
	} else {
		p->ends++;
		p->accepted = NULL;
	}
	p->last = state;
}

/* A test that fails leaves its threads behind, which write to its pair: to what
 * is another test's stack by then. */
static bool pair_is_open;

static inline void pair_open(struct pair *p, const char *server_key,
			     const char *client_key)
{
	struct skein_ctx_attr s = {.size = sizeof(s),
				   .background = true,
				   .device = test_device(),
				   .key = server_key,
				   .key_len =
					   server_key ? strlen(server_key) : 0};
	struct skein_ctx_attr c = s;
	struct skein_listener_attr l = {
		.size = sizeof(l), .on_conn = on_conn, .arg = p};

	if (pair_is_open)
		fail_msg("a test before this one has failed, and goes on");
	pair_is_open = true;
	c.background = false;
	c.key = client_key;
	c.key_len = client_key ? strlen(client_key) : 0;
	memset(p, 0, sizeof(*p));
	assert_int_equal(skein_ctx_open(&s, &p->server), 0);
	assert_int_equal(skein_ctx_open(&c, &p->client), 0);
	assert_int_equal(skein_listener_open(p->server, "127.0.0.1:0", &l,
					     &p->listener),
			 0);
}

static inline void pair_close(struct pair *p)
{
	skein_ctx_close(p->client);
	skein_ctx_close(p->server);
	pair_is_open = false;
}

/* The client is ready first: the server hears of it a moment later. */
static inline void wait_ups(struct pair *p, int n)
{
	while (atomic_load(&p->ups) < n)
		env_yield(p->client->env);
	assert_int_equal(p->ups, n);
}

static inline struct skein_conn *connect_to(struct pair *p)
{
	struct skein_conn *conn;

	assert_int_equal(skein_conn_open(p->client,
					 skein_listener_addr(p->listener), NULL,
					 &conn),
			 0);
	return conn;
}

#endif
