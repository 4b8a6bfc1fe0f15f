/* SPDX-License-Identifier: MIT */
/*
 * region.h - memory of a node that others may reach: its table of records, and
 * what an engine knows of other nodes' tables (KRCore's ValidMR, section 4.3).
 *
 * A region has an id, which peers name in place of an rkey: a place of the
 * node's table and a generation. Before an engine posts a request it looks the
 * region up, once a lease, by a READ of 64 bytes; the record has the device's
 * rkey, the range and the rights. So a wrong id, range or right ends in an
 * error of the engine, and breaks no queue pair that others use.
 *
 * A region may belong to a domain. Then a vqp reaches it if the port that the
 * vqp is connected to, or the sender that made the vqp, is of the same domain.
 * The engine READs the domain of a port once for each vqp.
 */
#ifndef SKEIN_VQP_REGION_H
#define SKEIN_VQP_REGION_H

#include "vqp/meta.h"

struct vqp;
struct vqp_engine;
struct vqp_peer;
struct vqp_slot;

#define REGION_RECORD 64u
#define REGION_PLACES 1024u /* of a node; the first one is never used */

/*
 * The lease begins when the READ was posted, by the reader's clock. The reader
 * posts nothing after REGION_USE_NS, and a posted request is carried out or has
 * failed REGION_RETRY_NS later. After the record is gone the owner keeps the
 * memory registered for REGION_KEEP_NS, which is longer than both by what two
 * clocks may drift in a second.
 */
#define REGION_USE_NS 500000000ull
#define REGION_RETRY_NS 400000000ull
#define REGION_KEEP_NS 1000000000ull
/* After this part of the lease an engine asks again, in the background. */
#define REGION_AGAIN_NS 250000000ull

#define REGIONS_CACHED 64u /* of a peer */

struct region_record {
	uint64_t addr, len;
	uint32_t id;	 /* generation << 16 | place; both are not 0 */
	uint32_t rkey;	 /* the device's */
	uint32_t access; /* remote rights of enum ibv_access_flags */
	uint32_t domain; /* of its node; 0: any vqp may reach it */
};

/* After the records: the domain of each port, 16 bits; 0: no vqp has bound
 * it. */
#define REGION_PORTS_AT (REGION_PLACES * REGION_RECORD)
#define REGION_TABLE_LEN (REGION_PORTS_AT + 2u * 65536u)

static inline uint32_t region_place(uint32_t id)
{
	return id & 0xffff;
}

/* buf has REGION_RECORD bytes. */
void region_encode(const struct region_record *r, uint8_t *buf);
/* 0; -ENOENT: all zero; -EBADMSG: torn, or nonsense. */
int region_decode(const uint8_t *buf, struct region_record *r);

/* What an engine knows of a region of a peer. */
struct vqp_region {
	struct vqp_region *next; /* the region used last is first */
	struct region_record r;
	uint64_t asked_ns; /* when the READ under way was posted */
	uint64_t since_ns; /* of the lease */
	unsigned torn;
	bool known, pending;
	bool refused; /* at asked_ns */
};

enum region_verdict {
	REGION_GOOD,	/* *rkey is the device's */
	REGION_UNKNOWN, /* a READ is under way, or there is no room for one */
	REGION_WRONG,	/* no such region, or a wrong range or right */
};

/* May the request of s be posted? Where that is not known, queues a READ before
 * it. */
enum region_verdict vqp_region_check(struct vqp *v, const struct vqp_slot *s,
				     uint32_t *rkey);
/* The READ of s was posted; has brought a record; has ended, or was given
 * up. */
void vqp_region_posted(struct vqp_slot *s);
void vqp_region_read(struct vqp_engine *e, struct vqp_slot *s);
void vqp_region_over(struct vqp_slot *s);
/* The READ of s has brought the domain of the vqp's port. */
void vqp_port_read(struct vqp_slot *s);
void vqp_regions_free(struct vqp_engine *e, struct vqp_peer *p);

#endif
