/* SPDX-License-Identifier: MIT */
/*
 * rc_pair.c - the rig of the device tests: see rc_pair.h.
 */
#include "rc_pair.h"

#include <poll.h>
#include <sched.h>

#define PSN_A 0xfffffe /* wraps within a few packets */
#define PSN_B 0x123456
/* Each is lost with a chance of 1 in 32 at most. */
#define LOSSES_MAX 16
#define ACCESS_ALL                                         \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static struct skein_env *env;
struct dev *dev_a, *dev_b;

static void say(void *arg, enum env_log_level level, const char *msg)
{
	(void)arg;
	(void)level;
	print_message("skein: %s\n", msg);
}

static struct dev *open_dev(const char *var, const char *dflt)
{
	const char *spec = getenv(var);
	struct dev *dev = NULL;
	char err[256] = "";

	if (!spec || !*spec)
		spec = dflt;
	if (dev_open(env, spec, -1, err, sizeof(err), &dev))
		fail_msg("%s: %s", spec, err);
	print_message("%s: %s; GID %d: %s\n", dev->name, dev->why,
		      dev->gid.index, dev->gid.why);
	print_message(
		"  ordered_write %d atomic_scope %d inline %u rd_atomic %u "
		"wr %u sge %u\n",
		dev->caps.ordered_write, dev->caps.atomic_scope,
		dev->caps.inline_max, dev->caps.rd_atomic_max,
		dev->caps.qp_wr_max, dev->caps.sge_max);
	return dev;
}

int rig_setup(void **state)
{
	const char *first = getenv("SKEIN_TEST_DEVICE");

	(void)state;
	assert_int_equal(env_real_new(&env), 0);
	env->log = say;
	env->log_level = ENV_LOG_INFO; /* the devices say their names */
	dev_a = open_dev("SKEIN_TEST_DEVICE", "soft");
	dev_b = open_dev("SKEIN_TEST_DEVICE2",
			 first && *first ? first : "soft");
	return 0;
}

int rig_teardown(void **state)
{
	(void)state;
	dev_close(dev_b);
	dev_close(dev_a);
	env_real_free(env);
	return 0;
}

static void end_fill(struct end *e, struct dev *dev, uint32_t psn,
		     enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = 64},
		.qp_type = type,
		.srq = srq,
	};

	e->dev = dev;
	assert_int_equal(dev->ops->create_comp_channel(dev, &e->ch), 0);
	assert_int_equal(
		dev->ops->create_cq(dev, 2 * DEPTH, NULL, NULL, &e->scq), 0);
	assert_int_equal(dev->ops->create_cq(dev, 2 * DEPTH, e, e->ch, &e->rcq),
			 0);
	attr.send_cq = e->scq;
	attr.recv_cq = e->rcq;
	assert_int_equal(dev->ops->create_qp(dev, e->pd, &attr, 0, &e->qp), 0);
	assert_true(attr.cap.max_send_wr >= DEPTH);
	assert_true(attr.cap.max_inline_data >= 64);
	assert_int_equal(mem_region_new(dev, e->pd, "test", MEM_LEN, ACCESS_ALL,
					1, &e->mem),
			 0);
	if (type == IBV_QPT_UD)
		assert_int_equal(dev_qp_ud(dev, e->qp, UD_QKEY, psn), 0);
	else
		assert_int_equal(
			dev_qp_init(dev, e->qp,
				    type == IBV_QPT_RC
					    ? IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_WRITE |
						      IBV_ACCESS_REMOTE_ATOMIC
					    : IBV_ACCESS_REMOTE_WRITE),
			0);
	dev_qp_addr(dev, e->qp, psn, &e->addr);
}

void end_open(struct end *e, struct dev *dev, uint32_t psn)
{
	end_open_as(e, dev, psn, IBV_QPT_RC);
}

void end_open_as(struct end *e, struct dev *dev, uint32_t psn,
		 enum ibv_qp_type type)
{
	memset(e, 0, sizeof(*e));
	assert_int_equal(dev->ops->alloc_pd(dev, &e->pd), 0);
	end_fill(e, dev, psn, type, NULL);
}

void end_open_srq(struct end *e, struct dev *dev, uint32_t psn,
		  struct ibv_srq *srq, struct ibv_pd *pd)
{
	memset(e, 0, sizeof(*e));
	e->pd = pd;
	e->lent = true;
	end_fill(e, dev, psn, IBV_QPT_RC, srq);
}

void end_close(struct end *e)
{
	if (e->qp)
		assert_int_equal(e->dev->ops->destroy_qp(e->dev, e->qp), 0);
	assert_int_equal(e->dev->ops->destroy_cq(e->dev, e->scq), 0);
	assert_int_equal(e->dev->ops->destroy_cq(e->dev, e->rcq), 0);
	assert_int_equal(e->dev->ops->destroy_comp_channel(e->dev, e->ch), 0);
	mem_region_free(e->mem);
	if (!e->lent)
		assert_int_equal(e->dev->ops->dealloc_pd(e->dev, e->pd), 0);
}

void pair_open(struct pair *p, const struct dev_qp_opts *opts)
{
	pair_open_as(p, IBV_QPT_RC, opts);
}

