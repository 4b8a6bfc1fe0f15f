/* SPDX-License-Identifier: MIT */
/* test_shm.c - private System V segments by memfds: their life, and files. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bind/verbs/shm.h"

static struct vb_shm *fresh(void)
{
	static const struct vb_shm init = VB_SHM_INIT;
	static struct vb_shm s; /* one at a time */

	s = init;
	return &s;
}

static void lives(void **state)
{
	struct vb_shm *s = fresh();
	struct shmid_ds ds;
	uint64_t off = 0;
	char *p, *q;
	int id, fd = -1;

	id = vb_shm_get(s, 100000, IPC_CREAT | 0600);
	assert_true(vb_shm_is_id(id));
	p = vb_shm_attach(s, id, NULL, 0);
	q = vb_shm_attach(s, id, NULL, SHM_RDONLY);
	assert_ptr_not_equal(p, (void *)-1);
	assert_ptr_not_equal(q, (void *)-1);
	p[99999] = 4;
	assert_int_equal(q[99999], 4);
	assert_int_equal(vb_shm_ctl(s, id, IPC_STAT, &ds), 0);
	assert_int_equal(ds.shm_nattch, 2);
	assert_int_equal(ds.shm_segsz, 102400);
	assert_int_equal(vb_shm_file(s, p + 7, 1000, &fd, &off), 0);
	assert_int_equal(off, 7);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK, F_SEAL_SHRINK);
	assert_int_equal(vb_shm_file(s, p, 200000, &fd, &off), -ENOENT);
	assert_int_equal(vb_shm_file(s, s, 1, &fd, &off), -ENOENT);
	/* doomed, it lives as long as it is mapped */
	assert_int_equal(vb_shm_ctl(s, id, IPC_RMID, NULL), 0);
	assert_int_equal(p[99999], 4);
	assert_false(vb_shm_detach(s, p + 4096));
	assert_true(vb_shm_detach(s, p));
	assert_int_equal(vb_shm_ctl(s, id, IPC_STAT, &ds), 0);
	assert_true(vb_shm_detach(s, q));
	assert_int_equal(vb_shm_ctl(s, id, IPC_STAT, &ds), -1);
	assert_int_equal(errno, EINVAL);
	assert_ptr_equal(vb_shm_attach(s, id, NULL, 0), (void *)-1);
	assert_false(vb_shm_detach(s, NULL));
}

/* The program closed a descriptor and got its number again for another file. */
static void closed_descriptor(void **state)
{
	struct vb_shm *s = fresh();
	int id = vb_shm_get(s, 4096, 0600), fd = -1, zero;
	char *p = vb_shm_attach(s, id, NULL, 0);
	uint64_t off;

	zero = open("/dev/zero", O_RDWR);
	assert_int_equal(dup2(zero, s->segs[0].fd), s->segs[0].fd);
	assert_int_equal(vb_shm_file(s, p, 4096, &fd, &off), -ENOENT);
	close(zero);
}

static void tables_are_full(void **state)
{
	struct vb_shm *s = fresh();
	unsigned i;
	int id = -1;

	for (i = 0; i < VB_SHM_SEGS; i++) {
		id = vb_shm_get(s, 4096, 0600);
		assert_true(vb_shm_is_id(id));
	}
	assert_int_equal(vb_shm_get(s, 4096, 0600), -1);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(vb_shm_get(s, 0, 0600), -1);
	assert_int_equal(errno, EINVAL);
	for (i = 0; i < VB_SHM_MAPS; i++)
		assert_ptr_not_equal(vb_shm_attach(s, id, NULL, 0), (void *)-1);
	assert_ptr_equal(vb_shm_attach(s, id, NULL, 0), (void *)-1);
	assert_int_equal(errno, EMFILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lives),
		cmocka_unit_test(closed_descriptor),
		cmocka_unit_test(tables_are_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
