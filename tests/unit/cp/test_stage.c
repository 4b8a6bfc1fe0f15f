/* SPDX-License-Identifier: MIT */
/*
 * test_stage.c - a receiver's disk: blocks in any order to staged files, final
 * names, what stands in the way, links that lead outside, crashes, resume.
 */
#include "cp/receiver/below.h"
#include "cp/receiver/commit.h"
#include "cp/sender/source.h"
#include "cp/receiver/stage.h"
#include "cp/sender/walk.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "folder.h"

enum {
	BLOCK = 4096,
	BIG = 5 * BLOCK + 100,
};

/* A sender's tree in "src", a receiver's directory "dst". */
static struct cp_tree tree;
static struct cp_layout layout;
static struct cp_source source;
static struct cp_stage stage;
static uint8_t id[CP_ID_LEN];
static struct cp_err err;
static char big[BIG];
static int root;

static void fill(char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (char)(i * 31 + i / 251);
}

static void open_source_of(uint32_t block_size)
{
	char *operands[] = {(char *)in_folder("src")};
	void *buf;
	size_t len;

	assert_int_equal(cp_walk(operands, 1, NULL, block_size, &tree, &err),
			 0);
	assert_int_equal(cp_manifest_encode(&tree.m, &buf, &len), 0);
	cp_manifest_id(buf, len, id);
	free(buf);
	assert_int_equal(cp_layout_init(&layout, &tree.m), 0);
	assert_int_equal(cp_source_open(&source, &tree, &layout), 0);
}

static void open_source(void)
{
	open_source_of(BLOCK);
}

static void close_source(void)
{
	cp_source_close(&source);
	cp_layout_fini(&layout);
	cp_tree_fini(&tree);
}

static int setup(void **state)
{
	if (folder_make(state))
		return -1;
	fill(big, BIG);
	put_dir("src");
	put_dir("src/d");
	put_file("src/big", big, BIG);
	put_file("src/d/small", "small", 5);
	put_file("src/d/zero", "", 0);
	assert_int_equal(symlink("small", in_folder("src/d/link")), 0);
	put_dir("dst");
	open_source();
	root = open(in_folder("dst"), O_RDONLY | O_DIRECTORY);
	return root < 0;
}

static int teardown(void **state)
{
	close(root);
	close_source();
	return folder_remove(state);
}

static int open_stage(const char *path, bool resume)
{
	struct cp_stage_attr attr = {
		.root = root,
		.path = path,
		.m = &tree.m,
		.layout = &layout,
		.id = id,
		.resume = resume,
	};

	return cp_stage_open(&stage, &attr, &err);
}

/* Blocks [first, last) from the source, from the last down. */
static void put_blocks(uint64_t first, uint64_t last)
{
	char buf[BLOCK];

	while (last-- > first) {
		assert_int_equal(cp_source_read(&source, last, buf, &err), 0);
		assert_int_equal(cp_stage_write(&stage, last, buf, &err), 0);
	}
}

static void all_sums(void)
{
	char buf[BLOCK];

	for (uint64_t b = 0; b < cp_layout_blocks(&layout); b++)
		assert_int_equal(cp_source_read(&source, b, buf, &err), 0);
}

static int64_t lacking(void)
{
	return cp_stage_compare(&stage, 0, source.sums,
				cp_layout_blocks(&layout));
}

