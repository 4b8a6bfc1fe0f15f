/* SPDX-License-Identifier: MIT */
/*
 * model.c - the reference model: requests and how they end. Written from the
 * InfiniBand Architecture Specification, volume 1 (IBA): 9.7 (reliable
 * connected transport; 9.7.4.1 what a responder checks, 9.7.5.2.8 RNR), 9.9
 * (errors of requester and responder), 10.3.1 (states of a QP), 10.6.7 (rights),
 * 10.7.3.1 (order and flush of completions), 11.6.2 (statuses).
 *
 * Each choice that a device has is an action of its own (enum m_act), so what
 * is not an action is what the specification demands.
 */
#include "minner.h"

#include <string.h>

const struct mr_def mr_defs[MR_KINDS] = {
	[MR_ALL] = {"all",
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		    false, 0, LANE},
	[MR_LOCAL] = {"local", IBV_ACCESS_LOCAL_WRITE, false, 0, LANE},
	[MR_RO] = {"ro", IBV_ACCESS_REMOTE_READ, false, 0, LANE},
	[MR_WO] = {"wo", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		   false, 0, LANE},
	[MR_NOATOMIC] = {"noatomic",
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_READ,
			 false, 0, LANE},
	[MR_SHORT] = {"short",
		      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		      false, SHORT_AT, SHORT_END},
	[MR_FOREIGN] = {"foreign",
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC,
			true, 0, LANE},
	[MR_MORTAL] = {"mortal",
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ |
			       IBV_ACCESS_REMOTE_ATOMIC,
		       false, 0, LANE},
};

static const uint8_t wc_opcode[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
};

/* ---- memory ---- */

/* Is this piece's key good for these bytes, in this way? life: of MR_MORTAL
 * when the request was posted, or M_EVER: it need not be alive now. */
static bool key_ok(const struct piece *g, uint32_t len, int access,
		   uint32_t life, uint32_t now)
{
	const struct mr_def *def = &mr_defs[g->mr];

	return !g->bad && !def->foreign &&
	       !(g->mr == MR_MORTAL && life != M_EVER &&
		 (M_LIFE_DEAD(life) || life != now)) &&
	       (def->access & access) == access && g->at >= def->at &&
	       g->at + len <= def->end;
}

/* Are the pieces good, as far as len bytes reach? */
bool m_reach_ok(const struct m_side *s, const struct m_req *r, uint32_t len,
		int access)
{
	const struct wr *w = r->w;
	uint32_t n;
	int i;

	for (i = 0; i < w->n && len; i++) {
		n = w->sge[i].len < len ? w->sge[i].len : len;
		if (n && !key_ok(&w->sge[i], w->sge[i].len, access, r->life[0],
				 s->own_life))
			return false;
		len -= n;
	}
	return true;
}

static bool pieces_ok(const struct m_side *s, const struct m_req *r, int access)
{
	return m_reach_ok(s, r, UINT32_MAX, access);
}

void m_set_any(struct m_side *s, uint32_t at, uint32_t len)
{
	while (len--)
		s->mem[at++] = M_ANY;
}

void m_pieces_any(struct m_side *s, const struct wr *w)
{
	int i;

	for (i = 0; i < w->n; i++)
		if (w->sge[i].at + w->sge[i].len <= LANE)
			m_set_any(s, w->sge[i].at, w->sge[i].len);
}

/* Which receives of an SRQ a broken QP's messages were about to take nobody
 * knows. */
void m_recv_any(struct m_pair *m, int d, const struct wr *w)
{
	int i;

	if (!m->s[d].srq) {
		m_pieces_any(&m->s[d], w);
		return;
	}
	for (i = 0; i < w->n; i++)
		for (uint32_t k = 0; k < w->sge[i].len; k++)
			m->srq_mem[d][w->sge[i].at + k] = M_ANY;
}

/* The bytes that a request sends, as one string. */
void m_gather(const struct m_side *s, const struct m_req *r,
	      m_byte out[MSG_MAX])
{
	int i;

	if (r->w->flags & IBV_SEND_INLINE) {
		memcpy(out, r->inl, wr_len(r->w) * sizeof(*out));
		return;
	}
	for (i = 0; i < r->w->n; i++) {
		memcpy(out, s->mem + r->w->sge[i].at,
		       r->w->sge[i].len * sizeof(*out));
		out += r->w->sge[i].len;
	}
}

