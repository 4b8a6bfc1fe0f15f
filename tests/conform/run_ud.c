/* SPDX-License-Identifier: MIT */
/*
 * run_ud.c - the runner's datagrams: how they are addressed, what is in their
 * buffers when they are posted, and what is in a receive's when it is polled.
 */
#include "run.h"

#include <string.h>

void ud_address(struct world *w, const struct step *s, const struct wr *r,
		struct ibv_send_wr *out)
{
	out->wr.ud.ah = w->node[s->side].ah;
	out->wr.ud.remote_qpn = w->node[!s->side].qp[r->dest]->qp_num;
	out->wr.ud.remote_qkey = r->bad_qkey ? UD_QKEY + 1 : UD_QKEY;
}

static uint32_t gather(const struct lane *l, const struct wr *w, uint8_t *out)
{
	uint32_t len = 0;
	int i;

	for (i = 0; i < w->n; i++) {
		memcpy(out + len, l->mem + w->sge[i].at, w->sge[i].len);
		len += w->sge[i].len;
	}
	return len;
}

void ud_record(struct world *w, const struct program *p, const struct step *s,
	       struct epoch *e)
{
	struct dgram *d;
	int k;

	for (k = 0; k < s->n && e->dgrams < DGRAMS; k++) {
		d = &e->dgram[e->dgrams++];
		d->id = id_make(s->pair, s->side, false, id_no(p, s, k));
		d->ev = e->n - 1;
		d->len = wr_len(&s->wr[k]);
		if (d->len <= DGRAM_MAX)
			gather(&w->node[s->side].lane[s->pair], &s->wr[k],
			       d->data);
	}
}

/* Do the 40 bytes name the way back to the other node? */
static bool grh_ok(struct world *w, int side, const struct ibv_wc *wc,
		   const uint8_t *bytes)
{
	struct ibv_ah_attr attr;
	struct ibv_grh grh;

	if (!(wc->wc_flags & IBV_WC_GRH))
		return true; /* nothing is promised */
	memcpy(&grh, bytes, sizeof(grh));
	return !dev_ah_from_wc(w->node[side].dev, wc, &grh, &attr) &&
	       !memcmp(&attr.grh.dgid, &w->node[!side].dev->gid.gid,
		       sizeof(attr.grh.dgid));
}

void ud_came(struct world *w, const struct program *p, const struct ibv_wc *wc,
	     struct ev *e)
{
	uint32_t no = (uint32_t)wc->wr_id;
	uint8_t bytes[2 * DGRAM_ROOM] = {0};
	const struct wr *r;
	uint32_t len;

	e->wc.src_qp = wc->src_qp;
	if (no & ID_MARK || no / 8 >= (uint32_t)p->n || no % 8 >= LIST)
		return;
	r = &p->step[no / 8].wr[no % 8];
	if (wr_len(r) > DGRAM_ROOM)
		return;
	len = gather(&w->node[e->side].lane[e->pair], r, bytes);
	if (len < DGRAM_GRH)
		return;
	e->wc.grh_ok = grh_ok(w, e->side, wc, bytes);
	memcpy(e->wc.data, bytes + DGRAM_GRH, DGRAM_MAX);
}
