/* SPDX-License-Identifier: MIT */
/*
 * mcast.h - reliable multicast of large objects: one sender, many receivers,
 * nearly the price of one copy.
 *
 * A group has a fixed list of members. Only the first, the root, sends. Every
 * member opens the group with the same list. Messages arrive whole, unchanged,
 * in the order sent, once. When a member fails every other member is told which
 * one, and the group is over. When a group closes without an error every member
 * has had every message. Guide: docs/guide/multicast.md; protocol:
 * docs/protocol/mcast.md.
 *
 * A process may be in many groups. Every member except the root has a listener
 * of the same context, on the default engine (skein_listener_open()), at its
 * address in the list; the root's address only appears in texts. A process in a
 * group runs its default engine all the time (the context's attr.background
 * does so): a member that does not answer for attr.member_timeout_ns while
 * others wait for it counts as failed.
 *
 * Thread rule: any thread, except where a comment says otherwise. Callbacks run
 * in the thread that runs the context's default engine. They must not block,
 * nor call functions that block (skein_mcast_open(), _wait(), _flush(),
 * _close()).
 */
#ifndef SKEIN_MCAST_H
#define SKEIN_MCAST_H

#include <skein/conn.h>
#include <skein/mem.h>

#ifdef __cplusplus
extern "C" {
#endif

struct skein_mcast; /* this process's membership in one group */

#define SKEIN_MCAST_MEMBERS_MAX 4096u
#define SKEIN_MCAST_BLOCK_MIN 4096u
#define SKEIN_MCAST_BLOCK_MAX (64u << 20)
/* A message has at most so many blocks: 1 TiB in blocks of 64 KiB. */
#define SKEIN_MCAST_BLOCKS_MAX (1u << 24)
#define SKEIN_MCAST_SMALL_MEMBERS 16u
#define SKEIN_MCAST_SMALL_BYTES 10240u

enum skein_mcast_algorithm {
	SKEIN_MCAST_PIPELINE,	/* binomial pipeline: the default */
	SKEIN_MCAST_SEQUENTIAL, /* the root sends to each in turn */
	SKEIN_MCAST_CHAIN,	/* each relays to the next */
	SKEIN_MCAST_TREE,	/* binomial tree of whole messages */
	SKEIN_MCAST_HYBRID,	/* a pipeline among racks, then in each */
};

/* One message. Passed to callbacks; valid during the call. */
struct skein_mcast_msg {
	uint64_t seq;	     /* 0, 1, 2, ... in the order sent */
	uint64_t size;	     /* bytes; may be 0 */
	uint32_t blocks;     /* a message of 0 bytes has one, empty */
	uint32_t block_size; /* bytes of all but the last */
	/* The tag given to skein_mcast_send(), or in dest.tag. */
	void *tag;
	/* In done() with status 0: the same at every member, made of the
	 * checksums of all blocks; 0 with SKEIN_MCAST_NO_CHECKSUM. */
	uint64_t digest;
};

/* One block of a message that is streamed. */
struct skein_mcast_block {
	uint32_t index;
	uint32_t len;
	uint64_t off; /* within the message */
	void *data;   /* in the group's ring of registered blocks */
};

/* What block() and fill() return when the block is not done yet. */
#define SKEIN_MCAST_LATER 1

/* Where an incoming message goes. Zero (except tag) when incoming() is
 * called. */
struct skein_mcast_dest {
	/* msg->size bytes from off on, of this context; the library's until
	 * done(). NULL: the message is streamed through the group's ring, block
	 * by block, by block(). Ignored for a message of 0 bytes. */
	struct skein_mem *mem;
	uint64_t off;
	void *tag;
};

/* Why a group is over. Valid as long as the handle. */
struct skein_mcast_failure {
	int err;	    /* negative */
	unsigned rank;	    /* the member that failed */
	const char *member; /* its address, as the list has it */
	/* One line: which member, noticed by which, why. */
	const char *text;
};

struct skein_mcast_ops {
	/*
	 * Receivers: a message begins. Says where it goes. Returns 0, or a
	 * negative error: this member gives up (as skein_mcast_abort()). NULL:
	 * everything is streamed.
	 */
	int (*incoming)(void *arg, struct skein_mcast *group,
			const struct skein_mcast_msg *msg,
			struct skein_mcast_dest *dest);
	/*
	 * Receivers, only for messages without dest.mem: a block is here and
	 * verified. Blocks come in the order of the schedule, not of the
	 * message; each once. block->data is valid until the return of 0, or,
	 * after SKEIN_MCAST_LATER, until skein_mcast_block_done(). A negative
	 * return: this member gives up.
	 */
	int (*block)(void *arg, struct skein_mcast *group,
		     const struct skein_mcast_msg *msg,
		     const struct skein_mcast_block *block);
	/*
	 * Root, only for skein_mcast_send_stream(): fills block->data with
	 * block->len bytes of the message from block->off on. In the order of
	 * the schedule; with SKEIN_MCAST_SEQUENTIAL and SKEIN_MCAST_TREE a
	 * block may be asked for again. 0: filled. SKEIN_MCAST_LATER:
	 * skein_mcast_block_done() will say so. Negative: gives up.
	 */
	int (*fill)(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *block);
	/*
	 * This member has finished a message: it has received all of it, and
	 * sent all that it had to send. Its memory may be used again. Other
	 * members may not have it yet: skein_mcast_flush() and
	 * skein_mcast_close() wait for them. After a failure it comes, with the
	 * error, for every message that had begun (incoming() or send() had
	 * returned 0) and was not finished.
	 */
	void (*done)(void *arg, struct skein_mcast *group,
		     const struct skein_mcast_msg *msg, int status);
	/* The group is over. Once at most; the done()s of open messages come
	 * after it. May be NULL. */
	void (*failed)(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_failure *why);
};

enum {
	/* No checksums: only the device protects the bytes. */
	SKEIN_MCAST_NO_CHECKSUM = 1 << 0,
	/* Small messages travel as large ones do, in small groups too. */
	SKEIN_MCAST_NO_SLOTS = 1 << 1,
};

/* All members pass the same values, except for rank, ops, arg and fields that
 * may differ; a member with other values is refused with -EINVAL. */
struct skein_mcast_attr {
	size_t size; /* sizeof(struct skein_mcast_attr) */
	/* tells groups with the same list apart; any value */
	uint32_t number;
	/* "HOST:PORT" of each member's listener, at most
	 * SKEIN_MCAST_MEMBERS_MAX; the first is the root; its address is
	 * any word. Copied. */
	const char *const *members;
	unsigned count;
	/* which of them this process is */
	unsigned rank;
	/* the rack of each, for SKEIN_MCAST_HYBRID: any numbers. Copied. */
	const unsigned *racks;
	enum skein_mcast_algorithm algorithm;
	unsigned flags;
	/* bytes; default 1 MiB; a multiple of 4096 */
	uint32_t block_size;
	/* Blocks in the ring for streamed messages; default 8, and at least
	 * what the schedule needs. Memory is taken when the first message is
	 * streamed. May differ between members. */
	unsigned ring_blocks;
	/* how long opening may take; default 10 s. May differ. */
	uint64_t open_timeout_ns;
	/* How long a member may be silent while another one waits for it;
	 * default 1.5 s, or skein_conn_timeout() of the connections to its
	 * neighbours, if that is longer. May differ. */
	uint64_t member_timeout_ns;
	/* While messages are under way: how long the engine polls after its
	 * last input, before it sleeps. Default 50 ms where no other member has
	 * this one's HOST (pollers would take shared cores from each other),
	 * else as the engine does. 1: as the engine does. When other threads
	 * want the core it is always as the engine does. May differ. */
	uint64_t poll_ns;
	struct skein_mcast_ops ops;
	void *arg;
	/* In groups of at most SKEIN_MCAST_SMALL_MEMBERS the root writes
	 * messages of at most so many bytes straight to every member; default
	 * SKEIN_MCAST_SMALL_BYTES, and at most a block's. */
	uint32_t small_max;
	/* How many of them may be under way; default 16, at most 32. So many
	 * times small_max bytes are kept for them at each member. */
	unsigned slots;
};

/*
 * Opens a group and waits until this member's neighbours in the schedule have
 * opened it too. A member that is not up yet is tried again until the deadline.
 * -ETIMEDOUT: the log names the member; -EINVAL: attributes that are not valid,
 * or that differ from another member's; -ENOMEM; -SKEIN_EAUTH and other errors
 * of skein_conn_open(). Blocks.
 */
SKEIN_API int skein_mcast_open(struct skein_ctx *ctx,
			       const struct skein_mcast_attr *attr,
			       struct skein_mcast **group);
/* The same without waiting (name look-up still blocks). Messages may be sent at
 * once, and leave when the group is up. ops.failed() reports a later failure.
 * The handle must be closed in any case. */
SKEIN_API int skein_mcast_open_async(struct skein_ctx *ctx,
				     const struct skein_mcast_attr *attr,
				     struct skein_mcast **group);
/* Waits until the group is up: 0, -ETIMEDOUT, or why it is over. Blocks. */
SKEIN_API int skein_mcast_wait(struct skein_mcast *group, uint64_t timeout_ns);

/*
 * Root: sends size bytes (0 is allowed) of mem from off on, after all messages
 * sent before. mem must not change until done(). Callbacks get tag. 0: done()
 * will come. -EPERM: not the root; -ERANGE: outside mem; -EFBIG: more than
 * SKEIN_MCAST_BLOCKS_MAX blocks; -ESHUTDOWN: after skein_mcast_finish();
 * -ECONNABORTED: the group is over; -ENOMEM.
 */
SKEIN_API int skein_mcast_send(struct skein_mcast *group, struct skein_mem *mem,
			       uint64_t off, uint64_t size, void *tag);
/* The same from ops.fill(), through the group's ring of blocks. */
SKEIN_API int skein_mcast_send_stream(struct skein_mcast *group, uint64_t size,
				      void *tag);
/* After SKEIN_MCAST_LATER: the block is done (status 0), or this member gives
 * up (a negative error). Once for each block. */
SKEIN_API int skein_mcast_block_done(struct skein_mcast *group, uint64_t seq,
				     uint32_t index, int status);

/* Root: waits until every member has received every message sent so far.
 * 0, -ETIMEDOUT, -EPERM, or why the group is over. Blocks. */
SKEIN_API int skein_mcast_flush(struct skein_mcast *group, uint64_t timeout_ns);

/* Root: no more messages will be sent. Returns at once; does nothing at a
 * receiver. A process with several groups finishes all of them first: then it
 * may close them in any order. */
SKEIN_API void skein_mcast_finish(struct skein_mcast *group);

/*
 * Every member calls it. The handle is freed in any case, and no callback comes
 * after it. The root finishes, waits until every member has every message, and
 * tells the members; a receiver waits for that. 0: every message has reached
 * every member. Otherwise why the group is over, or -ETIMEDOUT: then the other
 * members are told that this one has left. Blocks, at most timeout_ns and one
 * second. timeout_ns 0: leaves at once.
 */
SKEIN_API int skein_mcast_close(struct skein_mcast *group, uint64_t timeout_ns);

/* This member gives up, as for a full disk: the group is over at every member,
 * with this member's rank and err (a negative errno). */
SKEIN_API void skein_mcast_abort(struct skein_mcast *group, int err);

/* Is the group over? true, and why. */
SKEIN_API bool skein_mcast_failed(struct skein_mcast *group,
				  struct skein_mcast_failure *why);

/*
 * Which blocks this member has of the message that a failure ended: the oldest
 * message with an error in done(). *msg is that message, with its tag. Bit
 * i % 64 of bits[i / 64]: block i is here and verified (for a streamed message:
 * block() was called for it); the sender has all. bits may be NULL; else words
 * is at least (msg->blocks + 63) / 64. -ENOENT: there is no such message (yet);
 * -ENOSPC: too few words. From done() on, until close.
 */
SKEIN_API int skein_mcast_have(struct skein_mcast *group,
			       struct skein_mcast_msg *msg, uint64_t *bits,
			       size_t words);

/* Where a member has the object that is resumed. If the member can read it
 * there again it can supply blocks to others. */
enum skein_mcast_store {
	/* part.mem: the default */
	SKEIN_MCAST_MEMORY,
	/* As a file: ops.block() gets the missing blocks, and ops.fill()
	 * supplies any block that is there or came by block(), as often as it
	 * is asked. */
	SKEIN_MCAST_REREAD,
	/* As a pipe: ops.block() gets the missing blocks, and this member can
	 * supply none of its blocks again. Not at the first member. */
	SKEIN_MCAST_CONSUMED,
};

/* What a member has of an object that is resumed. */
struct skein_mcast_part {
	size_t size; /* sizeof(struct skein_mcast_part) */
	/* len bytes from off on are the object's; the library's until done().
	 * NULL, with SKEIN_MCAST_MEMORY: this member does not know the object,
	 * and ops.incoming() must give memory. With the other stores mem is
	 * NULL; if len is 0 and whole is false the member does not know the
	 * object, and ops.incoming() must give no memory. */
	struct skein_mem *mem;
	uint64_t off, len;
	/* The blocks that are there: all, or those with a set bit (as of
	 * skein_mcast_have(); NULL: none). Copied. */
	bool whole;
	const uint64_t *have;
	void *tag; /* of the message */
	enum skein_mcast_store store;
};

/*
 * Opens a group in which members complete one object among themselves, whatever
 * part of it each has: members that survived a failure, and others that come
 * back or are new. Message 0 of the group is that object; the first member
 * sends further messages as always. The first member need not have been the
 * sender before, and need not have the whole object. All members call it with
 * the same list, and block_size as before; while the failed group is still
 * open, with another number.
 *
 * Reads all blocks that part says are there: blocks in memory before it
 * returns, blocks of SKEIN_MCAST_REREAD later, by ops.fill(). Returns without
 * waiting, as skein_mcast_open_async(). Then members tell each other what they
 * have, and each gets only the blocks that it lacks. done() with status 0: the
 * object is whole and the same as at the first member. After a failure done()
 * comes if part described the object or incoming() returned 0, and
 * skein_mcast_have() says which blocks are there for the next try. If no member
 * has some blocks, the group is over at every member with -ENODATA, and
 * stats.blocks_lost says how many.
 *
 * Which member supplies what. A block that a member lacks must be where it can
 * be read again, in the memory or the file of at least one member; else it is
 * lost. Consumed blocks are trusted: no byte of them is read, block() is not
 * called for them again, and the digest at that member is the first member's.
 * But if another member lacks such a block this member gets it once more, to
 * pass it on (stats.blocks_refused counts it). If a file has other bytes when
 * it is read once more, its member fails with -EBADMSG.
 *
 * Of each member only the longest stretches of blocks count: 65536 / count of
 * them, at least 64 and at most 4096; other blocks are sent again. -EINVAL:
 * also SKEIN_MCAST_NO_CHECKSUM, bits without memory or length, memory with
 * another store, a store without ops.block() (and ops.fill(), to read again),
 * or a first member with SKEIN_MCAST_CONSUMED; -ERANGE: part is outside its
 * memory.
 */
SKEIN_API int skein_mcast_resume(struct skein_ctx *ctx,
				 const struct skein_mcast_attr *attr,
				 const struct skein_mcast_part *part,
				 struct skein_mcast **group);

struct skein_mcast_stats {
	size_t size; /* sizeof(struct skein_mcast_stats), set by the caller */
	uint64_t messages;  /* this member is through with */
	uint64_t delivered; /* root: every member has received */
	uint64_t blocks_sent, blocks_received;
	uint64_t bytes_sent, bytes_received; /* of payload */
	uint64_t not_ready; /* times a send waited for its receiver */
	/* blocks that ended because their receiver was not ready: 0. Devices
	 * tell it only with SKEIN_RNR_RETRY=1 to 6. */
	uint64_t rnr;
	uint64_t copies;     /* bytes copied from the first block's buffer */
	uint64_t bad_blocks; /* checksums that were wrong */
	unsigned neighbours; /* of this group; at most two connections each */
	/* The message that this member is at: blocks it has. */
	uint64_t current;
	uint32_t current_blocks, current_have;
	/* Root: the least of all members' blocks of it, at most 100 ms old for
	 * each hop, and where it is. */
	uint32_t least_have;
	unsigned slowest;
	/* Of what skein_mcast_resume() resumes: blocks that this member had and
	 * that were not sent to it; that it said to have and that were sent all
	 * the same; that no member has (-ENODATA). */
	uint64_t blocks_kept, blocks_refused, blocks_lost;
	uint64_t bytes_kept;
	uint64_t small; /* messages that went by slots */
};
SKEIN_API int skein_mcast_get_stats(struct skein_mcast *group,
				    struct skein_mcast_stats *stats);

/* What attr names, as the group uses it: defaults filled in. */
SKEIN_API unsigned skein_mcast_count(const struct skein_mcast *group);
SKEIN_API unsigned skein_mcast_rank(const struct skein_mcast *group);
SKEIN_API const char *skein_mcast_member(const struct skein_mcast *group,
					 unsigned rank);
SKEIN_API uint32_t skein_mcast_block_size(const struct skein_mcast *group);

#ifdef __cplusplus
}
#endif
#endif
