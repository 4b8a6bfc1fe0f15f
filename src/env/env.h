/* SPDX-License-Identifier: MIT */
/*
 * env.h - the one seam between Skein and the world.
 *
 * Time, threads, locks, sleeping and waking, randomness, memory that can be
 * shared, and sockets. Everything in src/ outside env/ and the devices reaches
 * the world through this table and nothing else. So a simulator can put many
 * contexts into one OS thread, in virtual time, from a seed.
 *
 * Thread rule: a struct skein_env may be used from any thread; each object
 * states its own rule. On the per-message path only three functions are called:
 * env_now_ns() (at most once a round), env_idle() (fruitless rounds only) and
 * env_charge() (free in production).
 *
 * Errors: 0 or a negative errno; out-parameters come last and are untouched on
 * failure.
 */
#ifndef SKEIN_ENV_ENV_H
#define SKEIN_ENV_ENV_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/list.h"

#define ENV_NEVER UINT64_MAX /* a deadline that never comes */

struct skein_env;
struct env_waiter;
struct env_thread;

enum env_log_level {
	ENV_LOG_ERROR,
	ENV_LOG_WARN,
	ENV_LOG_INFO,
	ENV_LOG_DEBUG,
};

/* How a waiting thread spends fruitless rounds. */
enum env_wait_mode {
	ENV_WAIT_ADAPTIVE, /* pause, yield, then sleep: the default */
	ENV_WAIT_POLL,	   /* pause, then yield; never sleeps for long */
	ENV_WAIT_SPIN,	   /* pause only; warns when spinners exceed cores */
	ENV_WAIT_EVENT,	   /* sleep as soon as there is no work */
};

/* What env_idle() asks its caller to do. */
enum env_idle_verdict {
	ENV_IDLE_AGAIN, /* look again */
	ENV_IDLE_LATER, /* look again, and read the clock: this took a while */
	ENV_IDLE_SLEEP, /* arm, re-check, and env_waiter_sleep() */
};

/* What large memory that peers may map is made of (env_mem_alloc()). */
enum env_huge {
	ENV_HUGE_OFF,  /* ordinary pages: the default */
	ENV_HUGE_AUTO, /* huge pages where there are some free */
	ENV_HUGE_ON,   /* huge pages, or an error */
};

/* Kinds of work that a model charges for. Production ignores them. */
enum env_cost {
	ENV_COST_LOOK,	  /* a round looks at n places for news */
	ENV_COST_MESSAGE, /* n messages found, or made: what each costs */
	ENV_COST_ENCODE,  /* n requests or answers put into messages */
	ENV_COST_DECODE,  /* n taken out */
	ENV_COST_COPY,	  /* n: bytes */
	ENV_COST_SUM,	  /* n checksums of short messages */
	ENV_COST_HANDLER,
	/* Threads meet at a shared word. The model's time catches up, so each
	 * thread sees what the others did before. */
	ENV_COST_SWAP,
	ENV_COST_PAUSE, /* the same, by a thread that waits for such a word */
};

/* A lock for slow paths. Initialised by env_mutex_init(), never copied. */
struct env_mutex {
	uint64_t opaque[8];
};

/* A function that runs when a thread ends: env_thread_on_exit(). */
struct env_exit {
	void (*fn)(struct env_exit *x);
	struct list_node link; /* env's, as the state is */
	int state;
};

struct env_ops {
	/* clock and cost; charge may be NULL */
	uint64_t (*now_ns)(struct skein_env *env);
	void (*charge)(struct skein_env *env, enum env_cost cost, uint64_t n);
	void (*random)(struct skein_env *env, void *buf, size_t len);
	/* zeroed memory; both NULL: the C library's */
	void *(*alloc)(struct skein_env *env, size_t align, size_t len);
	void (*free)(struct skein_env *env, void *p);

	uint32_t (*pid)(struct skein_env *env);

