/* SPDX-License-Identifier: MIT */
/*
 * eng.h - the engine of one member of one group: RDMC, sections 4.2 and 4.6;
 * docs/protocol/mcast.md, sections 3 to 6.
 *
 *	eng.c	opening, incoming records, owed records, time
 *	xfer.c	one message: READYs, arrivals, sends
 *	ring.c	buffers of streamed messages; need.c: how many
 *	over.c	acknowledgement, closing, failure
 *	slot.c	small messages, from the root straight to each member
 *	resume/	an object that an earlier group did not finish
 *
 * Records and times go in; records, blocks and calls of the application go out
 * through the port. The schedule says which block is next; the engine only
 * waits until it can be moved. Only mcast_eng_poll() calls the application.
 *
 * Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_ENG_H
#define SKEIN_MCAST_ENG_H

#include "base/list.h"
#include "mcast/schedule/need.h"
#include "mcast/port.h"
#include "mcast/resume/resume.h"
#include "mcast/schedule/schedule.h"
#include "mcast/slot.h"

/* How many READYs of this member are unanswered, over all neighbours, and how
 * many blocks it sends at once. Two keep a link busy. With more, a sender that
 * is ahead of the schedule takes bandwidth at its receiver from the sender for
 * which the others wait. */
#define MCAST_GRANTS 2u
#define MCAST_SENDS 2u
/* READYs that a neighbour may have sent: the READYs of one message, and the
 * first of the next message. */
#define MCAST_READYS (MCAST_GRANTS + 1)
/* The ring of a streamed message grows to what the schedule needs, but not
 * beyond: */
#define MCAST_RING_MAX (1ull << 30)
/* How often progress is reported, and how long a failure may take to settle. */
#define MCAST_REPORT_NS (100 * 1000 * 1000ull)
#define MCAST_SETTLE_NS (500 * 1000 * 1000ull)
/* How long a member that leaves at once waits for answers. A running neighbour
 * answers within a round trip, and its link then ends without an error. */
#define MCAST_LEAVE_NS (20 * 1000 * 1000ull)

struct mcast_eng_conf {
	uint32_t n, rank;
	enum mcast_algorithm algorithm;
	const struct mcast_racks *racks;
	uint32_t block_size;
	uint32_t ring_blocks;
	bool checksum;
	/* 0: no slots. small_max: the largest message that goes by slots, at
	 * most one block */
	uint32_t slots, small_max;
	uint64_t list;
	uint64_t open_deadline_ns;
	uint64_t member_timeout_ns;
};

/* Records owed to a neighbour, in the order of sending. */
enum {
	MCAST_OWE_HELLO = 1 << 0,
	MCAST_OWE_FAIL = 1 << 1,
	MCAST_OWE_ACK = 1 << 2,
	MCAST_OWE_CLOSE = 1 << 3,
	MCAST_OWE_BYE = 1 << 4,
	MCAST_OWE_PING = 1 << 5,
	MCAST_OWE_PONG = 1 << 6,
	/* FAIL in the channel of blocks, after the last block */
	MCAST_OWE_STOP = 1 << 7,
	MCAST_OWE_RING = 1 << 8,
};

/* A READY that a neighbour has sent. */
struct mcast_ready {
	uint64_t msg, addr;
	uint32_t block, len, rkey;
};

struct mcast_nb {
	uint32_t rank;
	/* all its channels are ready; were ready and are closed */
	bool up, down;
	bool child; /* in the tree of the schedule */
	bool below; /* it sends ACK to this member, and gets CLOSE from it */
	/* how many; 1 if the schedule has no block between the two members */
	unsigned channels;
	bool hello_in, hello_out;
	bool begins; /* a child that has not got BEGIN of this message yet */
	unsigned fail_in, fail_out; /* a bit per channel */
	/* a bit per channel: FAIL has reached the neighbour's device */
	unsigned fail_there;
	bool bye_in, bye_out;
	unsigned owe;
	/* records so far, per channel */
	uint32_t in[MCAST_CHANNELS], out[MCAST_CHANNELS];
	uint64_t heard_ns, pinged_ns;
	bool acked;   /* a child: its part of the tree is open */
	uint64_t ack; /* a child: messages that its part of the tree has */
	uint32_t least;
	uint32_t slowest;
	uint32_t n_ready;
	struct mcast_ready ready[MCAST_READYS];
	bool has_ring; /* the root: this receiver has sent RING */
	uint64_t ring_addr;
	uint32_t ring_rkey;
};

/* A READY that this member has sent. */
struct mcast_grant {
	uint32_t nb;
	uint32_t block;
	uint32_t buffer;
};

