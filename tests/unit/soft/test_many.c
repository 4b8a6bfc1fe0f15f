/* SPDX-License-Identifier: MIT */
/*
 * 10,000 connected QPs: what they take of memory, counted (blocks of the NIC
 * files, and the heap), below 16 KiB each; and they work.
 */
#include "rig.h"

#include "dev/soft/soft.h"

#include <malloc.h>
#include <stdio.h>
#include <sys/stat.h>

#define PAIRS 5000
#define RECVS 64
#define BYTES_MAX 16384

static struct rig_end a, b;
static struct ibv_qp *qa[PAIRS], *qb[PAIRS];

static uint64_t file_bytes(struct rig_end *e)
{
	struct stat st;

	assert_int_equal(fstat(soft_of_dev(e->dev)->nic_fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static uint64_t bytes_now(void)
{
	struct mallinfo2 m = mallinfo2();

	return file_bytes(&a) + file_bytes(&b) + m.uordblks + m.hblkhd;
}

static struct ibv_qp *qp_new(struct rig_end *e)
{
	struct ibv_qp_init_attr at = {.send_cq = e->cq,
				      .recv_cq = e->cq,
				      .qp_type = IBV_QPT_RC,
				      .cap = {.max_send_wr = RECVS,
					      .max_recv_wr = RECVS,
					      .max_send_sge = 2,
					      .max_recv_sge = 2,
					      .max_inline_data = 64}};
	struct ibv_qp *qp;

	assert_int_equal(e->dev->ops->create_qp(e->dev, e->pd, &at, 0, &qp), 0);
	assert_int_equal(dev_qp_init(e->dev, qp, RIG_ACCESS), 0);
	return qp;
}

static void connect_pair(unsigned i)
{
	struct dev_qp_addr to_a, to_b;

	qa[i] = qp_new(&a);
	qb[i] = qp_new(&b);
	rig_qp_addr(&a, qa[i], &to_a);
	rig_qp_addr(&b, qb[i], &to_b);
	rig_connect_qp(&a, qa[i], &to_b);
	rig_connect_qp(&b, qb[i], &to_a);
}

static void say(struct rig_end *e, unsigned i)
{
	assert_int_equal(rig_post(e, IBV_WR_SEND, i, e->buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(e, i, IBV_WC_SUCCESS);
}

/* A message each way. */
static void talk(unsigned i)
{
	struct ibv_qp *oa = a.qp, *ob = b.qp;
	struct ibv_wc wc;

	a.qp = qa[i];
	b.qp = qb[i];
	assert_int_equal(rig_recv(&a, i, a.buf, 8), 0);
	assert_int_equal(rig_recv(&b, i, b.buf, 8), 0);
	say(&a, i);
	rig_wait(&b, &wc);
	assert_int_equal(wc.wr_id, i);
	assert_int_equal(wc.qp_num, b.qp->qp_num);
	say(&b, i);
	rig_wait(&a, &wc);
	assert_int_equal(wc.wr_id, i);
	assert_int_equal(wc.qp_num, a.qp->qp_num);
	a.qp = oa;
	b.qp = ob;
}

static void test_many(void **state)
{
	uint64_t before, used;
	unsigned i;

	rig_pair(&a, &b, NULL);
	before = bytes_now();
	for (i = 0; i < PAIRS; i++)
		connect_pair(i);
	for (i = 0; i < PAIRS; i++)
		talk(i);
	used = bytes_now() - before;
	print_message("  %u connected QPs: %.0f bytes each\n", 2 * PAIRS,
		      (double)used / (2 * PAIRS));
	assert_true(used / (2 * PAIRS) < BYTES_MAX);
	for (i = 0; i < PAIRS; i++) {
		assert_int_equal(a.dev->ops->destroy_qp(a.dev, qa[i]), 0);
		assert_int_equal(b.dev->ops->destroy_qp(b.dev, qb[i]), 0);
	}
	rig_unpair(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
