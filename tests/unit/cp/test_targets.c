/* SPDX-License-Identifier: MIT */
/*
 * test_targets.c - lists of targets: what they expand to, what is refused and
 * where, files of them, names that come twice.
 */
#include "cp/sender/racks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit/cm.h"

/* "HOST:PORT:PATH ..." of all, 0 and "-" where there is none. */
static void expect(const char *text, const char *want)
{
	struct cp_targets t = {0};
	struct cp_err err = {""};
	char got[4096] = "";
	size_t len = 0;
	int rc = cp_targets_add(&t, text, true, &err);

	if (rc)
		fail_msg("%s: %s", text, err.text);
	for (size_t i = 0; i < t.n; i++)
		len += (size_t)snprintf(got + len, sizeof(got) - len,
					"%s%s:%u:%s", i ? " " : "", t.v[i].host,
					t.v[i].port,
					t.v[i].path ? t.v[i].path : "-");
	assert_string_equal(got, want);
	cp_targets_fini(&t);
}

static void refuse(const char *text, const char *why)
{
	struct cp_targets t = {0};
	struct cp_err err = {""};

	assert_int_equal(cp_targets_add(&t, text, true, &err), -EINVAL);
	if (!strstr(err.text, why))
		fail_msg("%s: \"%s\" does not say \"%s\"", text, err.text, why);
	cp_targets_fini(&t);
}

static void what_is_taken(void **state)
{
	expect("node1", "node1:0:-");
	expect("node1:7450", "node1:7450:-");
	expect("node1:/data", "node1:0:/data");
	expect("node1:7450:/data/x", "node1:7450:/data/x");
	expect("node1:models/new", "node1:0:models/new");
	expect("node1:7450x", "node1:0:7450x");
	expect("a,b:1,c:/d", "a:0:- b:1:- c:0:/d");
	expect("me@host:/x", "me@host:0:/x");
	expect("[::1]", "[::1]:0:-");
	expect("[fe80::1%eth0]:7:/d,10.0.0.1",
	       "[fe80::1%eth0]:7:/d 10.0.0.1:0:-");
}

static void ranges(void **state)
{
	expect("h[1-3]:/data", "h1:0:/data h2:0:/data h3:0:/data");
	expect("h[08-10,15]", "h08:0:- h09:0:- h10:0:- h15:0:-");
	expect("h[8-10]", "h8:0:- h9:0:- h10:0:-");
	expect("[1-2].x.y:5", "1.x.y:5:- 2.x.y:5:-");
	expect("r[1-2]n[3,4]e", "r1n3e:0:- r1n4e:0:- r2n3e:0:- r2n4e:0:-");
	expect("h[7],g", "h7:0:- g:0:-");
	expect("h[001-002]", "h001:0:- h002:0:-");
}

static void what_is_refused(void **state)
{
	refuse("", "at the end: a host is missing");
	refuse("a,,b", "character 3, at \",b\": a host is missing");
	refuse("a,", "at the end: a host is missing");
	refuse("h[1-]", "character 5, at \"]\": a range wants a number");
	refuse("h[5-3]", "character 3, at \"5-3]\": the range ends before");
	refuse("h[1-3", "character 2, at \"[1-3\": the bracket is not closed");
	refuse("h[1-3;4]", "character 6, at \";4]\": only 1-9");
	refuse("h[]", "character 3, at \"]\": a range wants a number");
	refuse("h[1-99999]", "the range is too long");
	refuse("h[1-9999999999]", "the number is too large");
	refuse("h:0", "character 3, at \"0\": a port is from 1");
	refuse("h:65536:/d", "a port is from 1");
	refuse("h:", "a path is missing");
	refuse("h:7:", "a path is missing");
	refuse("fe80::1", "an IPv6 address stands in brackets");
	refuse("h:/a[1-2]", "no path has that here");
	refuse("h:/a\n", "no path has that here");
	refuse("a b", "character 2, at \" b\": no host has that here");
	refuse("a/b", "no host has that here");
	refuse("@", "a file's name is missing");
	refuse("h[1-2][1-2][1-2][1-2][1-2]", "too many brackets");
}

static void too_many(void **state)
{
	struct cp_targets t = {0};
	struct cp_err err;

	assert_int_equal(cp_targets_add(&t, "h[1-64][1-64]", false, &err), 0);
	assert_int_equal(t.n, CP_TARGETS_MAX);
	assert_int_equal(cp_targets_add(&t, "x", false, &err), -E2BIG);
	cp_targets_fini(&t);
}

static void a_long_host(void **state)
{
	char text[400];

	memset(text, 'a', sizeof(text));
	text[300] = 0;
	refuse(text, "the host is too long");
	text[CP_HOST_MAX - 1] = 0;
	strcat(text, "[10]");
	refuse(text, "the host is too long");
}

