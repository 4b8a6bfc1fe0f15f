/* SPDX-License-Identifier: MIT */
/*
 * party.h - the common part of scenarios in which processes are killed and
 * started again: one or two servers and their clients, each on a node of its
 * own; a stretch with faults, one without, and the end.
 *
 * What must hold of every such scenario is checked here: after the faults every
 * client succeeds, every process ends, and a process that was not killed leaves
 * no memory and no descriptor.
 */
#ifndef SKEIN_SIM_PARTY_H
#define SKEIN_SIM_PARTY_H

#include "sim/faults.h"
#include "sim/scenario.h"

#define PARTY_CLIENTS_MAX 4
#define PARTY_SERVERS_MAX 2
#define PARTY_ACTORS_MAX (PARTY_SERVERS_MAX + PARTY_CLIENTS_MAX)
#define PARTY_MS 1000000ull
#define PARTY_RUN_NS (60 * PARTY_MS)
#define PARTY_LIMIT_NS (120000 * PARTY_MS)

struct party;
struct skein_ctx;

/* One node's process and its successors. The first field of each scenario's own
 * struct. */
struct actor {
	struct party *party;
	unsigned i; /* servers come first: 0, with others 1 */
	bool server;
	struct sim_node *node;
	struct sim_proc *proc;
	struct sim_event start;
	struct prng r;
	struct skein_ctx *ctx;
	bool got_through; /* a client, after the faults */
	bool ended;
};

struct party_ops {
	unsigned servers_max; /* so many, or fewer, are drawn; 0: one */
	/* The function that the process's first thread runs. It sets `ended`
	 * when it returns. */
	void (*server)(void *actor);
	void (*client)(void *actor);
	/* A new process has started: forget the pointers into the process
	 * before it. */
	void (*born)(struct actor *a);
	/* It is about to be killed. */
	void (*killed)(struct actor *a);
	/* party.over is set: a server stops its engines, if any run. */
	void (*stop)(struct actor *server);
};

struct party {
	const struct party_ops *ops;
	struct sim_world *w;
	struct report *rep;
	struct faults faults;
	unsigned n_clients, n_servers;
	struct actor *actors[PARTY_ACTORS_MAX];
	uint64_t end_ns; /* of the faults */
	bool over;	 /* servers: leave */
};

/* Makes a world with its servers and a drawn number of clients. The caller's
 * array of actors, zeroed, has room for servers_max + PARTY_CLIENTS_MAX of them
 * at this distance. */
int party_init(struct party *p, const struct party_ops *ops,
	       const struct scenario_conf *conf, struct report *rep,
	       void *actors, size_t actor_size);
/* Runs to the end. */
void party_play(struct party *p);
/* Prints each actor that does not end and what it leaves behind, and the
 * figures of the faults and of the world. Called before party_fini(). */
void party_judge(struct party *p);
void party_fini(struct party *p);

static inline unsigned party_actors(const struct party *p)
{
	return p->n_servers + p->n_clients;
}

static inline struct skein_env *actor_env(struct actor *a)
{
	return sim_proc_env(a->proc);
}

/* Below n. */
static inline uint64_t actor_draw(struct actor *a, uint64_t n)
{
	return prng_below(&a->r, n);
}

/* Are the faults over, by the running thread's clock? */
bool actor_over(struct actor *a);
/* Closes the context of a process. No process here breaks the protocol. So if
 * the context has counted garbage on a connection that was up, a message was
 * torn or overwritten, and the run fails. */
void actor_close(struct actor *a);
/* Runs a client: it opens contexts of drawn kinds, with up to three sessions in
 * each, until a session has succeeded. After a session with an error it
 * pauses. */
void actor_sessions(struct actor *a, int (*session)(struct actor *a));

#endif
