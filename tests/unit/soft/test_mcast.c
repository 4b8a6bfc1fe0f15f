/* SPDX-License-Identifier: MIT */
/*
 * Multicast: what is sent to a group arrives once at every QP that is attached,
 * in whatever process, and nowhere else.
 */
#include "ud_rig.h"

#include "dev/soft/ud/mcast.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define QPN_GROUP 0xffffff

static struct ud_end a, b, c; /* b sends */
static union ibv_gid g4, g6;
static struct ibv_ah *ah4, *ah6;

static struct ibv_ah *group_ah(const union ibv_gid *gid)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *ah = NULL;

	ud_ah_attr(&b, &attr);
	attr.grh.dgid = *gid;
	assert_int_equal(b.r.dev->ops->create_ah(b.r.dev, b.r.pd, &attr, &ah),
			 0);
	return ah;
}

/* Groups of this run's own: other tests run beside it. */
static int up(void **state)
{
	uint32_t mine = (uint32_t)getpid();

	ud_open(&a, NULL);
	ud_open(&b, NULL);
	ud_open_srq(&c, NULL);
	memset(&g4, 0, sizeof(g4));
	memset(g4.raw + 10, 0xff, 2);
	memcpy(g4.raw + 12, &mine, 4);
	g4.raw[12] = 239;
	g6 = g4;
	memset(g6.raw, 0, 12);
	g6.raw[0] = 0xff;
	g6.raw[1] = 0x0e;
	ah4 = group_ah(&g4);
	ah6 = group_ah(&g6);
	return 0;
}

static int down(void **state)
{
	b.r.dev->ops->destroy_ah(b.r.dev, ah4);
	b.r.dev->ops->destroy_ah(b.r.dev, ah6);
	ud_close(&a);
	ud_close(&b);
	ud_close(&c);
	return 0;
}

static int attach(struct ud_end *e, const union ibv_gid *gid)
{
	return e->r.dev->ops->attach_mcast(e->r.dev, e->r.qp, gid, 0);
}

static int detach(struct ud_end *e, const union ibv_gid *gid)
{
	return e->r.dev->ops->detach_mcast(e->r.dev, e->r.qp, gid, 0);
}

static void cast(struct ibv_ah *ah, uint32_t qpn, uint32_t n)
{
	struct ibv_sge sge = {(uintptr_t)b.r.buf, 4, b.r.lkey};
	struct ibv_send_wr wr, *bad;

	memcpy(b.r.buf, &n, 4);
	ud_wr_to(&b, qpn, &wr, &sge);
	wr.wr.ud.ah = ah;
	wr.send_flags |= IBV_SEND_INLINE;
	assert_int_equal(ibv_post_send(b.r.qp, &wr, &bad), 0);
	rig_expect(&b.r, wr.wr_id, IBV_WC_SUCCESS);
}

static bool nothing_waits(void *arg)
{
	return !atomic_load(&soft_of_dev(b.r.dev)->ud_waits);
}

static void fill(struct ud_end *e, uint32_t n)
{
	while (n--)
		ud_recv(e, n, n * 64, 64);
}

/* The next one is this one. */
static void expect(struct ud_end *e, uint32_t qpn, uint32_t n)
{
	struct ibv_wc wc;
	uint32_t got;

	rig_wait(&e->r, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.qp_num, qpn);
	assert_int_equal(wc.src_qp, b.r.qp->qp_num);
	memcpy(&got, e->r.buf + wc.wr_id * 64 + 40, 4);
	assert_int_equal(got, n);
}

/* Nothing is on its way, and nothing is there but what was taken. */
static void expect_quiet(void)
{
	rig_until(nothing_waits, NULL);
	assert_true(rig_quiet(&a.r));
	assert_true(rig_quiet(&b.r));
	assert_true(rig_quiet(&c.r));
}

