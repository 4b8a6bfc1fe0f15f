/* SPDX-License-Identifier: MIT */
/*
 * Each misuse of a buffer is planted, and seen; what is allowed is not.
 */
#define RIG_CHECK true
#include "rig_sim.h"

#include <string.h>

struct pair {
	struct end *a, *b;
	struct ibv_qp *qa, *qb;
};

static struct pair pair_up(struct rig *r)
{
	struct pair p = {&r->end[0], &r->end[1], NULL, NULL};

	p.qa = rig_qp(p.a, IBV_QPT_RC, NULL);
	p.qb = rig_qp(p.b, IBV_QPT_RC, NULL);
	rig_connect(p.a, p.qa, p.b, p.qb, NULL);
	return p;
}

static void pair_down(struct pair *p)
{
	rig_destroy(p->a, p->qa);
	rig_destroy(p->b, p->qb);
}

static void post(struct pair *p, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge[2] = {rig_sge(p->a, 0, 100),
				 rig_sge(p->a, 1000, 28)};
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = sge,
		.num_sge = 2,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)p->b->mem + 8192,
			    .rkey = p->b->mr->rkey}};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(p->qa, &wr, &bad), 0);
}

static void says(struct rig *r, const char *what)
{
	r->blames = true;
	if (!strstr(sim_blamed(r->w), what))
		fail_msg("\"%s\" does not say \"%s\"", sim_blamed(r->w), what);
}

static void drive_right(struct rig *r)
{
	struct pair p = pair_up(r);
	unsigned char *block = env_alloc(p.a->dev->env, 100);

	rig_recv(p.b, p.qb, 5, 0, 200);
	post(&p, IBV_WR_SEND);
	rig_ok(r, p.b, 5);
	/* It has been carried out: the bytes are ours, before the answer. */
	p.a->mem[0]++;
	rig_ok(r, p.a, 1);
	p.b->mem[0]++;
	post(&p, IBV_WR_RDMA_WRITE);
	rig_ok(r, p.a, 1);
	memset(block, 1, 100);
	env_free(p.a->dev->env, block);
	assert_string_equal(sim_blamed(r->w), "");
	pair_down(&p);
}

static void test_right(void **state)
{
	rig_run(2, NULL, NULL, drive_right);
}

static void drive_send(struct rig *r)
{
	struct pair p = pair_up(r);

	rig_recv(p.b, p.qb, 5, 0, 200);
	post(&p, IBV_WR_SEND);
	p.a->mem[1000]++; /* the second piece */
	rig_ok(r, p.b, 5);
	says(r, "a send buffer of 128 bytes was modified");
	rig_ok(r, p.a, 1);
	pair_down(&p);
}

static void test_send(void **state)
{
	rig_run(2, NULL, NULL, drive_send);
}

static void drive_write(struct rig *r)
{
	struct pair p = pair_up(r);

	post(&p, IBV_WR_RDMA_WRITE);
	p.a->mem[99]++;
	rig_ok(r, p.a, 1);
	says(r, "a send buffer of 128 bytes was modified");
	pair_down(&p);
}

static void test_write(void **state)
{
	rig_run(2, NULL, NULL, drive_write);
}

static void drive_recv(struct rig *r)
{
	struct pair p = pair_up(r);

	p.b->mem[150] = 7;
	rig_recv(p.b, p.qb, 5, 0, 200);
	assert_int_not_equal(p.b->mem[150], 7); /* a poller sees nothing */
	p.b->mem[150] = 7;
	post(&p, IBV_WR_SEND);
	rig_ok(r, p.b, 5);
	says(r, "a posted receive buffer of 200 bytes was written to");
	rig_ok(r, p.a, 1);
	pair_down(&p);
}

static void test_recv(void **state)
{
	rig_run(2, NULL, NULL, drive_recv);
}

static void drive_read(struct rig *r)
{
	struct pair p = pair_up(r);

	memset(p.a->mem, 1, 100);
	memset(p.b->mem + 8192, 2, 128);
	post(&p, IBV_WR_RDMA_READ);
	assert_int_not_equal(p.a->mem[99], 1); /* a poller sees nothing */
	rig_ok(r, p.a, 1);
	assert_int_equal(p.a->mem[99], 2);
	assert_string_equal(sim_blamed(r->w), "");
	post(&p, IBV_WR_RDMA_READ);
	p.a->mem[1027] = 7;
	rig_ok(r, p.a, 1);
	says(r, "the buffer of a READ of 128 bytes was written to");
	pair_down(&p);
}

static void test_read(void **state)
{
	rig_run(2, NULL, NULL, drive_read);
}

static void drive_freed(struct rig *r)
{
	struct skein_env *env = r->end[0].dev->env;
	unsigned char *block = env_alloc(env, 100);

	env_free(env, block);
	block[40] = 1;
	for (unsigned i = 0; i < 100; i++)
		env_free(env, env_alloc(env, 4096));
	says(r, "100 bytes were written to after they were freed");
}

static void test_freed(void **state)
{
	rig_run(1, NULL, NULL, drive_freed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right), cmocka_unit_test(test_send),
		cmocka_unit_test(test_write), cmocka_unit_test(test_recv),
		cmocka_unit_test(test_read),  cmocka_unit_test(test_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
