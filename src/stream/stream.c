/* SPDX-License-Identifier: MIT */
/*
 * stream.c - a stream on its QP: rings and their WRITEs, Heads given back, the
 * switch to sleep and back.
 *
 * The mirror holds each record, at the offset that it has in the reader's ring,
 * until the reader has taken it. So a record's bytes are not written again
 * while the device may still read them. Receives are posted for immediates
 * only: of each direction's ask, answer and bell at most two are under way.
 *
 * Thread rule: one thread at a time, by the caller's lock.
 */
#include "stream/stream.h"

#include "base/assert.h"
#include "base/fence.h"
#include "env/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define SEND_SLOTS 64u
#define SIGNAL_EVERY 16u
#define RECVS 8u
#define BATCH 4
#define WRITABLE 1024u /* bytes of ring free: worth a wake-up */
#define INLINE_MAX 256u
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* --- up and down --------------------------------------------------------- */

static int make_memory(struct stream *s)
{
	struct stream_host *h = s->host;
	uint32_t size = h->ring_size;
	uint64_t off;
	uint8_t *mem;
	int fd, rc;

	rc = stream_host_get(h, &s->chunk, &s->slot, &mem, &fd, &off);
	if (rc)
		return rc;
	memset(mem, 0, 4096);
	/* The control words are just before the ring. */
	s->ctl = (void *)(mem + 4096 - sizeof(*s->ctl));
	s->ring = mem + 4096;
	s->mirror = s->ring + size;
	s->mirror_size = size;
	rc = h->dev->ops->reg_mr(h->dev, h->pd, s->ctl, sizeof(*s->ctl) + size,
				 ACCESS, fd, off + 4096 - sizeof(*s->ctl),
				 &s->ring_mr);
	if (rc)
		goto err_slot;
	rc = h->dev->ops->reg_mr(h->dev, h->pd, s->mirror, size,
				 IBV_ACCESS_LOCAL_WRITE, fd, off + 4096 + size,
				 &s->mirror_mr);
	if (rc)
		goto err_ring;
	return 0;

err_ring:
	h->dev->ops->dereg_mr(h->dev, s->ring_mr);
err_slot:
	stream_host_put(h, s->chunk, s->slot);
	return rc;
}

static void free_memory(struct stream *s)
{
	struct stream_host *h = s->host;

	h->dev->ops->dereg_mr(h->dev, s->mirror_mr);
	h->dev->ops->dereg_mr(h->dev, s->ring_mr);
	stream_host_put(h, s->chunk, s->slot);
}

static int post_recv(struct stream *s)
{
	struct ibv_recv_wr wr = {0}, *bad;

	return dev_post_recv(s->stats, s->qp, &wr, &bad);
}

static int make_qp(struct stream *s, struct ibv_comp_channel *channel)
{
	struct stream_host *h = s->host;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = SEND_SLOTS,
			.max_recv_wr = RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_MAX < h->dev->caps.inline_max
						   ? INLINE_MAX
						   : h->dev->caps.inline_max},
	};
	uint32_t i;
	int rc;

	rc = h->dev->ops->create_cq(h->dev, SEND_SLOTS + 1, s, NULL, &s->scq);
	if (rc)
		return rc;
	rc = h->dev->ops->create_cq(h->dev, RECVS + 1, s, channel, &s->rcq);
	if (rc)
		goto err_scq;
	attr.send_cq = s->scq;
	attr.recv_cq = s->rcq;
	rc = h->dev->ops->create_qp(h->dev, h->pd, &attr, DEV_QP_SERIAL,
				    &s->qp);
	if (rc)
		goto err_rcq;
	rc = dev_qp_init(h->dev, s->qp, IBV_ACCESS_REMOTE_WRITE);
	for (i = 0; !rc && i < RECVS; i++)
		rc = post_recv(s);
	if (!rc)
		rc = dev_req_notify_cq(s->rcq, 0);
	if (rc)
		goto err_qp;
	return 0;

err_qp:
	h->dev->ops->destroy_qp(h->dev, s->qp);
err_rcq:
	h->dev->ops->destroy_cq(h->dev, s->rcq);
err_scq:
	h->dev->ops->destroy_cq(h->dev, s->scq);
	return rc;
}

int stream_new(struct stream_host *h, struct stream **stream)
{
	return stream_new_on(h, h->channel, stream);
}

