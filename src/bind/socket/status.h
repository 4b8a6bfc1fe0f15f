/* SPDX-License-Identifier: MIT */
/*
 * status.h - the status page: what `skein run --list` reads of a process.
 *
 * The page is a memfd, so it goes with its process and leaves nothing to clean
 * up; /proc/PID/fd leads to it, for the same user and root. The process writes,
 * and is never asked: one that is stopped is listed as well. A process has none
 * before its first connection. A forked child writes a page of its own.
 *
 * A row a connection; its addresses are the kernel's to say, by the descriptor.
 * Thread rule: rows are written under st.lock, the counters of bytes by any
 * thread.
 */
#ifndef SKEIN_BIND_SOCKET_STATUS_H
#define SKEIN_BIND_SOCKET_STATUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATUS_NAME "skein-run-status"
#define STATUS_MAGIC 0x32736e7572766b73ull /* with the layout: the last byte */

struct status_row {
	_Atomic uint32_t seq; /* odd while a thread writes the row */
	int32_t fd;	      /* -1: no connection */
	uint64_t since_ns;    /* on this carrier; CLOCK_MONOTONIC */
	uint32_t on_stream;
	uint32_t demotions; /* how often it went back to TCP */
	/* bytes that the program read and wrote */
	_Atomic uint64_t rx_stream, tx_stream, rx_tcp, tx_tcp;
	char reason[72]; /* why it is on TCP; ends with 0 */
};
_Static_assert(sizeof(struct status_row) == 128, "the tool reads it");
_Static_assert(offsetof(struct status_row, rx_stream) == 24,
	       "the tool reads it");

struct status_page {
	uint64_t magic;
	uint32_t row_len;
	_Atomic uint32_t used; /* rows from here on were never written */
	char program[48];      /* ends with 0 */
	/* Changes while the bytes of a row go to these, of connections that
	 * have ended. */
	_Atomic uint32_t seq;
	_Atomic uint64_t gone_rx, gone_tx; /* on streams */
	uint8_t unused[40];
	struct status_row rows[];
};
_Static_assert(sizeof(struct status_page) == 128, "the tool reads it");

struct sock;

/* Bytes of a page with all its rows: whole pages of memory, for it is mapped in
 * the place of others. */
size_t status_len(void);
/* Where st.page is from now on, until the first connection. */
void status_init(void *mem);
/* In a child, before it has connections of its own. */
void status_fork(void);
/* The row of s says how s stands. Locked. */
void status_update(struct sock *s);
/* s is no connection any more. Locked. */
void status_end(struct sock *s);
/* Why it is not on a stream; "" where it is. Locked. */
const char *sock_reason(const struct sock *s);
/* One of these reasons: all meetings so far came to nothing. */
extern const char sock_unanswered[];

/* One writer at a time. */
static inline void status_count(_Atomic uint64_t *bytes, uint64_t n)
{
	atomic_store_explicit(
		bytes, atomic_load_explicit(bytes, memory_order_relaxed) + n,
		memory_order_relaxed);
}

#endif
