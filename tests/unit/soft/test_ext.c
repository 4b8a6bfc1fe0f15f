/* SPDX-License-Identifier: MIT */
/*
 * Extended verbs: ibv_wr_*, start_poll and friends, query_device_ex, and
 * resize_cq.
 */
#include "rig.h"

#define OPS                                                                  \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND |                   \
	 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_IMM | \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |      \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static struct rig_end a, b;
static struct ibv_qp_ex *x;
static struct ibv_cq_ex *cqx;

static struct verbs_context *vctx(struct rig_end *e)
{
	return verbs_get_ctx(e->dev->verbs);
}

static struct ibv_qp_init_attr_ex attr_ex(struct rig_end *e,
					  enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex at = {
		.send_cq = (struct ibv_cq *)(void *)cqx,
		.recv_cq = (struct ibv_cq *)(void *)cqx,
		.qp_type = type,
		.cap = {8, 8, 3, 3, 64},
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = e->pd,
		.send_ops_flags = ops,
	};

	return at;
}

static struct ibv_poll_cq_attr none;

static bool there(void *arg)
{
	return ibv_start_poll(cqx, &none) == 0;
}

/* a's QP is an extended one on an extended CQ. */
static int up(void **state)
{
	struct ibv_cq_init_attr_ex cq = {.cqe = 64,
					 .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_qp_init_attr_ex at;
	struct rig_addr aa, ba;

	rig_open(&a, NULL);
	rig_open(&b, NULL);
	cqx = vctx(&a)->create_cq_ex(a.dev->verbs, &cq);
	assert_non_null(cqx);
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, a.qp), 0);
	at = attr_ex(&a, IBV_QPT_RC, OPS);
	a.qp = vctx(&a)->create_qp_ex(a.dev->verbs, &at);
	assert_non_null(a.qp);
	x = (struct ibv_qp_ex *)(void *)a.qp;
	assert_int_equal(dev_qp_init(a.dev, a.qp, RIG_ACCESS), 0);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	rig_connect(&a, &ba);
	rig_connect(&b, &aa);
	/* Memory is mapped at its first use, and that takes a while. */
	rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 8, (uintptr_t)b.buf,
		 b.mem->mr->rkey, IBV_SEND_SIGNALED);
	rig_until(there, NULL);
	ibv_end_poll(cqx);
	rig_post(&b, IBV_WR_RDMA_WRITE, 1, b.buf, 8, (uintptr_t)a.buf,
		 a.mem->mr->rkey, IBV_SEND_SIGNALED);
	rig_expect(&b, 1, IBV_WC_SUCCESS);
	return 0;
}

static int down(void **state)
{
	if (a.qp)
		assert_int_equal(a.dev->ops->destroy_qp(a.dev, a.qp), 0);
	a.qp = NULL;
	assert_int_equal(
		a.dev->ops->destroy_cq(a.dev, (struct ibv_cq *)(void *)cqx), 0);
	rig_unpair(&a, &b);
	return 0;
}

