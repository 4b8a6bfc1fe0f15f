/* SPDX-License-Identifier: MIT */
/*
 * fit.h - what the model of RR-Compound's machines was given: nine points of
 * the paper, and what is assumed. All else that `skein sim rrc-...` prints is a
 * prediction. This list was committed before any of the figures was run.
 *
 * The points, each with the constant that it sets:
 *
 *	6.80 us, one client, small calls, polled (V-B)	RRC_CALL_NS
 *	17.07 us, the same, bp_timeout 0 (V-B)		RRC_WAKE_NS
 *	252 K/s, one client, 32 calls outstanding (V-B)	RRC_STREAM_NS
 *	78 K/s, the same, bp_timeout 0 (V-B)		RRC_CYCLE_NS
 *	135 K/s, four clients, 4 KiB, BPTS (fig. 8a)	RRC_UNARY_NS
 *	132 K/s, the same, BP				RRC_BP_NS
 *	120 K/s, the same, BPEV				RRC_BPEV_NS
 *	49 K/s, four clients, YCSB C, RDMA (fig. 17)	RRC_READ_NS
 *	28 K/s, the same, TCP over IPoIB		RRC_TCP_NS
 *	5.65 M/s, 64 clients, 32 each (fig. 10)		RRC_LOCK_NS
 *	14.3 MB and 5.6 MB, one client (fig. 16b)	RRC_*_BYTES
 *	8.1 Gb/s, 8 KiB calls (fig. 12);
 *	36 Gb/s, 64 KiB calls (fig. 14)			RRC_BYTE_PS
 *
 * Times are one end's, in nanoseconds, a call.
 */
#ifndef SKEIN_SIM_RRC_FIT_H
#define SKEIN_SIM_RRC_FIT_H

/* Table II: two Xeon Gold 6148; section IV-A: eight nodes of clients. */
#define RRC_CORES 40u
#define RRC_NODES 8u

/* Assumed: one way of a WRITE of a few bytes between two ConnectX-5, from the
 * post to the bytes in memory; and of 4 KiB. */
#define RRC_WIRE_NS 1000u
#define RRC_WIRE_4K_NS 1600u
/* IV-D: a look at a ring's head "typically consumes only several
 * nanoseconds". */
#define RRC_LOOK_NS 5u
/* Assumed: a system call with nothing to do, such as epoll_wait() with timeout
 * 0; a write to an eventfd, without what the wake-up costs its sleeper. */
#define RRC_SYSCALL_NS 300u
#define RRC_EVENTFD_NS 600u
/* connectx5.conf: what a completion's interrupt takes of the one core that
 * serves all. */
#define RRC_IRQ_NS 1500u
/* Assumed: Linux 3.10 with 40 cores, sched_min_granularity_ns. */
#define RRC_SLICE_US 3000u
/* Assumed: of a thread to another one; a part of a wake-up. */
#define RRC_CONTEXT_NS 1500u
/* Assumed: post and poll by ibverbs, and a look at the message. */
#define RRC_VERBS_NS 300u

/* (6.80 us - two ways of RRC_WIRE_NS) / 2 */
#define RRC_CALL_NS 2400u
/* (17.07 - 6.80) us / 2, less the eventfd's write: of both ends, asleep */
#define RRC_WAKE_NS 4535u
/* 1 s / 252,000 */
#define RRC_STREAM_NS 3968u
/* 1 s / 78,000 - RRC_STREAM_NS - a wake-up: back into epoll_wait(), with the
 * eventfd's read; it delays no call of one client that waits */
#define RRC_CYCLE_NS 3717u
/* (4 clients / 135,000 - two ways of RRC_WIRE_4K_NS) / 2 */
#define RRC_UNARY_NS 13215u
/* more than BPTS, at the server: 4 / 132,000 and 4 / 120,000 */
#define RRC_BP_NS 673u
#define RRC_BPEV_NS 3704u
/* 4 / 49,000 - 4 / 120,000: the store, all of it at the server (a call by JNI
 * takes 0.1 us) */
#define RRC_READ_NS 48300u
/* (4 / 28,000 - 4 / 49,000 + RRC_BPEV_NS) / 2 ways: TCP more than a WRITE, of
 * which a third each is the sender's, the receiver's interrupt (on all cores),
 * and the sleeper's wake-up (shares assumed) */
#define RRC_TCP_NS 32460u
/* 1 s / 5,650,000: locks of gRPC that all threads share */
#define RRC_LOCK_NS 177u

/* Fig. 16b, one client: what does not grow with clients. V-D: 1.5 rings of
 * 4 MiB a client. */
#define RRC_BASE_BYTES 8.3e6
#define RRC_GRPC_BYTES 5.6e6
/* 1 ring's bytes, in fig. 16b's unit */
#define RRC_RING_BYTES 4.0e6

/* Picoseconds a byte takes of the two ends, serialised with the call. 8 KiB at
 * 8.1 Gb/s is 8.09 us; 64 KiB at 36 Gb/s 14.56 us: 6.47 us for 56 KiB. */
#define RRC_BYTE_PS 113u
#define RRC_CALL_12_NS 7166u

/* Assumed, of RRC_READ_NS: an update writes the log and the index; a scan reads
 * 50 records by one descent. */
#define RRC_UPDATE_READS 2.0
#define RRC_SCAN_READS 5.0

#endif
