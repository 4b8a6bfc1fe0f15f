/* SPDX-License-Identifier: MIT */
/*
 * test_conf.c - rows: defaults, values of every kind, and the error lines.
 */
#include <errno.h>
#include <string.h>

#include "base/conf.h"
#include "unit/cm.h"

enum color {
	RED,
	GREEN
};

struct opts {
	size_t ring;
	uint64_t timeout_ns, big;
	uint32_t depth;
	int color;
	bool harsh;
	const char *device;
};

static const char *const colors[] = {"red", "green", NULL};

static const struct conf_row rows[] = {
	CONF_ROW(struct opts, ring, "RING", "4M", "bytes", conf_size, NULL),
	CONF_ROW(struct opts, timeout_ns, "TIMEOUT", "10ms", "how long",
		 conf_time, NULL),
	CONF_ROW(struct opts, big, "BIG", "7", "a count", conf_u64, NULL),
	CONF_ROW(struct opts, depth, "DEPTH", "128", "a depth", conf_u32, NULL),
	CONF_ROW(struct opts, color, "COLOR", "green", "a colour", conf_enum,
		 colors),
	CONF_ROW(struct opts, harsh, "HARSH", "no", "be harsh", conf_bool,
		 NULL),
	CONF_ROW(struct opts, device, "DEVICE", "soft", "the device",
		 conf_string, NULL),
	CONF_END,
};

static void test_defaults(void **state)
{
	struct opts o;

	(void)state;
	conf_defaults(rows, &o);
	assert_int_equal(o.ring, 4 << 20);
	assert_int_equal(o.timeout_ns, 10 * 1000 * 1000);
	assert_int_equal(o.big, 7);
	assert_int_equal(o.depth, 128);
	assert_int_equal(o.color, GREEN);
	assert_false(o.harsh);
	assert_string_equal(o.device, "soft");
}

static void expect(const char *name, const char *value, int rc)
{
	char err[256] = "";
	struct opts o;

	conf_defaults(rows, &o);
	assert_int_equal(conf_set(rows, &o, name, value, err, sizeof(err)), rc);
	assert_int_equal(err[0] != 0, rc != 0);
}

static void test_bad_values(void **state)
{
	(void)state;
	expect("RING", "", -EINVAL);
	expect("RING", "4X", -EINVAL);
	expect("RING", "-1", -EINVAL);
	expect("RING", "4 M", -EINVAL);
	expect("RING", "M", -EINVAL);
	expect("RING", "4iB", -EINVAL);
	expect("RING", "18446744073709551616", -ERANGE);
	expect("RING", "16777216T", -ERANGE);
	expect("TIMEOUT", "10", -EINVAL);
	expect("TIMEOUT", "1.s", -EINVAL);
	expect("TIMEOUT", "99999999999999s", -ERANGE);
	expect("DEPTH", "4294967296", -ERANGE);
	expect("DEPTH", "4294967295", 0);
	expect("DEPTH", "0x10", -EINVAL);
	expect("DEPTH", "1.5", -EINVAL);
	expect("COLOR", "blue", -EINVAL);
	expect("HARSH", "maybe", -EINVAL);
	expect("NOTHING", "1", -ENOENT);
}

static uint64_t size_of(const char *s)
{
	uint64_t v = 0;

	assert_int_equal(conf_parse_size(s, &v), 0);
	return v;
}

static uint64_t time_of(const char *s)
{
	uint64_t v = 0;

	assert_int_equal(conf_parse_time(s, &v), 0);
	return v;
}

static void test_units(void **state)
{
	(void)state;
	assert_true(size_of("0") == 0);
	assert_true(size_of("4096") == 4096);
	assert_true(size_of("4096B") == 4096);
	assert_true(size_of("64k") == 65536);
	assert_true(size_of("1.5K") == 1536);
	assert_true(size_of("2KiB") == 2048);
	assert_true(size_of("2MB") == 2u << 20);
	assert_true(size_of("1G") == 1u << 30);
	assert_true(size_of("2T") == 2ull << 40);
	assert_true(time_of("0") == 0);
	assert_true(time_of("250ns") == 250);
	assert_true(time_of("50us") == 50000);
	assert_true(time_of("1.5s") == 1500000000);
	assert_true(time_of("0.000000001s") == 1);
	assert_true(time_of("2m") == 120000000000ull);
}

