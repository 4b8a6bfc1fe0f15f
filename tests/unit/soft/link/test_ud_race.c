/* SPDX-License-Identifier: MIT */
/*
 * UD QPs of the link while their owner works on them: one thread changes the
 * Q_Key and posts receives, one polls (and so takes in packets), the control
 * thread takes in the others. One peer sends by the link, and one claims the
 * same receives through its mapping. ThreadSanitizer looks on; all else that is
 * asked for is that the QP still takes messages of both at the end, and that both
 * say what kind of packet they were.
 */
#include "ud_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define ROUNDS 300u
#define LEN 64u
#define QKEY_OTHER 0x4321u
#define QKEYS (IBV_QP_STATE | IBV_QP_QKEY)

static struct ud_end a, by_link, mapped; /* these two send to a */
static _Atomic bool over;
static _Atomic uint32_t taken[2]; /* by the link; through the mapping */
static _Atomic uint32_t other_sl;
static uint32_t posted;

static void *sends(void *arg)
{
	struct ud_end *e = arg;
	struct ibv_wc wc;

	while (!atomic_load(&over)) {
		ud_send(e, &a, 7, e->r.buf, 8, IBV_SEND_INLINE);
		while (ibv_poll_cq(e->r.cq, 1, &wc) == 0)
			sched_yield();
	}
	return arg;
}

static void *polls(void *arg)
{
	struct ibv_wc wc;

	while (!atomic_load(&over)) {
		if (ibv_poll_cq(a.r.cq, 1, &wc) == 1) {
			atomic_fetch_add(
				&taken[wc.src_qp == mapped.r.qp->qp_num], 1);
			/* UDP over IPv4 */
			atomic_fetch_add(&other_sl, wc.sl != 8 + 2);
		}
		sched_yield();
	}
	return arg;
}

static uint32_t taken_all(void)
{
	return atomic_load(&taken[0]) + atomic_load(&taken[1]);
}

static void qkey_set(uint32_t qkey)
{
	struct ibv_qp_attr at = {.qp_state = IBV_QPS_RTS, .qkey = qkey};

	assert_int_equal(a.r.dev->ops->modify_qp(a.r.dev, a.r.qp, &at, QKEYS),
			 0);
}

static void refill(void)
{
	for (; posted - taken_all() < RIG_WR; posted++)
		ud_recv(&a, posted, posted % RIG_WR * LEN, LEN);
}

static void work(void)
{
	for (uint32_t i = 0; i < ROUNDS; i++) {
		qkey_set(i % 8 ? UD_QKEY : QKEY_OTHER);
		refill();
		sched_yield();
	}
	qkey_set(UD_QKEY);
}

static bool more_of_both(void *arg)
{
	const uint32_t *was = arg;

	refill();
	return atomic_load(&taken[0]) != was[0] &&
	       atomic_load(&taken[1]) != was[1];
}

static void run(void (*open)(struct ud_end *e, const struct rig_opts *o))
{
	pthread_t thread[3];
	uint32_t was[2];

	atomic_store(&over, false);
	atomic_store(&taken[0], 0);
	atomic_store(&taken[1], 0);
	posted = 0;
	setenv("SKEIN_LINK", "udp", 1);
	open(&a, NULL);
	ud_open(&by_link, NULL);
	unsetenv("SKEIN_LINK");
	ud_open(&mapped, NULL);
	assert_int_equal(pthread_create(&thread[0], NULL, sends, &by_link), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, sends, &mapped), 0);
	assert_int_equal(pthread_create(&thread[2], NULL, polls, NULL), 0);
	work();
	was[0] = atomic_load(&taken[0]);
	was[1] = atomic_load(&taken[1]);
	rig_until(more_of_both, was);
	atomic_store(&over, true);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(atomic_load(&other_sl), 0);
	ud_close(&mapped);
	ud_close(&by_link);
	ud_close(&a);
}

static void test_own_queue(void **state)
{
	run(ud_open);
}

static void test_srq(void **state)
{
	run(ud_open_srq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_queue),
		cmocka_unit_test(test_srq),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
