/* SPDX-License-Identifier: MIT */
/*
 * test_post.c - what carries connections posts: all of a list or nothing, bytes
 * before their immediate, messages out of memory that is held.
 */
#include "fake.h"

#define AT 64u /* in the other node's memory */
#define IMM 4711u

static struct fake_node *nodes;
static struct half h, far;
static struct vqp *v, *port;
static uint64_t word, now_ns;

static int up(void **state)
{
	struct vqp_peer *p;

	(void)state;
	nodes = fake_nodes();
	now_ns = 1;
	half_open(&h, nodes, 0, 1);
	half_open(&far, nodes, 1, 2);
	p = vqp_peer_get(&h.e, &nodes[1].id);
	assert_non_null(p);
	assert_int_equal(vqp_new(&h.e, &v), 0);
	vqp_join(v, p);
	v->far_port = 9;
	v->by_port = v->raw = true;
	v->dci = v->qp = 0;
	assert_int_equal(vqp_new(&far.e, &port), 0);
	assert_int_equal(vqp_bind(port, 9), 0);
	return 0;
}

static int down(void **state)
{
	(void)state;
	half_close(&h);
	half_close(&far);
	free(nodes);
	return 0;
}

static void rounds(void)
{
	vqp_engine_round(&h.e, ++now_ns);
	vqp_engine_round(&far.e, now_ns);
}

static void settle(void)
{
	for (unsigned i = 0; i < 2000; i++) {
		fake_any(&h.f);
		fake_any(&far.f);
		rounds();
	}
}

static struct ibv_send_wr wr_of(struct ibv_sge *sge, enum ibv_wr_opcode op)
{
	struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 1, .opcode = op};

	*sge = (struct ibv_sge){(uintptr_t)&word, 8, FAKE_LKEY};
	wr.imm_data = IMM;
	wr.wr.rdma.remote_addr = AT;
	wr.wr.rdma.rkey = FAKE_RKEY;
	return wr;
}

static uint64_t there(void)
{
	uint64_t w;

	memcpy(&w, nodes[1].mem + AT, 8);
	return w;
}

static void test_bytes_before_immediate(void **state)
{
	struct ibv_send_wr wr, *bad;
	struct vqp_message *m = NULL;
	struct ibv_sge sge;

	(void)state;
	word = 37;
	wr = wr_of(&sge, IBV_WR_RDMA_WRITE_WITH_IMM);
	wr.wr_id = 5;
	wr.send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(vqp_post_all(v, &wr, &bad), 0);
	for (unsigned i = 0; i < 100 && !m; i++) {
		fake_step(&h.f, 0);
		rounds();
		m = vqp_take(port);
	}
	assert_non_null(m);
	assert_int_equal(there(), 37);
	assert_true(m->head.with_imm);
	assert_int_equal(m->head.imm, IMM);
	assert_int_equal(m->head.len, 0);
	vqp_message_free(&far.e, m);
	settle();
	for (unsigned i = 0; i < 2; i++) {
		struct ibv_wc wc;

		/* one completion */
		assert_int_equal(vqp_poll(v, 1, &wc), !i);
		if (!i)
			assert_true(wc.wr_id == 5 && !wc.status);
	}
}

/* One slot is free, and a WRITE with immediate needs two. */
static void test_all_or_nothing(void **state)
{
	struct ibv_send_wr wr, *bad = NULL;
	struct vqp_message *m;
	struct ibv_sge sge;

	(void)state;
	word = 1;
	wr = wr_of(&sge, IBV_WR_RDMA_WRITE);
	for (unsigned i = 0; i < VQP_QUEUE - 1; i++)
		assert_int_equal(vqp_post_all(v, &wr, &bad), 0);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.wr.rdma.remote_addr = 2 * AT;
	assert_int_equal(vqp_post_all(v, &wr, &bad), -ENOMEM);
	assert_ptr_equal(bad, &wr);
	settle();
	assert_int_equal(there(), 1);
	assert_int_equal(nodes[1].mem[2 * AT], 0);
	assert_null(vqp_take(port));
	/* and now there is room */
	assert_int_equal(vqp_post_all(v, &wr, &bad), 0);
	settle();
	assert_int_equal(nodes[1].mem[2 * AT], 1);
	m = vqp_take(port);
	assert_non_null(m);
	vqp_message_free(&far.e, m);
}