static void scatter(m_byte *mem, const struct wr *w, const m_byte *in,
		    uint32_t len)
{
	uint32_t n;
	int i;

	for (i = 0; i < w->n && len; i++) {
		n = w->sge[i].len < len ? w->sge[i].len : len;
		memcpy(mem + w->sge[i].at, in, n * sizeof(*in));
		in += n;
		len -= n;
	}
}

/* ---- completions ---- */

struct m_cqe *m_push(struct m_side *s, int q, uint64_t id, uint32_t pos,
		     int status)
{
	struct m_cqe *c = &s->out[q][s->n_out[q]++];

	*c = (struct m_cqe){.id = id, .pos = pos, .status = status};
	return c;
}

static bool hears(const struct m_side *by)
{
	return by->linked && !by->fault &&
	       (by->state == IBV_QPS_RTR || by->state == IBV_QPS_RTS ||
		by->state == IBV_QPS_SQD || by->state == IBV_QPS_SQE);
}

bool m_accepts(const struct m_side *from, const struct m_side *by)
{
	return from->linked && hears(by);
}

/* IBA 9.7.4.1: the right that a QP must grant, and a key too. */
static int right_of(int op)
{
	if (op_is_send(op))
		return 0;
	if (op_is_atomic(op))
		return IBV_ACCESS_REMOTE_ATOMIC;
	return op == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
				      : IBV_ACCESS_REMOTE_WRITE;
}

/* What the responder finds wrong with a one-sided request, or success. */
int m_remote_check(const struct m_pair *m, int d, const struct m_req *r)
{
	const struct wr *w = r->w;
	const struct m_side *b = &m->s[!d];
	int right = right_of(w->op);
	uint32_t len = wr_len(w);

	if (right & ~m->p->cfg[m->pair].qp[!d].access)
		return IBV_WC_REM_INV_REQ_ERR;
	if (op_is_atomic(w->op) && w->to.at % 8)
		return IBV_WC_REM_INV_REQ_ERR;
	if (right && len &&
	    !key_ok(&w->to, len, right, r->life[1], b->shown_life))
		return IBV_WC_REM_ACCESS_ERR;
	return IBV_WC_SUCCESS;
}

bool m_local_ok(const struct m_side *a, const struct m_req *r)
{
	if (r->w->flags & IBV_SEND_INLINE)
		return true;
	return pieces_ok(a, r,
			 op_fetches(r->w->op) ? IBV_ACCESS_LOCAL_WRITE : 0);
}

/* As it was before its region was deregistered under it. */
struct m_req m_in_its_prime(const struct m_req *r)
{
	struct m_req was = *r;
	int i;

	for (i = 0; i < 2; i++)
		if (!M_LIFE_DEAD(was.life[i]))
			was.life[i] = M_EVER;
	return was;
}

/* next: the receive that this message would take, at most */
static void blur_one(struct m_pair *m, int d, const struct m_req *r, int next)
{
	struct m_side *a = &m->s[d], *b = &m->s[!d];
	int v;

	if (op_fetches(r->w->op))
		m_pieces_any(a, r->w);
	else if (!op_is_send(r->w->op))
		m_set_any(b, r->w->to.at, wr_len(r->w));
	else if (b->srq)
		b->srq_open = true;
	else
		for (v = b->rhead; v <= next && v < b->rn; v++)
			m_pieces_any(b, b->rq[v].w);
	/* Orders of steps that leave other bytes open are other orders. */
	m_note(a, M_DID_BLUR, (uint64_t)b->rn << 32 | r->pos);
}

/* When a QP breaks, requests may be on their way, some of their bytes moved:
 * what a WRITE names, the next receive, what a READ brings. A buffer holds what
 * it may until its request has completed with success. Behind a request that
 * failed nothing is on its way. */
static void blur(struct m_pair *m, int d)
{
	struct m_side *a = &m->s[d], *b = &m->s[!d];
	struct m_req was;
	const struct m_req *r = &was;
	int i, next = b->rhead;

	if (!(m->quirks & M_QUIRK_HARSH) && (a->stuck || !m_accepts(a, b)))
		return;
	for (i = a->exec; i < a->n && i < a->held; i++) {
		was = m_in_its_prime(&a->sq[i]);
		if (!m_local_ok(a, r))
			return;
		if (m_remote_check(m, d, r) != IBV_WC_SUCCESS) {
			if (m_uc(m))
				continue; /* dropped */
			return;
		}
		blur_one(m, d, r, next);
		next += op_is_message(r->w->op);
	}
}

