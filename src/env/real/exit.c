/* SPDX-License-Identifier: MIT */
/*
 * exit.c - functions that run when a POSIX thread ends: the destructor of
 * one key for the whole process.
 *
 * Not one key per environment: glibc may call a destructor after
 * pthread_key_delete() has returned, on memory of an environment that is gone;
 * and a process has only 1,024 keys. The key's value is the thread's own
 * record, and its destructor frees it. The library is never unloaded (-z
 * nodelete), so the destructor exists when the last thread ends.
 *
 * Invariants, under the lock: a LINKED hook is in the list of one living
 * thread. A hook that RUNS is in no list, and its thread is inside the
 * destructor. After fn the destructor touches the hook once more, under the
 * lock; a thread that waits for that may free the hook.
 *
 * If a thread uses the library in a destructor of its own, after ours, ours
 * runs once more (PTHREAD_DESTRUCTOR_ITERATIONS: at most four rounds).
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "env/real/real.h"

enum {
	IDLE,
	LINKED,
	RUNS
};

struct record {
	struct list_node hooks;
	pid_t pid;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_err;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_run = PTHREAD_COND_INITIALIZER;

static void run(struct env_exit *x)
{
	list_del(&x->link);
	x->state = RUNS;
	pthread_mutex_unlock(&lock);
	x->fn(x);
	pthread_mutex_lock(&lock);
	x->state = IDLE;
	pthread_cond_broadcast(&has_run);
}

static void thread_ends(void *arg)
{
	struct record *rec = arg;

	/* In a forked child the hooks are the parent's. */
	if (rec->pid == getpid()) {
		pthread_mutex_lock(&lock);
		while (!list_empty(&rec->hooks))
			run(container_of(rec->hooks.next, struct env_exit,
					 link));
		pthread_mutex_unlock(&lock);
	}
	free(rec);
}

static void fork_lock(void)
{
	pthread_mutex_lock(&lock);
}

static void fork_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static void key_make(void)
{
	key_err = -pthread_key_create(&key, thread_ends);
	/* A forked child may open contexts of its own. */
	if (!key_err)
		key_err = -pthread_atfork(fork_lock, fork_unlock, fork_unlock);
}

static void record_init(struct record *rec)
{
	list_init(&rec->hooks);
	rec->pid = getpid();
}

static int record_get(struct record **out)
{
	struct record *rec;

	pthread_once(&once, key_make);
	if (key_err)
		return key_err;
	rec = pthread_getspecific(key);
	if (!rec) {
		rec = calloc(1, sizeof(*rec));
		if (!rec)
			return -ENOMEM;
		record_init(rec);
		if (pthread_setspecific(key, rec)) {
			free(rec);
			return -ENOMEM;
		}
	}
	if (rec->pid != getpid())
		record_init(rec); /* forked: the parent's */
	*out = rec;
	return 0;
}

/* The caller holds the lock. */
static void wait_run(struct env_exit *x)
{
	int old;

	/* Waiting on a condition is a cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	while (x->state == RUNS)
		pthread_cond_wait(&has_run, &lock);
	pthread_setcancelstate(old, NULL);
}

int real_thread_on_exit(struct skein_env *env, struct env_exit *x)
{
	struct record *rec;
	int rc = record_get(&rec);

	if (rc)
		return rc;
	pthread_mutex_lock(&lock);
	/* The thread of the last hook may still be on its way out of fn. */
	wait_run(x);
	skein_assert(x->state == IDLE);
	x->state = LINKED;
	list_add_tail(&rec->hooks, &x->link);
	pthread_mutex_unlock(&lock);
	return 0;
}

void real_thread_off_exit(struct skein_env *env, struct env_exit *x)
{
	pthread_mutex_lock(&lock);
	if (x->state == LINKED) {
		list_del(&x->link);
		x->state = IDLE;
	}
	wait_run(x);
	pthread_mutex_unlock(&lock);
}
