/* SPDX-License-Identifier: MIT */
/*
 * Memory that a pool's front gave up stays registered until no request can name
 * it: on a made-up device and clock, with requests that wait in software.
 */
#include "fake.h"
#include "vqp/pool.h"

static uint64_t now_ns;
static unsigned freed; /* registrations that ended */
static uint32_t lkeys;

static uint64_t clock_now(struct skein_env *env)
{
	return now_ns;
}

static int mr_reg(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		  int access, int fd, uint64_t off, struct ibv_mr **mr)
{
	*mr = calloc(1, sizeof(**mr));
	(*mr)->lkey = ++lkeys;
	return 0;
}

static int mr_dereg(struct dev *dev, struct ibv_mr *mr)
{
	freed++;
	free(mr);
	return 0;
}

static int cq_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return 0;
}

static bool any_memory(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
		       bool write)
{
	return true;
}

static struct {
	struct env_ops env_ops;
	struct dev_ops ops;
	struct dev dev;
	struct ibv_context verbs;
	struct ibv_cq cq;
	struct vqp_port port;
	struct fake fake;
	struct fake_node *nodes;
	uint8_t *cells;
	struct pool p;
} f;

static int setup(void **state)
{
	struct vqp_conf c = {.port = &f.port,
			     .arg = &f.fake,
			     .dcis = FAKE_DCIS,
			     .sq_max = FAKE_SQ,
			     .cq_max = FAKE_CQ};

	memset(&f, 0, sizeof(f));
	now_ns = 1;
	freed = 0;
	assert_int_equal(env_real_new(&f.p.env), 0);
	f.env_ops = *f.p.env->ops;
	f.env_ops.now_ns = clock_now;
	f.p.env->ops = &f.env_ops;
	f.ops = (struct dev_ops){.reg_mr = mr_reg, .dereg_mr = mr_dereg};
	f.dev.ops = &f.ops;
	f.dev.env = f.p.env;
	f.verbs.ops.poll_cq = cq_poll;
	f.cq.context = &f.verbs;
	f.port = fake_port;
	f.port.local_ok = any_memory;
	f.nodes = fake_nodes();
	f.fake.node = f.nodes;
	prng_init(&f.fake.rng, 1);
	f.cells = calloc(VQP_SLOTS, VQP_CELL);
	c.cells = f.cells;
	c.self = f.nodes[0].id;
	assert_int_equal(vqp_engine_init(&f.p.e, &c), 0);
	f.p.dev = &f.dev;
	f.p.ctx = calloc(1, sizeof(*f.p.ctx));
	f.p.rcq = f.p.scq = &f.cq;
	f.p.publish[0].due_ns = UINT64_MAX;
	list_init(&f.p.mems);
	list_init(&f.p.leased);
	return 0;
}

static uint64_t counted; /* bytes of the owner of all memory */

static int teardown(void **state)
{
	assert_int_equal(counted, 0);
	assert_true(list_empty(&f.p.mems) && list_empty(&f.p.leased));
	assert_string_equal(f.fake.wrong, "");
	vqp_engine_fini(&f.p.e);
	free(f.p.ctx);
	free(f.cells);
	free(f.nodes);
	env_real_free(f.p.env);
	return 0;
}

static struct pool_mem *mem_made(void)
{
	struct pool_mem *m;

	assert_int_equal(pool_mem_make(&f.p, 4096, 0, 0, &m), 0);
	m->counted = &counted;
	counted += 4096;
	return m;
}

static struct vqp *connected(unsigned node)
{
	struct vqp *v;

	assert_int_equal(vqp_new(&f.p.e, &v), 0);
	vqp_join(v, vqp_peer_get(&f.p.e, &f.nodes[node].id));
	return v;
}

static void read_post(struct vqp *v, const struct pool_mem *m)
{
	struct ibv_sge sge = {(uintptr_t)m->base.addr, 8, m->base.lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma.rkey = FAKE_REGION},
			   *bad;

	assert_int_equal(vqp_post_send(v, &wr, &bad), 0);
}

static void round_at(uint64_t at)
{
	now_ns = at;
	pool_round(&f.p);
}

/* A request on a device that was posted before may come until then. */
static void test_lease(void **state)
{
	struct pool_mem *m = mem_made();

	round_at(1000);
	assert_int_equal(freed, 0);
	pool_mem_retire(m);
	assert_int_equal(counted, 4096); /* of its user */
	round_at(1000);
	round_at(1000 + REGION_KEEP_NS - 1);
	assert_int_equal(freed, 0);
	memset(m->base.addr, 1, 4096);
	round_at(1000 + REGION_KEEP_NS);
	assert_int_equal(freed, 1);
}

/* One that waits in software is posted whenever there is room for it; then the
 * device may take as long again. */
static void test_waiting(void **state)
{
	struct pool_mem *m = mem_made(), *other = mem_made();
	struct vqp *v = connected(1);
	struct ibv_wc wc;
	uint64_t end = REGION_KEEP_NS;

	/* behind a READ of the region's record, which is not answered */
	read_post(v, m);
	pool_mem_retire(m);
	pool_mem_retire(other);
	round_at(end + 1);
	assert_int_equal(freed, 1); /* the other one */
	round_at(end = 2 * end + 2);
	assert_int_equal(freed, 1);
	while (fake_any(&f.fake))
		round_at(++end);
	assert_int_equal(vqp_poll(v, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(freed, 1);
	round_at(2 * REGION_KEEP_NS + 2 + REGION_KEEP_NS - 1);
	assert_int_equal(freed, 1);
	round_at(2 * REGION_KEEP_NS + 2 + REGION_KEEP_NS);
	assert_int_equal(freed, 2);
	vqp_free(v);
}

/* Its vqp is freed: nobody waits any more. */
static void test_freed(void **state)
{
	struct pool_mem *m = mem_made();
	struct vqp *v = connected(1);

	read_post(v, m);
	pool_mem_retire(m);
	vqp_free(v);
	round_at(1 + REGION_KEEP_NS);
	assert_int_equal(freed, 1);
	while (fake_any(&f.fake))
		round_at(++now_ns);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {CASE(test_lease), CASE(test_waiting),
					   CASE(test_freed)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
