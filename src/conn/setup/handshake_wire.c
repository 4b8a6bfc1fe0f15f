/* SPDX-License-Identifier: MIT */
/*
 * handshake_wire.c - handshake messages as bytes: a head of 8 bytes, then
 * type-length-value entries. docs/protocol/handshake.md, "Messages".
 *
 * An unknown entry ends the handshake if its type has the must-understand bit;
 * otherwise it is ignored. No entry may come twice. Pure.
 */
#include "conn/setup/handshake.h"

#include <errno.h>
#include <skein/error.h>

#define MAGIC 0x314e4b53u /* "SKN1" */
#define MUST 0x8000u

enum tlv {
	TLV_CTX_ID = 1 | MUST,
	TLV_NONCE = 2 | MUST,
	TLV_KEYED = 3 | MUST,
	TLV_PID = 4,
	TLV_SHARD = 5 | MUST,
	TLV_QP = 6 | MUST,
	TLV_RECVS = 7 | MUST,
	TLV_PROOF = 8 | MUST,
	TLV_ERROR = 9 | MUST,
	TLV_RETRY_MS = 10,
	TLV_TEXT = 11,
	TLV_DEVICE = 12 | MUST,
	TLV_HANDLE = 13,
	TLV_SECTION = 0x100, /* + module id, | MUST by the module's wish */
};
#define TLV_KNOWN 14u

#define QP_LEN 28u
#define HANDLE_LEN 16u
#define QPN_MASK 0xffffffu

static void put_tlv(struct bytes_out *out, unsigned type, const void *buf,
		    size_t len)
{
	bytes_put_u16(out, (uint16_t)type);
	bytes_put_u16(out, (uint16_t)len);
	bytes_put_mem(out, buf, len);
}

static void put_tlv_u32(struct bytes_out *out, unsigned type, uint32_t v)
{
	put_tlv(out, type, NULL, 0);
	if (!out->failed)
		out->buf[out->pos - 2] = 4;
	bytes_put_u32(out, v);
}

static void put_qp(struct bytes_out *out, const struct dev_qp_addr *qp)
{
	put_tlv(out, TLV_QP, NULL, 0);
	if (!out->failed)
		out->buf[out->pos - 2] = QP_LEN;
	bytes_put_mem(out, qp->gid.raw, 16);
	bytes_put_u32(out, qp->qpn);
	bytes_put_u32(out, qp->psn);
	bytes_put_u16(out, qp->lid);
	bytes_put_u8(out, qp->mtu);
	bytes_put_u8(out, qp->rd_atomic);
}

static void put_handle(struct bytes_out *out, const struct handshake_handle *h)
{
	put_tlv(out, TLV_HANDLE, NULL, 0);
	if (!out->failed)
		out->buf[out->pos - 2] = HANDLE_LEN;
	bytes_put_u64(out, h->id);
	bytes_put_u16(out, h->index);
	bytes_put_u16(out, h->count);
	bytes_put_u32(out, h->engines);
}

static void put_params(struct bytes_out *out, const struct handshake_params *p)
{
	put_tlv_u32(out, TLV_PID, p->pid);
	put_tlv_u32(out, TLV_SHARD, p->shard);
	put_qp(out, &p->qp);
	put_tlv_u32(out, TLV_RECVS, p->recvs);
	put_tlv(out, TLV_DEVICE, p->device, strlen(p->device));
	if (p->handle.count)
		put_handle(out, &p->handle);
	for (unsigned i = 0; i < p->n_sections; i++) {
		const struct handshake_section *s = &p->sections[i];
		unsigned must = s->must_understand ? MUST : 0;

		put_tlv(out, (TLV_SECTION + s->id) | must, s->buf, s->len);
	}
}

int handshake_encode(const struct handshake_msg *m, bool proof,
		     struct bytes_out *out)
{
	size_t start = out->pos, len;

