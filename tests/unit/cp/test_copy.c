/* SPDX-License-Identifier: MIT */
/*
 * test_copy.c - a sender and its receivers, in one process: the calls go
 * through the library on the software device, the blocks through fake_mcast.c.
 */
#include "cp/sender/job.h"
#include "cp/receiver/serve.h"

#include <errno.h>
#include <pthread.h>
#include <skein/skein.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "fake_mcast.h"
#include "folder.h"
#include "unit/patience.h"

enum {
	RECEIVERS = 3,
	BLOCK = 4096,
	BIG = 9 * BLOCK + 17,
};

struct receiver {
	char dir[20];
	struct skein_ctx *ctx;
	struct cp_serve *serve;
	pthread_t thread;
	atomic_uint ended; /* copies */
	struct cp_status last;
};

static struct receiver receiver[RECEIVERS];
static struct skein_ctx *ctx;
static struct cp_targets targets;
static struct cp_result result[RECEIVERS];
static struct cp_totals totals;
static struct cp_err err;
static char big[BIG];
static struct cp_serve_attr limits; /* of receivers that start */

static struct skein_ctx *open_ctx(void)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr),
		.device = "soft",
		.wait = SKEIN_WAIT_EVENT,
		.background = true,
	};
	struct skein_ctx *c = NULL;

	assert_int_equal(skein_ctx_open(&attr, &c), 0);
	return c;
}

static void *serve(void *arg)
{
	struct receiver *r = arg;

	while (cp_serve_wait(r->serve, &r->last))
		r->ended++;
	return NULL;
}

static void start(struct receiver *r)
{
	struct cp_serve_attr attr = {
		.allow = limits.allow,
		.max_size = limits.max_size,
		.mcast = &fake_mcast,
		.listen = "127.0.0.1:0",
		.dir = in_folder(r->dir),
	};

	r->ctx = attr.ctx = open_ctx();
	r->ended = 0;
	if (cp_serve_open(&attr, &r->serve, &err))
		fail_msg("%s", err.text);
	assert_int_equal(pthread_create(&r->thread, NULL, serve, r), 0);
}

static void stop(struct receiver *r)
{
	if (!r->serve)
		return;
	cp_serve_stop(r->serve);
	pthread_join(r->thread, NULL);
	cp_serve_close(r->serve);
	skein_ctx_close(r->ctx);
	r->serve = NULL;
}

static int setup(void **state)
{
	if (folder_make(state))
		return -1;
	memset(&fake_faults, 0, sizeof(fake_faults));
	fake_blocks = fake_pollers = 0;
	for (size_t i = 0; i < BIG; i++)
		big[i] = (char)(i * 13 + i / 255);
	put_dir("src");
	put_file("src/big", big, BIG);
	put_file("src/zero", "", 0);
	put_dir("src/d");
	put_file("src/d/small", "small", 5);
	ctx = open_ctx();
	for (int i = 0; i < RECEIVERS; i++) {
		struct receiver *r = &receiver[i];

		snprintf(r->dir, sizeof(r->dir), "dst%d", i);
		put_dir(r->dir);
		start(r);
		assert_int_equal(cp_targets_add(&targets,
						cp_serve_addr(r->serve), false,
						&err),
				 0);
	}
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < RECEIVERS; i++)
		stop(&receiver[i]);
	skein_ctx_close(ctx);
	cp_targets_fini(&targets);
	return folder_remove(state);
}

static int copy(uint16_t flags, const char *path)
{
	char *operands[] = {(char *)in_folder("src")};
	struct cp_job_attr attr = {
		.ctx = ctx,
		.mcast = &fake_mcast,
		.targets = &targets,
		.path = path,
		.flags = flags,
		.connect_timeout_ns = patience_ns(30),
	};
	struct cp_tree tree;
	int rc = cp_walk(operands, 1, NULL, BLOCK, &tree, &err);

	assert_int_equal(rc, 0);
	attr.tree = &tree;
	memset(result, 0, sizeof(result));
	rc = cp_job_run(&attr, result, &totals, &err);
	cp_tree_fini(&tree);
	return rc;
}

static void expect_copy(int i, const char *below)
{
	char name[100];

	snprintf(name, sizeof(name), "%s%s/src/big", receiver[i].dir, below);
	expect_file(name, big, BIG);
	snprintf(name, sizeof(name), "%s%s/src/d/small", receiver[i].dir,
		 below);
	expect_file(name, "small", 5);
	snprintf(name, sizeof(name), "%s%s/src/zero", receiver[i].dir, below);
	expect_file(name, "", 0);
}

