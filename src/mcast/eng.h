/* SPDX-License-Identifier: MIT */
/*
 * eng.h - the engine of one member of one group: RDMC, sections 4.2 and 4.6;
 * docs/protocol/mcast.md, sections 3 to 6.
 *
 *	eng.c	up and down, what comes in, what is owed, time
 *	xfer.c	one message: READYs, arrivals, sends
 *	ring.c	slots for messages that are streamed; need.c: how many
 *	over.c	acknowledgement, closing, failure
 *	resume.c an object that is resumed
 *	slot.c	small messages, straight from the root to each
 *
 * Records and times go in, records, blocks and calls of the application go out
 * through the port. The schedule says what is next; the engine only waits until
 * it can be done. Calls of the application are made from mcast_eng_poll() alone.
 *
 * Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_ENG_H
#define SKEIN_MCAST_ENG_H

#include "base/list.h"
#include "mcast/need.h"
#include "mcast/port.h"
#include "mcast/resume/resume.h"
#include "mcast/schedule.h"
#include "mcast/slot.h"

/* READYs under way, of all neighbours together, and blocks that this member
 * sends at once. Two of each keep a link busy; with more a sender that is ahead
 * takes its receiver's cable from the one that is waited for. */
#define MCAST_GRANTS 2u
#define MCAST_SENDS 2u
/* A neighbour's READYs: of one message, and the first of the next. */
#define MCAST_READYS (MCAST_GRANTS + 1)
/* The ring of a streamed message grows to what the schedule needs, up to: */
#define MCAST_RING_MAX (1ull << 30)
/* How often progress is told, and how long a failure may take to settle. */
#define MCAST_REPORT_NS (100 * 1000 * 1000ull)
#define MCAST_SETTLE_NS (500 * 1000 * 1000ull)
/* How long who leaves at once waits for answers. A neighbour that runs answers
 * in a round trip, and its link then ends without an error. */
#define MCAST_LEAVE_NS (20 * 1000 * 1000ull)

struct mcast_eng_conf {
	uint32_t n, rank;
	enum mcast_algorithm algorithm;
	const struct mcast_racks *racks;
	uint32_t block_size;
	uint32_t ring_blocks;
	bool checksum;
	/* 0: no slots; most bytes of a message that goes by them, at most a
	 * block's */
	uint32_t slots, small_max;
	uint64_t list;
	uint64_t open_deadline_ns;
	uint64_t member_timeout_ns;
};

/* Records that are owed to a neighbour, in the order of sending. */
enum {
	MCAST_OWE_HELLO = 1 << 0,
	MCAST_OWE_FAIL = 1 << 1,
	MCAST_OWE_ACK = 1 << 2,
	MCAST_OWE_CLOSE = 1 << 3,
	MCAST_OWE_BYE = 1 << 4,
	MCAST_OWE_PING = 1 << 5,
	MCAST_OWE_PONG = 1 << 6,
	MCAST_OWE_STOP = 1 << 7, /* FAIL behind the blocks */
	MCAST_OWE_RING = 1 << 8,
};

/* What a neighbour is ready for. */
struct mcast_ready {
	uint64_t msg, addr;
	uint32_t block, len, rkey;
};

struct mcast_nb {
	uint32_t rank;
	bool up, down; /* both channels are ready; have been and are no more */
	bool child;    /* in the tree */
	bool below;    /* it acknowledges to me, and hears CLOSE from me */
	unsigned channels; /* 1: of words alone: it is in no schedule of mine */
	bool hello_in, hello_out;
	bool begins; /* a child that must be told of the message */
	unsigned fail_in, fail_out; /* bits: in which channels */
	unsigned fail_there;	    /* ... the neighbour's device has it */
	bool bye_in, bye_out;
	unsigned owe;
	uint32_t in[MCAST_CHANNELS], out[MCAST_CHANNELS]; /* records so far */
	uint64_t heard_ns, pinged_ns;
	bool acked;   /* a child: all of its part is up */
	uint64_t ack; /* ... and has so many messages */
	uint32_t least;
	uint32_t slowest;
	uint32_t n_ready;
	struct mcast_ready ready[MCAST_READYS];
	bool has_ring; /* its slots; the root knows */
	uint64_t ring_addr;
	uint32_t ring_rkey;
};

