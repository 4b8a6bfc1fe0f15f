/* SPDX-License-Identifier: MIT */
/*
 * DC programs that every device with DC carries out alike: all operations to
 * several targets, receives that come late, errors and what they leave alone,
 * and a random mixture against a model. One device is named in the environment
 * (SKEIN_TEST_DEVICE=soft or sim), harsh mode as everywhere.
 */
#include "../unit/sim/cm_sim.h"
#include "base/prng.h"
#include "dev/dev.h"
#include "dev/sim/link.h"

#include <stdlib.h>
#include <unistd.h>

#define KEY 0x1122334455667788ull
#define NODES 4u /* the last three have targets */
#define MEM 65536u
#define ACCESS                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct node {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *mem;
	int fd; /* -1: ordinary memory */
	struct ibv_srq *srq;
	struct ibv_qp *dct;
	struct ibv_ah *ah; /* from node 0 */
};

static struct bed {
	struct sim_world *w; /* NULL: the real one */
	struct node node[NODES];
	void (*program)(void);
	bool done;
} bed;

static void pause_a_bit(void)
{
	if (bed.w)
		sim_sleep(bed.w, 500);
	else
		usleep(20);
}

static void node_open(unsigned i, const char *spec)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = 128, .max_sge = 1}};
	struct dev_qp_opts opts = {.min_rnr_timer = 1};
	struct node *n = &bed.node[i];
	char err[200];
	void *mem;

	assert_int_equal(dev_open(n->env, spec, -1, err, sizeof(err), &n->dev),
			 0);
	assert_true(n->dev->caps.dc);
	assert_int_equal(n->dev->ops->alloc_pd(n->dev, &n->pd), 0);
	assert_int_equal(
		n->dev->ops->create_cq(n->dev, 512, NULL, NULL, &n->cq), 0);
	n->fd = -1;
	if (i == 1) /* one target with ordinary memory */
		mem = env_alloc_aligned(n->env, 4096, MEM);
	else
		assert_int_equal(env_mem_alloc(n->env, "dc", MEM, &n->fd, &mem),
				 0);
	n->mem = mem;
	assert_int_equal(n->dev->ops->reg_mr(n->dev, n->pd, n->mem, MEM, ACCESS,
					     n->fd, 0, &n->mr),
			 0);
	if (!i)
		return;
	assert_int_equal(n->dev->ops->create_srq(n->dev, n->pd, &a, &n->srq),
			 0);
	assert_int_equal(n->dev->ops->create_dct(n->dev, n->pd, n->cq, n->srq,
						 KEY + i, ACCESS, &opts,
						 &n->dct),
			 0);
}

static void node_close(unsigned i)
{
	struct node *n = &bed.node[i];
	const struct dev_ops *ops = n->dev->ops;

	if (i) {
		if (n->dct)
			assert_int_equal(ops->destroy_qp(n->dev, n->dct), 0);
		assert_int_equal(ops->destroy_srq(n->dev, n->srq), 0);
	}
	if (n->mr)
		assert_int_equal(ops->dereg_mr(n->dev, n->mr), 0);
	assert_int_equal(ops->destroy_cq(n->dev, n->cq), 0);
	assert_int_equal(ops->dealloc_pd(n->dev, n->pd), 0);
	dev_close(n->dev);
	if (n->fd >= 0)
		env_mem_free(n->env, n->fd, n->mem, MEM);
	else
		env_free(n->env, n->mem);
}

static void meet(unsigned i)
{
	struct dev_qp_addr peer = {
		.gid = bed.node[i].dev->gid.gid, .qpn = 1, .mtu = IBV_MTU_4096};
	struct node *a = &bed.node[0];
	struct ibv_ah_attr attr;

	assert_int_equal(dev_ah_attr(a->dev, &peer, NULL, &attr), 0);
	assert_int_equal(a->dev->ops->create_ah(a->dev, a->pd, &attr,
						&bed.node[i].ah),
			 0);
}

static void program_main(void *arg)
{
	const char *spec = getenv("SKEIN_TEST_DEVICE");
	struct node *a = &bed.node[0];
	unsigned i;

	(void)arg;
	for (i = 0; i < NODES; i++)
		node_open(i, bed.w ? "sim" : spec);
	for (i = 1; i < NODES; i++)
		meet(i);
	bed.program();
	for (i = 1; i < NODES; i++)
		a->dev->ops->destroy_ah(a->dev, bed.node[i].ah);
	for (i = 0; i < NODES; i++)
		node_close(i);
	bed.done = true;
}