	/* threads and locks */
	int (*thread_start)(struct skein_env *env, const char *name,
			    void (*fn)(void *arg), void *arg,
			    struct env_thread **thread);
	void (*thread_join)(struct skein_env *env, struct env_thread *thread);
	/* NULL: the POSIX thread */
	uint64_t (*thread_self)(struct skein_env *env);
	int (*thread_on_exit)(struct skein_env *env, struct env_exit *x);
	void (*thread_off_exit)(struct skein_env *env, struct env_exit *x);
	void (*yield)(struct skein_env *env);
	void (*mutex_init)(struct skein_env *env, struct env_mutex *m);
	void (*mutex_fini)(struct skein_env *env, struct env_mutex *m);
	void (*mutex_lock)(struct skein_env *env, struct env_mutex *m);
	void (*mutex_unlock)(struct skein_env *env, struct env_mutex *m);

	/* waiting */
	int (*waiter_new)(struct skein_env *env, enum env_wait_mode mode,
			  bool second, struct env_waiter **w);
	void (*waiter_free)(struct env_waiter *w);
	/* may be NULL: called before idle() where the caller must look again */
	void (*idle_until)(struct env_waiter *w, uint64_t deadline_ns);
	enum env_idle_verdict (*idle)(struct env_waiter *w, unsigned round);
	/* may be NULL: this environment has no such thing */
	bool (*core_wanted)(struct env_waiter *w);
	/* may be NULL: idling never parks */
	bool (*idle_yields)(struct env_waiter *w, unsigned round);
	void (*waiter_arm)(struct env_waiter *w);
	void (*waiter_disarm)(struct env_waiter *w);
	int (*waiter_sleep)(struct env_waiter *w, uint64_t deadline_ns);
	void (*waiter_wake)(struct env_waiter *w);
	int (*waiter_watch)(struct env_waiter *w, int fd, uint32_t events);
	int (*waiter_unwatch)(struct env_waiter *w, int fd);
	int (*waiter_ready)(struct env_waiter *w);
	int (*waiter_ready_fds)(struct env_waiter *w, int *fds, int max);
	/* may be NULL: it is not known */
	bool (*waiter_saw)(const struct env_waiter *w, int fd);
	int (*waiter_fd)(struct env_waiter *w);

	/* shareable memory */
	int (*mem_alloc)(struct skein_env *env, const char *name, size_t len,
			 int *fd, void **addr);
	void (*mem_free)(struct skein_env *env, int fd, void *addr, size_t len);
	/* all NULL: such memory is made and freed as a whole */
	int (*mem_reserve)(struct skein_env *env, const char *name, size_t len,
			   int *fd, void **addr);
	bool (*mem_on_demand)(struct skein_env *env);
	int (*mem_fill)(struct skein_env *env, int fd, void *addr, size_t off,
			size_t len);
	void (*mem_drop)(struct skein_env *env, int fd, size_t off, size_t len);

	/* stream sockets, always nonblocking and close-on-exec */
	int (*resolve)(struct skein_env *env, const char *host,
		       const char *port, bool passive,
		       struct sockaddr_storage *addrs, int max, int *n);
	int (*sock_listen)(struct skein_env *env,
			   const struct sockaddr_storage *addr, int backlog,
			   int *fd);
	int (*sock_connect)(struct skein_env *env,
			    const struct sockaddr_storage *addr, int *fd);
	int (*sock_error)(struct skein_env *env, int fd);
	int (*sock_accept)(struct skein_env *env, int fd,
			   struct sockaddr_storage *peer, int *conn_fd);
	int (*sock_name)(struct skein_env *env, int fd,
			 struct sockaddr_storage *local);
	ssize_t (*sock_send)(struct skein_env *env, int fd, const void *buf,
			     size_t len);
	ssize_t (*sock_recv)(struct skein_env *env, int fd, void *buf,
			     size_t len);
	void (*sock_close)(struct skein_env *env, int fd);
};