static void expect_all(const char *where)
{
	char name[100], link[20] = "";
	struct stat a, b;

	snprintf(name, sizeof(name), "%s/src/big", where);
	expect_file(name, big, BIG);
	lstat(in_folder(name), &a);
	lstat(in_folder("src/big"), &b);
	assert_int_equal(a.st_mode, b.st_mode);
	assert_int_equal(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
	assert_int_equal(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
	snprintf(name, sizeof(name), "%s/src/d/small", where);
	expect_file(name, "small", 5);
	snprintf(name, sizeof(name), "%s/src/d/zero", where);
	expect_file(name, "", 0);
	snprintf(name, sizeof(name), "%s/src/d/link", where);
	assert_int_equal(readlink(in_folder(name), link, 19), 5);
	assert_string_equal(link, "small");
	snprintf(name, sizeof(name), "%s/src/d", where);
	lstat(in_folder(name), &a);
	lstat(in_folder("src/d"), &b);
	assert_int_equal(a.st_mode, b.st_mode);
	assert_int_equal(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
}

/* How many names are in a folder, dots not counted. */
static unsigned names(const char *name)
{
	DIR *dir = opendir(in_folder(name));
	struct dirent *d;
	unsigned n = 0;

	assert_non_null(dir);
	while ((d = readdir(dir)))
		n += strcmp(d->d_name, ".") && strcmp(d->d_name, "..");
	closedir(dir);
	return n;
}

static void in_any_order(void **state)
{
	uint8_t mine[CP_ID_LEN], its[CP_ID_LEN];
	char buf[BLOCK];
	int fd;

	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, 6);
	assert_int_equal(lacking(), 0);
	assert_false(there("dst/src")); /* nothing by its name */
	assert_int_equal(cp_tree_open(&tree, &tree.m.v[1], &fd, &err), 0);
	assert_int_equal(cp_file_hash(fd, buf, BLOCK, mine), 0);
	close(fd);
	assert_int_equal(cp_stage_hash(&stage, 1, its, &err), 0);
	assert_memory_equal(mine, its, CP_ID_LEN);
	assert_int_equal(cp_commit(&stage, true, &err), 0);
	cp_stage_close(&stage, false);
	expect_all("dst");
	assert_int_equal(names("dst"), 1);
}

/* Blocks of more bytes than are hashed and written at a time, and the last of an
 * odd number: their hashes are those of the whole, and resume knows them. */
static void blocks_in_pieces(void **state)
{
	enum {
		LARGE = 4 * CP_HASH_PIECE,
		SIZE = LARGE + CP_HASH_PIECE + 77,
	};
	char *data = malloc(SIZE), *buf = malloc(LARGE);

	assert_true(data && buf);
	fill(data, SIZE);
	close_source();
	put_file("src/big", data, SIZE);
	open_source_of(LARGE);
	assert_int_equal(open_stage("", false), 0);
	assert_int_equal(cp_layout_blocks(&layout), 2);
	for (uint64_t b = 0; b < 2; b++) {
		uint64_t off;
		uint32_t len;

		cp_layout_block(&layout, b, &off, &len);
		assert_int_equal(cp_source_read(&source, b, buf, &err), 0);
		assert_int_equal(source.sums[b], cp_block_hash(buf, len));
		assert_int_equal(cp_stage_write(&stage, b, buf, &err), 0);
		assert_int_equal(stage.state.hash[b], source.sums[b]);
	}
	cp_stage_close(&stage, true);
	assert_int_equal(open_stage("", true), 0);
	assert_int_equal(stage.have, 2);
	assert_int_equal(lacking(), 0);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	expect_file("dst/src/big", data, SIZE);
	free(buf);
	free(data);
}

static void replaces_and_leaves(void **state)
{
	put_dir("dst/src");
	put_file("dst/src/big", "old", 3);
	put_file("dst/src/other", "mine", 4);
	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, 6);
	expect_file("dst/src/big", "old", 3);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	expect_all("dst");
	expect_file("dst/src/other", "mine", 4);
}

static void below_the_root(void **state)
{
	assert_int_equal(open_stage("a/b", false), 0);
	put_blocks(0, 6);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	expect_all("dst/a/b");
	assert_int_equal(names("dst/a/b"), 1);
}

static void links_are_not_followed(void **state)
{
	put_dir("out");
	assert_int_equal(symlink("../out", in_folder("dst/l")), 0);
	assert_int_equal(open_stage("l", false), -ELOOP);
	assert_non_null(strstr(err.text, "a link is in the way"));
	assert_int_equal(open_stage("l/x", false), -ELOOP);
	assert_int_equal(open_stage("../out", false), -EINVAL);
	/* where the copy has a directory */
	assert_int_equal(symlink("../out", in_folder("dst/src")), 0);
	assert_int_equal(open_stage("", false), -ELOOP);
	assert_int_equal(unlink(in_folder("dst/src")), 0);
	put_dir("dst/src");
	assert_int_equal(symlink("../../out", in_folder("dst/src/d")), 0);
	assert_int_equal(open_stage("", false), -ELOOP);
	assert_int_equal(names("out"), 0);
	/* where it has a file: the link itself gives way */
	assert_int_equal(unlink(in_folder("dst/src/d")), 0);
	put_file("out/secret", "old", 3);
	assert_int_equal(symlink("../../out/secret", in_folder("dst/src/big")),
			 0);
	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, 6);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	expect_all("dst");
	expect_file("out/secret", "old", 3);
}

