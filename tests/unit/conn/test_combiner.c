/* SPDX-License-Identifier: MIT */
/*
 * test_combiner.c - the thread combining queue, with delays at each of its steps:
 * every request is sent once, in its thread's order, by one leader at a time,
 * whole; and nobody waits for a thread that has not linked its node yet.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>

static void step(void);
#define COMBINER_STEP() step()
#include "../../../src/conn/handle/combiner.c"

#define THREADS 8u
#define LONG 1000u

/* What a thread does between two steps of the queue. */
static _Thread_local struct {
	unsigned rnd;
	bool delays;
	bool alone;	/* sends its own node, without the queue's list */
	sem_t *stop_at; /* once: says that it stops there, and waits */
	sem_t *go;
} here;

static void step(void)
{
	sem_t *at = here.stop_at;

	if (at) {
		here.stop_at = NULL;
		sem_post(at);
		sem_wait(here.go);
		return;
	}
	if (!here.delays)
		return;
	switch (rand_r(&here.rnd) % 8) {
	case 0:
		sched_yield();
		break;
	case 1:
		for (unsigned i = rand_r(&here.rnd) % 500; i; i--)
			cpu_pause();
		break;
	}
}

struct body {
	uint32_t thread, seq;
	unsigned char fill[LONG - 8];
};

static void body_make(struct body *b, uint32_t thread, uint32_t seq)
{
	b->thread = thread;
	b->seq = seq;
	memset(b->fill, (int)(thread * 31 + seq), sizeof(b->fill));
}

struct fixture {
	struct combiner q;
	struct skein_env *env;
	atomic_uint inside;
	uint32_t next[THREADS]; /* the sequence that must come */
	uint64_t messages, requests, largest, holds;
	unsigned fullest;      /* message, by what its nodes count */
	sem_t *sending, *sent; /* stops the first message on its way */
	bool more; /* leaders take along who comes while they send */
};

static struct fixture f;

static int setup(void **state)
{
	memset(&f, 0, sizeof(f));
	return env_real_new(&f.env);
}

static int teardown(void **state)
{
	env_real_free(f.env);
	return 0;
}

static void arrived(const unsigned char *at, uint32_t len)
{
	struct body want;
	uint32_t id[2];

	memcpy(id, at, sizeof(id));
	assert_in_range(id[0], 0, THREADS - 1);
	assert_int_equal(id[1], f.next[id[0]]);
	f.next[id[0]]++;
	body_make(&want, id[0], id[1]);
	assert_memory_equal(at, &want, len);
}

/* One that came meanwhile. */
static struct combiner_node *more(struct combiner *q,
				  struct combiner_node *first)
{
	return f.more && !here.alone ? combiner_more(q, first) : NULL;
}

/* As a leader does: places for all, its own copies, then it looks that they
 * are there. Nothing here is atomic: the queue is the lock. */
static void send_all(struct combiner *q, struct combiner_node *first,
		     unsigned n)
{
	static unsigned char ring[COMBINER_BOUND][LONG];
	struct combiner_node *node = first;
	unsigned i, calls = 0;

	assert_int_equal(atomic_fetch_add(&f.inside, 1), 0);
	if (f.sending) {
		sem_post(f.sending);
		f.sending = NULL;
		sem_wait(f.sent);
	}
	for (i = 0; node;
	     node = ++i < n ? combiner_next(node) : more(q, first)) {
		calls += node->requests;
		if (node->len <= COMBINER_INLINE)
			memcpy(ring[i], node->bytes, node->len);
		else if (node == first)
			memcpy(ring[i], node->payload, node->len);
		else
			combiner_offer(node, ring[i]);
		step();
	}
	n = i;
	assert_in_range(calls, 1, q->bound);
	if (calls > f.fullest)
		f.fullest = calls;
	for (i = 0, node = first; i < n;
	     i++, node = i < n ? combiner_next(node) : NULL) {
		if (node->len > COMBINER_INLINE && node != first)
			combiner_settle(q, node);
		arrived(ring[i], node->len);
		node->result = -(int)(node->len % 7);
	}
	f.messages++;
	f.requests += n;
	if (n > f.largest)
		f.largest = n;
	assert_int_equal(atomic_fetch_sub(&f.inside, 1), 1);
}

