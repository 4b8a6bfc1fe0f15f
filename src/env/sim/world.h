/* SPDX-License-Identifier: MIT */
/*
 * world.h - the simulated world from inside: private to src/env/sim.
 *
 * Invariants: a core's cur is the thread that holds it; a thread without a
 * core is ready, benched, asleep or done. Code of a thread runs only between
 * fiber_step() and its next thread_stop(), on the thread's stack; everything
 * else runs on the world's.
 */
#ifndef SKEIN_ENV_SIM_WORLD_H
#define SKEIN_ENV_SIM_WORLD_H

#include "env/sim/agenda.h"
#include "env/sim/fiber.h"
#include "env/sim/sim.h"

#define SIM_NAME 24
#define SIM_LOG 512u /* words; even */
#define SIM_FDS_MAX 65536u

struct sim_world {
	struct sim_conf conf;
	struct sim_costs costs;
	struct agenda agenda;
	uint64_t done; /* events that have happened */
	uint64_t hash; /* of the event log, but what is in log */
	uint64_t log[SIM_LOG];
	uint32_t log_n;
	struct list_node nodes;
	uint32_t n_nodes, n_procs, n_fibers;
	struct fiber main;
	struct sim_fiber *cur;
	struct sim_fiber **fibers; /* by their numbers */
	uint32_t fibers_cap;
	struct list_node zombies; /* threads done, stacks to be freed */
	void *net;
	void (*net_fini)(void *net);
	bool stop;
	char blame[200];
};

struct sim_core {
	struct sim_fiber *cur;
};

struct sim_node {
	struct list_node link;
	struct sim_world *w;
	char name[SIM_NAME];
	uint32_t id;
	unsigned n_cores;
	struct sim_core *cores;
	struct list_node ready;	  /* want a core */
	struct list_node benched; /* spin, and have lost their core */
	struct sim_event slice;	  /* the end of a no_yield spinner's */
	struct list_node procs;
	struct list_node listeners; /* sim_sock.link */
	uint32_t next_port;
	unsigned slow;
	uint64_t paused_until;
	bool cut; /* from the network */
};

enum sim_fiber_state {
	SIM_FIBER_READY,
	SIM_FIBER_RUN,	/* has a core, and is due or running */
	SIM_FIBER_SPIN, /* polls; parked until something changes */
	SIM_FIBER_SLEEP,
	SIM_FIBER_DONE,
};

struct sim_fiber {
	struct fiber stack;
	struct list_node link;	    /* ready, benched, zombies, or a mutex's */
	struct list_node proc_link; /* sim_proc.fibers */
	struct list_node spin_link; /* sim_proc.spinners */
	struct sim_event ev;
	struct sim_proc *proc;
	struct sim_core *core;
	enum sim_fiber_state state;
	uint32_t id;
	uint64_t stalled_until;
	uint64_t debt;	   /* charged, not paid */
	uint64_t slice_at; /* when it got its core */
	bool no_yield;	   /* spins without yielding */
	bool blind;	   /* to memory: it polls completion queues alone */
	bool fresh;	   /* something it polls has changed */
	char name[SIM_NAME];
	void (*fn)(void *arg);
	void *arg;
	struct sim_fiber *joiner;
	struct list_node exits; /* env_exit.link */
	const char *waits_for;	/* for the report */
};

struct sim_fd;

struct sim_proc {
	struct skein_env env;
	struct list_node link; /* sim_node.procs */
	struct sim_node *node;
	struct sim_world *w;
	char name[SIM_NAME];
	uint32_t id;
	bool dead;
	struct list_node fibers;
	struct list_node spinners; /* that look at memory */
	struct list_node blocks;   /* memory */
	struct list_node freed;	   /* blocks that are watched for a while */
	size_t freed_bytes;
	struct list_node hooks;
	size_t bytes;
	struct sim_fd **fds;
	unsigned fds_cap, n_fds;
	uint64_t change; /* counts sim_notify() */
	struct prng prng;
};

