/* SPDX-License-Identifier: MIT */
/*
 * test_walk.c - operands to manifests, and their bytes by block.
 */
#include "cp/sender/source.h"
#include "cp/sender/walk.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/time.h>

#include "folder.h"

static struct cp_err err;

static int walk(struct cp_tree *t, const char *a, const char *b)
{
	char *operands[2] = {(char *)a, (char *)b};

	return cp_walk(operands, b ? 2 : 1, "name", 4096, t, &err);
}

static void a_tree(void **state)
{
	struct cp_tree t;

	put_dir("d");
	put_dir("d/e");
	put_file("d/e/f", "hello", 5);
	put_file("d/zero", "", 0);
	assert_int_equal(symlink("../elsewhere", in_folder("d/l")), 0);
	assert_int_equal(symlink("d", in_folder("dl")), 0);
	put_file("g", "x", 1);
	assert_int_equal(walk(&t, in_folder("d/"), in_folder("g")), 0);
	assert_int_equal(t.m.n, 6);
	assert_string_equal(t.m.v[0].path, "d");
	assert_int_equal(t.m.v[0].mode, 0755);
	assert_string_equal(t.m.v[2].path, "d/e/f");
	assert_int_equal(t.m.v[2].mode, 0640);
	assert_int_equal(t.m.v[2].size, 5);
	assert_string_equal(t.m.v[3].link, "../elsewhere");
	assert_string_equal(t.m.v[5].path, "g");
	assert_int_equal(t.m.stream_len, 6);
	cp_tree_fini(&t);
	/* a link as operand is a link, with a slash behind it, too */
	assert_int_equal(walk(&t, in_folder("dl/"), NULL), 0);
	assert_int_equal(t.m.n, 1);
	assert_int_equal(t.m.v[0].type, CP_LINK);
	cp_tree_fini(&t);
	/* "." goes by its real name */
	assert_int_equal(walk(&t, in_folder("d/e/."), NULL), 0);
	assert_string_equal(t.m.v[0].path, "e");
	assert_string_equal(t.m.v[1].path, "e/f");
	cp_tree_fini(&t);
}

/* A directory gives way to a link, between walking and reading, to a file of
 * just that size and time: it is not the one that was walked. */
static void a_link_made_meanwhile(void **state)
{
	struct cp_tree t;
	struct timespec times[2];
	struct stat st;
	int fd = -1;

	put_dir("d");
	put_dir("d/e");
	put_file("d/e/f", "mine", 4);
	put_dir("out");
	put_file("out/f", "his!", 4);
	lstat(in_folder("d/e/f"), &st);
	times[0] = times[1] = st.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, in_folder("out/f"), times, 0), 0);
	assert_int_equal(walk(&t, in_folder("d"), NULL), 0);
	assert_int_equal(rename(in_folder("d/e"), in_folder("e")), 0);
	assert_int_equal(symlink("../out", in_folder("d/e")), 0);
	assert_int_equal(cp_tree_open(&t, &t.m.v[2], &fd, &err), -ELOOP);
	/* another one in the place of the operand: what was walked is read */
	assert_int_equal(unlink(in_folder("d/e")), 0);
	assert_int_equal(rename(in_folder("e"), in_folder("d/e")), 0);
	assert_int_equal(rename(in_folder("d"), in_folder("was")), 0);
	assert_int_equal(symlink("out", in_folder("d")), 0);
	assert_int_equal(cp_tree_open(&t, &t.m.v[2], &fd, &err), 0);
	close(fd);
	cp_tree_fini(&t);
}

static void what_is_refused(void **state)
{
	struct cp_tree t;

	put_dir("d");
	put_file("d/a", "", 0);
	put_file("a", "", 0);
	assert_int_equal(walk(&t, in_folder("none"), NULL), -ENOENT);
	assert_int_equal(walk(&t, in_folder("a"), in_folder("d/a")), -EEXIST);
	assert_non_null(strstr(err.text, "\"a\""));
	assert_int_equal(walk(&t, "/", NULL), -EINVAL);
	assert_int_equal(walk(&t, "", NULL), -EINVAL);
	assert_int_equal(mkfifo(in_folder("d/p"), 0600), 0);
	assert_int_equal(walk(&t, in_folder("d"), NULL), -EINVAL);
	assert_non_null(strstr(err.text, "d/p is neither"));
}

static void unreadable(void **state)
{
	struct cp_tree t;

	if (!geteuid() && seteuid(65534))
		skip();
	/* /tmp is everybody's; the folder is root's */
	assert_int_equal(walk(&t, "/proc/1/environ", NULL), -EACCES);
	assert_non_null(strstr(err.text, "cannot read /proc/1/environ"));
	if (!getuid())
		assert_int_equal(seteuid(0), 0);
}

