/* SPDX-License-Identifier: MIT */
/*
 * serve.c - requests of a client: their checks and their completions; see
 * serve.h.
 */
#include "vqp/node/serve.h"

#include <errno.h>
#include <string.h>

void serve_init(struct serve *s, struct vqp_engine *e, void *ring)
{
	memset(s, 0, sizeof(*s));
	s->e = e;
	ring_init(&s->ring, ring);
	list_init(&s->live);
}

/* --- vqps --------------------------------------------------------------- */

static struct serve_vqp *vqp_find(struct serve *s, uint32_t id)
{
	struct serve_vqp *sv = s->vqp[(id & 0xffff) % SERVE_VQPS];

	return sv && sv->id == id ? sv : NULL;
}

/* Takes v over. An error leaves v alone. */
static int vqp_add(struct serve *s, struct vqp *v, bool child,
		   struct serve_vqp **out)
{
	const struct vqp_conf *c = &s->e->conf;
	struct serve_vqp *sv;
	uint32_t i, at;

	if (!quota_take(&s->quota, QUOTA_VQPS, 1))
		return -EDQUOT;
	for (i = 0; i < SERVE_VQPS; i++)
		if (!s->vqp[at = s->next++ % SERVE_VQPS])
			break;
	sv = i < SERVE_VQPS ? c->port->alloc(c->arg, sizeof(*sv)) : NULL;
	if (!sv) {
		quota_give(&s->quota, QUOTA_VQPS, 1);
		return i < SERVE_VQPS ? -ENOMEM : -EDQUOT;
	}
	if (!++s->gen[at])
		s->gen[at] = 1;
	sv->s = s;
	sv->v = v;
	sv->id = (uint32_t)s->gen[at] << 16 | at;
	sv->child = child;
	v->front = sv;
	v->ours = false;
	vqp_share_set(v, &s->slots);
	s->vqp[at] = sv;
	list_add_tail(&s->live, &sv->link);
	*out = sv;
	return 0;
}

static void vqp_end(struct serve_vqp *sv)
{
	const struct vqp_conf *c = &sv->s->e->conf;

	sv->s->vqp[sv->id & 0xffff] = NULL;
	quota_give(&sv->s->quota, QUOTA_VQPS, 1);
	quota_give(&sv->s->quota, QUOTA_REQUESTS, sv->posted - sv->retired);
	sv->s->untold -= sv->retired - sv->reported;
	if (sv->v->state == VQP_BOUND)
		quota_give(&sv->s->quota, QUOTA_PORTS, 1);
	list_del(&sv->link);
	vqp_share_set(sv->v, NULL);
	vqp_free(sv->v);
	c->port->free(c->arg, sv);
}

void serve_fini(struct serve *s)
{
	while (!list_empty(&s->live))
		vqp_end(container_of(s->live.next, struct serve_vqp, link));
}

/* --- memory ------------------------------------------------------------- */

uint32_t serve_mem_add(struct serve *s, void *addr, uint64_t len, uint32_t lkey,
		       void *owner)
{
	struct serve_mem *m;
	uint32_t i;

	for (i = 0; i < SERVE_MEMS && s->mem[i].id; i++)
		;
	if (i == SERVE_MEMS)
		return 0;
	m = &s->mem[i];
	if (!++m->gen)
		m->gen = 1;
	m->addr = addr;
	m->len = len;
	m->lkey = lkey;
	m->owner = owner;
	m->id = (uint32_t)m->gen << 16 | i;
	return m->id;
}

bool serve_mem_put(struct serve *s, uint32_t id, void *addr, uint64_t len,
		   uint32_t lkey, void *owner)
{
	struct serve_mem *m = &s->mem[(id & 0xffff) % SERVE_MEMS];

	if (!(id >> 16) || (id & 0xffff) >= SERVE_MEMS || m->id)
		return false;
	*m = (struct serve_mem){.addr = addr,
				.len = len,
				.lkey = lkey,
				.id = id,
				.gen = (uint16_t)(id >> 16),
				.owner = owner};
	return true;
}

static struct serve_mem *mem_find(struct serve *s, uint32_t id)
{
	struct serve_mem *m = &s->mem[(id & 0xffff) % SERVE_MEMS];

	return id && m->id == id ? m : NULL;
}

void *serve_mem_del(struct serve *s, uint32_t id)
{
	struct serve_mem *m = mem_find(s, id);
	void *owner = m ? m->owner : NULL;

	if (m) {
		m->id = 0;
		m->owner = NULL;
	}
	return owner;
}

