/* SPDX-License-Identifier: MIT */
/* Every verb and status between two ends: data, lengths, immediates, order. */
#include "rig.h"

static struct rig_end a, b;

static int both(void **state)
{
	rig_pair(&a, &b, *state);
	return 0;
}

static int both_down(void **state)
{
	rig_unpair(&a, &b);
	return 0;
}

static void fill(char *p, size_t n, unsigned seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (char)(seed + i * 7 + (i >> 8));
}

static void test_write(void **state)
{
	static const uint32_t lens[] = {1,  2,	3,   4,	  7,	8,     9,
					15, 64, 100, 255, 4096, 65537, 1 << 20};
	unsigned i;

	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		fill(a.buf + i, lens[i], i);
		memset(b.buf, 0x55, lens[i] + 64);
		assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, a.buf + i,
					  lens[i], (uintptr_t)b.buf + 8 + i,
					  b.mem->mr->rkey, IBV_SEND_SIGNALED),
				 0);
		rig_expect(&a, i, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf + i, b.buf + 8 + i, lens[i]);
		assert_int_equal(b.buf[7 + i], 0x55);
		assert_int_equal(b.buf[8 + i + lens[i]], 0x55);
	}
}

static void test_read(void **state)
{
	struct ibv_wc wc;

	fill(b.buf, 100000, 3);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 9, a.buf + 1, 99999,
				  (uintptr_t)b.buf + 1, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_wait(&a, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_int_equal(wc.byte_len, 99999);
	assert_memory_equal(a.buf + 1, b.buf + 1, 99999);
}

static void test_send(void **state)
{
	struct ibv_wc wc;
	unsigned i;

	for (i = 0; i < 1000; i++) {
		assert_int_equal(rig_recv(&b, 100 + i, b.buf + 64, 128), 0);
		fill(a.buf, 100, i);
		assert_int_equal(
			rig_post(&a, i & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
				 i, a.buf, 100, 0, 0, IBV_SEND_SIGNALED),
			0);
		rig_expect(&a, i, IBV_WC_SUCCESS);
		rig_wait(&b, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.wr_id, 100 + i);
		assert_int_equal(wc.byte_len, 100);
		assert_int_equal(wc.qp_num, b.qp->qp_num);
		assert_int_equal(wc.wc_flags, i & 1 ? IBV_WC_WITH_IMM : 0);
		if (i & 1)
			assert_int_equal(wc.imm_data, 0x01020304);
		assert_memory_equal(a.buf, b.buf + 64, 100);
	}
}

static void test_write_imm(void **state)
{
	struct ibv_wc wc;

	assert_int_equal(rig_recv(&b, 7, b.buf, 0), 0);
	fill(a.buf, 33, 1);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, a.buf, 33,
				  (uintptr_t)b.buf + 1000, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_wait(&b, &wc);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.byte_len, 33);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_memory_equal(a.buf, b.buf + 1000, 33);
}

static int post_atomic(enum ibv_wr_opcode op, uint64_t add, uint64_t swap)
{
	struct ibv_sge sge = {(uintptr_t)a.buf, 8, a.mem->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 5,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.atomic.remote_addr = (uintptr_t)b.buf + 64;
	wr.wr.atomic.rkey = b.mem->mr->rkey;
	wr.wr.atomic.compare_add = add;
	wr.wr.atomic.swap = swap;
	return ibv_post_send(a.qp, &wr, &bad);
}

static void test_atomics(void **state)
{
	uint64_t *old = (uint64_t *)(void *)a.buf;
	uint64_t *word = (uint64_t *)(void *)(b.buf + 64);

	*word = 40;
	assert_int_equal(post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0), 0);
	rig_expect(&a, 5, IBV_WC_SUCCESS);
	assert_int_equal(*old, 40);
	assert_int_equal(*word, 42);
	assert_int_equal(post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 41, 7), 0);
	rig_expect(&a, 5, IBV_WC_SUCCESS);
	assert_int_equal(*old, 42);
	assert_int_equal(*word, 42);
	assert_int_equal(post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 42, 7), 0);
	rig_expect(&a, 5, IBV_WC_SUCCESS);
	assert_int_equal(*old, 42);
	assert_int_equal(*word, 7);
}

