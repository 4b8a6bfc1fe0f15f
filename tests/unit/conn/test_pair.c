/* SPDX-License-Identifier: MIT */
/*
 * test_pair.c - two contexts in one process: connect, memory operations,
 * sharing a control link, closing from either side.
 */
#include "unit/cm.h"

#include "conn/handle.h"

#include <errno.h>
#include <skein/skein.h>
#include <string.h>

struct pair {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *accepted;
	int ups, ends;
	enum skein_conn_state last;
};

static void on_conn(void *arg, struct skein_conn *conn,
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

static void pair_open(struct pair *p, const char *server_key,
		      const char *client_key)
{
	struct skein_ctx_attr s = {.size = sizeof(s),
				   .background = true,
				   .device = "soft",
				   .key = server_key,
				   .key_len =
					   server_key ? strlen(server_key) : 0};
	struct skein_ctx_attr c = s;
	struct skein_listener_attr l = {
		.size = sizeof(l), .on_conn = on_conn, .arg = p};

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

static void pair_close(struct pair *p)
{
	skein_ctx_close(p->client);
	skein_ctx_close(p->server);
}

static void test_connect(void **state)
{
	struct skein_conn *conn;
	struct pair p;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_conn_open(p.client,
					 skein_listener_addr(p.listener), NULL,
					 &conn),
			 0);
	assert_int_equal(skein_conn_state(conn), SKEIN_CONN_READY);
	skein_conn_close(conn, SKEIN_S(1));
	pair_close(&p);
	assert_int_equal(p.ups, 1);
	assert_int_equal(p.ends, 1);
	assert_int_equal(p.last, SKEIN_CONN_CLOSING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