/* Turns the client's pieces into the device's. A piece that does not exist gets
 * an lkey that the engine does not know: LOC_PROT_ERR in its turn. */
static void sges_make(struct serve *s, const struct ring_req *q,
		      struct ibv_sge *out)
{
	const struct ring_sge *g = q->sge;
	struct serve_mem *m;
	unsigned i;

	for (i = 0; i < q->num_sge; i++, g++, out++) {
		m = mem_find(s, g->mem);
		memset(out, 0, sizeof(*out));
		out->length = g->len;
		if (!m || g->off > m->len || g->len > m->len - g->off)
			continue;
		out->addr = (uintptr_t)(m->addr + g->off);
		out->lkey = m->lkey;
	}
}

/* --- completions -------------------------------------------------------- */

static void retired_count(struct serve_vqp *sv)
{
	uint32_t now = sv->posted - sv->v->n_slots;

	/* n_slots also counts the engine's own requests, which come and go. */
	if ((int32_t)(now - sv->retired) <= 0)
		return;
	quota_give(&sv->s->quota, QUOTA_REQUESTS, now - sv->retired);
	sv->s->untold += now - sv->retired;
	sv->retired = now;
}

/* A completion that tells how many are retired. */
static uint32_t retired_tell(struct serve_vqp *sv)
{
	sv->s->untold -= sv->retired - sv->reported;
	sv->reported = sv->retired;
	return sv->retired;
}

/* Has sv something to tell, and are so many of the client's requests not told
 * that it may soon have to wait? The client counts them all together. */
static bool tells(const struct serve_vqp *sv)
{
	const struct serve *s = sv->s;
	uint64_t least = SERVE_TELL;

	if (s->quota.max && s->quota.max[QUOTA_REQUESTS] / 2 < least)
		least = s->quota.max[QUOTA_REQUESTS] / 2;
	return sv->retired != sv->reported && s->untold >= least;
}

static void comp_put(struct serve *s, const struct ring_comp *c)
{
	ring_comp_put(&s->ring, c);
	s->completions++;
}

/* The caller found room for the reply before it took the request. */
static void reply(struct serve *s, const struct ring_req *q, int err,
		  uint32_t made)
{
	struct ring_comp c = {.kind = RING_REPLY,
			      .vqp = q->vqp,
			      .wr_id = q->wr_id,
			      .len = (uint32_t)-err,
			      .imm = made};

	comp_put(s, &c);
}

static void wc_put(struct serve_vqp *sv, const struct ibv_wc *wc)
{
	struct ring_comp c = {.kind = wc->opcode == IBV_WC_RECV ? RING_RECV
								: RING_DONE,
			      .status = (uint8_t)wc->status,
			      .opcode = (uint8_t)wc->opcode,
			      .with_imm = wc->wc_flags & IBV_WC_WITH_IMM,
			      .vqp = sv->id,
			      .wr_id = wc->wr_id,
			      .len = wc->byte_len,
			      .imm = wc->imm_data};

	retired_count(sv);
	c.value = retired_tell(sv);
	comp_put(sv->s, &c);
}

static int message_status(int err)
{
	if (!err)
		return IBV_WC_SUCCESS;
	if (err == -ECONNABORTED)
		return IBV_WC_REM_ABORT_ERR;
	if (err == -ECONNRESET)
		return IBV_WC_WR_FLUSH_ERR;
	return err == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR;
}

static int messages_put(struct serve_vqp *sv, int room)
{
	struct serve *s = sv->s;
	struct serve_vqp *from;
	struct vqp_pop_out m;
	int n;

	for (n = 0; n < room && vqp_pop(sv->v, &m); n++) {
		struct ring_comp c = {.kind = RING_MESSAGE,
				      .status =
					      (uint8_t)message_status(m.status),
				      .with_imm = m.with_imm,
				      .vqp = sv->id,
				      .wr_id = m.wr_id,
				      .len = m.len,
				      .imm = m.imm};

		from = m.from->front;
		/* If there is no room for the sender's vqp, the message comes
		 * without one. */
		if (from || !vqp_add(s, m.from, true, &from)) {
			from->messages++;
			c.value = from->id;
		}
		comp_put(s, &c);
	}
	return n;
}

/* Moves at most `room` completions of this vqp. One place may be used to report
 * retired requests. */
