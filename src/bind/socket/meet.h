/* SPDX-License-Identifier: MIT */
/*
 * meet.h - how the two ends of a TCP connection find each other outside of it
 * (docs/protocol/stream.md, "Meeting"): the name where they meet, what they tell
 * each other, and whether it is believed. Pure: no I/O.
 */
#ifndef SKEIN_BIND_SOCKET_MEET_H
#define SKEIN_BIND_SOCKET_MEET_H

#include "stream/section.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MEET_VERSION 6
#define MEET_OFFER_LEN 128u
#define MEET_ID_LEN 16u

/* One end of a connection; IPv4-mapped IPv6 counts as IPv4. */
struct meet_end {
	uint8_t addr[16];
	uint16_t port; /* host order */
};

/* A connection as one end sees it. */
struct meet_names {
	struct meet_end local, remote;
};

/* What the ends say, in this order. */
enum meet_word {
	MEET_HELLO = 1, /* the connecting end: its process */
	MEET_OFFER = 2, /* the accepting end: its QP and its stream */
	MEET_TAKE = 3,	/* the connecting end: its stream, and its QP if new */
	MEET_LEAVE = 4, /* either: it stays on TCP */
	MEET_DONE = 5,	/* the accepting end: both may use it */
};

struct meet_offer {
	enum meet_word word;
	struct meet_names names;   /* as its sender sees them */
	uint8_t id[MEET_ID_LEN];   /* of the sender's process */
	uint32_t paired;	   /* OFFER: the receiver's QP that the sender's
				   * is connected with; 0: it is a new one */
	bool alone;		   /* OFFER: for this stream alone */
	struct stream_qp_addr qp;  /* OFFER; TAKE, of a new one */
	struct stream_addr stream; /* OFFER, TAKE */
};

/* What is known of whoever offers, besides the offer. */
struct meet_proof {
	bool established;	 /* the socket that came along, with */
	struct meet_names names; /* ... these names */
	uint64_t netns;		 /* ... of this network */
	uint64_t my_netns;
	uint32_t uid, my_uid;
};

/* -EAFNOSUPPORT: no connection of ours. */
int meet_end_from(const struct sockaddr_storage *sa, struct meet_end *end);
/* Where the accepting end listens: a name of the abstract kind. Both ends come
 * to the same. Returns the length for bind() and connect(). */
socklen_t meet_where(const struct meet_names *names, bool accepting,
		     struct sockaddr_un *un);
void meet_encode(const struct meet_offer *o, uint8_t buf[MEET_OFFER_LEN]);
/* -EPROTO, -EPROTONOSUPPORT (another version). */
int meet_decode(const uint8_t *buf, size_t len, struct meet_offer *o);
/* NULL: believed; else why not, in words for people. */
const char *meet_refusal(const struct meet_offer *o,
			 const struct meet_proof *proof,
			 const struct meet_names *mine);

#endif
