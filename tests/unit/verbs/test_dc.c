/* SPDX-License-Identifier: MIT */
/*
 * test_dc.c - DC over a mock of exactly the calls that dc.c makes of libmlx5,
 * and of what it makes of libibverbs on the way: which, in which order, with
 * which arguments. It proves the logic, not the hardware.
 */
#include "dev/verbs/verbs.h"
#include "env/env.h"
#include "fake_lib.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct skein_env *env;

/* --- the mock ---------------------------------------------------------- */

static struct mock {
	bool absent, unsupported, no_dct;
	const char *lacks; /* a symbol */
	int fail_modify;   /* the n-th; 0: none */
	int handles, qps, modifies;
	struct ibv_qp_attr attr[4];
	int mask[4];
	struct ibv_qp_init_attr_ex ex;
	struct mlx5dv_qp_init_attr dv;
	int complete_rc;
	char trace[512];
} m;

struct mock_qp {
	struct ibv_qp_ex ex; /* first */
	struct mlx5dv_qp_ex dv;
	enum mlx5dv_dc_type type;
};

static void note(const char *fmt, ...)
{
	size_t n = strlen(m.trace);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m.trace + n, sizeof(m.trace) - n, fmt, ap);
	va_end(ap);
}

static void wr_start(struct ibv_qp_ex *q)
{
	note("start ");
}

static int wr_complete(struct ibv_qp_ex *q)
{
	note("complete");
	return m.complete_rc;
}

static void head(struct ibv_qp_ex *q, const char *name)
{
	note("%s id=%d flags=%x ", name, (int)q->wr_id, q->wr_flags);
}

static void wr_send(struct ibv_qp_ex *q)
{
	head(q, "send");
}

static void wr_send_imm(struct ibv_qp_ex *q, __be32 imm)
{
	head(q, "send_imm");
	note("imm=%x ", imm);
}

static void wr_write(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr)
{
	head(q, "write");
	note("rkey=%x addr=%x ", rkey, (int)addr);
}

static void wr_write_imm(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr,
			 __be32 imm)
{
	head(q, "write_imm");
	note("rkey=%x addr=%x imm=%x ", rkey, (int)addr, imm);
}

static void wr_read(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr)
{
	head(q, "read");
	note("rkey=%x addr=%x ", rkey, (int)addr);
}

static void wr_cas(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr,
		   uint64_t compare, uint64_t swap)
{
	head(q, "cas");
	note("rkey=%x addr=%x %d->%d ", rkey, (int)addr, (int)compare,
	     (int)swap);
}

static void wr_faa(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr,
		   uint64_t add)
{
	head(q, "faa");
	note("rkey=%x addr=%x +%d ", rkey, (int)addr, (int)add);
}

static void set_sge_list(struct ibv_qp_ex *q, size_t n,
			 const struct ibv_sge *list)
{
	note("sge[%d]", (int)n);
	for (size_t i = 0; i < n; i++)
		note(" %x+%u:%x", (int)list[i].addr, list[i].length,
		     list[i].lkey);
	note(" ");
}

static void set_inline(struct ibv_qp_ex *q, size_t n,
		       const struct ibv_data_buf *list)
{
	note("inline");
	for (size_t i = 0; i < n; i++)
		note(" %.*s", (int)list[i].length, (char *)list[i].addr);
	note(" ");
}

static void set_dc_addr(struct mlx5dv_qp_ex *q, struct ibv_ah *ah,
			uint32_t dctn, uint64_t key)
{
	note("dc ah=%d dctn=%x key=%llx ", (int)ah->handle, dctn,
	     (unsigned long long)key);
}

static bool is_supported(struct ibv_device *device)
{
	return !m.unsupported;
}

static struct ibv_qp *create_qp(struct ibv_context *ctx,
				struct ibv_qp_init_attr_ex *ex,
				struct mlx5dv_qp_init_attr *dv)
{
	struct mock_qp *q;

