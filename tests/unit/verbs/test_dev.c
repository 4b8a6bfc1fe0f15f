/* SPDX-License-Identifier: MIT */
/*
 * test_dev.c - the choice of a device, and the masks and values of an RC QP's
 * steps, which a device made up here writes down.
 */
#include "dev/dev.h"
#include "env/env.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct ibv_qp_attr last;
static int last_mask, modify_rc;

static int note_modify(struct dev *dev, struct ibv_qp *qp,
		       struct ibv_qp_attr *attr, int mask)
{
	last = *attr;
	last_mask = mask;
	return modify_rc;
}

static const struct dev_ops ops = {.kind = "fake", .modify_qp = note_modify};
static struct ibv_qp qp = {.qp_num = 0xabcdef, .qp_type = IBV_QPT_RC};

static struct dev fake_dev(void)
{
	struct dev dev = {.ops = &ops, .port = 2};

	dev.caps.rd_atomic_max = 128;
	dev.port_attr.active_mtu = IBV_MTU_2048;
	dev.port_attr.link_layer = IBV_LINK_LAYER_ETHERNET;
	dev.port_attr.lid = 0x1234;
	dev.gid.index = 3;
	dev.gid.gid.raw[15] = 7;
	return dev;
}

static struct dev_qp_addr fake_peer(void)
{
	struct dev_qp_addr peer = {.qpn = 0x11,
				   .psn = 0x22,
				   .lid = 0x33,
				   .mtu = IBV_MTU_4096,
				   .rd_atomic = 4};

	peer.gid.raw[15] = 9;
	return peer;
}

static void test_addr(void **state)
{
	struct dev dev = fake_dev();
	struct dev_qp_addr addr;

	(void)state;
	dev_qp_addr(&dev, &qp, 0xff123456, &addr);
	assert_int_equal(addr.qpn, 0xabcdef);
	assert_int_equal(addr.psn, 0x123456);
	assert_int_equal(addr.lid, 0x1234);
	assert_int_equal(addr.mtu, IBV_MTU_2048);
	assert_int_equal(addr.rd_atomic, 16);
	assert_int_equal(addr.gid.raw[15], 7);
	dev.caps.rd_atomic_max = 1;
	dev_qp_addr(&dev, &qp, 0, &addr);
	assert_int_equal(addr.rd_atomic, 1);
}

static void test_init(void **state)
{
	struct dev dev = fake_dev();

	(void)state;
	modify_rc = 0;
	assert_int_equal(dev_qp_init(&dev, &qp, IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(last_mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	assert_int_equal(last.qp_state, IBV_QPS_INIT);
	assert_int_equal(last.port_num, 2);
	assert_int_equal(last.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	modify_rc = -EIO;
	assert_int_equal(dev_qp_init(&dev, &qp, 0), -EIO);
	modify_rc = 0;
}

static void test_rtr(void **state)
{
	struct dev dev = fake_dev();
	struct dev_qp_addr peer = fake_peer();
	struct dev_qp_opts opts = {.min_rnr_timer = 3, .traffic_class = 96};

	(void)state;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, NULL), 0);
	assert_int_equal(last_mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					    IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER);
	assert_int_equal(last.qp_state, IBV_QPS_RTR);
	assert_int_equal(last.path_mtu, IBV_MTU_2048);
	assert_int_equal(last.dest_qp_num, 0x11);
	assert_int_equal(last.rq_psn, 0x22);
	assert_int_equal(last.max_dest_rd_atomic, 16);
	assert_int_equal(last.min_rnr_timer, 12);
	assert_int_equal(last.ah_attr.is_global, 1);
	assert_int_equal(last.ah_attr.grh.dgid.raw[15], 9);
	assert_int_equal(last.ah_attr.grh.sgid_index, 3);
	assert_int_equal(last.ah_attr.port_num, 2);
	assert_true(last.ah_attr.grh.hop_limit > 1);
	assert_int_equal(last.ah_attr.dlid, 0); /* Ethernet has none */
	opts.mtu = IBV_MTU_512;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, &opts), 0);
	assert_int_equal(last.path_mtu, IBV_MTU_512);
	opts.mtu = IBV_MTU_4096; /* no more than the port's */
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, &opts), 0);
	assert_int_equal(last.path_mtu, IBV_MTU_2048);
	peer.mtu = IBV_MTU_1024;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, &opts), 0);
	assert_int_equal(last.path_mtu, IBV_MTU_1024);
	assert_int_equal(last.min_rnr_timer, 3);
	assert_int_equal(last.ah_attr.grh.traffic_class, 96);
}