static const struct combiner_ops ops = {send_all};

/* As combiner_submit(); a thread that is alone sends its own node, no other. */
static int submit_alone(struct combiner_node *n)
{
	enum combiner_place at = combiner_enter(&f.q, n);

	step();
	if (!combiner_alone(&f.q, n, at))
		return combiner_go_on(&f.q, n, at);
	step();
	here.alone = true;
	send_all(&f.q, n, 1);
	here.alone = false;
	combiner_leave(&f.q, n);
	return n->result;
}

static void submit(struct combiner_node *n, uint32_t thread, uint32_t seq,
		   uint32_t len)
{
	int rc;

	struct body b;

	body_make(&b, thread, seq);
	n->len = len;
	n->payload = &b;
	if (len <= COMBINER_INLINE)
		memcpy(n->bytes, &b, len);
	rc = seq % 2 ? combiner_submit(&f.q, n) : submit_alone(n);
	assert_int_equal(rc, -(int)(len % 7));
	assert_int_equal(f.next[thread], seq + 1);
}

static void test_alone(void **state)
{
	struct combiner_node n;

	combiner_init(&f.q, f.env, &ops, 0);
	combiner_node_init(&n);
	for (uint32_t i = 0; i < 100; i++)
		submit(&n, 0, i, i % 2 ? 64 : LONG);
	combiner_node_settle(&f.q, &n);
	assert_int_equal(f.messages, 100);
	assert_null(atomic_load(&f.q.tail));
}

/* As the engine's owner does: what the leaders write, and no message. */
static void hold(struct combiner_node *n)
{
	combiner_hold(&f.q, n);
	assert_int_equal(atomic_fetch_add(&f.inside, 1), 0);
	step();
	f.holds++;
	assert_int_equal(atomic_fetch_sub(&f.inside, 1), 1);
	combiner_release(&f.q, n);
}

static uint32_t rounds;
static unsigned most;	 /* requests of a node, or 0: one */
static unsigned holders; /* threads that hold between requests */

static void *storm(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg;
	struct combiner_node n;

	here.rnd = me + 1;
	here.delays = true;
	combiner_node_init(&n);
	for (uint32_t i = 0; i < rounds; i++) {
		if (most)
			n.requests =
				(uint16_t)(1 +
					   (unsigned)rand_r(&here.rnd) % most);
		submit(&n, me, i,
		       8 + (unsigned)rand_r(&here.rnd) % (rand_r(&here.rnd) % 2
								  ? 200
								  : LONG - 8));
		if (me < holders)
			hold(&n);
	}
	combiner_node_settle(&f.q, &n);
	/* freed memory is not written to: the sanitizers and this tell */
	memset(&n, 0x55, sizeof(n));
	return NULL;
}

static void run_storm(unsigned bound)
{
	pthread_t t[THREADS];
	uintptr_t i;

	combiner_init(&f.q, f.env, &ops, bound);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, storm, (void *)i),
				 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(f.requests, THREADS * rounds);
	assert_int_equal(f.holds, holders * rounds);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(f.next[i], rounds);
	assert_null(atomic_load(&f.q.tail));
	print_message("bound %u: %.2f requests a message, %u at most\n", bound,
		      (double)f.requests / (double)f.messages,
		      (unsigned)f.largest);
}

static void test_storm(void **state)
{
	rounds = 2000;
	run_storm(COMBINER_BOUND);
}

/* Leaders look again while they send. */
static void test_storm_more(void **state)
{
	rounds = 2000;
	f.more = true;
	run_storm(COMBINER_BOUND);
}

/* The lead is handed over at every message. */
static void test_bounds(void **state)
{
	rounds = 500;
	for (unsigned bound = 1; bound <= 3; bound++) {
		teardown(NULL);
		setup(NULL);
		f.more = bound % 2;
		run_storm(bound);
		assert_true(f.largest <= bound);
	}
}

/* Some hold the sending side between their requests. */
static void test_holds(void **state)
{
	rounds = 1000;
	holders = 3;
	run_storm(COMBINER_BOUND);
	holders = 0;
}