static void test_error_line(void **state)
{
	char err[256];
	struct opts o;

	(void)state;
	conf_defaults(rows, &o);
	conf_set(rows, &o, "color", "blue", err, sizeof(err));
	assert_string_equal(err, "SKEIN_COLOR=blue: not understood; expected "
				 "one of red green (a colour)");
	assert_int_equal(o.color, GREEN);
	conf_set(rows, &o, "ring", "4X", err, sizeof(err));
	assert_non_null(strstr(err, "SKEIN_RING=4X"));
	assert_null(strchr(err, '\n'));
	assert_int_equal(o.ring, 4 << 20);
	conf_set(rows, &o, "ring", "4X", err, 8); /* cut, never overrun */
	assert_string_equal(err, "SKEIN_R");
}

static const char *lookup(void *arg, const char *name)
{
	const char **pair = arg;

	for (; *pair; pair += 2)
		if (!strcmp(*pair, name))
			return pair[1];
	return NULL;
}

static void test_load(void **state)
{
	const char *good[] = {"SKEIN_DEPTH", "9", "SKEIN_HARSH", "ON",
			      "RING",	     "1", NULL};
	const char *bad[] = {"SKEIN_TIMEOUT", "soon", NULL};
	struct opts o;
	char err[256];

	(void)state;
	conf_defaults(rows, &o);
	assert_int_equal(conf_load(rows, &o, lookup, good, err, sizeof(err)),
			 0);
	assert_int_equal(o.depth, 9);
	assert_true(o.harsh);
	assert_int_equal(o.ring, 4 << 20);
	assert_int_equal(conf_load(rows, &o, lookup, bad, err, sizeof(err)),
			 -EINVAL);
	assert_non_null(strstr(err, "SKEIN_TIMEOUT=soon"));
}

struct ranges {
	size_t ring;
	uint64_t every_ns;
	uint32_t n;
};

static const struct conf_row ranged[] = {
	CONF_RANGE(struct ranges, ring, "RING", "4K", "bytes", conf_size, 1024,
		   65536),
	CONF_RANGE(struct ranges, every_ns, "EVERY", "1ms", "how often",
		   conf_time, 100000, 3600000000000),
	CONF_RANGE(struct ranges, n, "N", "7", "a count", conf_u32, 7, 0),
	CONF_END};

static void outside(const char *name, const char *value, const char *says)
{
	struct ranges r, before;
	char err[256] = "";

	conf_defaults(ranged, &r);
	before = r;
	assert_int_equal(conf_set(ranged, &r, name, value, err, sizeof(err)),
			 -ERANGE);
	if (!strstr(err, says) || !strstr(err, value))
		fail_msg("%s", err);
	assert_int_equal(r.ring, before.ring);
	assert_int_equal(r.every_ns, before.every_ns);
	assert_int_equal(r.n, before.n);
}

/* The line has the setting, the value and the range, as it may be written. */
static void test_range(void **state)
{
	struct ranges r;
	char err[256];

	(void)state;
	outside("RING", "1023", "4M, from 1K to 64K (bytes)");
	outside("RING", "65K", "SKEIN_RING=65K: out of range");
	outside("EVERY", "99us", ", from 100us to 60m");
	outside("EVERY", "3601s", "SKEIN_EVERY=3601s");
	outside("N", "6", "a number, at least 7 (");
	conf_defaults(ranged, &r);
	assert_int_equal(conf_set(ranged, &r, "RING", "1K", err, 256), 0);
	assert_int_equal(conf_set(ranged, &r, "RING", "64K", err, 256), 0);
	assert_int_equal(conf_set(ranged, &r, "N", "4000000000", err, 256), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_error_line),
		cmocka_unit_test(test_load),
		cmocka_unit_test(test_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
