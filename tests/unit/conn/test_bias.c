/* SPDX-License-Identifier: MIT */
/*
 * test_bias.c - the bias of the combining queue: who earns it, who takes it back and
 * at what cost, and that its owner and all others exclude each other, with
 * delays at every step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void step(void);
#define TCQ_STEP() step()
#include "../../../src/conn/tcq.c"

#define THREADS 3u

static _Thread_local struct {
	unsigned rnd;
	bool delays;
	unsigned stop_in; /* so many steps from here: says so, and waits */
	sem_t *stopped, *go;
} here;

static void step(void)
{
	if (here.stop_in && --here.stop_in == 0) {
		sem_post(here.stopped);
		sem_wait(here.go);
		return;
	}
	if (!here.delays)
		return;
	switch (rand_r(&here.rnd) % 16) {
	case 0:
		sched_yield();
		break;
	case 1:
	case 2:
		for (unsigned i = rand_r(&here.rnd) % 300; i; i--)
			cpu_pause();
		break;
	}
}

/* Nothing is atomic but what watches: the queue is the lock. */
static struct {
	struct tcq q;
	struct skein_env *env;
	void (*fence)(void);
	struct tcq_node node[THREADS], own;
	uint64_t sent, held, also;
	uint64_t calls[THREADS]; /* each thread's own */
	uint64_t need;		 /* said anew at each turn, or 0 */
	atomic_uint inside, fences;
	sem_t *sending, *go; /* stops the next that sends */
} f;

static void counted_fence(void)
{
	atomic_fetch_add(&f.fences, 1);
	f.fence();
}

static void go_in(void)
{
	assert_int_equal(atomic_fetch_add_explicit(&f.inside, 1,
						   memory_order_relaxed),
			 0);
}

static void go_out(void)
{
	if (f.need)
		f.q.need = f.need;
	f.also++;
	atomic_fetch_sub_explicit(&f.inside, 1, memory_order_relaxed);
}

/* more: who comes meanwhile goes along, as in conn/tx.c. */
static void send_some(struct tcq *q, struct tcq_node *first, unsigned n,
		      bool more)
{
	struct tcq_node *node = first;
	unsigned i = 0;

	go_in();
	if (f.sending) {
		sem_post(f.sending);
		f.sending = NULL;
		sem_wait(f.go);
	}
	while (node) {
		node->result = 0;
		if (++i < n)
			node = tcq_next(node);
		else
			node = more ? tcq_more(q, first) : NULL;
	}
	f.sent += i;
	f.also += i - 1;
	go_out();
}

static void send_all(struct tcq *q, struct tcq_node *first, unsigned n)
{
	send_some(q, first, n, true);
}

static const struct tcq_ops ops = {send_all};

static int setup(void **state)
{
	int rc;

	memset(&f, 0, sizeof(f));
	rc = env_real_new(&f.env);
	if (rc || !env_can_fence_all(f.env))
		return -1;
	f.fence = f.env->fence_all;
	f.env->fence_all = counted_fence;
	tcq_init(&f.q, f.env, &ops, 0);
	for (unsigned i = 0; i < THREADS; i++)
		tcq_node_init(&f.node[i]);
	tcq_node_init(&f.own);
	return 0;
}

static int teardown(void **state)
{
	env_real_free(f.env);
	return 0;
}

static void take(struct tcq_node *n)
{
	tcq_node_bind(n, env_thread_self(f.env));
}

/* As rpc_share_call() does. */
static void call(struct tcq_node *n)
{
	enum tcq_place at = tcq_enter(&f.q, n);

	step();
	if (!tcq_alone(&f.q, n, at)) {
		tcq_go_on(&f.q, n, at);
		return;
	}
	send_some(&f.q, n, 1, false);
	tcq_leave(&f.q, n, at);
}

static void hold(struct tcq_node *n)
{
	tcq_hold(&f.q, n);
	go_in();
	f.held++;
	go_out();
	tcq_release(&f.q, n);
}

static struct tcq_node *owner(void)
{
	return atomic_load(&f.q.bias);
}

/* A turn less where its name was another's before, who was alone last. */
static void earn(struct tcq_node *n)
{
	for (uint64_t i = f.q.need; i && !owner(); i--)
		call(n);
	assert_ptr_equal(owner(), n);
}

/* Alone for TCQ_RUN turns; what its thread holds in between does not count
 * against it, and takes nothing back. */
