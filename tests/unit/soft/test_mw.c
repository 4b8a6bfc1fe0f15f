/* SPDX-License-Identifier: MIT */
/*
 * Memory windows: what each bind, invalidation and access comes to, and that no
 * byte lands behind an invalidation; in mapped memory, in ordinary memory, in
 * harsh mode, and over the link between hosts.
 */
#include "ud_rig.h"

#include "dev/soft/dc/dc.h"
#include "env/membarrier.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEN 65536u
#ifndef MW_FEW
#define MW_FEW 0 /* 1: each invalidation takes 20 ms */
#endif
#define ROUNDS (MW_FEW ? 1 : 4)
#define BIND (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)
#define ALL                                                 \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

static const char *how;
static struct rig_end a, b; /* b has the windows */
static struct ibv_mr *mr;
static struct ibv_mw *mw;

static struct ibv_mr *reg(struct rig_end *e, struct ibv_pd *pd, size_t len,
			  uint64_t iova, int access)
{
	struct ibv_mr *m;

	assert_int_equal(e->dev->ops->reg_mr_iova(e->dev, pd, e->buf, len, iova,
						  access, e->mem->fd,
						  e->mem->off, &m),
			 0);
	return m;
}

static void begin(enum ibv_mw_type type)
{
	struct rig_opts o = {.plain = how && !strcmp(how, "plain")};

	if (how && !strcmp(how, "harsh"))
		setenv("SKEIN_SOFT_HARSH", "5", 1);
	else if (how && !o.plain)
		setenv("SKEIN_LINK", how, 1);
	rig_pair(&a, &b, &o);
	unsetenv("SKEIN_LINK");
	unsetenv("SKEIN_SOFT_HARSH");
	memset(a.buf, 1, LEN);
	memset(b.buf, 0, LEN);
	mr = reg(&b, b.pd, LEN, (uintptr_t)b.buf, BIND);
	mw = ibv_alloc_mw(b.pd, type);
	assert_non_null(mw);
}

static void end(void)
{
	if (mw)
		assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, mr), 0);
	rig_unpair(&a, &b);
}

static int up(void **state)
{
	how = *state;
	return 0;
}

/* --- requests ----------------------------------------------------------- */

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->wr_id = 7;
	wr->send_flags |= IBV_SEND_SIGNALED;
	return ibv_post_send(qp, wr, &bad);
}

static int post_bind(struct ibv_qp *qp, struct ibv_mw *w, uint32_t rkey,
		     struct ibv_mr *m, uint64_t addr, uint64_t len,
		     unsigned access)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};

	wr.bind_mw.mw = w;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){m, addr, len, access};
	return post(qp, &wr);
}

/* Type 2, on b's QP. */
static void bind2(uint32_t off, uint32_t len, unsigned access)
{
	uint32_t key = ibv_inc_rkey(mw->rkey);

	assert_int_equal(post_bind(b.qp, mw, key, mr, (uintptr_t)b.buf + off,
				   len, access),
			 0);
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	mw->rkey = key;
}

static int post_bind1(struct ibv_qp *qp, uint32_t off, uint32_t len,
		      unsigned access)
{
	struct ibv_mw_bind m = {.wr_id = 7, .send_flags = IBV_SEND_SIGNALED};

	m.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)b.buf + off, len,
						access};
	return ibv_bind_mw(qp, mw, &m);
}

static void bind1(uint32_t off, uint32_t len, unsigned access)
{
	uint32_t was = mw->rkey;

	assert_int_equal(post_bind1(b.qp, off, len, access), 0);
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	assert_int_not_equal(mw->rkey, was);
}

static int post_inv(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t key)
{
	struct ibv_send_wr wr = {.opcode = op};

	wr.invalidate_rkey = key;
	return post(qp, &wr);
}

static void local_inv(enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, mw->rkey), 0);
	rig_wait(&b, &wc);
	assert_int_equal(wc.status, status);
	if (!status)
		assert_int_equal(wc.opcode, IBV_WC_LOCAL_INV);
}

static void reach(enum ibv_wr_opcode op, uint64_t addr, uint32_t key,
		  uint32_t len, enum ibv_wc_status status)
{
	struct ibv_sge sge = {(uintptr_t)a.buf, len, a.mem->mr->lkey};
	struct ibv_send_wr wr = {.opcode = op, .sg_list = &sge, .num_sge = 1};

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = key;
	}
	assert_int_equal(post(a.qp, &wr), 0);
	rig_expect(&a, 7, status);
}

static void reach_off(enum ibv_wr_opcode op, uint32_t off, uint32_t len,
		      enum ibv_wc_status status)
{
	reach(op, (uintptr_t)b.buf + off, mw->rkey, len, status);
}

static enum ibv_qp_state state_of(struct rig_end *e)
{
	struct ibv_qp_attr attr;

	assert_int_equal(e->dev->ops->query_qp(e->dev, e->qp, &attr,
					       IBV_QP_STATE, NULL),
			 0);
	return attr.qp_state;
}

static bool in_err(void *arg)
{
	return state_of(arg) == IBV_QPS_ERR;
}

