/* SPDX-License-Identifier: MIT */
#include "verbs_program.h"

#include "../cm.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define PATIENCE_S 20
#define HALF (PROGRAM_MEM / 2)

static struct ibv_sge sge_at(const struct program_end *e, uint32_t off,
			     uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)e->buf + off, len, e->lkey};
}

static struct ibv_send_wr wr_to(const struct program_end *b, uint64_t wr_id,
				enum ibv_wr_opcode op, struct ibv_sge *sge,
				uint32_t off)
{
	struct ibv_send_wr wr = {.wr_id = wr_id,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED};

	if (op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = b->raddr + off;
		wr.wr.atomic.rkey = b->rkey;
	} else {
		wr.wr.rdma.remote_addr = b->raddr + off;
		wr.wr.rdma.rkey = b->rkey;
	}
	return wr;
}

/* One completion of e; the other end's queue is polled too, and has none. */
static struct ibv_wc wc_next(const struct program_end *e,
			     const struct program_end *other)
{
	time_t end = time(NULL) + PATIENCE_S;
	struct ibv_wc wc, none;
	int n;

	while (!(n = ibv_poll_cq(e->qp->send_cq, 1, &wc))) {
		if (other && other->qp)
			assert_int_equal(
				ibv_poll_cq(other->qp->send_cq, 1, &none), 0);
		assert_true(time(NULL) < end);
	}
	assert_int_equal(n, 1);
	assert_int_equal(wc.qp_num, e->qp->qp_num);
	return wc;
}

static void wc_good(const struct program_end *e,
		    const struct program_end *other, uint64_t wr_id,
		    enum ibv_wc_opcode op)
{
	struct ibv_wc wc = wc_next(e, other);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.opcode, op);
	assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
}

static uint64_t word_at(const struct program_end *e, uint32_t off)
{
	uint64_t word;

	memcpy(&word, e->buf + off, sizeof(word));
	return word;
}

/* In one list: the READ sees the WRITE, the atomics see each other. */
static void one_sided(const struct program_end *a, const struct program_end *b)
{
	struct ibv_sge text = sge_at(a, 0, 24), back = sge_at(a, 64, 24);
	struct ibv_sge old[2] = {sge_at(a, 128, 8), sge_at(a, 136, 8)};
	struct ibv_send_wr w[5], *bad = NULL;

	memset(a->buf, 0, PROGRAM_MEM);
	memcpy(a->buf, "written by a WRITE, 24 b", 24);
	memset(b->buf, 0, PROGRAM_MEM);
	w[0] = wr_to(b, 10, IBV_WR_RDMA_WRITE, &text, 32);
	w[1] = wr_to(b, 11, IBV_WR_RDMA_READ, &back, 32);
	w[2] = wr_to(b, 12, IBV_WR_ATOMIC_CMP_AND_SWP, &old[0], 8);
	w[2].wr.atomic.swap = 40;
	w[3] = wr_to(b, 13, IBV_WR_ATOMIC_FETCH_AND_ADD, &old[1], 8);
	w[3].wr.atomic.compare_add = 2;
	w[4] = wr_to(b, 14, IBV_WR_RDMA_WRITE, &text, HALF);
	w[4].send_flags |= IBV_SEND_FENCE | IBV_SEND_INLINE;
	for (int i = 0; i < 4; i++)
		w[i].next = &w[i + 1];
	memset(a->buf + 136, 0xff, 8);
	assert_int_equal(ibv_post_send(a->qp, w, &bad), 0);
	wc_good(a, b, 10, IBV_WC_RDMA_WRITE);
	wc_good(a, b, 11, IBV_WC_RDMA_READ);
	wc_good(a, b, 12, IBV_WC_COMP_SWAP);
	wc_good(a, b, 13, IBV_WC_FETCH_ADD);
	wc_good(a, b, 14, IBV_WC_RDMA_WRITE);
	assert_memory_equal(a->buf + 64, a->buf, 24);
	assert_memory_equal(b->buf + 32, a->buf, 24);
	assert_memory_equal(b->buf + HALF, a->buf, 24);
	assert_int_equal(word_at(a, 128), 0);
	assert_int_equal(word_at(a, 136), 40);
	assert_int_equal(word_at(b, 8), 42);
}

/* Two receives of a in one list, two messages of b: the second one inline, with
 * an immediate. */
static void messages(const struct program_end *a, const struct program_end *b)
{
	struct ibv_sge in[2] = {sge_at(a, 1024, 256), sge_at(a, 2048, 256)};
	struct ibv_recv_wr r[2] = {
		{.wr_id = 1ull << 40, .sg_list = &in[0], .num_sge = 1},
		{.wr_id = 21, .sg_list = &in[1], .num_sge = 1}};
	struct ibv_sge out = sge_at(b, 0, 13);
	struct ibv_send_wr w[2], *bad_send = NULL;
	struct ibv_recv_wr *bad_recv = NULL;
	struct ibv_wc wc;

	memcpy(b->buf, "goose, goose.", 13);
	r[0].next = &r[1];
	assert_int_equal(ibv_post_recv(a->qp, r, &bad_recv), 0);
	w[0] = wr_to(a, 30, IBV_WR_SEND, &out, 0);
	w[1] = wr_to(a, 31, IBV_WR_SEND_WITH_IMM, &out, 0);
	w[1].send_flags |= IBV_SEND_INLINE;
	w[1].imm_data = 0xfeedf00d;
	w[0].next = &w[1];
	assert_int_equal(ibv_post_send(b->qp, w, &bad_send), 0);
	wc_good(b, NULL, 30, IBV_WC_SEND);
	wc_good(b, NULL, 31, IBV_WC_SEND);
	wc = wc_next(a, b);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_true(wc.wr_id == 1ull << 40);
	assert_int_equal(wc.byte_len, 13);
	assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
	wc = wc_next(a, b);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 21);
	assert_int_equal(wc.byte_len, 13);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, 0xfeedf00d);
	assert_memory_equal(a->buf + 1024, "goose, goose.", 14);
	assert_memory_equal(a->buf + 2048, "goose, goose.", 14);
}

