/* SPDX-License-Identifier: MIT */
/*
 * shm.h - what one soft device shows to its peers: the layout of its NIC file.
 *
 * A NIC file is a memfd, sealed against shrinking, that every connected peer
 * maps whole. Each field has exactly one writing side, named below. A peer
 * checks what it reads here before it uses it as an index or a length. An area
 * of a QP is only ever used again as an area of a QP, at the same offset, so a
 * peer that looks at an old one finds a gate that it does not know.
 * docs/soft.md, "Memory layout".
 */
#ifndef SKEIN_DEV_SOFT_SHM_H
#define SKEIN_DEV_SOFT_SHM_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC 0x6e6b7331u
#define SHM_VERSION 12u
#define SHM_LINE 64
#define SHM_PAGE 4096ull
#define SHM_SPAN (1ull << 30) /* address space set aside per NIC file */
#define SHM_BLOCK_QPS 4096u   /* QPNs are block (12 bits), index (12) */
#define SHM_BLOCK_MAX 4u
#define SHM_QP_MAX (SHM_BLOCK_QPS * SHM_BLOCK_MAX)
#define SHM_MR_MAX 65536u

/* Not alive: 0 (closed), or the kernel's FUTEX_OWNER_DIED in the word. */
#define SHM_LIFE_DIED 0x40000000u

/* Reads a peer's field once: what is checked is what is used. A plain read may
 * be made again by the compiler behind the check, when the peer has written
 * something else. */
