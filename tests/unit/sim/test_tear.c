/* SPDX-License-Identifier: MIT */
/*
 * Messages that move in pieces: a poller, and a READ, meets old and new words of
 * one message side by side, in the order that the device declares; a completion
 * still speaks for all bytes before it.
 */
#include "rig_sim.h"

#include <string.h>

#define WORDS 64u
#define LEN (WORDS * 8)
#define TO 8192u
#define ROUNDS 40u

static struct sim_tear tear;

static void setup(struct rig *r)
{
	sim_net_set_tear(r->w, &tear);
}

static void post(struct end *a, struct ibv_qp *qp, struct end *b,
		 enum ibv_wr_opcode opcode, uint32_t from, uint32_t to,
		 uint32_t len)
{
	struct ibv_sge sge = rig_sge(a, from, len);
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr =
						     (uintptr_t)b->mem + to,
					     .rkey = b->mr->rkey}};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
}

/* How many words of the message are new; *ascends: they are its first ones. */
static unsigned new_words(const unsigned char *mem, unsigned char now,
			  bool *ascends)
{
	unsigned n = 0;
	bool gap = false;

	for (unsigned i = 0; i < WORDS; i++) {
		unsigned char first = mem[i * 8];

		/* A word itself is never torn. */
		for (unsigned k = 1; k < 8; k++)
			assert_int_equal(mem[i * 8 + k], first);
		if (first == now) {
			n++;
			*ascends = *ascends && !gap;
		} else {
			gap = true;
		}
	}
	return n;
}

struct seen {
	unsigned torn, scattered;
};

/* WRITEs of one value after another; the poller looks all the time. */
static struct seen writes(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_RC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_RC, NULL);
	struct seen seen = {0};
	struct ibv_wc wc;

	rig_connect(a, qa, b, qb, NULL);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		memset(a->mem, (int)i, LEN);
		post(a, qa, b, IBV_WR_RDMA_WRITE, 0, TO, LEN);
		while (!ibv_poll_cq(a->cq, 1, &wc)) {
			bool ascends = true;
			unsigned n = new_words(b->mem + TO, (unsigned char)i,
					       &ascends);

			seen.torn += n > 0 && n < WORDS;
			seen.scattered += !ascends;
			rig_work(r, 50);
		}
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		/* Its completion speaks for all of it. */
		for (unsigned k = 0; k < LEN; k++)
			assert_int_equal(b->mem[TO + k], i);
	}
	rig_destroy(a, qa);
	rig_destroy(b, qb);
	return seen;
}

static void drive_write(struct rig *r)
{
	struct seen seen = writes(r);

	assert_int_not_equal(seen.torn, 0);
	if (tear.ordered_write)
		assert_int_equal(seen.scattered, 0);
	else
		assert_int_not_equal(seen.scattered, 0);
	assert_int_equal(r->end[0].dev->caps.ordered_write, tear.ordered_write);
}

static void test_write(void **state)
{
	tear = (struct sim_tear){.ppm = 1000000, .span_ns = 5000};
	rig_run(2, NULL, setup, drive_write);
	tear.ordered_write = true;
	rig_run(2, NULL, setup, drive_write);
}

/* Without it nothing is torn. */
static void drive_whole(struct rig *r)
{
	struct seen seen = writes(r);

	assert_int_equal(seen.torn, 0);
}

static void test_whole(void **state)
{
	rig_run(2, NULL, NULL, drive_whole);
}

/* READs while the owner stores all words at once: what is read ascends from new
 * to old never, from old to new if the device declares the order. */
static void drive_read(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_RC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_RC, NULL);
	unsigned torn = 0, wrong = 0;
	struct ibv_wc wc;

	rig_connect(a, qa, b, qb, NULL);
	for (unsigned i = 1; i <= 10 * ROUNDS; i++) {
		uint64_t at = 800 + 20ull * (i % 200);
		bool stored = false;
		uint64_t begun = sim_now(r->w);

		memset(b->mem + TO, 0, LEN);
		post(a, qa, b, IBV_WR_RDMA_READ, 0, TO, LEN);
		while (!ibv_poll_cq(a->cq, 1, &wc)) {
			rig_work(r, 20);
			if (!stored && sim_now(r->w) - begun >= at) {
				memset(b->mem + TO, 1, LEN);
				stored = true;
			}
		}
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		bool ascends = true;
		unsigned old = new_words(a->mem, 0, &ascends);

		torn += old > 0 && old < WORDS;
		wrong += !ascends;
	}
	assert_int_not_equal(torn, 0);
	if (tear.ordered_read)
		assert_int_equal(wrong, 0);
	else
		assert_int_not_equal(wrong, 0);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
}

static void test_read(void **state)
{
	tear = (struct sim_tear){.ppm = 1000000, .span_ns = 5000};
	rig_run(2, NULL, setup, drive_read);
	tear.ordered_read = true;
	rig_run(2, NULL, setup, drive_read);
}

/* What comes behind a torn WRITE on the same QP finds all of its bytes there. */
static void drive_behind(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_RC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_RC, NULL);
	struct ibv_wc wc;
	uint64_t begun;

	rig_connect(a, qa, b, qb, NULL);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		memset(a->mem, (int)i, LEN);
		rig_recv(b, qb, 5, 0, 64);
		post(a, qa, b, IBV_WR_RDMA_WRITE, 0, TO, LEN);
		post(a, qa, b, IBV_WR_SEND, 0, 0, 8);
		begun = sim_now(r->w);
		while (!ibv_poll_cq(b->cq, 1, &wc))
			rig_work(r, 50);
		for (unsigned k = 0; k < LEN; k++)
			assert_int_equal(b->mem[TO + k], i);
		rig_ok(r, a, 1);
		rig_ok(r, a, 1);
		/* It was not dropped and sent again. */
		assert_true(sim_now(r->w) - begun < 20000);
	}
	rig_destroy(a, qa);
	rig_destroy(b, qb);
}

static void test_behind(void **state)
{
	tear = (struct sim_tear){.ppm = 1000000, .span_ns = 5000};
	rig_run(2, NULL, setup, drive_behind);
}

/* Its region goes while it moves: the rest is refused. */
static void drive_gone(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_RC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_RC, NULL);
	struct ibv_wc wc;
	bool gone = false;

	rig_connect(a, qa, b, qb, NULL);
	memset(a->mem, 1, LEN);
	post(a, qa, b, IBV_WR_RDMA_WRITE, 0, TO, LEN);
	while (!ibv_poll_cq(a->cq, 1, &wc)) {
		bool ascends = true;

		if (!gone && new_words(b->mem + TO, 1, &ascends)) {
			assert_int_equal(b->dev->ops->dereg_mr(b->dev, b->mr),
					 0);
			gone = true;
		}
		rig_work(r, 20);
	}
	assert_true(gone);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(b->dev->ops->reg_mr(b->dev, b->pd, b->mem, RIG_MEM,
					     RIG_ACCESS, -1, 0, &b->mr),
			 0);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
}

static void test_gone(void **state)
{
	tear = (struct sim_tear){.ppm = 1000000, .span_ns = 50000};
	rig_run(2, NULL, setup, drive_gone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write), cmocka_unit_test(test_whole),
		cmocka_unit_test(test_read),  cmocka_unit_test(test_behind),
		cmocka_unit_test(test_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
