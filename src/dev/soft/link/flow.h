/* SPDX-License-Identifier: MIT */
/*
 * flow.h - a flow is all packets from one address and UDP port to another, and
 * the kernel gives one to one socket. So what a process sends to another goes
 * out of a port for the two (sending sockets), and a process connects a
 * socket on the shared port to each flow that is for it (receiving sockets):
 * the kernel then gives it to no other, stopped ones included.
 *
 * At most FLOW_MAX of each kind; what has none goes by the shared socket. One
 * that no QP holds stays until another wants its place.
 *
 * A table is for one thread at a time.
 */
#ifndef SKEIN_DEV_SOFT_LINK_FLOW_H
#define SKEIN_DEV_SOFT_LINK_FLOW_H

#include "dev/soft/link/icrc.h"
#include "dev/soft/soft.h"

#include <netinet/in.h>

#define FLOW_MAX 64u
#define FLOW_RECEIVE_BYTES (4 << 20) /* asked for; rmem_max may give less */

struct flow {
	struct soft_src src; /* fd -1: a free place */
	struct icrc_flow f;  /* a sending one: only sport and the family */
	uint32_t refs;
};

struct flow_table {
	struct flow at[FLOW_MAX];
	uint32_t next; /* where a place is looked for */
};

void flow_table_init(struct flow_table *t);
void flow_table_fini(struct flow_table *t);

/* The source port of packets from one process to another: both ends reckon it
 * from the addresses and the blocks of their QPNs. Network order. */
uint16_t flow_port(const uint8_t src[16], uint32_t src_block,
		   const uint8_t dst[16], uint32_t dst_block);
/* The socket for f, or NULL: there is none. */
struct flow *flow_find(const struct flow_table *t, const struct icrc_flow *f,
		       bool sends);
/* A place for one that is not there, without a socket; its old one is closed.
 * NULL: all are in use. */
struct flow *flow_place(struct flow_table *t);
/* Makes the socket. -errno: the place stays free. */
int flow_send_open(struct flow *w, const struct icrc_flow *f);
int flow_receive_open(struct flow *w, const struct icrc_flow *f);
void flow_close(struct flow *w);
/* What the link asks of each of its sockets, and of those on the shared port. */
int flow_socket(bool v6);
void flow_socket_shared(int fd);

#endif