	if (m.no_dct && dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	m.ex = *ex;
	m.dv = *dv;
	q = calloc(1, sizeof(*q));
	m.qps++;
	fake.objects++;
	ex->cap.max_send_wr += 3;
	q->type = dv->dc_init_attr.dc_type;
	q->ex.wr_start = wr_start;
	q->ex.wr_complete = wr_complete;
	q->ex.wr_send = wr_send;
	q->ex.wr_send_imm = wr_send_imm;
	q->ex.wr_rdma_write = wr_write;
	q->ex.wr_rdma_write_imm = wr_write_imm;
	q->ex.wr_rdma_read = wr_read;
	q->ex.wr_atomic_cmp_swp = wr_cas;
	q->ex.wr_atomic_fetch_add = wr_faa;
	q->ex.wr_set_sge_list = set_sge_list;
	q->ex.wr_set_inline_data_list = set_inline;
	q->dv.wr_set_dc_addr = set_dc_addr;
	return &q->ex.qp_base;
}

static struct ibv_qp_ex *qp_to_qp_ex(struct ibv_qp *qp)
{
	return (struct ibv_qp_ex *)(void *)qp;
}

static struct mlx5dv_qp_ex *from_qp_ex(struct ibv_qp_ex *qp)
{
	return &((struct mock_qp *)(void *)qp)->dv;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	m.attr[m.modifies] = *attr;
	m.mask[m.modifies] = mask;
	m.modifies++;
	/* mlx5 gives a DCT its number there. */
	if (((struct mock_qp *)(void *)qp)->type == MLX5DV_DCTYPE_DCT &&
	    attr->qp_state == IBV_QPS_RTR)
		qp->qp_num = 0x1234;
	return m.modifies == m.fail_modify ? EIO : 0;
}

static void *mock_open(const char *soname, char *why, size_t why_len)
{
	if (strcmp(soname, "libmlx5.so.1"))
		return fake_loader.open(soname, why, why_len);
	if (m.absent)
		return NULL;
	m.handles++;
	return &m;
}

static void mock_close(void *handle)
{
	if (handle == &m)
		m.handles--;
	else
		fake_loader.close(handle);
}

static void *mock_sym(void *handle, const char *name, const char *version)
{
	static const struct {
		const char *name, *version;
		void (*fn)(void);
		bool mlx5;
	} table[] = {
		{"mlx5dv_is_supported", "MLX5_1.8",
		 (void (*)(void))is_supported, true},
		{"mlx5dv_create_qp", "MLX5_1.3", (void (*)(void))create_qp,
		 true},
		{"mlx5dv_qp_ex_from_ibv_qp_ex", "MLX5_1.10",
		 (void (*)(void))from_qp_ex, true},
		{"ibv_qp_to_qp_ex", "IBVERBS_1.6", (void (*)(void))qp_to_qp_ex,
		 false},
		{"ibv_modify_qp", "IBVERBS_1.1", (void (*)(void))modify_qp,
		 false},
	};
	void *p;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (strcmp(table[i].name, name))
			continue;
		assert_string_equal(table[i].version, version);
		assert_int_equal(handle == &m, table[i].mlx5);
		if (m.lacks && !strcmp(m.lacks, name))
			return NULL;
		memcpy(&p, &table[i].fn, sizeof(p));
		return p;
	}
	assert_false(handle == &m);
	return fake_loader.sym(handle, name, version);
}

static const struct verbs_loader mock = {mock_open, mock_sym, mock_close};

/* --- tests ------------------------------------------------------------- */

static int setup(void **state)
{
	assert_int_equal(env_real_new(&env), 0);
	fake_reset();
	memset(&m, 0, sizeof(m));
	fake_add("mlx5_0")->srq_wr = 100;
	return 0;
}

static int teardown(void **state)
{
	env_real_free(env);
	assert_int_equal(fake.objects, 0);
	assert_int_equal(m.handles, 0);
	return 0;
}

static struct dev *opens(void)
{
	struct dev *dev = NULL;
	char err[256];

	if (verbs_open_from(&mock, env, "", -1, err, sizeof(err), &dev))
		fail_msg("%s", err);
	return dev;
}

static void has_no_dc(void)
{
	struct dev *dev = opens();

	assert_false(dev->caps.dc);
	assert_null(dev->ops->create_dci);
	assert_null(dev->ops->create_dct);
	assert_null(dev->ops->post_dc);
	assert_int_equal(m.handles, 0);
	dev_close(dev);
}

/* Each thing that may be missing: the device is opened all the same. */
static void test_absent(void **state)
{
	static const char *const symbols[] = {"mlx5dv_is_supported",
					      "mlx5dv_create_qp",
					      "mlx5dv_qp_ex_from_ibv_qp_ex"};

	m.absent = true;
	has_no_dc();
	m.absent = false;
	for (size_t i = 0; i < 3; i++) {
		m.lacks = symbols[i];
		has_no_dc();
	}
	m.lacks = NULL;
	m.unsupported = true;
	has_no_dc();
	assert_int_equal(m.qps, 0);
	m.unsupported = false;
	m.no_dct = true;
	has_no_dc();
	m.no_dct = false;
	fake.devices[0].srq_wr = 0;
	has_no_dc();
}