static void run_sim(void)
{
	struct sim_conf conf = {
		.seed = 1, .log = two_log, .log_level = ENV_LOG_WARN};
	struct sim_node *node;
	struct sim_proc *proc, *first = NULL;

	assert_int_equal(sim_world_new(&conf, &bed.w), 0);
	for (unsigned i = 0; i < NODES; i++) {
		char name[8];

		snprintf(name, sizeof(name), "n%u", i);
		assert_int_equal(sim_node_new(bed.w, name, 4, &node), 0);
		assert_int_equal(sim_proc_new(node, "p", &proc), 0);
		bed.node[i].env = sim_proc_env(proc);
		if (!i)
			first = proc;
	}
	sim_spawn(first, "program", program_main, NULL);
	sim_run(bed.w, ENV_NEVER);
	sim_world_free(bed.w);
}

static void run(void (*program)(void))
{
	const char *spec = getenv("SKEIN_TEST_DEVICE");
	struct skein_env *env;

	memset(&bed, 0, sizeof(bed));
	bed.program = program;
	if (!spec)
		setenv("SKEIN_TEST_DEVICE", spec = "soft", 1);
	if (!strcmp(spec, "sim")) {
		run_sim();
	} else {
		assert_int_equal(env_real_new(&env), 0);
		for (unsigned i = 0; i < NODES; i++)
			bed.node[i].env = env;
		program_main(NULL);
		env_real_free(env);
	}
	assert_true(bed.done);
}

/* --- steps -------------------------------------------------------------- */

static struct ibv_qp *dci_new(void)
{
	struct dev_qp_opts opts = {.timeout = 10, .retry_cnt = 4};
	struct node *a = &bed.node[0];
	struct ibv_qp_init_attr at = {.send_cq = a->cq,
				      .recv_cq = a->cq,
				      .cap = {.max_send_wr = 64,
					      .max_send_sge = 2,
					      .max_inline_data = 64}};
	struct ibv_qp *qp;

	assert_int_equal(
		a->dev->ops->create_dci(a->dev, a->pd, &at, &opts, &qp), 0);
	assert_int_equal(qp->state, IBV_QPS_RTS);
	return qp;
}

static void dci_free(struct ibv_qp *qp)
{
	struct dev *dev = bed.node[0].dev;

	assert_int_equal(dev->ops->destroy_qp(dev, qp), 0);
}

static struct ibv_sge sge_of(const struct node *n, uint32_t at, uint32_t len)
{
	return (struct ibv_sge){.addr = (uintptr_t)n->mem + at,
				.length = len,
				.lkey = n->mr->lkey};
}

static struct ibv_send_wr wr_of(unsigned to, struct ibv_sge *sge,
				enum ibv_wr_opcode op, uint32_t at)
{
	struct node *t = &bed.node[to];
	struct ibv_send_wr wr = {.wr_id = op,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = op,
				 .imm_data = 7,
				 .send_flags = IBV_SEND_SIGNALED};

	if (op >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)t->mem + at;
		wr.wr.atomic.rkey = t->mr->rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)t->mem + at;
		wr.wr.rdma.rkey = t->mr->rkey;
	}
	return wr;
}

static int post_wr(struct ibv_qp *dci, unsigned to, struct ibv_send_wr *wr,
		   uint64_t key)
{
	struct node *a = &bed.node[0], *t = &bed.node[to];

	return a->dev->ops->post_dc(a->dev, dci, wr, t->ah,
				    t->dct ? t->dct->qp_num : 0, key);
}

static void post(struct ibv_qp *dci, unsigned to, enum ibv_wr_opcode op,
		 uint32_t from, uint32_t at)
{
	struct ibv_sge sge = sge_of(&bed.node[0], from, 8);
	struct ibv_send_wr wr = wr_of(to, &sge, op, at);

	assert_int_equal(post_wr(dci, to, &wr, KEY + to), 0);
}

static void recv_post(unsigned i, uint64_t id, uint32_t at, uint32_t len)
{
	struct ibv_sge sge = sge_of(&bed.node[i], at, len);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	assert_int_equal(ibv_post_srq_recv(bed.node[i].srq, &wr, &bad), 0);
}

static struct ibv_wc wc_of(unsigned i)
{
	struct ibv_wc wc = {0};
	int n = 0;

	for (unsigned round = 0; !n && round < 300000; round++) {
		n = ibv_poll_cq(bed.node[i].cq, 1, &wc);
		if (!n)
			pause_a_bit();
	}
	assert_int_equal(n, 1);
	return wc;
}