static void expect_done(int rc)
{
	if (rc)
		fail_msg("%d: %s; %s; %s; %s", rc, err.text, result[0].text,
			 result[1].text, result[2].text);
	assert_int_equal(totals.done, RECEIVERS);
	for (int i = 0; i < RECEIVERS; i++)
		assert_int_equal(result[i].status, 0);
}

static void to_all(void **state)
{
	expect_done(copy(0, NULL));
	for (int i = 0; i < RECEIVERS; i++)
		expect_copy(i, "");
	assert_int_equal(totals.rounds, 1);
	assert_int_equal(fake_blocks, 10);
	/* blocks wait for disks: nobody takes a core to look for them */
	assert_int_equal(fake_pollers, 0);
	/* once more, over what is there */
	expect_done(copy(CP_FLAG_VERIFY | CP_FLAG_SYNC, NULL));
	expect_done(copy(0, "a/b"));
	for (int i = 0; i < RECEIVERS; i++)
		expect_copy(i, "/a/b");
	for (int i = 0; i < RECEIVERS; i++) {
		/* a stop does not wait for what the thread has yet to say */
		for (unsigned ms = 0;
		     receiver[i].ended < 3 && ms < (unsigned)patience_ms(30);
		     ms++)
			usleep(1000);
		patience_met(receiver[i].ended >= 3, 30,
			     "the end of three copies");
		stop(&receiver[i]);
		assert_int_equal(receiver[i].ended, 3);
		assert_int_equal(receiver[i].last.phase, CP_DONE);
	}
}

static void nothing_to_send(void **state)
{
	assert_int_equal(truncate(in_folder("src/big"), 0), 0);
	assert_int_equal(truncate(in_folder("src/d/small"), 0), 0);
	expect_done(copy(CP_FLAG_VERIFY, NULL));
	assert_int_equal(totals.rounds, 0);
	expect_file("dst2/src/big", "", 0);
}

static void a_wrong_block_comes_again(void **state)
{
	fake_faults.corrupt_rank = 2;
	fake_faults.corrupt_block = 3;
	fake_faults.corrupt_times = 1;
	expect_done(copy(0, NULL));
	for (int i = 0; i < RECEIVERS; i++)
		expect_copy(i, "");
	assert_int_equal(totals.rounds, 2);
	/* one block, to the one that lacks it */
	assert_int_equal(fake_blocks, 11);
	assert_int_equal(fake_members, 2);
}

static void wrong_for_ever(void **state)
{
	fake_faults.corrupt_rank = 1;
	fake_faults.corrupt_block = 0; /* then of a message of it alone */
	fake_faults.corrupt_times = 100;
	assert_int_equal(copy(0, NULL), -EIO);
	assert_int_equal(totals.done, 2);
	assert_int_equal(result[0].status, -EILSEQ);
	assert_false(there("dst0/src"));
	expect_copy(1, "");
	expect_copy(2, "");
}

/* Said to have failed, but there: it gets the rest in a new group. */
static void a_group_that_fails(void **state)
{
	fake_faults.fail_rank = 2;
	fake_faults.fail_block = 4;
	fake_faults.fail_times = 1;
	expect_done(copy(0, NULL));
	for (int i = 0; i < RECEIVERS; i++)
		expect_copy(i, "");
	assert_int_equal(totals.rounds, 2);
	assert_int_equal(fake_blocks, 5 + 6);
}

static void groups_that_fail_for_ever(void **state)
{
	fake_faults.open_times = 100;
	assert_int_equal(copy(0, NULL), -EIO);
	assert_int_equal(totals.done, 0);
	assert_non_null(strstr(result[0].text, "joining the group"));
	assert_false(there("dst0/src"));
}

static void one_that_is_not_there(void **state)
{
	stop(&receiver[1]);
	assert_int_equal(copy(0, NULL), -EIO);
	assert_int_equal(totals.done, 2);
	assert_true(result[1].status < 0);
	assert_true(strlen(result[1].text) > 0);
	expect_copy(0, "");
	expect_copy(2, "");
}