/* --- what goes well ----------------------------------------------------- */

static void operations(void)
{
	uint64_t word;

	reach_off(IBV_WR_RDMA_WRITE, 4096, 8192, IBV_WC_SUCCESS);
	assert_memory_equal(b.buf + 4096, a.buf, 8192);
	assert_int_equal(b.buf[4095], 0);
	assert_int_equal(b.buf[4096 + 8192], 0);
	memset(b.buf + 8192, 9, 4096);
	reach_off(IBV_WR_RDMA_READ, 8192, 4096, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf + 8192, 4096);
	memset(b.buf + 8192, 0, 8);
	reach_off(IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8, IBV_WC_SUCCESS);
	/* atomic: on the link it is b's control thread that has written it */
	word = __atomic_load_n((uint64_t *)(void *)(b.buf + 8192),
			       __ATOMIC_ACQUIRE);
	assert_int_equal(word, 5);
}

static void test_type2(void **state)
{
	begin(IBV_MW_TYPE_2);
	bind2(4096, 8192, ALL);
	operations();
	local_inv(IBV_WC_SUCCESS);
	bind2(0, LEN, ALL);
	reach_off(IBV_WR_RDMA_WRITE, 0, LEN, IBV_WC_SUCCESS);
	assert_memory_equal(b.buf, a.buf, LEN);
	end();
}

/* A bind of a bound window is an invalidation, too. */
static void test_type1(void **state)
{
	uint32_t first;

	begin(IBV_MW_TYPE_1);
	bind1(4096, 8192, ALL);
	first = mw->rkey;
	operations();
	bind1(0, LEN, IBV_ACCESS_REMOTE_WRITE);
	reach_off(IBV_WR_RDMA_WRITE, 0, LEN, IBV_WC_SUCCESS);
	reach(IBV_WR_RDMA_WRITE, (uintptr_t)b.buf + 4096, first, 8,
	      IBV_WC_REM_ACCESS_ERR);
	end();
}

/* Requests name it by offsets; the region by other addresses than the
 * program's. */
static void test_zero_based(void **state)
{
	struct ibv_mr *at;
	uint32_t key;

	begin(IBV_MW_TYPE_2);
	at = reg(&b, b.pd, LEN, 0x100000000ull, BIND);
	key = ibv_inc_rkey(mw->rkey);
	assert_int_equal(post_bind(b.qp, mw, key, at, 0x100000000ull + 512, 64,
				   ALL | IBV_ACCESS_ZERO_BASED),
			 0);
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	reach(IBV_WR_RDMA_WRITE, 56, key, 8, IBV_WC_SUCCESS);
	assert_int_equal(b.buf[511 + 56], 0);
	assert_memory_equal(b.buf + 512 + 56, a.buf, 8);
	assert_int_equal(b.buf[512 + 64], 0);
	reach(IBV_WR_RDMA_WRITE, 57, key, 8, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	mw = NULL;
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, at), 0);
	end();
}

static void test_send_with_inv(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV, .sg_list = &sge, .num_sge = 1};
	struct ibv_wc wc;

	begin(IBV_MW_TYPE_2);
	for (int i = 0; i < 3; i++) {
		bind2(0, 4096, ALL);
		reach_off(IBV_WR_RDMA_WRITE, 0, 4096, IBV_WC_SUCCESS);
		assert_int_equal(rig_recv(&b, 3, b.buf + LEN, 9000), 0);
		sge = (struct ibv_sge){(uintptr_t)a.buf, 8200, a.lkey};
		wr.invalidate_rkey = mw->rkey;
		assert_int_equal(post(a.qp, &wr), 0);
		rig_wait(&b, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, 8200);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(wc.invalidated_rkey, mw->rkey);
		rig_wait(&a, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_SEND);
		assert_memory_equal(b.buf + LEN, a.buf, 8200);
	}
	reach_off(IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_REM_ACCESS_ERR);
	end();
}

/* A bind waits for its turn, and finds then what is there then. */
static void test_order(void **state)
{
	uint32_t key;

	begin(IBV_MW_TYPE_2);
	key = ibv_inc_rkey(mw->rkey);
	assert_int_equal(rig_post(&b, IBV_WR_SEND, 1, b.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	assert_int_equal(
		post_bind(b.qp, mw, key, mr, (uintptr_t)b.buf, LEN, ALL), 0);
	usleep(20000);
	assert_true(rig_quiet(&b));
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, mr), 0);
	assert_int_equal(rig_recv(&a, 2, a.buf, 8), 0);
	rig_expect(&b, 1, IBV_WC_SUCCESS);
	rig_expect(&b, 7, IBV_WC_MW_BIND_ERR);
	assert_true(in_err(&b));
	mr = reg(&b, b.pd, LEN, (uintptr_t)b.buf, BIND);
	end();
}