	bytes_put_u32(out, MAGIC);
	bytes_put_u8(out, m->version);
	bytes_put_u8(out, m->type);
	bytes_put_u16(out, 0);
	if (m->has_id)
		put_tlv(out, TLV_CTX_ID, m->params.ctx_id, HANDSHAKE_ID_LEN);
	if (m->has_nonce)
		put_tlv(out, TLV_NONCE, m->nonce, HANDSHAKE_NONCE_LEN);
	if (m->keyed)
		put_tlv(out, TLV_KEYED, NULL, 0);
	if (m->has_qp)
		put_params(out, &m->params);
	if (m->type == HANDSHAKE_REFUSE) {
		put_tlv_u32(out, TLV_ERROR, m->error);
		put_tlv_u32(out, TLV_RETRY_MS, m->retry_ms);
		put_tlv(out, TLV_TEXT, m->text, strlen(m->text));
	}
	if (proof) {
		bytes_put_u16(out, TLV_PROOF);
		bytes_put_u16(out, AUTH_MAC_LEN);
	}
	len = out->pos - start + (proof ? AUTH_MAC_LEN : 0);
	if (out->failed || len > HANDSHAKE_MSG_MAX)
		return -EMSGSIZE;
	len -= HANDSHAKE_HEAD;
	out->buf[start + 6] = (uint8_t)len;
	out->buf[start + 7] = (uint8_t)(len >> 8);
	return 0;
}

static int get_qp(const uint8_t *v, struct dev_qp_addr *qp)
{
	struct bytes_in in = bytes_in(v, QP_LEN);

	memcpy(qp->gid.raw, bytes_get(&in, 16), 16);
	qp->qpn = bytes_get_u32(&in);
	qp->psn = bytes_get_u32(&in);
	qp->lid = bytes_get_u16(&in);
	qp->mtu = bytes_get_u8(&in);
	qp->rd_atomic = bytes_get_u8(&in);
	if (qp->qpn > QPN_MASK || qp->psn > QPN_MASK || qp->mtu < IBV_MTU_256 ||
	    qp->mtu > IBV_MTU_4096)
		return -EPROTO;
	return 0;
}

static int get_handle(const uint8_t *v, struct handshake_handle *h)
{
	struct bytes_in in = bytes_in(v, HANDLE_LEN);

	h->id = bytes_get_u64(&in);
	h->index = bytes_get_u16(&in);
	h->count = bytes_get_u16(&in);
	h->engines = bytes_get_u32(&in);
	if (h->index >= h->count || h->count > HANDSHAKE_LANES_MAX)
		return -EPROTO;
	return 0;
}

static int get_section(struct handshake_msg *m, unsigned type, const uint8_t *v,
		       uint16_t len)
{
	struct handshake_params *p = &m->params;
	uint8_t id = (uint8_t)(type - TLV_SECTION);

	for (unsigned i = 0; i < p->n_sections; i++)
		if (p->sections[i].id == id)
			return -EPROTO;
	if (p->n_sections == HANDSHAKE_SECTIONS_MAX)
		return -EPROTO;
	p->sections[p->n_sections].id = id;
	p->sections[p->n_sections].buf = v;
	p->sections[p->n_sections].len = len;
	p->n_sections++;
	return 0;
}

/* Peers' words end up in logs: printable ASCII only. */
static void get_text(char *text, const uint8_t *v, size_t len)
{
	for (size_t i = 0; i < len; i++)
		text[i] = v[i] >= ' ' && v[i] <= '~' ? (char)v[i] : '?';
	text[len] = 0;
}

static uint32_t get_u32(const uint8_t *v)
{
	struct bytes_in in = bytes_in(v, 4);

	return bytes_get_u32(&in);
}

static bool tlv_len_ok(unsigned type, size_t len)
{
	static const uint8_t want[TLV_KNOWN] = {
		[TLV_CTX_ID & ~MUST] = HANDSHAKE_ID_LEN,
		[TLV_NONCE & ~MUST] = HANDSHAKE_NONCE_LEN,
		[TLV_PID] = 4,
		[TLV_SHARD & ~MUST] = 4,
		[TLV_QP & ~MUST] = QP_LEN,
		[TLV_RECVS & ~MUST] = 4,
		[TLV_PROOF & ~MUST] = AUTH_MAC_LEN,
		[TLV_ERROR & ~MUST] = 4,
		[TLV_RETRY_MS] = 4,
		[TLV_HANDLE] = HANDLE_LEN,
	};

	if (type == TLV_TEXT)
		return len <= HANDSHAKE_TEXT_MAX;
	if (type == (TLV_DEVICE & ~MUST))
		return len <= HANDSHAKE_DEVICE_MAX;
	return len == want[type];
}