void m_launch(struct m_pair *m, int d)
{
	struct m_side *a = &m->s[d];
	struct m_req was;
	int i;

	if (!(m->quirks & M_QUIRK_LINK) || a->stuck)
		return;
	for (i = a->exec; i < a->n && i < a->held; i++) {
		was = m_in_its_prime(&a->sq[i]);
		if (!m_local_ok(a, &was) || a->n_fly == M_QUEUE)
			return;
		a->fly[a->n_fly++] = a->sq[i];
	}
}

/* Nobody waits for an answer, or sends it again. */
static void fly(struct m_pair *m, int d)
{
	struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct m_req *r = &a->fly[a->flown++];
	int status = m_remote_check(m, d, r);
	uint32_t len = wr_len(r->w), i;
	m_byte data[MSG_MAX];
	bool lands = status == IBV_WC_SUCCESS;

	m_note(a, M_DID_FLY, (uint64_t)status << 8 | r->pos);
	if (lands && !op_fetches(r->w->op) && !op_is_send(r->w->op))
		m_set_any(b, r->w->to.at, len);
	if (lands && op_is_atomic(r->w->op))
		m_set_any(b, r->w->to.at, 8);
	if (lands && op_is_message(r->w->op)) {
		lands = b->rhead < b->rn;
		if (lands && m_uc(m) && op_is_send(r->w->op) &&
		    len > wr_len(b->rq[b->rhead].w)) {
			m_recv_any(m, !d, b->rq[b->rhead].w);
			return;
		}
	}
	if (!lands) {
		b->fault |= status != IBV_WC_SUCCESS && !m_uc(m);
		a->flown = m_uc(m) ? a->flown : a->n_fly;
		return;
	}
	for (i = 0; i < len; i++)
		data[i] = M_ANY;
	if (op_is_message(r->w->op))
		m_receive(m, d, r, data, false);
}

/* IBA 10.3.1, 10.7.3.1: in ERR what is queued is flushed, in order. */
void m_to_err(struct m_pair *m, int d)
{
	struct m_side *s = &m->s[d];
	struct m_req *r;

	blur(m, 0);
	blur(m, 1);
	m_launch(m, d);
	m_note(s, M_DID_END, (uint64_t)s->ack);
	s->state = IBV_QPS_ERR;
	s->fault = false;
	for (; s->ack < s->n; s->ack++) {
		r = &s->sq[s->ack];
		if (r->status == IBV_WC_SUCCESS && op_fetches(r->w->op))
			m_pieces_any(s, r->w);
		m_push(s, 0, r->id, r->pos, IBV_WC_WR_FLUSH_ERR);
	}
	s->exec = s->n;
	/* An SRQ's receives are not this QP's. */
	for (; !s->srq && s->rhead < s->rn; s->rhead++)
		m_push(s, 1, s->rq[s->rhead].id, s->rq[s->rhead].pos,
		       IBV_WC_WR_FLUSH_ERR);
}

void m_to_reset(struct m_pair *m, int d)
{
	struct m_side *s = &m->s[d];
	int q, i;

	blur(m, 0);
	blur(m, 1);
	m_launch(m, d);
	m_note(s, M_DID_END, (uint64_t)s->ack);
	s->state = IBV_QPS_RESET;
	s->linked = s->fault = s->stuck = s->deaf = false;
	m->s[!d].n_fly = m->s[!d].flown = 0; /* nobody takes it */
	for (i = s->ack; i < s->n; i++)
		if (s->sq[i].status >= 0 && op_fetches(s->sq[i].w->op))
			m_pieces_any(s, s->sq[i].w);
	s->n = s->exec = s->ack = 0;
	if (!s->srq)
		s->rn = s->rhead = 0;
	s->resets--;
	s->held = M_QUEUE;
	for (q = 0; q < 2; q++) {
		s->posted[q] = s->freed[q] = 0;
		for (i = s->taken[q]; i < s->n_out[q]; i++)
			s->out[q][i].optional = true;
	}
}

/* ---- a request is carried out ---- */

