/* SPDX-License-Identifier: MIT */
/*
 * test_calib_file.c - the file of a calibration: kept in the cache directory,
 * read once, by a handle that chooses; what is damaged or foreign is one line
 * of the log, and what is not wanted is not read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "served.h"
#include "conn/ctx.h"
#include "env/cache_file.h"
#include "rpc/client/lane_client.h"

static const struct rpc_calib some = {
	.n_times = 2,
	.n_reads = 1,
	.times = {{0, 1000, 1500}, {25600, 300, 200}},
	.reads = {{64, 5000}},
};

static char folder[64], path[RPC_CALIB_PATH_MAX], logged[512];
static unsigned lines;
static struct skein_ctx *ctx;

static void keep_line(void *arg, enum skein_log_level level, const char *line)
{
	if (!strstr(line, "calibration"))
		return;
	lines++;
	snprintf(logged, sizeof(logged), "%s", line);
}

static struct rpc_ctx *rpc(void)
{
	return conn_ctx_module(ctx, CONN_MODULE_RPC);
}

/* setting NULL: none. Without one, and with "off", the device passes for one
 * that copies by itself. */
static void open_ctx(const char *setting)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .log = keep_line};
	bool copies;

	if (setting)
		setenv("SKEIN_RPC_CALIBRATION", setting, 1);
	else
		unsetenv("SKEIN_RPC_CALIBRATION");
	lines = 0;
	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	assert_int_equal(rpc_calib_path(ctx->dev, path), 0);
	if (setting && strcmp(setting, "off") != 0)
		return;
	copies = ctx->dev->caps.poster_copies;
	if (copies)
		assert_string_equal(rpc()->calib_file.path, "");
	ctx->dev->caps.poster_copies = false;
	rpc_calib_file_init(&rpc()->calib_file, ctx->dev,
			    rpc()->conf.calibration);
	ctx->dev->caps.poster_copies = copies;
}

static const struct rpc_calib *get(void)
{
	return rpc_calib_file_get(&rpc()->calib_file, ctx->dev);
}

static void put(void)
{
	assert_int_equal(rpc_calib_file_put(ctx->dev, path, false, &some), 0);
}