/* Pieces of odd lengths on both sides; the bytes arrive in their order. */
static void test_pieces(void **state)
{
	struct ibv_sge s[4] = {{(uintptr_t)a.buf, 3, a.mem->mr->lkey},
			       {(uintptr_t)a.buf + 100, 5, a.mem->mr->lkey},
			       {(uintptr_t)a.buf + 200, 0, a.mem->mr->lkey},
			       {(uintptr_t)a.buf + 300, 6, a.mem->mr->lkey}};
	struct ibv_sge r[3] = {{(uintptr_t)b.buf, 1, b.mem->mr->lkey},
			       {(uintptr_t)b.buf + 100, 9, b.mem->mr->lkey},
			       {(uintptr_t)b.buf + 200, 50, b.mem->mr->lkey}};
	struct ibv_send_wr wr = {.sg_list = s,
				 .num_sge = 4,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_recv_wr rr = {.sg_list = r, .num_sge = 3}, *rbad;

	memcpy(a.buf, "abc", 3);
	memcpy(a.buf + 100, "defgh", 5);
	memcpy(a.buf + 300, "ijklmn", 6);
	assert_int_equal(ibv_post_recv(b.qp, &rr, &rbad), 0);
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	rig_expect(&a, 0, IBV_WC_SUCCESS);
	rig_expect(&b, 0, IBV_WC_SUCCESS);
	assert_memory_equal(b.buf, "a", 1);
	assert_memory_equal(b.buf + 100, "bcdefghij", 9);
	assert_memory_equal(b.buf + 200, "klmn", 4);

	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)b.buf + 5001;
	wr.wr.rdma.rkey = b.mem->mr->rkey;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	rig_expect(&a, 0, IBV_WC_SUCCESS);
	assert_memory_equal(b.buf + 5001, "abcdefghijklmn", 14);

	wr.opcode = IBV_WR_RDMA_READ;
	memset(a.buf, 0, 400);
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	rig_expect(&a, 0, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, "abc", 3);
	assert_memory_equal(a.buf + 100, "defgh", 5);
	assert_memory_equal(a.buf + 300, "ijklmn", 6);
}

static void test_inline(void **state)
{
	char own[256];

	fill(own, sizeof(own), 9);
	/* own is in no MR */
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, own, 256,
				  (uintptr_t)b.buf, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED | IBV_SEND_INLINE),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(own, b.buf, 256);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, own, 257,
				  (uintptr_t)b.buf, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED | IBV_SEND_INLINE),
			 EINVAL);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 1, own, 8,
				  (uintptr_t)b.buf, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED | IBV_SEND_INLINE),
			 EINVAL);
}

/* A slot of the send queue is free once a later completion was polled. */
static void test_selective(void **state)
{
	unsigned i;

	for (i = 0; i < RIG_WR; i++)
		assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, a.buf, 8,
					  (uintptr_t)b.buf, b.mem->mr->rkey,
					  i == RIG_WR / 2 ? IBV_SEND_SIGNALED
							  : 0),
				 0);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, a.buf, 8,
				  (uintptr_t)b.buf, b.mem->mr->rkey, 0),
			 ENOMEM);
	rig_expect(&a, RIG_WR / 2, IBV_WC_SUCCESS);
	assert_true(rig_quiet(&a));
	for (i = 0; i < RIG_WR / 2 + 1; i++)
		assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, a.buf, 8,
					  (uintptr_t)b.buf, b.mem->mr->rkey,
					  i == RIG_WR / 2 ? IBV_SEND_SIGNALED
							  : 0),
				 0);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, a.buf, 8,
				  (uintptr_t)b.buf, b.mem->mr->rkey, 0),
			 ENOMEM);
	rig_expect(&a, RIG_WR / 2, IBV_WC_SUCCESS);
}