static void what_one_refuses(void **state)
{
	put_dir("out");
	put_dir("dst1/src");
	put_dir("dst1/src/big");
	assert_int_equal(copy(0, NULL), -EIO);
	assert_int_equal(result[1].status, -EISDIR);
	assert_non_null(strstr(result[1].text, "src/big is a directory"));
	assert_int_equal(copy(0, "/etc"), -EIO);
	assert_int_equal(totals.done, 0);
	assert_int_equal(result[0].status, -EACCES);
	assert_int_equal(copy(0, "../out"), -EIO);
	assert_int_equal(result[0].status, -EINVAL);
	assert_int_equal(symlink("../out", in_folder("dst0/l")), 0);
	assert_int_equal(copy(0, "l"), -EIO);
	assert_int_equal(result[0].status, -ELOOP);
	assert_false(there("out/src"));
}

static void resume_sends_what_is_lacking(void **state)
{
	char *again = strdup("xxxx");
	struct stat st;
	struct timespec times[2];
	int fd;

	expect_done(copy(0, NULL));
	fake_blocks = 0;
	expect_done(copy(CP_FLAG_RESUME, NULL));
	assert_int_equal(fake_blocks, 0);
	/* one has lost a file, another a few bytes */
	assert_int_equal(unlink(in_folder("dst0/src/d/small")), 0);
	lstat(in_folder("dst1/src/big"), &st);
	times[0] = times[1] = st.st_mtim;
	fd = open(in_folder("dst1/src/big"), O_WRONLY);
	assert_int_equal(pwrite(fd, again, 4, 5 * BLOCK), 4);
	futimens(fd, times);
	close(fd);
	expect_done(copy(CP_FLAG_RESUME | CP_FLAG_VERIFY, NULL));
	assert_int_equal(fake_blocks, 2);
	assert_int_equal(fake_members, 3);
	for (int i = 0; i < RECEIVERS; i++)
		expect_copy(i, "");
	free(again);
}

/* The sender's own failure: all end, nothing has its name, all of it is kept
 * for the next. */
static void a_source_that_changes(void **state)
{
	char *operands[] = {(char *)in_folder("src")};
	struct cp_job_attr attr = {
		.ctx = ctx,
		.mcast = &fake_mcast,
		.targets = &targets,
		.connect_timeout_ns = patience_ns(30),
	};
	struct cp_tree tree;

	assert_int_equal(cp_walk(operands, 1, NULL, BLOCK, &tree, &err), 0);
	attr.tree = &tree;
	assert_int_equal(truncate(in_folder("src/big"), 5 * BLOCK), 0);
	assert_int_equal(cp_job_run(&attr, result, &totals, &err), -ESTALE);
	assert_non_null(strstr(err.text, "src/big was changed"));
	assert_int_equal(totals.done, 0);
	assert_int_equal(result[2].status, -ESTALE);
	cp_tree_fini(&tree);
	for (int i = 0; i < RECEIVERS; i++)
		stop(&receiver[i]);
	assert_false(there("dst0/src"));
}

/* Known before anybody is asked: nobody is connected to. */
static void too_many_blocks(void **state)
{
	struct cp_extent extent = {.len = 1ull << 40};
	struct cp_entry entry = {
		.type = CP_FILE,
		.path = "f",
		.path_len = 1,
		.size = extent.len,
		.extents = 1,
		.extent = &extent,
	};
	struct cp_tree tree = {.m.block_size = BLOCK};
	struct cp_job_attr attr = {
		.ctx = ctx,
		.mcast = &fake_mcast,
		.tree = &tree,
		.targets = &targets,
		.connect_timeout_ns = patience_ns(30),
	};

	assert_int_equal(cp_manifest_add(&tree.m, &entry, &err), 0);
	assert_int_equal(cp_job_run(&attr, result, &totals, &err), -EFBIG);
	assert_non_null(strstr(err.text, "--block-size of 64K"));
	assert_int_equal(totals.failed, RECEIVERS);
	assert_int_equal(result[0].status, -EFBIG);
	cp_manifest_fini(&tree.m);
}

static void at_a_rate(void **state)
{
	char *operands[] = {(char *)in_folder("src/d")};
	struct cp_job_attr attr = {
		.ctx = ctx,
		.mcast = &fake_mcast,
		.targets = &targets,
		.limit_rate = 1,
		.connect_timeout_ns = patience_ns(30),
	};
	struct cp_tree tree;

	/* 5 bytes at a byte a second leave at once: the pause comes after */
	assert_int_equal(cp_walk(operands, 1, NULL, BLOCK, &tree, &err), 0);
	attr.tree = &tree;
	expect_done(cp_job_run(&attr, result, &totals, &err));
	cp_tree_fini(&tree);
}

