/* SPDX-License-Identifier: MIT */
/*
 * piece.c - long READs and WRITEs, piece by piece. A device may carry a request
 * out whole, before all others: `soft` copies it in post(). In a node service that
 * would hold up other clients. So a request of more than conf.piece bytes is posted
 * a piece at a time, each behind the completion of the piece before, and in one
 * round of the engine a vqp posts conf.piece bytes at most, or one request. The
 * requests of other vqps come between. A program's own pool posts requests whole:
 * it holds up nobody else, and may poll seldom.
 *
 * Invariants: a vqp has one request of which a piece is posted and more is left,
 * v->cut, and posts nothing behind it: what comes later in its queue is carried
 * out later. A piece that comes back is posted anew, from its beginning, if a
 * second time does no harm; the request fails otherwise.
 */
#include "vqp/check.h"

static bool is_read_or_write(const struct vqp_slot *s)
{
	return s->wr.opcode == IBV_WR_RDMA_READ ||
	       s->wr.opcode == IBV_WR_RDMA_WRITE;
}

uint32_t vqp_piece_len(const struct vqp_slot *s)
{
	uint32_t left = s->len - s->done, max = s->v->e->conf.piece;

	if (!is_read_or_write(s))
		return 0;
	return max && left > max && !PLANTED(s->v->e, WHOLE) ? max : left;
}

bool vqp_piece_waits(const struct vqp_slot *s, uint32_t len, uint32_t before)
{
	const struct vqp *v = s->v;
	uint32_t max = v->e->conf.piece;

	if (!max || !len || PLANTED(v->e, WHOLE_LIST))
		return false;
	if (v->round == v->e->rounds)
		before += v->round_len;
	return before && before + len > max;
}

void vqp_piece_fill(const struct vqp_slot *s, uint32_t len,
		    struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	uint32_t skip = s->done, n;

	wr->wr.rdma.remote_addr += s->done;
	wr->sg_list = sge;
	wr->num_sge = 0;
	for (int i = 0; i < s->wr.num_sge && len; i++) {
		const struct ibv_sge *g = &s->sge[i];

		if (skip >= g->length) {
			skip -= g->length;
			continue;
		}
		n = g->length - skip < len ? g->length - skip : len;
		sge[wr->num_sge++] =
			(struct ibv_sge){g->addr + skip, n, g->lkey};
		skip = 0;
		len -= n;
	}
}

void vqp_piece_posted(struct vqp_slot *s)
{
	struct vqp *v = s->v;

	s->piece = vqp_piece_len(s);
	if (v->round != v->e->rounds) {
		v->round = v->e->rounds;
		v->round_len = 0;
	}
	v->round_len += s->piece;
	if (s->piece && s->done + s->piece < s->len)
		v->cut = s;
}

bool vqp_piece_done(struct vqp_slot *s)
{
	struct vqp *v = s->v;

	if (v->cut != s)
		return true;
	v->cut = NULL;
	if (s->fetch && s->fetch->fetch->orphan && !PLANTED(v->e, ORPHAN))
		return true; /* nobody waits for the rest */
	s->done += s->piece;
	s->posted = s->refused = false;
	vqp_slot_requeue(v, s);
	return false;
}
