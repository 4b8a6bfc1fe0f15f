/* SPDX-License-Identifier: MIT */
/*
 * link.h - the faults that a scenario may set on a node's NIC and cable, and
 * the counts that it may read. All zero is a link without faults.
 */
#ifndef SKEIN_DEV_SIM_LINK_H
#define SKEIN_DEV_SIM_LINK_H

#include "env/sim/sim.h"

struct nic_model;

struct sim_link {
	bool down;	      /* nothing passes; sockets wait */
	uint32_t loss_ppm;    /* of messages, either way */
	uint32_t slow;	      /* so many times slower; 0 and 1: not */
	uint64_t extra_delay; /* ns, either way */
};

struct sim_nic_counts {
	uint64_t messages_out, messages_in, bytes_out;
	uint64_t doorbells, interrupts;
	uint64_t rnr_naks; /* it has said that a receiver was not ready */
	/* Requests that came to memory, or rights, that are not there. */
	uint64_t strangers;
	uint64_t ctx_hits, ctx_misses, mr_hits, mr_misses;
	uint64_t dc_connects; /* of its DCIs */
};

void sim_link_set(struct sim_node *node, const struct sim_link *link);
void sim_nic_counts(struct sim_node *node, struct sim_nic_counts *c);
/* Nodes are in racks by their numbers. A rack's cables to the upper tier carry
 * 100/oversub_pct of what the cables of its nodes carry together. */
struct sim_racks {
	uint32_t nodes;	      /* of a rack; 0: one switch for all */
	uint32_t oversub_pct; /* 400: four to one; 0: 100 */
};

/* Before the first device is opened in this world. */
void sim_net_set_racks(struct sim_world *w, const struct sim_racks *racks);
void sim_net_set_model(struct sim_world *w, const struct nic_model *model);
/* Messages of at least so many bytes are hollow: they take time and are checked
 * like others, but move no bytes. So an object may be larger than memory. 0: no
 * message is hollow. Messages on UD and inline messages never are. */
void sim_net_set_hollow(struct sim_world *w, uint32_t from_len);
/* A QP has at most so many sends outstanding. Called before the first device is
 * opened in this world. */
void sim_net_set_send_wr_max(struct sim_world *w, uint32_t n);
/* A share of the WRITEs and READs moves its bytes in pieces within span_ns
 * (tear.c). The devices declare ordered_write and ordered_read as given here.
 * Called before the first device is opened in this world. */
struct sim_tear {
	uint32_t ppm;
	bool ordered_write, ordered_read; /* dev_caps */
	uint64_t span_ns;
};

void sim_net_set_tear(struct sim_world *w, const struct sim_tear *tear);
/* Messages between these two nodes hold each cable that they pass so many times
 * longer, as if the path between the two were slow. 0 and 1: not longer. */
void sim_path_slow(struct sim_node *a, struct sim_node *b, uint32_t times);
/* Breaks QP i (modulo their number) of a node, as a fault of the NIC does.
 * False: the node has no QP. */
bool sim_qp_break(struct sim_node *node, uint32_t i);

#endif