struct skein_env {
	const struct env_ops *ops;
	/* May be NULL: silence. Any thread. msg ends without a newline. */
	void (*log)(void *arg, enum env_log_level level, const char *msg);
	void *log_arg;
	enum env_log_level log_level; /* messages above it are not formatted */
	enum env_huge huge;	      /* set before memory is made */
	/* May be NULL. Called before every allocation made through
	 * env_alloc(); true makes that one fail (tests sweep the n-th). */
	bool (*alloc_fails)(void *arg);
	void *alloc_arg;
	/* Not zero in the process that made the environment, zero in its forked
	 * children. NULL in an environment without fork. */
	const volatile uint32_t *fork_mark;
	/* env_fence_all(); NULL where there is none. */
	void (*fence_all)(void);
};

/* The real world. *env is valid until env_real_free(). Logs errors and
 * warnings to stderr until told otherwise. */
int env_real_new(struct skein_env **env);
void env_real_free(struct skein_env *env);

/* Monotonic nanoseconds; never goes back. Any thread, never blocks. */
static inline uint64_t env_now_ns(struct skein_env *env)
{
	return env->ops->now_ns(env);
}

/* The process id. Any thread. */
static inline uint32_t env_pid(struct skein_env *env)
{
	return env->ops->pid(env);
}

/* Is this a forked child? Two loads: fit for every round. Any thread. */
static inline bool env_forked(const struct skein_env *env)
{
	return env->fork_mark && !*env->fork_mark;
}

/* Tells a model that n units of work of this kind were done. */
static inline void env_charge(struct skein_env *env, enum env_cost cost,
			      uint64_t n)
{
	if (env->ops->charge)
		env->ops->charge(env, cost, n);
}

/*
 * A full fence in every running thread of the process; a thread that does not
 * run passes a fence before it runs again. Takes microseconds, or 20 ms once a
 * sandbox refuses membarrier(2); for protocols of which the other side then
 * needs no fence. Forbidden if env_can_fence_all() is false: in simulators, and
 * where membarrier(2) was missing or refused when the environment was made.
 */
static inline bool env_can_fence_all(const struct skein_env *env)
{
	return env->fence_all != NULL;
}

static inline void env_fence_all(const struct skein_env *env)
{
	env->fence_all();
}

/* The deadline that is `timeout` from now; ENV_NEVER stays. */
static inline uint64_t env_deadline(uint64_t now_ns, uint64_t timeout_ns)
{
	return timeout_ns < ENV_NEVER - now_ns ? now_ns + timeout_ns
					       : ENV_NEVER;
}

/* Random bytes fit for secrets (getrandom in production). */
void env_random(struct skein_env *env, void *buf, size_t len);
uint64_t env_random_u64(struct skein_env *env);

/* Zeroed memory or NULL; freed by env_free(env, p). Cache-line aligned when
 * asked for with env_alloc_aligned(). */
void *env_alloc(struct skein_env *env, size_t len);
void *env_alloc_aligned(struct skein_env *env, size_t align, size_t len);
/* The same, not zeroed: its pages are made as they are used. */
void *env_alloc_unset(struct skein_env *env, size_t align, size_t len);
void env_free(struct skein_env *env, void *p);
char *env_strdup(struct skein_env *env, const char *s);

void env_log(struct skein_env *env, enum env_log_level level, const char *fmt,
	     ...) __attribute__((format(printf, 3, 4)));

#define ENV_RARE_NS 10000000000u

/* A line that may come many times a second is logged once, and after that at most
 * once in ENV_RARE_NS. Starts all zero; no lock: one thread at a time. */
struct env_log_limit {
	uint64_t due_ns; /* the next line; before that it is left out */
	uint32_t left_out;
};