static void holes(void **state)
{
	char block[4096];
	struct cp_tree t;
	int fd = open(in_folder("s"), O_RDWR | O_CREAT, 0600);

	memset(block, 'x', sizeof(block));
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_equal(pwrite(fd, block, 4096, 65536), 4096);
	close(fd);
	assert_int_equal(walk(&t, in_folder("s"), NULL), 0);
	if (t.m.stream_len == 1 << 20) {
		cp_tree_fini(&t);
		skip(); /* the file system knows no holes */
	}
	assert_int_equal(t.m.v[0].size, 1 << 20);
	assert_int_equal(t.m.v[0].extents, 1);
	assert_true(t.m.v[0].extent[0].off <= 65536);
	assert_true(t.m.stream_len < 1 << 19);
	cp_tree_fini(&t);
}

static void standard_input(void **state)
{
	int pipefd[2], saved = dup(0);
	struct cp_tree t;
	char buf[10];
	int fd;

	assert_int_equal(pipe(pipefd), 0);
	assert_int_equal(write(pipefd[1], "bytes", 5), 5);
	close(pipefd[1]);
	dup2(pipefd[0], 0);
	close(pipefd[0]);
	setenv("TMPDIR", folder, 1);
	assert_int_equal(walk(&t, "-", NULL), 0);
	dup2(saved, 0);
	close(saved);
	assert_string_equal(t.m.v[0].path, "name");
	assert_int_equal(t.m.v[0].size, 5);
	assert_int_equal(t.m.v[0].mode, 0644);
	assert_int_equal(cp_tree_open(&t, &t.m.v[0], &fd, &err), 0);
	assert_int_equal(pread(fd, buf, 10, 0), 5);
	assert_memory_equal(buf, "bytes", 5);
	close(fd);
	cp_tree_fini(&t);
}

static void blocks(void **state)
{
	struct cp_layout l;
	struct cp_source s;
	struct cp_tree t;
	char data[6000], block[4096];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / 256);
	put_dir("d");
	put_file("d/a", data, 1000);
	put_file("d/b", data + 1000, 4500);
	put_file("d/c", data + 5500, 500);
	assert_int_equal(walk(&t, in_folder("d"), NULL), 0);
	assert_int_equal(cp_layout_init(&l, &t.m), 0);
	assert_int_equal(cp_source_open(&s, &t, &l), 0);
	assert_int_equal(cp_source_read(&s, 1, block, &err), 0);
	assert_memory_equal(block, data + 4096, 6000 - 4096);
	assert_int_equal(cp_source_read(&s, 0, block, &err), 0);
	assert_memory_equal(block, data, 4096);
	assert_true(s.sums[0] && s.sums[1] && s.sums[0] != s.sums[1]);
	assert_int_equal(cp_source_finish(&s, &err), 0);
	cp_source_close(&s);
	cp_layout_fini(&l);
	cp_tree_fini(&t);
}

static void changed(const char *what, bool shorter)
{
	struct timeval times[2] = {{1, 0}, {1, 0}};
	struct cp_layout l;
	struct cp_source s;
	struct cp_tree t;
	char block[4096] = "", *whole = calloc(1, 10000);
	int rc;

	put_file("f", whole, 10000);
	assert_int_equal(walk(&t, in_folder("f"), NULL), 0);
	assert_int_equal(cp_layout_init(&l, &t.m), 0);
	assert_int_equal(cp_source_open(&s, &t, &l), 0);
	assert_int_equal(cp_source_read(&s, 0, block, &err), 0);
	if (shorter)
		assert_int_equal(truncate(in_folder("f"), 5000), 0);
	else
		assert_int_equal(utimes(in_folder("f"), times), 0);
	rc = cp_source_read(&s, 1, block, &err);
	if (!rc)
		rc = cp_source_finish(&s, &err);
	assert_int_equal(rc, -ESTALE);
	assert_non_null(strstr(err.text, what));
	cp_source_close(&s);
	cp_layout_fini(&l);
	cp_tree_fini(&t);
	free(whole);
}

static void a_file_that_changes(void **state)
{
	changed("became shorter", true);
	changed("was changed", false);
}

#define in_a_folder(fn) \
	cmocka_unit_test_setup_teardown(fn, folder_make, folder_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_a_folder(a_tree),
		in_a_folder(a_link_made_meanwhile),
		in_a_folder(what_is_refused),
		in_a_folder(unreadable),
		in_a_folder(holes),
		in_a_folder(standard_input),
		in_a_folder(blocks),
		in_a_folder(a_file_that_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