static int vqp_look(struct serve_vqp *sv, int room)
{
	struct vqp *v = sv->v;
	struct ibv_wc wc[16];
	int got, n = 0, i;

	if (v->state == VQP_BOUND)
		return messages_put(sv, room);
	while (n < room) {
		got = vqp_poll(v, room - n < 16 ? room - n : 16, wc);
		for (i = 0; i < got; i++)
			wc_put(sv, &wc[i]);
		n += got;
		if (got < 16)
			break;
	}
	retired_count(sv);
	if (n < room && tells(sv)) {
		struct ring_comp c = {.kind = RING_ROOM,
				      .vqp = sv->id,
				      .value = retired_tell(sv)};

		comp_put(sv->s, &c);
		n++;
	}
	return n;
}

static bool connect_look(struct serve_vqp *sv)
{
	struct ring_req q = {.vqp = sv->id};

	if (!sv->connects || sv->v->state == VQP_LOOKS_UP)
		return false;
	sv->connects = false;
	reply(sv->s, &q, 0, 0);
	return true;
}

/* Room for completions: the rest of the ring is for replies. */
static int room_of(struct serve *s)
{
	return ring_comp_room(&s->ring) - (int)RING_REPLIES;
}

static int completions_put(struct serve *s)
{
	struct list_node *n, *next;
	struct serve_vqp *sv;
	int room = room_of(s), moved = 0, k;

	list_for_each_safe(n, next, &s->live) {
		sv = container_of(n, struct serve_vqp, link);
		if (room - moved < 1) {
			/* Other clients of the user may wait for quota that is
			 * free now. */
			retired_count(sv);
			continue;
		}
		if (connect_look(sv))
			moved++;
		k = vqp_look(sv, room - moved);
		moved += k;
	}
	return moved;
}

/* --- requests ----------------------------------------------------------- */

static int wrong(struct serve *s, const char *why)
{
	s->wrong = why;
	return 0;
}

static int op_new(struct serve *s, const struct ring_req *q)
{
	struct serve_vqp *sv = NULL;
	struct vqp *v;
	int err = vqp_new(s->e, &v);

	if (!err) {
		v->domain = s->domain;
		err = vqp_add(s, v, false, &sv);
		if (err)
			vqp_free(v);
	}
	reply(s, q, err, err ? 0 : sv->id);
	return 0;
}

static int op_connect(struct serve_vqp *sv, const struct ring_req *q)
{
	int err;

	if (!q->rkey || q->rkey > UINT16_MAX || !q->addr ||
	    q->addr > UINT16_MAX)
		return wrong(sv->s, "a port that is none");
	err = vqp_connect(sv->v, q->gid, (uint32_t)q->addr, (uint16_t)q->rkey);
	if (err == -EINPROGRESS)
		sv->connects = true;
	else
		reply(sv->s, q, err, 0);
	return 0;
}

static int op_stop(struct serve_vqp *sv, const struct ring_req *q)
{
	if (!sv->connects)
		return 0; /* the connect's reply is under way */
	sv->connects = false;
	if (sv->v->state == VQP_LOOKS_UP) {
		reply(sv->s, q, vqp_connect_stop(sv->v), 0);
	} else {
		reply(sv->s, q, 0, 0);
	}
	return 0;
}

static int op_bind(struct serve_vqp *sv, const struct ring_req *q)
{
	int err = q->rkey > UINT16_MAX ? -EINVAL : 0;

	if (!err && !quota_take(&sv->s->quota, QUOTA_PORTS, 1))
		err = -EDQUOT;
	if (!err) {
		err = vqp_bind(sv->v, (uint16_t)q->rkey);
		if (err)
			quota_give(&sv->s->quota, QUOTA_PORTS, 1);
	}
	reply(sv->s, q, err, 0);
	return 0;
}

static int op_recv(struct serve_vqp *sv, const struct ring_req *q)
{
	struct ibv_sge sge[RING_SGES];
	struct ibv_recv_wr wr = {.wr_id = q->wr_id,
				 .sg_list = sge,
				 .num_sge = q->num_sge},
			   *bad;

	sges_make(sv->s, q, sge);
	if (vqp_post_recv(sv->v, &wr, &bad))
		return wrong(sv->s, "a receive more than there is room for");
	return 0;
}

/* If the client has not seen a message of the child yet, that message makes a
 * new handle there: the child stays. */
static int op_free(struct serve_vqp *sv, const struct ring_req *q)
{
	if (!sv->child || sv->messages == (uint32_t)q->addr)
		vqp_end(sv);
	return 0;
}

