/* SPDX-License-Identifier: MIT */
/*
 * back.h - a connection's way from a stream back to TCP, asked for by a call
 * that only the kernel can do, by the other end, or by a forked child.
 *
 * Thread rule: st.lock for everything.
 */
#ifndef SKEIN_BIND_SOCKET_BACK_H
#define SKEIN_BIND_SOCKET_BACK_H

#include "bind/socket/sock.h"

#define BACK_NS 10000000000ull /* a call waits that long for it */
#define BACK_SOON_NS 20000000u

/* Begins; `why` is for the report. The helper goes on with it. again: traffic
 * promotes it again, if the other end says so too. */
void back_start(struct sock *s, const char *why, bool again);
/* One step. True: it is on TCP (or was never on a stream). */
bool back_step(struct sock *s);
/* Begins, and waits without the lock. 0: the socket is on TCP, and stays there.
 * -ETIMEDOUT, -ECONNRESET: it is on its stream as before, and a line on
 * standard error says so. */
int back_wait(struct sock *s, const char *what);
/* All streams that a forked child would need when this process has gone: begins,
 * and waits for them as back_wait() does, but for no longer than one call would. */
void back_shared(const char *why);
/* A call that does not block finds an idle connection on its way to TCP, which
 * takes as long as the other end's library: waits for that, BACK_SOON_NS at the
 * most, for what is idle takes a byte at once. Gives the lock away meanwhile. */
void back_soon(struct sock *s);
/* The peer's end of the stream is gone before either has used it: all bytes went
 * by TCP, and go on so. */
bool back_unused(struct sock *s);
/* TCP has ended (tcp_end is 0 or -errno) while the peer was sending by TCP what
 * we had not read: the bytes that did not come are in our ring. 1: the caller
 * reads the ring, then reports tcp_end; 0: the ring has none; -ECONNRESET. */
int back_rescue(struct sock *s, int tcp_end);
/* The socket is closed on its way back: no thread makes further steps. */
void back_leave(struct sock *s);
/* In a forked child: asks the parent's helper to hand the stream back to TCP. 0
 * or -errno. */
int back_ask_parent(struct sock *s);

/* Of the helper's thread: opens the socket where children ask. 0 or -errno. */
int back_listen(void);
/* A child has connected there. */
void back_answer(void);
/* One step of each socket on its way back, and the answers to children that
 * wait. True: some are left. */
bool back_round(void);

#endif
