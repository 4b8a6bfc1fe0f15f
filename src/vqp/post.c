/* SPDX-License-Identifier: MIT */
/*
 * post.c - requests come into the queue of a virtual queue pair: the check of a
 * whole list, room, the copy of inline bytes. See engine.h.
 */
#include "vqp/check.h"
#include "vqp/room.h"

#include "base/assert.h"

#include <errno.h>
#include <string.h>

/* Slots kept for messages of credit and look-ups. */
#define SLOTS_OURS 64u

bool vqp_has_slots(const struct vqp_engine *e, const uint32_t *share,
		   unsigned n)
{
	uint32_t left = e->n_free;

	if (left < SLOTS_OURS + n)
		return false;
	return !share || PLANTED(e, SHARE) ||
	       room_allows(*share, n, left - SLOTS_OURS, VQP_SLOTS - SLOTS_OURS,
			   PLANTED(e, SHARE_LEAST) ? 0 : VQP_SHARE_LEAST);
}

/* Is there room for n more requests, and for the completion of each? */
static bool has_room(struct vqp *v, unsigned n)
{
	uint32_t comps = v->comp_ready - v->comp_head + v->n_slots + n;

	return vqp_has_slots(v->e, v->share, n) &&
	       v->n_slots + n <= VQP_QUEUE && comps <= VQP_COMPS &&
	       vqp_ring_grow(v->e, &v->comps, sizeof(struct ibv_wc),
			     v->comp_head, comps);
}

static void slot_fill(struct vqp *v, struct vqp_slot *s,
		      const struct ibv_send_wr *wr)
{
	struct vqp_engine *e = v->e;
	uint8_t *data = vqp_cell(e, s);
	struct ibv_sge *g = s->sge;
	int i;

	s->kind = is_message(wr) ? SLOT_MESSAGE : SLOT_USER;
	s->wr = *wr;
	s->signaled = wr->send_flags & IBV_SEND_SIGNALED;
	s->status = v->raw ? 0 : vqp_memory_check(e, wr);
	s->since_ns = e->now_ns;
	s->len = (uint32_t)wr_len(wr);
	if (s->kind == SLOT_MESSAGE) {
		*g++ = (struct ibv_sge){(uintptr_t)data, MSG_HEADER,
					e->conf.cells_lkey};
		data += MSG_HEADER;
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		*g++ = (struct ibv_sge){(uintptr_t)data, s->len,
					e->conf.cells_lkey};
		for (i = 0; i < wr->num_sge; i++) {
			memcpy(data, (void *)(uintptr_t)wr->sg_list[i].addr,
			       wr->sg_list[i].length);
			data += wr->sg_list[i].length;
		}
	} else {
		for (i = 0; i < wr->num_sge; i++)
			*g++ = wr->sg_list[i];
	}
	s->wr.num_sge = (int)(g - s->sge);
	if (s->kind != SLOT_MESSAGE || s->len <= MSG_PAYLOAD)
		return;
	/* The pieces stay here; what is posted is the header's piece alone. */
	s->wr.num_sge = 1;
	if (!vqp_announce_keys(s, wr))
		s->status = IBV_WC_LOC_PROT_ERR;
}

/* Makes room for n more requests: a few rounds at most. No callback of the
 * user's runs in here, and none of the front's. */
static bool room_wait(struct vqp *v, unsigned n)
{
	unsigned i;

	for (i = 0; !has_room(v, n) && i < VQP_ROOM_ROUNDS; i++) {
		vqp_reap(v->e);
		vqp_pump(v->e);
	}
	return has_room(v, n);
}

/* NULL: there is no slot. */
static struct vqp_slot *queue(struct vqp *v, const struct ibv_send_wr *wr)
{
	struct vqp_slot *s = vqp_slot_get(v);

	if (!s)
		return NULL;
	slot_fill(v, s, wr);
	if (s->signaled)
		vqp_comp_add(v, wr, s->len);
	vqp_slot_queue(v, s, false);
	return s;
}

static int post_one(struct vqp *v, const struct ibv_send_wr *wr)
{
	if (!room_wait(v, 1))
		return -ENOMEM;
	if (v->state == VQP_ERROR) {
		vqp_comp_error(v, wr, vqp_error_next(v));
		return 0;
	}
	if (PLANTED(v->e, A) && !vqp_wr_valid(wr)) {
		if (wr->send_flags & IBV_SEND_SIGNALED)
			vqp_comp_add(v, wr, 0);
		return -EINVAL;
	}
	return queue(v, wr) ? 0 : -ENOMEM;
}

int vqp_post_send(struct vqp *v, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad)
{
	struct ibv_send_wr *w, *wrong = wr;
	int err = 0;

	*bad = wr;
	if (v->state != VQP_CONNECTED && v->state != VQP_ERROR)
		return -ENOTCONN;
	/* Checks the whole list first: a wrong list leaves no trace. */
	while (wrong && vqp_wr_valid(wrong))
		wrong = wrong->next;
	if (PLANTED(v->e, A))
		wrong = NULL;
	for (w = wr; w != wrong && !err; w = err ? w : w->next)
		err = post_one(v, w);
	vqp_pump(v->e);
	if (!err && !wrong)
		return 0;
	*bad = w;
	return err ? err : -EINVAL;
}

/* A WRITE with immediate: the message comes after the bytes. */
static int post_pair(struct vqp *v, const struct ibv_send_wr *wr)
{
	struct ibv_send_wr w = *wr;
	int err = 0;

	w.opcode = IBV_WR_RDMA_WRITE;
	w.send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	if (wr_len(wr))
		err = post_one(v, &w);
	w.opcode = IBV_WR_SEND_WITH_IMM;
	w.send_flags = wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
	w.num_sge = 0;
	return err ? err : post_one(v, &w);
}

int vqp_post_all(struct vqp *v, struct ibv_send_wr *wr,
		 struct ibv_send_wr **bad)
{
	struct ibv_send_wr *w, as_write;
	unsigned n = 0;
	int err = 0;

	*bad = wr;
	if (v->state != VQP_CONNECTED && v->state != VQP_ERROR)
		return -ENOTCONN;
	for (w = wr; w; w = w->next) {
		as_write = *w;
		if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			as_write.opcode = IBV_WR_RDMA_WRITE;
		if (!vqp_wr_valid(&as_write))
			return -EINVAL;
		n += w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 2 : 1;
	}
	if (!room_wait(v, n))
		return -ENOMEM;
	for (w = wr; w && !err; w = w->next)
		err = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? post_pair(v, w)
							      : post_one(v, w);
	skein_assert(!err); /* there was room for all */
	vqp_pump(v->e);
	return 0;
}

int vqp_send_held(struct vqp *v, struct ibv_send_wr *wr, bool *held)
{
	struct vqp_slot *s;

	if (v->state == VQP_CONNECTED && !room_wait(v, 1))
		return -ENOMEM;
	if (v->state != VQP_CONNECTED)
		return -ENOTCONN;
	s = queue(v, wr);
	if (!s)
		return -ENOMEM;
	s->held = held;
	*held = true;
	vqp_pump(v->e);
	return 0;
}