/* --- a sender of the test's own: what it hands to a receiver ----------- */

struct raw {
	struct skein_conn *conn;
	uint64_t session;
	uint8_t buf[4096];
	struct bytes_out out;
	struct cp_status st;
};

static int raw_call(struct raw *r, enum cp_call call, bool status)
{
	uint8_t resp[CP_ERR_MAX + 64];
	struct skein_rpc_result res = {0};
	struct bytes_in in;
	int rc = skein_rpc_call(r->conn, (uint16_t)call, r->buf, r->out.pos,
				resp, sizeof(resp), patience_ns(30), &res);

	if (rc || !status)
		return rc;
	in = bytes_in(resp, res.len);
	return cp_get_status(&in, &r->st);
}

static struct bytes_out *raw_begin(struct raw *r)
{
	r->out = bytes_out(r->buf, sizeof(r->buf));
	return &r->out;
}

static void raw_open(struct raw *r, const struct cp_tree *tree)
{
	uint8_t resp[CP_ERR_MAX + 64];
	struct skein_rpc_result res = {0};
	struct cp_open open = {.path = ""};
	struct bytes_in in;
	size_t len;
	void *text;

	assert_int_equal(skein_conn_open(ctx, cp_serve_addr(receiver[0].serve),
					 NULL, &r->conn),
			 0);
	assert_int_equal(cp_manifest_encode(&tree->m, &text, &len), 0);
	cp_manifest_id(text, len, open.id);
	open.manifest_len = len;
	free(text);
	cp_put_open(raw_begin(r), &open);
	assert_int_equal(skein_rpc_call(r->conn, CP_CALL_OPEN, r->buf,
					r->out.pos, resp, sizeof(resp),
					patience_ns(30), &res),
			 0);
	in = bytes_in(resp, res.len);
	assert_int_equal(cp_get_opened(&in, &r->session, &r->st), 0);
}

static int raw_members(struct raw *r, const char *const *v, uint32_t count)
{
	assert_int_equal(cp_put_members(raw_begin(r), r->session, v, count),
			 count);
	return raw_call(r, CP_CALL_MEMBERS, true);
}

static void raw_manifest(struct raw *r, const struct cp_tree *tree)
{
	size_t len;
	void *text;

	assert_int_equal(cp_manifest_encode(&tree->m, &text, &len), 0);
	raw_begin(r);
	bytes_put_u64(&r->out, r->session);
	bytes_put_u64(&r->out, 0);
	bytes_put_mem(&r->out, text, len);
	free(text);
	assert_int_equal(raw_call(r, CP_CALL_MANIFEST, false), 0);
	do {
		bytes_put_u64(raw_begin(r), r->session);
		assert_int_equal(raw_call(r, CP_CALL_STATUS, true), 0);
	} while (r->st.phase == CP_PREPARING);
}

static int raw_round(struct raw *r, const char *second)
{
	const char *members[] = {"sender", "127.0.0.1:1", second};
	uint32_t racks[3] = {0};
	struct cp_range range = {0, 1};
	struct cp_round round = {.round = 1,
				 .rank = 1,
				 .count = 3,
				 .members = members,
				 .racks = racks,
				 .ranges = 1,
				 .range = &range};

	cp_put_round(raw_begin(r), r->session, &round);
	return raw_call(r, CP_CALL_ROUND, false);
}

/* The receiver begins anew with other limits. */
static void limit(int i, const struct cp_allow *allow, uint64_t max_size)
{
	stop(&receiver[i]);
	limits.allow = allow;
	limits.max_size = max_size;
	start(&receiver[i]);
	limits = (struct cp_serve_attr){0};
}

/* Addresses that a sender hands over are dialled only when the copy has named
 * them before, and the receiver has to do with them at all. */
