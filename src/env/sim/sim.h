/* SPDX-License-Identifier: MIT */
/*
 * sim.h - a world in virtual time: nodes with cores, processes, threads.
 *
 * A world runs in one OS thread. Each simulated process has its own struct
 * skein_env, through which production code above the device seam meets the
 * clock, threads, sockets and memory of the world. Its threads are fibers that
 * occupy the cores of the process's node. The same seed gives the same events
 * in the same order; sim_hash() proves it.
 *
 * Time passes in two ways only: an event is due later, or a thread is charged
 * for work (sim_charge()). Charges add up while a thread runs, and it pays them
 * at its next flush. Until then the thread is ahead of the world: its clock
 * shows it, and what it does is dated so.
 *
 * How it works, and what it leaves out: docs/design/simulation.md.
 */
#ifndef SKEIN_ENV_SIM_SIM_H
#define SKEIN_ENV_SIM_SIM_H

#include "base/list.h"
#include "base/prng.h"
#include "env/env.h"

struct sim_world;
struct sim_node;
struct sim_proc;
struct sim_fiber;

/* Nanoseconds. Zero means the default (world.c has it). */
struct sim_costs {
	uint32_t round;	  /* one fruitless round of an engine */
	uint32_t detect;  /* from a change in memory until a spinner sees it */
	uint32_t wake;	  /* from a wake-up to the sleeper's next step */
	uint32_t context; /* one thread gives its core to another */
	uint32_t syscall; /* of a socket */
	/* the least time that a thread runs when others wait */
	uint32_t slice_us;
	uint32_t tcp_ns;   /* one way between two nodes' sockets */
	uint32_t local_ns; /* the same within a node */
	/* per kind of env_charge(); copies by the byte */
	uint32_t look, message, encode, decode, handler, swap, pause, sum;
};
/* Sets a value by its field's name. -EINVAL: no such name, or the value is
 * 0. */
int sim_costs_set(struct sim_costs *c, const char *name, uint32_t value);
/* The name of field i; NULL behind the last. */
const char *sim_costs_name(size_t i);

/* What a party did from when to when, for a trace. */
struct sim_span {
	const char *name;
	uint32_t node, track;
	uint64_t begin, end; /* ns */
	/* 0: on this track one span follows another. Else spans may overlap,
	 * and this number tells them apart. */
	uint64_t id;
};

struct sim_tracer {
	void (*span)(void *arg, const struct sim_span *span);
	/* How to call a track; track 0 is the node itself. */
	void (*name)(void *arg, uint32_t node, uint32_t track,
		     const char *name);
	void *arg;
};

/* Tracks: threads have SIM_TRACK_THREADS and their numbers. */
enum {
	SIM_TRACK_FAULTS = 1,
	SIM_TRACK_REQUESTS,
	SIM_TRACK_EGRESS,
	SIM_TRACK_PORT,
	SIM_TRACK_UNITS = 10,
	SIM_TRACK_THREADS = 100,
};

struct sim_conf {
	uint64_t seed;
	struct sim_costs costs;
	size_t stack_len; /* of a thread; 0: 64 KiB */
	/* May be NULL: what the world and its processes log. */
	void (*log)(void *arg, uint64_t now_ns, const char *line);
	void *log_arg;
	enum env_log_level log_level;
	/* Watch what must not be touched: freed memory, and buffers that are
	 * the NIC's. It costs a third of the speed. */
	bool check;
	const struct sim_tracer *tracer; /* may be NULL */
};

/* Something that is due. In its owner's memory; zeroed when not due. */
struct sim_event {
	void (*fn)(struct sim_event *ev);
	uint64_t at;
	struct sim_event *next, *prev; /* of the same time */
	uint32_t pos;		       /* of agenda.c; 0: not due */
	uint32_t tag;		       /* its kind, for the event log's hash */
};

int sim_world_new(const struct sim_conf *conf, struct sim_world **w);
/* All processes are killed. */
void sim_world_free(struct sim_world *w);

uint64_t sim_now(const struct sim_world *w);
/* A random stream of its own per key: seed and key determine it. */
void sim_prng(const struct sim_world *w, uint64_t key, struct prng *r);
const struct sim_costs *sim_costs(const struct sim_world *w);
/* Something of the world that ends after the last process: the network. */
void sim_set_net(struct sim_world *w, void *net, void (*fini)(void *net));
void *sim_net(const struct sim_world *w);

/* An event already due is moved. Events of one moment happen in the order in
 * which they were scheduled. */
void sim_at(struct sim_world *w, struct sim_event *ev, uint64_t at);
void sim_cancel(struct sim_world *w, struct sim_event *ev);
/* Adds to the event log's hash. */
void sim_note(struct sim_world *w, uint64_t a, uint64_t b);
uint64_t sim_hash(struct sim_world *w);
bool sim_tracing(const struct sim_world *w);
void sim_trace(struct sim_world *w, const struct sim_span *span);
void sim_trace_name(struct sim_world *w, uint32_t node, uint32_t track,
		    const char *name);
