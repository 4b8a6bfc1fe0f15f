/* SPDX-License-Identifier: MIT */
/*
 * real.h - the pieces of the real environment, private to src/env/real.
 */
#ifndef SKEIN_ENV_REAL_REAL_H
#define SKEIN_ENV_REAL_REAL_H

#include <stdatomic.h>

#include "env/env.h"

/* What the system does when a page of reserved memory is used first. */
enum real_commit {
	REAL_COMMIT_UNKNOWN,
	REAL_COMMIT_MAKES_IT,
	REAL_COMMIT_MAY_REFUSE,
};

struct real_env {
	/* must be first: a struct skein_env of ours is a struct real_env */
	struct skein_env env;
	atomic_int spinners; /* waiters in ENV_WAIT_SPIN */
	atomic_bool spin_warned;
	/* epoll_pwait2() is missing (old kernel, seccomp, valgrind). */
	atomic_bool no_pwait2;
	/* the log line about missing huge pages has been written */
	atomic_bool huge_logged;
	/* enum real_commit, once it was asked */
	atomic_int commit;
};

static inline struct real_env *real_env_of(struct skein_env *env)
{
	return (struct real_env *)(void *)env;
}

/* thread.c */
int real_thread_start(struct skein_env *env, const char *name,
		      void (*fn)(void *arg), void *arg,
		      struct env_thread **thread);
void real_thread_join(struct skein_env *env, struct env_thread *thread);
void real_yield(struct skein_env *env);
void real_mutex_init(struct skein_env *env, struct env_mutex *m);
void real_mutex_fini(struct skein_env *env, struct env_mutex *m);
void real_mutex_lock(struct skein_env *env, struct env_mutex *m);
void real_mutex_unlock(struct skein_env *env, struct env_mutex *m);

/* exit.c */
int real_thread_on_exit(struct skein_env *env, struct env_exit *x);
void real_thread_off_exit(struct skein_env *env, struct env_exit *x);

/* wait.c */
int real_waiter_new(struct skein_env *env, enum env_wait_mode mode, bool second,
		    struct env_waiter **w);
void real_waiter_free(struct env_waiter *w);
bool real_idle_yields(struct env_waiter *w, unsigned round);
enum env_idle_verdict real_idle(struct env_waiter *w, unsigned round);
bool real_core_wanted(struct env_waiter *w);
void real_waiter_arm(struct env_waiter *w);
void real_waiter_disarm(struct env_waiter *w);
int real_waiter_sleep(struct env_waiter *w, uint64_t deadline_ns);
void real_waiter_wake(struct env_waiter *w);
int real_waiter_watch(struct env_waiter *w, int fd, uint32_t events);
int real_waiter_unwatch(struct env_waiter *w, int fd);
int real_waiter_ready(struct env_waiter *w);
int real_waiter_ready_fds(struct env_waiter *w, int *fds, int max);
bool real_waiter_saw(const struct env_waiter *w, int fd);
int real_waiter_fd(struct env_waiter *w);

/* mem.c */
int real_mem_alloc(struct skein_env *env, const char *name, size_t len, int *fd,
		   void **addr);
int real_mem_reserve(struct skein_env *env, const char *name, size_t len,
		     int *fd, void **addr);
bool real_mem_on_demand(struct skein_env *env);
int real_mem_fill(struct skein_env *env, int fd, void *addr, size_t off,
		  size_t len);
void real_mem_drop(struct skein_env *env, int fd, size_t off, size_t len);
void real_mem_free(struct skein_env *env, int fd, void *addr, size_t len);

/* sock.c */
int real_resolve(struct skein_env *env, const char *host, const char *port,
		 bool passive, struct sockaddr_storage *addrs, int max, int *n);
int real_sock_listen(struct skein_env *env, const struct sockaddr_storage *addr,
		     int backlog, int *fd);
int real_sock_connect(struct skein_env *env,
		      const struct sockaddr_storage *addr, int *fd);
int real_sock_error(struct skein_env *env, int fd);
int real_sock_accept(struct skein_env *env, int fd,
		     struct sockaddr_storage *peer, int *conn_fd);
int real_sock_name(struct skein_env *env, int fd,
		   struct sockaddr_storage *local);
ssize_t real_sock_send(struct skein_env *env, int fd, const void *buf,
		       size_t len);
ssize_t real_sock_recv(struct skein_env *env, int fd, void *buf, size_t len);
void real_sock_close(struct skein_env *env, int fd);

#endif
