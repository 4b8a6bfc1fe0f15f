/* SPDX-License-Identifier: MIT */
/*
 * A completion channel is readable only when an event is there: a program that
 * polls it and takes EAGAIN of get_cq_event() as an error never sees one, and
 * never sleeps on an event. Several threads ring one CQ; a thread stops between
 * the event and its count, and goes on or not; a CQ goes with its events.
 */
#include "rig.h"

#include "dev/soft/cq/cq.h"
#include "unit/patience.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

#define ROUNDS 100000
#define RINGERS 3

static struct rig_end a, b;

static bool readable(int ms)
{
	struct pollfd p = {.fd = b.ch->fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static struct soft_cq *cq(void)
{
	return soft_cq_of(b.cq);
}

/* Waits for the channel; what makes it readable is an event. */
static void event(void)
{
	struct ibv_cq *got;

	patience_met(readable(patience_ms(20)), 20, "an event");
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &got), 0);
	assert_ptr_equal(got, b.cq);
	b.dev->ops->ack_cq_events(b.dev, got, 1);
}

static void message(void)
{
	struct ibv_wc wc;

	assert_int_equal(rig_recv(&b, 1, b.buf, 8), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_wait(&b, &wc);
}

/* What a thread has done that stops before it adds its count: the event. */
static uint32_t fire(void)
{
	uint32_t event;

	assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
	assert_int_equal(soft_bell_claim(cq()->shm, soft_bell_life(cq()->shm),
					 true, &event),
			 SOFT_BELL_OURS);
	return event;
}

/* Two stop, one after the other. The sender of the next message rings, too, and
 * the sleeper hears of it. */
static void test_stops(void **state)
{
	uint32_t first, second;
	int i;

	rig_pair(&a, &b, NULL);
	message();
	for (i = 0; i < 40; i++) {
		first = fire();
		message();
		event();
		second = fire();
		message();
		event();
		/* They go on: what they add are events, too. */
		soft_bell_count(cq()->shm, b.ch->fd, first);
		event();
		soft_bell_count(cq()->shm, b.ch->fd, second);
		event();
		assert_false(readable(0));
		assert_int_equal(cq()->spares_taken, 2 * i + 2);
		/* All is as before: one event for one arming. */
		assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
		message();
		event();
		assert_false(readable(0));
		message();
		assert_false(readable(0));
	}
	rig_unpair(&a, &b);
}

/* They die: each event gets its count. */
static void test_deaths(void **state)
{
	int i;

	rig_pair(&a, &b, NULL);
	message();
	for (i = 0; i < 70; i++) {
		fire();
		message();
		event();
		assert_false(readable(0));
	}
	rig_unpair(&a, &b);
}

/* It goes on 32 events later: the CQ is returned for each count that is there,
 * and a sleeper hears of the next message. */
static void test_goes_on_late(void **state)
{
	uint32_t first;
	int i;

	rig_pair(&a, &b, NULL);
	message();
	first = fire();
	message();
	event();
	for (i = 0; i < 40; i++) {
		assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
		message();
		event();
	}
	soft_bell_count(cq()->shm, b.ch->fd, first);
	event();
	for (i = 0; i < 40; i++) {
		assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
		message();
		event();
		while (readable(0))
			event();
	}
	assert_false(readable(0));
	rig_unpair(&a, &b);
}

/* It is late, no more: nothing is made up for it. */
static void test_late(void **state)
{
	uint32_t no;

	rig_pair(&a, &b, NULL);
	message();
	no = fire();
	assert_false(readable(0));
	message();
	soft_bell_count(cq()->shm, b.ch->fd, no);
	event();
	while (readable(0)) /* a slow machine: it counts as stopped */
		event();
	assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
	message();
	event();
	assert_false(readable(0));
	rig_unpair(&a, &b);
}

/* It has added its count and has not said so; another one rings. */
static void test_unsaid(void **state)
{
	uint32_t no;
	int i;

	rig_pair(&a, &b, NULL);
	message();
	for (i = 0; i < 40; i++) {
		no = fire();
		env_bell(b.ch->fd);
		message();
		event();
		while (readable(0))
			event();
		soft_bell_said(cq()->shm, no);
	}
	assert_false(readable(0));
	rig_unpair(&a, &b);
}

/* An event of an arming before is owed behind the next arming. */
static void test_owed(void **state)
{
	rig_pair(&a, &b, NULL);
	message();
	assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
	message();
	assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
	event();
	assert_false(readable(0));
	message();
	event();
	assert_false(readable(0));
	rig_unpair(&a, &b);
}

/* The events of a CQ go with it: the channel, which stays, is silent. */
static void test_destroyed(void **state)
{
	struct ibv_cq *other, *got;

	rig_pair(&a, &b, NULL);
	assert_int_equal(b.dev->ops->create_cq(b.dev, 8, NULL, b.ch, &other),
			 0);
	ibv_req_notify_cq(other, 0);
	soft_cq_fire(soft_cq_of(other));
	ibv_req_notify_cq(other, 0);
	soft_cq_fire(soft_cq_of(other));
	ibv_req_notify_cq(b.cq, 0);
	message();
	assert_int_equal(b.dev->ops->destroy_cq(b.dev, other), 0);
	event();
	assert_false(readable(0));
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &got), -EAGAIN);
	rig_unpair(&a, &b);
}