static void a_link_made_meanwhile(void **state)
{
	put_dir("out");
	put_dir("dst/src");
	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, 6);
	assert_int_equal(rmdir(in_folder("dst/src")), 0);
	assert_int_equal(symlink("../out", in_folder("dst/src")), 0);
	assert_true(cp_commit(&stage, false, &err) < 0);
	cp_stage_close(&stage, false);
	assert_int_equal(names("out"), 0);
}

static void other_kinds_in_the_way(void **state)
{
	put_dir("dst/src");
	put_dir("dst/src/big");
	assert_int_equal(open_stage("", false), -EISDIR);
	assert_non_null(strstr(err.text, "src/big is a directory here"));
	assert_int_equal(rmdir(in_folder("dst/src/big")), 0);
	put_file("dst/src/d", "", 0);
	assert_int_equal(open_stage("", false), -ENOTDIR);
	assert_int_equal(names("dst"), 1);
}

static void wrong_blocks_are_seen(void **state)
{
	char buf[BLOCK] = "wrong";

	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, 6);
	assert_int_equal(stage.have, 6);
	assert_int_equal(cp_stage_write(&stage, 3, buf, &err), 0);
	assert_int_equal(lacking(), 1);
	assert_int_equal(stage.have, 5);
	assert_int_equal(stage.state.hash[3], 0);
	put_blocks(3, 4);
	assert_int_equal(lacking(), 0);
	cp_stage_close(&stage, false);
	assert_int_equal(names("dst"), 0);
}

static void the_same_twice(void **state)
{
	struct cp_stage first;

	assert_int_equal(open_stage("", false), 0);
	first = stage;
	assert_int_equal(open_stage("", false), -EBUSY);
	assert_int_equal(open_stage("", true), -EBUSY);
	stage = first;
	put_blocks(0, 6);
	assert_int_equal(lacking(), 0);
	cp_stage_close(&stage, false);
}

static void a_full_disk(void **state)
{
	struct rlimit old, small = {BLOCK * 2, RLIM_INFINITY};

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_FSIZE, &small);
	assert_int_equal(open_stage("", false), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_non_null(strstr(err.text, "making room for src/big"));
	assert_int_equal(names("dst"), 0);
}

static void crashed_ones_go(void **state)
{
	char mine[] = "dst/.skein-cp.0123456789abcdef0123456789abcdef";
	char not_mine[] = "dst/.skein-cp.0123456789abcdef0123456789abcdeg";

	put_dir(mine);
	put_file("dst/.skein-cp.0123456789abcdef0123456789abcdef/1", "x", 1);
	put_dir(not_mine);
	assert_int_equal(open_stage("", true), 0);
	assert_true(there(mine));
	cp_stage_close(&stage, false);
	assert_int_equal(open_stage("", false), 0);
	assert_false(there(mine));
	assert_true(there(not_mine));
	cp_stage_close(&stage, false);
}

/* Some blocks are there, one of them is torn, one was never claimed. */
static void resume(void **state)
{
	char path[200];
	int fd;

	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, 4);
	snprintf(path, sizeof(path), "dst/%s/1", stage.name);
	cp_stage_close(&stage, true);
	assert_true(there(path));
	fd = open(in_folder(path), O_WRONLY);
	assert_int_equal(pwrite(fd, "torn", 4, 2 * BLOCK), 4);
	close(fd);
	all_sums();
	assert_int_equal(open_stage("", true), 0);
	assert_int_equal(stage.have, 3);
	assert_int_equal(stage.state.hash[2], 0);
	assert_int_equal(lacking(), 3);
	put_blocks(2, 3);
	put_blocks(4, 6);
	assert_int_equal(lacking(), 0);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	expect_all("dst");
}

static void resume_a_damaged_state(void **state)
{
	char path[200];
	int fd;

	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, 6);
	snprintf(path, sizeof(path), "dst/%s/state", stage.name);
	cp_stage_close(&stage, true);
	fd = open(in_folder(path), O_WRONLY);
	/* another block size than this copy's */
	assert_int_equal(pwrite(fd, "\1", 1, 24), 1);
	close(fd);
	assert_int_equal(open_stage("", true), 0);
	assert_int_equal(stage.have, 0);
	cp_stage_close(&stage, true);
	assert_int_equal(truncate(in_folder(path), 41), 0);
	assert_int_equal(open_stage("", true), 0);
	assert_int_equal(stage.have, 0);
	cp_stage_close(&stage, false);
}