/* -ENOMEM: the engine has no room now. */
static int op_send(struct serve_vqp *sv, const struct ring_req *q)
{
	enum ibv_wr_opcode op = (enum ibv_wr_opcode)(q->op - RING_OP_SEND);
	struct ibv_sge sge[RING_SGES];
	struct ibv_send_wr wr = {.wr_id = q->wr_id,
				 .sg_list = sge,
				 .num_sge = q->num_sge,
				 .opcode = op,
				 .send_flags = q->flags},
			   *bad;
	int err;

	if (op == IBV_WR_SEND_WITH_IMM)
		wr.imm_data = q->rkey;
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = q->addr;
		wr.wr.atomic.compare_add = q->compare_add;
		wr.wr.atomic.swap = q->swap;
		wr.wr.atomic.rkey = q->rkey;
	} else {
		wr.wr.rdma.remote_addr = q->addr;
		wr.wr.rdma.rkey = q->rkey;
	}
	if (q->flags & IBV_SEND_INLINE) {
		sge[0] = (struct ibv_sge){(uintptr_t)q->data, q->data_len, 0};
		wr.num_sge = 1;
	} else {
		sges_make(sv->s, q, sge);
	}
	if (!quota_take(&sv->s->quota, QUOTA_REQUESTS, 1))
		return -ENOMEM;
	err = vqp_post_send(sv->v, &wr, &bad);
	if (err)
		quota_give(&sv->s->quota, QUOTA_REQUESTS, 1);
	if (err == -ENOMEM)
		return err;
	if (err)
		return wrong(sv->s, "a request that makes no sense");
	sv->posted++;
	return 0;
}

/* -ENOMEM: try again later. */
static int request(struct serve *s, const struct ring_req *q)
{
	struct serve_vqp *sv;

	if (q->op == RING_OP_NEW)
		return op_new(s, q);
	sv = vqp_find(s, q->vqp);
	if (!sv)
		return wrong(s, "a vqp that is not there");
	switch (q->op) {
	case RING_OP_FREE:
		return op_free(sv, q);
	case RING_OP_CONNECT:
		return op_connect(sv, q);
	case RING_OP_STOP:
		return op_stop(sv, q);
	case RING_OP_BIND:
		return op_bind(sv, q);
	case RING_OP_RECV:
		return op_recv(sv, q);
	default:
		return op_send(sv, q);
	}
}

static int64_t bytes_of(const struct ring_req *q)
{
	int64_t n = q->data_len;
	unsigned i;

	for (i = 0; q->op >= RING_OP_SEND && i < q->num_sge; i++)
		n += q->sge[i].len;
	return n;
}

/* A client with large requests pays for each in rounds that other clients use
 * (deficit round robin). It saves no credit that it does not use. */
static bool has_credit(struct serve *s)
{
	s->credit += SERVE_BYTES;
	if (s->credit > SERVE_BYTES)
		s->credit = SERVE_BYTES;
	return s->credit > 0;
}

static int requests_take(struct serve *s)
{
	int err = 0, n = 0;

	/* a round that only pays makes progress too */
	if (!has_credit(s))
		return s->holds || ring_has(&s->ring);
	while (n < (int)SERVE_BATCH && s->credit > 0 && !s->wrong) {
		if (!s->holds) {
			err = ring_take(&s->ring, &s->held);
			if (err == -EBADMSG)
				wrong(s, "a line that is no request");
			if (err)
				break;
		}
		s->holds = request(s, &s->held) == -ENOMEM;
		if (s->holds)
			break;
		s->credit -= bytes_of(&s->held);
		if (s->credit < -SERVE_DEBT)
			s->credit = -SERVE_DEBT;
		s->requests++;
		n++;
	}
	return n;
}

int serve_round(struct serve *s)
{
	int room = ring_comp_room(&s->ring), n = 0;

	if (room < 0)
		return wrong(s, "a cursor that is none");
	/* each request may need a reply */
	if (room > (int)RING_REPLIES)
		n = requests_take(s);
	if (s->wrong)
		return n;
	n += completions_put(s);
	s->full = room_of(s) <= 0;
	return n;
}

bool serve_has(struct serve *s)
{
	int room;

	if (!s->full)
		return !s->holds && ring_has(&s->ring);
	room = ring_comp_room(&s->ring);
	return room < 0 || room > (int)RING_REPLIES;
}