static int get_known(struct handshake_msg *m, unsigned type, const uint8_t *v,
		     uint16_t len, size_t at)
{
	if (!tlv_len_ok(type, len))
		return -EPROTO;
	switch (type) {
	case TLV_CTX_ID & ~MUST:
		memcpy(m->params.ctx_id, v, len);
		m->has_id = true;
		return 0;
	case TLV_NONCE & ~MUST:
		memcpy(m->nonce, v, len);
		m->has_nonce = true;
		return 0;
	case TLV_KEYED & ~MUST:
		m->keyed = true;
		return 0;
	case TLV_PID:
		m->params.pid = get_u32(v);
		return 0;
	case TLV_SHARD & ~MUST:
		m->params.shard = get_u32(v);
		return 0;
	case TLV_QP & ~MUST:
		m->has_qp = true;
		return get_qp(v, &m->params.qp);
	case TLV_RECVS & ~MUST:
		m->params.recvs = (uint16_t)get_u32(v);
		return get_u32(v) > UINT16_MAX ? -EPROTO : 0;
	case TLV_PROOF & ~MUST:
		m->proof = v;
		m->proof_at = at;
		return 0;
	case TLV_ERROR & ~MUST:
		m->error = get_u32(v);
		return 0;
	case TLV_RETRY_MS:
		m->retry_ms = get_u32(v);
		return 0;
	case TLV_DEVICE & ~MUST:
		get_text(m->params.device, v, len);
		return 0;
	case TLV_HANDLE:
		return get_handle(v, &m->params.handle);
	default:
		get_text(m->text, v, len);
		return 0;
	}
}

static int get_tlv(struct handshake_msg *m, struct bytes_in *in, uint32_t *seen)
{
	uint16_t type = bytes_get_u16(in);
	uint16_t len = bytes_get_u16(in);
	size_t at = in->pos;
	const uint8_t *v = bytes_get(in, len);
	unsigned bare = type & ~MUST;
	int rc;

	if (!v || m->proof) /* the proof is the last */
		return -EPROTO;
	if (bare >= 1 && bare < TLV_KNOWN) {
		if (*seen & 1u << bare)
			return -EPROTO;
		*seen |= 1u << bare;
		return get_known(m, bare, v, len, at);
	}
	if (bare > TLV_SECTION && bare <= TLV_SECTION + UINT8_MAX) {
		rc = get_section(m, bare, v, len);
		if (rc == 0)
			m->params.sections[m->params.n_sections - 1]
				.must_understand = type & MUST;
		return rc;
	}
	return type & MUST ? -SKEIN_EVERSION : 0;
}

/* Which entries each type of message must have. */
static bool complete(const struct handshake_msg *m)
{
	switch (m->type) {
	case HANDSHAKE_OFFER:
		return m->has_id && m->has_nonce && m->has_qp;
	case HANDSHAKE_CHALLENGE:
		return m->has_id && m->has_nonce && m->proof;
	case HANDSHAKE_PROVE:
		return m->proof;
	case HANDSHAKE_ACCEPT:
		return m->has_id && m->has_qp;
	case HANDSHAKE_READY:
		return true;
	case HANDSHAKE_REFUSE:
		return m->error != HANDSHAKE_ERR_NONE;
	default:
		return false;
	}
}

int handshake_decode(const uint8_t *buf, size_t len, struct handshake_msg *m)
{
	struct bytes_in in = bytes_in(buf, len);
	uint32_t magic = bytes_get_u32(&in), seen = 0;
	uint16_t body;
	int rc;

	memset(m, 0, sizeof(*m));
	m->version = bytes_get_u8(&in);
	m->type = bytes_get_u8(&in);
	body = bytes_get_u16(&in);
	if (in.failed || magic != MAGIC || body != bytes_left(&in))
		return -EPROTO;
	/* REFUSE is the same in every version. */
	if (m->version != HANDSHAKE_VERSION && m->type != HANDSHAKE_REFUSE)
		return -SKEIN_EVERSION;
	while (bytes_left(&in)) {
		rc = get_tlv(m, &in, &seen);
		if (rc)
			return rc;
	}
	return complete(m) ? 0 : -EPROTO;
}