#define shm_once(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* The other end of shm_once(): writes a field that a peer or another thread may
 * read at the same time. relaxed: the word that the reader acquires first (a
 * gate, a place, a key, a slot's word) is stored with a release after it. */
#define shm_set(field, value) \
	__atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

struct shm_nic {
	uint32_t magic;
	uint32_t version;
	uint64_t nic_id;
	uint32_t qp_max;
	uint32_t mr_max;
	/* WRITEs into this device's memory must ascend: dev_caps.ordered_write.
	 * Owner, once. */
	uint32_t ordered;
	/* The control thread's id; its robust futex. Written by the owner and
	 * by the kernel. */
	alignas(SHM_LINE) _Atomic uint32_t life;
	/* MR entries below this index have memory behind them. Owner. */
	alignas(SHM_LINE) _Atomic uint32_t mr_top;
	/* "look at your mappings of the MRs of nic X": set by any peer. */
	alignas(SHM_LINE) _Atomic uint32_t sweep;
	/* One byte a QP: "look at it": set by any peer, cleared by the owner's
	 * control thread. Idempotent, so a writer that dies leaves no harm. */
	alignas(SHM_LINE) _Atomic uint8_t attn[SHM_QP_MAX];
	/* Of each QP: its area, / 4096, while it is there. Owner. */
	alignas(SHM_LINE) _Atomic uint32_t place[SHM_QP_MAX];
};

enum shm_mr_kind {
	SHM_MR_FILE = 1, /* a mapping of a file that is handed out */
	SHM_MR_PLAIN,	 /* ordinary memory */
	SHM_MR_NEAR,	 /* a piece of the arena: off is in this file */
	SHM_MR_WINDOW,	 /* a part of another region, or of its like: of */
};

/* Written by the owner. life is cleared first and set last. What is registered
 * again keeps its key, and has another life. The life of a window of type 2 is
 * also cleared by the peer of its QP, by a CAS: SEND_WITH_INV. */
struct shm_mr {
	_Atomic uint32_t life; /* 0: none; else no other's of this device */
	uint32_t access;
	uint32_t pd;
	uint32_t kind;
	uint64_t start; /* the address that requests name */
	uint64_t len;
	uint64_t off; /* of start in the file */
	uint32_t key; /* lkey and rkey; of a window: rkey */
	uint32_t qpn; /* of a window: the QP that it is for; 0: any */
	uint64_t at;  /* the owner's virtual address of start */
	uint64_t of;  /* of a window: its region: life << 32 | key */
};

#define SHM_MR_OFF (128ull * 1024)
#define SHM_ARENA_OFF (SHM_MR_OFF + SHM_MR_MAX * sizeof(struct shm_mr))

/* The gate: what a peer's operation on this QP is allowed, in one word. The
 * epoch changes with every change, so a poster learns by one compare that all
 * it has checked still holds. */
enum shm_gate {
	SHM_GATE_ACCEPT = 1 << 0, /* RTR, RTS or SQD */
	SHM_GATE_DEAD = 1 << 1,	  /* ERR or destroyed: it will not answer */
	SHM_GATE_WRITE = 1 << 2,
	SHM_GATE_READ = 1 << 3,
	SHM_GATE_ATOMIC = 1 << 4,
	SHM_GATE_FIRST = 1 << 5, /* RTR: the owner raises COMM_EST at the first
				  * message */
	SHM_GATE_EPOCH = 1 << 8,
};

struct shm_qp {
	/* lines 0 and 1: the owner writes, on the control path only */
	_Atomic uint32_t gate;
	uint32_t qpn;
	uint32_t idx; /* in attn[] */
	uint32_t pd;
	uint32_t conn;	    /* counts the owner's ways out of RESET */
	uint32_t dest_qpn;  /* valid while ACCEPT */
	uint32_t dest_conn; /* the peer's conn that was met at RTR */
	uint32_t type;	    /* enum ibv_qp_type */
	uint64_t dest_nic;
	uint32_t rq_psn;
	uint32_t rnr_timer; /* min_rnr_timer, as encoded */
	uint32_t rq_slots;  /* power of two, or 0 */
	uint32_t rq_stride; /* bytes a slot */
	uint32_t ready_off; /* of the ready word in the NIC file, / 4 */
	uint32_t cq_off;    /* of the receive CQ's page, / 4096 */
	/* of the shared receive queue, / 4096; 0: the QP has its own, and
	 * slots[] are its receives. With an SRQ slots[] is the order ring. */
	uint32_t srq_off;
	uint32_t bell; /* of the receive CQ: its channel's id; 0: none */
	/* A DC target: the table in which senders say that they are inside
	 * (dc/dc.h), / 4096; 0: no DC target. dc_key is its key. */
	uint32_t inside_off;
	/* of the ready word, among those of the receive CQ */
	uint32_t rq_group;
	uint64_t dc_key;
	/* line 2: the owner writes as a poster, at every operation. Odd while
	 * it is inside a peer's memory. */
	alignas(SHM_LINE) _Atomic uint32_t hazard;
	/* line 3: the owner writes as a poster, seldom */
	alignas(SHM_LINE) _Atomic uint32_t parked; /* ring me when ready */
	/* enum shm_fault: what the peer broke here. The peer writes it inside
	 * its hazard, as it writes slots. In the peer's own area it would be
	 * lost if the peer goes to RESET at once. */
	_Atomic uint32_t fault;
	_Atomic uint32_t met; /* the first message has arrived at yours */
	/* UD; the owner, on the control path */
	uint32_t qkey;
	uint32_t claim_off; /* of its claims in the NIC file, / 4096 */
	/* a bit for each group that it is attached to: soft_group_bit() */
	_Atomic uint64_t groups;
	alignas(SHM_LINE) unsigned char slots[];
};

enum shm_fault {
	SHM_FAULT_NONE,
	SHM_FAULT_ACCESS,  /* a bad rkey, range or right */
	SHM_FAULT_REQUEST, /* an invalid request */
	SHM_FAULT_RECV,	   /* the receive completed in error */
};

struct shm_sge {
	uint64_t addr;
	uint32_t len;
	uint32_t lkey;
};

static inline struct shm_sge shm_sge_once(const struct shm_sge *g)
{
	return (struct shm_sge){shm_once(g->addr), shm_once(g->len),
				shm_once(g->lkey)};
}

/* A receive. word = (count << 2) | state; the count is the slot's place in
 * the order of posting, so an old lap never looks like this one. */
enum shm_slot_state {
	SHM_SLOT_FREE,
	SHM_SLOT_POSTED, /* the peer may take it */
	SHM_SLOT_DONE,	 /* the fields below are the completion */
};

struct shm_slot {
	_Atomic uint32_t word;
	uint32_t num_sge; /* owner */
	/* the peer's, valid when DONE */
	uint32_t status; /* enum ibv_wc_status */
	uint32_t byte_len;
	uint32_t imm;
	uint32_t flags; /* enum shm_slot_flags */
	uint32_t src_qp;
	uint32_t dest; /* of an SRQ: a UD or DC sender names the QP; the owner
		        * sets 0 */
	struct shm_sge sge[]; /* owner */
};

enum shm_slot_flags {
	SHM_SLOT_IMM = 1 << 0,
	SHM_SLOT_WRITE = 1 << 1, /* by an RDMA WRITE with immediate */
	SHM_SLOT_VOID = 1 << 2,	 /* of an SRQ: not used after all */
	SHM_SLOT_V4 = 1 << 3,	 /* a datagram's header is IPv4's */
	SHM_SLOT_INV = 1 << 4,	 /* imm is the key that it invalidated */
};

/*
 * The shared page of a CQ that has receives: the armed word, the marks, then
 * ready words (how many receives a QP's peer has completed, ever; the peer
 * writes). More ready words are in pages of their own; the head of such a page
 * is unused.
 *
 * The marks let a poll cost what is active: group[i] is set if a word among [i
 * * SHM_CQ_GROUP, (i + 1) * SHM_CQ_GROUP) may have changed, and any if a group
 * may be set. A peer stores its ready word, then group, then any; the owner
 * clears any, takes a group by exchange, and looks at the words last. So if the
 * owner misses one of the three stores, a later store of the three still marks
 * it.
 */
enum shm_armed {
	SHM_ARMED_NOT,
	SHM_ARMED_ANY,
	SHM_ARMED_SOLICITED,
	SHM_ARMED_FIRED, /* an event; its count is added next */
	SHM_ARMED_STATE = (1 << 3) - 1,
};

/* Above the state: how many CQs the page had, and how often they were fired, all
 * of them. */
#define SHM_ARMED_LIFE (1ull << 3)
#define SHM_ARMED_LIVES (0xffffffffull * SHM_ARMED_LIFE)
#define SHM_ARMED_EVENT (1ull << 35)

#define SHM_CQ_GROUP 64u
#define SHM_CQ_GROUPS (SHM_QP_MAX / SHM_CQ_GROUP)

struct shm_cq {
	_Atomic uint64_t armed;
	/* Event n has its count in the channel: bit n % 32 is 1 where n / 32 is
	 * even, else 0. The thread that has added the count writes it. */
	_Atomic uint32_t counted;
	alignas(SHM_LINE) _Atomic uint32_t any;
	alignas(SHM_LINE) _Atomic uint8_t group[SHM_CQ_GROUPS];
	alignas(SHM_LINE) _Atomic uint32_t ready[];
};

#define SHM_CQ_READY ((SHM_PAGE - offsetof(struct shm_cq, ready)) / 4)

/* Called after the store of a ready word. release, twice: pairs with the
 * owner's two exchanges. An owner that has taken any also sees the group; an
 * owner that has taken the group also sees the ready word. Several peers store
 * here. x86 makes the stores of each peer visible to all in their order, so an
 * exchange may take any peer's store. */
static inline void shm_cq_mark(struct shm_cq *cq, uint32_t group)
{
	atomic_store_explicit(&cq->group[group], 1, memory_order_release);
	atomic_store_explicit(&cq->any, 1, memory_order_release);
}

_Static_assert(sizeof(struct shm_nic) <= SHM_MR_OFF, "header");
_Static_assert(sizeof(struct shm_mr) == SHM_LINE, "MR entry");
_Static_assert(offsetof(struct shm_qp, hazard) == 128, "poster's line");
_Static_assert(offsetof(struct shm_qp, parked) == 192, "seldom line");
_Static_assert(offsetof(struct shm_qp, slots) == 256, "slots");
_Static_assert(sizeof(struct shm_slot) == 32, "slot head");
_Static_assert(SHM_ARENA_OFF % SHM_PAGE == 0, "arena");

#endif
