/* SPDX-License-Identifier: MIT */
/*
 * test_piece.c - long READs and WRITEs go piece by piece, and lists by rounds;
 * with and without the mistakes.
 */
#include "fake.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE 1024u
#define LONG 5000u /* 5 pieces */
#define DCI 0u

static struct fake_node *nodes;
static struct half h;
static struct vqp *v, *w;
static uint8_t own[8192];
static uint64_t now_ns, round_ns;
static uint32_t rkey;

static struct vqp *joined(struct vqp_peer *p)
{
	struct vqp *q;

	assert_int_equal(vqp_new(&h.e, &q), 0);
	vqp_join(q, p);
	p->refs++;
	q->raw = true;
	q->dci = q->qp = DCI;
	return q;
}

static void up(enum vqp_plant plant)
{
	struct vqp_peer *p;

	nodes = fake_nodes();
	now_ns = round_ns = 1;
	rkey = FAKE_RKEY;
	half_open(&h, nodes, 0, 1);
	h.e.conf.piece = PIECE;
	h.e.plant = plant;
	p = vqp_peer_get(&h.e, &nodes[1].id);
	assert_non_null(p);
	v = joined(p);
	w = joined(p);
	vqp_peer_put(&h.e, p);
	prng_fill(&h.f.rng, nodes[1].mem, FAKE_TABLE);
	memset(own, 0, sizeof(own));
}

static void down(void)
{
	half_close(&h);
	free(nodes);
}

static void round_one(void)
{
	vqp_engine_round(&h.e, now_ns += round_ns);
}

static void settle(void)
{
	for (unsigned i = 0; i < 200; i++) {
		fake_any(&h.f);
		round_one();
	}
}