/* A READY that this member has said. */
struct mcast_grant {
	uint32_t nb;
	uint32_t block;
	uint32_t buffer;
};

/* A block that has come (or BEGIN), and what it is to be. */
struct mcast_arrival {
	uint32_t nb;
	uint32_t buffer;
	bool first; /* in the room for short messages */
	struct mcast_rec rec;
};

enum mcast_buffer_state {
	MCAST_BUFFER_FREE,
	MCAST_BUFFER_GRANTED, /* a neighbour may write it */
	MCAST_BUFFER_FILLING, /* the application writes it */
	MCAST_BUFFER_HAVE,    /* a block is there, and right */
};

/* One block of the ring. */
struct mcast_buffer {
	enum mcast_buffer_state state;
	bool app; /* the application has it */
	bool fed; /* ... and supplies it */
	uint32_t block;
	uint32_t unsent; /* sends of it that are to come */
	uint32_t flying; /* sends of it under way */
	uint64_t order;	 /* in which they were taken */
	uint64_t sum;
};
#define MCAST_NO_BUFFER UINT32_MAX

struct mcast_ring {
	struct mcast_buffer *buffers;
	uint32_t count;
	struct mcast_buf mem;
	void *handle;
};

struct mcast_sendop {
	struct mcast_op op;
	struct mcast_eng *eng;
	bool busy;
	uint32_t nb;
	uint32_t buffer;
};

/* The message that this member is at. */
struct mcast_xfer {
	bool active;
	bool small; /* it goes by slots: slot.c */
	bool stream;
	bool ring_due;	  /* streamed: there is no ring for it yet */
	uint32_t in_turn; /* receives that are asked for one at a time */
	struct skein_mcast_msg msg;
	struct mcast_plan plan;
	struct mcast_buf base;
	uint64_t seed;
	/* bits: received and right; root: checksum known */
	uint64_t *have;
	uint64_t *sums; /* not when streamed */
	uint8_t *left;	/* streamed, receivers: sends of each block */
	struct mcast_need need;
	uint32_t n_have;
	uint32_t n_app; /* blocks that the application has */
	struct mcast_item grant, send, feed;
	bool grants, sends, feeds; /* there is one */
	bool waited;		   /* the next send has been counted */
	uint32_t feed_most;	   /* slots that fill() may have */
	uint64_t taken, fed;	   /* slots so far; the last for fill() */
};

/* What a failure has left of the message that was under way. */
struct mcast_left {
	bool is;
	bool whole; /* the sender: everything */
	struct skein_mcast_msg msg;
	uint64_t *have; /* bits; NULL: nothing */
};

/* A message that the root is to send. */
struct mcast_out {
	struct list_node link;
	struct mcast_buf buf; /* addr NULL: streamed */
	uint64_t size;
	void *tag;
};

struct mcast_eng {
	struct mcast_port *port;
	struct mcast_eng_conf conf;
	struct mcast_nb *nbs;
	uint32_t n_nbs;
	uint32_t parent; /* index; root: MCAST_NONE */
	uint32_t above;	 /* ... whom it acknowledges to */
	bool up;
	bool finish;  /* root: nothing more will be sent */
	bool closing; /* the application waits for the end */
	bool closed;
	bool leaving; /* ... and does not wait for anything */
	bool failure_due;
	bool ended; /* over, and no message is open any more */
	bool waits;
	bool again; /* something could not be posted for want of room */
	int over;   /* why; 0: it is not */
	uint32_t over_rank, over_by;
	uint32_t over_lost; /* -ENODATA: blocks that nobody has */
	const char *wrong;  /* what was wrong; NULL: nothing */
	/* When links are cut that have not settled; 0: not reckoned yet. */
	uint64_t over_deadline_ns;
	uint64_t leave_deadline_ns; /* ... which have FAIL; 0: as before */
	/* Who has left before anybody said why (MCAST_NONE: nobody), how, and
	 * until when the word of others is waited for; 0: not reckoned yet. */
	uint32_t left_nb;
	int left_err;
	uint64_t left_deadline_ns;
	uint64_t now_ns, looked_ns;

