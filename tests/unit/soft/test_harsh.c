/* SPDX-License-Identifier: MIT */
/*
 * test_harsh.c - harsh mode is unkind, each kind of unkindness seen at least
 * once in many requests; and nothing is lost by it: what docs/soft.md, "Harsh
 * mode", says.
 */
#include "unit/patience.h"
#include "unit/soft/rig.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>

#define MANY 400
#define LONG (256u * 1024)

/* These look at memory that the device is working on: that is their point. */
#ifdef __SANITIZE_THREAD__
#define RACES_ON_PURPOSE() skip()
#else
#define RACES_ON_PURPOSE() ((void)0)
#endif

static struct rig_end a, b;

static void pair(const char *seed)
{
	setenv("SKEIN_SOFT_HARSH", seed, 1);
	rig_pair(&a, &b, NULL);
	print_message("device %s, %s\n", a.dev->name, a.dev->mode);
	assert_non_null(strstr(a.dev->mode, seed));
}

static void write_long(uint64_t id, uint32_t len)
{
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, id, a.buf, len,
				  (uintptr_t)b.buf, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
}

static void test_caps(void **state)
{
	pair("1");
	assert_false(a.dev->caps.ordered_write);
	assert_false(a.dev->caps.ordered_read);
	assert_false(a.dev->caps.death_notice);
	assert_int_equal(a.dev->ops->probe(a.dev, a.qp), -EOPNOTSUPP);
	rig_unpair(&a, &b);
	pair("3");
	assert_true(a.dev->caps.ordered_write);
	rig_unpair(&a, &b);
}

/* A buffer that is changed before the completion: what arrives may be either;
 * inline bytes are the old ones. */
static void test_source_is_read_late(void **state)
{
	uint64_t old = 1, new = 2, got;
	int late = 0, i, k;

	RACES_ON_PURPOSE();
	pair("1");
	for (i = 0; i < MANY; i++) {
		k = i % 2 ? IBV_SEND_INLINE : 0;
		memcpy(a.buf, &old, 8);
		assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 7, a.buf, 8,
					  (uintptr_t)b.buf, b.mem->mr->rkey,
					  IBV_SEND_SIGNALED | (unsigned)k),
				 0);
		memcpy(a.buf, &new, 8);
		rig_expect(&a, 7, IBV_WC_SUCCESS);
		memcpy(&got, b.buf, 8);
		assert_true(got == old || (got == new && !k));
		late += got == new;
	}
	assert_true(late > 0);
	rig_unpair(&a, &b);
}

static bool arrived(void *arg)
{
	return *(volatile char *)(b.buf + LONG - 1) == *(char *)arg;
}

/* One-sided requests of a process that never polls. */
static void test_goes_on_unpolled(void **state)
{
	char round;

	RACES_ON_PURPOSE();
	pair("2");
	for (round = 1; round < 20; round++) {
		memset(a.buf, round, LONG);
		write_long(1, LONG);
		rig_until(arrived, &round);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf, b.buf, LONG);
	}
	rig_unpair(&a, &b);
}

/* What is seen between two polls, over many WRITEs. */
static void look_between(bool *tail_first, bool *early_data)
{
	struct ibv_wc wc;
	int n, i;
	char v;

	*tail_first = *early_data = false;
	for (i = 0; i < MANY; i++) {
		v = (char)(1 + i % 100);
		memset(a.buf, v, LONG);
		write_long(1, LONG);
		while ((n = ibv_poll_cq(a.cq, 1, &wc)) == 0) {
			if (b.buf[LONG - 1] != v)
				continue;
			if (memcmp(a.buf, b.buf, LONG))
				*tail_first = true;
			else
				*early_data = true;
		}
		assert_int_equal(n, 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf, b.buf, LONG);
	}
}

static void test_any_order(void **state)
{
	bool tail_first, early_data;

	RACES_ON_PURPOSE();
	pair("1");
	look_between(&tail_first, &early_data);
	assert_true(tail_first);
	assert_true(early_data);
	rig_unpair(&a, &b);
}

/* Where the receiver's device promises order there is order. */
static void test_ascending(void **state)
{
	bool tail_first, early_data;

	RACES_ON_PURPOSE();
	pair("7");
	look_between(&tail_first, &early_data);
	assert_false(tail_first);
	assert_true(early_data);
	rig_unpair(&a, &b);
}

/* A receive proves the WRITEs before it; an event is late, never lost. */
static void test_messages(void **state)
{
	struct pollfd p;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	uint64_t i;

	pair("5");
	p = (struct pollfd){.fd = b.ch->fd, .events = POLLIN};
	for (i = 1; i <= MANY; i++) {
		rig_recv(&b, i, b.buf + LONG, 8);
		assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
		memset(a.buf, (int)i, 4096);
		write_long(1, 4096);
		memcpy(a.buf + LONG, &i, 8);
		rig_post(&a, IBV_WR_SEND, 2, a.buf + LONG, 8, 0, 0,
			 IBV_SEND_SIGNALED);
		/* asleep: nobody polls */
		assert_int_equal(poll(&p, 1, patience_ms(10)), 1);
		assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), 0);
		b.dev->ops->ack_cq_events(b.dev, cq, 1);
		rig_wait(&b, &wc);
		assert_int_equal(wc.wr_id, i);
		assert_memory_equal(b.buf, a.buf, 4096);
		assert_memory_equal(b.buf + LONG, &i, 8);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		rig_expect(&a, 2, IBV_WC_SUCCESS);
	}
	rig_unpair(&a, &b);
}

