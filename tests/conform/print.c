/* SPDX-License-Identifier: MIT */
/*
 * print.c - programs and outcomes in words.
 */
#include "trace.h"

#include <string.h>

const char *op_name(int op)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "WRITE_IMM",
		[IBV_WR_SEND] = "SEND",
		[IBV_WR_SEND_WITH_IMM] = "SEND_IMM",
		[IBV_WR_RDMA_READ] = "READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "CMP_SWP",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "FETCH_ADD",
	};

	if (op == -1)
		return "RECV";
	return (unsigned)op < sizeof(names) / sizeof(names[0]) ? names[op]
							       : "no-opcode";
}

const char *state_name(int state)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS",
					    "SQD",   "SQE",  "ERR"};

	return (unsigned)state < 7 ? names[state] : "?";
}

const char *status_name(int status)
{
	static const char *const names[] = {
		"SUCCESS",	   "LOC_LEN_ERR",      "LOC_QP_OP_ERR",
		"LOC_EEC_OP_ERR",  "LOC_PROT_ERR",     "WR_FLUSH_ERR",
		"MW_BIND_ERR",	   "BAD_RESP_ERR",     "LOC_ACCESS_ERR",
		"REM_INV_REQ_ERR", "REM_ACCESS_ERR",   "REM_OP_ERR",
		"RETRY_EXC_ERR",   "RNR_RETRY_EXC_ERR"};

	return (unsigned)status < sizeof(names) / sizeof(names[0])
		       ? names[status]
		       : "?";
}

static void piece_print(const struct piece *g, FILE *out)
{
	fprintf(out, " %s%s+%u:%u", mr_defs[g->mr].name, g->bad ? "!" : "",
		g->at, g->len);
}

static void wr_print(const struct wr *w, FILE *out)
{
	int i;

	fprintf(out, "\n      %s", op_name(w->op));
	if (w->flags & IBV_SEND_SIGNALED)
		fprintf(out, " sig");
	if (w->flags & IBV_SEND_SOLICITED)
		fprintf(out, " sol");
	if (w->flags & IBV_SEND_FENCE)
		fprintf(out, " fence");
	if (w->flags & IBV_SEND_INLINE)
		fprintf(out, " inline");
	for (i = 0; i < w->n; i++)
		piece_print(&w->sge[i], out);
	if (w->bad_qkey)
		fprintf(out, " wrong Q_Key");
	if (w->dest)
		fprintf(out, " to pair %d", w->dest);
	if (w->op >= 0 && !op_is_send(w->op)) {
		fprintf(out, " ->");
		piece_print(&w->to, out);
	}
	if (op_has_imm(w->op))
		fprintf(out, " imm 0x%x", w->imm);
	if (op_is_atomic(w->op))
		fprintf(out, " a 0x%llx b 0x%llx", (unsigned long long)w->a,
			(unsigned long long)w->b);
}

void step_print(const struct step *s, FILE *out)
{
	static const char *const names[] = {
		"post_send", "post_recv",     "poll",	    "arm",
		"modify",    "connect",	      "dereg_mr",   "reg_mr",
		"sync",	     "post_srq_recv", "modify_srq", "query_srq"};
	int i;

	fprintf(out, "%s", names[s->kind]);
	switch (s->kind) {
	case STEP_POLL:
		fprintf(out, " side %d CQ %d, %d entries", s->side, s->cq,
			s->arg);
		break;
	case STEP_ARM:
		fprintf(out, " side %d CQ %d%s", s->side, s->cq,
			s->arg ? ", solicited" : "");
		break;
	case STEP_SYNC:
		break;
	case STEP_SRQ_RECV:
	case STEP_SRQ_QUERY:
		fprintf(out, " side %d", s->side);
		break;
	case STEP_SRQ_LIMIT:
		fprintf(out, " side %d, limit %d", s->side, s->arg);
		break;
	case STEP_STATE:
	case STEP_CONNECT:
		fprintf(out, " pair %d side %d to %s", s->pair, s->side,
			state_name(s->arg));
		break;
	default:
		fprintf(out, " pair %d side %d", s->pair, s->side);
		break;
	}
	for (i = 0; i < s->n; i++)
		wr_print(&s->wr[i], out);
	fprintf(out, "\n");
}

