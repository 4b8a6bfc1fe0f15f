/* SPDX-License-Identifier: MIT */
/* Regions in the NIC file: a process that is connected has them mapped, and
 * asks nobody. And the files that must be asked for: once, whatever wakes the
 * control thread meanwhile. */
#include "rig.h"

#include "dev/soft/peer/msg.h"
#include "dev/soft/qp/qp.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LEN (64u << 10)
#define MOST (256u << 10)

/* Questions for files, of this process. */
static _Atomic unsigned asked;

ssize_t sendmsg(int fd, const struct msghdr *h, int flags)
{
	const struct msg *m = h->msg_iov->iov_base;

	if (h->msg_iov->iov_len >= sizeof(*m) && m->magic == MSG_MAGIC &&
	    m->op == MSG_MR_FD)
		atomic_fetch_add(&asked, 1);
	return syscall(SYS_sendmsg, fd, h, flags);
}

static struct mem_region *near_new(struct rig_end *e, size_t len)
{
	struct mem_region *r;

	assert_int_equal(mem_region_near(e->dev, e->pd, "near", len, RIG_ACCESS,
					 7, &r),
			 0);
	assert_int_equal(r->len, len);
	return r;
}

static void write_to(struct rig_end *from, const struct mem_region *to,
		     char what)
{
	struct ibv_wc wc;

	memset(from->buf, what, to->len);
	assert_int_equal(rig_post(from, IBV_WR_RDMA_WRITE, 1, from->buf,
				  (uint32_t)to->len, (uintptr_t)to->addr,
				  to->mr->rkey, IBV_SEND_SIGNALED),
			 0);
	rig_wait(from, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(to->addr, from->buf, to->len);
}

static void test_nobody_is_asked(void **state)
{
	struct rig_end a, b;
	struct mem_region *r;
	unsigned fds;

	rig_pair(&a, &b, NULL);
	fds = rig_fds();
	r = near_new(&b, LEN);
	assert_int_equal(r->fd, -1);
	atomic_store(&asked, 0);
	write_to(&a, r, 'x');
	assert_int_equal(atomic_load(&asked), 0);
	assert_int_equal(rig_fds(), fds);
	mem_region_free(r);
	rig_unpair(&a, &b);
}

/* In a part of the file that was not there when the peers met, or with its end
 * there. */
static void test_beyond(void **state)
{
	struct mem_region *r[8];
	struct rig_end a, b;
	unsigned beyond = 0;
	uint64_t size, end;

	rig_pair(&a, &b, NULL);
	size = soft_peer_size(soft_qp_of(a.qp)->peer);
	for (int i = 0; i < 8; i++) {
		r[i] = near_new(&b, MOST);
		end = (uint64_t)((char *)r[i]->addr -
				 soft_of_dev(b.dev)->base) +
		      MOST;
		beyond += end > size;
		/* one across it */
		assert_true(end <= size || beyond > 1 || end - MOST < size);
	}
	atomic_store(&asked, 0);
	for (int i = 0; i < 8; i++)
		write_to(&a, r[i], (char)('a' + i));
	for (int i = 0; i < 8; i++)
		assert_int_equal(*(char *)r[i]->addr, 'a' + i);
	assert_in_range(beyond, 2, 8);
	assert_int_equal(atomic_load(&asked), beyond);
	for (int i = 0; i < 8; i++)
		mem_region_free(r[i]);
	rig_unpair(&a, &b);
}

static void test_zeroed_and_bounded(void **state)
{
	struct mem_region *r;
	struct rig_end a, b;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	uint32_t rkey;
	void *was;

	rig_pair(&a, &b, NULL);
	r = near_new(&b, LEN);
	write_to(&a, r, 'x');
	was = r->addr;
	rkey = r->mr->rkey;
	mem_region_free(r);
	r = near_new(&b, LEN);
	assert_ptr_equal(r->addr, was);
	for (size_t i = 0; i < LEN; i++)
		assert_int_equal(((char *)r->addr)[i], 0);
	/* The key of the one before is over. */
	rig_post(&a, IBV_WR_RDMA_WRITE, 2, a.buf, 8, (uintptr_t)r->addr, rkey,
		 IBV_SEND_SIGNALED);
	rig_wait(&a, &wc);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	mem_region_free(r);

	assert_int_equal(b.dev->ops->new_mr(b.dev, b.pd, MOST + 1, RIG_ACCESS,
					    &mr),
			 -E2BIG);
	assert_int_equal(b.dev->ops->new_mr(b.dev, b.pd, 0, RIG_ACCESS, &mr),
			 -EINVAL);
	assert_int_equal(b.dev->ops->new_mr(b.dev, b.pd, LEN,
					    IBV_ACCESS_REMOTE_WRITE, &mr),
			 -EINVAL);
	r = near_new(&b, MOST + 1); /* a file of its own */
	assert_true(r->fd >= 0);
	mem_region_free(r);
	rig_unpair(&a, &b);
}

/* All that there is of it: then by files; and again when some is back. */
static void test_all_of_it(void **state)
{
	static struct mem_region *r[1024];
	struct rig_end e;
	unsigned n = 0;

	rig_open(&e, NULL);
	do
		r[n] = near_new(&e, MOST);
	while (r[n++]->fd < 0 && n < 1024);
	assert_int_equal(n - 1, SHM_SPAN / 8 / MOST);
	mem_region_free(r[0]);
	r[0] = near_new(&e, MOST);
	assert_int_equal(r[0]->fd, -1);
	while (n)
		mem_region_free(r[--n]);
	rig_close(&e);
}

/* A peer that has stopped inside may go on: that piece serves nobody else. */
static void test_stopped_inside(void **state)
{
	struct mem_region *r, *other;
	struct rig_end a, b;
	void *was;

	rig_pair(&a, &b, NULL);
	r = near_new(&b, LEN);
	was = r->addr;
	soft_hazard_on(soft_qp_of(a.qp));
	mem_region_free(r);
	other = near_new(&b, LEN);
	assert_ptr_not_equal(other->addr, was);
	soft_hazard_off(soft_qp_of(a.qp));
	mem_region_free(other);
	rig_unpair(&a, &b);
}

/* The answer takes its time, and the control thread has other things to do. */
static void test_asks_once(void **state)
{
	const struct timespec nap = {.tv_nsec = 100000};
	struct rig_end a, b;
	struct ibv_wc wc;
	struct soft *busy;
	uint64_t begun;

	rig_pair(&a, &b, NULL);
	busy = soft_of_dev(b.dev);
	atomic_store(&asked, 0);
	pthread_mutex_lock(&busy->lock);
	begun = rig_now_ns();
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 64,
				  (uintptr_t)b.mem->addr, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	for (int i = 0; i < 200; i++) {
		soft_kick(soft_of_dev(a.dev));
		nanosleep(&nap, NULL);
	}
	/* The timer's: each 20 ms. */
	assert_in_range(atomic_load(&asked), 1,
			1 + (rig_now_ns() - begun) / 20000000u);
	pthread_mutex_unlock(&busy->lock);
	rig_wait(&a, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	rig_unpair(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_is_asked),
		cmocka_unit_test(test_beyond),
		cmocka_unit_test(test_zeroed_and_bounded),
		cmocka_unit_test(test_all_of_it),
		cmocka_unit_test(test_stopped_inside),
		cmocka_unit_test(test_asks_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