static struct ibv_wc ok(unsigned i, uint64_t id)
{
	struct ibv_wc wc = wc_of(i);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
	return wc;
}

static void none(unsigned i)
{
	struct ibv_wc wc;

	for (unsigned round = 0; round < 200; round++) {
		assert_int_equal(ibv_poll_cq(bed.node[i].cq, 1, &wc), 0);
		pause_a_bit();
	}
}

static void done(struct ibv_qp *dci, unsigned to, enum ibv_wr_opcode op,
		 uint32_t from, uint32_t at)
{
	post(dci, to, op, from, at);
	assert_int_equal(ok(0, op).qp_num, dci->qp_num);
}

/* --- programs ----------------------------------------------------------- */

static void all_ops(void)
{
	struct ibv_qp *dci = dci_new();
	struct node *a = &bed.node[0], *t;
	struct ibv_wc wc;
	uint64_t word = 3, was;
	unsigned i;

	memcpy(a->mem, "original", 8);
	for (i = 1; i < NODES; i++) {
		t = &bed.node[i];
		memcpy(t->mem + 512, &word, 8);
		done(dci, i, IBV_WR_RDMA_WRITE, 0, 1024);
		assert_memory_equal(t->mem + 1024, "original", 8);
		done(dci, i, IBV_WR_RDMA_READ, 64, 1024);
		assert_memory_equal(a->mem + 64, "original", 8);
		done(dci, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 128, 512);
		memcpy(&was, a->mem + 128, 8);
		assert_int_equal(was, 3);
		done(dci, i, IBV_WR_ATOMIC_CMP_AND_SWP, 128, 512);
		memcpy(&was, a->mem + 128, 8);
		assert_int_equal(was, 8);
		recv_post(i, 40 + i, 0, 64);
		recv_post(i, 80 + i, 0, 64);
		recv_post(i, 90 + i, 0, 64);
		done(dci, i, IBV_WR_SEND, 0, 0);
		wc = ok(i, 40 + i);
		assert_int_equal(wc.qp_num, t->dct->qp_num);
		assert_int_equal(wc.byte_len, 8);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.wc_flags & IBV_WC_GRH, 0);
		assert_memory_equal(t->mem, "original", 8);
		done(dci, i, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 2048);
		wc = ok(i, 80 + i);
		assert_int_equal(wc.imm_data, 7);
		assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		assert_memory_equal(t->mem + 2048, "original", 8);
		done(dci, i, IBV_WR_SEND_WITH_IMM, 0, 0);
		assert_int_equal(ok(i, 90 + i).imm_data, 7);
	}
	dci_free(dci);
}

/* RC's outcome: a message without a receive waits, and all behind it, whatever
 * their targets. */
static void late_receives(void)
{
	struct ibv_qp *dci = dci_new();
	unsigned k;

	post(dci, 1, IBV_WR_SEND, 0, 0);
	post(dci, 2, IBV_WR_RDMA_WRITE, 0, 64);
	post(dci, 1, IBV_WR_RDMA_READ, 0, 64);
	none(0);
	recv_post(1, 5, 0, 64);
	ok(1, 5);
	ok(0, IBV_WR_SEND);
	ok(0, IBV_WR_RDMA_WRITE);
	ok(0, IBV_WR_RDMA_READ);
	for (k = 0; k < 20; k++)
		post(dci, 1 + k % 3, IBV_WR_SEND_WITH_IMM, 0, 0);
	for (k = 0; k < 20; k++) {
		recv_post(1 + k % 3, 100 + k, 0, 64);
		ok(1 + k % 3, 100 + k);
		ok(0, IBV_WR_SEND_WITH_IMM);
	}
	dci_free(dci);
}

/* The DCI breaks; the target serves on. */
static void broken(unsigned to, struct ibv_send_wr *wr, uint64_t key,
		   enum ibv_wc_status status)
{
	struct ibv_qp *dci = dci_new(), *other = dci_new();