static void complete(void)
{
	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, cp_layout_blocks(&layout));
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
}

/* A receiver that has everything is sent nothing, and keeps its files. */
static void resume_what_is_in_place(void **state)
{
	struct stat before, after;

	complete();
	lstat(in_folder("dst/src/big"), &before);
	all_sums();
	assert_int_equal(open_stage("", true), 0);
	assert_int_equal(lacking(), 0);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	lstat(in_folder("dst/src/big"), &after);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(after.st_nlink, 1);
	expect_all("dst");
	assert_int_equal(names("dst"), 1);
}

/* A file in place lies by size and time: it is never written in place. */
static void resume_what_lies(void **state)
{
	struct timespec times[2];
	struct stat st;
	char *lie = strdup("lies here");
	int fd;

	complete();
	lstat(in_folder("dst/src/big"), &st);
	times[0] = times[1] = st.st_mtim;
	fd = open(in_folder("dst/src/big"), O_WRONLY);
	assert_int_equal(pwrite(fd, lie, 9, BLOCK + 7), 9);
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
	all_sums();
	assert_int_equal(open_stage("", true), 0);
	assert_int_equal(lacking(), 1);
	put_blocks(1, 2);
	assert_int_equal(lacking(), 0);
	/* until commit the old file is as it was */
	fd = open(in_folder("dst/src/big"), O_RDONLY);
	memset(lie, 0, 9);
	assert_int_equal(pread(fd, lie, 9, BLOCK + 7), 9);
	assert_string_equal(lie, "lies here");
	close(fd);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	expect_all("dst");
	free(lie);
}

/* A file in place that has another name, too: the mode that it gets is not
 * that one's business. */
static void resume_beside_a_hard_link(void **state)
{
	struct stat st;

	complete();
	assert_int_equal(link(in_folder("dst/src/big"), in_folder("other")), 0);
	close_source();
	assert_int_equal(chmod(in_folder("src/big"), 0600), 0);
	open_source();
	all_sums();
	assert_int_equal(open_stage("", true), 0);
	put_blocks(0, 6);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	expect_all("dst");
	lstat(in_folder("other"), &st);
	assert_int_equal(st.st_mode & 0777, 0640);
}

static void put_lie(const char *name, const char *lie, off_t at)
{
	struct timespec times[2];
	struct stat st;
	int fd = open(in_folder(name), O_WRONLY);

	assert_int_equal(fstat(fd, &st), 0);
	times[0] = times[1] = st.st_mtim;
	assert_int_equal(pwrite(fd, lie, strlen(lie), at),
			 (ssize_t)strlen(lie));
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

/* A crashed copy had linked a file in place, which has moved since: what it is
 * called now is no part of the copy. */
static void resume_a_link_that_moved(void **state)
{
	char got[10] = "";
	int fd;

	complete();
	put_lie("dst/src/big", "lies here", BLOCK);
	all_sums();
	assert_int_equal(open_stage("", true), 0);
	assert_int_equal(lacking(), 1);
	cp_stage_close(&stage, true);
	assert_int_equal(rename(in_folder("dst/src/big"), in_folder("mine")),
			 0);
	assert_int_equal(open_stage("", true), 0);
	put_blocks(0, 6);
	assert_int_equal(lacking(), 0);
	assert_int_equal(cp_commit(&stage, false, &err), 0);
	cp_stage_close(&stage, false);
	expect_all("dst");
	fd = open(in_folder("mine"), O_RDONLY);
	assert_int_equal(pread(fd, got, 9, BLOCK), 9);
	assert_string_equal(got, "lies here");
	close(fd);
}

/* What is in place where the copy has a hole is in no block. */
static void resume_over_a_hole(void **state)
{
	char *want = calloc(1, 4 << 20);
	int fd = open(in_folder("src/big"), O_WRONLY | O_TRUNC);

	assert_int_equal(ftruncate(fd, 4 << 20), 0);
	assert_int_equal(pwrite(fd, big, 100, 2 << 20), 100);
	close(fd);
	memcpy(want + (2 << 20), big, 100);
	close_source();
	open_source();
	complete();
	for (int i = 0; i < 2; i++) {
		put_lie("dst/src/big", "lies", i ? (4 << 20) - 4 : BLOCK);
		assert_int_equal(open_stage("", true), 0);
		put_blocks(0, cp_layout_blocks(&layout));
		assert_int_equal(cp_commit(&stage, false, &err), 0);
		cp_stage_close(&stage, false);
		expect_file("dst/src/big", want, 4 << 20);
	}
	free(want);
}

/* Where others may write, what is renamed need not be what was checked. */
static void a_stage_of_others(void **state)
{
	char name[100] = "dst/" CP_STAGE_PREFIX;

	for (int i = 0; i < CP_ID_LEN; i++)
		sprintf(name + strlen(name), "%02x", id[i]);
	put_dir(name);
	assert_int_equal(chmod(in_folder(name), 0770), 0);
	assert_int_equal(open_stage("", true), -EEXIST);
	assert_non_null(strstr(err.text, "not this user's alone"));
	assert_int_equal(chmod(in_folder(name), 0700), 0);
	assert_int_equal(open_stage("", true), 0);
	cp_stage_close(&stage, false);
}

/* As of a file system over a network that finds the disk full only then. */
static int close_fails;
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	int rc = __real_close(fd);

	if (!close_fails)
		return rc;
	errno = close_fails;
	return -1;
}