static void test_rtr_infiniband(void **state)
{
	struct dev dev = fake_dev();
	struct dev_qp_addr peer = fake_peer();
	struct dev_qp_opts opts = {0};

	(void)state;
	dev.port_attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, NULL), 0);
	assert_int_equal(last.ah_attr.is_global, 0);
	assert_int_equal(last.ah_attr.dlid, 0x33);
	assert_int_equal(last.ah_attr.grh.dgid.raw[15], 0);
	opts.sl = 5;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, &opts), 0);
	assert_int_equal(last.ah_attr.sl, 5);
	/* Another subnet; a port that wants the header in each packet. */
	peer.gid.raw[0] = 0xfd;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, NULL), 0);
	assert_int_equal(last.ah_attr.is_global, 1);
	assert_int_equal(last.ah_attr.dlid, 0x33);
	peer.gid.raw[0] = 0;
	dev.port_attr.flags = IBV_QPF_GRH_REQUIRED;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, NULL), 0);
	assert_int_equal(last.ah_attr.is_global, 1);
	assert_int_equal(last.ah_attr.dlid, 0x33);
	assert_int_equal(last.ah_attr.grh.dgid.raw[15], 9);
	dev.port_attr.flags = 0;
	/* No LID, and a multicast LID, are nobody's. */
	peer.lid = 0;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, NULL), -EINVAL);
	peer.lid = 0xc000;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, NULL), -EINVAL);
	peer.lid = 0xbfff;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &peer, NULL), 0);
}

static void test_rts(void **state)
{
	struct dev dev = fake_dev();
	struct dev_qp_addr peer = fake_peer();
	struct dev_qp_opts opts = {
		.timeout = 1, .retry_cnt = 2, .rnr_retry = 3};

	(void)state;
	assert_int_equal(dev_qp_rts(&dev, &qp, 0xff000005, &peer, NULL), 0);
	assert_int_equal(last_mask, IBV_QP_STATE | IBV_QP_SQ_PSN |
					    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY |
					    IBV_QP_MAX_QP_RD_ATOMIC);
	assert_int_equal(last.qp_state, IBV_QPS_RTS);
	assert_int_equal(last.sq_psn, 5);
	assert_int_equal(last.timeout, 14);
	assert_int_equal(last.retry_cnt, 7);
	assert_int_equal(last.rnr_retry, 7);
	assert_int_equal(last.max_rd_atomic, 4); /* what the peer accepts */
	assert_int_equal(dev_qp_rts(&dev, &qp, 0, &peer, &opts), 0);
	assert_int_equal(last.timeout, 1);
	assert_int_equal(last.retry_cnt, 2);
	assert_int_equal(last.rnr_retry, 3);
	assert_int_equal(dev_qp_err(&dev, &qp), 0);
	assert_int_equal(last_mask, IBV_QP_STATE);
	assert_int_equal(last.qp_state, IBV_QPS_ERR);
}

