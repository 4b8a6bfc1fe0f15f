/* SPDX-License-Identifier: MIT */
/*
 * run_ends.h - the bytes of run_lives.c: what both ends know of a turn, the words by
 * which they step together, and reads, writes and waits by ways that an end draws.
 * Each byte is compared. What must hold and does not ends the process.
 */
#ifndef TESTS_E2E_RUN_ENDS_H
#define TESTS_E2E_RUN_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONNS 3
#define WAIT_MS 50000

struct conn {
	int fd;
	bool in_set;
};

/* What both ends know of a turn. */
struct turn {
	int number, op, conn;
	bool mine;     /* this end acts */
	unsigned kind; /* which one of the op's ways */
	size_t sent;   /* by the end that acts */
	size_t back;   /* by the other one */
};

extern struct conn all[CONNS];
extern struct turn t;
extern int ctl; /* to the other end, for words */
extern int set; /* of epoll */
extern bool server, in_storm, restarts;
extern uint64_t seed, own_state;

uint32_t next(uint64_t *state, uint32_t n);
/* This end's alone: nothing that is said may hang on it. */
uint32_t own(uint32_t n);
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void fail(const char *what);
void must(bool holds, const char *what);
/* A word to the other end, and its own. */
void tell(void);
void hear(void);
void both(void);
/* In a storm of signals: has one ended the call, which is made again? waits: it is
 * one that SA_RESTART does not restart. */
bool again(ssize_t n, bool waits);
ssize_t write_some(int fd, const uint8_t *buf, size_t n);
ssize_t read_some(struct conn *c, uint8_t *buf, size_t n);
/* The bytes of this turn. */
uint8_t byte_at(bool of_server, size_t at);
void compare(const uint8_t *buf, size_t from, size_t n);
void put_from(int fd, size_t from, size_t size);
void put(const struct conn *c, size_t size);
void take_from(struct conn *c, size_t from, size_t size);
void take(struct conn *c, size_t size);
void join_set(struct conn *c);
void leave_set(struct conn *c);
void pause_us(uint32_t us);
/* Until so many bytes wait to be read. */
void until_there(const struct conn *c, size_t size);

#endif
