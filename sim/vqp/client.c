/* SPDX-License-Identifier: MIT */
/*
 * client.c - a client of a pool: looks a node up, posts lists of all kinds, polls
 * and judges each completion, closes, begins anew. See vqp.h.
 */
#include "sim/vqp/vqp.h"

#include <errno.h>
#include <string.h>

#define LIST_MAX 24u
#define LOOKUP_NS (300 * PARTY_MS)
#define BAD_LKEY 0xdeadu
#define BAD_REGION 0x7fff0005u

static struct vqp_engine *engine(struct client *c)
{
	return &c->node->pool->e;
}

static struct books *books(struct client *c)
{
	return &c->node->run->books;
}

static struct node *target(struct client *c)
{
	return &c->node->run->nodes[c->rec->to];
}

static uint64_t *read_at(struct client *c, uint64_t id)
{
	return &c->buffer[c->in_use][id % IDS];
}

static uint64_t draw(struct client *c, uint64_t below)
{
	return node_draw(c->node, below);
}

static void recvs_post(struct node *n, struct vqp *v, void *at, unsigned many)
{
	struct ibv_sge sge = {(uintptr_t)at, sizeof(struct payload),
			      n->local->base.lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	while (many-- && !vqp_post_recv(v, &wr, &bad))
		;
}

/* --- making a list ------------------------------------------------------ */

static enum req_kind kind_draw(struct client *c)
{
	uint64_t x = draw(c, 100);

	if (!draw(c, 200))
		return REQ_LIE;
	if (x < 10 && target(c)->region_id)
		return x < 6 ? REQ_REGION_READ : REQ_REGION_WRITE;
	return (enum req_kind)(x % 4);
}

static void lie(struct client *c, struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_RDMA_READ;
	switch (draw(c, 3)) {
	case 0:
		wr->sg_list->lkey = BAD_LKEY;
		break;
	case 1:
		wr->wr.rdma.rkey = BAD_REGION;
		break;
	default:
		wr->wr.rdma.remote_addr = target(c)->words_addr + 8 * WORDS - 4;
		break;
	}
}

/* wr is zero but for wr_id and the list of one piece; data is the piece's if
 * the request is inline. */
static void wr_make(struct client *c, enum req_kind kind,
		    struct ibv_send_wr *wr, struct payload *data)
{
	struct req *req = &c->req[wr->wr_id % IDS];
	const struct node *to = target(c);
	struct record *r = c->rec;

	*req = (struct req){.kind = kind, .region = to->words_id};
	wr->num_sge = 1;
	wr->send_flags = draw(c, 2) ? IBV_SEND_SIGNALED : 0;
	wr->wr.rdma.rkey = to->words_id;
	wr->wr.rdma.remote_addr = to->words_addr + 8ul * r->word;
	*wr->sg_list = (struct ibv_sge){(uintptr_t)read_at(c, wr->wr_id), 8,
					c->node->local->base.lkey};
	wr->opcode = IBV_WR_RDMA_READ;
	switch (kind) {
	case REQ_WRITE:
	case REQ_REGION_WRITE:
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->send_flags |= IBV_SEND_INLINE;
		data->n = r->written + 1;
		wr->sg_list->addr = (uintptr_t)&data->n;
		break;
	case REQ_ADD:
		wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.rkey = to->words_id;
		wr->wr.atomic.remote_addr = to->words_addr + 8ul * r->word + 8;
		wr->wr.atomic.compare_add = 1;
		break;
	case REQ_SEND:
		wr->opcode = IBV_WR_SEND;
		wr->send_flags |= IBV_SEND_INLINE;
		*data = (struct payload){(uint64_t)(r - books(c)->records),
					 r->sent};
		*wr->sg_list =
			(struct ibv_sge){(uintptr_t)data, sizeof(*data), 0};
		break;
	case REQ_LIE:
		lie(c, wr);
		break;
	default:
		break;
	}
	if (kind != REQ_REGION_READ && kind != REQ_REGION_WRITE)
		return;
	req->region = wr->wr.rdma.rkey = c->old_id ? c->old_id : to->region_id;
	wr->wr.rdma.remote_addr = (c->old_id ? c->old_addr : to->region_addr) +
				  8 * draw(c, REGION / 8);
	data->n = to->region_id;
}

/* The list has this request: what it changes, and must bring. */
static void count(struct client *c, uint64_t id)
{
	struct req *req = &c->req[id % IDS];
	struct record *r = c->rec;

	switch (req->kind) {
	case REQ_WRITE:
		r->written++;
		break;
	case REQ_READ:
		req->want = r->written;
		break;
	case REQ_ADD:
		req->want = r->adds++;
		break;
	case REQ_SEND:
		r->sent++;
		break;
	case REQ_REGION_READ:
		req->want = req->region;
		break;
	default:
		break;
	}
	c->node->run->requests++;
}

static void uncount(struct client *c, uint64_t id)
{
	const struct req *req = &c->req[id % IDS];

	c->rec->written -= req->kind == REQ_WRITE;
	c->rec->adds -= req->kind == REQ_ADD;
	c->rec->sent -= req->kind == REQ_SEND;
}

static void list_post(struct client *c, const enum req_kind *kinds, unsigned n)
{
	struct ibv_send_wr wr[LIST_MAX] = {0}, *bad = NULL, *w;
	struct payload data[LIST_MAX];
	struct ibv_sge sge[LIST_MAX];
	unsigned i, wrong = kinds || draw(c, 20) ? LIST_MAX : n / 2;
	int err;

	for (i = 0; i < n; i++) {
		wr[i].wr_id = c->next_id + i;
		wr[i].sg_list = &sge[i];
		wr_make(c, kinds ? kinds[i] : kind_draw(c), &wr[i], &data[i]);
		count(c, wr[i].wr_id);
		if (kinds)
			wr[i].send_flags |= IBV_SEND_SIGNALED;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	if (wrong < n)
		wr[wrong].num_sge = -1;
	vqp_engine_at(engine(c), node_now(c->node));
	err = vqp_post_send(c->v, wr, &bad);
	c->node->run->lists++;
	if ((!err && wrong < n) || (err && err != -EINVAL && err != -ENOMEM) ||
	    (err == -EINVAL && bad != &wr[wrong]))
		report_fail(books(c)->rep, "a post returns %d", err);
	if (!err)
		bad = NULL;
	for (w = wr; w && w != bad; w = w->next)
		c->next_id++;
	for (; w; w = w->next)
		uncount(c, w->wr_id);
}

/* --- completions -------------------------------------------------------- */

/* The request that has failed first. */
static void error_take(struct client *c, const struct ibv_wc *wc)
{
	const struct req *req = &c->req[wc->wr_id % IDS];
	bool of_region =
		req->kind == REQ_REGION_READ || req->kind == REQ_REGION_WRITE;

	if (c->rec->failed)
		return;
	c->rec->failed = true;
	if (req->kind == REQ_LIE && (wc->status == IBV_WC_REM_ACCESS_ERR ||
				     wc->status == IBV_WC_LOC_PROT_ERR))
		return;
	/* The region may have been given up. */
	if (of_region && wc->status == IBV_WC_REM_ACCESS_ERR &&
	    (req->region != target(c)->region_id ||
	     c->rec->to_life != target(c)->life))
		return;
	books_failed(books(c), c->rec, "a request fails", (int)wc->status);
}

/* A READ may see WRITEs behind it, which have no fence: it is carried out again
 * when its answer, or its queue pair, is lost. */
static bool is_right(struct client *c, const struct req *req, uint64_t got)
{
	switch (req->kind) {
	case REQ_READ:
		return got >= req->want && got <= c->rec->written;
	case REQ_ADD:
	case REQ_REGION_READ:
		return got == req->want;
	case REQ_LIE:
		return false;
	default:
		return true;
	}
}

static void success_take(struct client *c, const struct ibv_wc *wc)
{
	const struct req *req = &c->req[wc->wr_id % IDS];
	uint64_t got = *read_at(c, wc->wr_id);

	if (c->rec->failed)
		report_fail(books(c)->rep, "a success behind an error");
	if (!is_right(c, req, got))
		report_fail(books(c)->rep,
			    "from %u to %u: a request of kind %d brings %lu, "
			    "not %lu",
			    c->rec->from, c->rec->to, req->kind,
			    (unsigned long)got, (unsigned long)req->want);
}

static void wc_take(struct client *c, const struct ibv_wc *wc)
{
	if (wc->opcode == IBV_WC_RECV && wc->status == IBV_WC_SUCCESS) {
		books_answered(books(c), c->rec, c->answer);
		recvs_post(c->node, c->v, c->answer, 1);
		return;
	}
	if (wc->opcode == IBV_WC_RECV)
		return;
	if (wc->wr_id >= c->next_id || wc->wr_id < c->last_id)
		report_fail(books(c)->rep,
			    "from %u to %u: completions are not in order",
			    c->rec->from, c->rec->to);
	c->last_id = wc->wr_id + 1;
	if (wc->status)
		error_take(c, wc);
	else
		success_take(c, wc);
}

static void poll_all(struct client *c)
{
	struct ibv_wc wc;

	while (vqp_poll(c->v, 1, &wc) == 1)
		wc_take(c, &wc);
	if (c->v->state == VQP_ERROR && !c->rec->failed)
		books_failed(books(c), c->rec, "an error without a request", 0);
}

/* --- a vqp -------------------------------------------------------------- */

static bool same_lives(struct client *c)
{
	return target(c)->life == c->rec->to_life && target(c)->words_id;
}

/* All requests are done: the far end's words say so. */
static void words_check(struct client *c)
{
	const uint64_t *at;

	if (c->rec->failed || !same_lives(c) || c->v->n_slots)
		return;
	at = (uint64_t *)target(c)->words->base.addr + c->rec->word;
	if (at[0] != c->rec->written || at[1] != c->rec->adds)
		report_fail(books(c)->rep,
			    "from %u to %u: %lu WRITEs and %lu atomics of %lu "
			    "and %lu",
			    c->rec->from, c->rec->to, (unsigned long)at[0],
			    (unsigned long)at[1],
			    (unsigned long)c->rec->written,
			    (unsigned long)c->rec->adds);
}

/* Is a request under way that may end in an error? */
static bool may_fail(const struct client *c)
{
	for (uint64_t id = c->last_id; id < c->next_id; id++)
		if (c->req[id % IDS].kind >= REQ_REGION_READ)
			return true;
	return false;
}

static void end(struct client *c)
{
	if (c->v->state == VQP_CONNECTED || c->v->state == VQP_ERROR) {
		poll_all(c);
		words_check(c);
	}
	if (c->v->n_slots) {
		/* Nobody will see the error. What waits for an RC queue pair
		 * is dropped in the end. */
		c->rec->failed |= may_fail(c) || !c->v->peer->dc;
		c->rests_ns[c->in_use] =
			node_now(c->node) + VQP_LINGER_NS + 4 * REGION_RETRY_NS;
	}
	vqp_engine_at(engine(c), node_now(c->node));
	c->rec->ended = true;
	vqp_close(c->v);
	c->v = NULL;
}

/* False: all rest. */
static bool buffer_choose(struct client *c)
{
	for (unsigned i = 0; i < BUFFERS; i++) {
		c->in_use = i;
		if (node_now(c->node) >= c->rests_ns[i])
			return true;
	}
	return false;
}

static void begin(struct client *c, struct node *to)
{
	uint64_t now = node_now(c->node);
	struct record *r;
	int rc;

	if (!to->known || to->next_word + 2 > WORDS || !buffer_choose(c))
		return;
	r = books_record(books(c));
	if (!r || vqp_new(engine(c), &c->v))
		return;
	*r = (struct record){.from = c->node->a.i,
			     .to = to->a.i,
			     .from_life = c->node->life,
			     .to_life = to->life,
			     .born_ns = now};
	c->rec = r;
	c->next_id = c->last_id = 0;
	c->posted_proof = false;
	c->give_up_ns = now + LOOKUP_NS;
	c->node->run->connects++;
	vqp_engine_at(engine(c), now);
	rc = vqp_connect(c->v, to->gid, to->port, PORT);
	if (rc && rc != -EINPROGRESS)
		report_fail(books(c)->rep, "a connect returns %d", rc);
}

/* Its first step as a connected vqp. */
static void connected(struct client *c)
{
	struct node *to = target(c);

	c->rec->connected = true;
	if (!same_lives(c) || !to->words_id || to->next_word + 2 > WORDS) {
		end(c);
		return;
	}
	c->rec->word = to->next_word;
	to->next_word += 2;
	recvs_post(c->node, c->v, c->answer, VQP_RECVS);
}

/* True: it looks up, or has given up. */
static bool looks_up(struct client *c)
{
	if (c->v->state != VQP_LOOKS_UP)
		return false;
	if (node_now(c->node) >= c->give_up_ns) {
		(void)vqp_connect_stop(c->v);
		end(c);
	}
	return true;
}

bool client_region_read(struct client *c, uint32_t id, uint64_t addr)
{
	static const enum req_kind kind = REQ_REGION_READ;

	if (!c->v || c->v->state != VQP_CONNECTED || !c->rec->connected ||
	    c->rec->failed || !same_lives(c))
		return false;
	c->old_id = id;
	c->old_addr = addr;
	list_post(c, &kind, 1);
	c->old_id = 0;
	return true;
}

bool client_step(struct client *c)
{
	if (!c->v) {
		if (!draw(c, 8))
			begin(c, node_any(c->node));
		return c->v != NULL;
	}
	if (looks_up(c))
		return true;
	if (!c->rec->connected) {
		connected(c);
		return true;
	}
	poll_all(c);
	if (c->rec->failed || !draw(c, 400)) {
		end(c);
		return true;
	}
	if (same_lives(c) && !draw(c, 4))
		list_post(c, NULL, 1 + (unsigned)draw(c, LIST_MAX));
	return c->v->n_slots != 0;
}

/* --- after the faults --------------------------------------------------- */

static const enum req_kind proof[] = {REQ_WRITE, REQ_READ, REQ_ADD, REQ_SEND};

/* True: the vqp has nothing under way, or has an error. */
static bool is_over(struct client *c)
{
	if (looks_up(c))
		return false;
	if (!c->rec->connected) {
		connected(c);
		return false;
	}
	poll_all(c);
	if (c->rec->failed || !same_lives(c))
		return true;
	return !c->v->n_slots && books_arrived(books(c), c->rec);
}

static void prove(struct client *c)
{
	struct node *n = c->node;
	struct node *to = &n->run->nodes[n->run->party.n_servers + n->proven];

	if (!c->v) {
		if (to->words_id)
			begin(c, to);
		c->proof = c->v != NULL;
		return;
	}
	if (!is_over(c) || !c->v)
		return;
	if (!c->rec->failed && same_lives(c) && !c->posted_proof) {
		list_post(c, proof, sizeof(proof) / sizeof(proof[0]));
		c->posted_proof = true;
		return;
	}
	n->proven += !c->rec->failed && same_lives(c) && !c->v->n_slots &&
		     c->rec->popped == c->rec->sent;
	end(c);
}

bool client_finish(struct client *c)
{
	struct node *n = c->node;

	if (c->v && !c->proof) {
		if (is_over(c) && c->v)
			end(c);
		return false;
	}
	if (c != &n->clients[0] || n->proven == n->run->party.n_clients)
		return true;
	prove(c);
	return false;
}

/* --- the other end ------------------------------------------------------ */

static void answer(struct node *n, struct vqp *to, struct record *r)
{
	struct payload data = {(uint64_t)(r - n->run->books.records),
			       r->answers};
	struct ibv_sge sge = {(uintptr_t)&data, sizeof(data), 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE};
	struct ibv_send_wr *bad;

	vqp_engine_at(&n->pool->e, node_now(n));
	if (to->state == VQP_CONNECTED && !vqp_post_send(to, &wr, &bad))
		r->answers++;
}

/* The sender has freed its vqp, or is dead. */
static void gone(struct node *n, struct vqp *from)
{
	struct record *r = from->front;

	recvs_post(n, n->bound, n->rx, 1);
	books_ended(&n->run->books, r,
		    node_lives(n->run, r->from, r->from_life));
	r->unanswered = true;
	vqp_engine_at(&n->pool->e, node_now(n));
	vqp_close(from);
}

bool client_ends_known(struct node *n)
{
	const struct vqp_engine *e = &n->pool->e;

	for (uint32_t i = 0; i < e->vqps_cap; i++) {
		const struct vqp *v = e->vqps[i];
		const struct record *r = v && v->bound ? v->front : NULL;

		if (!r)
			continue;
		if (!node_lives(n->run, r->from, r->from_life)) {
			/* Without DC, or with it one way only, nobody may know:
			 * skein/vqp.h. And without memory it is lost. */
			if (v->peer->dc && !v->far_ends)
				return false;
		} else if (r->ended && books_sound(&n->run->books, r)) {
			return false;
		}
	}
	return true;
}

void client_message(struct node *n, const struct vqp_pop_out *m)
{
	struct books *b = &n->run->books;
	struct payload got = *n->rx;
	struct record *r = &b->records[got.record % RECORDS_MAX];
	struct vqp *from = m->from;
	struct ibv_wc wc;

	recvs_post(n, n->bound, n->rx, 1);
	if (m->status == -ECONNRESET) {
		gone(n, m->from);
		return;
	}
	if (m->status || m->len != sizeof(got)) {
		report_fail(b->rep, "a message of %u bytes, status %d", m->len,
			    m->status);
		return;
	}
	books_popped(b, &got, n->a.i, n->life);
	from->ours = false;
	from->front = r;
	while (vqp_poll(from, 1, &wc) == 1)
		;
	if (from->state == VQP_ERROR && !r->ended && books_sound(b, r))
		report_fail(b->rep, "from %u to %u: an answer fails", r->from,
			    r->to);
	/* Answers tell what was taken: a node that frees many has none. */
	if (n->frees > FREES && node_draw(n, 2))
		answer(n, from, r);
	/* None of its messages may be dropped with it. */
	if (!node_draw(n, n->frees) && list_empty(&n->bound->messages) &&
	    list_empty(&from->ahead)) {
		r->unanswered = true;
		vqp_engine_at(&n->pool->e, node_now(n));
		vqp_close(from);
	}
}
