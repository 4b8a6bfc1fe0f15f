/* SPDX-License-Identifier: MIT */
/*
 * sealing.c - see sealing.h.
 */
#include "dev/soft/link/sealing.h"

#include <arpa/inet.h>
#include <string.h>

#define SAY_NS 5000000000ull

/* hello: that of the end that dials, which the handshake is for. */
static bool begin(struct soft *s, struct tcp_conn *c,
		  const uint8_t hello[FRAME_HELLO])
{
	uint8_t secret[SEAL_KEY];
	const struct seal_attr a = {.dials = c->dialled,
				    .psk = s->link_key->psk,
				    .secret = secret,
				    .prologue = hello,
				    .prologue_len = FRAME_HELLO};

	c->seal = env_alloc(s->env, seal_bytes());
	if (!c->seal)
		return false;
	env_random(s->env, secret, sizeof(secret));
	seal_begin(c->seal, &a);
	explicit_bzero(secret, sizeof(secret));
	return true;
}

size_t sealing_dial(struct soft *s, struct tcp_conn *c,
		    uint8_t buf[SEALING_SAYS])
{
	frame_hello_encode(buf, &c->mine);
	if (!begin(s, c, buf))
		return 0;
	seal_say(c->seal, NULL, 0, buf + FRAME_HELLO);
	return FRAME_HELLO + SEALING_DIALS;
}

bool sealing_hear(struct soft *s, struct tcp_conn *c)
{
	uint8_t none[1];

	return begin(s, c, c->part) &&
	       seal_hear(c->seal, c->part + FRAME_HELLO, SEALING_DIALS, none);
}

void sealing_answer(struct tcp_conn *c, const struct frame_hello *mine,
		    uint8_t buf[SEALING_SAYS])
{
	frame_hello_encode(buf, mine);
	seal_say(c->seal, buf, FRAME_HELLO, buf + FRAME_HELLO);
}

bool sealing_answered(struct tcp_conn *c)
{
	uint8_t hello[FRAME_HELLO];

	/* the clear one says no more than the sealed one */
	return seal_hear(c->seal, c->part + FRAME_HELLO, SEALING_ANSWERS,
			 hello) &&
	       !memcmp(hello, c->part, FRAME_HELLO);
}

size_t sealing_put(struct tcp_conn *c, const uint8_t *frames, size_t len,
		   uint8_t *buf)
{
	size_t out = 0, n, frame_len;
	const uint8_t *pkt;

	while (len) {
		n = 0;
		while (frame_next(frames + n, len - n, &pkt, &frame_len) ==
			       FRAME_OK &&
		       n + FRAME_HEAD + frame_len <= SEAL_PLAIN_MAX)
			n += FRAME_HEAD + frame_len;
		out += seal_put(c->seal, frames, n, buf + out);
		frames += n;
		len -= n;
	}
	return out;
}

void sealing_tell(struct soft *s, const struct tcp_conn *c,
		  enum sealing_fault what, uint64_t *say_ns)
{
	static const char *const words[SEALING_FAULTS] = {
		[SEALING_OTHER_KEY] =
			"has another key than this process: give both ends the "
			"same SKEIN_LINK_KEY",
		[SEALING_UNSEALED] =
			"does not seal its packets: set SKEIN_LINK_KEY there, "
			"or SKEIN_LINK_CLEAR=1 here",
		[SEALING_NO_KEY] = "takes sealed packets alone: set "
				   "SKEIN_LINK_KEY here, to the key there",
		[SEALING_FORGED] =
			"sent a record that was changed or repeated on its "
			"way: the connection is closed and made again; look "
			"for what stands between the hosts",
		[SEALING_CUT] = "ended within a record, by a death or by "
				"somebody between the hosts: the connection is "
				"made again",
	};
	uint64_t now = env_now_ns(s->env);
	char to[INET6_ADDRSTRLEN] = "?";
	bool v4 = icrc_flow_is_v4(&c->flow);

	if (now < say_ns[what])
		return;
	say_ns[what] = now + SAY_NS;
	inet_ntop(v4 ? AF_INET : AF_INET6, c->flow.dst + (v4 ? 12 : 0), to,
		  sizeof(to));
	env_log(s->env, what >= SEALING_FORGED ? ENV_LOG_WARN : ENV_LOG_ERROR,
		"skein0: link: the peer at %s %s", to, words[what]);
}
