/* SPDX-License-Identifier: MIT */
/*
 * world.h - a group's members in one thread: the engines of src/mcast on a
 * network of arrays, with delays, shortages and deaths drawn from a seed.
 */
#ifndef TEST_MCAST_WORLD_H
#define TEST_MCAST_WORLD_H

#include "base/list.h"
#include "base/prng.h"
#include "mcast/eng.h"

#define WORLD_MEMBERS 40
#define WORLD_LINK_MAX 64 /* credits */
#define WORLD_MESSAGES 48
#define WORLD_LATE 64
#define WORLD_SMALL 1000u /* bytes that go by slots */

struct world;

/* Something on its way: a record, its payload, its sender's operation. */
struct packet {
	struct mcast_rec rec;
	uint8_t *payload;
	uint64_t to;
	uint32_t small; /* bytes of a small message, its record among them */
	const uint8_t *from; /* ... and where they were posted from */
	struct mcast_op *op; /* NULL: none, or it has ended */
	uint64_t posted_ns;
	bool lost;  /* the link broke before it arrived */
	bool there; /* FAIL: its sender knows that it has arrived */
};

/* One direction; each channel keeps its own order. What has arrived is heard
 * before the end is, as connections have it. */
struct link {
	bool exists, down; /* down: the far end has not been told yet */
	bool hurt;	   /* ... but that one channel is gone */
	bool held;	   /* nothing arrives for the time being */
	int err;
	uint32_t dst_nb; /* the sender at its destination */
	struct channel {
		unsigned n;
		struct packet packets[WORLD_LINK_MAX];
	} channels[MCAST_CHANNELS];
};

/* One message at one member. */
struct seen {
	uint8_t *buf; /* NULL: not begun, or done with */
	uint64_t size;
	bool begun, stream, done;
	int status;
	uint32_t blocks;
	uint64_t digest;
	uint8_t *copy; /* what was there when it ended, if the world keeps it */
};

struct member {
	struct mcast_port port;
	struct mcast_eng eng;
	struct world *w;
	uint32_t rank;
	bool dead;    /* its process has ended */
	bool stopped; /* ... or does not run */
	bool told;    /* failed(), then */
	uint64_t reported_ns;
	unsigned mems;
	bool no_mem; /* mem_get() finds none */
	struct seen seen[WORLD_MESSAGES];
	/* blocks that the application has not done with */
	struct {
		uint64_t seq;
		struct skein_mcast_block b;
		bool fill;
	} later[64];
	unsigned n_later;
	int gives_up;		      /* at its next block: this error */
	enum skein_mcast_store store; /* of what is resumed */
	uint64_t had; /* bits: of message 0, what its application has */
	/* small messages that have arrived, which its device has yet to say */
	struct packet late[WORLD_LATE];
	uint32_t late_to[WORLD_LATE];
	unsigned n_late;
};

struct world {
	struct prng prng;
	struct mcast_racks racks;
	uint32_t rack_of[WORLD_MEMBERS];
	uint32_t storage[MCAST_RACKS_STORAGE(WORLD_MEMBERS)];
	struct mcast_eng_conf conf;
	uint32_t n;
	uint64_t now;
	struct member m[WORLD_MEMBERS];
	struct link links[WORLD_MEMBERS][WORLD_MEMBERS];
	uint64_t sizes[WORLD_MESSAGES];
	unsigned messages;
	unsigned allocs;
	bool flip;	 /* corrupt the next payload */
	bool keep;	 /* objects are copied when they end */
	bool late_hold;	 /* devices do not say that small messages went */
	int stream_odds; /* of 100 */
	uint32_t slots;	 /* of the groups to come */
	int later_odds;
	uint64_t packets; /* delivered */
	/* Behind each round of a member; NULL: nobody looks. */
	void (*polled)(struct member *m, uint64_t cpu_ns);
};

/* With an odd seed small messages go by slots, if the group is small enough. */
void world_init(struct world *w, uint64_t seed, uint32_t n,
		enum mcast_algorithm algorithm, uint32_t block_size);
void world_fini(struct world *w);
/* Message 0 is resumed: what a member has of it, and where. bytes: size bytes;
 * the blocks with a set bit count. NULL: it does not know the object. */
void world_part(struct world *w, uint32_t rank, enum skein_mcast_store store,
		const uint8_t *bytes, uint64_t size, const uint64_t *have);
/* The root sends one more message. */
void world_send(struct world *w, uint64_t size);
/* One step of somebody. False: nothing can move but time. */
bool world_step(struct world *w);
/* Time goes on to the next deadline of anybody. */
void world_wait(struct world *w);
/* Runs until done() or nothing more will happen within limit_ns. */
bool world_run(struct world *w, bool (*done)(struct world *w),
	       uint64_t limit_ns);
/* Its process ends: links break, in their own time. */
void world_kill(struct world *w, uint32_t rank);
uint8_t world_byte(uint64_t msg, uint64_t i);
/* Everybody alive has msg, and right. */
bool world_has(struct world *w, uint64_t msg);

#endif