/* A BLOCK or BEGIN that has come and is not processed yet. */
struct mcast_arrival {
	uint32_t nb;
	uint32_t buffer;
	bool first; /* the bytes are in the memory for short messages */
	struct mcast_rec rec;
};

enum mcast_buffer_state {
	MCAST_BUFFER_FREE,
	MCAST_BUFFER_GRANTED, /* a neighbour may write it */
	MCAST_BUFFER_FILLING, /* the application fills it */
	MCAST_BUFFER_HAVE,    /* it holds a block with the right checksum */
};

/* One buffer of the ring of a streamed message: it holds one block. */
struct mcast_buffer {
	enum mcast_buffer_state state;
	bool app; /* the application uses it */
	bool fed; /* the application supplies the block */
	uint32_t block;
	uint32_t unsent; /* sends from it that have not begun */
	uint32_t flying; /* sends from it that are under way */
	uint64_t order;	 /* buffers are used in this order */
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

/* The message that this member works on. */
struct mcast_xfer {
	bool active;
	bool small; /* a small message: slot.c */
	bool stream;
	bool ring_due;	  /* streamed, and there is no ring for it yet */
	uint32_t in_turn; /* so many receives are still granted one at a time */
	struct skein_mcast_msg msg;
	struct mcast_plan plan;
	struct mcast_buf base;
	uint64_t seed;
	/* a bit per block: received and checked; root: checksum known */
	uint64_t *have;
	uint64_t *sums; /* checksums; NULL if streamed */
	uint8_t *left;	/* receivers of a stream: sends left, per block */
	struct mcast_need need;
	uint32_t n_have;
	uint32_t n_app; /* blocks that the application holds */
	struct mcast_item grant, send, feed;
	bool grants, sends, feeds; /* the item before is valid */
	/* stats.not_ready has counted the next send */
	bool waited;
	uint32_t feed_most; /* most buffers that fill() may have */
	/* buffers taken so far; the last one taken for fill() */
	uint64_t taken, fed;
};

/* What a failure leaves of the message that was under way. */
struct mcast_left {
	bool is;
	bool whole; /* the sender: all blocks */
	struct skein_mcast_msg msg;
	uint64_t *have; /* a bit per block; NULL: no block */
};

/* A message that waits at the root. */
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
	/* index of the neighbour above in the tree; root: MCAST_NONE */
	uint32_t parent;
	/* index of the neighbour that gets this member's ACKs */
	uint32_t above;
	bool up;
	bool finish;  /* root: the application sends no more messages */
	bool closing; /* the application waits for the group's end */
	bool closed;
	bool leaving; /* the application closes without waiting */
	bool failure_due;
	bool ended; /* over, and every message has had its done() */
	bool waits;
	bool again; /* a post failed for want of room: try again later */
	int over;   /* the errno that ended the group; 0: it has not ended */
	uint32_t over_rank, over_by;
	uint32_t over_lost; /* with -ENODATA: blocks that no member has */
	const char *wrong;  /* what a neighbour did wrong; NULL: nothing */
	/* When links that have not settled are cut; 0: not set yet. */
	uint64_t over_deadline_ns;
	/* The same for links over which FAIL has arrived; 0: not set yet. */
	uint64_t leave_deadline_ns;
	/* A neighbour of which the link ended before any FAIL came (MCAST_NONE: there
	 * is none), with which error, and until when this member waits for a
	 * FAIL that gives the reason; 0: not set yet. */
	uint32_t left_nb;
	int left_err;
	uint64_t left_deadline_ns;
	uint64_t now_ns, looked_ns;

	struct list_node queue; /* mcast_out */
	uint64_t queued;	/* messages that send() has taken */
	uint64_t done;		/* messages that this member has finished */
	/* messages that this member and all below it have finished */
	uint64_t delivered;
	uint64_t digest; /* over the digests of all messages */
	bool reported_up;
	uint64_t reported_ack;
	uint32_t reported_least;
	uint64_t reported_ns;