static void closing_that_fails(void **state)
{
	assert_int_equal(open_stage("", false), 0);
	put_blocks(0, 6);
	close_fails = EDQUOT;
	assert_int_equal(cp_commit(&stage, false, &err), -EDQUOT);
	close_fails = 0;
	assert_false(there("dst/src"));
	cp_stage_close(&stage, false);
}

static void sparse(void **state)
{
	struct stat st;
	int fd = open(in_folder("src/big"), O_WRONLY | O_TRUNC);
	char want[BLOCK] = {0}, got[BLOCK];

	assert_int_equal(ftruncate(fd, 64 << 20), 0);
	assert_int_equal(pwrite(fd, big, 100, 33 << 20), 100);
	close(fd);
	close_source();
	open_source();
	complete();
	fd = open(in_folder("dst/src/big"), O_RDONLY);
	fstat(fd, &st);
	assert_int_equal(st.st_size, 64 << 20);
	assert_true(st.st_blocks * 512 < 1 << 20);
	assert_int_equal(pread(fd, got, BLOCK, 33 << 20), BLOCK);
	memcpy(want, big, 100);
	assert_memory_equal(got, want, BLOCK);
	close(fd);
}

static void relative(const char *dir, const char *path, int rc,
		     const char *want)
{
	char rel[CP_PATH_MAX + 1] = "?";

	assert_int_equal(cp_below_rel(dir, path, rel), rc);
	if (!rc)
		assert_string_equal(rel, want);
}

static void paths_of_targets(void **state)
{
	relative("/data", NULL, 0, "");
	relative("/data", "/data", 0, "");
	relative("/data", "/data/", 0, "");
	relative("/data", "/data//a/b/", 0, "a/b");
	relative("/data", "a/b", 0, "a/b");
	relative("/", "/etc", 0, "etc");
	relative("/data", "/database", -EACCES, NULL);
	relative("/data", "/etc", -EACCES, NULL);
	relative("/data", "/data/../etc", -EINVAL, NULL);
	relative("/data", "../etc", -EINVAL, NULL);
	relative("/data", "a//b", -EINVAL, NULL);
}

#define in_a_folder(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_a_folder(in_any_order),
		in_a_folder(blocks_in_pieces),
		in_a_folder(replaces_and_leaves),
		in_a_folder(below_the_root),
		in_a_folder(links_are_not_followed),
		in_a_folder(a_link_made_meanwhile),
		in_a_folder(other_kinds_in_the_way),
		in_a_folder(wrong_blocks_are_seen),
		in_a_folder(the_same_twice),
		in_a_folder(a_full_disk),
		in_a_folder(crashed_ones_go),
		in_a_folder(resume),
		in_a_folder(resume_a_damaged_state),
		in_a_folder(resume_what_is_in_place),
		in_a_folder(resume_what_lies),
		in_a_folder(resume_beside_a_hard_link),
		in_a_folder(resume_a_link_that_moved),
		in_a_folder(resume_over_a_hole),
		in_a_folder(a_stage_of_others),
		in_a_folder(closing_that_fails),
		in_a_folder(sparse),
		cmocka_unit_test(paths_of_targets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