static void test_uc(void **state)
{
	struct ibv_qp uc = {.qp_num = 1, .qp_type = IBV_QPT_UC};
	struct dev dev = fake_dev();
	struct dev_qp_addr peer = fake_peer();

	assert_int_equal(dev_qp_rtr(&dev, &uc, &peer, NULL), 0);
	assert_int_equal(last_mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	assert_int_equal(dev_qp_rts(&dev, &uc, 0xff000005, &peer, NULL), 0);
	assert_int_equal(last_mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
	assert_int_equal(last.sq_psn, 5);
}

static int ud_masks[4], ud_steps, ud_fail_at = -1;

static int note_ud(struct dev *dev, struct ibv_qp *q, struct ibv_qp_attr *attr,
		   int mask)
{
	assert_int_equal(attr->qp_state, IBV_QPS_INIT + ud_steps);
	ud_masks[ud_steps] = mask;
	last = *attr;
	return ud_steps++ == ud_fail_at ? -EIO : 0;
}

static void test_ud(void **state)
{
	static const struct dev_ops ud_ops = {.modify_qp = note_ud};
	struct ibv_qp ud = {.qp_num = 1, .qp_type = IBV_QPT_UD};
	struct dev dev = fake_dev();

	dev.ops = &ud_ops;
	assert_int_equal(dev_qp_ud(&dev, &ud, 0x8765, 0xff000006), 0);
	assert_int_equal(ud_steps, 3);
	assert_int_equal(ud_masks[0], IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					      IBV_QP_PORT | IBV_QP_QKEY);
	assert_int_equal(ud_masks[1], IBV_QP_STATE);
	assert_int_equal(ud_masks[2], IBV_QP_STATE | IBV_QP_SQ_PSN);
	assert_int_equal(last.qkey, 0x8765);
	assert_int_equal(last.sq_psn, 6);
	assert_int_equal(last.port_num, 2);
	for (ud_fail_at = 0; ud_fail_at < 3; ud_fail_at++) {
		ud_steps = 0;
		assert_int_equal(dev_qp_ud(&dev, &ud, 1, 1), -EIO);
		assert_int_equal(ud_steps, ud_fail_at + 1);
	}
}

static void test_ah_attr(void **state)
{
	struct dev_qp_opts opts = {.traffic_class = 104, .sl = 3};
	struct dev dev = fake_dev();
	struct dev_qp_addr peer = fake_peer();
	struct ibv_ah_attr attr = {.dlid = 99};

	peer.mtu = 0;
	assert_int_equal(dev_ah_attr(&dev, &peer, NULL, &attr), -EINVAL);
	assert_int_equal(attr.dlid, 99);
	peer.mtu = IBV_MTU_4096;
	assert_int_equal(dev_ah_attr(&dev, &peer, &opts, &attr), 0);
	assert_int_equal(attr.is_global, 1);
	assert_int_equal(attr.port_num, 2);
	assert_int_equal(attr.sl, 3);
	assert_int_equal(attr.grh.traffic_class, 104);
	assert_int_equal(attr.grh.dgid.raw[15], 9);
}

/* A peer's words are checked before the device sees them. */
static void test_hostile_addr(void **state)
{
	struct dev dev = fake_dev();
	struct dev_qp_addr good = fake_peer(), bad;

	(void)state;
	last_mask = 0;
	bad = good;
	bad.mtu = 0;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &bad, NULL), -EINVAL);
	bad.mtu = 255;
	assert_int_equal(dev_qp_rts(&dev, &qp, 0, &bad, NULL), -EINVAL);
	bad = good;
	bad.qpn = 0x1000000;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &bad, NULL), -EINVAL);
	bad = good;
	bad.psn = UINT32_MAX;
	assert_int_equal(dev_qp_rtr(&dev, &qp, &bad, NULL), -EINVAL);
	assert_int_equal(last_mask, 0);
}

static void refused(struct skein_env *env, const char *spec, int rc,
		    const char *word)
{
	struct dev *dev = NULL;
	char err[256] = "";

	assert_int_equal(dev_open(env, spec, -1, err, sizeof(err), &dev), rc);
	assert_null(dev);
	if (!strstr(err, word))
		fail_msg("\"%s\": no \"%s\" in \"%s\"", spec, word, err);
	assert_null(strchr(err, '\n'));
	/* No room for the reason is no reason to crash. */
	assert_int_equal(dev_open(env, spec, -1, NULL, 0, &dev), rc);
}

static void test_refused_specs(void **state)
{
	struct skein_env *env;

	(void)state;
	assert_int_equal(env_real_new(&env), 0);
	refused(env, "sim", -ENODEV, "soft");
	refused(env, "mlx5_0", -EINVAL, "verbs:NAME");
	refused(env, "sof", -EINVAL, "soft");
	refused(env, "softer", -EINVAL, "soft");
	refused(env, ":", -EINVAL, "soft");
	refused(env, "verbs:no_such_nic", -ENODEV, "device soft");
	env_real_free(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addr),
		cmocka_unit_test(test_init),
		cmocka_unit_test(test_rtr),
		cmocka_unit_test(test_rtr_infiniband),
		cmocka_unit_test(test_rts),
		cmocka_unit_test(test_uc),
		cmocka_unit_test(test_ud),
		cmocka_unit_test(test_ah_attr),
		cmocka_unit_test(test_hostile_addr),
		cmocka_unit_test(test_refused_specs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
