/* SPDX-License-Identifier: MIT */
/*
 * meet.h - how the two ends of a TCP connection find each other outside of it
 * (docs/protocol/stream.md, "Meeting"): the name where they meet, what they tell
 * each other, and whether it is believed. Pure: no I/O.
 */
#ifndef SKEIN_BIND_SOCKET_MEET_H
#define SKEIN_BIND_SOCKET_MEET_H

#include "stream/stream.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MEET_VERSION 3
#define MEET_OFFER_LEN 152u

/* One end of a connection; IPv4-mapped IPv6 counts as IPv4. */
struct meet_end {
	uint8_t addr[16];
	uint16_t port; /* host order */
};

/* A connection as one end sees it. */
struct meet_names {
	struct meet_end local, remote;
};

struct meet_offer {
	struct meet_names names; /* as its sender sees them */
	struct stream_addr stream;
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