/* A request behind an invalidation waits for it. */
static void test_order_inv(void **state)
{
	begin(IBV_MW_TYPE_2);
	bind2(0, LEN, ALL);
	assert_int_equal(rig_recv(&a, 2, a.buf, 8), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 1, b.buf, 8,
					  (uintptr_t)a.buf + 64,
					  a.mem->mr->rkey, IBV_SEND_SIGNALED),
				 0);
	assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, mw->rkey), 0);
	assert_int_equal(rig_post(&b, IBV_WR_SEND, 3, b.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 1, IBV_WC_SUCCESS);
	rig_expect(&b, 1, IBV_WC_SUCCESS);
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	rig_expect(&b, 3, IBV_WC_SUCCESS);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
	end();
}

/* While a window is bound its region stays. */
static void test_busy(void **state)
{
	const struct dev_ops *ops;

	begin(IBV_MW_TYPE_2);
	ops = b.dev->ops;
	bind2(0, LEN, ALL);
	assert_int_equal(ops->dereg_mr(b.dev, mr), -EBUSY);
	assert_int_equal(ops->rereg_mr(b.dev, mr, IBV_REREG_MR_CHANGE_ACCESS,
				       NULL, NULL, 0, BIND, -1, 0),
			 -EBUSY);
	assert_int_equal(ops->dealloc_pd(b.dev, b.pd), -EBUSY);
	reach_off(IBV_WR_RDMA_WRITE, 0, LEN, IBV_WC_SUCCESS);
	local_inv(IBV_WC_SUCCESS);
	assert_int_equal(ops->rereg_mr(b.dev, mr, IBV_REREG_MR_CHANGE_ACCESS,
				       NULL, NULL, 0, BIND, -1, 0),
			 0);
	bind2(0, LEN, ALL);
	reach_off(IBV_WR_RDMA_WRITE, 0, LEN, IBV_WC_SUCCESS);
	/* the end of its QP unbinds a window of type 2 */
	assert_int_equal(ops->destroy_qp(b.dev, b.qp), 0);
	b.qp = NULL;
	assert_int_equal(ops->dereg_mr(b.dev, mr), 0);
	mr = reg(&b, b.pd, LEN, (uintptr_t)b.buf, BIND);
	end();
}

/* ibv_wr_* */
static void test_extended(void **state)
{
	struct ibv_qp_init_attr_ex x = {
		.qp_type = IBV_QPT_RC,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW |
				  IBV_QP_EX_WITH_LOCAL_INV |
				  IBV_QP_EX_WITH_SEND_WITH_INV,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = 8,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	struct ibv_mw_bind_info info;
	struct dev_qp_addr self;
	struct ibv_qp_ex *ex;
	struct ibv_recv_wr recv = {.wr_id = 2}, *bad;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	uint32_t key;

	begin(IBV_MW_TYPE_2);
	x.pd = b.pd;
	x.send_cq = x.recv_cq = b.cq;
	qp = container_of(b.dev->verbs, struct verbs_context, context)
		     ->create_qp_ex(b.dev->verbs, &x);
	assert_non_null(qp);
	assert_int_equal(dev_qp_init(b.dev, qp, RIG_ACCESS), 0);
	dev_qp_addr(b.dev, qp, b.psn, &self);
	rig_connect_qp(&b, qp, &self);
	ex = (struct ibv_qp_ex *)(void *)qp;
	info = (struct ibv_mw_bind_info){mr, (uintptr_t)b.buf, LEN, ALL};
	assert_int_equal(ibv_post_recv(qp, &recv, &bad), 0);
	key = ibv_inc_rkey(mw->rkey);
	ibv_wr_start(ex);
	ex->wr_id = 7;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, key, &info);
	ibv_wr_local_inv(ex, key);
	ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(key), &info);
	ibv_wr_send_inv(ex, ibv_inc_rkey(key));
	ibv_wr_set_sge_list(ex, 0, NULL);
	assert_int_equal(ibv_wr_complete(ex), 0);
	for (int got = 0; got < 5; got++) {
		rig_wait(&b, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id == 2)
			assert_int_equal(wc.invalidated_rkey,
					 ibv_inc_rkey(key));
	}
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, qp), 0);
	end();
}

/* --- mistakes ----------------------------------------------------------- */

enum bad_bind {
	NO_RIGHT,
	BEYOND,
	BEFORE,
	READ_ONLY,
	OTHER_PD,
	WINDOW_PD,
	OTHER_KEY,
	BOUND,
	EMPTY,
	FLAGS,
	BAD_BINDS
};