void program_print(const struct program *p, FILE *out)
{
	int i, d;

	fprintf(out, "seed %llu: %d pairs, %d steps\n",
		(unsigned long long)p->seed, p->pairs, p->n);
	for (i = 0; i < p->pairs; i++) {
		const struct pair_cfg *c = &p->cfg[i];

		fprintf(out, "  pair %d: mtu %u rnr_retry %d%s\n", i,
			128u << c->mtu, c->rnr_retry,
			c->plain ? " ordinary memory" : "");
		for (d = 0; d < 2; d++)
			fprintf(out,
				"    side %d: send CQ %d, receive CQ %d, depths "
				"%d %d%s%s%s, rights 0x%x\n",
				d, c->qp[d].scq, c->qp[d].rcq, c->qp[d].depth_s,
				c->qp[d].depth_r,
				c->qp[d].sig_all ? ", all signalled" : "",
				c->qp[d].single ? ", one thread" : "",
				c->qp[d].srq ? ", SRQ" : "",
				(unsigned)c->qp[d].access);
	}
	for (d = 0; d < 2; d++)
		if (p->srq[d].on)
			fprintf(out, "  SRQ of side %d: depth %d%s\n", d,
				p->srq[d].depth,
				p->srq[d].plain ? ", ordinary memory" : "");
	for (i = 0; i < p->n; i++) {
		fprintf(out, "  %3d ", i);
		step_print(&p->step[i], out);
	}
}

static const char *async_name(int type)
{
	switch (type) {
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return "SRQ_LIMIT_REACHED";
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return "QP_LAST_WQE_REACHED";
	default:
		return "another asynchronous event";
	}
}

void ev_print(const struct ev *e, FILE *out)
{
	switch (e->kind) {
	case EV_STEP:
		fprintf(out, "[%d, %d done] ", e->ret, e->n);
		if (e->step->kind == STEP_SRQ_QUERY)
			fprintf(out, "[limit %d] ", (int)e->id);
		step_print(e->step, out);
		return;
	case EV_WC:
		fprintf(out,
			"  completion pair %d side %d %s %s%u.%u: %s, opcode %d, "
			"byte_len %u, flags %u, imm 0x%x, CQ %d%s\n",
			e->pair, e->side,
			id_pair(e->wc.id) == SRQ_PAIR ? "SRQ recv"
			: id_recv(e->wc.id)	      ? "recv"
						      : "send",
			(uint32_t)e->wc.id & ID_MARK ? "marker " : "step ",
			(uint32_t)e->wc.id & ID_MARK
				? (uint32_t)e->wc.id & ~ID_MARK
				: (uint32_t)e->wc.id / 8,
			(uint32_t)e->wc.id % 8, status_name(e->wc.status),
			e->wc.opcode, e->wc.byte_len, e->wc.flags, e->wc.imm,
			e->cq, e->wc.qp_ok ? "" : ", wrong qp_num");
		return;
	case EV_ASYNC:
		fprintf(out, "  %s side %d pair %d\n", async_name(e->n),
			e->side, e->pair);
		return;
	case EV_EVENT:
		fprintf(out, "  event side %d CQ %d\n", e->side, e->cq);
		return;
	case EV_HIDE:
		fprintf(out, "[%d] window shut pair %d side %d\n", e->ret,
			e->pair, e->side);
		return;
	default:
		fprintf(out, "  marker %s %u pair %d side %d: %d\n",
			e->kind == EV_MARK_SEND	  ? "send"
			: e->kind == EV_MARK_RECV ? "recv"
						  : "err",
			(uint32_t)e->id & ~ID_MARK, e->pair, e->side, e->ret);
	}
}
