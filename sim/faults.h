/* SPDX-License-Identifier: MIT */
/*
 * faults.h - trouble at random, from a seed: each kind with its probability; or
 * by a script.
 *
 * Every fault ends by itself. faults_heal() ends all faults at once; after that
 * every call that waits must succeed.
 */
#ifndef SKEIN_SIM_FAULTS_H
#define SKEIN_SIM_FAULTS_H

#include "base/prng.h"
#include "env/sim/sim.h"

enum fault {
	FAULT_KILL,	 /* kill -9; the scenario may start it anew */
	FAULT_CRASH,	 /* of a node: silent for 1 ms to 1 s, then anew */
	FAULT_LINK_DOWN, /* 1 ms to 1 s */
	FAULT_LOSS,	 /* of 1 in 100 messages, for up to 100 ms */
	FAULT_LINK_SLOW, /* 2 to 50 times, for up to 100 ms */
	FAULT_DELAY,	 /* up to 1 ms a message, for up to 100 ms */
	FAULT_NODE_SLOW, /* 2 to 30 times, for up to 100 ms */
	FAULT_PAUSE,	 /* of a node, 1 ms to 1 s */
	FAULT_STALL,	 /* of a thread, 1 ms to 1 s */
	FAULT_QP,	 /* a QP breaks */
	FAULT_MEMORY,	 /* 1 in 50 allocations of a process fails, 100 ms */
	FAULT_KINDS
};

struct fault_name {
	const char *name;
	double share; /* of all faults */
};

extern const struct fault_name fault_names[FAULT_KINDS];

#define FAULT_NODES 16
#define FAULT_SCRIPT 64

/* What is to happen when: in place of chance. */
struct fault_script {
	unsigned n;
	struct fault_line {
		enum fault kind;
		unsigned node;
		uint64_t at_ns, span_ns; /* span 0: as long as chance has it */
	} line[FAULT_SCRIPT];
};

/* KIND:NODE@TIME[+SPAN], with commas: "kill:0@10ms,link-down:2@15ms+300ms".
 * -EINVAL, -E2BIG. */
int fault_script_parse(const char *text, struct fault_script *script);

struct faults {
	struct sim_world *w;
	struct sim_event ev;
	struct prng r;
	struct sim_node *nodes[FAULT_NODES];
	unsigned n_nodes;
	uint64_t mean_ns;		   /* between two faults */
	uint64_t end_ns;		   /* none after */
	const struct fault_script *script; /* NULL: chance */
	unsigned kinds;	     /* bits of those that chance may take; 0: all */
	unsigned n_scripted; /* lines that have been carried out */
	/* The scenario may kill a process of node i. It starts the process
	 * again at this time or later. */
	void (*kill)(void *arg, unsigned i, uint64_t back_ns);
	/* A live process of node i, or NULL. */
	struct sim_proc *(*proc)(void *arg, unsigned i);
	/* A fault has begun. May be NULL. */
	void (*struck)(void *arg, unsigned i, enum fault kind,
		       uint64_t until_ns);
	void *arg;
	unsigned counts[FAULT_KINDS];
	uint64_t n;
	/* the healing of each node */
	struct fault_heal {
		struct sim_event ev;
		struct faults *f;
		unsigned i;
		/* the process in which memory is short */
		struct skein_env *env;
		struct prng r;
	} heal[FAULT_NODES];
};

/* The caller fills in every field but ev, r, counts and heal. */
void faults_start(struct faults *f);
void faults_heal(struct faults *f);

#endif