bool sim_checking(const struct sim_world *w);
/* A process has touched memory that is not its own. The first report is
 * kept. */
void sim_blame(struct sim_world *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* "" when there is none. */
const char *sim_blamed(const struct sim_world *w);
uint64_t sim_events(const struct sim_world *w);

enum sim_end {
	SIM_END_TIME,	/* until_ns has come */
	SIM_END_QUIET,	/* no event is due: all threads sleep for ever */
	SIM_END_STOPPED /* sim_stop() */
};
enum sim_end sim_run(struct sim_world *w, uint64_t until_ns);
void sim_stop(struct sim_world *w);

/* name is copied; sockets know it as a host (and 10.x.y.z by its number). */
int sim_node_new(struct sim_world *w, const char *name, unsigned cores,
		 struct sim_node **node);
uint32_t sim_node_id(const struct sim_node *node);
struct sim_world *sim_node_world(struct sim_node *node);
/* The cores run at 1/factor: charges are multiplied. */
void sim_node_slow(struct sim_node *node, unsigned factor);
/* No thread of this node runs until the time has come. */
void sim_node_pause(struct sim_node *node, uint64_t until_ns);
/* Thread i of a process (modulo their number) stands still until then, and
 * keeps its core if it has one: as if a hypervisor had taken the core away. */
void sim_thread_stall(struct sim_proc *proc, uint32_t i, uint64_t until_ns);

/* Cuts a node off: sockets to and from other nodes hold what is sent until the
 * node is back. */
void sim_node_cut(struct sim_node *node, bool cut);

/* A process; env hangs from it. */
int sim_proc_new(struct sim_node *node, const char *name,
		 struct sim_proc **proc);
struct skein_env *sim_proc_env(struct sim_proc *proc);
struct sim_proc *sim_proc_of(struct skein_env *env);
/* Is this env a simulated one? */
bool sim_is(const struct skein_env *env);
struct sim_node *sim_proc_node(struct sim_proc *proc);
struct sim_world *sim_proc_world(struct sim_proc *proc);
uint32_t sim_proc_id(const struct sim_proc *proc);
bool sim_proc_alive(const struct sim_proc *proc);
/* As kill -9: threads stop where they are, sockets close, memory is freed. A
 * thread of the process itself must not call it. */
void sim_proc_kill(struct sim_proc *proc);
/* Called at the kill, before memory is freed. */
struct sim_hook {
	struct list_node link;
	void (*fn)(struct sim_hook *hook);
};
void sim_proc_on_kill(struct sim_proc *proc, struct sim_hook *hook);
/* Bytes of its env_alloc() and env_mem_alloc() that are not freed, and its
 * open descriptors: zero after an orderly end. */
size_t sim_proc_bytes(const struct sim_proc *proc);
unsigned sim_proc_fds(const struct sim_proc *proc);
/* Names what its threads wait for, a line each. */
void sim_proc_report(struct sim_proc *proc,
		     void (*say)(void *arg, const char *), void *arg);

/* Starts a thread of proc from outside of it. */
int sim_spawn(struct sim_proc *proc, const char *name, void (*fn)(void *arg),
	      void *arg);

/* The running thread's process, or NULL outside of all threads. */
struct sim_proc *sim_self(const struct sim_world *w);
/* The time as the running thread has it: sim_now() and its charges. */
uint64_t sim_thread_now(const struct sim_world *w);
/* The running thread has worked so long. Nothing outside of all threads. */
void sim_charge(struct sim_world *w, uint64_t ns);
/* Pays what was charged, if it is at least min_ns: the world catches up. */
void sim_flush(struct sim_world *w, uint64_t min_ns);
/* The running thread sleeps. */
void sim_sleep(struct sim_world *w, uint64_t ns);

/* When the running thread spins: does it look at memory that peers write (the
 * default), or only at completion queues? */
void sim_watch_memory(struct sim_world *w, bool watch);

/* Memory that proc may be polling has changed: its spinners look. */
void sim_notify(struct sim_proc *proc);

/* The threads that poll a thing that only the device changes, such as a
 * completion queue: one or several. All zero at first. */
struct sim_poller {
	uint32_t thread;
	bool many;
};
/* The running thread polls it. */
void sim_poller_looks(struct sim_world *w, struct sim_poller *p);
/* There is something in it: the thread that polls it looks. If several threads
 * poll it, or none yet, all spinners of proc look. */
void sim_poller_notify(struct sim_poller *p, struct sim_proc *proc);

/* A descriptor of proc that is readable while its count is not zero: of a
 * completion channel, of async events. -EMFILE, -ENOMEM. */
int sim_fd_new(struct sim_proc *proc, int *fd);
void sim_fd_add(struct sim_proc *proc, int fd, int n);
void sim_fd_close(struct sim_proc *proc, int fd);

#endif
