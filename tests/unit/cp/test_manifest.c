/* SPDX-License-Identifier: MIT */
/*
 * test_manifest.c - order, checks, encoding and layout of manifests.
 */
#include "cp/layout.h"
#include "cp/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/cm.h"

static struct cp_entry entry(enum cp_type type, const char *path)
{
	return (struct cp_entry){
		.type = type,
		.mode = 0644,
		.path = path,
		.path_len = (uint16_t)strlen(path),
		.link = "x",
	};
}

static int add(struct cp_manifest *m, enum cp_type type, const char *path)
{
	struct cp_entry e = entry(type, path);

	return cp_manifest_add(m, &e, NULL);
}

static void add_file(struct cp_manifest *m, const char *path, uint64_t size,
		     const struct cp_extent *x, uint32_t n)
{
	struct cp_entry e = entry(CP_FILE, path);

	e.size = size;
	e.extent = x;
	e.extents = n;
	e.mtime_ns = -1500000001;
	assert_int_equal(cp_manifest_add(m, &e, NULL), 0);
}

static void paths(void **state)
{
	char longest[CP_PATH_MAX + 2];

	assert_true(cp_path_ok("a", 1));
	assert_true(cp_path_ok("a/b.c/...", 9));
	assert_true(cp_path_ok("..a", 3));
	assert_false(cp_path_ok("", 0));
	assert_false(cp_path_ok("/a", 2));
	assert_false(cp_path_ok("a/", 2));
	assert_false(cp_path_ok("a//b", 4));
	assert_false(cp_path_ok(".", 1));
	assert_false(cp_path_ok("..", 2));
	assert_false(cp_path_ok("a/..", 4));
	assert_false(cp_path_ok("../a", 4));
	assert_false(cp_path_ok("a/./b", 5));
	assert_false(cp_path_ok("a\0b", 3));
	memset(longest, 'a', sizeof(longest));
	for (size_t i = 200; i < sizeof(longest); i += 201)
		longest[i] = '/';
	longest[CP_PATH_MAX - 1] = 'a';
	assert_true(cp_path_ok(longest, CP_PATH_MAX));
	assert_false(cp_path_ok(longest, CP_PATH_MAX + 1));
	memset(longest, 'a', sizeof(longest));
	assert_true(cp_path_ok(longest, CP_NAME_MAX));
	assert_false(cp_path_ok(longest, CP_NAME_MAX + 1));
	for (size_t i = 1; i < sizeof(longest); i += 2)
		longest[i] = '/';
	assert_true(cp_path_ok(longest, 2 * CP_DEPTH_MAX - 1));
	assert_false(cp_path_ok(longest, 2 * CP_DEPTH_MAX + 1));
}

static void order(void **state)
{
	assert_true(cp_path_cmp("a", "a") == 0);
	assert_true(cp_path_cmp("a", "a/b") < 0);
	assert_true(cp_path_cmp("a/b", "a!") < 0);
	assert_true(cp_path_cmp("a\x01", "a/b") > 0);
	assert_true(cp_path_cmp("a\xff", "ab") > 0);
}

static void there_and_back(void **state)
{
	static const struct cp_extent x[] = {{0, 10}, {4096, 5}};
	struct cp_manifest m = {.block_size = 4096}, got = {0};
	struct cp_err err = {""};
	uint8_t id[CP_ID_LEN], other[CP_ID_LEN];
	void *buf;
	size_t len;

	add_file(&m, "d/f", 5000, x, 2);
	assert_int_equal(add(&m, CP_DIR, "d"), 0);
	assert_int_equal(add(&m, CP_LINK, "d-l"), 0);
	add_file(&m, "d/empty", 0, NULL, 0);
	add_file(&m, "hole", 1 << 30, NULL, 0);
	assert_int_equal(cp_manifest_finish(&m, &err), 0);
	assert_int_equal(m.stream_len, 15);
	assert_int_equal(cp_manifest_encode(&m, &buf, &len), 0);
	assert_int_equal(cp_manifest_decode(buf, len, &got, &err), 0);
	assert_int_equal(got.n, 5);
	assert_string_equal(got.v[0].path, "d");
	assert_string_equal(got.v[1].path, "d/empty");
	assert_string_equal(got.v[2].path, "d/f");
	assert_string_equal(got.v[3].path, "d-l");
	assert_string_equal(got.v[3].link, "x");
	assert_int_equal(got.v[2].size, 5000);
	assert_int_equal(got.v[2].extents, 2);
	assert_int_equal(got.v[2].extent[1].off, 4096);
	assert_int_equal(got.v[2].mtime_ns, -1500000001);
	assert_int_equal(got.v[0].mode, 0644);
	assert_int_equal(got.stream_len, 15);
	assert_int_equal(cp_manifest_blocks(&got), 1);

	cp_manifest_id(buf, len, id);
	((uint8_t *)buf)[20] ^= 1;
	cp_manifest_id(buf, len, other);
	assert_memory_not_equal(id, other, CP_ID_LEN);
	free(buf);
	cp_manifest_fini(&got);
	cp_manifest_fini(&m);
}