int stream_new_on(struct stream_host *h, struct ibv_comp_channel *channel,
		  struct stream **stream)
{
	struct stream *s = env_alloc_aligned(h->env, 64, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->host = h;
	s->stats = h->lent ? &s->own_stats : &h->stats;
	env_random(h->env, &s->secret, sizeof(s->secret));
	env_random(h->env, &s->psn, sizeof(s->psn));
	s->psn &= 0xffffffu;
	rc = make_memory(s);
	if (rc)
		goto err_free;
	rc = make_qp(s, channel);
	if (rc)
		goto err_memory;
	stream_in_init(&s->in, s->ring, s->secret, h->ring_size,
		       !h->dev->caps.ordered_write);
	*stream = s;
	return 0;

err_memory:
	free_memory(s);
err_free:
	env_free(h->env, s);
	return rc;
}

void stream_free(struct stream *s)
{
	struct stream_host *h = s->host;

	h->dev->ops->destroy_qp(h->dev, s->qp);
	h->dev->ops->destroy_cq(h->dev, s->rcq);
	h->dev->ops->destroy_cq(h->dev, s->scq);
	free_memory(s);
	env_free(h->env, s);
}

void stream_addr(struct stream *s, struct stream_addr *addr)
{
	struct stream_host *h = s->host;

	memset(addr, 0, sizeof(*addr));
	dev_qp_addr(h->dev, s->qp, s->psn, &addr->qp);
	addr->secret = s->secret;
	addr->mem = (uintptr_t)s->ctl;
	addr->rkey = s->ring_mr->rkey;
	addr->ring_size = h->ring_size;
	addr->checksum = !h->dev->caps.ordered_write;
}

int stream_connect(struct stream *s, const struct stream_addr *peer)
{
	struct dev *dev = s->host->dev;
	int rc;

	/* The mirror has the size of this end's ring, so a larger ring of the
	 * peer's would not fit. Both ends give their size, and both rings get
	 * the smaller one. */
	if (peer->ring_size != s->host->ring_size || peer->mem & 7 ||
	    peer->mem >
		    UINT64_MAX - sizeof(struct stream_ctl) - peer->ring_size)
		return -EINVAL;
	rc = dev_qp_rtr(dev, s->qp, &peer->qp, NULL);
	if (!rc)
		rc = dev_qp_rts(dev, s->qp, s->psn, &peer->qp, NULL);
	if (rc)
		return rc;
	s->peer = *peer;
	stream_out_init(&s->out, peer->secret, peer->ring_size, peer->checksum);
	return 0;
}

/* --- posting ------------------------------------------------------------- */

static int break_it(struct stream *s, int rc)
{
	if (!s->broken)
		s->broken = rc;
	return s->broken;
}

/* Takes send completions in: only they free slots. */
static void reap(struct stream *s)
{
	struct ibv_wc wc[4];
	int i, n;

	do {
		n = dev_poll_cq(s->stats, s->scq, 4, wc);
		for (i = 0; i < n; i++) {
			uint32_t upto = (uint32_t)wc[i].wr_id;

			if (wc[i].status != IBV_WC_SUCCESS)
				break_it(s, -ECONNRESET);
			else if (s->posted - upto <= s->posted - s->done)
				s->done = upto;
		}
	} while (n == 4);
	if (n < 0)
		break_it(s, -EIO);
}

static uint32_t slots(struct stream *s)
{
	if (SEND_SLOTS - (s->posted - s->done) < SEND_SLOTS / 2)
		reap(s);
	return SEND_SLOTS - (s->posted - s->done);
}

struct stream_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

static void prepare(struct stream *s, struct stream_wr *r, const void *from,
		    uint32_t len, uint64_t to)
{
	memset(r, 0, sizeof(*r));
	r->sge.addr = (uintptr_t)from;
	r->sge.length = len;
	r->sge.lkey = s->mirror_mr->lkey;
	r->wr.sg_list = &r->sge;
	r->wr.num_sge = len ? 1 : 0;
	r->wr.opcode = IBV_WR_RDMA_WRITE;
	r->wr.wr.rdma.remote_addr = to;
	r->wr.wr.rdma.rkey = s->peer.rkey;
	if (len && len <= INLINE_MAX && len <= s->host->dev->caps.inline_max)
		r->wr.send_flags = IBV_SEND_INLINE;
}

static void with_imm(struct stream_wr *r, enum stream_imm imm)
{
	r->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	r->wr.imm_data = htonl(STREAM_IMM_KIND << 28 | (uint32_t)imm);
}

/* Posts a list of requests; the caller has checked that there are slots. */
static int post(struct stream *s, struct stream_wr *r, int n, bool signal)
{
	struct ibv_send_wr *bad;
	int i, rc;

	for (i = 0; i < n; i++) {
		r[i].wr.next = i + 1 < n ? &r[i + 1].wr : NULL;
		r[i].wr.wr_id = ++s->posted;
		if (s->posted % SIGNAL_EVERY == 0 || (signal && i + 1 == n))
			r[i].wr.send_flags |= IBV_SEND_SIGNALED;
	}
	rc = dev_post_send(s->stats, s->qp, &r[0].wr, &bad);
	return rc ? break_it(s, -ECONNRESET) : 0;
}

/* The same; the last one rings a bell when the peer sleeps. */
static int post_belled(struct stream *s, struct stream_wr *r, int n)
{
	if (s->peer_asleep) {
		with_imm(&r[n - 1], STREAM_BELL);
		s->peer_asleep = false;
		s->bells++;
	}
	return post(s, r, n, false);
}

static bool post_imm(struct stream *s, enum stream_imm imm)
{
	struct stream_wr r;

	if (s->broken || !slots(s))
		return false;
	prepare(s, &r, NULL, 0, s->peer.mem);
	with_imm(&r, imm);
	return !post(s, &r, 1, true);
}

/* Writes a control word of the peer's. A peer that sleeps, perhaps for want of
 * room, is woken. */
static bool post_word(struct stream *s, uint64_t value, size_t offset)
{
	struct stream_wr r;
	uint64_t word = value;

	if (s->broken || !slots(s))
		return false;
	prepare(s, &r, &word, sizeof(word), s->peer.mem + offset);
	return !post_belled(s, &r, 1);
}

/* Writes a word of the hand-back. It is for the peer's control thread: the
 * peer's program may be in any call. */
static bool post_back(struct stream *s, uint64_t value, size_t offset)
{
	struct stream_wr r;

	if (s->broken || !slots(s))
		return false;
	prepare(s, &r, &value, sizeof(value), s->peer.mem + offset);
	with_imm(&r, STREAM_BACK);
	return !post(s, &r, 1, true);
}

static uint64_t stop_word(const struct stream *s)
{
	return (s->in.bytes + 1) | (s->again ? STREAM_STOP_AGAIN : 0);
}

static void pay(struct stream *s)
{
	if (s->owes_accept)
		s->owes_accept =
			!post_word(s, 1, offsetof(struct stream_ctl, accept));
	if (s->owes_ack && post_imm(s, STREAM_ACK)) {
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
}

/* --- writing ------------------------------------------------------------- */

void stream_accept(struct stream *s)
{
	s->owes_accept = true;
	pay(s);
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

static int take_head(struct stream *s)
{
	if (stream_out_head(&s->out, ctl_word(&s->ctl->head)))
		return break_it(s, -EPROTO);
	return s->broken;
}

/* Builds r for a record with its payload already in the mirror. */
static void record(struct stream *s, struct stream_wr *r,
		   const struct stream_place *p, enum stream_type type,
		   uint32_t len)
{
	uint8_t *at = s->mirror + p->off;
	uint32_t all = stream_out_seal(&s->out, p, type, at, len);

	prepare(s, r, at, all,
		s->peer.mem + sizeof(struct stream_ctl) + p->off);
	s->records++;
}

static int post_record(struct stream *s, enum stream_type type,
		       const void *payload, uint32_t len)
{
	struct stream_place p;
	struct stream_wr r;

	if (take_head(s))
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
	s->end_at = s->posted;
	return rc;
}

struct cursor {
	const struct iovec *iov;
	int n;
	size_t at; /* in the first piece */
};

static uint32_t gather(struct cursor *c, uint8_t *to, uint32_t max)
{
	uint32_t got = 0;

	while (c->n && got < max) {
		size_t len = c->iov->iov_len - c->at;

		if (len > max - got)
			len = max - got;
		if (len)
			memcpy(to + got, (uint8_t *)c->iov->iov_base + c->at,
			       len);
		got += (uint32_t)len;
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
	struct cursor c = {iov, n, 0};
	struct stream_wr r[BATCH];
	struct stream_place p;
	ssize_t all = 0;
	int count = 0;

	if (s->ended)
		return -EPIPE;
	if (take_head(s))
		return s->broken;
	if (s->back.on)
		return -EAGAIN;
	for (;;) {
		uint32_t len = 0;

		if (slots(s) > (uint32_t)count &&
		    stream_out_place(&s->out, STREAM_DATA, &p))
			len = gather(&c, s->mirror + p.off + STREAM_HEAD_LEN,
				     p.room);
		if (len)
			record(s, &r[count++], &p, STREAM_DATA, len);
		if (count == BATCH || (!len && count)) {
			if (post_belled(s, r, count))
				return all ? all : s->broken;
			count = 0;
		}
		if (!len)
			break;
		all += len;
	}
	if (s->broken)
		return s->broken;
	return all ? all : -EAGAIN;
}

int stream_reserve(struct stream *s, uint8_t **buf, uint32_t *room)
{
	struct stream_place *p = &s->reserved;

	if (s->ended)
		return -EPIPE;
	if (take_head(s))
		return s->broken;
	if (s->back.on || !slots(s) ||
	    !stream_out_place(&s->out, STREAM_DATA, p))
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
	if (!len || s->broken)
		return s->broken;
	record(s, &r, &p, STREAM_DATA, len);
	return post_belled(s, &r, 1);
}

bool stream_writable(struct stream *s)
{
	if (s->broken || s->ended)
		return true; /* the write reports the error */
	if (take_head(s))
		return true;
	return slots(s) && stream_out_free(&s->out) >= WRITABLE;
}

/* --- reading ------------------------------------------------------------- */

int stream_peek(struct stream *s, enum stream_type *type, const uint8_t **data,
		uint32_t *len)
{
	int rc = stream_in_peek(&s->in, type, data, len);

	if (rc < 0)
		return break_it(s, rc);
	/* What arrived before the stream broke is read first. */
	return rc ? rc : s->broken;
}

void stream_consume(struct stream *s, uint32_t n)
{
	stream_in_consume(&s->in, n);
	if (!stream_in_owes(&s->in))
		return;
	s->owes_head = true;
	pay(s);
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
	pay(s);
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
			return break_it(s, -EPROTO);
	}
	if (moved && !s->back.peer_moved && !s->back.rescued &&
	    stream_back_peer_moved(&s->back, &s->in, moved - 1))
		return break_it(s, -EPROTO);
	pay(s);
	return s->broken;
}

void stream_back_nudge(struct stream *s)
{
	uint64_t value = stop_word(s);
	struct stream_wr r;

	reap(s);
	if (s->owes_stop || s->back.peer_stopped || s->back.rescued ||
	    s->broken || !slots(s))
		return;
	prepare(s, &r, &value, sizeof(value),
		s->peer.mem + offsetof(struct stream_ctl, stop));
	post(s, &r, 1, true);
}

int stream_back_next(struct stream *s, const uint8_t **data, uint32_t *len)
{
	int rc;

	if (!s->back.on || !s->back.peer_stopped)
		return 0;
	rc = stream_back_peek(&s->back, &s->out, s->mirror, data, len);
	return rc < 0 ? break_it(s, rc) : rc;
}

void stream_back_moved(struct stream *s)
{
	skein_assert(s->back.peer_stopped && !s->back.left);
	s->back.moved = s->owes_moved = true;
	pay(s);
}

bool stream_back_done(const struct stream *s)
{
	return stream_back_over(&s->back) && !s->owes_stop && !s->owes_moved;
}

/* --- sleeping ------------------------------------------------------------ */

static bool take_imm(struct stream *s, uint32_t imm)
{
	switch (imm ^ STREAM_IMM_KIND << 28) {
	case STREAM_ASK:
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
		s->sleep = STREAM_POLLED;
		return true;
	case STREAM_BACK:
		return true;
	}
	break_it(s, -EPROTO);
	return true;
}

bool stream_poll(struct stream *s)
{
	struct ibv_wc wc;
	bool wake = false;

	reap(s);
	while (dev_poll_cq(s->stats, s->rcq, 1, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			break_it(s, -ECONNRESET);
			wake = true;
			continue;
		}
		if (post_recv(s))
			break_it(s, -ECONNRESET);
		wake |= take_imm(s, ntohl(wc.imm_data));
	}
	pay(s);
	return wake || s->broken;
}

bool stream_ask(struct stream *s)
{
	if (s->broken || s->sleep != STREAM_POLLED)
		return true;
	if (!post_imm(s, STREAM_ASK))
		return s->broken;
	s->sleep = STREAM_ASKED;
	return true;
}

bool stream_end_there(struct stream *s)
{
	reap(s);
	return s->ended && (int32_t)(s->done - s->end_at) >= 0;
}

bool stream_drained(struct stream *s)
{
	reap(s);
	return s->broken || s->posted == s->done;
}

bool stream_flush(struct stream *s)
{
	struct stream_wr r;

	reap(s);
	if (s->broken || s->posted == s->done || s->flushed == s->posted)
		return true;
	if (!slots(s))
		return false;
	/* A signalled request of no bytes: its completion ends all requests
	 * before it. */
	prepare(s, &r, NULL, 0, s->peer.mem);
	if (!post(s, &r, 1, true))
		s->flushed = s->posted;
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

bool stream_peer_dead(struct stream *s)
{
	struct dev *dev = s->host->dev;

	return dev->ops->probe && dev->ops->probe(dev, s->qp) == -ENOTCONN;
}