	struct mcast_xfer x;
	struct mcast_left left;
	struct mcast_resume *resume; /* NULL: the group resumes nothing */
	struct mcast_ring ring;
	struct mcast_slots slots;
	struct mcast_buf first; /* memory for a message of one short block */
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
/* No operation may be under way. Open messages end without done(). */
void mcast_eng_fini(struct mcast_eng *e);

/* Events of links. */
void mcast_eng_link_up(struct mcast_eng *e, uint32_t nb, uint64_t now_ns);
/* One of the neighbour's channels is down; blocks may still come by the other.
 * True: this ends the group, and the caller must break the other channel.
 * link_down() follows in any case. The caller has passed on all records of the
 * channel before. */
bool mcast_eng_channel_down(struct mcast_eng *e, uint32_t nb, int err);
/* A member may be silent for so long, if that is longer than what the engine
 * was told: the device itself asks the neighbour for that long. */
void mcast_eng_patience(struct mcast_eng *e, uint64_t ns);
/* Nothing comes from nb any more. */
void mcast_eng_link_down(struct mcast_eng *e, uint32_t nb, int err);
/* FAIL has arrived at nb's device, which keeps it until nb polls. */
void mcast_eng_fail_there(struct mcast_eng *e, uint32_t nb,
			  enum mcast_channel channel);
void mcast_eng_record(struct mcast_eng *e, uint32_t nb,
		      enum mcast_channel channel, uint32_t imm_value,
		      const struct mcast_rec *rec, uint64_t now_ns);

/* Calls of the application. */
void mcast_eng_send(struct mcast_eng *e, struct mcast_out *out);
void mcast_eng_block_done(struct mcast_eng *e, uint64_t seq, uint32_t block,
			  int status);
void mcast_eng_finish(struct mcast_eng *e);
void mcast_eng_close(struct mcast_eng *e);
/* The application waits for nothing: when this group is over, links are cut as
 * soon as FAIL has arrived at the other end. over.c */
void mcast_eng_leave(struct mcast_eng *e);

/* Member `rank` has failed; member `by` noticed it. Only the first failure
 * counts. over.c */
void mcast_eng_fail(struct mcast_eng *e, uint32_t rank, int err, uint32_t by);

/* One round: at most one block in each direction. Returns how many things
 * moved. */
int mcast_eng_poll(struct mcast_eng *e, uint64_t now_ns);
/* Would mcast_eng_poll() move anything? */
bool mcast_eng_has_work(const struct mcast_eng *e);
/* When mcast_eng_poll() must run even if nothing happens. */
uint64_t mcast_eng_deadline(const struct mcast_eng *e);
/* Does this member wait for others: is a message, or the closing, under way? */
bool mcast_eng_waits(const struct mcast_eng *e);
/* Has it ended: no neighbour writes here any more, and no operation is under
 * way? */
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

/* A bit per channel of a neighbour. */
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
/* The neighbour has broken the protocol: `what` says how. The group fails. */
void mcast_protocol_error(struct mcast_eng *e, struct mcast_nb *nb,
			  const char *what);

/* xfer.c */
int mcast_xfer_start_next(struct mcast_eng *e);
int mcast_xfer_arrivals(struct mcast_eng *e);
/* Is there an arrival of the message that is next? */
bool mcast_xfer_arrived(const struct mcast_eng *e);
/* Sends BEGIN to the children, then makes the ring. */
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
/* Keeps what a failure leaves of the first unfinished message. Takes `have`
 * over. */
void mcast_left_keep(struct mcast_eng *e, const struct skein_mcast_msg *msg,
		     uint64_t *have);
static inline bool mcast_have(const struct mcast_xfer *x, uint32_t block)
{
	return x->have[block / 64] >> (block % 64) & 1;
}
void mcast_have_set(struct mcast_eng *e, uint32_t block, uint64_t sum);
void mcast_msg_set(const struct mcast_eng *e, struct skein_mcast_msg *msg,
		   uint64_t seq, uint64_t size, void *tag);

/* ring.c: makes the ring for the message under way. -EAGAIN: call again in the
 * next round. */
int mcast_ring_begin(struct mcast_eng *e);
/* Makes the buffers that fill() needs before there is a message. */
int mcast_ring_reserve(struct mcast_eng *e);
/* fed: for a block that the application supplies; else for a block that comes
 * and will be sent `unsent` times. MCAST_NO_BUFFER: no buffer is free. */
bool mcast_ring_room(const struct mcast_eng *e, bool fed);
uint32_t mcast_ring_take(struct mcast_eng *e, bool fed, uint32_t unsent);
uint32_t mcast_ring_find(const struct mcast_eng *e, uint32_t block);
void mcast_ring_release(struct mcast_eng *e, uint32_t buffer);
struct mcast_buf mcast_ring_buf(const struct mcast_eng *e, uint32_t buffer);
/* A block has come into its buffer. had: the application got this block before;
 * it came again to be passed on. */
void mcast_ring_have(struct mcast_eng *e, uint32_t buffer, uint32_t block,
		     uint64_t sum, bool had);
/* The root asks the application for blocks before their sends. */
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
/* Sends what acknowledgement, closing or a failure requires now. */
int mcast_over_step(struct mcast_eng *e);
void mcast_over_fill_ack(const struct mcast_eng *e, struct mcast_rec *rec);

#endif