/* The message takes the next receive; what its requester learns. */
int m_receive(struct m_pair *m, int d, const struct m_req *r,
	      const m_byte *data, bool other)
{
	struct m_side *b = &m->s[!d];
	const struct m_req *v = &b->rq[b->rhead++];
	uint32_t len = wr_len(r->w);
	bool lost, broken;
	struct m_cqe *c;

	lost = op_is_send(r->w->op) && len > wr_len(v->w);
	broken = op_is_send(r->w->op) &&
		 !(other && !lost
			   ? pieces_ok(b, v, IBV_ACCESS_LOCAL_WRITE)
			   : m_reach_ok(b, v, len, IBV_ACCESS_LOCAL_WRITE));
	if (lost && broken) {
		lost = other;
		broken = !other;
	}
	c = m_push(b, 1, v->id, v->pos,
		   lost	    ? IBV_WC_LOC_LEN_ERR
		   : broken ? IBV_WC_LOC_PROT_ERR
			    : IBV_WC_SUCCESS);
	c->solicited = r->w->flags & IBV_SEND_SOLICITED;
	if (lost || broken) {
		m_recv_any(m, !d, v->w);
		b->fault = true;
		return lost ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
	}
	c->opcode =
		op_is_send(r->w->op) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
	c->has_len = true;
	c->byte_len = len;
	c->has_imm = op_has_imm(r->w->op);
	c->imm = r->w->imm;
	if (op_is_send(r->w->op))
		scatter(b->srq ? m->srq_mem[!d] : b->mem, v->w, data, len);
	return IBV_WC_SUCCESS;
}

static uint64_t word_get(const struct m_side *s, uint32_t at, bool *any)
{
	uint64_t v = 0;
	int i;

	for (i = 0; i < 8; i++) {
		*any |= s->mem[at + (uint32_t)i] == M_ANY;
		v |= (uint64_t)(s->mem[at + (uint32_t)i] & 0xff) << 8 * i;
	}
	return v;
}

/* Host order: IBA's atomics work on the responder's words, and both ends of a
 * program sit on one machine. The old value into out. */