void pair_open_as(struct pair *p, enum ibv_qp_type type,
		  const struct dev_qp_opts *opts)
{
	end_open_as(&p->a, dev_a, PSN_A, type);
	end_open_as(&p->b, dev_b, PSN_B, type);
	if (type != IBV_QPT_UD)
		pair_connect(p, opts);
}

void pair_connect(struct pair *p, const struct dev_qp_opts *opts)
{
	assert_int_equal(dev_qp_rtr(dev_a, p->a.qp, &p->b.addr, opts), 0);
	assert_int_equal(dev_qp_rtr(dev_b, p->b.qp, &p->a.addr, opts), 0);
	assert_int_equal(
		dev_qp_rts(dev_a, p->a.qp, p->a.addr.psn, &p->b.addr, opts), 0);
	assert_int_equal(
		dev_qp_rts(dev_b, p->b.qp, p->b.addr.psn, &p->a.addr, opts), 0);
}

void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

void need(bool ability_a, bool ability_b, const char *what)
{
	if (ability_a && ability_b)
		return;
	printf("%s cannot do %s\n", (ability_a ? dev_b : dev_a)->name, what);
	exit(77);
}

unsigned char *mem(struct end *e)
{
	return e->mem->addr;
}

void fill(struct end *e, size_t off, size_t len, unsigned seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		mem(e)[off + i] = (unsigned char)(i * 7 + seed);
}

struct ibv_sge sge(struct end *e, size_t off, size_t len)
{
	struct ibv_sge s = {
		.addr = (uintptr_t)mem(e) + off,
		.length = (uint32_t)len,
		.lkey = e->mem->mr->lkey,
	};

	return s;
}

struct ibv_send_wr rdma(enum ibv_wr_opcode op, uint64_t id,
			struct ibv_sge *list, struct end *peer, size_t off)
{
	struct ibv_send_wr wr = {
		.wr_id = id,
		.sg_list = list,
		.num_sge = 1,
		.opcode = op,
		.send_flags = IBV_SEND_SIGNALED,
	};

	wr.wr.rdma.remote_addr = (uintptr_t)mem(peer) + off;
	wr.wr.rdma.rkey = peer->mem->mr->rkey;
	return wr;
}

void post(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	assert_int_equal(dev_post_send(&e->st, e->qp, wr, &bad), 0);
}

void post_recv(struct end *e, uint64_t id, size_t off, size_t len)
{
	struct ibv_sge s = sge(e, off, len);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};
	struct ibv_recv_wr *bad = NULL;

	assert_int_equal(dev_post_recv(&e->st, e->qp, &wr, &bad), 0);
}

void wait_wc(struct end *e, struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t deadline = env_now_ns(env) + WAIT_NS;
	int n;

	do {
		n = dev_poll_cq(&e->st, cq, 1, wc);
		if (n)
			break;
		sched_yield();
	} while (env_now_ns(env) < deadline);
	assert_int_equal(n, 1);
}

void expect(struct end *e, struct ibv_cq *cq, uint64_t id,
	    enum ibv_wc_status status)
{
	struct ibv_wc wc;

	wait_wc(e, cq, &wc);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.qp_num, e->qp->qp_num);
}

void carry_out(struct end *e, struct ibv_send_wr *wr)
{
	post(e, wr);
	expect(e, e->scq, wr->wr_id, IBV_WC_SUCCESS);
}

void check_write_imm(const struct ibv_wc *wc, uint64_t id, uint32_t len,
		     uint32_t imm)
{
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->wr_id, id);
	assert_int_equal(wc->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_true(wc->wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc->imm_data), imm);
	assert_int_equal(wc->byte_len, len);
}

bool harsh(void)
{
	const char *seed = getenv("SKEIN_SOFT_HARSH");

	return seed && *seed && !strcmp(dev_a->ops->kind, "soft");
}

void deliver(struct end *from, struct ibv_send_wr *wr, struct end *to,
	     struct ibv_wc *wc)
{
	for (int i = 0; i < LOSSES_MAX; i++) {
		carry_out(from, wr);
		if (!harsh()) {
			wait_wc(to, to->rcq, wc);
			return;
		}
		if (dev_poll_cq(&to->st, to->rcq, 1, wc))
			return;
	}
	fail_msg("%d losses in a row", LOSSES_MAX);
}

void expect_none(struct end *e, struct ibv_cq *cq)
{
	struct ibv_wc wc;

	assert_int_equal(dev_poll_cq(&e->st, cq, 1, &wc), 0);
}

/* Memory that a device writes and the test polls: what orders the two is the
 * device, which TSan does not know for one. */
__attribute__((no_sanitize("thread"))) void wait_byte(struct end *e, size_t off,
						      unsigned char value)
{
	const volatile unsigned char *byte = mem(e) + off;
	uint64_t deadline = env_now_ns(env) + WAIT_NS;

	while (*byte != value && env_now_ns(env) < deadline)
		sched_yield();
	assert_int_equal(*byte, value);
}

void wait_readable(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	assert_int_equal(poll(&pfd, 1, (int)(WAIT_NS / 1000000)), 1);
}

enum ibv_qp_state qp_state(struct end *e)
{
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init;

	assert_int_equal(e->dev->ops->query_qp(e->dev, e->qp, &attr,
					       IBV_QP_STATE, &init),
			 0);
	return attr.qp_state;
}
