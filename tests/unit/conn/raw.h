/* SPDX-License-Identifier: MIT */
/*
 * raw.h - what a control link says, byte by byte, to a listener in the same
 * thread.
 */
#ifndef SKEIN_TESTS_UNIT_CONN_RAW_H
#define SKEIN_TESTS_UNIT_CONN_RAW_H

#include "unit/cm.h"

#include "conn/peer/ctlframe.h"
#include "conn/setup/handshake.h"
#include "conn/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <skein/skein.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* But that devices say their names, when they are asked to. */
static inline void quiet(void *arg, enum skein_log_level level,
			 const char *line)
{
	if (level >= SKEIN_LOG_INFO)
		print_message("skein: info: %s\n", line);
}

static inline struct skein_ctx *open_ctx(void)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .log = quiet};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

/* One thread runs both ends. */
static inline void both(struct skein_ctx *a, struct skein_ctx *b)
{
	skein_ctx_progress(a);
	skein_ctx_progress(b);
	env_yield(a->env);
}

/* To a listener of this host; nonblocking. */
static inline int dial(const char *addr)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in.sin_port = htons((uint16_t)atoi(strrchr(addr, ':') + 1));
	assert_true(fd >= 0);
	if (connect(fd, (void *)&in, sizeof(in)))
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

/* A frame with the offer of a connection of this number. */
static inline void put_offer(struct bytes_out *out, uint16_t number,
			     uint32_t shard)
{
	struct handshake_params p = {.shard = shard,
				     .recvs = CONN_RECVS,
				     .device = "soft",
				     .qp = {.qpn = 0x123456, .mtu = 1}};
	struct handshake_conf conf = {0};
	uint8_t buf[HANDSHAKE_MSG_MAX];
	struct bytes_out msg = bytes_out(buf, sizeof(buf));
	struct handshake hs;

	handshake_client_init(&hs, &conf);
	assert_int_equal(handshake_offer(&hs, &p, &msg), 0);
	ctlframe_put(out, CTLFRAME_SHAKE, number, msg.buf, (uint32_t)msg.pos);
}

#endif