static void no_order(const char *a, enum cp_type type, const char *b)
{
	struct cp_manifest m = {.block_size = 4096}, got = {0};
	struct cp_err err = {""};
	void *buf;
	size_t len;

	assert_int_equal(add(&m, type, a), 0);
	assert_int_equal(add(&m, CP_FILE, b), 0);
	assert_int_equal(cp_manifest_finish(&m, &err), -EINVAL);
	/* and such bytes of a peer */
	assert_int_equal(cp_manifest_encode(&m, &buf, &len), 0);
	assert_int_equal(cp_manifest_decode(buf, len, &got, &err), -EBADMSG);
	free(buf);
	cp_manifest_fini(&m);
}

static void what_is_below_what(void **state)
{
	no_order("l", CP_LINK, "l/f");
	no_order("f", CP_FILE, "f/f");
	no_order("d", CP_DIR, "d");
	no_order("d", CP_DIR, "e/f");
	no_order("d", CP_DIR, "d/e/f");
	no_order("d", CP_DIR, "dd/f");
}

static void unsorted(void **state)
{
	struct cp_manifest m = {.block_size = 4096}, got = {0};
	void *buf;
	size_t len;

	assert_int_equal(add(&m, CP_FILE, "b"), 0);
	assert_int_equal(add(&m, CP_FILE, "a"), 0);
	assert_int_equal(cp_manifest_encode(&m, &buf, &len), 0);
	assert_int_equal(cp_manifest_decode(buf, len, &got, NULL), -EBADMSG);
	free(buf);
	cp_manifest_fini(&m);
}

static int extents(uint64_t size, const struct cp_extent *x, uint32_t n)
{
	struct cp_manifest m = {.block_size = 4096};
	struct cp_entry e = entry(CP_FILE, "f");
	int rc;

	e.size = size;
	e.extent = x;
	e.extents = n;
	rc = cp_manifest_add(&m, &e, NULL);
	cp_manifest_fini(&m);
	return rc;
}

static void wrong_entries(void **state)
{
	static const struct cp_extent outside[] = {{5, 6}}, empty[] = {{0, 0}},
				      over[] = {{0, 5}, {4, 2}},
				      wraps[] = {{5, UINT64_MAX}},
				      huge[] = {{0, CP_STREAM_MAX + 1}};
	struct cp_manifest m = {.block_size = 4096};
	struct cp_entry e = entry(CP_FILE, "f");

	assert_int_equal(extents(10, outside, 1), -EINVAL);
	assert_int_equal(extents(10, empty, 1), -EINVAL);
	assert_int_equal(extents(10, over, 2), -EINVAL);
	assert_int_equal(extents(10, wraps, 1), -EINVAL);
	assert_int_equal(extents(1ull << 63, NULL, 0), -EINVAL);
	assert_int_equal(extents(1ull << 60, huge, 1), -E2BIG);
	e.mode = 04755;
	assert_int_equal(cp_manifest_add(&m, &e, NULL), -EINVAL);
	e = entry((enum cp_type)4, "f");
	assert_int_equal(cp_manifest_add(&m, &e, NULL), -EINVAL);
	e = entry(CP_LINK, "l");
	e.link = "";
	assert_int_equal(cp_manifest_add(&m, &e, NULL), -EINVAL);
	e = entry(CP_FILE, "../f");
	assert_int_equal(cp_manifest_add(&m, &e, NULL), -EINVAL);
	cp_manifest_fini(&m);
}