/* True: the line is due, and left_out were left out since the last one. */
bool env_log_due(struct env_log_limit *r, uint64_t now_ns, uint32_t *left_out);
/* The line, if it is due; it says how many were left out. */
void env_log_rare(struct skein_env *env, struct env_log_limit *r,
		  enum env_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

int env_thread_start(struct skein_env *env, const char *name,
		     void (*fn)(void *arg), void *arg,
		     struct env_thread **thread);
/* Waits for fn to return, then frees the thread. Blocks. */
void env_thread_join(struct skein_env *env, struct env_thread *thread);
/* Names the calling thread: never 0, differs among threads that are alive. */
static inline uint64_t env_thread_self(struct skein_env *env)
{
	if (__builtin_expect(env->ops->thread_self != NULL, 0))
		return env->ops->thread_self(env);
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
	return (uint64_t)(uintptr_t)__builtin_thread_pointer();
#else
	return (uint64_t)pthread_self();
#endif
}

/* Holds off cancellation of the calling thread, for regions in which others
 * write to its stack. env_cancel_back() takes the value that this returns. */
static inline int env_cancel_off(struct skein_env *env)
{
	int was = PTHREAD_CANCEL_ENABLE;

	(void)env;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	return was;
}

static inline void env_cancel_back(struct skein_env *env, int was)
{
	int off;

	(void)env;
	pthread_setcancelstate(was, &off);
}

static inline void env_cancel_restore(int *was)
{
	env_cancel_back(NULL, *was);
}

/* At the entry of each public call that may block: from here to its return the
 * calling thread is not cancelled. */
#define ENV_HOLD_CANCEL()                                                      \
	int held_cancel __attribute__((cleanup(env_cancel_restore), unused)) = \
		env_cancel_off(NULL)

/* The same for a call that stands in front of one of the C library's at which a
 * thread may be cancelled: a thread that is to be cancelled ends here, before it has
 * done anything, though the call may have no need to wait. */
static inline int env_cancel_point(struct skein_env *env)
{
	pthread_testcancel();
	return env_cancel_off(env);
}

#define ENV_CANCEL_POINT()                                                     \
	int held_cancel __attribute__((cleanup(env_cancel_restore), unused)) = \
		env_cancel_point(NULL)

/* Adds one to an eventfd. A full eventfd is readable already, so that is no
 * error. Unlike write(2) this is no cancellation point. */
static inline void env_bell(int fd)
{
	uint64_t one = 1;
	int was = env_cancel_off(NULL);
	ssize_t n;

	do
		n = write(fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	env_cancel_back(NULL, was);
}

/*
 * x->fn runs once in the calling thread when that thread ends by return,
 * pthread_exit() or cancellation; not when the process ends. x is zeroed but
 * for fn, or was used before; the environment uses its memory until fn or
 * env_thread_off_exit() has returned. -ENOMEM. env_thread_self() does not give
 * the thread's name to another before fn has returned. fn must not block for
 * long, nor wait for a thread that may be in env_thread_off_exit(x). In a
 * forked child fn does not run.
 */
int env_thread_on_exit(struct skein_env *env, struct env_exit *x);
/* Any thread, but not from fn. When it returns, fn does not run and will not
 * run. */
void env_thread_off_exit(struct skein_env *env, struct env_exit *x);

/* Lets another thread run. For waits that have no waiter; rare. */
void env_yield(struct skein_env *env);

void env_mutex_init(struct skein_env *env, struct env_mutex *m);
void env_mutex_fini(struct skein_env *env, struct env_mutex *m);
void env_mutex_lock(struct skein_env *env, struct env_mutex *m);
void env_mutex_unlock(struct skein_env *env, struct env_mutex *m);

/*
 * A waiter is a place where one thread at a time sleeps. env_waiter_wake() from
 * any thread or signal handler wakes it, and so does a watched file descriptor.
 * The only correct use (engine.c; tests/model/wait.pml checks it):
 *
 *	env_waiter_arm(w);
 *	if (work is there)
 *		env_waiter_disarm(w);
 *	else
 *		env_waiter_sleep(w, deadline);   (disarms)
 *
 * A producer publishes its work first and calls env_waiter_wake() second; wake
 * costs one load if no thread is armed. Both sides carry a full fence; the
 * waker needs none while the waiter was never armed, and must not rely on wake
 * to order anything else.
 */
int env_waiter_new(struct skein_env *env, enum env_wait_mode mode,
		   struct env_waiter **w);
/* The same for a thread that also waits elsewhere, never at both at once: the
 * count of spinners stays. */
int env_waiter_new_second(struct skein_env *env, enum env_wait_mode mode,
			  struct env_waiter **w);
void env_waiter_free(struct skein_env *env, struct env_waiter *w);

/* A fruitless round has passed; round counts from 0 since the last fruitful
 * one. Pauses or yields, by mode; in a simulator it parks the fiber. Called by
 * the thread that would sleep. */
enum env_idle_verdict env_idle(struct skein_env *env, struct env_waiter *w,
			       unsigned round);
/* Will the next env_idle(), for this round, give the processor away? */
static inline bool env_idle_yields(struct skein_env *env, struct env_waiter *w,
				   unsigned round)
{
	return env->ops->idle_yields && env->ops->idle_yields(w, round);
}
/* Where idling parks (a simulator): the caller's next deadline, set before each
 * env_idle(). Elsewhere it does nothing; env_idle_parks() tells whether it is
 * worth computing. */
static inline bool env_idle_parks(const struct skein_env *env)
{
	return env->ops->idle_until != NULL;
}
void env_idle_until(struct skein_env *env, struct env_waiter *w,
		    uint64_t deadline_ns);
/* Do other threads want this core for work? Then polling takes it from them,
 * while sleeping costs only two context switches. Always false in a
 * simulator. */
bool env_core_wanted(struct skein_env *env, struct env_waiter *w);
void env_waiter_arm(struct skein_env *env, struct env_waiter *w);
void env_waiter_disarm(struct skein_env *env, struct env_waiter *w);
/* 1: a watched fd is ready. 0: woken, interrupted by a signal, or for no
 * reason; the caller checks again in any case. -ETIMEDOUT: the deadline has
 * come. */
int env_waiter_sleep(struct skein_env *env, struct env_waiter *w,
		     uint64_t deadline_ns);
/* The first fields of a waiter, for the inline functions below. */
struct env_waiter_lead {
	/* May a thread be armed? False: none ever was, so a waker need not
	 * order what it published before this look. */
	atomic_bool used;
};
static inline void env_waiter_wake(struct skein_env *env, struct env_waiter *w)
{
	struct env_waiter_lead *lead = (struct env_waiter_lead *)(void *)w;

	/* Relaxed: the thread that sets it makes the fence for this side
	 * (real_waiter_arm()). The compiler's barrier keeps the load after what
	 * was published. */
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&lead->used, memory_order_relaxed))
		env->ops->waiter_wake(w);
}
/* Level-triggered watch of fd for EPOLLIN/EPOLLOUT bits; watching an fd again
 * replaces its events. Any thread. */