static void test_dci(void **state)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 10,
						.max_send_sge = 2,
						.max_recv_wr = 5}};
	struct dev_qp_opts opts = {.mtu = IBV_MTU_512, .timeout = 17};
	struct dev *dev = opens();
	struct ibv_qp *qp = NULL;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	int n, was;

	assert_true(dev->caps.dc);
	assert_int_equal(m.handles, 1);
	assert_int_equal(m.qps, 2); /* the trial's */
	assert_int_equal(dev->ops->alloc_pd(dev, &pd), 0);
	assert_int_equal(dev->ops->create_cq(dev, 10, NULL, NULL, &cq), 0);
	attr.send_cq = attr.recv_cq = cq;
	assert_int_equal(dev->ops->create_dci(dev, pd, &attr, &opts, &qp), 0);
	assert_int_equal(attr.cap.max_send_wr, 13); /* what was given */
	assert_int_equal(m.ex.qp_type, IBV_QPT_DRIVER);
	assert_int_equal(m.ex.comp_mask,
			 IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
	assert_int_equal(m.ex.send_ops_flags, 0x7f);
	assert_ptr_equal(m.ex.pd, pd);
	assert_ptr_equal(m.ex.send_cq, cq);
	assert_int_equal(m.ex.cap.max_recv_wr, 0);
	assert_int_equal(m.dv.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_DC);
	assert_int_equal(m.dv.dc_init_attr.dc_type, MLX5DV_DCTYPE_DCI);
	/* as modify_dci_qp_is_ok() */
	assert_int_equal(m.modifies, 3);
	assert_int_equal(m.mask[0],
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	assert_int_equal(m.mask[1], IBV_QP_STATE | IBV_QP_PATH_MTU);
	assert_int_equal(m.mask[2],
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
				 IBV_QP_SQ_PSN);
	assert_int_equal(m.attr[0].qp_state, IBV_QPS_INIT);
	assert_int_equal(m.attr[0].port_num, 1);
	assert_int_equal(m.attr[1].qp_state, IBV_QPS_RTR);
	assert_int_equal(m.attr[1].path_mtu, IBV_MTU_512);
	assert_int_equal(m.attr[2].qp_state, IBV_QPS_RTS);
	assert_int_equal(m.attr[2].timeout, 17);
	assert_int_equal(m.attr[2].retry_cnt, 7);
	assert_int_equal(m.attr[2].max_rd_atomic, 8);
	assert_int_equal(dev->ops->destroy_qp(dev, qp), 0);
	/* Any step that fails leaves nothing. */
	for (n = 1; n <= 3; n++) {
		m.modifies = 0;
		m.fail_modify = n;
		was = fake.objects;
		qp = NULL;
		attr.cap.max_send_wr = 10;
		assert_int_equal(
			dev->ops->create_dci(dev, pd, &attr, NULL, &qp), -EIO);
		assert_null(qp);
		assert_int_equal(attr.cap.max_send_wr, 10);
		assert_int_equal(fake.objects, was);
	}
	assert_int_equal(dev->ops->destroy_cq(dev, cq), 0);
	assert_int_equal(dev->ops->dealloc_pd(dev, pd), 0);
	dev_close(dev);
}

static void test_dct(void **state)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct dev_qp_opts opts = {.sl = 4, .traffic_class = 104};
	struct dev *dev = opens();
	struct ibv_qp *qp = NULL;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct ibv_cq *cq;

	assert_int_equal(dev->ops->alloc_pd(dev, &pd), 0);
	assert_int_equal(dev->ops->create_cq(dev, 10, NULL, NULL, &cq), 0);
	assert_int_equal(dev->ops->create_srq(dev, pd, &sa, &srq), 0);
	assert_int_equal(
		dev->ops->create_dct(dev, pd, cq, srq, 0x1122334455667788,
				     IBV_ACCESS_REMOTE_READ, &opts, &qp),
		0);
	assert_int_equal(qp->qp_num, 0x1234);
	assert_int_equal(m.ex.comp_mask, IBV_QP_INIT_ATTR_PD);
	assert_int_equal(m.ex.qp_type, IBV_QPT_DRIVER);
	assert_ptr_equal(m.ex.srq, srq);
	assert_ptr_equal(m.ex.recv_cq, cq);
	assert_int_equal(m.dv.dc_init_attr.dc_type, MLX5DV_DCTYPE_DCT);
	assert_true(m.dv.dc_init_attr.dct_access_key == 0x1122334455667788);
	/* as mlx5_ib_modify_dct(), with RTR as the end state */
	assert_int_equal(m.modifies, 2);
	assert_int_equal(m.mask[0], IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	assert_int_equal(m.attr[0].qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(m.mask[1], IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER |
					    IBV_QP_AV | IBV_QP_PATH_MTU);
	assert_int_equal(m.attr[1].qp_state, IBV_QPS_RTR);
	assert_int_equal(m.attr[1].min_rnr_timer, 12);
	assert_int_equal(m.attr[1].path_mtu, IBV_MTU_1024);
	assert_int_equal(m.attr[1].ah_attr.is_global, 1);
	assert_int_equal(m.attr[1].ah_attr.sl, 4);
	assert_int_equal(m.attr[1].ah_attr.grh.sgid_index, 11);
	assert_int_equal(m.attr[1].ah_attr.grh.traffic_class, 104);
	assert_true(m.attr[1].ah_attr.grh.hop_limit > 1);
	assert_int_equal(dev->ops->destroy_qp(dev, qp), 0);
	m.modifies = 0;
	m.fail_modify = 2;
	qp = NULL;
	assert_int_equal(
		dev->ops->create_dct(dev, pd, cq, srq, 1, 0, NULL, &qp), -EIO);
	assert_null(qp);
	assert_int_equal(dev->ops->destroy_srq(dev, srq), 0);
	assert_int_equal(dev->ops->destroy_cq(dev, cq), 0);
	assert_int_equal(dev->ops->dealloc_pd(dev, pd), 0);
	dev_close(dev);
}

static void posts(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr *wr,
		  int rc, const char *trace)
{
	struct ibv_ah ah = {.handle = 9};

	m.trace[0] = '\0';
	assert_int_equal(dev->ops->post_dc(dev, qp, wr, &ah, 0xff00abcd,
					   0xfeedfacecafebeef),
			 rc);
	assert_string_equal(m.trace, trace);
}

#define DC "dc ah=9 dctn=abcd key=feedfacecafebeef "

/* Inline data, immediates, atomics, and a refusal of the device's. */
static void post_rest(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr wr)
{
	static char a[] = "ab", b[] = "cde";
	struct ibv_sge sge[2] = {{0}};

	wr.sg_list = sge;
	wr.opcode = IBV_WR_SEND;
	wr.num_sge = 2;
	wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED;
	sge[0].addr = (uintptr_t)a;
	sge[0].length = 2;
	sge[1].addr = (uintptr_t)b;
	sge[1].length = 3;
	posts(dev, qp, &wr, 0,
	      "start send id=5 flags=4 inline ab cde " DC "complete");
	wr.opcode = IBV_WR_RDMA_READ; /* inline data of a READ? */
	posts(dev, qp, &wr, -EINVAL, "");
	wr.send_flags = 0;
	wr.num_sge = 0;
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = 0x88;
	posts(dev, qp, &wr, 0,
	      "start send_imm id=5 flags=0 imm=88 sge[0] " DC "complete");
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.remote_addr = 0x40;
	wr.wr.atomic.rkey = 0x41;
	wr.wr.atomic.compare_add = 3;
	wr.wr.atomic.swap = 4;
	posts(dev, qp, &wr, 0,
	      "start cas id=5 flags=0 rkey=41 addr=40 3->4 "
	      "sge[0] " DC "complete");
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	posts(dev, qp, &wr, 0,
	      "start faa id=5 flags=0 rkey=41 addr=40 +3 "
	      "sge[0] " DC "complete");
	m.complete_rc = ENOMEM;
	posts(dev, qp, &wr, -ENOMEM,
	      "start faa id=5 flags=0 rkey=41 addr=40 "
	      "+3 sge[0] " DC "complete");
}

static void test_post(void **state)
{
	struct ibv_sge sge[2] = {{0x100, 8, 0x7}, {0x200, 9, 0x8}};
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 10}};
	struct ibv_send_wr wr = {.wr_id = 5, .sg_list = sge, .num_sge = 2},
			   next;
	struct dev *dev = opens();
	struct ibv_qp *qp;
	struct ibv_pd *pd;

	assert_int_equal(dev->ops->alloc_pd(dev, &pd), 0);
	assert_int_equal(dev->ops->create_dci(dev, pd, &attr, NULL, &qp), 0);
	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	wr.wr.rdma.rkey = 0x55;
	wr.wr.rdma.remote_addr = 0x66;
	posts(dev, qp, &wr, 0,
	      "start read id=5 flags=3 rkey=55 addr=66 sge[2] 100+8:7 200+9:8 " DC
	      "complete");
	/* A list: one start, one complete, the target with each. */
	next = wr;
	next.wr_id = 6;
	next.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	next.imm_data = 0x77;
	next.num_sge = 1;
	wr.next = &next;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.num_sge = 0;
	posts(dev, qp, &wr, 0,
	      "start write id=5 flags=3 rkey=55 addr=66 sge[0] " DC
	      "write_imm id=6 flags=3 rkey=55 addr=66 imm=77 sge[1] 100+8:7 " DC
	      "complete");
	/* One that cannot be posted: none is. */
	next.opcode = IBV_WR_BIND_MW;
	posts(dev, qp, &wr, -EINVAL, "");
	wr.next = NULL;
	post_rest(dev, qp, wr);
	assert_int_equal(dev->ops->destroy_qp(dev, qp), 0);
	assert_int_equal(dev->ops->dealloc_pd(dev, pd), 0);
	dev_close(dev);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_absent),
		T(test_dci),
		T(test_dct),
		T(test_post),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