static void strangers_are_not_dialled(void **state)
{
	static const char *const own[] = {"127.0.0.1:1", "127.0.0.1:3"};
	char *operands[] = {(char *)in_folder("src")};
	struct raw r = {0};
	struct cp_tree tree;

	assert_int_equal(cp_walk(operands, 1, NULL, BLOCK, &tree, &err), 0);
	raw_open(&r, &tree);
	assert_int_equal(raw_members(&r, own, 2), 0);
	raw_manifest(&r, &tree);
	assert_int_equal(r.st.phase, CP_READY);
	/* once it works it hears of no more */
	assert_int_equal(raw_members(&r, own, 2), -EPROTO);
	assert_int_equal(raw_round(&r, "127.0.0.1:2"), -EACCES);
	assert_int_equal(raw_round(&r, "10.0.0.1:3"), -EACCES);
	/* Nobody joins this one: the receiver gives up, and can be stopped. */
	fake_open_s = 1;
	assert_int_equal(raw_round(&r, "127.0.0.1:3"), 0);
	skein_conn_close(r.conn, 0);
	limit(0, NULL, 0);
	fake_open_s = FAKE_OPEN_S;
	cp_tree_fini(&tree);
}

static void no_members_no_round(void **state)
{
	char *operands[] = {(char *)in_folder("src")};
	struct raw r = {0};
	struct cp_tree tree;

	assert_int_equal(cp_walk(operands, 1, NULL, BLOCK, &tree, &err), 0);
	raw_open(&r, &tree);
	raw_manifest(&r, &tree);
	assert_int_equal(r.st.phase, CP_READY);
	assert_int_equal(raw_round(&r, "127.0.0.1:1"), -EACCES);
	skein_conn_close(r.conn, 0);
	cp_tree_fini(&tree);
}

static void other_hosts_are_refused(void **state)
{
	static const char *const far[] = {"127.0.0.1:1", "10.0.0.1:7450"};
	char *operands[] = {(char *)in_folder("src")};
	struct cp_allow here = {0}, elsewhere = {0};
	struct raw r = {0};
	struct cp_tree tree;

	assert_int_equal(cp_allow_loopback(&here), 0);
	assert_int_equal(cp_allow_add(&elsewhere, "10.0.0.0/8", &err), 0);
	limit(0, &here, 0);
	assert_int_equal(cp_walk(operands, 1, NULL, BLOCK, &tree, &err), 0);
	raw_open(&r, &tree);
	assert_int_equal(raw_members(&r, far, 2), 0);
	assert_int_equal(r.st.phase, CP_FAILED);
	assert_int_equal(r.st.status, -EACCES);
	assert_non_null(strstr(r.st.text, "10.0.0.1:7450"));
	skein_conn_close(r.conn, 0);
	/* and a sender that is none of them */
	limit(0, &elsewhere, 0);
	memset(&r, 0, sizeof(r));
	do {
		if (r.conn)
			skein_conn_close(r.conn, 0);
		raw_open(&r, &tree);
	} while (r.st.status == -EBUSY);
	assert_int_equal(r.st.status, -EACCES);
	assert_non_null(strstr(r.st.text, "127.0.0.1"));
	skein_conn_close(r.conn, 0);
	cp_tree_fini(&tree);
	stop(&receiver[0]);
	cp_allow_fini(&here);
	cp_allow_fini(&elsewhere);
}

static void a_copy_that_is_too_large(void **state)
{
	char addr[100];

	limit(1, NULL, BIG);
	snprintf(addr, sizeof(addr), "%s", cp_serve_addr(receiver[1].serve));
	cp_targets_fini(&targets);
	assert_int_equal(cp_targets_add(&targets, addr, false, &err), 0);
	assert_int_equal(copy(0, NULL), -EIO); /* BIG and five bytes */
	assert_int_equal(result[0].status, -EFBIG);
	assert_non_null(strstr(result[0].text, "--max-size"));
	limit(1, NULL, BIG + 5);
	cp_targets_fini(&targets);
	assert_int_equal(cp_targets_add(&targets,
					cp_serve_addr(receiver[1].serve), false,
					&err),
			 0);
	assert_int_equal(copy(0, NULL), 0);
}

#define in_a_folder(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_a_folder(to_all),
		in_a_folder(nothing_to_send),
		in_a_folder(a_wrong_block_comes_again),
		in_a_folder(wrong_for_ever),
		in_a_folder(a_group_that_fails),
		in_a_folder(groups_that_fail_for_ever),
		in_a_folder(one_that_is_not_there),
		in_a_folder(what_one_refuses),
		in_a_folder(resume_sends_what_is_lacking),
		in_a_folder(a_source_that_changes),
		in_a_folder(too_many_blocks),
		in_a_folder(at_a_rate),
		in_a_folder(strangers_are_not_dialled),
		in_a_folder(no_members_no_round),
		in_a_folder(other_hosts_are_refused),
		in_a_folder(a_copy_that_is_too_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