static void test_wrong_list(void **state)
{
	struct ibv_send_wr wr[2], *bad = NULL;
	struct ibv_sge sge[2];

	(void)state;
	word = 3;
	for (unsigned i = 0; i < 2; i++)
		wr[i] = wr_of(&sge[i], IBV_WR_RDMA_WRITE);
	wr[0].next = &wr[1];
	wr[1].num_sge = (int)VQP_SGES + 1;
	assert_int_equal(vqp_post_all(v, wr, &bad), -EINVAL);
	assert_ptr_equal(bad, wr);
	settle();
	assert_int_equal(there(), 0);
}

static bool send_held(bool *held)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = wr_of(&sge, IBV_WR_SEND);

	return vqp_send_held(v, &wr, held) == 0;
}

/* Until it has left, and when its vqp fails. */
static void test_held(void **state)
{
	bool first = false, second = false;
	struct vqp_message *m;

	(void)state;
	word = 11;
	assert_true(send_held(&first));
	rounds();
	assert_true(first);
	settle();
	assert_false(first);
	m = vqp_take(port);
	assert_non_null(m);
	assert_int_equal(m->head.len, 8);
	assert_memory_equal(m->data, &word, 8);
	vqp_message_free(&far.e, m);
	nodes[1].dead = true;
	assert_true(send_held(&second));
	assert_true(second);
	settle();
	assert_false(second);
	assert_int_equal(v->state, VQP_ERROR);
	assert_false(send_held(&second));
	assert_false(second);
}

/* Room for completions and receives grows, from none. Without memory a post is
 * refused, and nothing is lost. */
static void test_grows(void **state)
{
	struct ibv_recv_wr recv = {0}, *bad_recv;
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;
	struct ibv_sge sge;
	uint64_t next = 0, got = 0;

	(void)state;
	assert_null(v->comps.at);
	assert_null(v->recvs.at);
	wr = wr_of(&sge, IBV_WR_RDMA_WRITE);
	wr.send_flags = IBV_SEND_SIGNALED;
	for (unsigned want = 1; want <= VQP_QUEUE; want = 3 * want / 2 + 1) {
		/* some were polled, so what is there begins anywhere */
		while (next - got < want) {
			wr.wr_id = next;
			h.f.no_memory = next - got == v->comps.cap;
			if (h.f.no_memory)
				assert_int_equal(vqp_post_send(v, &wr, &bad),
						 -ENOMEM);
			h.f.no_memory = false;
			assert_int_equal(vqp_post_send(v, &wr, &bad), 0);
			next++;
		}
		settle();
		while (next - got > want / 3) {
			assert_int_equal(vqp_poll(v, 1, &wc), 1);
			assert_int_equal(wc.wr_id, got++);
		}
	}
	for (uint64_t i = 0; i < VQP_RECVS; i++) {
		recv.wr_id = i;
		h.f.no_memory = i == v->recvs.cap;
		if (h.f.no_memory)
			assert_int_equal(vqp_post_recv(v, &recv, &bad_recv),
					 -ENOMEM);
		h.f.no_memory = false;
		assert_int_equal(vqp_post_recv(v, &recv, &bad_recv), 0);
	}
	assert_int_equal(vqp_post_recv(v, &recv, &bad_recv), -ENOMEM);
	for (uint64_t i = 0; i < VQP_RECVS; i++)
		assert_int_equal(vqp_recv_at(v, (uint32_t)i)->wr_id, i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, up, down)
		T(test_bytes_before_immediate),
		T(test_all_or_nothing),
		T(test_wrong_list),
		T(test_held),
		T(test_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
