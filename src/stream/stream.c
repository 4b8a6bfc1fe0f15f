/* SPDX-License-Identifier: MIT */
/*
 * stream.c - a stream: rings and their WRITEs, Heads given back, the switch to
 * sleep and back, the end.
 *
 * The mirror holds each record, at the offset that it has in the reader's ring,
 * until the reader has taken it. So a record's bytes are not written again
 * while the device may still read them.
 *
 * After CLOSE this end posts nothing more for the stream, and after the peer's
 * CLOSE nothing but its own: the memory on the other side may be gone.
 *
 * Thread rule: one thread at a time, by the caller's lock.
 */
#include "stream/stream.h"

#include "base/assert.h"
#include "base/fence.h"
#include "env/env.h"
#include "stream/section.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define BATCH 4
#define BATCH_BYTES (32u << 10) /* a batch ends behind so many */
#define WRITABLE 1024u		/* bytes of ring free: worth a wake-up */
#define INLINE_MAX 256u
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* --- up and down --------------------------------------------------------- */

static int make_memory(struct stream *s)
{
	struct stream_host *h = s->host;
	struct stream_slot *p = &s->slot;
	uint32_t size = s->ring_size;
	uint8_t *mem;
	int rc;

	rc = stream_host_get(h, STREAM_WHOLE, size, p);
	if (rc)
		return rc;
	mem = p->mem;
	memset(mem, 0, 4096);
	/* The control words are just before the ring. */
	s->ctl = (void *)(mem + 4096 - sizeof(*s->ctl));
	s->ring = mem + 4096;
	rc = h->dev->ops->reg_mr(h->dev, h->pd, s->ctl, sizeof(*s->ctl) + size,
				 ACCESS, p->fd, p->off + 4096 - sizeof(*s->ctl),
				 &s->ring_mr);
	if (rc)
		goto err_slot;
	rc = h->dev->ops->reg_mr(h->dev, h->pd, s->ring + size, size,
				 IBV_ACCESS_LOCAL_WRITE, p->fd,
				 p->off + 4096 + size, &s->mirror_mr);
	if (rc)
		goto err_ring;
	return 0;

err_ring:
	h->dev->ops->dereg_mr(h->dev, s->ring_mr);
err_slot:
	stream_host_put(h, p);
	return rc;
}