static void atomic(struct m_side *b, const struct wr *w, m_byte out[8])
{
	bool any = false;
	uint64_t old = word_get(b, w->to.at, &any), new;
	int i;

	if (w->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		new = old + w->a;
	else
		new = old == w->a ? w->b : old;
	for (i = 0; i < 8; i++) {
		out[i] = any ? M_ANY : (m_byte)(old >> 8 * i & 0xff);
		b->mem[w->to.at + (uint32_t)i] =
			any ? M_ANY : (m_byte)(new >> 8 * i & 0xff);
	}
}

/* More than one packet? */
bool m_long(const struct m_pair *m, const struct m_req *r)
{
	return wr_len(r->w) > 128u << m->p->cfg[m->pair].mtu;
}

/* A receive for what is refused: RXE_TAKES. */
static void take(struct m_pair *m, int d, const struct m_req *r)
{
	struct m_side *b = &m->s[!d];
	const struct m_req *v = &b->rq[b->rhead];

	if (!(m->quirks & RXE_TAKES) || !op_is_message(r->w->op) ||
	    m_long(m, r) || b->srq || b->rhead == b->rn)
		return;
	b->rhead++;
	m_push(b, 1, v->id, v->pos, IBV_WC_REM_ACCESS_ERR)->solicited =
		r->w->flags & IBV_SEND_SOLICITED;
}

/* At the responder. */
static int respond(struct m_pair *m, int d, struct m_req *r, bool other,
		   bool local_ok)
{
	struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct wr *w = r->w;
	uint32_t len = wr_len(w);
	m_byte data[MSG_MAX];
	int status = m_remote_check(m, d, r);

	if (op_is_message(w->op) && b->rhead == b->rn &&
	    (status == IBV_WC_SUCCESS || other)) {
		/* The first packets of a WRITE may have been placed. */
		if (!op_is_send(w->op) && status == IBV_WC_SUCCESS)
			m_set_any(b, w->to.at, len);
		return IBV_WC_RNR_RETRY_EXC_ERR;
	}
	if (status != IBV_WC_SUCCESS) {
		b->fault = true;
		if (status == IBV_WC_REM_ACCESS_ERR)
			take(m, d, r);
		return status;
	}
	if (op_is_atomic(w->op)) {
		atomic(b, w, data);
	} else if (w->op == IBV_WR_RDMA_READ) {
		memcpy(data, b->mem + w->to.at, len * sizeof(*data));
	} else {
		m_gather(a, r, data);
		if (!op_is_send(w->op))
			memcpy(b->mem + w->to.at, data, len * sizeof(*data));
	}
	if (op_is_message(w->op))
		return m_receive(m, d, r, data, other);
	if (!local_ok) {
		m_pieces_any(a, w);
		return IBV_WC_LOC_PROT_ERR;
	}
	if (op_fetches(w->op))
		scatter(a->mem, w, data, len);
	return IBV_WC_SUCCESS;
}

/* Its key went while it was under way: some of it may have been done. */
void m_half_done(struct m_pair *m, int d, const struct m_req *r)
{
	struct m_side *b = &m->s[!d];

	if (op_fetches(r->w->op))
		m_pieces_any(&m->s[d], r->w);
	else if (op_is_send(r->w->op) && b->srq)
		b->srq_open = true;
	else if (op_is_send(r->w->op) && b->rhead < b->rn)
		m_pieces_any(b, b->rq[b->rhead].w);
	else if (!op_is_send(r->w->op))
		m_set_any(b, r->w->to.at, wr_len(r->w));
}

/* RXE_PACKETS: its first packets may have been sent. */
void m_begun(struct m_pair *m, int d, const struct m_req *r)
{
	if (m->quirks & RXE_PACKETS && !op_fetches(r->w->op) && m_long(m, r) &&
	    m_accepts(&m->s[d], &m->s[!d]) &&
	    m_remote_check(m, d, r) == IBV_WC_SUCCESS)
		m_half_done(m, d, r);
}

static void exec(struct m_pair *m, int d, enum m_act act)
{
	struct m_side *a = &m->s[d];
	struct m_req *r = &a->sq[a->exec];
	struct m_req was = m_in_its_prime(r);
	bool fine = m_local_ok(a, act == M_SENT ? &was : r);

	if (m_uc(m)) {
		m_uc_exec(m, d, act);
		return;
	}
	a->exec++;
	if (op_is_atomic(r->w->op) && wr_len(r->w) != 8 &&
	    !(act == M_OTHER && (!fine || !m_accepts(a, &m->s[!d]))))
		r->status = IBV_WC_LOC_LEN_ERR;
	else if (!fine && act != M_LATE &&
		 !(act == M_OTHER && !m_accepts(a, &m->s[!d])))
		r->status = IBV_WC_LOC_PROT_ERR;
	else if (!m_accepts(a, &m->s[!d]) || act == M_WAKE)
		r->status = IBV_WC_RETRY_EXC_ERR;
	else
		r->status = respond(m, d, r, act == M_OTHER, fine);
	if (r->status == IBV_WC_LOC_PROT_ERR)
		m_begun(m, d, r);
	/* What had been sent before may have broken the responder. */
	if (act == M_OTHER && r->status == IBV_WC_LOC_PROT_ERR &&
	    m_accepts(a, &m->s[!d]) &&
	    m_remote_check(m, d, r) != IBV_WC_SUCCESS)
		m->s[!d].fault = true;
	m_note(a, M_DID_EXEC, (uint64_t)r->status << 8 | act);
	if (r->status != IBV_WC_SUCCESS &&
	    (r->life[0] != a->own_life || r->life[1] != m->s[!d].shown_life))
		m_half_done(m, d, r);
	/* Behind a READ that fails when its bytes come, others are on their
	 * way; behind all other failures nothing is carried out. */
	a->stuck = r->status != IBV_WC_SUCCESS && act != M_LATE;
}

void m_done(struct m_side *s, const struct m_req *r)
{
	struct m_cqe *c;

	if (!s->sig_all && !(r->w->flags & IBV_SEND_SIGNALED))
		return;
	c = m_push(s, 0, r->id, r->pos, IBV_WC_SUCCESS);
	c->opcode = wc_opcode[r->w->op];
	c->has_len =
		r->w->op == IBV_WR_RDMA_READ && !((uint32_t)r->id & ID_MARK);
	c->byte_len = wr_len(r->w);
}

static void ack(struct m_pair *m, int d, int status)
{
	struct m_side *s = &m->s[d];
	struct m_req *r = &s->sq[s->ack++];

	if (status == IBV_WC_SUCCESS) {
		m_done(s, r);
		return;
	}
	m_push(s, 0, r->id, r->pos, status);
	if (r->status == IBV_WC_SUCCESS && op_fetches(r->w->op))
		m_pieces_any(s, r->w);
	m_to_err(m, d);
}

/* ---- what a device may do next ---- */

static bool waits_for_fetch(const struct m_pair *m, const struct m_side *a)
{
	int i;

	/* Harsh mode may flush a READ that has its bytes. */
	if (!(a->sq[a->exec].w->flags & IBV_SEND_FENCE) ||
	    m->quirks & M_QUIRK_HARSH)
		return false;
	for (i = a->ack; i < a->exec; i++)
		if (op_fetches(a->sq[i].w->op))
			return true;
	return false;
}

static bool can_exec(const struct m_pair *m, int d)
{
	const struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct wr *w;

	if (a->exec == a->n || a->stuck || a->exec >= a->held ||
	    (a->state != IBV_QPS_RTS && a->state != IBV_QPS_SQD) ||
	    waits_for_fetch(m, a))
		return false;
	w = a->sq[a->exec].w;
	/* With rnr_retry 7 a message waits for its receive, for ever. */
	return !(op_is_message(w->op) && b->rhead == b->rn &&
		 (m->p->cfg[m->pair].rnr_retry == 7 || !m_maybe_empty(b)) &&
		 m_accepts(a, b) && m_local_ok(a, &a->sq[a->exec]) &&
		 m_remote_check(m, d, &m->s[d].sq[m->s[d].exec]) ==
			 IBV_WC_SUCCESS);
}

/* It was sent when its own region was there. */
static bool was_sent(const struct m_pair *m, int d)
{
	const struct m_side *a = &m->s[d];
	struct m_req was;

	if (!(m->quirks & M_QUIRK_LINK) || m_uc(m) || !can_exec(m, d))
		return false;
	was = m_in_its_prime(&a->sq[a->exec]);
	if (op_is_message(was.w->op) && m->s[!d].rhead == m->s[!d].rn)
		return false;
	return !op_fetches(was.w->op) && !m_local_ok(a, &a->sq[a->exec]) &&
	       m_local_ok(a, &was) && m_accepts(a, &m->s[!d]);
}

static bool two_wrongs(const struct m_pair *m, int d)
{
	const struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct wr *w = a->sq[a->exec].w;

	if (!m_accepts(a, b))
		return !m_local_ok(a, &a->sq[a->exec]) ||
		       (op_is_atomic(w->op) && wr_len(w) != 8);
	if (!m_local_ok(a, &a->sq[a->exec]) &&
	    m_remote_check(m, d, &a->sq[a->exec]) != IBV_WC_SUCCESS)
		return true;
	if (op_is_atomic(w->op) && wr_len(w) != 8)
		return !m_local_ok(a, &a->sq[a->exec]);
	if (!op_is_message(w->op))
		return false;
	if (b->rhead == b->rn)
		return m_remote_check(m, d, &m->s[d].sq[m->s[d].exec]) !=
			       IBV_WC_SUCCESS &&
		       m_maybe_empty(b) && m->p->cfg[m->pair].rnr_retry != 7;
	/* Longer than a receive that is bad; or bad where it does not reach. */
	return op_is_send(w->op) &&
	       !pieces_ok(b, &b->rq[b->rhead], IBV_ACCESS_LOCAL_WRITE);
}

/* What is behind a READ, and not fenced, may be carried out before the READ is
 * (IBA 10.8.3.3, table 76); the READ fails when its region goes meanwhile. */
static bool cut_off(const struct m_pair *m, int d)
{
	const struct m_side *a = &m->s[d];
	const struct m_req *r = &a->sq[a->ack];

	return a->ack < a->exec && r->status == IBV_WC_SUCCESS &&
	       r->w->op == IBV_WR_RDMA_READ && wr_len(r->w) &&
	       r->w->to.mr == MR_MORTAL && r->life[1] != m->s[!d].shown_life;
}

/* The same, where what it brings finds no region (11.6.2: local protection). */
static bool cut_off_here(const struct m_side *a)
{
	const struct m_req *r = &a->sq[a->ack];

	return a->ack < a->exec && r->status == IBV_WC_SUCCESS &&
	       r->w->op == IBV_WR_RDMA_READ && r->life[0] != a->own_life &&
	       !m_local_ok(a, r);
}

/* On an SRQ: it took a receive, and the responder's RESET came before the
 * completion was polled and took it back. So the receive is not known. */
static bool can_go(const struct m_pair *m, int d)
{
	const struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct m_req *r = &a->sq[a->exec];

	return b->srq && b->resets > 0 && a->exec < a->n && !a->stuck &&
	       a->exec < a->held && op_is_message(r->w->op) &&
	       (a->state == IBV_QPS_RTS || a->state == IBV_QPS_SQD) &&
	       m_accepts(a, b) && m_local_ok(a, r) &&
	       m_remote_check(m, d, r) == IBV_WC_SUCCESS;
}

/* No completion that is polled has this name. */
#define GONE UINT64_MAX

static void go(struct m_pair *m, int d, enum m_act act)
{
	struct m_side *a = &m->s[d], *b = &m->s[!d];
	struct m_req *r = &a->sq[a->exec++];

	/* On UC the requester learns nothing. */
	r->status = act == M_GONE || m_uc(m) ? IBV_WC_SUCCESS
		    : act == M_GONE_LONG     ? IBV_WC_REM_INV_REQ_ERR
					     : IBV_WC_REM_OP_ERR;
	m_push(b, 1, GONE, 0, IBV_WC_SUCCESS);
	b->srq_open = true;
	b->fault |= act != M_GONE;
	a->stuck = r->status != IBV_WC_SUCCESS;
	if (!op_is_send(r->w->op))
		m_half_done(m, d, r);
	m_note(a, M_DID_GO, act);
}

bool m_can(const struct m_pair *m, int d, enum m_act act)
{
	const struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct m_req *r = &a->sq[a->exec];

	if (m_uc(m) && act != M_BREAK && act < M_STOP)
		return m_uc_can(m, d, act);
	switch (act) {
	case M_EXEC:
		return can_exec(m, d);
	case M_ACK:
		return a->ack < a->exec;
	case M_BREAK:
		return a->fault;
	case M_LATE:
		return can_exec(m, d) && op_fetches(r->w->op) &&
		       m_accepts(a, b) && !m_local_ok(a, r);
	case M_OTHER:
		return can_exec(m, d) && two_wrongs(m, d);
	case M_LOST:
		return a->ack < a->exec && !m_accepts(a, b) &&
		       a->sq[a->ack].status == IBV_WC_SUCCESS;
	case M_CUT:
		return cut_off(m, d);
	case M_CUT_HERE:
		return cut_off_here(a);
	case M_GONE:
		return can_go(m, d);
	case M_GONE_LONG:
		return can_go(m, d) && !m_uc(m) && op_is_send(r->w->op) &&
		       wr_len(r->w) > b->sure->shortest[b->srq_seen];
	case M_GONE_BAD:
		return can_go(m, d) && op_is_send(r->w->op);
	case M_WAKE:
		return m->quirks & RXE_GHOST && a->exec < a->n && !a->stuck &&
		       (a->state == IBV_QPS_INIT || a->state == IBV_QPS_RTR);
	case M_SENT:
		return was_sent(m, d);
	case M_FLY:
		return a->flown < a->n_fly && hears(b);
	case M_STOP:
		return a->state == IBV_QPS_SQD && a->exec < a->held &&
		       a->exec < a->n;
	default:
		return false;
	}
}

void m_do(struct m_pair *m, int d, enum m_act act)
{
	struct m_side *a = &m->s[d];

	m->used |= 1u << act;
	if (m_uc(m) && act == M_ACK) {
		m_uc_ack(m, d);
		return;
	}
	switch (act) {
	case M_EXEC:
	case M_LATE:
	case M_OTHER:
	case M_DROP:
	case M_WAKE:
	case M_SENT:
		exec(m, d, act);
		break;
	case M_FLY:
		fly(m, d);
		break;
	case M_ACK:
		ack(m, d, a->sq[a->ack].status);
		break;
	case M_BREAK:
		m_to_err(m, d);
		break;
	case M_LOST:
		ack(m, d, IBV_WC_RETRY_EXC_ERR);
		break;
	case M_CUT:
		m->s[!d].fault |= m_accepts(a, &m->s[!d]);
		ack(m, d, IBV_WC_REM_ACCESS_ERR);
		break;
	case M_CUT_HERE:
		ack(m, d, IBV_WC_LOC_PROT_ERR);
		break;
	case M_STOP:
		a->held = a->exec;
		break;
	case M_GONE:
	case M_GONE_LONG:
	case M_GONE_BAD:
		go(m, d, act);
		break;
	default:
		break;
	}
}