static void test_earned(void **state)
{
	struct tcq_node *n = &f.node[0];

	take(n);
	for (unsigned i = 0; i < TCQ_RUN; i++) {
		assert_null(owner());
		call(n);
		if (i % 16 == 15 && i < TCQ_RUN - 1)
			hold(&f.own);
	}
	assert_ptr_equal(owner(), n);
	/* The ordinary way too, and a list of one. */
	call(n);
	tcq_submit(&f.q, n);
	hold(&f.own);
	assert_ptr_equal(owner(), n);
	assert_int_equal(f.sent, TCQ_RUN + 2);
	assert_int_equal(f.fences, 0);
	tcq_hold_bare(&f.q, &f.own);
	assert_null(owner());
	tcq_release(&f.q, &f.own);
	assert_int_equal(f.fences, 1);
}

static void *hold_own(void *arg)
{
	hold(arg);
	return NULL;
}

static void in_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, fn, arg), 0);
	pthread_join(t, NULL);
}

/* Not with another thread between, with no thread's node, with a leader that
 * waits for company, or in an environment without the fence. */
static void test_not_earned(void **state)
{
	for (unsigned i = 0; i < 2 * TCQ_RUN; i++)
		call(&f.node[0]);
	assert_null(owner());
	take(&f.node[0]);
	for (unsigned i = 0; i < 4 * TCQ_RUN; i++) {
		if (i % (TCQ_RUN / 2) == 0)
			in_thread(hold_own, &f.own);
		call(&f.node[0]);
	}
	assert_ptr_equal(owner(), NULL);
	assert_int_equal(f.fences, 0);
	f.env->fence_all = NULL;
	tcq_init(&f.q, f.env, &ops, 0);
	for (unsigned i = 0; i < 2 * TCQ_RUN_MAX; i++)
		call(&f.node[0]);
	assert_null(owner());
}

static void *call_once(void *arg)
{
	take(arg);
	call(arg);
	tcq_node_bind(arg, 0);
	return NULL;
}

/* Each revocation doubles what the next bias costs, up to a bound. */
static void test_dearer(void **state)
{
	uint64_t need = TCQ_RUN;

	take(&f.node[0]);
	for (unsigned i = 1; i <= 9; i++) {
		earn(&f.node[0]);
		in_thread(call_once, &f.node[1]);
		assert_null(owner());
		need = need < TCQ_RUN_MAX ? 2 * need : need;
		assert_int_equal(f.q.need, need);
		/* Its second visit costs nothing. */
		in_thread(call_once, &f.node[1]);
		assert_int_equal(f.fences, i);
	}
	assert_int_equal(need, TCQ_RUN_MAX);
}

static void *earn_and_end(void *arg)
{
	take(arg);
	earn(arg);
	tcq_node_bind(arg, 0);
	return NULL;
}

/* An owner that has ended holds nobody up. Its node's next thread is the owner;
 * a thread of the same name with another node is not. */
static void test_ended(void **state)
{
	in_thread(earn_and_end, &f.node[0]);
	assert_ptr_equal(owner(), &f.node[0]);
	take(&f.node[0]);
	call(&f.node[0]);
	assert_int_equal(f.fences, 0);
	tcq_node_bind(&f.node[0], 0);
	take(&f.node[1]);
	hold(&f.own);
	assert_int_equal(f.fences, 1);
	call(&f.node[1]);
	assert_null(owner());
	assert_int_equal(f.fences, 1);
}

struct actor {
	pthread_t thread;
	struct tcq_node *n;
	bool earns, owns; /* goes by its bias after it was stopped */
	unsigned stop_in; /* steps of its call */
	sem_t stopped, go, ended;
};

static void *act(void *arg)
{
	struct actor *a = arg;

	take(a->n);
	if (a->earns)
		earn(a->n);
	here.stopped = &a->stopped;
	here.go = &a->go;
	here.stop_in = a->stop_in;
	call(a->n);
	a->owns = owner() == a->n;
	sem_post(&a->ended);
	return NULL;
}

static void start(struct actor *a, struct tcq_node *n)
{
	a->n = n;
	sem_init(&a->stopped, 0, 0);
	sem_init(&a->go, 0, 0);
	sem_init(&a->ended, 0, 0);
	assert_int_equal(pthread_create(&a->thread, NULL, act, a), 0);
}

static bool has_ended(struct actor *a)
{
	int n;

	sem_getvalue(&a->ended, &n);
	return n > 0;
}

/* Steps of a call by the bias: after the look, after the store, inside, before it
 * lets go. */