/* A CQ is destroyed, and its page used again, before the thread that has added a
 * count has said so. Nothing is made up for the new CQ. */
static void test_used_again(void **state)
{
	struct ibv_cq *other, *got;
	struct shm_cq *page;
	uint32_t no, late;
	int i;

	rig_pair(&a, &b, NULL);
	message();
	assert_int_equal(b.dev->ops->create_cq(b.dev, 8, NULL, b.ch, &other),
			 0);
	page = soft_cq_of(other)->shm;
	ibv_req_notify_cq(other, 0);
	assert_int_equal(soft_bell_claim(page, soft_bell_life(page), true,
					 &late),
			 SOFT_BELL_OURS);
	env_bell(b.ch->fd);
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &got), 0);
	assert_ptr_equal(got, other);
	b.dev->ops->ack_cq_events(b.dev, got, 1);
	assert_int_equal(b.dev->ops->destroy_cq(b.dev, other), 0);
	assert_int_equal(b.dev->ops->create_cq(b.dev, 8, NULL, b.ch, &other),
			 0);
	assert_ptr_equal(soft_cq_of(other)->shm, page);
	/* The control thread looks at all CQs, before it is said and behind. */
	for (i = 0; i < 4; i++) {
		no = fire();
		message();
		event();
		soft_bell_count(cq()->shm, b.ch->fd, no);
		event();
		if (i == 1)
			soft_bell_said(page, late);
	}
	assert_false(readable(0));
	assert_int_equal(b.dev->ops->destroy_cq(b.dev, other), 0);
	rig_unpair(&a, &b);
}

/* A thread has completed a receive and not rung yet; its owner destroys the CQ and
 * makes another one there, on another channel. The thread takes no event of it.
 */
static void test_rings_late(void **state)
{
	struct ibv_comp_channel *first;
	struct ibv_cq *other, *got;
	struct shm_cq *page;
	uint64_t life;
	uint32_t no;
	int i;

	rig_pair(&a, &b, NULL);
	assert_int_equal(b.dev->ops->create_comp_channel(b.dev, &first), 0);
	for (i = 0; i < 40; i++) {
		assert_int_equal(b.dev->ops->create_cq(b.dev, 8, NULL, first,
						       &other),
				 0);
		page = soft_cq_of(other)->shm;
		life = soft_bell_life(page);
		if (i % 2) /* it goes while it is armed */
			ibv_req_notify_cq(other, 0);
		assert_int_equal(b.dev->ops->destroy_cq(b.dev, other), 0);
		assert_false(soft_bell_ring(page, first->fd, life, true));
		assert_int_equal(
			b.dev->ops->create_cq(b.dev, 8, NULL, b.ch, &other), 0);
		assert_ptr_equal(soft_cq_of(other)->shm, page);
		ibv_req_notify_cq(other, 0);
		assert_false(soft_bell_ring(page, first->fd, life, true));
		assert_int_equal(b.dev->ops->get_cq_event(b.dev, first, &got),
				 -EAGAIN);
		assert_false(readable(0));
		soft_cq_fire(soft_cq_of(other));
		assert_true(readable(0));
		assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &got),
				 0);
		assert_ptr_equal(got, other);
		b.dev->ops->ack_cq_events(b.dev, got, 1);
		/* Nor what is under way there. */
		ibv_req_notify_cq(other, 0);
		assert_int_equal(soft_bell_claim(page, soft_bell_life(page),
						 true, &no),
				 SOFT_BELL_OURS);
		assert_false(soft_bell_ring(page, first->fd, life, true));
		soft_bell_count(page, b.ch->fd, no);
		assert_int_equal(b.dev->ops->destroy_cq(b.dev, other), 0);
		assert_false(readable(0));
	}
	assert_int_equal(b.dev->ops->destroy_comp_channel(b.dev, first), 0);
	rig_unpair(&a, &b);
}

/* --- many at once --------------------------------------------------------- */

static _Atomic bool over;

static void *ringer(void *arg)
{
	while (!atomic_load(&over)) {
		if (soft_bell_ring(cq()->shm, b.ch->fd,
				   soft_bell_life(cq()->shm), true))
			soft_bells_ask(cq()->s);
		sched_yield();
	}
	return NULL;
}

static void test_many(void **state)
{
	pthread_t t[RINGERS];
	int i;

	rig_pair(&a, &b, NULL);
	atomic_store(&over, false);
	for (i = 0; i < RINGERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, ringer, NULL), 0);
	for (i = 0; i < ROUNDS; i++) {
		assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
		event();
	}
	atomic_store(&over, true);
	for (i = 0; i < RINGERS; i++)
		pthread_join(t[i], NULL);
	while (readable(0)) /* what was made up for slow ones */
		event();
	rig_unpair(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_deaths),
		cmocka_unit_test(test_goes_on_late),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_unsaid),
		cmocka_unit_test(test_owed),
		cmocka_unit_test(test_destroyed),
		cmocka_unit_test(test_used_again),
		cmocka_unit_test(test_rings_late),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