static void took(uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode op)
{
	rig_until(there, NULL);
	assert_int_equal(cqx->wr_id, id);
	assert_int_equal(cqx->status, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(ibv_wc_read_opcode(cqx), op);
	assert_int_equal(ibv_wc_read_qp_num(cqx), a.qp->qp_num);
	ibv_end_poll(cqx);
}

static void flags(uint64_t id)
{
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
}

static uint64_t far(size_t off)
{
	return (uintptr_t)b.buf + off;
}

static void test_one_of_each(void **state)
{
	uint32_t lkey = a.mem->mr->lkey, rkey = b.mem->mr->rkey;
	uint64_t *word = (uint64_t *)(void *)b.buf;
	struct ibv_wc wc;

	memset(a.buf, 'x', 64);
	word[0] = 40;
	assert_int_equal(rig_recv(&b, 1, b.buf + 1024, 64), 0);
	assert_int_equal(rig_recv(&b, 2, b.buf + 2048, 64), 0);
	assert_int_equal(rig_recv(&b, 3, b.buf + 2048, 64), 0);
	ibv_wr_start(x);
	flags(10);
	ibv_wr_send(x);
	ibv_wr_set_sge(x, lkey, (uintptr_t)a.buf, 16);
	flags(11);
	ibv_wr_send_imm(x, 77);
	ibv_wr_set_sge(x, lkey, (uintptr_t)a.buf, 16);
	flags(12);
	ibv_wr_rdma_write(x, rkey, far(4096));
	ibv_wr_set_sge(x, lkey, (uintptr_t)a.buf, 32);
	flags(13);
	ibv_wr_rdma_write_imm(x, rkey, far(8192), 78);
	ibv_wr_set_sge(x, lkey, (uintptr_t)a.buf, 8);
	flags(14);
	ibv_wr_rdma_read(x, rkey, far(4096));
	ibv_wr_set_sge(x, lkey, (uintptr_t)a.buf + 512, 32);
	flags(15);
	ibv_wr_atomic_fetch_add(x, rkey, far(0), 2);
	ibv_wr_set_sge(x, lkey, (uintptr_t)a.buf + 1024, 8);
	flags(16);
	ibv_wr_atomic_cmp_swp(x, rkey, far(0), 42, 9);
	ibv_wr_set_sge(x, lkey, (uintptr_t)a.buf + 1032, 8);
	/* not before wr_complete() */
	assert_int_equal(word[0], 40);
	assert_true(rig_quiet(&b));
	assert_int_equal(ibv_wr_complete(x), 0);
	took(10, IBV_WC_SUCCESS, IBV_WC_SEND);
	took(11, IBV_WC_SUCCESS, IBV_WC_SEND);
	took(12, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	took(13, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	took(14, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	took(15, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
	took(16, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
	assert_int_equal(ibv_start_poll(cqx, &none), ENOENT);
	rig_expect(&b, 1, IBV_WC_SUCCESS);
	rig_wait(&b, &wc);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.imm_data, 77);
	rig_wait(&b, &wc);
	assert_int_equal(wc.imm_data, 78);
	assert_int_equal(word[0], 9);
	assert_int_equal(*(uint64_t *)(void *)(a.buf + 1024), 40);
	assert_int_equal(*(uint64_t *)(void *)(a.buf + 1032), 42);
	assert_memory_equal(a.buf + 512, a.buf, 32);
	assert_memory_equal(b.buf + 1024, a.buf, 16);
}

/* Inline data is taken when it is set; lists of pieces and of buffers. */
static void test_data(void **state)
{
	char one[] = "one-", two[] = "two!";
	struct ibv_data_buf bufs[] = {{one, 4}, {two, 4}};
	struct ibv_sge sge[3];
	unsigned i;

	for (i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)a.buf + i * 100, 5,
					  a.mem->mr->lkey};
	memcpy(a.buf, "aaaaa", 5);
	memcpy(a.buf + 100, "bbbbb", 5);
	memcpy(a.buf + 200, "ccccc", 5);
	ibv_wr_start(x);
	flags(1);
	ibv_wr_rdma_write(x, b.mem->mr->rkey, far(0));
	ibv_wr_set_inline_data(x, one, 4);
	flags(2);
	ibv_wr_rdma_write(x, b.mem->mr->rkey, far(64));
	ibv_wr_set_inline_data_list(x, 2, bufs);
	flags(3);
	ibv_wr_rdma_write(x, b.mem->mr->rkey, far(128));
	ibv_wr_set_sge_list(x, 3, sge);
	memset(one, 0, 4);
	assert_int_equal(ibv_wr_complete(x), 0);
	took(1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	took(2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	took(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_memory_equal(b.buf, "one-", 4);
	assert_memory_equal(b.buf + 64, "one-two!", 8);
	assert_memory_equal(b.buf + 128, "aaaaabbbbbccccc", 15);
}

static void build(uint64_t id, char *src, uint32_t len)
{
	flags(id);
	ibv_wr_rdma_write(x, b.mem->mr->rkey, far(0));
	ibv_wr_set_sge(x, a.mem->mr->lkey, (uintptr_t)src, len);
}

/* A mistake anywhere: nothing is posted, and the QP goes on. */
static void test_all_or_none(void **state)
{
	struct ibv_sge sge[4] = {{0}};
	char big[128] = "";
	unsigned i;

	memset(a.buf, 1, 8);
	ibv_wr_start(x);
	build(1, a.buf, 8);
	flags(2);
	ibv_wr_rdma_write(x, b.mem->mr->rkey, far(0));
	ibv_wr_set_sge_list(x, 4, sge);
	assert_int_equal(ibv_wr_complete(x), EINVAL);
	ibv_wr_start(x);
	build(1, a.buf, 8);
	flags(2);
	ibv_wr_send(x);
	ibv_wr_set_inline_data(x, big, sizeof(big));
	assert_int_equal(ibv_wr_complete(x), EINVAL);
	ibv_wr_start(x);
	ibv_wr_set_sge(x, 0, 0, 0);
	assert_int_equal(ibv_wr_complete(x), EINVAL);
	ibv_wr_start(x);
	for (i = 0; i < 9; i++)
		build(i, a.buf, 8);
	assert_int_equal(ibv_wr_complete(x), ENOMEM);
	ibv_wr_start(x);
	build(1, a.buf, 8);
	ibv_wr_abort(x);
	assert_int_equal(b.buf[0], 0);
	assert_int_equal(ibv_start_poll(cqx, &none), ENOENT);
	ibv_wr_start(x);
	assert_int_equal(ibv_wr_complete(x), 0);
	for (i = 0; i < 20; i++) {
		ibv_wr_start(x);
		build(3, a.buf, 8);
		assert_int_equal(ibv_wr_complete(x), 0);
		took(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}
	assert_int_equal(b.buf[0], 1);
	/* eight places, one taken */
	ibv_wr_start(x);
	build(4, a.buf, 8);
	assert_int_equal(ibv_wr_complete(x), 0);
	ibv_wr_start(x);
	for (i = 0; i < 8; i++)
		build(i, a.buf, 8);
	assert_int_equal(ibv_wr_complete(x), ENOMEM);
	took(4, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(ibv_start_poll(cqx, &none), ENOENT);
}

static void refused(uint64_t ops, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex at = attr_ex(&a, type, ops);

	errno = 0;
	assert_null(vctx(&a)->create_qp_ex(a.dev->verbs, &at));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void test_refused(void **state)
{
	struct ibv_cq_init_attr_ex cq = {.cqe = 4};
	struct ibv_qp_init_attr_ex at = attr_ex(&a, IBV_QPT_RC, OPS);

	refused(IBV_QP_EX_WITH_TSO, IBV_QPT_RC);
	refused(IBV_QP_EX_WITH_BIND_MW, IBV_QPT_UD);
	refused(IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QPT_UC);
	refused(IBV_QP_EX_WITH_RDMA_READ, IBV_QPT_UC);
	refused(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QPT_UC);
	at.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	at.create_flags = 1;
	assert_null(vctx(&a)->create_qp_ex(a.dev->verbs, &at));
	assert_int_equal(errno, EOPNOTSUPP);
	at.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	assert_null(vctx(&a)->create_qp_ex(a.dev->verbs, &at));
	assert_int_equal(errno, EINVAL);
	cq.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	assert_null(vctx(&a)->create_cq_ex(a.dev->verbs, &cq));
	assert_int_equal(errno, EOPNOTSUPP);
	cq.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	assert_null(vctx(&a)->create_cq_ex(a.dev->verbs, &cq));
	cq.wc_flags = 0;
	cq.comp_vector = 1;
	assert_null(vctx(&a)->create_cq_ex(a.dev->verbs, &cq));
	assert_int_equal(errno, EINVAL);
}

/* Only what was asked for. */
static void test_table(void **state)
{
	struct ibv_qp_init_attr_ex at =
		attr_ex(&a, IBV_QPT_UC, IBV_QP_EX_WITH_SEND);
	struct ibv_qp *qp = vctx(&a)->create_qp_ex(a.dev->verbs, &at);
	struct ibv_qp_ex *e = (struct ibv_qp_ex *)(void *)qp;

	assert_non_null(qp);
	assert_non_null(e->wr_send);
	assert_null(e->wr_send_imm);
	assert_null(e->wr_rdma_write);
	assert_null(e->wr_set_ud_addr);
	assert_null(cqx->read_completion_ts);
	/* not in RTS */
	ibv_wr_start(e);
	e->wr_id = 1;
	ibv_wr_send(e);
	ibv_wr_set_sge(e, a.mem->mr->lkey, (uintptr_t)a.buf, 8);
	assert_int_equal(ibv_wr_complete(e), EINVAL);
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, qp), 0);
}

/* Several in one go, with posts between; receives and their fields. */
static void test_poll(void **state)
{
	struct ibv_poll_cq_attr bad = {.comp_mask = 1};
	unsigned i, sends = 0, recvs = 0;

	assert_int_equal(ibv_start_poll(cqx, &bad), EINVAL);
	assert_int_equal(ibv_start_poll(cqx, &none), ENOENT);
	for (i = 0; i < 3; i++)
		assert_int_equal(rig_recv(&a, i, a.buf, 64), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(rig_post(&b, IBV_WR_SEND_WITH_IMM, 9, b.buf,
					  10 + i, 0, 0, IBV_SEND_SIGNALED),
				 0);
	assert_int_equal(ibv_start_poll(cqx, &none), 0);
	for (;;) {
		if (cqx->wr_id >= 20) {
			assert_int_equal(cqx->wr_id, 20 + sends++);
			assert_int_equal(ibv_wc_read_opcode(cqx),
					 IBV_WC_RDMA_WRITE);
		} else {
			assert_int_equal(cqx->wr_id, recvs);
			assert_int_equal(ibv_wc_read_opcode(cqx), IBV_WC_RECV);
			assert_int_equal(ibv_wc_read_byte_len(cqx),
					 10 + recvs++);
			assert_int_equal(ibv_wc_read_wc_flags(cqx),
					 IBV_WC_WITH_IMM);
			assert_int_equal(ibv_wc_read_imm_data(cqx), 0x01020304);
			assert_int_equal(ibv_wc_read_vendor_err(cqx), 0);
			ibv_wr_start(x);
			build(19 + recvs, a.buf, 8);
			assert_int_equal(ibv_wr_complete(x), 0);
		}
		if (sends == 3)
			break;
		assert_int_equal(ibv_next_poll(cqx), 0);
	}
	assert_int_equal(recvs, 3);
	assert_int_equal(ibv_next_poll(cqx), ENOENT);
	ibv_end_poll(cqx);
}

static void test_query(void **state)
{
	struct ibv_device_attr_ex ex;
	struct ibv_port_attr port;
	char small[sizeof(struct ibv_device_attr)];

	assert_int_equal(vctx(&a)->query_device_ex(a.dev->verbs, NULL, &ex,
						   sizeof(ex)),
			 0);
	assert_int_equal(ex.orig_attr.phys_port_cnt, 1);
	assert_int_equal(ex.phys_port_cnt_ex, 1);
	assert_int_equal(ex.completion_timestamp_mask, 0);
	/* what is refused is not claimed, what is there is */
	assert_false(ex.orig_attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	assert_true(ex.orig_attr.device_cap_flags & IBV_DEVICE_RC_RNR_NAK_GEN);
	assert_int_equal(ex.device_cap_flags_ex, ex.orig_attr.device_cap_flags);
	assert_true(ex.orig_attr.max_mw > 0);
	assert_true(ex.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	assert_true(ex.orig_attr.device_cap_flags &
		    IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	assert_false(ex.orig_attr.device_cap_flags &
		     (IBV_DEVICE_MEM_WINDOW_TYPE_2A |
		      IBV_DEVICE_MEM_MGT_EXTENSIONS));
	assert_true(ex.orig_attr.max_srq > 0 && ex.orig_attr.max_srq_wr > 0 &&
		    ex.orig_attr.max_srq_sge > 0 && ex.orig_attr.max_ah > 0);
	assert_true(ex.orig_attr.max_qp >= 10000);
	assert_int_equal(vctx(&a)->query_device_ex(a.dev->verbs, NULL,
						   (void *)small,
						   sizeof(small)),
			 0);
	assert_int_equal(vctx(&a)->query_device_ex(a.dev->verbs, NULL,
						   (void *)small, 8),
			 EINVAL);
	assert_int_equal(
		vctx(&a)->query_port(a.dev->verbs, 1, &port, sizeof(port)), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.gid_tbl_len, a.dev->port_attr.gid_tbl_len);
	assert_int_equal(vctx(&a)->query_port(a.dev->verbs, 2, &port,
					      sizeof(port)),
			 EINVAL);
}

static void write_n(unsigned from, unsigned n)
{
	while (n--)
		assert_int_equal(rig_post(&b, IBV_WR_SEND, from++, b.buf, 8, 0,
					  0, IBV_SEND_SIGNALED),
				 0);
}

/* What is in the CQ stays, in order; what does not fit refuses. */
static void test_resize(void **state)
{
	struct ibv_wc wc;
	unsigned i;

	for (i = 0; i < 8; i++)
		assert_int_equal(rig_recv(&a, i, a.buf, 8), 0);
	write_n(0, 5);
	assert_int_equal(b.dev->ops->resize_cq(b.dev, b.cq, 4), -EINVAL);
	assert_int_equal(b.dev->ops->resize_cq(b.dev, b.cq, 0), -EINVAL);
	assert_int_equal(b.dev->ops->resize_cq(b.dev, b.cq, 5), 0);
	assert_true(b.cq->cqe >= 5 && b.cq->cqe <= 8);
	assert_int_equal(b.dev->ops->resize_cq(b.dev, b.cq, 1000), 0);
	assert_true(b.cq->cqe >= 1000);
	write_n(5, 3);
	for (i = 0; i < 8; i++)
		rig_expect(&b, i, IBV_WC_SUCCESS);
	/* receives wait in their slots: they count */
	assert_int_equal(a.dev->ops->resize_cq(a.dev, a.qp->recv_cq, 4),
			 -EINVAL);
	assert_int_equal(a.dev->ops->resize_cq(a.dev, a.qp->recv_cq, 8), 0);
	for (i = 0; i < 8; i++) {
		assert_int_equal(ibv_poll_cq(a.qp->recv_cq, 1, &wc), 1);
		assert_int_equal(wc.wr_id, i);
	}
}

/* A CQ that was made too small overflows as one that was born so. */
static void test_resize_overflow(void **state)
{
	struct ibv_wc wc;

	assert_int_equal(b.dev->ops->resize_cq(b.dev, b.cq, 4), 0);
	memset(b.buf, 0, 8);
	for (int i = 0; i < 5; i++)
		assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 1, b.buf, 8,
					  (uintptr_t)a.buf, a.mem->mr->rkey,
					  IBV_SEND_SIGNALED),
				 0);
	assert_true(ibv_poll_cq(b.cq, 1, &wc) < 0);
	rig_async(&b, IBV_EVENT_CQ_ERR);
	rig_async(&b, IBV_EVENT_QP_FATAL);
	assert_int_equal(b.dev->ops->resize_cq(b.dev, b.cq, 100), -EINVAL);
}

static void post_write(struct ibv_qp *qp, uint32_t lkey)
{
	struct ibv_sge g = {(uintptr_t)a.buf, 8, lkey};
	struct ibv_send_wr wr = {.wr_id = 77,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)b.buf,
					     b.mem->mr->rkey}},
			   *bad;

	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
}

/* A parent domain: what is made with it works with what its pd has. */
static void test_parent(void **state)
{
	const struct dev_ops *ops = a.dev->ops;
	struct ibv_td_init_attr none_of_it = {0};
	struct ibv_parent_domain_init_attr at = {.pd = a.pd};
	struct ibv_qp_init_attr qa = {.send_cq = a.cq,
				      .recv_cq = a.cq,
				      .qp_type = IBV_QPT_RC,
				      .cap = {8, 8, 1, 1, 0}};
	struct dev_qp_addr to_a, to_b;
	struct ibv_pd *parent;
	struct ibv_mr *mr;
	struct ibv_qp *qp, *far = rig_qp(&b);

	at.td = vctx(&a)->alloc_td(a.dev->verbs, &none_of_it);
	assert_non_null(at.td);
	at.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	assert_null(vctx(&a)->alloc_parent_domain(a.dev->verbs, &at));
	assert_int_equal(errno, EOPNOTSUPP);
	at.comp_mask = 0;
	parent = vctx(&a)->alloc_parent_domain(a.dev->verbs, &at);
	assert_non_null(parent);
	assert_int_equal(vctx(&a)->dealloc_td(at.td), EBUSY);
	assert_int_equal(ops->create_qp(a.dev, parent, &qa, 0, &qp), 0);
	assert_ptr_equal(qp->pd, parent);
	assert_int_equal(ops->reg_mr(a.dev, parent, a.buf, 64, RIG_ACCESS, -1,
				     0, &mr),
			 0);
	assert_int_equal(ops->dealloc_pd(a.dev, parent), -EBUSY);
	/* With its QP, a region of the pd; with the pd's QP, one of its. */
	assert_int_equal(dev_qp_init(a.dev, qp, RIG_ACCESS), 0);
	rig_qp_addr(&a, qp, &to_a);
	rig_qp_addr(&b, far, &to_b);
	rig_connect_qp(&a, qp, &to_b);
	rig_connect_qp(&b, far, &to_a);
	post_write(qp, a.lkey);
	rig_expect(&a, 77, IBV_WC_SUCCESS);
	post_write(qp, mr->lkey);
	rig_expect(&a, 77, IBV_WC_SUCCESS);
	assert_int_equal(ops->dereg_mr(a.dev, mr), 0);
	assert_int_equal(ops->destroy_qp(a.dev, qp), 0);
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, far), 0);
	assert_int_equal(ops->dealloc_pd(a.dev, parent), 0);
	assert_int_equal(vctx(&a)->dealloc_td(at.td), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_one_of_each), T(test_data),   T(test_all_or_none),
		T(test_refused),     T(test_table),  T(test_poll),
		T(test_query),	     T(test_resize), T(test_resize_overflow),
		T(test_parent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
