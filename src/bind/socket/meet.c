/* SPDX-License-Identifier: MIT */
/*
 * meet.c - names, offers, and what makes an offer believed.
 *
 * The proof is the socket itself: each end passes the descriptor of its own end
 * of the connection, which no process has but its ends (and those that they
 * gave it to). What an offer says of itself proves nothing.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "bind/socket/meet.h"
#include "stream/section.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define MAGIC 0x736b7374u /* "skst" */

int meet_end_from(const struct sockaddr_storage *sa, struct meet_end *end)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0,    0,
					   0, 0, 0, 0, 0xff, 0xff};

	memset(end, 0, sizeof(*end));
	if (sa->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		memcpy(end->addr, mapped, sizeof(mapped));
		memcpy(end->addr + 12, &in->sin_addr, 4);
		end->port = ntohs(in->sin_port);
		return 0;
	}
	if (sa->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		memcpy(end->addr, &in6->sin6_addr, 16);
		end->port = ntohs(in6->sin6_port);
		return 0;
	}
	return -EAFNOSUPPORT;
}

static void put_end(struct bytes_out *out, const struct meet_end *end)
{
	bytes_put_mem(out, end->addr, sizeof(end->addr));
	bytes_put_u16(out, end->port);
}

static void get_end(struct bytes_in *in, struct meet_end *end)
{
	const uint8_t *addr = bytes_get(in, sizeof(end->addr));

	if (addr)
		memcpy(end->addr, addr, sizeof(end->addr));
	end->port = bytes_get_u16(in);
}

socklen_t meet_where(const struct meet_names *names, bool accepting,
		     struct sockaddr_un *un)
{
	uint8_t buf[36];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	XXH128_hash_t hash;
	int n;

	put_end(&out, accepting ? &names->local : &names->remote);
	put_end(&out, accepting ? &names->remote : &names->local);
	hash = XXH3_128bits(buf, sizeof(buf));
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
		     "skein-stream-%016llx%016llx",
		     (unsigned long long)hash.high64,
		     (unsigned long long)hash.low64);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)n);
}

void meet_encode(const struct meet_offer *o, uint8_t buf[MEET_OFFER_LEN])
{
	struct bytes_out out = bytes_out(buf, MEET_OFFER_LEN);

	memset(buf, 0, MEET_OFFER_LEN);
	bytes_put_u32(&out, MAGIC);
	bytes_put_u16(&out, MEET_VERSION);
	bytes_put_u8(&out, (uint8_t)o->word);
	bytes_put_u8(&out, o->alone);
	put_end(&out, &o->names.local);
	put_end(&out, &o->names.remote);
	bytes_put_mem(&out, o->id, sizeof(o->id));
	bytes_put_u32(&out, o->paired);
	stream_qp_addr_put(&o->qp, &out);
	if (o->word == MEET_OFFER || o->word == MEET_TAKE)
		stream_addr_put(&o->stream, &out);
}

static bool decode_rest(struct bytes_in *in, struct meet_offer *o)
{
	const uint8_t *id = bytes_get(in, sizeof(o->id));
	size_t qp;

	if (id)
		memcpy(o->id, id, sizeof(o->id));
	o->paired = bytes_get_u32(in);
	qp = in->pos;
	/* Without receives there is none. */
	if (stream_qp_addr_get(in, &o->qp)) {
		if (o->word == MEET_OFFER || in->failed)
			return false;
		in->pos = qp + STREAM_QP_ADDR_LEN;
	}
	if (o->word == MEET_OFFER || o->word == MEET_TAKE)
		return !stream_addr_get(in, &o->stream);
	return o->word == MEET_HELLO || o->word == MEET_LEAVE ||
	       o->word == MEET_DONE;
}

int meet_decode(const uint8_t *buf, size_t len, struct meet_offer *offer)
{
	struct bytes_in in = bytes_in(buf, len);
	struct meet_offer o = {0};

	if (len != MEET_OFFER_LEN || bytes_get_u32(&in) != MAGIC)
		return -EPROTO;
	if (bytes_get_u16(&in) != MEET_VERSION)
		return -EPROTONOSUPPORT;
	o.word = (enum meet_word)bytes_get_u8(&in);
	o.alone = bytes_get_u8(&in) == 1;
	get_end(&in, &o.names.local);
	get_end(&in, &o.names.remote);
	if (!decode_rest(&in, &o))
		return -EPROTO;
	*offer = o;
	return 0;
}

static bool same(const struct meet_end *a, const struct meet_end *b)
{
	return a->port == b->port && !memcmp(a->addr, b->addr, sizeof(a->addr));
}

static bool mirrored(const struct meet_names *a, const struct meet_names *b)
{
	return same(&a->local, &b->remote) && same(&a->remote, &b->local);
}

const char *meet_refusal(const struct meet_offer *o,
			 const struct meet_proof *proof,
			 const struct meet_names *mine)
{
	if (proof->uid != proof->my_uid)
		return "the other end belongs to another user";
	if (!mirrored(&o->names, mine))
		return "the offer is for another connection";
	if (!proof->established)
		return "no established connection came with the offer";
	if (proof->netns != proof->my_netns)
		return "the other end is in another network namespace";
	if (!mirrored(&proof->names, mine))
		return "the socket that came along is not the other end";
	return NULL;
}
