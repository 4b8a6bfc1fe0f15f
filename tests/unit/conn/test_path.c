/* SPDX-License-Identifier: MIT */
/*
 * test_path.c - struct skein_path: what it may say, who is heard first, what
 * the device is told, and that a connection's QPs have it at both ends.
 */
#include "unit/cm.h"

#include "conn/state.h"
#include "conn/setup/path.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An environment of pairs, ended by NULL. */
static const char *lookup(void *arg, const char *name)
{
	const char *const *pair;

	for (pair = arg; *pair; pair += 2)
		if (!strcmp(pair[0], name))
			return pair[1];
	return NULL;
}

static void test_default(void **state)
{
	const char *env[] = {NULL};
	struct skein_path own = {0}, path;
	struct dev_qp_opts opts;
	char err[160] = "";

	memset(&path, 0xff, sizeof(path));
	assert_int_equal(
		path_configure(&own, lookup, env, &path, err, sizeof(err)), 0);
	assert_string_equal(err, "");
	path_opts(&path, &opts);
	assert_int_equal(opts.mtu + opts.timeout + opts.retry_cnt +
				 opts.rnr_retry + opts.min_rnr_timer +
				 opts.traffic_class + opts.sl,
			 0);
}

/* The application's word, then the environment's; for each option alone. */
static void test_who(void **state)
{
	const char *env[] = {"SKEIN_PATH_MTU",
			     "1024",
			     "SKEIN_TRAFFIC_CLASS",
			     "106",
			     "SKEIN_SERVICE_LEVEL",
			     "15",
			     "SKEIN_RETRY_TIMEOUT",
			     "1s",
			     "SKEIN_RETRY_COUNT",
			     "3",
			     "SKEIN_RNR_RETRY",
			     "0",
			     NULL};
	struct skein_path own = {.mtu = 4096, .rnr_retry = 2}, path, conn;
	struct dev_qp_opts opts;
	char err[160] = "";

	assert_int_equal(
		path_configure(&own, lookup, env, &path, err, sizeof(err)), 0);
	path_opts(&path, &opts);
	assert_int_equal(opts.mtu, IBV_MTU_4096);
	assert_int_equal(opts.traffic_class, 106);
	assert_int_equal(opts.sl, 15);
	assert_int_equal(opts.timeout, 18); /* 1.07 s; 17 is 0.54 s */
	assert_int_equal(opts.retry_cnt, 3);
	assert_int_equal(opts.rnr_retry, 2);
	own = (struct skein_path){.traffic_class = 8};
	assert_int_equal(path_over(&own, &path, &conn, err, sizeof(err)), 0);
	path_opts(&conn, &opts);
	assert_int_equal(opts.traffic_class, 8);
	assert_int_equal(opts.mtu, IBV_MTU_4096);
}

static void refused(const char *name, const char *value, int rc,
		    const char *word)
{
	const char *env[] = {name, value, NULL};
	struct skein_path own = {0}, path = {.mtu = 7};
	char err[200] = "";

	assert_int_equal(
		path_configure(&own, lookup, env, &path, err, sizeof(err)), rc);
	assert_int_equal(path.mtu, 7);
	assert_non_null(strstr(err, name));
	assert_non_null(strstr(err, value));
	if (!strstr(err, word))
		fail_msg("no \"%s\" in \"%s\"", word, err);
	assert_null(strchr(err, '\n'));
}

static void test_bad_env(void **state)
{
	refused("SKEIN_PATH_MTU", "1500", -ERANGE, "2048 or 4096");
	refused("SKEIN_PATH_MTU", "128", -ERANGE, "2048 or 4096");
	refused("SKEIN_PATH_MTU", "8192", -ERANGE, "2048 or 4096");
	refused("SKEIN_PATH_MTU", "big", -EINVAL, "a number");
	refused("SKEIN_TRAFFIC_CLASS", "256", -ERANGE, "0 to 255");
	refused("SKEIN_TRAFFIC_CLASS", "-1", -EINVAL, "0 to 255");
	refused("SKEIN_SERVICE_LEVEL", "16", -ERANGE, "0 to 15");
	refused("SKEIN_RETRY_TIMEOUT", "70", -EINVAL, "70ms");
	refused("SKEIN_RETRY_TIMEOUT", "8797s", -ERANGE, "8796s");
	refused("SKEIN_RETRY_COUNT", "8", -ERANGE, "1 to 7");
	refused("SKEIN_RNR_RETRY", "4294967296", -ERANGE, "for ever");
}

