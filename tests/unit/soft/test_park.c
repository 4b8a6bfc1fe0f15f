/* SPDX-License-Identifier: MIT */
/* Requests that cannot be executed yet: they wait, in order, and go on when
 * the way is clear; or they fail when their time is over. */
#include "rig.h"

#include "dev/states.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static struct rig_end a, b;

static int both_down(void **state)
{
	rig_unpair(&a, &b);
	return 0;
}

static int both(void **state)
{
	rig_pair(&a, &b, *state);
	return 0;
}

static int send8(uint64_t id, unsigned flags)
{
	return rig_post(&a, IBV_WR_SEND, id, a.buf, 8, 0, 0,
			IBV_SEND_SIGNALED | flags);
}

static int write8(uint64_t id, uint64_t off)
{
	return rig_post(&a, IBV_WR_RDMA_WRITE, id, a.buf + 64, 8,
			(uintptr_t)b.buf + off, b.mem->mr->rkey,
			IBV_SEND_SIGNALED);
}

/* The receive comes later; the sender does nothing meanwhile. */
static void test_send_first(void **state)
{
	unsigned i;

	for (i = 0; i < 10; i++) {
		memcpy(a.buf, &i, 4);
		assert_int_equal(send8(i, 0), 0);
		assert_true(rig_quiet(&a));
		assert_int_equal(rig_recv(&b, 100 + i, b.buf, 8), 0);
		rig_expect(&b, 100 + i, IBV_WC_SUCCESS);
		assert_memory_equal(b.buf, &i, 4);
		rig_expect(&a, i, IBV_WC_SUCCESS);
	}
}

#define LATE_NS 50000000

/* Lets one more into a full count, after a while. */
static void *make_room(void *arg)
{
	const struct timespec t = {.tv_nsec = LATE_NS};
	uint64_t one;

	nanosleep(&t, NULL);
	assert_int_equal(read(*(int *)arg, &one, sizeof(one)), sizeof(one));
	assert_int_equal(fcntl(*(int *)arg, F_SETFL, O_NONBLOCK), 0);
	return NULL;
}

/* Who has seen the message, and answers, does not overtake its completion,
 * even where the sender's control thread is stopped in between: here it waits
 * to ring a bell that cannot count any further. */
