/* SPDX-License-Identifier: MIT */
/*
 * ends.h - both ends of a connection in this process, on TCP and on streams of
 * soft, with no helper's thread. The test says who promotes, hands back, steps,
 * reads, writes and closes, and when. Bytes follow from their offset: one that is
 * lost, doubled or in another place is seen.
 *
 * What waits fails the test after ENDS_WAIT_NS. Thread rule: the test's thread;
 * end_byte_at() any.
 */
#ifndef SKEIN_TESTS_SOCKET_ENDS_H
#define SKEIN_TESTS_SOCKET_ENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bind/socket/sock.h"
#include "env/env.h"
#include "unit/patience.h"
#include "unit/stream/pair.h"

#include <stdbool.h>
#include <sys/epoll.h>

#define ENDS_WAIT_NS patience_ns(30)
#define ENDS_MUCH 100000u

struct end {
	int fd;
	struct sock *s;
	uint64_t wrote, read;
	bool shut, eof, closed;
};

/* 0 connects, 1 accepts. */
extern struct end ends[2];
extern struct stream_pair ends_pair;

/* --- for each program ---------------------------------------------------- */

/* Returns 0. hook: puts functions of the test in place of the world's, or NULL. The
 * device's control thread calls them too, so they stand there from the start. */
int ends_up(void (*hook)(struct env_ops *ops));
int ends_down(void **state);

/* --- for each connection ------------------------------------------------- */

/* A TCP connection whose ends have met: each may be promoted. buffers: of the
 * kernel's; 0: as they are. */
void ends_meet(int buffers);
/* Both ends get a stream, as ends_meet() does. */
void ends_prepare(void);
/* They have met and are promoted. */
void ends_on_streams(void);
/* The same, and some bytes have gone each way. */
void ends_in_use(void);
/* The same; the accepting end was put into a set before it was promoted. Returns the
 * set, for ends_part_set(). */
int ends_in_set(struct epoll_event ev);
/* Closes what is not closed. */
void ends_part(void);
/* And forgets the set. */
void ends_part_set(int epfd);

/* --- what the helper's thread would do ----------------------------------- */

/* SOCK_* */
int end_mode(const struct end *e);
/* One round for this end. */
void end_step(struct end *e);
/* False: it may not be promoted. */
bool end_promote(struct end *e);
void end_hand_back(struct end *e);
/* On TCP, without a stream, until there is traffic. */
bool end_rests(const struct end *e);
/* Frees the streams that both ends have left. */
void ends_bury(void);
/* Both ends are on TCP for good. */
bool ends_are_back(void);
/* Until then; an end reads only where TCP has no more room. */
void ends_go_back(void);

/* --- what the program does ----------------------------------------------- */

uint8_t end_byte_at(const struct end *writer, uint64_t at);
/* Bytes that were taken; 0: no room. */
uint32_t end_put(struct end *e, uint32_t n);
/* Bytes that were there, up to n; each is the one that follows. */
uint32_t end_get(struct end *e, uint32_t n);
/* Up to this byte, as it comes. */
void end_get_to(struct end *e, uint64_t at, uint32_t piece);
/* All that the other end has written. */
void end_get_all(struct end *e);
/* And its end. */
void end_get_eof(struct end *e);
void end_shut(struct end *e);
void end_close(struct end *e);
/* So many each way. */
void ends_some_bytes(uint32_t n);

#endif