/* A descriptor. ready() says which of EPOLLIN, EPOLLOUT hold. */
struct sim_fd {
	int num;
	struct sim_proc *proc;
	uint32_t (*ready)(struct sim_fd *fd);
	void (*close)(struct sim_fd *fd); /* frees it */
	struct list_node watches;	  /* sim_watch.fd_link */
};

/* world.c */
void sim_log_line(struct sim_world *w, const char *line);

/* sched.c */
void sched_dispatch(struct sim_node *node);
/* A thread that has no core wants one. */
void fiber_ready(struct sim_fiber *f);
/* If the thread sleeps, wakes it, after the cost of a wake-up. If it spins, it
 * looks. */
void fiber_wake(struct sim_fiber *f, uint64_t delay);
int fiber_new(struct sim_proc *proc, const char *name, void (*fn)(void *arg),
	      void *arg, struct sim_fiber **f);
/* Takes it out of everything and frees it. */
void fiber_kill(struct sim_fiber *f);
void fibers_reap(struct sim_world *w);
/* Called by the running thread; each returns when the thread runs again. */
void thread_flush(struct sim_fiber *f);
void thread_spin(struct sim_fiber *f, uint64_t until);
void thread_sleep(struct sim_fiber *f, uint64_t until);
void thread_yield(struct sim_fiber *f);

/* fd.c */
int fd_open(struct sim_proc *proc, struct sim_fd *fd);
struct sim_fd *fd_get(struct sim_proc *proc, int num);
/* Out of the table, unwatched; not freed. */
void fd_forget(struct sim_fd *fd);
/* What ready() says may have changed. */
void fd_changed(struct sim_fd *fd);

/* proc.c */
void *proc_alloc(struct skein_env *env, size_t align, size_t len);
void proc_free(struct skein_env *env, void *p);
void proc_fini(struct sim_proc *proc);
int proc_mem_alloc(struct skein_env *env, const char *name, size_t len, int *fd,
		   void **addr);
void proc_mem_free(struct skein_env *env, int fd, void *addr, size_t len);

/* wait.c */
int sim_waiter_new(struct skein_env *env, enum env_wait_mode mode, bool second,
		   struct env_waiter **w);
void sim_waiter_free(struct env_waiter *w);
enum env_idle_verdict sim_idle(struct env_waiter *w, unsigned round);
void sim_idle_until(struct env_waiter *w, uint64_t deadline_ns);
void sim_waiter_arm(struct env_waiter *w);
void sim_waiter_disarm(struct env_waiter *w);
int sim_waiter_sleep(struct env_waiter *w, uint64_t deadline_ns);
void sim_waiter_wake(struct env_waiter *w);
int sim_waiter_watch(struct env_waiter *w, int fd, uint32_t events);
int sim_waiter_unwatch(struct env_waiter *w, int fd);
int sim_waiter_ready(struct env_waiter *w);
int sim_waiter_ready_fds(struct env_waiter *w, int *fds, int max);
int sim_waiter_fd(struct env_waiter *w);
/* fd is going: no waiter watches it any more. */
void waiter_forget_fd(struct sim_fd *fd);
void waiter_fd_changed(struct sim_fd *fd);

/* sock.c */
int sim_resolve(struct skein_env *env, const char *host, const char *port,
		bool passive, struct sockaddr_storage *addrs, int max, int *n);
int sim_sock_listen(struct skein_env *env, const struct sockaddr_storage *addr,
		    int backlog, int *fd);
int sim_sock_connect(struct skein_env *env, const struct sockaddr_storage *addr,
		     int *fd);
int sim_sock_error(struct skein_env *env, int fd);
int sim_sock_accept(struct skein_env *env, int fd,
		    struct sockaddr_storage *peer, int *conn_fd);
int sim_sock_name(struct skein_env *env, int fd,
		  struct sockaddr_storage *local);
ssize_t sim_sock_send(struct skein_env *env, int fd, const void *buf,
		      size_t len);
ssize_t sim_sock_recv(struct skein_env *env, int fd, void *buf, size_t len);
void sim_sock_close(struct skein_env *env, int fd);

/* env.c */
/* The running thread ends. */
void thread_exits(struct sim_fiber *f);
extern const struct env_ops sim_env_ops;

#endif
