/* SPDX-License-Identifier: MIT */
/*
 * test_link.c - what a connection may rely on is asked by its QP: on the same
 * host all that the device has, over the link less. Fetched results carry
 * checksums there. Two contexts of a process, by SKEIN_LINK.
 */
#include "unit/conn/pair.h"
#include "unit/patience.h"

#include "rpc/state.h"

#include <stdlib.h>

#define CALLS 50
#define LEN 200
#define PATIENCE patience_ns(60)

static int echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -ENOMEM;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

struct answer {
	uint8_t byte;
	unsigned good;
};

static void done(void *arg, const struct skein_rpc_result *res)
{
	const uint8_t *data = res->data;
	struct answer *a = arg;

	assert_int_equal(res->outcome, SKEIN_DONE);
	assert_int_equal(res->len, LEN);
	for (size_t i = 0; i < LEN; i++)
		assert_int_equal(data[i], a->byte);
	a->good++;
}

/* By rounds: a program that sleeps has its answers replied. */
static void calls(struct pair *p, struct skein_conn *conn)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};
	struct answer a = {0};
	uint8_t req[LEN];

	for (unsigned i = 1; i <= CALLS; i++) {
		memset(req, (int)i, LEN);
		a.byte = (uint8_t)i;
		assert_int_equal(skein_rpc_call_async(conn, 1, req, LEN, LEN,
						      PATIENCE, done, &a),
				 0);
		while (a.good < i)
			skein_ctx_progress(p->client);
	}
	assert_int_equal(skein_rpc_get_stats(conn, &st), 0);
	assert_int_equal(st.calls, CALLS);
	assert_true(st.fetched > 0);
}

static void look(const char *link)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .return_mode = SKEIN_RETURN_FETCH};
	bool far = strcmp(link, "auto");
	struct skein_conn *conn;
	struct rpc_conn *rc;
	struct dev_caps caps;
	struct pair p;

	setenv("SKEIN_LINK", link, 1);
	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_rpc_handle(p.server, 1, echo, NULL), 0);
	assert_int_equal(skein_conn_open(p.client,
					 skein_listener_addr(p.listener), &attr,
					 &conn),
			 0);
	wait_ups(&p, 1);
	conn_caps(conn, &caps);
	assert_int_equal(caps.ordered_read, !far);
	assert_int_equal(caps.death_notice, !far);
	assert_int_equal(caps.poster_copies, !far);
	assert_int_equal(caps.dc, !far);
	assert_true(caps.ordered_write);
	assert_int_equal(conn->poster_copies, !far);
	assert_int_equal(conn_dev(conn)->ops->probe(conn_dev(conn), conn->qp),
			 far ? -EOPNOTSUPP : 0);
	rc = rpc_conn_of(conn);
	assert_true(rc->fetches);
	assert_int_equal(rc->client.rx.rf.sums, far);
	assert_int_equal(rpc_conn_of(p.accepted)->mirror->sums, far);
	calls(&p, conn);
	pair_close(&p);
}

static void test_same_host(void **state)
{
	look("auto");
}

static void test_udp(void **state)
{
	look("udp");
}

static void test_tcp(void **state)
{
	look("tcp");
}

/* Of any QP to another host, before there is one. */
static void test_any(void **state)
{
	struct dev_caps caps;
	struct pair p;

	setenv("SKEIN_LINK", "auto", 1);
	pair_open(&p, NULL, NULL);
	dev_qp_caps(p.client->dev, NULL, &caps);
	assert_false(caps.ordered_read || caps.death_notice ||
		     caps.poster_copies || caps.dc);
	assert_true(caps.uc && caps.ud && caps.srq && caps.ordered_write);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_host),
		cmocka_unit_test(test_udp),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_any),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