static void block_sizes(void **state)
{
	static const uint32_t bad[] = {0, 2048, 5000, 128u << 20};
	struct cp_manifest got;
	void *buf;
	size_t len;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct cp_manifest m = {.block_size = bad[i]};

		assert_int_equal(cp_manifest_encode(&m, &buf, &len), 0);
		assert_int_equal(cp_manifest_decode(buf, len, &got, NULL),
				 -EBADMSG);
		free(buf);
	}
}

static void many(void **state)
{
	struct cp_manifest m = {.block_size = 1 << 20}, got;
	struct cp_extent x = {0, 100};
	char path[32];
	void *buf;
	size_t len;

	assert_int_equal(add(&m, CP_DIR, "d"), 0);
	for (int i = 0; i < 50000; i++) {
		snprintf(path, sizeof(path), "d/%d", i);
		add_file(&m, path, 100, &x, 1);
	}
	assert_int_equal(cp_manifest_finish(&m, NULL), 0);
	assert_int_equal(cp_manifest_encode(&m, &buf, &len), 0);
	assert_int_equal(cp_manifest_decode(buf, len, &got, NULL), 0);
	assert_int_equal(got.n, 50001);
	assert_int_equal(got.stream_len, 5000000);
	free(buf);
	cp_manifest_fini(&got);
	cp_manifest_fini(&m);
}

static void layout(void **state)
{
	static const struct cp_extent x[] = {{100, 5000}, {10000, 96}};
	static const struct cp_extent y = {0, 4000};
	struct cp_manifest m = {.block_size = 4096};
	struct cp_layout l;
	struct cp_seg seg;
	uint64_t off;
	uint32_t len;

	add_file(&m, "a", 20000, x, 2);
	add_file(&m, "b", 0, NULL, 0);
	add_file(&m, "c", 4000, &y, 1);
	assert_int_equal(cp_manifest_finish(&m, NULL), 0);
	assert_int_equal(cp_layout_init(&l, &m), 0);
	assert_int_equal(l.len, 9096);
	assert_int_equal(cp_layout_blocks(&l), 3);
	cp_layout_block(&l, 2, &off, &len);
	assert_int_equal(off, 8192);
	assert_int_equal(len, 904);
	seg = cp_layout_at(&l, 4096, 4096);
	assert_int_equal(seg.entry, 0);
	assert_int_equal(seg.file_off, 4196);
	assert_int_equal(seg.len, 904);
	seg = cp_layout_at(&l, 5000, 4096);
	assert_int_equal(seg.file_off, 10000);
	assert_int_equal(seg.len, 96);
	seg = cp_layout_at(&l, 9095, 1);
	assert_int_equal(seg.entry, 2);
	assert_int_equal(seg.file_off, 3999);
	assert_int_equal(seg.len, 1);
	cp_layout_fini(&l);
	cp_manifest_fini(&m);
}

static void clean(const char *dirty, const char *want)
{
	char text[64];

	strcpy(text, dirty);
	cp_text_clean(text);
	assert_string_equal(text, want);
}

/* Names are any bytes, and come from elsewhere; they are shown on terminals and
 * in JSON. */
static void texts(void **state)
{
	struct cp_err err;

	clean("", "");
	clean("plain ~", "plain ~");
	clean("\33[2J\r\n\177", "?[2J???");
	clean("\303\244 \342\202\254 \360\237\246\206",
	      "\303\244 \342\202\254 \360\237\246\206");
	clean("\302\233x", "??x");		/* a control character, too */
	clean("\344x", "?x");			/* Latin */
	clean("x\342\202", "x??");		/* cut */
	clean("\300\257\340\200\257", "?????"); /* too long for what it is */
	clean("\355\240\200\364\220\200\200\377", "????????");
	cp_fail(&err, -EINVAL, "%s is bad", "\33]0;\7");
	assert_string_equal(err.text, "?]0;? is bad");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths),
		cmocka_unit_test(order),
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(what_is_below_what),
		cmocka_unit_test(unsorted),
		cmocka_unit_test(wrong_entries),
		cmocka_unit_test(block_sizes),
		cmocka_unit_test(many),
		cmocka_unit_test(layout),
		cmocka_unit_test(texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
