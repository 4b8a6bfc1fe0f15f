/* SPDX-License-Identifier: MIT */
/*
 * fuzz_handshake.c - the handshake engine, fed by anybody.
 *
 * The first byte chooses: bit 0 the client's side or the server's, bit 1 a key
 * or none, bit 2 whether this side goes on when it is asked to. Then messages,
 * each behind two bytes of length (little-endian). Whatever they are, nothing
 * outside is read, what this side says is a message that decodes, a failed
 * handshake stays failed, and what was accepted keeps its promises.
 */
#include <string.h>

#include "base/assert.h"
#include "conn/setup/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct handshake_params own_params(void)
{
	return (struct handshake_params){
		.recvs = 64,
		.device = "soft",
		.qp = {.qpn = 1, .psn = 1, .mtu = IBV_MTU_1024},
	};
}

static void check_said(const struct bytes_out *out)
{
	struct handshake_msg m;

	skein_assert(!out->failed);
	if (out->pos)
		skein_assert(handshake_decode(out->buf, out->pos, &m) == 0);
}

static void check_params(const struct handshake *hs)
{
	const struct handshake_params *p = &hs->peer;
	unsigned i;

	skein_assert(p->qp.qpn <= 0xffffff && p->qp.psn <= 0xffffff);
	skein_assert(p->qp.mtu >= IBV_MTU_256 && p->qp.mtu <= IBV_MTU_4096);
	skein_assert(p->n_sections <= HANDSHAKE_SECTIONS_MAX);
	skein_assert(p->handle.count <= HANDSHAKE_LANES_MAX);
	skein_assert(!p->handle.count || p->handle.index < p->handle.count);
	skein_assert(memchr(p->device, 0, sizeof(p->device)));
	for (i = 0; i < p->n_sections; i++) {
		const struct handshake_section *s = &p->sections[i];

		skein_assert(s->buf >= hs->msg);
		skein_assert(s->buf + s->len <= hs->msg + HANDSHAKE_MSG_MAX);
	}
}

/* Does what the engine asks for. */
static void go_on(struct handshake *hs, enum handshake_action action,
		  struct bytes_out *out)
{
	struct handshake_params own = own_params();

	if (action == HANDSHAKE_DECIDE) {
		check_params(hs);
		own.handle = hs->peer.handle;
		skein_assert(handshake_accept(hs, &own, out) == 0);
	} else if (action == HANDSHAKE_CONNECT) {
		check_params(hs);
		handshake_ready(hs, out);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes_in in = bytes_in(data, size);
	struct handshake_params own = own_params();
	uint8_t choice = bytes_get_u8(&in), buf[HANDSHAKE_MSG_MAX];
	struct handshake_conf conf = {0};
	enum handshake_action action;
	struct bytes_out out;
	struct handshake hs;
	const uint8_t *msg;
	bool failed = false;
	size_t len;

	if (choice & 2 && auth_available()) {
		conf.key = "key";
		conf.key_len = 3;
	}
	out = bytes_out(buf, sizeof(buf));
	if (choice & 1) {
		handshake_client_init(&hs, &conf);
		skein_assert(handshake_offer(&hs, &own, &out) == 0);
	} else {
		handshake_server_init(&hs, &conf);
	}
	while (bytes_left(&in)) {
		len = bytes_get_u16(&in);
		if (len > bytes_left(&in))
			len = bytes_left(&in);
		msg = bytes_get(&in, len);
		if (!msg)
			break;
		out = bytes_out(buf, sizeof(buf));
		action = handshake_input(&hs, msg, len, &out);
		check_said(&out);
		skein_assert(!failed || action == HANDSHAKE_FAILED);
		failed = action == HANDSHAKE_FAILED;
		skein_assert(failed == (hs.state == HANDSHAKE_S_FAILED));
		skein_assert(!failed || hs.err < 0);
		if (choice & 4) {
			out = bytes_out(buf, sizeof(buf));
			go_on(&hs, action, &out);
			check_said(&out);
		}
	}
	return 0;
}