static void bad_bind(enum bad_bind what)
{
	struct ibv_pd *pd = NULL, *in;
	struct ibv_mr *m;
	struct ibv_mw *w;
	uint64_t addr, len = 4096;
	unsigned access = ALL;
	uint32_t key;
	int right = BIND;

	begin(IBV_MW_TYPE_2);
	addr = (uintptr_t)b.buf;
	in = b.pd;
	assert_int_equal(b.dev->ops->alloc_pd(b.dev, &pd), 0);
	w = ibv_alloc_mw(what == WINDOW_PD ? pd : b.pd, IBV_MW_TYPE_2);
	key = ibv_inc_rkey(w->rkey);
	if (what == NO_RIGHT)
		right = RIG_ACCESS;
	if (what == READ_ONLY)
		right = IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ;
	if (what == OTHER_PD || what == WINDOW_PD)
		in = pd;
	m = reg(&b, in, 8192, addr, right);
	if (what == BEYOND)
		addr += 8192 - 4095;
	if (what == BEFORE)
		addr -= 1;
	if (what == READ_ONLY)
		access = IBV_ACCESS_REMOTE_WRITE;
	if (what == OTHER_KEY)
		key ^= 0x100;
	if (what == EMPTY)
		len = 0;
	if (what == FLAGS)
		access |= IBV_ACCESS_MW_BIND;
	if (what == BOUND) {
		assert_int_equal(post_bind(b.qp, w, key, m, addr, len, access),
				 0);
		rig_expect(&b, 7, IBV_WC_SUCCESS);
		key = ibv_inc_rkey(key);
	}
	assert_int_equal(post_bind(b.qp, w, key, m, addr, len, access), 0);
	rig_expect(&b, 7, IBV_WC_MW_BIND_ERR);
	assert_true(in_err(&b));
	assert_int_equal(ibv_dealloc_mw(w), 0);
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, m), 0);
	assert_int_equal(b.dev->ops->dealloc_pd(b.dev, pd), 0);
	end();
}

static void test_bad_binds(void **state)
{
	for (int what = 0; what < BAD_BINDS; what++)
		bad_bind((enum bad_bind)what);
}

/* What a bind asks for is what is looked at, not what the region shows. */
static void test_read_only(void **state)
{
	struct ibv_mr *m;
	uint32_t key;

	begin(IBV_MW_TYPE_2);
	m = reg(&b, b.pd, 4096, (uintptr_t)b.buf, IBV_ACCESS_MW_BIND);
	key = ibv_inc_rkey(mw->rkey);
	assert_int_equal(post_bind(b.qp, mw, key, m, (uintptr_t)b.buf, 64,
				   IBV_ACCESS_REMOTE_READ),
			 0);
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	reach(IBV_WR_RDMA_READ, (uintptr_t)b.buf, key, 64, IBV_WC_SUCCESS);
	reach(IBV_WR_RDMA_WRITE, (uintptr_t)b.buf, key, 64,
	      IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	mw = NULL;
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, m), 0);
	end();
}

enum bad_key {
	REGION,
	TYPE_1,
	UNBOUND,
	OTHER_QP,
	OLD,
	NOBODYS,
	BAD_KEYS
};

static uint32_t bad_key(enum bad_key what, struct ibv_qp **other)
{
	struct dev_qp_addr self;
	uint32_t key;

	*other = NULL;
	switch (what) {
	case REGION:
		return mr->rkey;
	case TYPE_1:
		bind1(0, LEN, ALL);
		return mw->rkey;
	case UNBOUND:
		return mw->rkey;
	case OTHER_QP:
		*other = rig_qp(&b);
		rig_qp_addr(&b, *other, &self);
		rig_connect_qp(&b, *other, &self);
		key = ibv_inc_rkey(mw->rkey);
		assert_int_equal(post_bind(*other, mw, key, mr,
					   (uintptr_t)b.buf, LEN, ALL),
				 0);
		rig_expect(&b, 7, IBV_WC_SUCCESS);
		return key;
	case OLD:
		bind2(0, LEN, ALL);
		local_inv(IBV_WC_SUCCESS);
		key = mw->rkey;
		bind2(0, LEN, ALL);
		return key;
	default:
		return 0xfff0u << 16 | 1;
	}
}

static void test_bad_local_inv(void **state)
{
	struct ibv_qp *other;
	uint32_t key;

	for (int what = 0; what < BAD_KEYS; what++) {
		begin(what == TYPE_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		key = bad_key((enum bad_key)what, &other);
		assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, key), 0);
		rig_expect(&b, 7, IBV_WC_MW_BIND_ERR);
		assert_true(in_err(&b));
		if (other)
			b.dev->ops->destroy_qp(b.dev, other);
		end();
	}
}

