/* SPDX-License-Identifier: MIT */
/*
 * port.h - a QP of datagrams that one thread owns: bursts in, lists out.
 *
 * A burst of receives is polled, looked at in place, and given back in one
 * list. What is sent in the meantime leaves in one list too: a doorbell each.
 * One send in UD_SIGNAL_EACH is signalled. Nothing is reliable here: what finds
 * no receive at the other end is gone.
 *
 * Invariant: every receive is either posted or in the burst that is looked at.
 * Thread rule: one thread. Errors: 0 or a negative errno.
 */
#ifndef SKEIN_BENCH_UD_PORT_H
#define SKEIN_BENCH_UD_PORT_H

#include "dev/mem.h"

enum {
	UD_BURST = 32,
	UD_SIGNAL_EACH = 64,
	UD_SENDS = 4 * UD_SIGNAL_EACH,
	UD_RECVS_MAX = 16384,
};

enum ud_type {
	UD_REQUEST = 1,
	UD_RESPONSE,
};

#define UD_MAGIC 0x5544u

/* In front of each request and response; host order: one machine type. */
struct ud_head {
	uint16_t magic;
	uint8_t type;
	uint8_t zero;
	uint16_t session; /* as the server counts them */
	uint16_t len;	  /* of what follows */
	uint64_t number;  /* of the request */
};

_Static_assert(sizeof(struct ud_head) == 16, "no holes");

/* A datagram of the burst. */
struct ud_msg {
	const struct ud_head *head;
	const void *data;
};

/* Where datagrams go. */
struct ud_peer {
	struct ibv_ah *ah;
	uint32_t qpn;
};

struct ud_port_conf {
	struct dev *dev;
	struct ibv_pd *pd;
	unsigned recvs;
	unsigned bufs; /* to send from */
	uint32_t size; /* of the data behind a header, at most */
	/* Is this one to be lost? For tests; may be NULL. */
	bool (*lose)(void *arg, const struct ud_head *head);
	void *lose_arg;
};

struct ud_port_counts {
	uint64_t lost;	  /* on purpose */
	uint64_t strange; /* datagrams that are none of ours */
	uint64_t drains;
};

struct ud_port {
	struct ud_port_conf conf;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct mem_region *mem;
	struct dev_stats stats;
	struct ud_port_counts counts;
	uint32_t inline_max;
	size_t stride; /* of a buffer: whole lines */

	struct ibv_recv_wr *recv_wr; /* of each receive */
	struct ibv_sge *recv_sge;
	struct ibv_recv_wr *burst, **burst_end; /* polled, not yet given back */

	struct ibv_send_wr send_wr[UD_BURST];
	struct ibv_sge send_sge[UD_BURST];
	unsigned n; /* of the list */
	bool drain; /* the list has a second copy of a buffer's contents */
	uint64_t sent, done;
};

/* Posts all receives. -EMSGSIZE: size and a header are no datagram;
 * -EOPNOTSUPP: the device has none. After a failure there is nothing to close. */
int ud_port_open(struct ud_port *p, const struct ud_port_conf *conf);
void ud_port_close(struct ud_port *p);

void ud_port_addr(struct ud_port *p, struct dev_qp_addr *addr);
int ud_peer_open(struct ud_port *p, const struct dev_qp_addr *addr,
		 struct ud_peer *peer);
/* After ud_port_close(): what is on its way uses the address. */
void ud_peer_close(struct ud_port *p, struct ud_peer *peer);

/* The i-th buffer to send from: a header and the data. */
static inline struct ud_head *ud_port_buf(const struct ud_port *p, unsigned i)
{
	return (struct ud_head *)(void *)((char *)p->mem->addr + i * p->stride);
}

/* At most UD_BURST datagrams, valid until they are given back; how many in
 * *n (those that are none of ours are counted and left out). */
int ud_port_poll(struct ud_port *p, struct ud_msg msgs[UD_BURST], unsigned *n);
int ud_port_give_back(struct ud_port *p);

/* Adds a buffer of ours to the list, which leaves first if it is full. The buffer
 * may change when it is known to have arrived; or, when the same contents were
 * sent before (again), after the next ud_port_flush(). */
int ud_port_send(struct ud_port *p, const struct ud_peer *to,
		 struct ud_head *head, bool again);
/* Posts the list. With something sent again in it that was not copied at the
 * post, waits until the device has read all that was sent. */
int ud_port_flush(struct ud_port *p);

#endif