enum {
	LOOKED = 1,
	STORED,
	INSIDE,
	LEAVING,
};

static void test_waits_for_owner(void **state)
{
	for (unsigned at = INSIDE; at <= LEAVING; at++) {
		struct actor a = {.earns = true, .stop_in = at}, b = {0};
		unsigned fences = f.fences;

		start(&a, &f.node[0]);
		sem_wait(&a.stopped);
		start(&b, &f.node[1]);
		while (f.fences == fences)
			sched_yield();
		/* It would be through by now, ten times. */
		for (int i = 0; i < 1000; i++)
			sched_yield();
		assert_false(has_ended(&b));
		sem_post(&a.go);
		pthread_join(a.thread, NULL);
		pthread_join(b.thread, NULL);
		assert_null(owner());
		f.q.need = TCQ_RUN;
	}
}

/* An owner that was stopped before its store finds its bias gone, and goes the
 * ordinary way, whoever owns it meanwhile; it is not waited for. What it does
 * does not let a third one in beside the new owner. */
static void test_stale_owner(void **state)
{
	struct actor a = {.earns = true, .stop_in = LOOKED};
	struct actor b = {.stop_in = INSIDE}, c = {0};

	start(&a, &f.node[0]);
	sem_wait(&a.stopped);
	take(&f.node[1]);
	call(&f.node[1]);
	assert_null(owner());
	assert_int_equal(f.fences, 1);
	/* All of b's by hand: earned here, used there. */
	earn(&f.node[1]);
	start(&b, &f.node[1]);
	sem_wait(&b.stopped);
	assert_int_equal(f.fences, 1);
	sem_post(&a.go);
	start(&c, &f.node[2]);
	while (f.fences == 1)
		sched_yield();
	for (int i = 0; i < 1000; i++)
		sched_yield();
	assert_false(has_ended(&a) || has_ended(&c));
	sem_post(&b.go);
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
	pthread_join(c.thread, NULL);
	assert_null(owner());
}

/* Stopped behind its store it is waited for, and lets go. */
static void test_backs_out(void **state)
{
	struct actor a = {.earns = true, .stop_in = STORED}, b = {0};

	start(&a, &f.node[0]);
	sem_wait(&a.stopped);
	start(&b, &f.node[1]);
	while (f.fences == 0)
		sched_yield();
	assert_ptr_equal(owner(), NULL);
	assert_false(has_ended(&b));
	sem_post(&a.go);
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
	assert_false(a.owns);
}

/* --- threads that come and go -------------------------------------------- */

static uint32_t rounds;
static bool delays;

static void *come_and_go(void *arg)
{
	struct tcq_node *n = arg;
	unsigned me = (unsigned)(n - f.node);

	here.rnd = me + 1;
	here.delays = delays;
	for (uint32_t i = 0; i < rounds; i++) {
		/* A thread that ends between, and one that begins. */
		take(n);
		for (unsigned k = 1 + (unsigned)rand_r(&here.rnd) % 12; k;
		     k--, f.calls[me]++)
			if (k % 4)
				call(n);
			else
				tcq_submit(&f.q, n);
		/* The engine's owner, which is one of them. */
		if (me == 0)
			hold(&f.own);
		tcq_node_bind(n, 0);
		for (unsigned k = (unsigned)rand_r(&here.rnd) % 400; k; k--)
			cpu_pause();
		if (rand_r(&here.rnd) % 8 == 0)
			sched_yield();
	}
	return NULL;
}

static void run_rounds(uint64_t need)
{
	pthread_t t[THREADS];

	f.need = f.q.need = need;
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, come_and_go,
						&f.node[i]),
				 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(f.sent, f.calls[0] + f.calls[1] + f.calls[2]);
	assert_int_equal(f.held, rounds);
	assert_int_equal(f.also, f.sent + f.held);
	print_message("need %u: %llu sent, %u taken back\n", (unsigned)need,
		      (unsigned long long)f.sent, f.fences);
	/* It was worth the while. */
	assert_true(f.fences > rounds / 50);
}

static void test_rounds(void **state)
{
	rounds = 20000;
	delays = false;
	run_rounds(2);
}

static void test_rounds_delayed(void **state)
{
	rounds = 4000;
	delays = true;
	run_rounds(3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
		T(test_earned),		 T(test_not_earned),
		T(test_dearer),		 T(test_ended),
		T(test_waits_for_owner), T(test_stale_owner),
		T(test_backs_out),	 T(test_rounds),
		T(test_rounds_delayed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