static void test_bad_send_with_inv(void **state)
{
	struct ibv_qp *other;
	uint32_t key;

	for (int what = 0; what < BAD_KEYS; what++) {
		begin(what == TYPE_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		key = bad_key((enum bad_key)what, &other);
		assert_int_equal(rig_recv(&b, 3, b.buf, 64), 0);
		assert_int_equal(post_inv(a.qp, IBV_WR_SEND_WITH_INV, key), 0);
		rig_expect(&a, 7, IBV_WC_REM_ACCESS_ERR);
		rig_expect(&b, 3, IBV_WC_REM_INV_REQ_ERR);
		rig_until(in_err, &a);
		rig_until(in_err, &b);
		if (other)
			b.dev->ops->destroy_qp(b.dev, other);
		end();
	}
}

enum bad_access {
	AFTER_INV,
	AFTER_UNBIND,
	AFTER_DEALLOC,
	AFTER_REBIND,
	PAST_END,
	NO_WRITE,
	NO_READ,
	NO_ATOMIC,
	OTHERS,
	BAD_ACCESSES
};

static void bad_access(enum bad_access what)
{
	enum ibv_wr_opcode op = IBV_WR_RDMA_WRITE;
	struct ibv_qp *other = NULL;
	unsigned right = ALL;
	uint32_t off = 0, key;

	begin(what == AFTER_UNBIND ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	if (what == NO_WRITE)
		right = IBV_ACCESS_REMOTE_READ;
	if (what == NO_READ)
		right = IBV_ACCESS_REMOTE_WRITE;
	if (what == NO_ATOMIC)
		right = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (what == OTHERS) {
		key = bad_key(OTHER_QP, &other);
	} else if (what == AFTER_UNBIND) {
		bind1(0, 4096, right);
		key = mw->rkey;
	} else {
		bind2(0, 4096, right);
		key = mw->rkey;
		/* it is known, where it may be used */
		reach(right & IBV_ACCESS_REMOTE_WRITE ? IBV_WR_RDMA_WRITE
						      : IBV_WR_RDMA_READ,
		      (uintptr_t)b.buf, key, 4096, IBV_WC_SUCCESS);
	}
	switch (what) {
	case AFTER_INV:
		local_inv(IBV_WC_SUCCESS);
		break;
	case AFTER_UNBIND:
		bind1(0, 0, 0);
		break;
	case AFTER_DEALLOC:
		assert_int_equal(ibv_dealloc_mw(mw), 0);
		mw = NULL;
		break;
	case AFTER_REBIND:
		local_inv(IBV_WC_SUCCESS);
		bind2(0, 4096, right);
		break;
	case PAST_END:
		off = 4096 - 7;
		break;
	case NO_READ:
		op = IBV_WR_RDMA_READ;
		break;
	case NO_ATOMIC:
		op = IBV_WR_ATOMIC_FETCH_AND_ADD;
		break;
	default:
		break;
	}
	memset(b.buf, 0, 8192);
	reach(op, (uintptr_t)b.buf + off, key, 8, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 8192; i++)
		assert_int_equal(b.buf[i], 0);
	rig_async(&b, IBV_EVENT_QP_ACCESS_ERR);
	rig_until(in_err, &b);
	if (other)
		b.dev->ops->destroy_qp(b.dev, other);
	end();
}

static void test_bad_accesses(void **state)
{
	for (int what = 0; what < BAD_ACCESSES; what++)
		bad_access((enum bad_access)what);
}

/* A key of a window is no key of local memory, at either end. */
static void test_not_local(void **state)
{
	begin(IBV_MW_TYPE_2);
	bind2(0, LEN, ALL);
	b.lkey = mw->rkey;
	assert_int_equal(rig_recv(&b, 3, b.buf, 64), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, a.buf, 64, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_REM_OP_ERR);
	rig_expect(&b, 3, IBV_WC_LOC_PROT_ERR);
	end();
}

/* Refused at once: nothing is broken. */
static void test_refused(void **state)
{
	struct ibv_mw_bind m = {.bind_info.mw_access_flags =
					IBV_ACCESS_ON_DEMAND};
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .num_sge = 1};
	struct ud_end e;

	begin(IBV_MW_TYPE_1);
	assert_int_equal(ibv_bind_mw(b.qp, mw, &m), EINVAL);
	assert_int_equal(post(b.qp, &wr), EINVAL);
	assert_int_equal(post_bind(b.qp, NULL, 1, mr, 0, 1, ALL), EINVAL);
	/* another device's */
	assert_int_equal(post_bind(a.qp, mw, mw->rkey, mr, (uintptr_t)b.buf, 8,
				   ALL),
			 EINVAL);
	errno = 0;
	assert_null(ibv_alloc_mw(b.pd, (enum ibv_mw_type)3));
	assert_int_equal(errno, EINVAL);
	ud_open(&e, NULL);
	assert_int_equal(post_inv(e.r.qp, IBV_WR_LOCAL_INV, 1), EINVAL);
	assert_int_equal(post_inv(e.r.qp, IBV_WR_SEND_WITH_INV, 1), EINVAL);
	ud_close(&e);
	reach(IBV_WR_RDMA_WRITE, (uintptr_t)b.buf, b.mem->mr->rkey, 8,
	      IBV_WC_SUCCESS);
	end();
}

/* UC binds, and invalidates here; a message that invalidates is RC's. */
static void test_uc(void **state)
{
	struct rig_opts o = {.type = IBV_QPT_UC};

	rig_pair(&a, &b, &o);
	mr = reg(&b, b.pd, LEN, (uintptr_t)b.buf, BIND);
	mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	memset(a.buf, 1, LEN);
	memset(b.buf, 0, LEN);
	bind2(0, 64, ALL);
	reach_off(IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_SUCCESS);
	assert_memory_equal(b.buf, a.buf, 64);
	assert_int_equal(post_inv(a.qp, IBV_WR_SEND_WITH_INV, mw->rkey),
			 EINVAL);
	local_inv(IBV_WC_SUCCESS);
	memset(b.buf, 0, 64);
	reach_off(IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_SUCCESS);
	assert_int_equal(b.buf[0], 0);
	local_inv(IBV_WC_MW_BIND_ERR);
	assert_int_equal(state_of(&b), IBV_QPS_SQE);
	end();
}

static struct shm_mr *entry_of_mw(void)
{
	return &soft_of_dev(b.dev)->mr_table[mw->rkey >> 16];
}

static struct shm_mr *entry_of_mr(void)
{
	return &soft_of_dev(b.dev)->mr_table[mr->lkey >> 16];
}

/* A bound window shows no memory of a region that is over, or another one: had
 * it come to that. */
static void test_dead_region(void **state)
{
	uint32_t life;

	begin(IBV_MW_TYPE_2);
	bind2(0, LEN, ALL);
	life = atomic_exchange(&entry_of_mr()->life, 0);
	reach_off(IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(b.buf[0], 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	mw = NULL;
	atomic_store(&entry_of_mr()->life, life);
	end();
}

/* --- those who are inside ------------------------------------------------ */

static void nap(unsigned ms)
{
	struct timespec t = {.tv_nsec = (long)ms * 1000000};

	nanosleep(&t, NULL);
}

/* a is inside, as far as its hazard says: LOCAL_INV waits for it, and posting
 * does not. */
static void test_inside(void **state)
{
	struct ibv_wc wc;
	int n;

	begin(IBV_MW_TYPE_2);
	bind2(0, LEN, ALL);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, mw->rkey), 0);
	nap(50);
	assert_true(rig_quiet(&b));
	soft_hazard_off(soft_qp_of(a.qp));
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	/* Whenever the owner looks, it is inside, of another region perhaps:
	 * that is no matter. */
	bind2(0, LEN, ALL);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, mw->rkey), 0);
	do {
		soft_hazard_off(soft_qp_of(a.qp));
		soft_hazard_on(soft_qp_of(a.qp));
		nap(5);
		n = ibv_poll_cq(b.cq, 1, &wc);
	} while (!n);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	soft_hazard_off(soft_qp_of(a.qp));
	end();
}