void program_work(const struct program_end *a, const struct program_end *b)
{
	assert_int_equal(a->qp->state, IBV_QPS_RTS);
	assert_int_equal(b->qp->state, IBV_QPS_RTS);
	assert_int_equal(a->qp->qp_type, IBV_QPT_RC);
	for (int i = 0; i < 20; i++) {
		one_sided(a, b);
		messages(a, b);
	}
}

/* The last of 16 is signalled; its completion says that all are done. */
void program_batches(const struct program_end *a, const struct program_end *b)
{
	struct ibv_send_wr w[16], *bad = NULL;
	struct ibv_sge g[16];

	for (uint64_t round = 0; round < 32; round++) {
		for (uint32_t i = 0; i < 16; i++) {
			uint64_t value = round * 16 + i;

			g[i] = sge_at(a, i * 8, 8);
			memcpy(a->buf + i * 8, &value, 8);
			w[i] = wr_to(b, value, IBV_WR_RDMA_WRITE, &g[i], i * 8);
			w[i].next = i < 15 ? &w[i + 1] : NULL;
			w[i].send_flags = i < 15 ? 0 : IBV_SEND_SIGNALED;
		}
		assert_int_equal(ibv_post_send(a->qp, w, &bad), 0);
		wc_good(a, b, round * 16 + 15, IBV_WC_RDMA_WRITE);
		assert_memory_equal(b->buf, a->buf, sizeof(uint64_t) * 16);
	}
}

void program_bad(const struct program_end *a, const struct program_end *b)
{
	struct ibv_send_wr w[4], *bad = NULL;
	struct ibv_recv_wr r[3] = {0}, *bad_recv = NULL;
	struct ibv_sge g[2], in = sge_at(a, 0, 64), out = sge_at(b, 0, 1);
	struct ibv_wc wc;

	memset(b->buf, 0, PROGRAM_MEM);
	memset(a->buf, 7, PROGRAM_MEM);
	g[0] = g[1] = sge_at(a, 0, 8);
	for (uint32_t i = 0; i < 4; i++) {
		w[i] = wr_to(b, i, IBV_WR_RDMA_WRITE, g, i * 8);
		w[i].next = i < 3 ? &w[i + 1] : NULL;
	}
	w[2].opcode = (enum ibv_wr_opcode)99;
	assert_int_equal(ibv_post_send(a->qp, w, &bad), EINVAL);
	assert_ptr_equal(bad, &w[2]);
	wc_good(a, b, 0, IBV_WC_RDMA_WRITE);
	wc_good(a, b, 1, IBV_WC_RDMA_WRITE);
	/* and as if the two behind had never been: an ordinary request is next */
	assert_int_equal(ibv_post_send(a->qp, &w[3], &bad), 0);
	wc_good(a, b, 3, IBV_WC_RDMA_WRITE);
	assert_memory_equal(b->buf, a->buf, 16);
	assert_int_equal(word_at(b, 16), 0);
	assert_memory_equal(b->buf + 24, a->buf, 8);

	for (uint64_t i = 0; i < 3; i++)
		r[i] = (struct ibv_recv_wr){.wr_id = i,
					    .next = i < 2 ? &r[i + 1] : NULL,
					    .sg_list = &in,
					    .num_sge = i == 1 ? 99 : 1};
	assert_int_equal(ibv_post_recv(a->qp, r, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &r[1]);
	w[0] = wr_to(a, 5, IBV_WR_SEND, &out, 0);
	w[0].send_flags = 0;
	assert_int_equal(ibv_post_send(b->qp, w, &bad), 0);
	wc = wc_next(a, b);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 0);
	assert_int_equal(wc.byte_len, 1);
	assert_int_equal(ibv_req_notify_cq(a->qp->recv_cq, 0),
			 a->qp->recv_cq->channel ? 0 : EOPNOTSUPP);
}

void program_lkey(const struct program_end *a, const struct program_end *b,
		  int refused)
{
	struct ibv_sge g = sge_at(a, 0, 8);
	struct ibv_send_wr w[2], *bad = NULL;
	struct ibv_wc wc;

	g.lkey ^= 0x5a5a5a5a;
	w[0] = wr_to(b, 1, IBV_WR_RDMA_WRITE, &g, 0);
	w[0].send_flags = 0; /* an error completes in any case */
	w[1] = wr_to(b, 2, IBV_WR_RDMA_WRITE, &g, 0);
	w[0].next = &w[1];
	assert_int_equal(ibv_post_send(a->qp, w, &bad), refused);
	if (refused) {
		assert_ptr_equal(bad, &w[0]);
		return;
	}
	wc = wc_next(a, b);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(wc.wr_id, 1);
	wc = wc_next(a, b);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 2);
}

void program_dead(const struct program_end *a, const struct program_end *b)
{
	struct ibv_sge g = sge_at(a, 0, 8);
	struct ibv_send_wr w[2], *bad = NULL;
	struct ibv_wc wc;

	w[0] = wr_to(b, 1, IBV_WR_RDMA_WRITE, &g, 0);
	w[1] = wr_to(b, 2, IBV_WR_RDMA_WRITE, &g, 8);
	w[0].next = &w[1];
	assert_int_equal(ibv_post_send(a->qp, w, &bad), 0);
	wc = wc_next(a, b);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(wc.wr_id, 1);
	wc = wc_next(a, b);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 2);
}