static void test_kept(void **state)
{
	struct stat st;

	open_ctx(NULL);
	put();
	assert_int_equal(strncmp(path, folder, strlen(folder)), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	put(); /* over the one that is there */
	assert_non_null(get());
	assert_memory_equal(get(), &some, sizeof(some));
	assert_int_equal(lines, 0);
	skein_ctx_close(ctx);
}

/* No file: no word. Read once: what comes later is not seen. */
static void test_once(void **state)
{
	open_ctx(NULL);
	assert_int_equal(unlink(path), 0);
	assert_null(get());
	put();
	assert_null(get());
	assert_int_equal(lines, 0);
	skein_ctx_close(ctx);
}

static void test_off(void **state)
{
	open_ctx("off");
	put();
	assert_string_equal(rpc()->calib_file.path, "");
	assert_null(get());
	skein_ctx_close(ctx);
}

static void test_named(void **state)
{
	char other[128];

	snprintf(other, sizeof(other), "%s/other", folder);
	open_ctx(other);
	assert_null(get());
	assert_null(get());
	assert_int_equal(lines, 1);
	assert_non_null(strstr(logged, "No such file"));
	skein_ctx_close(ctx);

	open_ctx(other);
	assert_int_equal(rpc_calib_file_put(ctx->dev, other, true, &some), 0);
	assert_non_null(get());
	skein_ctx_close(ctx);
}

/* A line that says what is wrong, and no calibration. */
static void refused(const char *text, size_t len, const char *because)
{
	open_ctx(NULL);
	assert_int_equal(cache_file_write(path, text, len), 0);
	assert_null(get());
	assert_null(get());
	assert_int_equal(lines, 1);
	if (!strstr(logged, because))
		fail_msg("%s", logged);
	skein_ctx_close(ctx);
}

static void test_useless(void **state)
{
	static char large[RPC_CALIB_TEXT_MAX + 1];
	char text[RPC_CALIB_TEXT_MAX], key[RPC_CALIB_KEY_MAX];
	size_t len;

	open_ctx("off");
	rpc_calib_key(ctx->dev, key);
	skein_ctx_close(ctx);
	assert_non_null(strstr(key, skein_version()));
	len = rpc_calib_encode(&some, key, text, sizeof(text));
	refused(text, len - 1, "damaged");
	refused("", 0, "damaged");
	refused(large, sizeof(large), "too large");
	key[strlen(key) - 1]++; /* another version */
	len = rpc_calib_encode(&some, key, text, sizeof(text));
	refused(text, len, "another device, firmware or version");
}

/* A folder, or a FIFO, in its place: no wait for a writer. */
static void test_no_file(void **state)
{
	open_ctx(folder);
	assert_null(get());
	assert_int_equal(lines, 1);
	skein_ctx_close(ctx);
	open_ctx(NULL);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_null(get());
	assert_int_equal(lines, 1);
	unlink(path);
	skein_ctx_close(ctx);
}

static void test_home(void **state)
{
	char at[64];

	unsetenv("XDG_CACHE_HOME");
	setenv("HOME", "/h", 1);
	assert_int_equal(cache_file_path("n", at, sizeof(at)), 0);
	assert_string_equal(at, "/h/.cache/skein/n");
	assert_int_equal(cache_file_path("n", at, strlen(at)), -ENAMETOOLONG);
	setenv("XDG_CACHE_HOME", "relative", 1);
	assert_int_equal(cache_file_path("n", at, sizeof(at)), 0);
	assert_string_equal(at, "/h/.cache/skein/n");
	unsetenv("HOME");
	assert_int_equal(cache_file_path("n", at, sizeof(at)), -ENOENT);
	setenv("XDG_CACHE_HOME", folder, 1);
}

static int nothing(struct skein_ctx *served)
{
	return 0;
}

static const struct rpc_calib *of_handle(const char *addr,
					 enum skein_return mode)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .return_mode = mode};
	const struct rpc_calib *calib;
	const struct rpc_modes *modes;
	struct skein_conn *conn;

	assert_int_equal(skein_conn_open(ctx, addr, &attr, &conn), 0);
	modes = rpc_conn_of(conn)->modes;
	calib = modes ? modes->calib : NULL;
	assert_true(!modes || modes->decide == (mode == SKEIN_RETURN_AUTO));
	assert_true(!modes || (modes->sizes != NULL) == (calib != NULL));
	skein_conn_close(conn, SKEIN_S(10));
	return calib;
}

/* Only a handle that fetches looks for it: one that decides may do without. */
static void test_handle(void **state)
{
	char addr[SERVED_ADDR];
	pid_t pid = served_start(SKEIN_WAIT_ADAPTIVE, nothing, addr);

	open_ctx(NULL);
	put();
	assert_null(of_handle(addr, SKEIN_RETURN_REPLY));
	assert_false(rpc()->calib_file.looked);
	assert_non_null(of_handle(addr, SKEIN_RETURN_FETCH));
	assert_ptr_equal(of_handle(addr, SKEIN_RETURN_FETCH), get());
	assert_ptr_equal(of_handle(addr, SKEIN_RETURN_AUTO), get());
	skein_ctx_close(ctx);
	open_ctx("off");
	assert_null(of_handle(addr, SKEIN_RETURN_FETCH));
	assert_null(of_handle(addr, SKEIN_RETURN_AUTO));
	skein_ctx_close(ctx);
	served_stop(pid);
}

static int make_folder(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/skein-calib-XXXXXX");
	return !mkdtemp(folder) || setenv("XDG_CACHE_HOME", folder, 1);
}

static int drop_folder(void **state)
{
	char words[128];

	snprintf(words, sizeof(words), "rm -r %s", folder);
	return system(words);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept),	cmocka_unit_test(test_once),
		cmocka_unit_test(test_off),	cmocka_unit_test(test_named),
		cmocka_unit_test(test_useless), cmocka_unit_test(test_no_file),
		cmocka_unit_test(test_handle),	cmocka_unit_test(test_home),
	};

	return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