/* Without membarrier(2) a peer may be inside that does not show yet: the owner
 * waits until it would. */
static void test_fence(void **state)
{
	uint64_t from;

	begin(IBV_MW_TYPE_2);
	bind2(0, LEN, ALL);
	from = rig_now_ns();
	local_inv(IBV_WC_SUCCESS);
	if (MW_FEW)
		assert_true(rig_now_ns() - from >= MEMBARRIER_WAIT_NS);
	end();
}

/* Anybody may be inside a window of type 1: here the peer of another QP than the
 * one that binds. */
static void test_inside_1(void **state)
{
	struct dev_qp_addr self;
	struct ibv_qp *other;

	begin(IBV_MW_TYPE_1);
	bind1(0, LEN, ALL);
	other = rig_qp(&b);
	rig_qp_addr(&b, other, &self);
	rig_connect_qp(&b, other, &self);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(post_bind1(other, 0, 0, 0), 0);
	nap(50);
	assert_true(rig_quiet(&b));
	soft_hazard_off(soft_qp_of(a.qp));
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, other), 0);
	end();
}

/* Or a sender of a DC target. */
static void test_inside_dc(void **state)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq;
	struct ibv_qp *dct;
	struct dc_inside *in;

	begin(IBV_MW_TYPE_1);
	assert_int_equal(b.dev->ops->create_srq(b.dev, b.pd, &sa, &srq), 0);
	assert_int_equal(b.dev->ops->create_dct(b.dev, b.pd, b.cq, srq, 1,
						RIG_ACCESS, NULL, &dct),
			 0);
	bind1(0, LEN, ALL);
	in = &soft_of_dev(b.dev)->inside[DC_INSIDE_MAX - 1];
	atomic_store(&in->hazard, 1);
	assert_int_equal(post_bind1(b.qp, 0, 0, 0), 0);
	nap(50);
	assert_true(rig_quiet(&b));
	atomic_store(&in->hazard, 3);
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	atomic_store(&in->hazard, 4);
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, dct), 0);
	assert_int_equal(b.dev->ops->destroy_srq(b.dev, srq), 0);
	end();
}

static int reset(struct rig_end *e)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	return e->dev->ops->modify_qp(e->dev, e->qp, &attr, IBV_QP_STATE);
}

static void again(struct rig_end *e)
{
	assert_int_equal(reset(e), 0);
	assert_int_equal(dev_qp_init(e->dev, e->qp, RIG_ACCESS), 0);
}

/* What waited is forgotten at RESET, though another request then has its place
 * in the queue. */
static void test_reset(void **state)
{
	struct rig_addr to_a, to_b;

	begin(IBV_MW_TYPE_2);
	bind2(0, LEN, ALL);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, mw->rkey), 0);
	assert_int_equal(reset(&b), -EBUSY); /* it waits as well */
	soft_hazard_off(soft_qp_of(a.qp));
	again(&b);
	again(&a);
	rig_addr(&a, &to_a);
	rig_addr(&b, &to_b);
	rig_connect(&a, &to_b);
	rig_connect(&b, &to_a);
	bind2(0, LEN, ALL);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, mw->rkey), 0);
	nap(50);
	assert_true(rig_quiet(&b));
	soft_hazard_off(soft_qp_of(a.qp));
	rig_expect(&b, 7, IBV_WC_SUCCESS);
	end();
}

