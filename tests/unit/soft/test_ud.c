/* SPDX-License-Identifier: MIT */
/*
 * Unreliable datagrams: what arrives, with which header and fields, and what is
 * dropped without a word.
 */
#include "ud_rig.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <stdio.h>

static struct ud_end a, b;

static int up(void **state)
{
	ud_open(&a, NULL);
	ud_open(&b, NULL);
	return 0;
}

static int down(void **state)
{
	ud_close(&a);
	ud_close(&b);
	return 0;
}

static void check_grh_v4(const unsigned char *grh, uint32_t payload,
			 const union ibv_gid *gid)
{
	static const unsigned char zero[20];
	const struct iphdr *ip = (const void *)(grh + 20);
	uint32_t sum = 0;
	uint16_t half;
	int i;

	assert_memory_equal(grh, zero, 20);
	assert_int_equal(ip->version, 4);
	assert_int_equal(ip->ihl, 5);
	assert_int_equal(ip->tos, 0x20);
	assert_int_equal(ip->ttl, 9);
	assert_int_equal(ip->protocol, 17);
	/* IP, UDP, BTH, DETH, padded payload, ICRC */
	assert_int_equal(ntohs(ip->tot_len),
			 20 + 8 + 12 + 8 + ((payload + 3) & ~3u) + 4);
	assert_memory_equal(&ip->saddr, gid->raw + 12, 4);
	assert_memory_equal(&ip->daddr, gid->raw + 12, 4);
	for (i = 0; i < 20; i += 2) {
		memcpy(&half, grh + 20 + i, 2);
		sum += half;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	assert_int_equal(sum, 0xffff);
}

static void test_send(void **state)
{
	struct ibv_wc wc;
	uint32_t len;

	for (len = 0; len <= 4096; len = len ? len * 2 + 1 : 1) {
		if (len > 4096)
			break;
		ud_recv(&b, len, 0, 4096 + 40);
		memset(b.r.buf, 0xee, 8192);
		memset(a.r.buf, (int)len + 1, len);
		ud_send(&a, &b, 7, a.r.buf, len, 0);
		rig_expect(&a.r, 7, IBV_WC_SUCCESS);
		rig_wait(&b.r, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.wr_id, len);
		assert_int_equal(wc.byte_len, len + 40);
		assert_int_equal(wc.src_qp, a.r.qp->qp_num);
		assert_int_equal(wc.qp_num, b.r.qp->qp_num);
		assert_int_equal(wc.wc_flags, IBV_WC_GRH);
		assert_int_equal(wc.slid, 0);
		assert_int_equal(wc.pkey_index, 0);
		check_grh_v4((unsigned char *)b.r.buf, len, &a.r.dev->gid.gid);
		assert_memory_equal(b.r.buf + 40, a.r.buf, len);
		assert_int_equal((unsigned char)b.r.buf[40 + len], 0xee);
	}
}

/* An answer finds its way, over IPv4 and over IPv6. */
static void test_answer(void **state)
{
	struct ibv_ah_attr attr, back;
	struct dev_gid g;
	struct ibv_ah *was = a.ah, *ah;
	struct ibv_wc wc;
	int i, v6 = 0;

	for (i = 0; !a.r.dev->ops->query_gid(a.r.dev, 1, i, &g) || i < 8; i++) {
		if (a.r.dev->ops->query_gid(a.r.dev, 1, i, &g))
			continue;
		ud_ah_attr(&a, &attr);
		attr.grh.sgid_index = (uint8_t)i;
		attr.grh.dgid = g.gid;
		attr.grh.flow_label = 0x12345;
		assert_int_equal(a.r.dev->ops->create_ah(a.r.dev, a.r.pd, &attr,
							 &a.ah),
				 0);
		ud_recv(&b, 1, 0, 200);
		ud_send(&a, &b, 2, a.r.buf, 100, 0);
		rig_expect(&a.r, 2, IBV_WC_SUCCESS);
		rig_wait(&b.r, &wc);
		assert_int_equal(dev_ah_from_wc(b.r.dev, &wc, (void *)b.r.buf,
						&back),
				 0);
		assert_memory_equal(&back.grh.dgid, &g.gid, 16);
		assert_int_equal(back.grh.sgid_index, i);
		assert_int_equal(back.grh.hop_limit, 9);
		assert_int_equal(back.grh.traffic_class, 0x20);
		/* as a NIC's: UDP; IPv4 or IPv6 */
		assert_int_equal(wc.sl, g.gid.raw[10] == 0xff ? 8 + 2 : 8 + 1);
		assert_int_equal(back.is_global, 1);
		assert_int_equal(back.port_num, 1);
		if (g.gid.raw[10] != 0xff) {
			v6++;
			assert_int_equal(back.grh.flow_label, 0x12345);
		}
		assert_int_equal(b.r.dev->ops->create_ah(b.r.dev, b.r.pd, &back,
							 &ah),
				 0);
		assert_int_equal(b.r.dev->ops->destroy_ah(b.r.dev, ah), 0);
		assert_int_equal(a.r.dev->ops->destroy_ah(a.r.dev, a.ah), 0);
	}
	a.ah = was;
	print_message("  %d GIDs of IPv6\n", v6);
}

static void test_imm_inline_pieces(void **state)
{
	struct ibv_sge g[3] = {
		{(uintptr_t)a.r.buf, 5, a.r.lkey},
		{(uintptr_t)a.r.buf + 100, 0, a.r.lkey},
		{(uintptr_t)a.r.buf + 200, 12, a.r.lkey},
	};
	struct ibv_sge to[3] = {
		{(uintptr_t)b.r.buf, 30, b.r.lkey},
		{(uintptr_t)b.r.buf + 64, 14, b.r.lkey},
		{(uintptr_t)b.r.buf + 128, 100, b.r.lkey},
	};
	struct ibv_recv_wr rwr = {.wr_id = 3, .sg_list = to, .num_sge = 3},
			   *rbad;
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;
	int pass;

	for (pass = 0; pass < 2; pass++) {
		memset(b.r.buf, 0, 256);
		memcpy(a.r.buf, "hello", 5);
		memcpy(a.r.buf + 200, ", datagrams!", 12);
		assert_int_equal(ibv_post_recv(b.r.qp, &rwr, &rbad), 0);
		ud_wr(&a, &b, &wr, g);
		wr.num_sge = 3;
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.imm_data = htonl(0xcafe);
		if (pass)
			wr.send_flags |= IBV_SEND_INLINE;
		assert_int_equal(ibv_post_send(a.r.qp, &wr, &bad), 0);
		if (pass)
			memset(a.r.buf, 0, 256);
		rig_expect(&a.r, wr.wr_id, IBV_WC_SUCCESS);
		rig_wait(&b.r, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
		assert_int_equal(ntohl(wc.imm_data), 0xcafe);
		assert_int_equal(wc.byte_len, 57);
		assert_memory_equal(b.r.buf + 64 + 10, "hell", 4);
		assert_memory_equal(b.r.buf + 128, "o, datagrams!", 13);
	}
}

/* A message that must be dropped, and the one behind it that must arrive. */
static void expect_dropped(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	assert_int_equal(ibv_post_send(a.r.qp, wr, &bad), 0);
	rig_expect(&a.r, wr->wr_id, IBV_WC_SUCCESS);
	strcpy(a.r.buf, "behind it");
	ud_send(&a, &b, 8, a.r.buf, 10, 0);
	rig_expect(&a.r, 8, IBV_WC_SUCCESS);
	rig_wait(&b.r, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 50);
	assert_string_equal(b.r.buf + 40, "behind it");
	assert_true(rig_quiet(&b.r));
}

static void test_qkey(void **state)
{
	struct ibv_sge g = {(uintptr_t)a.r.buf + 512, 8, a.r.lkey};
	struct ibv_qp_attr attr = {.qkey = 0x777};
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;

	ud_recv(&b, 1, 0, 100);
	ud_wr(&a, &b, &wr, &g);
	wr.wr.ud.remote_qkey = UD_QKEY + 1;
	expect_dropped(&wr);
	/* the high bit: the QP's own, which is right */
	ud_recv(&b, 2, 0, 100);
	wr.wr.ud.remote_qkey = 0x80000000;
	assert_int_equal(ibv_post_send(a.r.qp, &wr, &bad), 0);
	rig_expect(&a.r, wr.wr_id, IBV_WC_SUCCESS);
	rig_expect(&b.r, 2, IBV_WC_SUCCESS);
	/* and then is not */
	assert_int_equal(a.r.dev->ops->modify_qp(a.r.dev, a.r.qp, &attr,
						 IBV_QP_QKEY),
			 0);
	ud_recv(&b, 3, 0, 100);
	expect_dropped(&wr);
	attr.qkey = UD_QKEY;
	assert_int_equal(a.r.dev->ops->modify_qp(a.r.dev, a.r.qp, &attr,
						 IBV_QP_QKEY),
			 0);
	/* the receiver's is changed while it runs */
	attr.qkey = 0x42;
	assert_int_equal(b.r.dev->ops->modify_qp(b.r.dev, b.r.qp, &attr,
						 IBV_QP_QKEY),
			 0);
	ud_recv(&b, 4, 0, 100);
	ud_send(&a, &b, 5, a.r.buf, 8, 0);
	rig_expect(&a.r, 5, IBV_WC_SUCCESS);
	wr.wr.ud.remote_qkey = 0x42;
	assert_int_equal(ibv_post_send(a.r.qp, &wr, &bad), 0);
	rig_expect(&a.r, wr.wr_id, IBV_WC_SUCCESS);
	rig_wait(&b.r, &wc);
	assert_int_equal(wc.wr_id, 4);
	assert_true(rig_quiet(&b.r));
	attr.qkey = UD_QKEY;
	assert_int_equal(b.r.dev->ops->modify_qp(b.r.dev, b.r.qp, &attr,
						 IBV_QP_QKEY),
			 0);
}

static void test_lengths(void **state)
{
	struct ibv_sge g = {(uintptr_t)a.r.buf, 61, a.r.lkey};
	struct ibv_send_wr wr;

	/* a receive too short stays where it is */
	ud_recv(&b, 1, 0, 100);
	ud_wr(&a, &b, &wr, &g);
	expect_dropped(&wr);
	/* C10-93.1.1: longer than the MTU is not sent, and is no error */
	ud_recv(&b, 1, 0, 8000);
	g.length = 4097;
	expect_dropped(&wr);
}

static void test_no_receive(void **state)
{
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 5; i++) {
		a.r.buf[0] = (char)i;
		ud_send(&a, &b, 1, a.r.buf, 8, 0);
		rig_expect(&a.r, 1, IBV_WC_SUCCESS);
	}
	assert_true(rig_quiet(&b.r));
	ud_recv(&b, 9, 0, 100);
	assert_true(rig_quiet(&b.r));
	a.r.buf[0] = 77;
	ud_send(&a, &b, 1, a.r.buf, 8, 0);
	rig_expect(&a.r, 1, IBV_WC_SUCCESS);
	rig_wait(&b.r, &wc);
	assert_int_equal(b.r.buf[40], 77);
	assert_true(rig_quiet(&b.r));
}

/* Numbers that nobody has, that an RC QP has, that a QP in RESET has. */
static void test_nobody(void **state)
{
	struct ibv_sge g = {(uintptr_t)a.r.buf + 512, 8, a.r.lkey};
	struct ibv_qp *rc = rig_qp(&b.r);
	struct ud_end c;
	struct ibv_send_wr wr;

	ud_wr(&a, &b, &wr, &g);
	ud_recv(&b, 1, 0, 100);
	wr.wr.ud.remote_qpn = 5; /* block 0: never */
	expect_dropped(&wr);
	ud_recv(&b, 1, 0, 100);
	wr.wr.ud.remote_qpn = b.r.qp->qp_num ^ 0x800;
	expect_dropped(&wr);
	ud_recv(&b, 1, 0, 100);
	wr.wr.ud.remote_qpn = rc->qp_num;
	expect_dropped(&wr);
	ud_open(&c, NULL);
	ud_recv(&b, 1, 0, 100);
	ud_recv(&c, 1, 0, 100);
	ud_state(&c, IBV_QPS_RESET);
	wr.wr.ud.remote_qpn = c.r.qp->qp_num;
	expect_dropped(&wr);
	ud_close(&c);
	ud_recv(&b, 1, 0, 100);
	expect_dropped(&wr);
	assert_int_equal(b.r.dev->ops->destroy_qp(b.r.dev, rc), 0);
}

static void test_order(void **state)
{
	struct ibv_wc wc;
	uint32_t i, n, round;

	for (round = 0; round < 50; round++) {
		for (i = 0; i < RIG_WR; i++)
			ud_recv(&b, i, i * 64, 64);
		for (i = 0; i < RIG_WR; i++) {
			memcpy(a.r.buf, &i, 4);
			ud_send(&a, &b, i, a.r.buf, 4, IBV_SEND_INLINE);
			rig_expect(&a.r, i, IBV_WC_SUCCESS);
		}
		for (i = 0; i < RIG_WR; i++) {
			rig_wait(&b.r, &wc);
			assert_int_equal(wc.wr_id, i);
			memcpy(&n, b.r.buf + i * 64 + 40, 4);
			assert_int_equal(n, i);
		}
	}
}

static void test_refused(void **state)
{
	struct ibv_sge g = {(uintptr_t)a.r.buf, 8, a.r.lkey};
	struct ibv_send_wr wr, *bad;
	struct ibv_ah_attr ah;
	struct ibv_ah *h;

	ud_wr(&a, &b, &wr, &g);
	wr.opcode = IBV_WR_RDMA_WRITE;
	assert_int_equal(ibv_post_send(a.r.qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(ibv_post_send(a.r.qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND;
	wr.wr.ud.ah = NULL;
	assert_int_equal(ibv_post_send(a.r.qp, &wr, &bad), EINVAL);
	ud_ah_attr(&a, &ah);
	ah.port_num = 2;
	assert_int_equal(a.r.dev->ops->create_ah(a.r.dev, a.r.pd, &ah, &h),
			 -EINVAL);
	ud_ah_attr(&a, &ah);
	ah.is_global = 0;
	assert_int_equal(a.r.dev->ops->create_ah(a.r.dev, a.r.pd, &ah, &h),
			 -EINVAL);
	ud_ah_attr(&a, &ah);
	ah.grh.sgid_index = 200;
	assert_int_equal(a.r.dev->ops->create_ah(a.r.dev, a.r.pd, &ah, &h),
			 -EINVAL);
	ud_ah_attr(&a, &ah);
	memcpy(ah.grh.dgid.raw + 12, "\xc0\x00\x02\x01", 4);
	assert_int_equal(a.r.dev->ops->create_ah(a.r.dev, a.r.pd, &ah, &h),
			 -EHOSTUNREACH);
}

/* A handle keeps its PD; one of another PD breaks the send queue, and a local
 * piece that is nobody's does. The receives go on. */
static void test_send_failed(void **state)
{
	struct ibv_sge g = {(uintptr_t)a.r.buf, 8, a.r.lkey};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_send_wr wr, *bad;
	struct ibv_ah_attr ah;
	struct ibv_ah *h;
	struct ibv_pd *pd;
	struct ud_end c;

	assert_int_equal(a.r.dev->ops->alloc_pd(a.r.dev, &pd), 0);
	ud_ah_attr(&a, &ah);
	assert_int_equal(a.r.dev->ops->create_ah(a.r.dev, pd, &ah, &h), 0);
	assert_int_equal(a.r.dev->ops->dealloc_pd(a.r.dev, pd), -EBUSY);
	ud_open(&c, NULL);
	c.r.dev->ops->destroy_ah(c.r.dev, c.ah);
	assert_int_equal(c.r.dev->ops->alloc_pd(c.r.dev, &c.pd2), 0);
	ud_ah_attr(&c, &ah);
	assert_int_equal(c.r.dev->ops->create_ah(c.r.dev, c.pd2, &ah, &c.ah),
			 0);
	g.lkey = c.r.lkey;
	g.addr = (uintptr_t)c.r.buf;
	ud_wr(&c, &b, &wr, &g);
	assert_int_equal(ibv_post_send(c.r.qp, &wr, &bad), 0);
	rig_expect(&c.r, wr.wr_id, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(ud_query(&c), IBV_QPS_SQE);
	assert_int_equal(ibv_post_send(c.r.qp, &wr, &bad), 0);
	rig_expect(&c.r, wr.wr_id, IBV_WC_WR_FLUSH_ERR);
	/* its receives go on */
	ud_recv(&c, 4, 0, 100);
	ud_send(&a, &c, 1, a.r.buf, 8, 0);
	rig_expect(&a.r, 1, IBV_WC_SUCCESS);
	rig_expect(&c.r, 4, IBV_WC_SUCCESS);
	assert_int_equal(c.r.dev->ops->modify_qp(c.r.dev, c.r.qp, &attr,
						 IBV_QP_STATE),
			 0);
	c.r.dev->ops->destroy_ah(c.r.dev, c.ah);
	ud_ah_attr(&c, &ah);
	assert_int_equal(c.r.dev->ops->create_ah(c.r.dev, c.r.pd, &ah, &c.ah),
			 0);
	assert_int_equal(c.r.dev->ops->dealloc_pd(c.r.dev, c.pd2), 0);
	/* a local piece that is nobody's */
	ud_wr(&c, &b, &wr, &g);
	g.lkey++;
	assert_int_equal(ibv_post_send(c.r.qp, &wr, &bad), 0);
	rig_expect(&c.r, wr.wr_id, IBV_WC_LOC_PROT_ERR);
	ud_close(&c);
	assert_int_equal(a.r.dev->ops->destroy_ah(a.r.dev, h), 0);
	assert_int_equal(a.r.dev->ops->dealloc_pd(a.r.dev, pd), 0);
}

static void test_masks(void **state)
{
	struct ibv_qp_init_attr init = {.send_cq = a.r.cq,
					.recv_cq = a.r.cq,
					.qp_type = IBV_QPT_UD,
					.cap = {.max_send_wr = 4,
						.max_recv_wr = 4,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
	struct dev *dev = a.r.dev;
	struct ibv_recv_wr rwr = {.wr_id = 1}, *rbad;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	assert_int_equal(dev->ops->create_qp(dev, a.r.pd, &init, 0, &qp), 0);
	assert_int_equal(dev->ops->modify_qp(dev, qp, &attr,
					     IBV_QP_STATE | IBV_QP_PORT |
						     IBV_QP_PKEY_INDEX),
			 -EINVAL);
	assert_int_equal(ibv_post_recv(qp, &rwr, &rbad), EINVAL);
	assert_int_equal(dev->ops->modify_qp(dev, qp, &attr,
					     IBV_QP_STATE | IBV_QP_PORT |
						     IBV_QP_PKEY_INDEX |
						     IBV_QP_QKEY),
			 0);
	assert_int_equal(ibv_post_recv(qp, &rwr, &rbad), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(dev->ops->modify_qp(dev, qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(dev->ops->modify_qp(dev, qp, &attr, IBV_QP_STATE),
			 -EINVAL);
	assert_int_equal(dev->ops->modify_qp(dev, qp, &attr,
					     IBV_QP_STATE | IBV_QP_SQ_PSN),
			 0);
	attr.qp_state = IBV_QPS_ERR;
	assert_int_equal(dev->ops->modify_qp(dev, qp, &attr, IBV_QP_STATE), 0);
	rig_wait(&a.r, &wc);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(dev->ops->destroy_qp(dev, qp), 0);
}

static void test_flush(void **state)
{
	struct ud_end c;
	struct ibv_wc wc;
	uint32_t i;

	ud_open(&c, NULL);
	for (i = 0; i < 10; i++)
		ud_recv(&c, i, i * 64, 64);
	ud_send(&a, &c, 1, a.r.buf, 8, 0);
	rig_expect(&a.r, 1, IBV_WC_SUCCESS);
	rig_expect(&c.r, 0, IBV_WC_SUCCESS);
	ud_state(&c, IBV_QPS_ERR);
	for (i = 1; i < 10; i++)
		rig_expect(&c.r, i, IBV_WC_WR_FLUSH_ERR);
	/* nobody is served any more, and what is posted is flushed */
	ud_send(&a, &c, 1, a.r.buf, 8, 0);
	rig_expect(&a.r, 1, IBV_WC_SUCCESS);
	assert_true(rig_quiet(&c.r));
	for (i = 0; i < 3 * RIG_WR; i++) {
		ud_recv(&c, 100 + i, 0, 64);
		rig_expect(&c.r, 100 + i, IBV_WC_WR_FLUSH_ERR);
	}
	/* another life: the sender finds it again */
	ud_state(&c, IBV_QPS_RESET);
	ud_ready(&c, c.r.qp);
	for (i = 0; i < RIG_WR; i++)
		ud_recv(&c, i, i * 64, 64);
	for (i = 0; i < RIG_WR; i++) {
		do
			ud_send(&a, &c, 1, a.r.buf, 8, 0);
		while (rig_wait(&a.r, &wc), !ibv_poll_cq(c.r.cq, 1, &wc));
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	ud_close(&c);
}

static void test_bad_receive(void **state)
{
	struct ibv_sge g;
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &g, .num_sge = 1}, *bad;
	struct ud_end c;

	ud_open(&c, NULL);
	g = (struct ibv_sge){(uintptr_t)c.r.buf, 64, c.r.lkey + 1};
	assert_int_equal(ibv_post_recv(c.r.qp, &wr, &bad), 0);
	ud_recv(&c, 2, 0, 64);
	ud_send(&a, &c, 1, a.r.buf, 8, 0);
	rig_expect(&a.r, 1, IBV_WC_SUCCESS);
	rig_expect(&c.r, 1, IBV_WC_LOC_PROT_ERR);
	/* IBA 9.9.3: its QP goes to ERR */
	rig_expect(&c.r, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ud_query(&c), IBV_QPS_ERR);
	ud_close(&c);
}

static void test_self(void **state)
{
	struct ibv_wc wc;

	ud_recv(&a, 4, 4096, 100);
	ud_send(&a, &a, 5, a.r.buf, 8, 0);
	rig_expect(&a.r, 5, IBV_WC_SUCCESS);
	rig_wait(&a.r, &wc);
	assert_int_equal(wc.wr_id, 4);
	assert_int_equal(wc.src_qp, a.r.qp->qp_num);
}

static void test_sqd(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	ud_recv(&b, 4, 0, 100);
	ud_state(&a, IBV_QPS_SQD);
	ud_send(&a, &b, 5, a.r.buf, 8, 0);
	assert_true(rig_quiet(&a.r));
	assert_true(rig_quiet(&b.r));
	assert_int_equal(a.r.dev->ops->modify_qp(a.r.dev, a.r.qp, &attr,
						 IBV_QP_STATE),
			 0);
	rig_expect(&a.r, 5, IBV_WC_SUCCESS);
	rig_expect(&b.r, 4, IBV_WC_SUCCESS);
}

static void test_plain_memory(void **state)
{
	struct rig_opts o = {.plain = true};
	struct ibv_wc wc;
	struct ud_end c;
	uint32_t i;

	ud_open(&c, &o);
	for (i = 0; i < 10; i++) {
		ud_recv(&c, i, 0, 5000);
		snprintf(a.r.buf, 64, "number %u", i);
		ud_send(&a, &c, 1, a.r.buf, 4096, 0);
		rig_expect(&a.r, 1, IBV_WC_SUCCESS);
		rig_wait(&c.r, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_memory_equal(c.r.buf + 40, a.r.buf, 4096);
	}
	ud_close(&c);
}

/* The first message to a destination is not lost, though its QP goes at once
 * after it. */
static void test_linger(void **state)
{
	struct ud_end c;
	int i;

	for (i = 0; i < 10; i++) {
		ud_recv(&b, 4, 0, 100);
		ud_open(&c, NULL);
		ud_send(&c, &b, 5, c.r.buf, 8, 0);
		ud_close(&c);
		rig_expect(&b.r, 4, IBV_WC_SUCCESS);
	}
}

/* Many queues on one CQ: poll looks at their counts. */
static void test_many_queues(void **state)
{
	struct ibv_qp *own = b.r.qp, *qps[20];
	struct ibv_wc wc;
	int i, round;

	for (i = 0; i < 20; i++) {
		qps[i] = ud_qp(&b);
		ud_ready(&b, qps[i]);
	}
	for (round = 0; round < 20; round++)
		for (i = 0; i < 20; i++) {
			b.r.qp = qps[i];
			ud_recv(&b, (uint64_t)i, 0, 64);
			ud_send(&a, &b, 5, a.r.buf, 8, 0);
			rig_expect(&a.r, 5, IBV_WC_SUCCESS);
			rig_wait(&b.r, &wc);
			assert_int_equal(wc.wr_id, i);
			assert_int_equal(wc.qp_num, qps[i]->qp_num);
		}
	b.r.qp = own;
	for (i = 0; i < 20; i++)
		b.r.dev->ops->destroy_qp(b.r.dev, qps[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_send),
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_imm_inline_pieces),
		cmocka_unit_test(test_qkey),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_no_receive),
		cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_send_failed),
		cmocka_unit_test(test_masks),
		cmocka_unit_test(test_flush),
		cmocka_unit_test(test_bad_receive),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_sqd),
		cmocka_unit_test(test_plain_memory),
		cmocka_unit_test(test_linger),
		cmocka_unit_test(test_many_queues),
	};

	/* test_refused() is about a device without one */
	setenv("SKEIN_LINK", "off", 1);
	return cmocka_run_group_tests(tests, up, down);
}
