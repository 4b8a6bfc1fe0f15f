/* SPDX-License-Identifier: MIT */
/*
 * env.c - calls go to the functions of the environment's table. Allocation and
 * logging are the same in every world and live here.
 *
 * Thread rule: see env.h.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "env/env.h"

#define LOG_LINE_MAX 1024

void env_random(struct skein_env *env, void *buf, size_t len)
{
	env->ops->random(env, buf, len);
}

uint64_t env_random_u64(struct skein_env *env)
{
	uint64_t v;

	env_random(env, &v, sizeof(v));
	return v;
}

static bool alloc_fails(struct skein_env *env)
{
	return env->alloc_fails && env->alloc_fails(env->alloc_arg);
}

void *env_alloc(struct skein_env *env, size_t len)
{
	if (alloc_fails(env))
		return NULL;
	if (env->ops->alloc)
		return env->ops->alloc(env, sizeof(max_align_t), len);
	return calloc(1, len ? len : 1);
}

void *env_alloc_unset(struct skein_env *env, size_t align, size_t len)
{
	skein_assert(align >= sizeof(void *) && !(align & (align - 1)));
	if (len > SIZE_MAX - align || alloc_fails(env))
		return NULL;
	if (env->ops->alloc)
		return env->ops->alloc(env, align, len);
	/* aligned_alloc() wants a multiple of the alignment. */
	return aligned_alloc(align, (len + align) & ~(align - 1));
}

void *env_alloc_aligned(struct skein_env *env, size_t align, size_t len)
{
	void *p = env_alloc_unset(env, align, len);

	if (p)
		memset(p, 0, len);
	return p;
}

void env_free(struct skein_env *env, void *p)
{
	if (env->ops->free)
		env->ops->free(env, p);
	else
		free(p);
}

char *env_strdup(struct skein_env *env, const char *s)
{
	size_t len = strlen(s) + 1;
	char *copy = env_alloc(env, len);

	return copy ? memcpy(copy, s, len) : NULL;
}

void env_log(struct skein_env *env, enum env_log_level level, const char *fmt,
	     ...)
{
	char line[LOG_LINE_MAX];
	va_list ap;
	int cancel;

	if (!env->log || level > env->log_level)
		return;
	/* The caller is in the middle of something: not cancelled here. */
	cancel = env_cancel_off(env);
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	env->log(env->log_arg, level, line);
	env_cancel_back(env, cancel);
}

bool env_log_due(struct env_log_limit *r, uint64_t now_ns, uint32_t *left_out)
{
	if (now_ns < r->due_ns) {
		r->left_out++;
		return false;
	}
	*left_out = r->left_out;
	r->left_out = 0;
	r->due_ns = now_ns + ENV_RARE_NS;
	return true;
}

void env_log_rare(struct skein_env *env, struct env_log_limit *r,
		  enum env_log_level level, const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	uint32_t left_out;
	va_list ap;

	if (!env_log_due(r, env_now_ns(env), &left_out))
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (left_out)
		env_log(env, level, "%s (%u more since the last such line)",
			line, left_out);
	else
		env_log(env, level, "%s", line);
}

int env_thread_start(struct skein_env *env, const char *name,
		     void (*fn)(void *arg), void *arg,
		     struct env_thread **thread)
{
	return env->ops->thread_start(env, name, fn, arg, thread);
}

void env_thread_join(struct skein_env *env, struct env_thread *thread)
{
	env->ops->thread_join(env, thread);
}

int env_thread_on_exit(struct skein_env *env, struct env_exit *x)
{
	return env->ops->thread_on_exit(env, x);
}

void env_thread_off_exit(struct skein_env *env, struct env_exit *x)
{
	env->ops->thread_off_exit(env, x);
}

void env_yield(struct skein_env *env)
{
	env->ops->yield(env);
}

void env_mutex_init(struct skein_env *env, struct env_mutex *m)
{
	env->ops->mutex_init(env, m);
}

void env_mutex_fini(struct skein_env *env, struct env_mutex *m)
{
	env->ops->mutex_fini(env, m);
}

void env_mutex_lock(struct skein_env *env, struct env_mutex *m)
{
	env->ops->mutex_lock(env, m);
}

void env_mutex_unlock(struct skein_env *env, struct env_mutex *m)
{
	env->ops->mutex_unlock(env, m);
}

int env_waiter_new(struct skein_env *env, enum env_wait_mode mode,
		   struct env_waiter **w)
{
	return env->ops->waiter_new(env, mode, false, w);
}

int env_waiter_new_second(struct skein_env *env, enum env_wait_mode mode,
			  struct env_waiter **w)
{
	return env->ops->waiter_new(env, mode, true, w);
}

void env_waiter_free(struct skein_env *env, struct env_waiter *w)
{
	if (w)
		env->ops->waiter_free(w);
}

enum env_idle_verdict env_idle(struct skein_env *env, struct env_waiter *w,
			       unsigned round)
{
	return env->ops->idle(w, round);
}

void env_idle_until(struct skein_env *env, struct env_waiter *w,
		    uint64_t deadline_ns)
{
	if (env->ops->idle_until)
		env->ops->idle_until(w, deadline_ns);
}