/* a leaves. It is written where b looks: to the thread sanitizer two mappings are
 * two memories, with no order between them. */
static void leave(void)
{
	struct soft_qp *q = soft_qp_of(a.qp);

	/* release: as soft_hazard_off() */
	atomic_store_explicit(&soft_qp_of(b.qp)->far->hazard, ++q->hazard,
			      memory_order_release);
}

static void *dereg_main(void *arg)
{
	*(int *)arg = b.dev->ops->dereg_mr(b.dev, mr);
	return NULL;
}

/* A bind in another thread than dereg_mr(), which waits for a: the region is
 * over for it. */
static void test_dereg(void **state)
{
	pthread_t t;
	int err = 1;

	begin(IBV_MW_TYPE_1);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(pthread_create(&t, NULL, dereg_main, &err), 0);
	while (atomic_load(&entry_of_mr()->life))
		nap(1);
	assert_int_equal(post_bind1(b.qp, 0, LEN, ALL), 0);
	rig_expect(&b, 7, IBV_WC_MW_BIND_ERR);
	leave();
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(err, 0);
	mr = reg(&b, b.pd, LEN, (uintptr_t)b.buf, BIND);
	end();
}

static void *dealloc_main(void *arg)
{
	*(int *)arg = ibv_dealloc_mw(mw);
	return NULL;
}

/* Nor does one find a window that is being deallocated. */
static void test_dealloc(void **state)
{
	pthread_t t;
	int err = 1;

	begin(IBV_MW_TYPE_1);
	bind1(0, LEN, ALL);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(pthread_create(&t, NULL, dealloc_main, &err), 0);
	while (atomic_load(&entry_of_mw()->life))
		nap(1);
	assert_int_equal(post_bind1(b.qp, 0, LEN, ALL), 0);
	rig_expect(&b, 7, IBV_WC_MW_BIND_ERR);
	leave();
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(err, 0);
	mw = NULL;
	end();
}

/* It never leaves: the request fails, and has ended the bind. */
static void test_stopped(void **state)
{
	begin(IBV_MW_TYPE_2);
	bind2(0, LEN, ALL);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, mw->rkey), 0);
	rig_expect(&b, 7, IBV_WC_MW_BIND_ERR);
	assert_true(in_err(&b));
	assert_int_equal(atomic_load(&entry_of_mw()->life), 0);
	soft_hazard_off(soft_qp_of(a.qp));
	end();
}

/* So has dealloc_mw(), and the window is there still. */
static void test_stopped_dealloc(void **state)
{
	begin(IBV_MW_TYPE_2);
	bind2(0, LEN, ALL);
	soft_hazard_on(soft_qp_of(a.qp));
	assert_int_equal(ibv_dealloc_mw(mw), EBUSY);
	soft_hazard_off(soft_qp_of(a.qp));
	assert_int_equal(atomic_load(&entry_of_mw()->life), 0);
	bind2(0, LEN, ALL);
	reach_off(IBV_WR_RDMA_WRITE, 0, LEN, IBV_WC_SUCCESS);
	end();
}

/* A bind that is flushed before it begins has moved the rkey on, and the one
 * before is there. */
