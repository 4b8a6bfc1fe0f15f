/* SPDX-License-Identifier: MIT */
/* test_doctor.c - what skein info finds wrong, from made-up systems. */
#include "unit/cm.h"

#include "doctor.h"
#include "env/env.h"

#include <string.h>

static struct doctor_facts healthy(void)
{
	struct doctor_facts f = {.memlock = DOCTOR_UNLIMITED,
				 .nofile = 20000,
				 .address_space = DOCTOR_UNLIMITED,
				 .file_size = DOCTOR_UNLIMITED,
				 .sys_devices = 1,
				 .dev_nodes = 1,
				 .hugepage_len = 2 << 20,
				 .huge_option = "off",
				 .huge_made_of = "ordinary"};

	return f;
}

static struct dev_list_entry nic(int chosen, const char *why)
{
	struct dev_list_entry e = {.name = "nic0", .n_ports = 1};

	e.ports[0].chosen = chosen;
	strcpy(e.ports[0].why, why);
	return e;
}

static struct doctor_finding found[DOCTOR_MAX];

static void one(unsigned n, bool error, const char *text, const char *fix)
{
	assert_int_equal(n, 1);
	assert_int_equal(found[0].error, error);
	if (!strstr(found[0].text, text))
		fail_msg("no \"%s\" in \"%s\"", text, found[0].text);
	if (!strstr(found[0].fix, fix))
		fail_msg("no \"%s\" in \"%s\"", fix, found[0].fix);
}

static void test_healthy(void **state)
{
	struct dev_list_entry list = nic(3, "best of its table");
	struct doctor_facts f = healthy();
	struct dev dev = {.name = "nic0"};

	assert_int_equal(doctor_look(&f, &dev, &list, 1, found), 0);
	assert_int_equal(doctor_look(&f, &dev, NULL, 0, found), 0);
}

static void test_no_device(void **state)
{
	struct doctor_facts f = healthy();

	one(doctor_look(&f, NULL, NULL, 0, found), true, "no usable device",
	    "SKEIN_DEVICE");
}

static void test_unusable(void **state)
{
	struct dev_list_entry list = nic(-1, "port 1 is not active");
	struct doctor_facts f = healthy();
	struct dev dev = {.name = "skein0"};

	one(doctor_look(&f, &dev, &list, 1, found), false,
	    "nic0 is here, but cannot be used: port 1 is not active", "info");
	list.n_ports = 0;
	strcpy(list.err, "cannot be opened");
	one(doctor_look(&f, &dev, &list, 1, found), false, "cannot be opened",
	    "info");
	f.dev_nodes = 0;
	one(doctor_look(&f, &dev, NULL, 0, found), false,
	    "/dev/infiniband is empty", "--device=/dev/infiniband");
}

static void test_limits(void **state)
{
	struct dev_list_entry list = nic(3, "");
	struct doctor_facts f = healthy();
	struct dev dev = {.name = "nic0"};

	f.memlock = 64 << 10;
	one(doctor_look(&f, &dev, &list, 1, found), false,
	    "RLIMIT_MEMLOCK is 64 KiB", "ulimit -l unlimited");
	/* soft pins nothing. */
	assert_int_equal(doctor_look(&f, &dev, NULL, 0, found), 0);
	f = healthy();
	f.address_space = 2ull << 30;
	one(doctor_look(&f, &dev, NULL, 0, found), false,
	    "RLIMIT_AS is 2048 MiB", "ulimit -v");
	f = healthy();
	f.file_size = 100 << 10;
	one(doctor_look(&f, &dev, NULL, 0, found), false,
	    "RLIMIT_FSIZE is 100 KiB", "ulimit -f");
	f = healthy();
	f.nofile = 256;
	one(doctor_look(&f, &dev, NULL, 0, found), false,
	    "RLIMIT_NOFILE is 256", "LimitNOFILE");
	f = healthy();
	dev.caps.fork = DEV_FORK_UNSAFE;
	one(doctor_look(&f, &dev, NULL, 0, found), false, "fork()", "5.12");
}

/* All at once fit, and the error comes first. */
static void test_all(void **state)
{
	struct dev_list_entry list = nic(-1, "x");
	struct doctor_facts f = {
		.sys_devices = 1, .huge_option = "on", .huge_made_of = "none"};
	unsigned n = doctor_look(&f, NULL, &list, 1, found);

	assert_int_equal(n, 8);
	assert_true(found[0].error);
	for (unsigned i = 1; i < n; i++) {
		assert_false(found[i].error);
		assert_true(found[i].text[0] && found[i].fix[0]);
	}
}

/* This machine: whatever it is, it is said. */
static void test_facts(void **state)
{
	struct skein_env *env;
	struct doctor_facts f;

	memset(&f, 0xff, sizeof(f));
	assert_int_equal(env_real_new(&env), 0);
	doctor_facts(env, &f);
	assert_string_equal(f.huge_option, "off");
	assert_string_equal(f.huge_made_of, "ordinary");
	env_real_free(env);
	assert_true(f.cores >= 1);
	assert_true(f.nofile > 0);
	assert_true(f.vm_folder[0]);
}

static void test_hugepages(void **state)
{
	struct doctor_facts f = healthy();
	struct dev dev = {.name = "skein0"};

	f.huge_option = "auto";
	assert_int_equal(doctor_look(&f, &dev, NULL, 0, found), 0);
	f.huge_option = "on";
	f.huge_made_of = "huge";
	assert_int_equal(doctor_look(&f, &dev, NULL, 0, found), 0);
	f.huge_made_of = "none";
	one(doctor_look(&f, &dev, NULL, 0, found), false,
	    "regions of 2048 KiB and more will fail", "vm.nr_hugepages");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_healthy),
		cmocka_unit_test(test_no_device),
		cmocka_unit_test(test_unusable),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_hugepages),
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_facts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
