/* SPDX-License-Identifier: MIT */
/*
 * msg.h - the messages of the control sockets (docs/soft.md, "QP numbers and
 * peers"): one SEQPACKET datagram each, descriptors beside them.
 */
#ifndef SKEIN_DEV_SOFT_MSG_H
#define SKEIN_DEV_SOFT_MSG_H

#include <stddef.h>
#include <stdint.h>

#define MSG_MAGIC 0x736b6d31u
#define MSG_DATA 32768u

enum msg_op {
	MSG_CONNECT = 1, /* tell me of this QP; the answer brings the NIC */
	MSG_MR_FD,	 /* hand out the file of this MR */
	MSG_WRITE,	 /* put data at addr, under key */
	MSG_READ,	 /* send len bytes from addr */
	MSG_CMP_SWP,
	MSG_FETCH_ADD,
	MSG_REPLY = 0x100,
};

struct msg {
	uint32_t magic;
	uint32_t op;
	int32_t status;	 /* reply: 0 or a negative errno */
	uint32_t qpn;	 /* CONNECT: the QP asked for; else the asking QP,
			  * echoed */
	uint32_t seq;	 /* echoed */
	uint32_t key;	 /* MR */
	uint32_t pd;	 /* that the MR must be in; reply to CONNECT: the
			  * asker's id as a claimant */
	uint32_t access; /* that it must grant */
	uint64_t addr;
	uint64_t a;    /* compare or add; reply: the old value; nic_id; the
			* MR's life */
	uint64_t b;    /* swap; reply to CONNECT: area offset */
	uint32_t len;  /* reply to CONNECT: which of its blocks */
	uint32_t bell; /* reply to CONNECT: channel id, 0 none */
	uint32_t dest; /* work on memory: the QP it is for, 0 any */
	uint32_t conn; /* and its life, as in shm_qp */
	unsigned char data[];
};

#define MSG_FDS 3

struct msg_buf {
	struct msg m;
	unsigned char data[MSG_DATA];
};

/* Sends m with len data bytes behind it. 0 or a negative errno. */
int msg_send(int fd, const struct msg *m, size_t len, const int *fds, int nfds);
/* Receives one. Returns the number of data bytes; -ECONNRESET at the end of
 * the stream, -EBADMSG for what is no message of ours, -EMFILE when
 * descriptors were lost. *nfds descriptors are the caller's; without fds
 * there are none to be lost. */
int msg_recv(int fd, struct msg_buf *b, int *fds, int *nfds);
/* Looks at the next one, which stays: its head, and duplicates of its
 * descriptors. 0; -EMFILE when none is left for them: later, it works. */
int msg_peek(int fd, struct msg *m, int *fds, int *nfds);

#endif