/* Nodes of several requests each fill a message sooner, and no fuller. */
static void test_several(void **state)
{
	rounds = 1000;
	most = 3;
	holders = 2;
	f.more = true;
	run_storm(4);
	assert_in_range(f.fullest, 2, 4);
	assert_in_range(f.largest, 1, 4);
	most = holders = 0;
}

/* A leader that is told to waits for company, but not for ever. */
static void test_least(void **state)
{
	struct combiner_node n;

	combiner_init(&f.q, f.env, &ops, 0);
	f.q.least = 4;
	combiner_node_init(&n);
	submit(&n, 0, 0, 64);
	assert_int_equal(f.messages, 1);
	combiner_node_settle(&f.q, &n);
}

/* --- schedules ----------------------------------------------------------- */

struct actor {
	pthread_t thread;
	uint32_t me, seq, len;
	sem_t *stop_at, *go;
	sem_t ended;
};

static void *act(void *arg)
{
	struct actor *a = arg;
	struct combiner_node n;

	here.stop_at = a->stop_at;
	here.go = a->go;
	combiner_node_init(&n);
	submit(&n, a->me, a->seq, a->len);
	sem_post(&a->ended);
	combiner_node_settle(&f.q, &n);
	return NULL;
}

static void start(struct actor *a, uint32_t me, uint32_t len)
{
	a->me = me;
	a->len = len;
	sem_init(&a->ended, 0, 0);
	assert_int_equal(pthread_create(&a->thread, NULL, act, a), 0);
}

/* The leader ends although the one behind it has not linked its node yet; that
 * one leads when it goes on. */
static void test_unlinked(void **state)
{
	sem_t sending, sent, stopped, go;
	struct actor a = {0}, b = {.stop_at = &stopped, .go = &go};

	sem_init(&sending, 0, 0);
	sem_init(&sent, 0, 0);
	sem_init(&stopped, 0, 0);
	sem_init(&go, 0, 0);
	combiner_init(&f.q, f.env, &ops, 0);
	f.sending = &sending;
	f.sent = &sent;
	start(&a, 0, 64);
	sem_wait(&sending);
	start(&b, 1, 64);
	sem_wait(&stopped); /* between its swap and its link */
	sem_post(&sent);
	sem_wait(&a.ended);
	assert_int_equal(f.requests, 1);
	sem_post(&go);
	sem_wait(&b.ended);
	assert_int_equal(f.messages, 2);
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
}

static bool linked_behind(struct combiner_node *n)
{
	return atomic_load(&n->next) != NULL;
}

/* What comes while a message is on its way goes together, in one; along with it
 * if its leader looks again. */
static void come_meanwhile(bool look_again)
{
	struct actor a[THREADS] = {0};
	struct combiner_node *tail;
	sem_t sending, sent;
	unsigned i;

	sem_init(&sending, 0, 0);
	sem_init(&sent, 0, 0);
	combiner_init(&f.q, f.env, &ops, THREADS);
	f.sending = &sending;
	f.sent = &sent;
	f.more = look_again;
	/* An odd one goes by the list. */
	a[0].seq = f.next[0] = look_again;
	start(&a[0], 0, 64);
	sem_wait(&sending);
	for (i = 1; i < THREADS; i++) {
		tail = atomic_load(&f.q.tail);
		start(&a[i], i, i % 2 ? LONG : 64);
		while (!linked_behind(tail))
			sched_yield();
	}
	sem_post(&sent);
	for (i = 0; i < THREADS; i++)
		pthread_join(a[i].thread, NULL);
	assert_int_equal(f.messages, look_again ? 1 : 2);
	assert_int_equal(f.largest, THREADS - !look_again);
}

static void test_together(void **state)
{
	come_meanwhile(false);
}

static void test_meanwhile(void **state)
{
	come_meanwhile(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
		T(test_alone),	   T(test_unlinked), T(test_together),
		T(test_storm),	   T(test_bounds),   T(test_holds),
		T(test_several),   T(test_least),    T(test_storm_more),
		T(test_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