static void test_bad_attr(void **state)
{
	struct skein_path base = {0}, path = {.mtu = 7}, own;
	char err[160];

#define BAD(field, value)                                            \
	do {                                                         \
		own = (struct skein_path){.field = (value)};         \
		assert_int_equal(path_over(&own, &base, &path, err,  \
					   sizeof(err)),             \
				 -ERANGE);                           \
		assert_non_null(strstr(err, "path." #field " is ")); \
		assert_int_equal(path.mtu, 7);                       \
	} while (0)
	BAD(mtu, 1500);
	BAD(mtu, 1);
	BAD(traffic_class, 256);
	BAD(service_level, 16);
	BAD(retry_count, 8);
	BAD(rnr_retry, 8);
	BAD(retry_timeout_ns, 8797 * 1000000000ull);
}

static int exponent(uint64_t ns)
{
	struct skein_path path = {.retry_timeout_ns = ns};
	struct dev_qp_opts opts;

	path_opts(&path, &opts);
	return opts.timeout;
}

static void test_exponent(void **state)
{
	assert_int_equal(exponent(1), 1); /* 0 would be: never */
	assert_int_equal(exponent(8192), 1);
	assert_int_equal(exponent(8193), 2);
	assert_int_equal(exponent(67108864), 14);
	assert_int_equal(exponent(67108865), 15);
	assert_int_equal(exponent(4096ull << 31), 31);
}

/* --- a connection ------------------------------------------------------ */

static _Atomic(struct skein_conn *) accepted;
static char last_log[512];

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	if (state == SKEIN_CONN_READY)
		accepted = conn;
}

static void on_log(void *arg, enum skein_log_level level, const char *line)
{
	snprintf(last_log, sizeof(last_log), "%s", line);
}

static struct ibv_qp_attr qp_attr(struct skein_conn *conn)
{
	struct dev *dev = conn->eng->dev;
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init;

	assert_int_equal(
		dev->ops->query_qp(dev, conn->qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY,
				   &init),
		0);
	return attr;
}

/* Both ends' connections are open: one call of look. */
static void with_pair(struct skein_ctx_attr *sa, struct skein_ctx_attr *ca,
		      struct skein_conn_attr *attr,
		      void (*look)(struct skein_conn *conn))
{
	struct skein_listener_attr la = {.size = sizeof(la),
					 .on_conn = on_conn};
	struct skein_listener *listener;
	struct skein_ctx *server, *client;
	struct skein_conn *conn;

	accepted = NULL;
	sa->background = true;
	assert_int_equal(skein_ctx_open(sa, &server), 0);
	assert_int_equal(skein_ctx_open(ca, &client), 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &la, &listener), 0);
	assert_int_equal(skein_conn_open(client, skein_listener_addr(listener),
					 attr, &conn),
			 0);
	while (!accepted)
		skein_ctx_progress(client);
	look(conn);
	skein_conn_close(conn, SKEIN_S(1));
	skein_listener_close(listener);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

static void look_qps(struct skein_conn *conn)
{
	struct ibv_qp_attr a = qp_attr(conn), b = qp_attr(accepted);

	/* The smaller one, at both ends. */
	assert_int_equal(a.path_mtu, IBV_MTU_2048);
	assert_int_equal(b.path_mtu, IBV_MTU_2048);
	assert_int_equal(a.timeout, 9);
	assert_int_equal(a.retry_cnt, 7);
	assert_int_equal(a.rnr_retry, 6);
	assert_int_equal(a.ah_attr.grh.traffic_class, 104);
	assert_int_equal(b.timeout, 14);
	assert_int_equal(b.retry_cnt, 5);
	assert_int_equal(b.rnr_retry, 7);
	assert_int_equal(b.ah_attr.grh.traffic_class, 0);
	assert_int_equal(skein_conn_timeout(conn), 8 * (4096ull << 9));
	assert_int_equal(skein_conn_timeout(accepted), 6 * (4096ull << 14));
}

static void test_qps(void **state)
{
	struct skein_ctx_attr sa = {.size = sizeof(sa),
				    .device = "soft",
				    .path = {.mtu = 2048, .retry_count = 5}};
	struct skein_ctx_attr ca = {.size = sizeof(ca),
				    .device = "soft",
				    .path = {.traffic_class = 104}};
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .path = {.mtu = 4096,
						.retry_timeout_ns = SKEIN_MS(2),
						.rnr_retry = 6}};

	with_pair(&sa, &ca, &attr, look_qps);
}

/* What others set is theirs. A cable may be out for 15 s, and TCP try again when
 * twice as long is over. */
static void look_link(struct skein_conn *conn)
{
	assert_int_equal(qp_attr(conn).timeout, 20);
	assert_int_equal(qp_attr(conn).retry_cnt, 7);
	assert_true(skein_conn_timeout(conn) > SKEIN_S(30));
	assert_int_equal(qp_attr(accepted).timeout, 14);
}

static void test_link(void **state)
{
	struct skein_ctx_attr sa = {.size = sizeof(sa),
				    .device = "soft",
				    .path = {.retry_timeout_ns = SKEIN_MS(67)}};
	struct skein_ctx_attr ca = {.size = sizeof(ca), .device = "soft"};

	setenv("SKEIN_LINK", "udp", 1);
	with_pair(&sa, &ca, NULL, look_link);
	unsetenv("SKEIN_LINK");
}

static void test_open_refused(void **state)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca),
				    .device = "soft",
				    .log = on_log,
				    .path = {.mtu = 1500}};
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .path = {.retry_count = 9}};
	struct skein_ctx *ctx = NULL;
	struct skein_conn *conn = NULL;

	assert_int_equal(skein_ctx_open(&ca, &ctx), -ERANGE);
	assert_null(ctx);
	assert_non_null(strstr(last_log, "path.mtu is 1500"));
	ca.path.mtu = 0;
	setenv("SKEIN_PATH_MTU", "9000", 1);
	assert_int_equal(skein_ctx_open(&ca, &ctx), -ERANGE);
	assert_non_null(strstr(last_log, "SKEIN_PATH_MTU=9000"));
	unsetenv("SKEIN_PATH_MTU");
	assert_int_equal(skein_ctx_open(&ca, &ctx), 0);
	assert_int_equal(skein_conn_open(ctx, "127.0.0.1:1", &attr, &conn),
			 -ERANGE);
	assert_null(conn);
	assert_non_null(strstr(last_log, "path.retry_count is 9"));
	skein_ctx_close(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_default),
		cmocka_unit_test(test_who),
		cmocka_unit_test(test_bad_env),
		cmocka_unit_test(test_bad_attr),
		cmocka_unit_test(test_exponent),
		cmocka_unit_test(test_qps),
		cmocka_unit_test(test_link),
		cmocka_unit_test(test_open_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