/* [at, at + len) there; here the same, in three parts of odd sizes. */
static bool post(struct vqp *q, enum ibv_wr_opcode op, uint32_t at,
		 uint32_t len)
{
	struct ibv_sge sge[3];
	struct ibv_send_wr wr = {.wr_id = at,
				 .sg_list = sge,
				 .num_sge = 3,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	uint64_t to = (uintptr_t)own + at;

	wr.wr.rdma.remote_addr = at;
	wr.wr.rdma.rkey = rkey;
	sge[0] = (struct ibv_sge){to, len / 3, FAKE_LKEY};
	sge[1] = (struct ibv_sge){to + len / 3, 1, FAKE_LKEY};
	sge[2] = (struct ibv_sge){to + len / 3 + 1, len - len / 3 - 1,
				  FAKE_LKEY};
	return vqp_post_send(q, &wr, &bad) == 0;
}

static bool ended(struct vqp *q, uint32_t at, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	return vqp_poll(q, 1, &wc) == 1 && wc.wr_id == at &&
	       wc.status == status;
}

static bool nothing(struct vqp *q)
{
	struct ibv_wc wc;

	return vqp_poll(q, 1, &wc) == 0;
}

static bool same(uint32_t at, uint32_t len)
{
	return !memcmp(own + at, nodes[1].mem + at, len);
}

static unsigned posted(void)
{
	return h.f.dci[DCI].tail - h.f.dci[DCI].next;
}

/* Bytes that wait on the device. */
static uint32_t posted_len(void)
{
	const struct fake_dci *d = &h.f.dci[DCI];
	uint32_t len = 0;

	for (uint32_t i = d->next; i != d->tail; i++)
		for (int k = 0; k < d->q[i % 64].wr.num_sge; k++)
			len += d->q[i % 64].sge[k].length;
	return len;
}

static bool case_read(void)
{
	bool good = post(v, IBV_WR_RDMA_READ, 64, LONG);

	good = good && posted() == 1 && posted_len() == PIECE;
	settle();
	return good && ended(v, 64, IBV_WC_SUCCESS) && nothing(v) &&
	       same(64, LONG) && !own[63] && !own[64 + LONG];
}

static bool case_write(void)
{
	prng_fill(&h.f.rng, own, sizeof(own));
	if (!post(v, IBV_WR_RDMA_WRITE, 64, LONG) || posted_len() != PIECE)
		return false;
	settle();
	return ended(v, 64, IBV_WC_SUCCESS) && nothing(v) && same(64, LONG) &&
	       !same(0, 64) && !same(64 + LONG, 64);
}

/* As many bytes as a piece, and one more. */
static bool case_limit(void)
{
	if (!post(v, IBV_WR_RDMA_READ, 0, PIECE))
		return false;
	settle();
	if (!ended(v, 0, IBV_WC_SUCCESS) || h.e.counts.requests != 1)
		return false;
	if (!post(v, IBV_WR_RDMA_READ, 0, PIECE + 1))
		return false;
	settle();
	return ended(v, 0, IBV_WC_SUCCESS) && h.e.counts.requests == 3 &&
	       same(0, PIECE + 1);
}

/* Another vqp does not wait for more than a piece. */
static bool case_between(void)
{
	bool good = post(v, IBV_WR_RDMA_READ, 0, LONG) &&
		    post(w, IBV_WR_RDMA_READ, 6000, 8);

	for (unsigned i = 0; i < 2; i++)
		fake_step(&h.f, DCI);
	round_one();
	good = good && ended(w, 6000, IBV_WC_SUCCESS) && nothing(v);
	settle();
	return good && ended(v, 0, IBV_WC_SUCCESS) && same(0, LONG);
}

/* The vqp's own next request does: it finds what the WRITE has written. */
static bool case_order(void)
{
	bool good;

	memset(own, 7, LONG);
	good = post(v, IBV_WR_RDMA_WRITE, 0, LONG) && posted() == 1;
	round_one();
	good = good && post(v, IBV_WR_RDMA_READ, LONG - 8, 8) && posted() == 1;
	memset(own + LONG - 8, 7, 8);
	settle();
	return good && ended(v, 0, IBV_WC_SUCCESS) &&
	       ended(v, LONG - 8, IBV_WC_SUCCESS) && same(0, LONG) &&
	       own[LONG - 1] == 7;
}

/* In one round a list takes no more of the device than a piece. */
static bool case_list(void)
{
	bool good = true;

	for (uint32_t i = 0; i < 6; i++)
		good = good && post(v, IBV_WR_RDMA_READ, i * 512, 512);
	good = good && posted_len() == PIECE;
	round_one();
	good = good && posted_len() == 2 * PIECE;
	settle();
	for (uint32_t i = 0; good && i < 6; i++)
		good = ended(v, i * 512, IBV_WC_SUCCESS);
	return good && same(0, 6 * 512);
}

/* Time goes by: the lease of the region is over before the last piece, and its
 * record is READ again between two pieces. Other vqps wait for that READ, too. */
static bool case_lease(void)
{
	bool good;

	v->raw = w->raw = false;
	rkey = FAKE_REGION;
	round_ns = REGION_AGAIN_NS / 2;
	good = post(v, IBV_WR_RDMA_READ, 0, LONG);
	for (unsigned i = 0; i < 4; i++) {
		fake_step(&h.f, DCI);
		round_one();
	}
	good = good && nothing(v) && post(w, IBV_WR_RDMA_WRITE, 6000, 8);
	settle();
	return good && ended(v, 0, IBV_WC_SUCCESS) && same(0, LONG) &&
	       ended(w, 6000, IBV_WC_SUCCESS) && h.e.counts.region_reads > 2;
}

/* The DCI breaks under the third piece: a READ goes on there. */
static bool case_read_again(void)
{
	bool good = post(v, IBV_WR_RDMA_READ, 0, LONG) &&
		    post(w, IBV_WR_RDMA_READ, 6000, 8);

	for (unsigned i = 0; i < 3; i++) {
		fake_step(&h.f, DCI);
		round_one();
	}
	/* w fails */
	good = good && ended(w, 6000, IBV_WC_SUCCESS) &&
	       post(w, IBV_WR_RDMA_WRITE, FAKE_MEM, 8);
	settle();
	return good && ended(w, FAKE_MEM, IBV_WC_REM_ACCESS_ERR) &&
	       ended(v, 0, IBV_WC_SUCCESS) && same(0, LONG) &&
	       h.f.replaced == 1 && h.e.counts.requests == 5 + 2 + 1;
}

/* A WRITE ends as flushed if it may have been carried out: a piece of it is
 * posted behind another vqp's request, which breaks the DCI. */
static bool case_write_unknown(void)
{
	bool good = post(v, IBV_WR_RDMA_WRITE, 0, LONG);

	fake_step(&h.f, DCI);
	good = good && post(w, IBV_WR_RDMA_READ, 6000, 8);
	round_one();
	good = good && posted() == 2;
	h.f.breaks = IBV_WC_LOC_QP_OP_ERR;
	settle();
	return good && ended(w, 6000, IBV_WC_LOC_QP_OP_ERR) &&
	       ended(v, 0, IBV_WC_WR_FLUSH_ERR) && nothing(v) && !v->cut;
}

/* Its memory may be gone: of a vqp that is freed no further piece is posted. */
static bool case_freed(void)
{
	bool good = post(v, IBV_WR_RDMA_READ, 0, LONG);

	fake_step(&h.f, DCI);
	round_one();
	vqp_free(v);
	settle();
	return good && same(0, 2 * PIECE) && !own[2 * PIECE] &&
	       h.e.n_free == VQP_SLOTS;
}

/* What waits in one that is closed is carried out. */
static bool case_closed(void)
{
	bool good = post(v, IBV_WR_RDMA_READ, 0, LONG);

	vqp_close(v);
	settle();
	return good && same(0, LONG) && h.e.n_free == VQP_SLOTS;
}

/* And the other end hears behind it that the vqp is freed. */
static bool case_closed_end(void)
{
	const struct fake_dci *d = &h.f.dci[DCI];
	bool good;

	v->far_port = 9;
	v->by_port = true;
	good = post(v, IBV_WR_SEND, 0, 8);
	settle();
	good = good && post(v, IBV_WR_RDMA_READ, 0, LONG);
	vqp_close(v);
	settle();
	return good && same(0, LONG) && d->tail == 1 + 5 + 1 &&
	       d->q[d->tail - 1].wr.opcode == IBV_WR_SEND &&
	       h.e.n_free == VQP_SLOTS;
}

static const struct {
	const char *name;
	bool (*run)(void);
	enum vqp_plant plant;
} cases[] = {
	{"a READ", case_read, VQP_PLANT_WHOLE},
	{"a WRITE", case_write, VQP_PLANT_WHOLE},
	{"of a piece and a byte", case_limit, VQP_PLANT_WHOLE},
	{"others come between", case_between, VQP_PLANT_WHOLE},
	{"the vqp's own do not", case_order, VQP_PLANT_WHOLE_ORDER},
	{"a list", case_list, VQP_PLANT_WHOLE_LIST},
	{"a lease ends", case_lease, VQP_PLANT_WHOLE_FIRST},
	{"a READ that comes back", case_read_again, VQP_PLANT_WHOLE},
	{"a WRITE that comes back", case_write_unknown, VQP_PLANT_H2},
	{"a vqp is freed", case_freed, VQP_PLANT_WHOLE_FREED},
	{"a vqp is closed", case_closed, VQP_PLANT_CLOSE},
	{"a vqp is closed: its end", case_closed_end, VQP_PLANT_WHOLE_END},
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static bool run(unsigned i, enum vqp_plant plant)
{
	bool good;

	up(plant);
	good = cases[i].run() && !h.f.wrong[0];
	down();
	return good;
}

static void test_cases(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N_CASES; i++) {
		bool good = run(i, VQP_PLANT_NONE);

		if (!good)
			print_message("%s %s\n", cases[i].name, h.f.wrong);
		assert_true(good);
	}
}

static void test_plants(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	for (unsigned i = 0; i < N_CASES; i++) {
		pid = fork();
		if (pid == 0) {
			freopen("/dev/null", "w", stderr);
			signal(SIGABRT, SIG_DFL);
			_exit(run(i, cases[i].plant) ? 0 : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status == 0)
			print_message("not found: %s\n", cases[i].name);
		assert_int_not_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_plants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
