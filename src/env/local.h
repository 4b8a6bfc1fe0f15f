/* SPDX-License-Identifier: MIT */
/*
 * local.h - what processes of one host need of each other beside memory: Unix
 * sockets that carry descriptors and name the peer, a page that tells readers whether
 * its writer lives, waiting for one descriptor, timers.
 *
 * The real world only: a simulator has none of it yet.
 *
 * Thread rule: as of the descriptors. A life page belongs to the thread that made
 * it, which frees it or ends last, and has one at a time. Until then it is all that
 * this thread's robust list has: a robust mutex that the thread holds when it ends
 * is not marked, so no other thread gets EOWNERDEAD for it, or the mutex. A thread
 * that needs robust mutexes makes no life page.
 */
#ifndef SKEIN_ENV_LOCAL_H
#define SKEIN_ENV_LOCAL_H

#include "env/env.h"

#define LOCAL_FDS 2 /* of one message at most */

/* Messages (SOCK_SEQPACKET), nonblocking, close-on-exec. The file has mode
 * 0600. Replaces a file at which no process listens; -EADDRINUSE: a process
 * listens. */
int local_listen(const char *path, int *fd);
/* -ENOENT, -ECONNREFUSED: nobody there. */
int local_connect(const char *path, int *fd);
/* -EAGAIN: nobody waits. */
int local_accept(int fd, int *conn_fd);
/* The process that made the other end. */
int local_peer(int fd, uint32_t *uid, uint32_t *pid);
/* The mount and network namespace of that process. -ESRCH: it has ended, and
 * another process may have its number; -EACCES. */
int local_spaces(int fd, uint32_t pid, uint64_t *mount, uint64_t *net);
/* One message with n descriptors, which stay the caller's. -EAGAIN, -EPIPE. */
int local_send(int fd, const void *buf, size_t len, const int *fds, int n);
/* One message: its bytes, 0 at the end, -EAGAIN, -EMSGSIZE (longer than len) or
 * another negative errno. Its descriptors are the caller's; *n of LOCAL_FDS. */
ssize_t local_recv(int fd, void *buf, size_t len, int *fds, int *n);
/* Until fd has something to read, at most timeout_ns: 1, or 0. */
int local_wait(int fd, uint64_t timeout_ns);

/* A timer: a descriptor that is readable from `due` (env_now_ns()) on, until it is
 * set again. */
int local_timer_new(int *fd);
void local_timer_set(int fd, uint64_t due_ns);

/* Threads of one process: one sleeps while *word is `was`, at most timeout_ns, and
 * may wake up without a reason; the other wakes all. */
void local_park(_Atomic(uint32_t) *word, uint32_t was, uint64_t timeout_ns);
void local_unpark(_Atomic(uint32_t) *word);

/* Fills a file that another process sealed (F_SEAL_SHRINK): a page that is missing
 * could not be had later. -EPERM, -ENOMEM. */
int local_fill(int fd, size_t len);

/* Maps another process's file of len bytes: -EPERM: its size may change
 * (F_SEAL_SHRINK), which would kill a reader. Not inherited by fork. */
int local_map(int fd, size_t len, bool write, void **addr);
void local_unmap(void *addr, size_t len);

/*
 * A page that others map for reading only. The kernel marks `life` when the
 * thread that made it ends, in any way: readers learn it by a load.
 */
struct local_life {
	_Atomic(uint32_t) life;
	_Atomic(uint32_t) asleep; /* the owner's to use: odd, it sleeps */
};
#define LOCAL_LIFE_LEN 4096u

struct local_life_owner;
int local_life_new(struct skein_env *env, struct local_life_owner **o);
/* Readers see the owner as gone. */
void local_life_free(struct local_life_owner *o);
struct local_life *local_life_page(struct local_life_owner *o);
int local_life_fd(const struct local_life_owner *o);

static inline bool local_lives(const struct local_life *l)
{
	uint32_t word = atomic_load_explicit(&l->life, memory_order_relaxed);

	return word && !(word & 0x40000000u); /* FUTEX_OWNER_DIED */
}

#endif