	struct list_node queue; /* mcast_out */
	uint64_t queued;	/* messages that send() has taken */
	uint64_t done;		/* messages that this member is through with */
	uint64_t delivered;	/* ... its part of the tree */
	uint64_t digest;	/* of all messages */
	bool reported_up;
	uint64_t reported_ack;
	uint32_t reported_least;
	uint64_t reported_ns;

	struct mcast_xfer x;
	struct mcast_left left;
	struct mcast_resume *resume; /* NULL: a group like most */
	struct mcast_ring ring;
	struct mcast_slots slots;
	struct mcast_buf first; /* where a message of one short block comes */
	void *first_handle;
	bool first_granted;
	struct mcast_grant grants[MCAST_GRANTS];
	uint32_t n_grants;
	struct mcast_arrival arrivals[MCAST_GRANTS];
	uint32_t n_arrivals;
	struct mcast_sendop sends[MCAST_SENDS];
	uint32_t flying;
	struct skein_mcast_stats stats;
};

/* conf is copied; racks is borrowed. 0, -EINVAL, -ENOMEM. */
int mcast_eng_init(struct mcast_eng *e, struct mcast_port *port,
		   const struct mcast_eng_conf *conf, uint64_t now_ns);
/* No operation is under way. Open messages end without done(). */
void mcast_eng_fini(struct mcast_eng *e);

/* What the links say. */
void mcast_eng_link_up(struct mcast_eng *e, uint32_t nb, uint64_t now_ns);
/* One channel is down, blocks may still come by the other. True: this ends the
 * group, and the other is to be broken. link_down() follows in any case. What
 * has come by the channel is told before. */
bool mcast_eng_channel_down(struct mcast_eng *e, uint32_t nb, int err);
/* Nothing comes from nb any more. */
void mcast_eng_link_down(struct mcast_eng *e, uint32_t nb, int err);
/* FAIL has arrived at nb's device, which keeps it until nb runs. */
void mcast_eng_fail_there(struct mcast_eng *e, uint32_t nb,
			  enum mcast_channel channel);
void mcast_eng_record(struct mcast_eng *e, uint32_t nb,
		      enum mcast_channel channel, uint32_t imm_value,
		      const struct mcast_rec *rec, uint64_t now_ns);

/* What the application says. */
void mcast_eng_send(struct mcast_eng *e, struct mcast_out *out);
void mcast_eng_block_done(struct mcast_eng *e, uint64_t seq, uint32_t block,
			  int status);
void mcast_eng_finish(struct mcast_eng *e);
void mcast_eng_close(struct mcast_eng *e);
/* The application waits for nothing and nobody: when this group is over, links
 * are cut as soon as FAIL is at the other end. over.c */
void mcast_eng_leave(struct mcast_eng *e);

/* A member has failed, noticed by `by` (a rank). The first counts. over.c */
void mcast_eng_fail(struct mcast_eng *e, uint32_t rank, int err, uint32_t by);

/* One round, of at most one block a kind. Returns what moved. */
int mcast_eng_poll(struct mcast_eng *e, uint64_t now_ns);
/* Would poll() move something? */
bool mcast_eng_has_work(const struct mcast_eng *e);
/* When poll() must run though nothing happens. */
uint64_t mcast_eng_deadline(const struct mcast_eng *e);
/* Is a message, or the end, under way, so that others are waited for? */
bool mcast_eng_waits(const struct mcast_eng *e);
/* Is it over for good: no neighbour writes, nothing is under way? */
bool mcast_eng_quiet(const struct mcast_eng *e);

/* --- between the files ------------------------------------------------- */

static inline bool mcast_is_root(const struct mcast_eng *e)
{
	return e->conf.rank == 0;
}

static inline uint32_t mcast_block_len(const struct skein_mcast_msg *msg,
				       uint32_t block)
{
	uint64_t off = (uint64_t)block * msg->block_size;

	return msg->size - off < msg->block_size ? (uint32_t)(msg->size - off)
						 : msg->block_size;
}