int stream_new(struct stream_host *h, uint32_t ring_size, uint32_t grow_max,
	       struct stream **stream)
{
	struct stream *s = env_alloc_aligned(h->env, 64, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->host = h;
	s->ring_size = ring_size;
	s->grow.max = grow_max;
	s->stats = h->lent ? &s->own_stats : &h->stats;
	env_random(h->env, &s->secret, sizeof(s->secret));
	rc = make_memory(s);
	if (rc) {
		env_free(h->env, s);
		return rc;
	}
	stream_in_init(&s->in, s->ring, s->secret, ring_size,
		       !h->dev->caps.ordered_write);
	*stream = s;
	return 0;
}

void stream_free(struct stream *s)
{
	struct stream_host *h = s->host;

	grow_free(s);
	h->dev->ops->dereg_mr(h->dev, s->mirror_mr);
	h->dev->ops->dereg_mr(h->dev, s->ring_mr);
	stream_host_put(h, &s->slot);
	env_free(h->env, s);
}

int stream_join(struct stream *s, struct stream_qp *q)
{
	int rc = stream_qp_add(q, s);

	if (rc)
		return rc;
	s->qp = q;
	s->last = s->burst_done = q->done;
	return 0;
}

void stream_addr(struct stream *s, struct stream_addr *addr)
{
	*addr = (struct stream_addr){
		.secret = s->secret,
		.mem = (uintptr_t)s->ctl,
		.rkey = s->ring_mr->rkey,
		.ring_size = s->ring_size,
		.number = s->number,
		.checksum = !s->host->dev->caps.ordered_write,
		.grows = s->grow.max > s->ring_size,
	};
}

void stream_first_ring(struct stream *s)
{
	s->mirror = s->ring + s->ring_size;
	s->out_lkey = s->mirror_mr->lkey;
	s->out_rkey = s->peer.rkey;
	s->out_mem = s->peer.mem + sizeof(struct stream_ctl);
}

int stream_connect(struct stream *s, const struct stream_addr *peer)
{
	/* The mirror has the size of this end's ring, so a larger ring of the
	 * peer's would not fit. */
	if (peer->ring_size != s->ring_size)
		return -EINVAL;
	s->peer = *peer;
	s->connected = true;
	stream_first_ring(s);
	stream_out_init(&s->out, peer->secret, peer->ring_size, peer->checksum);
	return 0;
}

int stream_ask_open(struct stream *s, uint32_t listener)
{
	struct stream_msg m = {.type = STREAM_OPEN, .number = listener};
	int rc;

	stream_addr(s, &m.addr);
	rc = stream_qp_send(s->qp, &m);
	s->asked = rc == 0;
	return rc;
}

/* --- posting ------------------------------------------------------------- */

int stream_break(struct stream *s, int rc)
{
	if (s->broken)
		return s->broken;
	s->broken = rc;
	if (rc == -EPROTO) {
		/* The peer's mistake ends this stream, and no other. */
		s->host->garbage++;
		s->owes_close = !s->closed;
		stream_pay(s);
	}
	return s->broken;
}

/* A QP that has failed breaks those of its streams that it owes something, or
 * that want more of it: the others may have all that they need. */
static void reap(struct stream *s)
{
	stream_qp_reap(s->qp);
	if (s->qp->broken && (int32_t)(s->last - s->qp->done) > 0)
		stream_break(s, s->qp->broken);
}

/* 0, or why nothing can be written any more. */
static int cannot(struct stream *s)
{
	if (s->broken)
		return s->broken;
	if (s->qp->broken)
		return stream_break(s, s->qp->broken);
	if (s->peer_closed || s->closed)
		return stream_break(s, -ECONNRESET);
	return 0;
}

/* Send slots that s may use. While one burst of s is under way another one may
 * be posted, and no third. */
static uint32_t slots(struct stream *s)
{
	struct stream_qp *q = s->qp;

	if (s->burst < STREAM_BURST)
		return stream_qp_slots(q);
	stream_qp_reap(q);
	if ((int32_t)(q->done - s->burst_done) < 0)
		return 0;
	s->burst_done = s->burst_end;
	s->burst = 0;
	return stream_qp_slots(q);
}

/* s owes something: a later stream_qp_poll() posts it. */
static void owe(struct stream *s)
{
	if (!s->qp->broken && !list_linked(&s->owing))
		list_add_tail(&s->qp->owing, &s->owing);
}

struct stream_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

static void prepare(struct stream *s, struct stream_wr *r, const void *from,
		    uint32_t len, uint64_t to, uint32_t rkey)
{
	memset(r, 0, sizeof(*r));
	r->sge.addr = (uintptr_t)from;
	r->sge.length = len;
	r->sge.lkey = s->out_lkey;
	r->wr.sg_list = &r->sge;
	r->wr.num_sge = len ? 1 : 0;
	r->wr.opcode = IBV_WR_RDMA_WRITE;
	r->wr.wr.rdma.remote_addr = to;
	r->wr.wr.rdma.rkey = rkey;
	if (len && len <= INLINE_MAX && len <= s->host->dev->caps.inline_max)
		r->wr.send_flags = IBV_SEND_INLINE;
}

static void with_imm(struct stream *s, struct stream_wr *r, enum stream_imm imm)
{
	r->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	r->wr.imm_data = htonl(STREAM_IMM(imm, s->peer.number));
}

/* Posts a list of requests; the caller has checked that there are slots, and a
 * credit for the immediate. */
static int post(struct stream *s, struct stream_wr *r, int n, bool imm,
		bool signal)
{
	bool over = s->burst >= STREAM_BURST;
	int i;

	for (i = 0; i < n; i++) {
		r[i].wr.next = i + 1 < n ? &r[i + 1].wr : NULL;
		s->burst += r[i].sge.length;
	}
	over = !over && s->burst >= STREAM_BURST;
	if (stream_qp_post(s->qp, s->stats, &r[0].wr, (uint32_t)n, imm,
			   signal || over))
		return stream_break(s, -ECONNRESET);
	s->last = s->qp->posted;
	if (over)
		s->burst_end = s->last;
	return 0;
}

/* The same; the last one rings a bell when the peer sleeps. */
static int post_belled(struct stream *s, struct stream_wr *r, int n)
{
	bool bell = s->peer_asleep && s->qp->credit;

	if (bell) {
		with_imm(s, &r[n - 1], STREAM_BELL);
		s->bells++;
	} else if (s->peer_asleep) {
		s->owes_bell = true;
		owe(s);
	}
	s->peer_asleep = s->peer_each;
	/* A reader that asks no more sleeps only when its own bytes are known
	 * to be there. */
	return post(s, r, n, bell, s->each);
}

static bool post_imm(struct stream *s, enum stream_imm imm)
{
	struct stream_wr r;

	if (s->qp->broken || !s->qp->credit || !stream_qp_slots(s->qp))
		return false;
	prepare(s, &r, NULL, 0, s->peer.mem, s->peer.rkey);
	with_imm(s, &r, imm);
	return !post(s, &r, 1, true, true);
}

/* Writes a control word of the peer's. A peer that sleeps, perhaps for want of
 * room, is woken. */
static bool post_word(struct stream *s, uint64_t value, size_t offset)
{
	struct stream_wr r;
	uint64_t word = value;

	if (!stream_qp_slots(s->qp))
		return false;
	prepare(s, &r, &word, sizeof(word), s->peer.mem + offset, s->peer.rkey);
	return !post_belled(s, &r, 1);
}

/* Writes a word of the hand-back. It is for the peer's control thread: the
 * peer's program may be in any call. */
static bool post_back(struct stream *s, uint64_t value, size_t offset)
{
	struct stream_wr r;

	if (!s->qp->credit || !stream_qp_slots(s->qp))
		return false;
	prepare(s, &r, &value, sizeof(value), s->peer.mem + offset,
		s->peer.rkey);
	with_imm(s, &r, STREAM_BACK);
	return !post(s, &r, 1, true, true);
}

/* The first WRITE into a ring: when it has ended, the device has found the way,
 * and later WRITEs are placed at once. */
static bool post_probe(struct stream *s)
{
	const uint64_t zero = 0;
	struct stream_wr r;

	if (!stream_qp_slots(s->qp))
		return false;
	prepare(s, &r, &zero, sizeof(zero), s->grow.next_mem,
		s->grow.next_rkey);
	if (post(s, &r, 1, false, true))
		return false;
	s->grow.probe = s->last;
	return true;
}

static uint64_t stop_word(const struct stream *s)
{
	return (s->in.bytes + 1) | (s->again ? STREAM_STOP_AGAIN : 0);
}

static bool owes_words(const struct stream *s)
{
	return s->owes_accept || s->owes_ack || s->owes_head || s->owes_bell ||
	       s->owes_stop || s->owes_moved || s->owes_grow || s->owes_grant ||
	       s->owes_probe;
}

/* Words of growing rings. */
static void pay_growth(struct stream *s)
{
	if (s->owes_grow)
		s->owes_grow = !post_imm(s, STREAM_GROW);
	if (s->owes_grant)
		s->owes_grant = !grow_post_answer(s);
	if (s->owes_probe)
		s->owes_probe = !post_probe(s);
}

static void pay_words(struct stream *s)
{
	if (s->owes_bell && post_imm(s, STREAM_BELL)) {
		s->owes_bell = false;
		s->bells++;
	}
	if (s->owes_accept)
		s->owes_accept =
			!post_word(s, 1, offsetof(struct stream_ctl, accept));
	if (s->owes_ack && !s->owes_bell && post_imm(s, STREAM_ACK)) {
		s->owes_ack = false;
		s->peer_asleep = true;
	}
	if (s->owes_head &&
	    post_word(s, s->in.pos, offsetof(struct stream_ctl, head))) {
		s->owes_head = false;
		s->in.head_sent = s->in.pos;
	}
	if (s->owes_stop)
		s->owes_stop = !post_back(s, stop_word(s),
					  offsetof(struct stream_ctl, stop));
	if (s->owes_moved && !s->owes_stop)
		s->owes_moved = !post_back(s, s->out.bytes + 1,
					   offsetof(struct stream_ctl, moved));
	pay_growth(s);
}

/* Posts what can be posted; the rest waits in the QP's list. */
void stream_pay(struct stream *s)
{
	if (!s->connected)
		return;
	if (s->broken || s->peer_closed || s->left || s->closed) {
		/* That the hand-back cannot go on is an error. */
		if ((s->owes_stop || s->owes_moved) && !s->left)
			cannot(s);
		s->owes_accept = s->owes_ack = s->owes_head = false;
		s->owes_bell = s->owes_moved = false;
		s->owes_stop = s->refused && !s->broken && !s->peer_closed &&
			       s->owes_stop;
		s->owes_grow = s->owes_grant = s->owes_probe = false;
	}
	if (owes_words(s) && !s->qp->broken)
		pay_words(s);
	if (s->owes_close && !s->owes_stop && post_imm(s, STREAM_CLOSE)) {
		s->owes_close = false;
		s->closed = true;
	}
	if (owes_words(s) || s->owes_close)
		owe(s);
}

/* --- writing ------------------------------------------------------------- */

void stream_accept(struct stream *s)
{
	s->owes_accept = true;
	stream_pay(s);
}

static uint64_t ctl_word(const uint64_t *word)
{
	/* Acquire: what this end does to the ring next comes after this
	 * load. */
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

bool stream_accepted(const struct stream *s)
{
	return ctl_word(&s->ctl->accept) == 1;
}

int stream_take_head(struct stream *s)
{
	if (cannot(s))
		return s->broken;
	if (stream_out_head(&s->out, ctl_word(&s->ctl->head)))
		return stream_break(s, -EPROTO);
	return s->broken;
}

/* Builds r for a record with its payload already in the mirror. */
static void record(struct stream *s, struct stream_wr *r,
		   const struct stream_place *p, enum stream_type type,
		   uint32_t len)
{
	uint8_t *at = s->mirror + p->off;
	uint32_t all = stream_out_seal(&s->out, p, type, at, len);

	prepare(s, r, at, all, s->out_mem + p->off, s->out_rkey);
	s->records++;
}

static int post_record(struct stream *s, enum stream_type type,
		       const void *payload, uint32_t len)
{
	struct stream_place p;
	struct stream_wr r;

	if (stream_take_head(s))
		return s->broken;
	if (!slots(s) || !stream_out_place(&s->out, type, &p))
		return -EAGAIN;
	if (len)
		memcpy(s->mirror + p.off + STREAM_HEAD_LEN, payload, len);
	record(s, &r, &p, type, len);
	return post_belled(s, &r, 1);
}

int stream_switch(struct stream *s, uint64_t offset)
{
	return post_record(s, STREAM_SWITCH, &offset, sizeof(offset));
}

int stream_end(struct stream *s)
{
	int rc;

	if (s->ended)
		return 0;
	rc = post_record(s, STREAM_END, NULL, 0);
	s->ended = rc == 0;
	s->end_at = s->last;
	return rc;
}

int stream_post_ring(struct stream *s, uint32_t size)
{
	uint64_t payload = size;
	struct stream_place p;
	struct stream_wr r;

	if (!slots(s) || !stream_out_place(&s->out, STREAM_RING, &p))
		return -EAGAIN;
	memcpy(s->mirror + p.off + STREAM_HEAD_LEN, &payload, sizeof(payload));
	record(s, &r, &p, STREAM_RING, sizeof(payload));
	/* No bell: a record that has bytes rings. */
	return post(s, &r, 1, false, true);
}

struct cursor {
	const struct iovec *iov;
	int n;
	size_t at; /* in the first piece */
	size_t (*reads)(const void *p, size_t len);
	bool bad; /* it ends before memory that cannot be read */
};

static uint32_t gather(struct cursor *c, uint8_t *to, uint32_t max)
{
	uint32_t got = 0;

	while (c->n && got < max) {
		const uint8_t *from = (uint8_t *)c->iov->iov_base + c->at;
		size_t len = c->iov->iov_len - c->at, reads;

		if (len > max - got)
			len = max - got;
		reads = c->reads ? c->reads(from, len) : len;
		if (reads)
			memcpy(to + got, from, reads);
		got += (uint32_t)reads;
		if (reads < len) {
			c->bad = true;
			c->n = 0;
			break;
		}
		c->at += len;
		if (c->at == c->iov->iov_len) {
			c->iov++;
			c->n--;
			c->at = 0;
		}
	}
	return got;
}

ssize_t stream_write(struct stream *s, const struct iovec *iov, int n)
{
	struct cursor c = {.iov = iov, .n = n, .reads = s->host->reads};
	struct stream_wr r[BATCH];
	struct stream_place p;
	uint32_t bytes = 0;
	ssize_t all = 0;
	int count = 0;

	if (s->ended)
		return -EPIPE;
	if (stream_take_head(s))
		return s->broken;
	if (s->back.on)
		return -EAGAIN;
	for (;;) {
		uint32_t len = 0;

		if (slots(s) > (uint32_t)count &&
		    stream_out_place(&s->out, STREAM_DATA, &p))
			len = gather(&c, s->mirror + p.off + STREAM_HEAD_LEN,
				     p.room);
		/* As TCP has it: no part of a segment. */
		if (c.bad)
			len = 0;
		if (len)
			record(s, &r[count++], &p, STREAM_DATA, len);
		bytes += len;
		if (count == BATCH || bytes >= BATCH_BYTES || (!len && count)) {
			if (post_belled(s, r, count))
				return all ? all : s->broken;
			count = 0;
			bytes = 0;
		}
		if (!len && !(c.n && slots(s) && grow_full(s)))
			break;
		all += len;
	}
	if (s->broken)
		return s->broken;
	return all ? all : c.bad ? -EFAULT : -EAGAIN;
}

int stream_reserve(struct stream *s, uint8_t **buf, uint32_t *room)
{
	struct stream_place *p = &s->reserved;

	if (s->ended)
		return -EPIPE;
	if (stream_take_head(s))
		return s->broken;
	if (s->back.on || !slots(s) ||
	    (!stream_out_place(&s->out, STREAM_DATA, p) &&
	     !(grow_full(s) && stream_out_place(&s->out, STREAM_DATA, p))))
		return -EAGAIN;
	*buf = s->mirror + p->off + STREAM_HEAD_LEN;
	*room = p->room;
	return 0;
}

int stream_commit(struct stream *s, uint32_t len)
{
	struct stream_place p = s->reserved;
	struct stream_wr r;

	skein_assert(len <= p.room);
	s->reserved.room = 0;
	if (!len || cannot(s))
		return s->broken;
	record(s, &r, &p, STREAM_DATA, len);
	return post_belled(s, &r, 1);
}

bool stream_writable(struct stream *s)
{
	/* The write reports the error. */
	if (s->broken || s->ended || s->peer_closed || stream_take_head(s))
		return true;
	if (!slots(s))
		return false;
	if (stream_out_free(&s->out) >= WRITABLE || grow_ready(s))
		return true;
	/* No write may come before there is room. */
	grow_wish(s);
	return false;
}

/* --- reading ------------------------------------------------------------- */

int stream_peek(struct stream *s, enum stream_type *type, const uint8_t **data,
		uint32_t *len)
{
	int rc = stream_in_peek(&s->in, type, data, len);

	if (rc < 0)
		return stream_break(s, rc);
	/* What arrived before the stream broke is read first. */
	return rc ? rc : s->broken;
}

void stream_consume(struct stream *s, uint32_t n)
{
	stream_in_consume(&s->in, n);
	if (!stream_in_owes(&s->in))
		return;
	if (s->in.turned)
		grow_turned(s);
	s->owes_head = true;
	stream_pay(s);
}

/* --- the way back -------------------------------------------------------- */

void stream_hand_back(struct stream *s, bool again)
{
	if (s->back.on) {
		s->again &= again;
		return;
	}
	s->back.on = true;
	s->again = again;
	s->owes_head = false; /* the stop tells the Head too */
	s->owes_stop = true;
	stream_pay(s);
}

bool stream_peer_stopped(const struct stream *s)
{
	return ctl_word(&s->ctl->stop) != 0;
}

bool stream_peer_again(const struct stream *s)
{
	return ctl_word(&s->ctl->stop) & STREAM_STOP_AGAIN;
}

int stream_back_poll(struct stream *s)
{
	uint64_t stop = ctl_word(&s->ctl->stop);
	uint64_t moved = ctl_word(&s->ctl->moved);

	if (stop && !s->back.peer_stopped) {
		if (stream_out_head(&s->out, ctl_word(&s->ctl->head)) ||
		    stream_back_stop(&s->back, &s->out, s->mirror,
				     (stop & ~STREAM_STOP_AGAIN) - 1))
			return stream_break(s, -EPROTO);
	}
	if (moved && !s->back.peer_moved && !s->back.rescued &&
	    stream_back_peer_moved(&s->back, &s->in, moved - 1))
		return stream_break(s, -EPROTO);
	stream_pay(s);
	return s->broken;
}

void stream_back_nudge(struct stream *s)
{
	uint64_t value = stop_word(s);
	struct stream_wr r;

	reap(s);
	if (s->owes_stop || s->back.peer_stopped || s->back.rescued ||
	    cannot(s) || !stream_qp_slots(s->qp))
		return;
	prepare(s, &r, &value, sizeof(value),
		s->peer.mem + offsetof(struct stream_ctl, stop), s->peer.rkey);
	post(s, &r, 1, false, true);
}

int stream_back_next(struct stream *s, const uint8_t **data, uint32_t *len)
{
	int rc;

	if (!s->back.on || !s->back.peer_stopped)
		return 0;
	rc = stream_back_peek(&s->back, &s->out, s->mirror, data, len);
	return rc < 0 ? stream_break(s, rc) : rc;
}

void stream_back_moved(struct stream *s)
{
	skein_assert(s->back.peer_stopped && !s->back.left);
	s->back.moved = s->owes_moved = true;
	stream_pay(s);
}

bool stream_back_done(const struct stream *s)
{
	return stream_back_over(&s->back) && !s->owes_stop && !s->owes_moved;
}

/* --- sleeping ------------------------------------------------------------ */

static bool take_imm(struct stream *s, enum stream_imm op)
{
	switch (op) {
	case STREAM_ASK:
	case STREAM_EACH:
		s->peer_each = op == STREAM_EACH;
		s->owes_ack = true;
		return false;
	case STREAM_ACK:
		if (s->sleep != STREAM_ASKED)
			break;
		s->sleep = STREAM_ASLEEP;
		return true;
	case STREAM_BELL:
		if (s->sleep != STREAM_ASLEEP)
			break;
		s->sleep = s->each ? STREAM_ASLEEP : STREAM_POLLED;
		return true;
	case STREAM_BACK:
		return true;
	case STREAM_CLOSE:
		if (s->peer_closed)
			break;
		s->peer_closed = true;
		s->owes_close = !s->closed;
		return true;
	case STREAM_GROW:
		grow_ask(s);
		return s->broken;
	case STREAM_CREDIT: /* the QP's */
		break;
	}
	stream_break(s, -EPROTO);
	return true;
}

void stream_imm(struct stream *s, enum stream_imm op)
{
	bool wake = true;

	/* Before OPENED the peer has nothing to say. */
	if (s->connected)
		wake = take_imm(s, op);
	else
		stream_break(s, -EPROTO);
	if (wake && !s->left)
		stream_qp_wake(s->qp, s);
	stream_pay(s);
}

void stream_opened(struct stream *s, const struct stream_msg *m)
{
	if (!s->asked) {
		stream_break(s, -EPROTO);
		return;
	}
	s->asked = false;
	s->answer = (int)m->answer;
	if (m->answer == STREAM_TAKEN && stream_connect(s, &m->addr))
		stream_break(s, -EPROTO);
	if (s->left)
		stream_leave(s);
	else
		stream_qp_wake(s->qp, s);
}

bool stream_ask(struct stream *s, bool each)
{
	if (s->broken || s->peer_closed)
		return true;
	/* Of a dead process the caller hears elsewhere. */
	if (s->qp->broken && !stream_peer_dead(s))
		stream_break(s, s->qp->broken);
	if (s->qp->broken)
		return true;
	/* Of a send slot that comes free nobody is told. */
	if (s->sleep != STREAM_POLLED)
		return stream_qp_slots(s->qp);
	if (!post_imm(s, each ? STREAM_EACH : STREAM_ASK))
		return s->broken;
	s->each = each;
	s->sleep = STREAM_ASKED;
	return true;
}

/* --- the end ------------------------------------------------------------- */

void stream_leave(struct stream *s)
{
	s->left = true;
	s->user = NULL;
	if (!list_linked(&s->left_link))
		list_add_tail(&s->qp->left, &s->left_link);
	list_del(&s->woken);
	s->owes_close = s->connected && !s->closed;
	stream_pay(s);
}

void stream_refuse(struct stream *s)
{
	if (!s->back.on)
		s->refused = s->owes_stop = true;
	stream_leave(s);
}

bool stream_is_over(const struct stream *s)
{
	const struct stream_qp *q = s->qp;

	if (!s->left)
		return false;
	if (q->broken)
		return true;
	if (s->asked || (int32_t)(q->done - s->last) < 0)
		return false;
	return !s->connected || (s->closed && s->peer_closed);
}

bool stream_end_there(struct stream *s)
{
	reap(s);
	return s->ended && (int32_t)(s->qp->done - s->end_at) >= 0;
}

bool stream_drained(struct stream *s)
{
	reap(s);
	return s->broken || (int32_t)(s->qp->done - s->last) >= 0;
}

bool stream_flush(struct stream *s)
{
	struct stream_wr r;

	if (stream_drained(s) || (int32_t)(s->qp->signalled - s->last) >= 0)
		return true;
	if (!stream_qp_slots(s->qp))
		return false;
	/* A signalled request of no bytes: its completion ends all requests
	 * before it. */
	prepare(s, &r, NULL, 0, s->peer.mem, s->peer.rkey);
	post(s, &r, 1, false, true);
	return true;
}

int stream_drain(struct stream *s, uint64_t timeout_ns)
{
	struct skein_env *env = s->host->env;
	uint64_t end = env_deadline(env_now_ns(env), timeout_ns);

	while (!stream_flush(s) && env_now_ns(env) < end)
		env_yield(env);
	while (!stream_drained(s)) {
		if (env_now_ns(env) >= end)
			return -ETIMEDOUT;
		env_yield(env);
	}
	return 0;
}