/* Each of c's two queues has its order. */
static void expect_of_two(uint32_t qpn0, uint32_t qpn1, uint32_t *next)
{
	struct ibv_wc wc;
	uint32_t got;

	rig_wait(&c.r, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(wc.qp_num == qpn0 || wc.qp_num == qpn1);
	memcpy(&got, c.r.buf + wc.wr_id * 64 + 40, 4);
	assert_int_equal(got, next[wc.qp_num == qpn1]++);
}

static void test_members(void **state)
{
	struct ibv_qp *own = c.r.qp, *qp = ud_qp(&c);
	uint32_t next[2] = {0, 100};
	uint32_t i;

	ud_ready(&c, qp);
	fill(&a, 60);
	fill(&c, 60);
	assert_int_equal(attach(&a, &g4), 0);
	assert_int_equal(attach(&a, &g4), 0); /* once */
	assert_int_equal(attach(&c, &g4), 0);
	c.r.qp = qp;
	assert_int_equal(attach(&c, &g6), 0);
	c.r.qp = own;
	for (i = 0; i < 20; i++) {
		cast(ah4, QPN_GROUP, i);
		cast(ah6, QPN_GROUP, 100 + i);
	}
	cast(ah4, a.r.qp->qp_num, 99); /* to no group after all */
	for (i = 0; i < 20; i++)
		expect(&a, a.r.qp->qp_num, i);
	rig_until(nothing_waits, NULL);
	for (i = 0; i < 40; i++)
		expect_of_two(own->qp_num, qp->qp_num, next);
	expect_quiet();
	assert_int_equal(detach(&a, &g4), 0);
	assert_int_equal(detach(&a, &g4), -EINVAL);
	cast(ah4, QPN_GROUP, 50);
	expect(&c, own->qp_num, 50);
	expect_quiet();
	/* a QP leaves its groups before it goes */
	assert_int_equal(c.r.dev->ops->destroy_qp(c.r.dev, qp), -EBUSY);
	c.r.qp = qp;
	assert_int_equal(detach(&c, &g6), 0);
	c.r.qp = own;
	assert_int_equal(c.r.dev->ops->destroy_qp(c.r.dev, qp), 0);
	assert_int_equal(detach(&c, &g4), 0);
	cast(ah4, QPN_GROUP, 51);
	expect_quiet();
}

/* It has a copy for itself, if it is attached; and the header names the group. */
static void test_own(void **state)
{
	struct ibv_ah_attr back;
	struct ibv_wc wc;

	fill(&b, 1);
	assert_int_equal(attach(&b, &g4), 0);
	cast(ah4, QPN_GROUP, 7);
	rig_wait(&b.r, &wc);
	assert_int_equal(wc.src_qp, b.r.qp->qp_num);
	assert_memory_equal(b.r.buf + 36, g4.raw + 12, 4);
	assert_int_equal(dev_ah_from_wc(b.r.dev, &wc, (void *)b.r.buf, &back),
			 -EINVAL);
	assert_int_equal(detach(&b, &g4), 0);
}

static void test_refused(void **state)
{
	union ibv_gid one = b.r.dev->gid.gid;
	struct rig_end rc;

	rig_open(&rc, NULL);
	assert_int_equal(rc.dev->ops->attach_mcast(rc.dev, rc.qp, &g4, 0),
			 -EINVAL);
	rig_close(&rc);
	assert_int_equal(attach(&a, &one), -EINVAL);
	assert_int_equal(detach(&a, &g4), -EINVAL);
}

static void member(int sock, void *arg)
{
	struct ud_end e;
	struct ibv_wc wc;
	uint32_t qpn;
	char go;

	ud_open(&e, NULL);
	qpn = e.r.qp->qp_num;
	rig_put(sock, &qpn, sizeof(qpn));
	for (;;) {
		ud_recv(&e, 0, 0, 64);
		if (attach(&e, &g4))
			_exit(1);
		rig_put(sock, "a", 1);
		rig_wait(&e.r, &wc);
		if (wc.status || detach(&e, &g4))
			_exit(2);
		rig_put(sock, "d", 1);
		rig_get(sock, &go, 1);
	}
}

static uint32_t members(void)
{
	struct soft *s = soft_of_dev(b.r.dev);
	struct soft_member *m = NULL;
	uint32_t n = 0, mine = 0, i;

	assert_int_equal(soft_members(s, &m, &n), 0);
	for (i = 0; i < n; i++)
		mine += !memcmp(&m[i].gid, &g4, sizeof(g4));
	env_free(s->env, m);
	return mine;
}

/* What is sent after attach_mcast() has returned elsewhere arrives there: each
 * time. Who is killed is no member any more. */
static void test_processes(void **state)
{
	struct rig_child p[3];
	uint32_t qpn, round;
	char done;
	int i;

	for (i = 0; i < 3; i++) {
		rig_fork(&p[i], member, NULL);
		rig_get(p[i].sock, &qpn, sizeof(qpn));
	}
	for (round = 0; round < 30; round++) {
		for (i = 0; i < 3; i++)
			rig_get(p[i].sock, &done, 1);
		assert_int_equal(members(), 3);
		cast(ah4, QPN_GROUP, round);
		for (i = 0; i < 3; i++) {
			rig_get(p[i].sock, &done, 1);
			assert_int_equal(done, 'd');
		}
		assert_int_equal(members(), 0);
		for (i = 0; i < 3; i++)
			rig_put(p[i].sock, "g", 1);
	}
	for (i = 0; i < 3; i++)
		rig_get(p[i].sock, &done, 1);
	kill(p[0].pid, SIGKILL);
	assert_true(WIFSIGNALED(rig_join(&p[0])));
	assert_int_equal(members(), 2);
	cast(ah4, QPN_GROUP, round);
	for (i = 1; i < 3; i++) {
		rig_get(p[i].sock, &done, 1);
		assert_int_equal(done, 'd');
		kill(p[i].pid, SIGKILL);
		assert_true(WIFSIGNALED(rig_join(&p[i])));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_processes),
	};

	return cmocka_run_group_tests(tests, up, down);
}