static void test_flushed(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	uint32_t was;

	begin(IBV_MW_TYPE_1);
	bind1(0, LEN, ALL);
	was = mw->rkey;
	assert_int_equal(
		b.dev->ops->modify_qp(b.dev, b.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(post_bind1(b.qp, 0, 64, ALL), 0);
	rig_expect(&b, 7, IBV_WC_WR_FLUSH_ERR);
	assert_int_not_equal(mw->rkey, was);
	assert_int_not_equal(atomic_load(&entry_of_mw()->life), 0);
	assert_int_equal(entry_of_mw()->key, was);
	end();
}

#define HAMMER (1u << 20)

struct hammer {
	uint64_t addr;
	uint32_t key, send; /* invalidates itself after so many WRITEs */
};

/* WRITEs through the window until one fails; then says how. */
static void hammer_main(int sock, void *arg)
{
	struct rig_opts *o = arg;
	struct rig_end e;
	struct rig_addr peer;
	struct hammer h;
	struct ibv_wc wc = {0};
	uint32_t n = 0;

	rig_meet(&e, sock, o, &peer);
	rig_get(sock, &h, sizeof(h));
	memset(e.buf, 0x11, HAMMER);
	while (!wc.status) {
		if (n++ == 3)
			rig_put(sock, "x", 1);
		if (h.send && n == h.send)
			assert_int_equal(
				post_inv(e.qp, IBV_WR_SEND_WITH_INV, h.key), 0);
		else
			assert_int_equal(rig_post(&e, IBV_WR_RDMA_WRITE, 7,
						  e.buf, HAMMER, h.addr, h.key,
						  IBV_SEND_SIGNALED),
					 0);
		rig_wait(&e, &wc);
	}
	rig_put(sock, &wc.status, sizeof(wc.status));
	rig_close(&e);
}

enum ended_by {
	BY_LOCAL_INV,
	BY_SEND,
	BY_UNBIND,
	BY_OTHER,
	BY_DEALLOC,
	BYS
};

/* The owner ends the window, and the memory is its own again: it writes there at
 * once what must stay. */
static void hammered(enum ended_by by, const struct rig_opts *o)
{
	enum ibv_mw_type type = by == BY_UNBIND || by == BY_OTHER
					? IBV_MW_TYPE_1
					: IBV_MW_TYPE_2;
	struct rig_opts opts = *o;
	struct dev_qp_addr self;
	struct hammer h = {0};
	struct ibv_wc wc;
	enum ibv_wc_status status;
	struct ibv_qp *other;
	struct rig_child c;
	struct rig_addr peer;
	char go;

	rig_fork(&c, hammer_main, &opts);
	rig_meet(&b, c.sock, &opts, &peer);
	other = rig_qp(&b);
	rig_qp_addr(&b, other, &self);
	rig_connect_qp(&b, other, &self);
	mr = reg(&b, b.pd, HAMMER, (uintptr_t)b.buf, BIND);
	mw = ibv_alloc_mw(b.pd, type);
	if (type == IBV_MW_TYPE_1)
		bind1(0, HAMMER, ALL);
	else
		bind2(0, HAMMER, ALL);
	h.addr = (uintptr_t)b.buf;
	h.key = mw->rkey;
	h.send = by == BY_SEND ? 8 : 0;
	if (by == BY_SEND)
		assert_int_equal(rig_recv(&b, 7, b.buf + HAMMER, 8), 0);
	rig_put(c.sock, &h, sizeof(h));
	rig_get(c.sock, &go, 1);
	if (by == BY_LOCAL_INV)
		assert_int_equal(post_inv(b.qp, IBV_WR_LOCAL_INV, mw->rkey), 0);
	else if (by == BY_UNBIND)
		assert_int_equal(post_bind1(b.qp, 0, 0, 0), 0);
	else if (by == BY_OTHER)
		assert_int_equal(post_bind1(other, 0, 0, 0), 0);
	if (by == BY_DEALLOC) {
		assert_int_equal(ibv_dealloc_mw(mw), 0);
	} else {
		rig_wait(&b, &wc);
		/* The hammer meets the end, and breaks the QP. Where no fence
		 * is to be had, that may come first, and tells that it has
		 * left. */
		if (by != BY_UNBIND || wc.status != IBV_WC_WR_FLUSH_ERR)
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	memset(b.buf, 0xee, HAMMER);
	rig_get(c.sock, &status, sizeof(status));
	assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 0; i < HAMMER; i++)
		if ((unsigned char)b.buf[i] != 0xee)
			fail_msg("byte %u was written behind the end of the "
				 "window (%d)",
				 i, (int)by);
	assert_int_equal(rig_join(&c), 0);
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, other), 0);
	if (by != BY_DEALLOC)
		assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, mr), 0);
	rig_close(&b);
}

static void test_hammer(void **state)
{
	struct rig_opts o = {.plain = how && !strcmp(how, "plain")};

	for (int i = 0; i < ROUNDS; i++)
		for (int by = 0; by < BYS; by++)
			hammered((enum ended_by)by, &o);
}

#define INSIDE                                                              \
	EACH(test_fence, NULL), EACH(test_inside, NULL),                    \
		EACH(test_inside_1, NULL), EACH(test_inside_dc, NULL),      \
		EACH(test_dereg, NULL), EACH(test_dealloc, NULL),           \
		EACH(test_stopped, NULL), EACH(test_stopped_dealloc, NULL), \
		EACH(test_flushed, NULL), EACH(test_reset, NULL),           \
		EACH(test_hammer, NULL)
#define EACH(f, m) cmocka_unit_test_prestate_setup_teardown(f, up, NULL, m)
#define MODE(m)                                                              \
	EACH(test_type2, m), EACH(test_type1, m), EACH(test_zero_based, m),  \
		EACH(test_send_with_inv, m), EACH(test_order, m),            \
		EACH(test_order_inv, m), EACH(test_busy, m),                 \
		EACH(test_extended, m), EACH(test_bad_binds, m),             \
		EACH(test_read_only, m), EACH(test_bad_local_inv, m),        \
		EACH(test_bad_send_with_inv, m), EACH(test_bad_accesses, m), \
		EACH(test_not_local, m), EACH(test_refused, m),              \
		EACH(test_dead_region, m)

int main(void)
{
	const struct CMUnitTest few[] = {
		EACH(test_type2, NULL),
		EACH(test_type1, NULL),
		EACH(test_send_with_inv, NULL),
		INSIDE,
	};
	const struct CMUnitTest all[] = {
		MODE(NULL),
		EACH(test_uc, NULL),
		INSIDE,
		MODE("plain"),
		EACH(test_hammer, "plain"),
		MODE("harsh"),
		MODE("tcp"),
		MODE("udp"),
	};

	if (MW_FEW)
		return cmocka_run_group_tests(few, NULL, NULL);
	return cmocka_run_group_tests(all, NULL, NULL);
}