static void write_file(char *name, const char *text)
{
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void files(void **state)
{
	char name[] = "/tmp/skein-targets-XXXXXX", text[100];
	struct cp_targets t = {0};
	struct cp_err err;

	write_file(name, "# all\na[1-2]:/d  b\n\n\tc:7 # the last\nd,e");
	snprintf(text, sizeof(text), "x,@%s,y", name);
	expect(text, "x:0:- a1:0:/d a2:0:/d b:0:- c:7:- d:0:- e:0:- y:0:-");
	unlink(name);

	snprintf(text, sizeof(text), "@%s", name);
	assert_int_equal(cp_targets_add(&t, text, true, &err), -ENOENT);
	assert_non_null(strstr(err.text, name));
	assert_int_equal(cp_targets_add(&t, text, false, &err), -EINVAL);
	cp_targets_fini(&t);
}

static void errors_in_files(void **state)
{
	char name[] = "/tmp/skein-targets-XXXXXX", want[100];
	struct cp_targets t = {0};
	struct cp_err err;

	write_file(name, "a\n  b c[2-1]\n");
	assert_int_equal(cp_targets_add_file(&t, name, &err), -EINVAL);
	snprintf(want, sizeof(want), "%s, line 2, character 7, at \"2-1]\"",
		 name);
	assert_non_null(strstr(err.text, want));
	unlink(name);
	strcpy(name + strlen(name) - 6, "XXXXXX");
	/* a file in a file */
	write_file(name, "@x\n");
	assert_int_equal(cp_targets_add_file(&t, name, &err), -EINVAL);
	unlink(name);
	cp_targets_fini(&t);
}

static int check(const char *text, bool by_path)
{
	struct cp_targets t = {0};
	struct cp_err err;
	int rc;

	assert_int_equal(cp_targets_add(&t, text, false, &err), 0);
	rc = cp_targets_check(&t, by_path, &err);
	if (rc)
		assert_non_null(strstr(err.text, "is named twice"));
	cp_targets_fini(&t);
	return rc;
}

static void twice(void **state)
{
	struct cp_targets none = {0};

	assert_int_equal(check("a,b,A", false), -EINVAL);
	assert_int_equal(check("n[1-9],n[07-08]", false), 0);
	assert_int_equal(check("n[1-9],n[7-8]", false), -EINVAL);
	assert_int_equal(check("a:1,a:2", false), 0);
	assert_int_equal(check("a:1:/x,b,a:1:/y", false), -EINVAL);
	assert_int_equal(check("a:1:/x,b,a:1:/y", true), 0);
	assert_int_equal(check("a:/x,a:/y,a:/x", true), -EINVAL);
	assert_int_equal(cp_targets_check(&none, false, NULL), -EINVAL);
}

static int racks_of(const char *text, const char *hosts, const char *self,
		    const uint32_t *want)
{
	char name[] = "/tmp/skein-racks-XXXXXX";
	struct cp_targets t = {0};
	struct cp_err err = {""};
	uint32_t *rack;
	int rc;

	write_file(name, text);
	assert_int_equal(cp_targets_add(&t, hosts, false, &err), 0);
	rc = cp_racks_read(name, &t, self, &rack, &err);
	if (rc) {
		assert_non_null(strstr(err.text, name));
	} else {
		assert_memory_equal(rack, want, (t.n + 1) * sizeof(*want));
		free(rack);
	}
	unlink(name);
	cp_targets_fini(&t);
	return rc;
}

static void racks(void **state)
{
	static const char text[] = "# a line is a rack\n"
				   "r1n[1-32] gpu1\n"
				   "\n"
				   "r2n1,[::1]  # and more\n";

	assert_int_equal(racks_of(text, "r2n1:7,me@R1n32,[::1]:/x", "head",
				  (const uint32_t[]){0, 4, 2, 4}),
			 0);
	assert_int_equal(racks_of(text, "r1n7,r1n7:2", "gpu1.example",
				  (const uint32_t[]){2, 2, 2}),
			 0);
	assert_int_equal(racks_of(text, "r1n33", "head", NULL), -EINVAL);
	assert_int_equal(racks_of("a:1\n", "a", "head", NULL), -EINVAL);
	assert_int_equal(racks_of("a/x\n", "a", "head", NULL), -EINVAL);
}

static void racks_that_overlap(void **state)
{
	char name[] = "/tmp/skein-racks-XXXXXX";
	struct cp_targets t = {0};
	struct cp_err err;
	uint32_t *rack;

	write_file(name, "n[1-4]\nn[4-8]\n");
	assert_int_equal(cp_targets_add(&t, "n1", false, &err), 0);
	assert_int_equal(cp_racks_read(name, &t, "head", &rack, &err), -EINVAL);
	assert_non_null(strstr(err.text, "n4 is named twice"));
	unlink(name);
	cp_targets_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_taken),
		cmocka_unit_test(ranges),
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(too_many),
		cmocka_unit_test(a_long_host),
		cmocka_unit_test(files),
		cmocka_unit_test(errors_in_files),
		cmocka_unit_test(twice),
		cmocka_unit_test(racks),
		cmocka_unit_test(racks_that_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
