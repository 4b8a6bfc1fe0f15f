/* SPDX-License-Identifier: MIT */
/*
 * counts.h - the page of a device's link: what it has sent to each peer, has
 * taken and has dropped, and why. `skein top` reads it, as it reads
 * conn/counters.h: a memfd, so it goes with its process; the process is never
 * asked.
 *
 * A peer is an address to which RC or UC QPs are connected. The row COUNTS_REST
 * has what belongs to no such QP, and the peers for which no row was left.
 *
 * Thread rule: rows are given under soft.lock; any thread counts; any process
 * reads.
 */
#ifndef SKEIN_DEV_SOFT_LINK_COUNTS_H
#define SKEIN_DEV_SOFT_LINK_COUNTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define COUNTS_NAME "skein-link"
#define COUNTS_MAGIC 0x316b6e696c6b73ull /* with the layout: the last byte */
#define COUNTS_ROWS 32u
#define COUNTS_REST 0u

struct skein_env;

/* Packets, but for retries and gaps. */
enum counts_kind {
	COUNTS_SENT,
	COUNTS_TAKEN,
	COUNTS_RETRIES, /* timeouts, after which packets went again */
	COUNTS_GAPS,	/* a peer told us that it misses some */
	COUNTS_RNRS,	/* RNR NAKs: a peer has no receive posted */
	/* what came in and was dropped */
	COUNTS_BEHIND_GAP,
	COUNTS_REPEATED,
	COUNTS_NO_RECEIVE,
	COUNTS_REFUSED, /* UC: what RC answers by a NAK */
	COUNTS_STRANGE, /* an answer to nothing that was asked */
	COUNTS_STATE,	/* the QP is in no state for it */
#define COUNTS_OF_QP 11
	/* for no QP, or not from its peer */
	COUNTS_MALFORMED = COUNTS_OF_QP,
	COUNTS_ICRC,
	COUNTS_NO_QP,
	COUNTS_ADDRESS,
	COUNTS_CLEAR, /* a datagram, where there is a key */
	COUNTS_UD,    /* a datagram that its UD QP did not take */
	COUNTS,
};

struct counts_row {
	uint8_t addr[16]; /* a GID */
	/* Each is whole by itself: relaxed loads and additions suffice. */
	_Atomic uint64_t n[COUNTS];
};

struct counts_page {
	/* Written last, with release: a reader that finds it has the rest. */
	_Atomic uint64_t magic;
	uint32_t len;	       /* of the page */
	uint32_t pid;	       /* a forked child has the descriptor, too */
	_Atomic uint32_t rows; /* release: with their addresses */
	uint32_t unused;
	struct counts_row row[COUNTS_ROWS];
};
_Static_assert(sizeof(struct counts_page) ==
		       24 + COUNTS_ROWS * (16 + 8 * COUNTS),
	       "the tool reads it");

/* A page as it was read. */
struct counts_record {
	uint32_t pid, rows;
	struct {
		uint8_t addr[16];
		uint64_t n[COUNTS];
	} row[COUNTS_ROWS];
};

/* NULL: no memory. Where others cannot be given memory to read (memfd), nobody
 * else sees it. *fd is for counts_free(). */
struct counts_page *counts_new(struct skein_env *env, int *fd);
void counts_free(struct skein_env *env, int fd, struct counts_page *p);

/* The peer's row. */
struct counts_row *counts_peer(struct counts_page *p, const uint8_t addr[16]);

static inline void counts_add(struct counts_row *r, enum counts_kind what,
			      uint64_t n)
{
	atomic_fetch_add_explicit(&r->n[what], n, memory_order_relaxed);
}

static inline uint64_t counts_get(const struct counts_row *r,
				  enum counts_kind what)
{
	return atomic_load_explicit(&r->n[what], memory_order_relaxed);
}

/* Of another process's page, which may hold anything: 0; -EAGAIN: the page is
 * being made; -EINVAL: it is none, or another version's. */
int counts_read(const struct counts_page *p, struct counts_record *out);

#endif
