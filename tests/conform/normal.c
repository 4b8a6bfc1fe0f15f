/* SPDX-License-Identifier: MIT */
/*
 * normal.c - see normal.h. Written: what each call of the program answered;
 * the completions of each queue, in its order; a digest of each lane; the
 * states; the events of each CQ.
 *
 * Left out, as open: when completions were polled, and how those of different
 * queues mixed; markers; what a status other than success leaves undefined; the
 * sizes that were granted, hence query_srq(); answers to posts of receives where
 * it is open which messages come; which receive of an SRQ a QP took
 * (its bytes are written instead), and when a limit was reached; of UD all but
 * its sends; of UC the same where messages may be lost: on a device that loses
 * some, and on an SRQ, because another QP may take its last receive.
 */
#include "normal.h"

#include "base/prng.h"

static uint64_t digest(uint64_t h, const uint8_t *b, uint32_t len)
{
	while (len--)
		h = prng_mix(h ^ *b++);
	return h;
}

static bool open_pair(const struct program *p, int pair, bool lossy)
{
	const struct pair_cfg *c = &p->cfg[pair];

	return c->type == IBV_QPT_UD ||
	       (c->type == IBV_QPT_UC &&
		(lossy || c->qp[0].srq || c->qp[1].srq));
}

/* The bytes that a message brought into a receive of an SRQ. */
static uint64_t brought(const struct program *p, const struct epoch *e,
			const struct ev *v)
{
	uint32_t no = (uint32_t)v->wc.id, left = v->wc.byte_len, n;
	const struct wr *w = &p->step[no / 8].wr[no % 8];
	uint64_t h = 1;
	int i;

	if (v->wc.opcode != IBV_WC_RECV)
		return 0;
	for (i = 0; i < w->n && left; i++, left -= n) {
		n = w->sge[i].len < left ? w->sge[i].len : left;
		h = digest(h, e->srq_mem[v->side] + w->sge[i].at, n);
	}
	return h;
}

static void wc_print(const struct program *p, const struct epoch *e,
		     const struct ev *v, FILE *out)
{
	bool recv = id_recv(v->wc.id);

	if (id_pair(v->wc.id) == SRQ_PAIR)
		fprintf(out, " srq %016llx",
			v->wc.status == IBV_WC_SUCCESS
				? (unsigned long long)brought(p, e, v)
				: 0);
	else
		fprintf(out, " %u.%u", (uint32_t)v->wc.id / 8,
			(uint32_t)v->wc.id % 8);
	fprintf(out, " %s%s", status_name(v->wc.status),
		v->wc.qp_ok ? "" : " of another QP");
	if (v->wc.status != IBV_WC_SUCCESS)
		return;
	fprintf(out, " %d", v->wc.opcode);
	if (recv || v->wc.opcode == IBV_WC_RDMA_READ)
		fprintf(out, " %u", v->wc.byte_len);
	if (recv && v->wc.flags & IBV_WC_WITH_IMM)
		fprintf(out, " imm %x", v->wc.imm);
}

static void queue_print(const struct program *p, const struct epoch *e,
			int pair, int side, bool recv, FILE *out)
{
	int i;

	fprintf(out, "pair %d side %d %s", pair, side, recv ? "recv" : "send");
	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind != EV_WC || v->pair != pair || v->side != side ||
		    id_recv(v->wc.id) != recv || (uint32_t)v->wc.id & ID_MARK)
			continue;
		fputc(';', out);
		wc_print(p, e, v, out);
	}
	fputc('\n', out);
}

/* Where it is open which messages arrive, it is open which places are free. */
static bool open_call(const struct program *p, const struct step *s, bool lossy)
{
	int i;

	if (s->kind == STEP_RECV)
		return open_pair(p, s->pair, lossy);
	for (i = 0; s->kind == STEP_SRQ_RECV && i < p->pairs; i++)
		if (p->cfg[i].qp[s->side].srq && open_pair(p, i, lossy))
			return true;
	return s->kind == STEP_SRQ_QUERY;
}

static void calls_print(const struct program *p, const struct epoch *e,
			bool lossy, FILE *out)
{
	int i;

	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind == EV_STEP && !open_call(p, v->step, lossy))
			fprintf(out, "step %d: %d, %d\n",
				(int)(v->step - p->step), v->ret, v->n);
	}
}

/* Does a QP use this CQ whose completions are left open? */
static bool open_cq(const struct program *p, int side, int cq, bool lossy)
{
	int i;

	for (i = 0; i < p->pairs; i++)
		if (open_pair(p, i, lossy) && p->cfg[i].qp[side].rcq == cq)
			return true;
	return false;
}

static void events_print(const struct program *p, const struct epoch *e,
			 bool lossy, FILE *out)
{
	int i, k, n;

	for (i = 0; i < 2 * CQS; i++) {
		if (open_cq(p, i / CQS, i % CQS, lossy))
			continue;
		for (n = 0, k = 0; k < e->n; k++)
			n += e->ev[k].kind == EV_EVENT &&
			     e->ev[k].side == i / CQS && e->ev[k].cq == i % CQS;
		fprintf(out, "side %d CQ %d: %d events\n", i / CQS, i % CQS, n);
	}
}

void normal_print(const struct program *p, const struct epoch *e, bool lossy,
		  FILE *out)
{
	int i, d;

	calls_print(p, e, lossy, out);
	for (i = 0; i < p->pairs; i++)
		for (d = 0; d < 2; d++) {
			queue_print(p, e, i, d, false, out);
			if (!open_pair(p, i, lossy)) {
				queue_print(p, e, i, d, true, out);
				fprintf(out, "memory %016llx\n",
					(unsigned long long)digest(
						1, e->mem[i][d], LANE));
			}
			fprintf(out, "%s\n", state_name(e->state[i][d]));
		}
	events_print(p, e, lossy, out);
}