bool env_core_wanted(struct skein_env *env, struct env_waiter *w)
{
	return env->ops->core_wanted && env->ops->core_wanted(w);
}

void env_waiter_arm(struct skein_env *env, struct env_waiter *w)
{
	env->ops->waiter_arm(w);
}

void env_waiter_disarm(struct skein_env *env, struct env_waiter *w)
{
	env->ops->waiter_disarm(w);
}

int env_waiter_sleep(struct skein_env *env, struct env_waiter *w,
		     uint64_t deadline_ns)
{
	return env->ops->waiter_sleep(w, deadline_ns);
}

int env_waiter_watch(struct skein_env *env, struct env_waiter *w, int fd,
		     uint32_t events)
{
	return env->ops->waiter_watch(w, fd, events);
}

int env_waiter_unwatch(struct skein_env *env, struct env_waiter *w, int fd)
{
	return env->ops->waiter_unwatch(w, fd);
}

int env_waiter_ready(struct skein_env *env, struct env_waiter *w)
{
	return env->ops->waiter_ready(w);
}

int env_waiter_ready_fds(struct skein_env *env, struct env_waiter *w, int *fds,
			 int max)
{
	return env->ops->waiter_ready_fds(w, fds, max);
}

bool env_waiter_saw(struct skein_env *env, const struct env_waiter *w, int fd)
{
	return !env->ops->waiter_saw || env->ops->waiter_saw(w, fd);
}

int env_waiter_fd(struct skein_env *env, struct env_waiter *w)
{
	return env->ops->waiter_fd(w);
}

static const char *const huge_words[] = {"off", "auto", "on"};

int env_huge_parse(const char *word, enum env_huge *huge)
{
	unsigned i;

	if (!word || !*word)
		word = huge_words[ENV_HUGE_OFF];
	for (i = 0; i <= ENV_HUGE_ON; i++) {
		if (strcmp(word, huge_words[i]) != 0)
			continue;
		*huge = (enum env_huge)i;
		return 0;
	}
	return -EINVAL;
}

const char *env_huge_name(enum env_huge huge)
{
	return huge <= ENV_HUGE_ON ? huge_words[huge] : "unknown";
}

int env_mem_alloc(struct skein_env *env, const char *name, size_t len, int *fd,
		  void **addr)
{
	if (alloc_fails(env))
		return -ENOMEM;
	return env->ops->mem_alloc(env, name, len, fd, addr);
}

int env_mem_reserve(struct skein_env *env, const char *name, size_t len,
		    int *fd, void **addr, size_t *filled)
{
	bool whole = !env->ops->mem_reserve || env->huge != ENV_HUGE_OFF;
	int rc;

	if (alloc_fails(env))
		return -ENOMEM;
	rc = whole ? env->ops->mem_alloc(env, name, len, fd, addr)
		   : env->ops->mem_reserve(env, name, len, fd, addr);
	if (!rc)
		*filled = whole ? len : 0;
	return rc;
}

bool env_mem_on_demand(struct skein_env *env)
{
	return env->ops->mem_on_demand && env->ops->mem_on_demand(env);
}

int env_mem_fill(struct skein_env *env, int fd, void *addr, size_t off,
		 size_t len)
{
	if (alloc_fails(env))
		return -ENOMEM;
	return env->ops->mem_fill(env, fd, addr, off, len);
}

void env_mem_drop(struct skein_env *env, int fd, size_t off, size_t len)
{
	if (env->ops->mem_drop)
		env->ops->mem_drop(env, fd, off, len);
}

void env_mem_free(struct skein_env *env, int fd, void *addr, size_t len)
{
	env->ops->mem_free(env, fd, addr, len);
}

int env_resolve(struct skein_env *env, const char *host, const char *port,
		bool passive, struct sockaddr_storage *addrs, int max, int *n)
{
	return env->ops->resolve(env, host, port, passive, addrs, max, n);
}

int env_sock_listen(struct skein_env *env, const struct sockaddr_storage *addr,
		    int backlog, int *fd)
{
	return env->ops->sock_listen(env, addr, backlog, fd);
}

int env_sock_connect(struct skein_env *env, const struct sockaddr_storage *addr,
		     int *fd)
{
	return env->ops->sock_connect(env, addr, fd);
}

int env_sock_error(struct skein_env *env, int fd)
{
	return env->ops->sock_error(env, fd);
}

int env_sock_accept(struct skein_env *env, int fd,
		    struct sockaddr_storage *peer, int *conn_fd)
{
	return env->ops->sock_accept(env, fd, peer, conn_fd);
}

int env_sock_name(struct skein_env *env, int fd, struct sockaddr_storage *local)
{
	return env->ops->sock_name(env, fd, local);
}

ssize_t env_sock_send(struct skein_env *env, int fd, const void *buf,
		      size_t len)
{
	return env->ops->sock_send(env, fd, buf, len);
}

ssize_t env_sock_recv(struct skein_env *env, int fd, void *buf, size_t len)
{
	return env->ops->sock_recv(env, fd, buf, len);
}

void env_sock_close(struct skein_env *env, int fd)
{
	env->ops->sock_close(env, fd);
}