	assert_int_equal(post_wr(dci, to, wr, key), 0);
	wr->wr_id++;
	assert_int_equal(post_wr(dci, to, wr, key), 0);
	assert_int_equal(wc_of(0).status, status);
	assert_int_equal(wc_of(0).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(dci->state, IBV_QPS_ERR);
	done(other, to, IBV_WR_RDMA_WRITE, 0, 64);
	dci_free(dci);
	dci_free(other);
}

static void errors(void)
{
	struct ibv_sge sge = sge_of(&bed.node[0], 0, 8);
	struct ibv_send_wr wr, *bad;
	struct ibv_qp *dci;
	unsigned i;

	for (i = 1; i < NODES; i++) {
		sge = sge_of(&bed.node[0], 0, 8);
		wr = wr_of(i, &sge, IBV_WR_RDMA_WRITE, 0);
		broken(i, &wr, KEY, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(bed.node[i].dct->state, IBV_QPS_RTR);
		wr.wr.rdma.rkey ^= 0x100;
		broken(i, &wr, KEY + i, IBV_WC_REM_ACCESS_ERR);
		wr = wr_of(i, &sge, IBV_WR_RDMA_READ, MEM - 4);
		broken(i, &wr, KEY + i, IBV_WC_REM_ACCESS_ERR);
		wr = wr_of(i, &sge, IBV_WR_SEND, 0);
		sge.lkey ^= 0x100;
		recv_post(i, 77, 0, 64);
		broken(i, &wr, KEY + i, IBV_WC_LOC_PROT_ERR);
		/* the receive is still there */
		dci = dci_new();
		done(dci, i, IBV_WR_SEND, 0, 0);
		ok(i, 77);
		/* what does not go together, and no target at all */
		wr = wr_of(i, &sge, IBV_WR_RDMA_READ, 0);
		wr.send_flags |= IBV_SEND_INLINE;
		assert_int_equal(post_wr(dci, i, &wr, KEY + i), -EINVAL);
		wr = wr_of(i, &sge, IBV_WR_RDMA_WRITE, 0);
		assert_int_equal(ibv_post_send(dci, &wr, &bad), EINVAL);
		dci_free(dci);
	}
}

/* What is behind a refused request is flushed, and was not carried out: it may
 * be posted again. */
static void refused(void)
{
	struct ibv_sge sge = sge_of(&bed.node[0], 0, 8);
	struct ibv_qp *dci;
	struct ibv_send_wr wr[3];
	uint64_t word = 0;

	for (unsigned to = 1; to < NODES; to++) {
		dci = dci_new();
		memcpy(bed.node[to].mem + 512, &word, 8);
		wr[0] = wr_of(to, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 512);
		wr[1] = wr_of(to, &sge, IBV_WR_RDMA_WRITE, 0);
		wr[1].wr.rdma.rkey ^= 0x100;
		wr[2] = wr[0];
		wr[0].next = &wr[1];
		wr[1].next = &wr[2];
		assert_int_equal(post_wr(dci, to, wr, KEY + to), 0);
		assert_int_equal(wc_of(0).status, IBV_WC_SUCCESS);
		assert_int_equal(wc_of(0).status, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(wc_of(0).status, IBV_WC_WR_FLUSH_ERR);
		dci_free(dci);
		none(0);
		assert_int_equal(bed.node[to].mem[512], 5);
	}
}

/* A receive that is too short: both ends learn it, the target serves on. */
static void short_receive(void)
{
	struct ibv_qp *dci = dci_new();
	struct ibv_wc wc;

	recv_post(2, 1, 0, 4);
	recv_post(2, 2, 0, 64);
	post(dci, 2, IBV_WR_SEND, 0, 0);
	assert_int_equal(wc_of(0).status, IBV_WC_REM_INV_REQ_ERR);
	wc = wc_of(2);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(wc.wr_id, 1);
	dci_free(dci);
	dci = dci_new();
	done(dci, 2, IBV_WR_SEND, 0, 0);
	ok(2, 2);
	dci_free(dci);
}

static void nobody(void)
{
	struct ibv_sge sge = sge_of(&bed.node[0], 0, 8);
	struct ibv_send_wr wr = wr_of(1, &sge, IBV_WR_RDMA_WRITE, 0);
	struct node *a = &bed.node[0], *t = &bed.node[1];
	struct ibv_qp *dci = dci_new();

	/* a number that is not there, and one that is no target */
	assert_int_equal(a->dev->ops->post_dc(a->dev, dci, &wr, t->ah,
					      t->dct->qp_num + 1, KEY + 1),
			 0);
	assert_int_equal(wc_of(0).status, IBV_WC_RETRY_EXC_ERR);
	dci_free(dci);
	dci = dci_new();
	assert_int_equal(a->dev->ops->post_dc(a->dev, dci, &wr, t->ah,
					      dci->qp_num, 0),
			 0);
	assert_int_equal(wc_of(0).status, IBV_WC_RETRY_EXC_ERR);
	dci_free(dci);
	/* one that goes, with a message waiting for it and one after it */
	dci = dci_new();
	post(dci, 1, IBV_WR_SEND, 0, 0);
	none(0);
	assert_int_equal(t->dev->ops->destroy_qp(t->dev, t->dct), 0);
	assert_int_equal(wc_of(0).status, IBV_WC_RETRY_EXC_ERR);
	dci_free(dci);
	t->dct = NULL;
	dci = dci_new();
	done(dci, 2, IBV_WR_RDMA_WRITE, 0, 64);
	dci_free(dci);
}

/* A region that is deregistered is reached by nobody. */
static void dereg(void)
{
	struct ibv_sge sge = sge_of(&bed.node[0], 0, 8);
	struct node *t = &bed.node[2];
	struct ibv_qp *dci = dci_new();
	struct ibv_send_wr wr;

	done(dci, 2, IBV_WR_RDMA_WRITE, 0, 64);
	wr = wr_of(2, &sge, IBV_WR_RDMA_WRITE, 64);
	assert_int_equal(t->dev->ops->dereg_mr(t->dev, t->mr), 0);
	t->mr = NULL;
	assert_int_equal(post_wr(dci, 2, &wr, KEY + 2), 0);
	assert_int_equal(wc_of(0).status, IBV_WC_REM_ACCESS_ERR);
	dci_free(dci);
}

/* Lists of several DCIs to several targets, each DCI in bytes of its own: what
 * a model says is there. Only the last of a list is signalled. */
#define DCIS 3u
#define LISTS 300u
#define ROOM 1024u

static void list_post(struct ibv_qp *dci, unsigned k, struct prng *rng,
		      unsigned char model[NODES][MEM], uint64_t id)
{
	unsigned to = 1 + (unsigned)prng_below(rng, NODES - 1), n, i;
	struct ibv_send_wr wr[4];
	struct ibv_sge sge[4];
	uint32_t at, len;

	n = 1 + (unsigned)prng_below(rng, 4);
	for (i = 0; i < n; i++) {
		len = 1 + (uint32_t)prng_below(rng, 60);
		at = k * ROOM + (uint32_t)prng_below(rng, ROOM - len);
		sge[i] =
			sge_of(&bed.node[0],
			       k * ROOM + (uint32_t)prng_below(rng, ROOM - len),
			       len);
		wr[i] = wr_of(to, &sge[i], IBV_WR_RDMA_WRITE, at);
		if (prng_below(rng, 2))
			wr[i].send_flags |= IBV_SEND_INLINE;
		if (i + 1 < n)
			wr[i].send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
		wr[i].wr_id = id;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		memcpy(model[to] + at, (const void *)(uintptr_t)sge[i].addr,
		       len);
	}
	assert_int_equal(post_wr(dci, to, wr, KEY + to), 0);
}

static void mixture(void)
{
	static unsigned char model[NODES][MEM];
	struct ibv_qp *dci[DCIS];
	uint64_t next[DCIS] = {0}, posted[DCIS] = {0};
	struct prng rng;
	struct ibv_wc wc;
	unsigned i, k, out = 0;

	prng_init(&rng, 7);
	memset(model, 0, sizeof(model));
	for (k = 0; k < DCIS; k++)
		dci[k] = dci_new();
	for (i = 0; i < DCIS * ROOM; i++)
		bed.node[0].mem[i] = (unsigned char)prng_below(&rng, 256);
	for (i = 0; i < LISTS || out; i++) {
		if (i < LISTS) {
			k = (unsigned)prng_below(&rng, DCIS);
			list_post(dci[k], k, &rng, model,
				  (uint64_t)k << 32 | posted[k]++);
			out++;
		}
		if (out < 12 && i < LISTS)
			continue;
		wc = wc_of(0);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		k = (unsigned)(wc.wr_id >> 32);
		assert_int_equal(wc.wr_id & 0xffffffff, next[k]++);
		out--;
	}
	for (i = 1; i < NODES; i++)
		assert_memory_equal(bed.node[i].mem, model[i], DCIS * ROOM);
	for (k = 0; k < DCIS; k++)
		dci_free(dci[k]);
}

#define PROGRAM(name)                         \
	static void test_##name(void **state) \
	{                                     \
		(void)state;                  \
		run(name);                    \
	}

PROGRAM(all_ops)
PROGRAM(late_receives)
PROGRAM(errors)
PROGRAM(refused)
PROGRAM(short_receive)
PROGRAM(nobody)
PROGRAM(dereg)
PROGRAM(mixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_ops),
		cmocka_unit_test(test_late_receives),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_short_receive),
		cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_dereg),
		cmocka_unit_test(test_mixture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