int env_waiter_watch(struct skein_env *env, struct env_waiter *w, int fd,
		     uint32_t events);
int env_waiter_unwatch(struct skein_env *env, struct env_waiter *w, int fd);
/* Without blocking: 1 if a watched fd is ready, else 0. A system call, so the
 * engine calls it only in its slow beat. Called by the thread that would sleep,
 * disarmed; it also takes back a wake-up that came too late. */
int env_waiter_ready(struct skein_env *env, struct env_waiter *w);
/* The same, with the descriptors: returns how many, at most max. The rest come
 * first in the next call. */
int env_waiter_ready_fds(struct skein_env *env, struct env_waiter *w, int *fds,
			 int max);
/* Was fd among the ready ones when env_waiter_sleep() or env_waiter_ready() found
 * some last? True also where that is not known. By the thread that sleeps. */
bool env_waiter_saw(struct skein_env *env, const struct env_waiter *w, int fd);
/* A pollable fd, readable when a sleep would end at once; for foreign event
 * loops. Owned by the waiter. */
int env_waiter_fd(struct skein_env *env, struct env_waiter *w);

/* "off", "auto" or "on"; NULL and "" are off. -EINVAL for other words. */
int env_huge_parse(const char *word, enum env_huge *huge);
const char *env_huge_name(enum env_huge huge);

