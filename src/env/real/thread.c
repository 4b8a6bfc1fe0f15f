/* SPDX-License-Identifier: MIT */
/*
 * thread.c - POSIX threads and mutexes behind env.h. The library's threads
 * run with every signal blocked: the application's handlers run on the
 * application's threads.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "env/real/real.h"

struct env_thread {
	pthread_t id;
	void (*fn)(void *arg);
	void *arg;
	char name[16];
};

static void *thread_main(void *arg)
{
	struct env_thread *thread = arg;

	pthread_setname_np(pthread_self(), thread->name);
	thread->fn(thread->arg);
	return NULL;
}

int real_thread_start(struct skein_env *env, const char *name,
		      void (*fn)(void *arg), void *arg,
		      struct env_thread **thread)
{
	struct env_thread *t = env_alloc(env, sizeof(*t));
	sigset_t all, old;
	int rc;

	if (!t)
		return -ENOMEM;
	t->fn = fn;
	t->arg = arg;
	snprintf(t->name, sizeof(t->name), "%s", name);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&t->id, NULL, thread_main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		env_free(env, t);
		return -rc;
	}
	*thread = t;
	return 0;
}

void real_thread_join(struct skein_env *env, struct env_thread *thread)
{
	int rc = pthread_join(thread->id, NULL);

	skein_assert(rc == 0);
	env_free(env, thread);
}

void real_yield(struct skein_env *env)
{
	(void)env;
	sched_yield();
}

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(struct env_mutex),
	       "a pthread mutex fits into env_mutex");

static pthread_mutex_t *mutex_of(struct env_mutex *m)
{
	return (pthread_mutex_t *)(void *)m->opaque;
}

void real_mutex_init(struct skein_env *env, struct env_mutex *m)
{
	int rc = pthread_mutex_init(mutex_of(m), NULL);

	(void)env;
	skein_assert(rc == 0);
}

void real_mutex_fini(struct skein_env *env, struct env_mutex *m)
{
	int rc = pthread_mutex_destroy(mutex_of(m));

	(void)env;
	skein_assert(rc == 0);
}

void real_mutex_lock(struct skein_env *env, struct env_mutex *m)
{
	int rc = pthread_mutex_lock(mutex_of(m));

	(void)env;
	skein_assert(rc == 0);
}

void real_mutex_unlock(struct skein_env *env, struct env_mutex *m)
{
	int rc = pthread_mutex_unlock(mutex_of(m));

	(void)env;
	skein_assert(rc == 0);
}
