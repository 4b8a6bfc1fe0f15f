/* SPDX-License-Identifier: MIT */
/*
 * udp.h - the sockets of the link: UDP 4791, shared by the processes of one
 * uid, and the way from the process that got a packet to the one that owns its
 * QP. Knows nothing of QPs.
 *
 * Sending is for one thread at a time (udp_lock()); receiving and passing on
 * are the control thread's.
 */
#ifndef SKEIN_DEV_SOFT_LINK_UDP_H
#define SKEIN_DEV_SOFT_LINK_UDP_H

#include "dev/soft/link/cong.h"
#include "dev/soft/link/flow.h"
#include "dev/soft/link/icrc.h"
#include "dev/soft/link/packet.h"
#include "dev/soft/soft.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define UDP_BATCH 32u  /* packets between two turns of a QP, about */
#define UDP_SLOT 4352u /* a packet, and what stands before one passed on */
#define UDP_PASSES 64u /* processes that pass packets on to us, at most */

_Static_assert(UDP_SLOT >= PACKET_MAX + sizeof(struct icrc_flow), "slot");

/* Where packets go. */
struct udp_path {
	struct icrc_flow flow; /* ours as the source */
	struct sockaddr_storage to;
	socklen_t to_len;
	bool v6;
	uint32_t ifindex;
	uint32_t dev;	       /* the interface that has our address */
	uint32_t mtu;	       /* of the route, IP's headers included */
	struct flow *out, *in; /* sockets of its own, or NULL */
	struct udp_host *host; /* NULL: no memory for one */
};

/* Where the packets of paths go: by address. */
struct udp_host {
	struct list_node node; /* udp.hosts */
	uint8_t addr[16];
	uint32_t refs;
	struct cong cong;
};

struct udp;

/* A packet that came in: buf may be changed. One that a switch marked (ECN) has
 * FECN. */
typedef void udp_take(void *owner, const struct icrc_flow *f, uint8_t *buf,
		      size_t len);

struct udp_counts {
	uint64_t sent, send_calls, taken, take_calls;
	uint64_t send_failed; /* the kernel did not take it */
	uint64_t send_waits;  /* the socket was full */
	uint64_t cut_off;     /* it came in part */
	uint64_t icmp;	      /* errors that somebody reported: not believed */
	uint64_t passed, pass_failed;
};

/* s->lock held. -errno, with *what failed. */
int udp_open(struct soft *s, struct udp **u, const char **what);
void udp_close(struct udp *u);
/* Packets for QPNs of this block are ours, also if another process gets them. */
int udp_own_block(struct udp *u, uint32_t block);
/* From a GID of ours to another. -ENETUNREACH and the like. */
int udp_path(struct udp *u, const union ibv_gid *from, const char *netdev,
	     const union ibv_gid *to, struct udp_path *p);
/* A source port and a receiving socket for what goes on between the processes
 * of these two blocks, where there are places for them, and the host. s->lock
 * held. */
void udp_path_own(struct udp *u, struct udp_path *p, uint32_t block,
		  uint32_t peer_block);
void udp_path_put(struct udp *u, struct udp_path *p);
/* The source port alone, until udp_unlock(); locked. */
void udp_path_borrow(struct udp *u, struct udp_path *p, uint32_t block,
		     uint32_t peer_block);

void udp_lock(struct udp *u);
/* Room for one packet; its length then, without the ICRC, which is added. */
uint8_t *udp_begin(struct udp *u);
void udp_send(struct udp *u, const struct udp_path *p, size_t len);
/* Sends all that was collected, and unlocks. */
void udp_unlock(struct udp *u);

/* From take: is its ICRC right? The packets of one run are checked in order. */
bool udp_check(struct udp *u, const struct icrc_flow *f, const uint8_t *buf,
	       size_t len);
/* watch.h; s->lock held. A thread polls. The control
 * thread finds packets: true: it leaves them. When it is to come and look. */
/* True: it did so just before, too. */
bool udp_polled(struct udp *u, uint64_t now);
/* Such a thread found packets: they are left to it, if they are not yet. */
void udp_leave_to_poller(struct udp *u, uint64_t now);
/* This set of sockets, too: udp_poll() tells of it. -errno. */
int udp_watch_also(struct udp *u, struct soft_src *also);
bool udp_is_left(const struct udp *u);
bool udp_leave(struct udp *u, uint64_t now);
uint64_t udp_look(struct udp *u, uint64_t now);
/* A thread may go to sleep; any thread. True: packets are left to pollers, so it
 * is to take them back, s->lock held. */
bool udp_armed(struct udp *u);
void udp_take_back(struct udp *u);
/* Takes in all that is there, up to a bound; does not wait. True: something is
 * in the other set. */
bool udp_poll(struct udp *u, udp_take *take, void *owner);
/* From take: this packet was for a QP of ours, which has that path or none. If
 * the shared socket had it, its flow gets a socket: the next ones of it come to
 * no other process. */
void udp_met(struct udp *u, const struct icrc_flow *f, struct udp_path *p);
/* To the process that owns the block, at least to its socket. */
void udp_pass(struct udp *u, uint32_t block, const struct icrc_flow *f,
	      const uint8_t *buf, size_t len);
void udp_counts(struct udp *u, struct udp_counts *c);

#endif