/* Of two WRITEs of a QP to one place the later one's bytes stay (IBA 9.5). */
static void test_same_place(void **state)
{
	const uint32_t len = 4096;
	int i;

	pair("1");
	memset(a.buf, 1, len);
	memset(a.buf + len, 2, len);
	for (i = 0; i < MANY; i++) {
		rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, len, (uintptr_t)b.buf,
			 b.mem->mr->rkey, IBV_SEND_SIGNALED);
		rig_post(&a, IBV_WR_RDMA_WRITE, 2, a.buf + len, len / 2,
			 (uintptr_t)b.buf + len / 4, b.mem->mr->rkey,
			 IBV_SEND_SIGNALED);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		rig_expect(&a, 2, IBV_WC_SUCCESS);
		assert_memory_equal(b.buf + len / 4, a.buf + len, len / 2);
		assert_memory_equal(b.buf, a.buf, len / 4);
		assert_memory_equal(b.buf + len / 4 * 3, a.buf, len / 4);
	}
	rig_unpair(&a, &b);
}

static void again(struct rig_end *e)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(
		e->dev->ops->modify_qp(e->dev, e->qp, &reset, IBV_QP_STATE), 0);
	assert_int_equal(dev_qp_init(e->dev, e->qp, RIG_ACCESS), 0);
}

static void reconnect(void)
{
	struct rig_addr aa, ba;

	again(&a);
	again(&b);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	rig_connect(&a, &ba);
	rig_connect(&b, &aa);
}

/* Behind a long WRITE a short one whose region goes while both are under way,
 * after `polls` looks: the first one is not harmed. True: the second failed. */
static bool region_goes(unsigned polls)
{
	struct ibv_mr *mr;
	struct ibv_wc wc;

	assert_int_equal(b.dev->ops->reg_mr(b.dev, b.pd, b.buf + LONG, 64,
					    RIG_ACCESS, b.mem->fd,
					    b.mem->off + LONG, &mr),
			 0);
	rig_post(&a, IBV_WR_RDMA_WRITE, 0, a.buf, 64, (uintptr_t)b.buf + LONG,
		 mr->rkey, IBV_SEND_SIGNALED);
	rig_expect(&a, 0, IBV_WC_SUCCESS); /* it is mapped */
	write_long(1, LONG);
	rig_post(&a, IBV_WR_RDMA_WRITE, 2, a.buf, 64, (uintptr_t)b.buf + LONG,
		 mr->rkey, IBV_SEND_SIGNALED);
	while (polls--)
		assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 0);
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, mr), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_wait(&a, &wc);
	assert_int_equal(wc.wr_id, 2);
	assert_true(wc.status == IBV_WC_SUCCESS ||
		    wc.status == IBV_WC_REM_ACCESS_ERR);
	return wc.status != IBV_WC_SUCCESS;
}

/* A WRITE that overtakes the end of the one before it, and is refused, is
 * refused in its turn: the one before is carried out. */
static void test_refused_in_turn(void **state)
{
	int failed = 0;
	unsigned i;

	pair("1");
	for (i = 0; i < 2 * MANY; i++)
		if (region_goes(i % 64 * 8)) {
			failed++;
			reconnect();
		}
	assert_true(failed > 0);
	rig_unpair(&a, &b);
}

static void sleeper(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;
	char go;

	rig_meet(&e, sock, NULL, &peer);
	rig_get(sock, &go, 1); /* until it is killed */
}

/* Death is told by a request that fails, and by nothing else. */
static void test_death_is_silent(void **state)
{
	struct ibv_async_event ev;
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;

	setenv("SKEIN_SOFT_HARSH", "9", 1);
	rig_fork(&c, sleeper, NULL);
	rig_meet(&e, c.sock, NULL, &peer);
	kill(c.pid, SIGKILL);
	rig_join(&c);
	assert_int_equal(e.qp->state, IBV_QPS_RTS);
	assert_int_equal(e.dev->ops->get_async_event(e.dev, &ev), -EAGAIN);
	rig_post(&e, IBV_WR_RDMA_WRITE, 1, e.buf, 8, peer.buf, peer.rkey, 0);
	rig_expect(&e, 1, IBV_WC_RETRY_EXC_ERR);
	rig_close(&e);
}

static bool after(void *arg)
{
	return rig_now_ns() >= *(uint64_t *)arg;
}

/* A peer that is ready late, on a machine that is short of cores say, has as
 * long as a NIC would give it. */
static void test_peer_is_late(void **state)
{
	struct rig_addr aa, ba;
	uint64_t then;
	uint64_t seed;
	char text[8];

	for (seed = 1; seed <= 4; seed++) {
		snprintf(text, sizeof(text), "%u", (unsigned)seed);
		setenv("SKEIN_SOFT_HARSH", text, 1);
		rig_open(&a, NULL);
		rig_open(&b, NULL);
		rig_addr(&a, &aa);
		rig_addr(&b, &ba);
		a.o.qp.timeout = 18; /* seconds */
		rig_connect(&a, &ba);
		rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 8, ba.buf, ba.rkey,
			 IBV_SEND_SIGNALED);
		/* more than it waits for one that is gone */
		then = rig_now_ns() + 60000000;
		rig_until(after, &then);
		rig_connect(&b, &aa);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		rig_unpair(&a, &b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_caps),
		cmocka_unit_test(test_source_is_read_late),
		cmocka_unit_test(test_goes_on_unpolled),
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_ascending),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_same_place),
		cmocka_unit_test(test_refused_in_turn),
		cmocka_unit_test(test_death_is_silent),
		cmocka_unit_test(test_peer_is_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