static void test_answer_later(void **state)
{
	uint64_t full = UINT64_MAX - 1;
	struct ibv_wc wc;
	pthread_t t;

	assert_int_equal(fcntl(b.ch->fd, F_SETFL, 0), 0);
	assert_int_equal(write(b.ch->fd, &full, sizeof(full)), sizeof(full));
	assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
	assert_int_equal(send8(1, 0), 0);
	assert_int_equal(rig_recv(&b, 2, b.buf, 8), 0);
	rig_expect(&b, 2, IBV_WC_SUCCESS);
	assert_int_equal(pthread_create(&t, NULL, make_room, &b.ch->fd), 0);
	assert_int_equal(ibv_poll_cq(a.cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(pthread_join(t, NULL), 0);
}

/* Order holds: a WRITE behind a waiting SEND does not pass it. Inline bytes
 * are taken at once, others when the request is executed. */
static void test_order(void **state)
{
	char own[8] = "inline!";
	uint64_t one = 1;

	memcpy(a.buf + 64, &one, 8);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, own, 8, 0, 0,
				  IBV_SEND_SIGNALED | IBV_SEND_INLINE),
			 0);
	memset(own, 0, sizeof(own));
	assert_int_equal(write8(2, 4096), 0);
	assert_int_equal(send8(3, 0), 0);
	assert_true(rig_quiet(&a));
	assert_int_equal(b.buf[4096], 0);
	assert_int_equal(rig_recv(&b, 10, b.buf, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
	assert_true(rig_quiet(&a));
	assert_int_equal(b.buf[4096], 1);
	rig_expect(&b, 10, IBV_WC_SUCCESS);
	assert_string_equal(b.buf, "inline!");
	assert_int_equal(rig_recv(&b, 11, b.buf, 8), 0);
	rig_expect(&a, 3, IBV_WC_SUCCESS);
	rig_expect(&b, 11, IBV_WC_SUCCESS);
}

/* Parked requests take places of the send queue like any other. */
static void test_full(void **state)
{
	unsigned i;

	for (i = 0; i < RIG_WR; i++)
		assert_int_equal(send8(i, 0), 0);
	assert_int_equal(send8(i, 0), ENOMEM);
	for (i = 0; i < RIG_WR; i++)
		assert_int_equal(rig_recv(&b, i, b.buf, 8), 0);
	for (i = 0; i < RIG_WR; i++)
		rig_expect(&a, i, IBV_WC_SUCCESS);
	assert_int_equal(send8(i, 0), 0);
}

/* rnr_retry 1, min_rnr_timer 1 (10 us): it gives up. */
static void test_rnr_exceeded(void **state)
{
	assert_int_equal(send8(1, 0), 0);
	assert_int_equal(send8(2, 0), 0);
	rig_expect(&a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	rig_expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
}

/* The peer is not yet in RTR: the WRITE waits for it. */
static void test_before_rtr(void **state)
{
	struct rig_opts *o = *state;
	struct rig_addr aa, ba;
	uint64_t one = 1;

	rig_open(&a, o);
	rig_open(&b, o);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	rig_connect(&a, &ba);
	memcpy(a.buf + 64, &one, 8);
	assert_int_equal(write8(1, 0), 0);
	assert_int_equal(write8(2, 8), 0);
	assert_true(rig_quiet(&a));
	assert_int_equal(b.buf[0], 0);
	rig_connect(&b, &aa);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
	assert_int_equal(b.buf[8], 1);
}

/* It never comes: 4.096 us << 8, twice. */
static void test_never_rtr(void **state)
{
	struct rig_addr ba;

	rig_open(&a, *state);
	rig_open(&b, *state);
	rig_addr(&b, &ba);
	rig_connect(&a, &ba);
	assert_int_equal(write8(1, 0), 0);
	rig_expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(b.buf[0], 0);
}

/* Nobody has that number. */
static void test_nobody(void **state)
{
	struct rig_addr ba;

	rig_open(&a, *state);
	rig_open(&b, *state);
	rig_addr(&b, &ba);
	ba.qp.qpn ^= 0x800;
	rig_connect(&a, &ba);
	assert_int_equal(write8(1, 0), 0);
	rig_expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
}

/* A packet sequence number that the other end does not expect. */
static void test_wrong_psn(void **state)
{
	struct rig_addr aa, ba;

	rig_open(&a, *state);
	rig_open(&b, *state);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	aa.qp.psn++;
	rig_connect(&a, &ba);
	rig_connect(&b, &aa);
	assert_int_equal(write8(1, 0), 0);
	rig_expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
}

/* The peer goes away while something waits for it. */
static void test_peer_leaves(void **state)
{
	assert_int_equal(send8(1, 0), 0);
	assert_int_equal(dev_qp_err(b.dev, b.qp), 0);
	rig_expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
}

static void test_sqd(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD,
				   .en_sqd_async_notify = 1};
	struct ibv_qp_attr got;

	assert_int_equal(send8(1, 0), 0); /* has begun, waits */
	assert_int_equal(a.dev->ops->modify_qp(
				 a.dev, a.qp, &attr,
				 IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
			 0);
	assert_int_equal(write8(2, 0), 0); /* is not begun */
	a.dev->ops->query_qp(a.dev, a.qp, &got, IBV_QP_STATE, NULL);
	assert_int_equal(got.qp_state, IBV_QPS_SQD);
	assert_int_equal(got.sq_draining, 1);
	assert_int_equal(rig_recv(&b, 10, b.buf + 64, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_async(&a, IBV_EVENT_SQ_DRAINED);
	assert_true(rig_quiet(&a));
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(
		a.dev->ops->modify_qp(a.dev, a.qp, &attr, IBV_QP_STATE), 0);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
}

/* IBA table 45: doubled at every other code from 0.02 and 0.03 ms on; the
 * longest has code 0. */
static void test_rnr_table(void **state)
{
	unsigned i;

	assert_int_equal(dev_rnr_ns(1), 10000);
	assert_int_equal(dev_rnr_ns(2), 20000);
	assert_int_equal(dev_rnr_ns(3), 30000);
	for (i = 4; i < 32; i++)
		assert_int_equal(dev_rnr_ns(i), 2 * dev_rnr_ns(i - 2));
	assert_int_equal(dev_rnr_ns(0), 655360000);
	assert_int_equal(dev_rnr_ns(0), 2 * dev_rnr_ns(30));
}

#define EACH(f) cmocka_unit_test_prestate_setup_teardown(f, both, both_down, o)
#define ALONE(f) cmocka_unit_test_prestate_setup_teardown(f, NULL, both_down, o)

static int run(struct rig_opts *o)
{
	static struct rig_opts soon;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rnr_table),
		EACH(test_send_first),
		EACH(test_answer_later),
		EACH(test_order),
		EACH(test_full),
		EACH(test_peer_leaves),
		EACH(test_sqd),
		ALONE(test_before_rtr),
		cmocka_unit_test_prestate_setup_teardown(
			test_rnr_exceeded, both, both_down, &soon),
		cmocka_unit_test_prestate_setup_teardown(test_never_rtr, NULL,
							 both_down, &soon),
		cmocka_unit_test_prestate_setup_teardown(test_nobody, NULL,
							 both_down, &soon),
		cmocka_unit_test_prestate_setup_teardown(test_wrong_psn, NULL,
							 both_down, &soon),
	};

	soon = *o;
	soon.qp = (struct dev_qp_opts){.timeout = 8,
				       .retry_cnt = 1,
				       .rnr_retry = 1,
				       .min_rnr_timer = 1};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	struct rig_opts shared = {0};
	struct rig_opts single = {.flags = DEV_QP_SINGLE_THREADED};

	return run(&shared) + run(&single);
}