/* A list: what is before the bad one is done, the bad one is named. */
static void test_bad_wr(void **state)
{
	struct ibv_sge s = {(uintptr_t)a.buf, 8, a.mem->mr->lkey};
	struct ibv_send_wr w[3], *bad = NULL;
	unsigned i;

	memset(w, 0, sizeof(w));
	for (i = 0; i < 3; i++) {
		w[i].sg_list = &s;
		w[i].num_sge = i == 1 ? 5 : 1;
		w[i].opcode = IBV_WR_RDMA_WRITE;
		w[i].send_flags = IBV_SEND_SIGNALED;
		w[i].wr_id = i;
		w[i].next = i < 2 ? &w[i + 1] : NULL;
		w[i].wr.rdma.remote_addr = (uintptr_t)b.buf;
		w[i].wr.rdma.rkey = b.mem->mr->rkey;
	}
	assert_int_equal(ibv_post_send(a.qp, w, &bad), EINVAL);
	assert_ptr_equal(bad, &w[1]);
	rig_expect(&a, 0, IBV_WC_SUCCESS);
	assert_true(rig_quiet(&a));
}

static void peer_main(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;
	char done;

	rig_meet(&e, sock, arg, &peer);
	rig_recv(&e, 1, e.buf, 64);
	rig_put(sock, "r", 1);
	rig_expect(&e, 1, IBV_WC_SUCCESS);
	memcpy(e.buf + 64, e.buf, 64);
	assert_int_equal(rig_post(&e, IBV_WR_RDMA_WRITE, 2, e.buf + 64, 64,
				  peer.buf + 4096, peer.rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&e, 2, IBV_WC_SUCCESS);
	rig_get(sock, &done, 1);
	rig_close(&e);
}

static bool arrived(void *arg)
{
	return *(volatile char *)arg != 0;
}

/* Two processes: SEND there, WRITE back, READ. */
static void test_processes(void **state)
{
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	char go;

	rig_fork(&c, peer_main, *state);
	rig_meet(&e, c.sock, *state, &peer);
	rig_get(c.sock, &go, 1);
	fill(e.buf, 64, 77);
	e.buf[63] = 1;
	assert_int_equal(rig_post(&e, IBV_WR_SEND, 1, e.buf, 64, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&e, 1, IBV_WC_SUCCESS);
	rig_until(arrived, e.buf + 4096 + 63);
	assert_memory_equal(e.buf, e.buf + 4096, 64);
	assert_int_equal(rig_post(&e, IBV_WR_RDMA_READ, 2, e.buf + 8192, 64,
				  peer.buf, peer.rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&e, 2, IBV_WC_SUCCESS);
	assert_memory_equal(e.buf, e.buf + 8192, 64);
	rig_put(c.sock, "d", 1);
	assert_int_equal(rig_join(&c), 0);
	rig_close(&e);
}

#define EACH(f) cmocka_unit_test_prestate_setup_teardown(f, both, both_down, o)
#define ALL                                                                  \
	EACH(test_write), EACH(test_read), EACH(test_send),                  \
		EACH(test_write_imm), EACH(test_atomics), EACH(test_pieces), \
		EACH(test_inline), EACH(test_selective), EACH(test_bad_wr),  \
		cmocka_unit_test_prestate(test_processes, o)

static int run(const char *name, struct rig_opts *o)
{
	const struct CMUnitTest tests[] = {ALL};

	print_message("%s\n", name);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	struct rig_opts shared = {0};
	struct rig_opts single = {.flags = DEV_QP_SINGLE_THREADED};
	struct rig_opts plain = {.plain = true};

	return run("locked QPs", &shared) +
	       run("single-threaded QPs", &single) +
	       run("ordinary memory", &plain);
}
