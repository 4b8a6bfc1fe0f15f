/* SPDX-License-Identifier: MIT */
/*
 * Regions whose requests name other addresses than the program's: both ends of
 * every operation, in mapped and in ordinary memory, here and over the link
 * between hosts.
 */
#include "rig.h"

#define IOVA_A 0x100000000ull
#define IOVA_B 0ull
#define LEN 65536u

static struct rig_end a, b;
static struct ibv_mr *mr_a, *mr_b;

static struct ibv_mr *reg(struct rig_end *e, uint64_t iova)
{
	struct ibv_mr *mr;

	assert_int_equal(e->dev->ops->reg_mr_iova(e->dev, e->pd, e->buf, LEN,
						  iova, RIG_ACCESS, e->mem->fd,
						  e->mem->off, &mr),
			 0);
	assert_ptr_equal(mr->addr, e->buf);
	e->lkey = mr->lkey;
	return mr;
}

static int up(void **state)
{
	const char *link = *state;
	struct rig_opts o = {.plain = link && !strcmp(link, "plain")};

	if (link && !o.plain)
		setenv("SKEIN_LINK", link, 1);
	rig_pair(&a, &b, &o);
	unsetenv("SKEIN_LINK");
	mr_a = reg(&a, IOVA_A);
	mr_b = reg(&b, IOVA_B);
	memset(a.buf, 0, LEN);
	memset(b.buf, 0, LEN);
	return 0;
}

static int down(void **state)
{
	a.dev->ops->dereg_mr(a.dev, mr_a);
	b.dev->ops->dereg_mr(b.dev, mr_b);
	rig_unpair(&a, &b);
	return 0;
}

static void good(enum ibv_wr_opcode op, uint64_t at, uint32_t len,
		 uint64_t raddr)
{
	assert_int_equal(rig_post(&a, op, 1, (void *)(uintptr_t)(IOVA_A + at),
				  len, IOVA_B + raddr, mr_b->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
}

static void test_operations(void **state)
{
	memset(a.buf + 8, 1, 40000);
	good(IBV_WR_RDMA_WRITE, 8, 40000, 16);
	assert_memory_equal(b.buf + 16, a.buf + 8, 40000);
	assert_int_equal(b.buf[15], 0);
	memset(b.buf + 64, 2, 30000);
	good(IBV_WR_RDMA_READ, 0, 30000, 64);
	assert_memory_equal(a.buf, b.buf + 64, 30000);
	assert_int_equal(
		rig_recv(&b, 7, (void *)(uintptr_t)(IOVA_B + 4096), 5000), 0);
	memset(a.buf + 100, 3, 5000);
	good(IBV_WR_SEND, 100, 5000, 0);
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	assert_memory_equal(b.buf + 4096, a.buf + 100, 5000);
	assert_int_equal(b.buf[4095], 2);
}

/* rig_post() names what it is given; the operands are beside it. */
static void test_atomic(void **state)
{
	struct ibv_sge sge = {IOVA_A + 64, 8, mr_a->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.atomic.remote_addr = IOVA_B + 128;
	wr.wr.atomic.rkey = mr_b->rkey;
	wr.wr.atomic.compare_add = 5;
	*(uint64_t *)(void *)(b.buf + 128) = 7;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(*(uint64_t *)(void *)(a.buf + 64), 7);
	assert_int_equal(*(uint64_t *)(void *)(b.buf + 128), 12);
}

/* The program's own addresses mean nothing under these keys. */
static void test_refused(void **state)
{
	assert_int_equal(
		rig_post(&a, IBV_WR_RDMA_WRITE, 1, (void *)(uintptr_t)IOVA_A, 8,
			 (uintptr_t)b.buf, mr_b->rkey, IBV_SEND_SIGNALED),
		0);
	rig_expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
}

static void test_refused_local(void **state)
{
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 8, IOVA_B,
				  mr_b->rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_LOC_PROT_ERR);
}

#define EACH(f, how) cmocka_unit_test_prestate_setup_teardown(f, up, down, how)
#define ALL(how)                                            \
	EACH(test_operations, how), EACH(test_atomic, how), \
		EACH(test_refused, how), EACH(test_refused_local, how)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALL(NULL),
		ALL("plain"),
		ALL("tcp"),
		ALL("udp"),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
