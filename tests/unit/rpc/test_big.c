/* SPDX-License-Identifier: MIT */
/*
 * test_big.c - requests and responses of up to 4 GiB less one byte, in pieces
 * that a device can READ: on a private connection, and on a handle of two QPs.
 * Wants 20 GiB of free memory, else it is skipped.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/cm.h"
#include <skein/skein.h>

#define NEED_KIB (20ull << 20)
#define STRIDE 65537u
#define PATIENCE SKEIN_S(200)

static uint64_t available_kib(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	unsigned long long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* A mark here and there, and at the end: that every byte is at its place. */
static void mark(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i += STRIDE)
		p[i] = (uint8_t)(i / STRIDE + 1);
	p[len - 1] = 0x77;
}

static bool marked(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i + 1 < len; i += STRIDE)
		if (p[i] != (uint8_t)(i / STRIDE + 1) || (i && p[i - 1]))
			return false;
	return p[len - 1] == 0x77;
}

static int on_request(struct skein_rpc_req *req, void *arg)
{
	uint64_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, sizeof(len));

	if (!marked(skein_rpc_req_data(req), len))
		return -EBADMSG;
	memcpy(resp, &len, sizeof(len));
	return 0;
}

static int on_response(struct skein_rpc_req *req, void *arg)
{
	uint8_t *resp;
	uint64_t len;

	memcpy(&len, skein_rpc_req_data(req), sizeof(len));
	resp = skein_rpc_resp_buf(req, len);
	if (!resp)
		return -ENOMEM;
	mark(resp, len);
	return 0;
}

static void big_calls(struct skein_conn *conn)
{
	const uint64_t len = SKEIN_RPC_LEN_MAX;
	uint8_t *buf = calloc(1, len);
	struct skein_rpc_result res;
	uint64_t got = 0;

	assert_non_null(buf);
	mark(buf, len);
	assert_int_equal(skein_rpc_call(conn, 1, buf, len, &got, sizeof(got),
					PATIENCE, &res),
			 0);
	assert_true(got == len);
	free(buf);
	buf = calloc(1, len);
	assert_non_null(buf);
	assert_int_equal(skein_rpc_call(conn, 2, &len, sizeof(len), buf, len,
					PATIENCE, &res),
			 0);
	assert_true(res.len == len);
	assert_true(marked(buf, len));
	free(buf);
	assert_int_equal(skein_rpc_call(conn, 1, &got,
					(size_t)SKEIN_RPC_LEN_MAX + 1, NULL, 0,
					PATIENCE, NULL),
			 -EMSGSIZE);
}

static void big(unsigned qps)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .background = true};
	struct skein_conn_attr conn_attr = {.size = sizeof(conn_attr),
					    .qps = qps};
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;

	if (available_kib() < NEED_KIB) {
		print_message("skipped: %llu MiB of memory are free, and "
			      "%llu are wanted\n",
			      (unsigned long long)available_kib() >> 10,
			      NEED_KIB >> 10);
		skip();
	}
	assert_int_equal(skein_ctx_open(&attr, &server), 0);
	attr.background = false;
	assert_int_equal(skein_ctx_open(&attr, &client), 0);
	assert_int_equal(skein_rpc_handle(server, 1, on_request, NULL), 0);
	assert_int_equal(skein_rpc_handle(server, 2, on_response, NULL), 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", NULL, &listener), 0);
	assert_int_equal(skein_conn_open(client, skein_listener_addr(listener),
					 &conn_attr, &conn),
			 0);
	big_calls(conn);
	skein_conn_close(conn, SKEIN_S(1));
	skein_ctx_close(client);
	skein_ctx_close(server);
}

static void test_big(void **state)
{
	big(0);
}

static void test_big_shared(void **state)
{
	big(2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_big),
		cmocka_unit_test(test_big_shared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