/* Bits: in which channels a neighbour says FAIL. */
static inline unsigned mcast_nb_channels(const struct mcast_nb *nb)
{
	return (1u << nb->channels) - 1;
}

static inline bool mcast_nb_open(const struct mcast_nb *nb)
{
	return nb->up && nb->hello_in && nb->hello_out && !nb->fail_out &&
	       !nb->fail_in && !nb->bye_in;
}

/* eng.c */
uint32_t mcast_nb_find(const struct mcast_eng *e, uint32_t rank);
int mcast_say(struct mcast_eng *e, struct mcast_nb *nb,
	      enum mcast_channel channel, struct mcast_rec *rec);
/* The neighbour has broken the protocol. */
void mcast_protocol_error(struct mcast_eng *e, struct mcast_nb *nb,
			  const char *what);

/* xfer.c */
int mcast_xfer_start_next(struct mcast_eng *e);
int mcast_xfer_arrivals(struct mcast_eng *e);
/* Has one come whose turn it is? */
bool mcast_xfer_arrived(const struct mcast_eng *e);
/* Tells children of the message, then makes the ring. */
int mcast_xfer_begins(struct mcast_eng *e);
int mcast_xfer_grants(struct mcast_eng *e);
int mcast_xfer_sends(struct mcast_eng *e);
int mcast_xfer_end(struct mcast_eng *e, int status);
bool mcast_xfer_complete(const struct mcast_eng *e);
void mcast_xfer_ready(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec);
void mcast_xfer_block(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec);
void mcast_xfer_begin(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec);
bool mcast_xfer_has_work(const struct mcast_eng *e);
/* A failure ends a message: what is left of the first is kept. have is the
 * engine's from now on. */
void mcast_left_keep(struct mcast_eng *e, const struct skein_mcast_msg *msg,
		     uint64_t *have);
static inline bool mcast_have(const struct mcast_xfer *x, uint32_t block)
{
	return x->have[block / 64] >> (block % 64) & 1;
}
void mcast_have_set(struct mcast_eng *e, uint32_t block, uint64_t sum);
void mcast_msg_set(const struct mcast_eng *e, struct skein_mcast_msg *msg,
		   uint64_t seq, uint64_t size, void *tag);

/* ring.c: for the message under way. -EAGAIN: call again, in a round to come. */
int mcast_ring_begin(struct mcast_eng *e);
/* For what fill() is asked for by itself, before there is a message. */
int mcast_ring_reserve(struct mcast_eng *e);
/* fed: for a block that the application supplies; else for one that comes, to be
 * sent so many times. MCAST_NO_BUFFER: none is free. */
bool mcast_ring_room(const struct mcast_eng *e, bool fed);
uint32_t mcast_ring_take(struct mcast_eng *e, bool fed, uint32_t unsent);
uint32_t mcast_ring_find(const struct mcast_eng *e, uint32_t block);
void mcast_ring_release(struct mcast_eng *e, uint32_t buffer);
struct mcast_buf mcast_ring_buf(const struct mcast_eng *e, uint32_t buffer);
/* A block of a receiver is in its slot; had: the application has had it before,
 * and it is here to be passed on. */
void mcast_ring_have(struct mcast_eng *e, uint32_t buffer, uint32_t block,
		     uint64_t sum, bool had);
/* Root: asks the application for blocks ahead of the sends. */
bool mcast_ring_may_feed(const struct mcast_eng *e);
int mcast_ring_feed(struct mcast_eng *e);
void mcast_ring_free(struct mcast_eng *e);

/* over.c */
void mcast_over_ack(struct mcast_eng *e, struct mcast_nb *nb,
		    const struct mcast_rec *rec);
void mcast_over_close(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec);
void mcast_over_fail(struct mcast_eng *e, struct mcast_nb *nb,
		     const struct mcast_rec *rec);
/* Acknowledges, closes, settles: what is due. */
int mcast_over_step(struct mcast_eng *e);
void mcast_over_fill_ack(const struct mcast_eng *e, struct mcast_rec *rec);

#endif