/*
 * Memory that another process may map: a memfd of at least len bytes (rounded
 * to pages), fully allocated, sealed against shrinking, mapped shared, zeroed,
 * close-on-exec and not inherited by fork (MADV_DONTFORK). -ENOMEM if the
 * system lacks the memory, -EFBIG if RLIMIT_FSIZE does not allow it. Pages are
 * huge as env->huge asks, if len is at least one huge page: first those of the
 * reserved pool. Where there are none AUTO takes transparent ones if the system
 * allows them, else ordinary ones, and logs it; ON is -ENOMEM, with a line that
 * says how to reserve them.
 */
int env_mem_alloc(struct skein_env *env, const char *name, size_t len, int *fd,
		  void **addr);
void env_mem_free(struct skein_env *env, int fd, void *addr, size_t len);
/*
 * The same without the allocation where the system allows that: *filled is then
 * 0, else len. Neither this process nor a peer may touch a byte before
 * env_mem_fill() has allocated it; that returns 0 or -ENOMEM. off and len:
 * multiples of the page size.
 */
int env_mem_reserve(struct skein_env *env, const char *name, size_t len,
		    int *fd, void **addr, size_t *filled);
int env_mem_fill(struct skein_env *env, int fd, void *addr, size_t off,
		 size_t len);
/* Reserved memory may be used without env_mem_fill() if this is true: the system
 * never refuses a page at its first use. False where it counts each page that it
 * promises (vm.overcommit_memory 2): a refusal there is SIGBUS. */
bool env_mem_on_demand(struct skein_env *env);
/* Gives the pages of a range back to the system. No process may touch them any
 * more. env_mem_free() frees the rest. */
void env_mem_drop(struct skein_env *env, int fd, size_t off, size_t len);
/* The page size of such memory's file: small or huge. */
size_t env_mem_page(int fd);

/* Looks host and port up (names, IPv4, IPv6); host NULL or "" with passive:
 * the wildcard. *n of at most max addresses. Blocks. -EADDRNOTAVAIL when there
 * is none, -EAGAIN when the resolver failed for now. */
int env_resolve(struct skein_env *env, const char *host, const char *port,
		bool passive, struct sockaddr_storage *addrs, int max, int *n);
int env_sock_listen(struct skein_env *env, const struct sockaddr_storage *addr,
		    int backlog, int *fd);
/* Starts a connection; it is up when fd is writable and env_sock_error() says
 * 0. */
int env_sock_connect(struct skein_env *env, const struct sockaddr_storage *addr,
		     int *fd);
/* The socket's pending error: 0 connected, -EINPROGRESS, or what failed. */
int env_sock_error(struct skein_env *env, int fd);
/* -EAGAIN if no peer waits; -EMFILE and the like unchanged. */
int env_sock_accept(struct skein_env *env, int fd,
		    struct sockaddr_storage *peer, int *conn_fd);
int env_sock_name(struct skein_env *env, int fd,
		  struct sockaddr_storage *local);
/* Bytes moved, 0 at end of stream (recv), -EAGAIN, or a negative errno. Never
 * raises SIGPIPE. */
ssize_t env_sock_send(struct skein_env *env, int fd, const void *buf,
		      size_t len);
ssize_t env_sock_recv(struct skein_env *env, int fd, void *buf, size_t len);
void env_sock_close(struct skein_env *env, int fd);

#endif
