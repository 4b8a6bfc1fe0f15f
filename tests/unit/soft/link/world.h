/* SPDX-License-Identifier: MIT */
/*
 * world.h - two engines of the link between hosts and a bad wire (fault.h) between
 * them, from a seed, in virtual time.
 *
 * Each request has a place of its own in the peer's memory, so what must be
 * there is known at its completion, and for good: an end that carries a WRITE
 * out twice destroys what the peer's program has put there since.
 */
#ifndef SKEIN_TESTS_LINK_WORLD_H
#define SKEIN_TESTS_LINK_WORLD_H

#include "unit/cm.h"

#include "dev/soft/link/rc.h"
#include "fault.h"

#define REQUESTS 32
#define SLOT 12288u
#define MEM_VA 0x10000ull
#define ROM_VA 0x10000000ull
#define WORD_VA 0x20000000ull
#define MEM_KEY 77u
#define ROM_KEY 78u
#define WORD_KEY 79u
#define FLIGHT 1024
#define RD_MAX 4

struct end;

struct request {
	struct rc_wqe w;
	int n;
	bool over;
	int status;
	uint64_t before; /* an atomic's answer */
	uint8_t *local;
};

struct flight {
	uint64_t at;
	struct end *to;
	bool by_bulk;
	size_t len;
	uint8_t bytes[PACKET_MAX];
};

struct world {
	uint64_t rng, now;
	struct fault wire;
	struct flight *air;
	unsigned n_air, sent;
	uint64_t bulk_ns, calls_ns; /* a connection's own delay */
	uint64_t sum;		    /* of all that was sent, and when */
	struct end *ends[2];
};

struct end {
	struct world *w;
	struct end *peer;
	struct rc *rc;
	struct ibv_qp_attr attr;
	struct request req[REQUESTS];
	int posted, over;
	uint8_t *mem; /* REQUESTS slots */
	uint64_t word;
	uint64_t adds; /* carried out for us, by their answers */
	/* receives */
	int recv_posted, recv_taken;
	uint32_t recv_len;
	uint8_t recv_buf[SLOT];
	int expect; /* the next message is of this request of the peer */
	int broken; /* 1 + enum rc_event */
	bool met;
	/* knobs of single tests */
	int fail_local;
	unsigned not_yet; /* so often a request of this end alone waits */
	unsigned invalidated;
	bool no_room, plain, key_gone;
	/* above so many bytes a message goes by a second connection; 0: none */
	uint32_t bulk;
	bool out_bulk, back_bulk, tx_bulk;
	unsigned moves;
	unsigned shrink_at; /* the window, to 2, when so many were sent */
	uint8_t out[PACKET_MAX];
	uint8_t last[PACKET_MAX];
	unsigned packets;
};

uint64_t world_random(struct world *w, uint64_t below);
struct world *world_new(uint64_t seed, uint32_t mtu, uint32_t psn_a,
			uint32_t psn_b, unsigned rd);
void world_free(struct world *w);
/* The next thing that happens. False: nothing will. */
bool world_turn(struct world *w);
/* Until nothing happens any more. */
void world_settle(struct world *w);

struct request *end_post(struct end *e, enum ibv_wr_opcode op, uint32_t len);
void end_post_random(struct end *e);
/* Runs its engine, and looks at what must always be so. */
void end_run(struct end *e);

static inline bool is_write(const struct rc_wqe *w)
{
	return w->op == IBV_WR_RDMA_WRITE ||
	       w->op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

#endif
