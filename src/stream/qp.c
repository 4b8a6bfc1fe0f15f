/* SPDX-License-Identifier: MIT */
/*
 * qp.c - the QP that streams share: see qp.h.
 *
 * Receives: STREAM_RECVS for what the peer counts, and RECVS_OWN for its
 * CREDITs, which it does not count. Each CREDIT gives half of STREAM_RECVS
 * back, so at most two are under way.
 */
#include "stream/qp.h"

#include "base/assert.h"
#include "env/env.h"
#include "stream/section.h"
#include "stream/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define SIGNAL_EVERY 16u
#define RECVS_OWN 4u
#define RECVS_ALL (STREAM_RECVS + RECVS_OWN)
#define INLINE_MAX 256u
#define TABLE_MIN 8u
#define MSGS_LEN ((size_t)RECVS_ALL * STREAM_MSG_MAX)

/* A message that waits for a receive at the peer. */
struct waiting {
	struct list_node link;
	uint32_t len;
	uint8_t bytes[STREAM_MSG_MAX];
};

/* --- up and down ---------------------------------------------------------- */

static int post_recv(struct stream_qp *q, uint32_t i)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(q->msgs + i * STREAM_MSG_MAX),
		.length = STREAM_MSG_MAX,
		.lkey = q->msgs_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return dev_post_recv(q->stats, q->qp, &wr, &bad);
}

static int make_qp(struct stream_qp *q, struct ibv_comp_channel *channel)
{
	struct dev *dev = q->host->dev;
	uint32_t inline_max = dev->caps.inline_max, i;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = STREAM_SEND_SLOTS,
			.max_recv_wr = RECVS_ALL,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_MAX < inline_max
						   ? INLINE_MAX
						   : inline_max},
	};
	int rc;

	rc = dev->ops->create_cq(dev, STREAM_SEND_SLOTS + 1, q, NULL, &q->scq);
	if (rc)
		return rc;
	rc = dev->ops->create_cq(dev, RECVS_ALL + 1, q, channel, &q->rcq);
	if (rc)
		goto err_scq;
	attr.send_cq = q->scq;
	attr.recv_cq = q->rcq;
	rc = dev->ops->create_qp(dev, q->host->pd, &attr, DEV_QP_SERIAL,
				 &q->qp);
	if (rc)
		goto err_rcq;
	rc = dev_qp_init(dev, q->qp, IBV_ACCESS_REMOTE_WRITE);
	for (i = 0; !rc && i < RECVS_ALL; i++)
		rc = post_recv(q, i);
	if (!rc)
		rc = dev_req_notify_cq(q->rcq, 0);
	if (rc)
		goto err_qp;
	return 0;

err_qp:
	dev->ops->destroy_qp(dev, q->qp);
err_rcq:
	dev->ops->destroy_cq(dev, q->rcq);
err_scq:
	dev->ops->destroy_cq(dev, q->scq);
	return rc;
}

int stream_qp_new(struct stream_host *h, struct ibv_comp_channel *channel,
		  struct stream_qp **out)
{
	struct stream_qp *q;
	void *msgs;
	int rc;

	if (h->dev->caps.inline_max < STREAM_MSG_MAX)
		return -EOPNOTSUPP;
	q = env_alloc(h->env, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->host = h;
	q->stats = h->lent ? &q->own_stats : &h->stats;
	q->next = 1;
	list_init(&q->outbox);
	list_init(&q->owing);
	list_init(&q->woken);
	list_init(&q->left);
	list_init(&q->tending);
	list_init(&q->large);
	q->look_ns = UINT64_MAX;
	env_random(h->env, &q->psn, sizeof(q->psn));
	q->psn &= 0xffffffu;
	rc = env_mem_alloc(h->env, "skein-msgs", MSGS_LEN, &q->msgs_fd, &msgs);
	if (rc)
		goto err_free;
	q->msgs = msgs;
	rc = h->dev->ops->reg_mr(h->dev, h->pd, msgs, MSGS_LEN,
				 IBV_ACCESS_LOCAL_WRITE, q->msgs_fd, 0,
				 &q->msgs_mr);
	if (rc)
		goto err_mem;
	rc = make_qp(q, channel);
	if (rc)
		goto err_mr;
	*out = q;
	return 0;

err_mr:
	h->dev->ops->dereg_mr(h->dev, q->msgs_mr);
err_mem:
	env_mem_free(h->env, q->msgs_fd, msgs, MSGS_LEN);
err_free:
	env_free(h->env, q);
	return rc;
}

void stream_qp_free(struct stream_qp *q)
{
	struct stream_host *h = q->host;
	struct list_node *n;
	uint32_t i;

	h->dev->ops->destroy_qp(h->dev, q->qp);
	h->dev->ops->destroy_cq(h->dev, q->rcq);
	h->dev->ops->destroy_cq(h->dev, q->scq);
	h->dev->ops->dereg_mr(h->dev, q->msgs_mr);
	for (i = 0; i < q->table_len; i++)
		if (q->table[i])
			stream_free(q->table[i]);
	while ((n = list_pop_head(&q->outbox)))
		env_free(h->env, container_of(n, struct waiting, link));
	env_mem_free(h->env, q->msgs_fd, q->msgs, MSGS_LEN);
	env_free(h->env, q->table);
	env_free(h->env, q);
}

void stream_qp_addr(struct stream_qp *q, struct stream_qp_addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	dev_qp_addr(q->host->dev, q->qp, q->psn, &addr->qp);
	addr->recvs = STREAM_RECVS;
}

int stream_qp_connect(struct stream_qp *q, const struct stream_qp_addr *peer,
		      const struct dev_qp_opts *opts)
{
	struct dev *dev = q->host->dev;
	int rc;

	rc = dev_qp_rtr(dev, q->qp, &peer->qp, opts);
	if (!rc)
		rc = dev_qp_rts(dev, q->qp, q->psn, &peer->qp, opts);
	if (rc)
		return rc;
	q->credit = q->credit_max = peer->recvs;
	return 0;
}

bool stream_qp_dead(struct stream_qp *q)
{
	struct dev *dev = q->host->dev;

	return dev->ops->probe && dev->ops->probe(dev, q->qp) == -ENOTCONN;
}

/* --- numbers -------------------------------------------------------------- */

static int grow(struct stream_qp *q)
{
	uint32_t len = q->table_len ? 2 * q->table_len : TABLE_MIN;
	struct stream **table;

	if (q->table_len > STREAM_NUMBER_MAX)
		return -ENOMEM;
	table = env_alloc(q->host->env, len * sizeof(struct stream *));
	if (!table)
		return -ENOMEM;
	if (q->table)
		memcpy(table, q->table, q->table_len * sizeof(struct stream *));
	env_free(q->host->env, q->table);
	q->next = q->table_len ? q->table_len : 1;
	q->table = table;
	q->table_len = len;
	return 0;
}

/* Numbers go round, so that one is used again late. Half of them are free when
 * the table is searched. */
int stream_qp_add(struct stream_qp *q, struct stream *s)
{
	if (2 * (q->streams + 1) > q->table_len) {
		int rc = grow(q);

		if (rc)
			return rc;
	}
	while (!q->next || q->table[q->next])
		q->next = (q->next + 1) % q->table_len;
	s->number = q->next;
	q->table[q->next] = s;
	q->next = (q->next + 1) % q->table_len;
	q->streams++;
	return 0;
}

void stream_qp_del(struct stream_qp *q, struct stream *s)
{
	skein_assert(q->table[s->number] == s);
	q->table[s->number] = NULL;
	q->streams--;
	list_del(&s->owing);
	list_del(&s->woken);
	list_del(&s->left_link);
	list_del(&s->tending);
	list_del(&s->large);
}

static struct stream *find(struct stream_qp *q, uint32_t number)
{
	struct stream *s = NULL;

	if (number < q->table_len)
		s = q->table[number];
	if (!s)
		q->host->garbage++;
	return s;
}

/* --- posting -------------------------------------------------------------- */

void stream_qp_wake(struct stream_qp *q, struct stream *s)
{
	if (!list_linked(&s->woken))
		list_add_tail(&q->woken, &s->woken);
}

static void break_all(struct stream_qp *q, int rc)
{
	uint32_t i;

	if (q->broken)
		return;
	q->broken = rc;
	for (i = 0; i < q->table_len; i++)
		if (q->table[i])
			stream_qp_wake(q, q->table[i]);
}

void stream_qp_reap(struct stream_qp *q)
{
	struct ibv_wc wc[4];
	int i, n;

	do {
		n = dev_poll_cq(q->stats, q->scq, 4, wc);
		for (i = 0; i < n; i++) {
			uint32_t upto = (uint32_t)wc[i].wr_id;

			if (wc[i].status != IBV_WC_SUCCESS)
				break_all(q, -ECONNRESET);
			else if (q->posted - upto <= q->posted - q->done)
				q->done = upto;
		}
	} while (n == 4);
	if (n < 0)
		break_all(q, -EIO);
}

static uint32_t slots_now(const struct stream_qp *q)
{
	return STREAM_SEND_SLOTS - (q->posted - q->done);
}

uint32_t stream_qp_slots(struct stream_qp *q)
{
	if (slots_now(q) < STREAM_SEND_SLOTS / 2)
		stream_qp_reap(q);
	return slots_now(q);
}

int stream_qp_post(struct stream_qp *q, struct dev_stats *stats,
		   struct ibv_send_wr *wr, uint32_t n, uint32_t imms,
		   bool signal)
{
	struct ibv_send_wr *bad, *w;

	skein_assert(n <= slots_now(q) && imms <= q->credit);
	for (w = wr; w; w = w->next) {
		w->wr_id = ++q->posted;
		if (q->posted % SIGNAL_EVERY == 0 || (signal && !w->next))
			w->send_flags |= IBV_SEND_SIGNALED;
		if (w->send_flags & IBV_SEND_SIGNALED)
			q->signalled = q->posted;
	}
	q->credit -= imms;
	if (dev_post_send(stats, q->qp, wr, &bad))
		break_all(q, -ECONNRESET);
	return q->broken;
}

/* A SEND; its bytes are copied. */
static void post_send(struct stream_qp *q, const void *bytes, uint32_t len,
		      uint32_t imm)
{
	struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = len};
	struct ibv_send_wr wr = {
		.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.imm_data = htonl(imm),
		.send_flags = len ? IBV_SEND_INLINE : 0,
		.sg_list = &sge,
		.num_sge = len ? 1 : 0,
	};

	stream_qp_post(q, q->stats, &wr, 1, imm ? 0 : 1, true);
}

static void send_waiting(struct stream_qp *q)
{
	struct waiting *m;

	while (!q->broken && !list_empty(&q->outbox) && q->credit &&
	       stream_qp_slots(q)) {
		m = container_of(list_pop_head(&q->outbox), struct waiting,
				 link);
		post_send(q, m->bytes, m->len, 0);
		env_free(q->host->env, m);
	}
}

int stream_qp_send(struct stream_qp *q, const struct stream_msg *msg)
{
	struct waiting *m = env_alloc(q->host->env, sizeof(*m));
	struct bytes_out out;

	if (!m)
		return -ENOMEM;
	out = bytes_out(m->bytes, sizeof(m->bytes));
	stream_msg_put(msg, &out);
	skein_assert(!out.failed);
	m->len = (uint32_t)out.pos;
	list_add_tail(&q->outbox, &m->link);
	send_waiting(q);
	return 0;
}

bool stream_qp_try_send(struct stream_qp *q, const struct stream_msg *msg)
{
	uint8_t bytes[STREAM_MSG_MAX];
	struct bytes_out out = bytes_out(bytes, sizeof(bytes));

	/* Messages stay in order. */
	if (q->broken || !list_empty(&q->outbox) || !q->credit ||
	    !stream_qp_slots(q))
		return false;
	stream_msg_put(msg, &out);
	skein_assert(!out.failed);
	post_send(q, bytes, (uint32_t)out.pos, 0);
	return true;
}

static void give_credit(struct stream_qp *q)
{
	if (q->used < STREAM_RECVS / 2 || q->broken || !stream_qp_slots(q))
		return;
	post_send(q, NULL, 0, STREAM_IMM(STREAM_CREDIT, q->used));
	q->used = 0;
}

/* --- taking in ------------------------------------------------------------ */

static void take_credit(struct stream_qp *q, uint32_t n)
{
	if (n > q->credit_max - q->credit)
		q->host->garbage++;
	else
		q->credit += n;
}

static void take_imm(struct stream_qp *q, uint32_t imm)
{
	uint32_t number = imm & STREAM_NUMBER_MAX;
	enum stream_imm op = (enum stream_imm)(imm >> 24 & 15);
	struct stream *s;

	if (op == STREAM_CREDIT && imm >> 28 == STREAM_IMM_KIND) {
		take_credit(q, number);
		return;
	}
	q->used++;
	if (imm >> 28 != STREAM_IMM_KIND) {
		q->host->garbage++;
		return;
	}
	s = find(q, number);
	if (s)
		stream_imm(s, op);
}

static void take_msg(struct stream_qp *q, const uint8_t *bytes, uint32_t len)
{
	struct bytes_in in = bytes_in(bytes, len);
	struct stream_msg m;
	struct stream *s;

	q->used++;
	if (len > STREAM_MSG_MAX || stream_msg_get(&in, &m) ||
	    (m.type == STREAM_OPEN && !q->open)) {
		q->host->garbage++;
		return;
	}
	if (m.type == STREAM_OPEN) {
		q->open(q, &m);
		return;
	}
	s = find(q, m.number);
	if (s && m.type == STREAM_OPENED)
		stream_opened(s, &m);
	else if (s)
		grow_answer(s, &m);
}

static void take(struct stream_qp *q, const struct ibv_wc *wc)
{
	uint32_t i = (uint32_t)wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS) {
		break_all(q, -ECONNRESET);
		return;
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		take_imm(q, ntohl(wc->imm_data));
	else
		take_msg(q, q->msgs + i * STREAM_MSG_MAX, wc->byte_len);
	if (post_recv(q, i))
		break_all(q, -ECONNRESET);
}

static void pay_owing(struct stream_qp *q)
{
	struct list_node *n, *last = q->owing.prev;

	while (!q->broken && (n = list_pop_head(&q->owing))) {
		stream_pay(container_of(n, struct stream, owing));
		if (n == last)
			break;
	}
}

bool stream_qp_poll(struct stream_qp *q)
{
	struct ibv_wc wc;

	stream_qp_reap(q);
	while (dev_poll_cq(q->stats, q->rcq, 1, &wc) > 0)
		take(q, &wc);
	give_credit(q);
	send_waiting(q);
	if (!list_empty(&q->owing) && stream_qp_slots(q))
		pay_owing(q);
	return !list_empty(&q->woken) || q->broken;
}

void stream_qp_tend(struct stream_qp *q, uint64_t now_ns)
{
	struct list_node *n, *next;
	struct stream *s;

	while ((n = list_pop_head(&q->tending))) {
		s = container_of(n, struct stream, tending);
		grow_tend(s);
		if (!list_linked(&s->large) && grow_is_large(s))
			list_add_tail(&q->large, &s->large);
	}
	if (now_ns >= q->look_ns) {
		list_for_each_safe(n, next, &q->large) {
			s = container_of(n, struct stream, large);
			grow_look(s, now_ns);
			if (!grow_is_large(s))
				list_del(n);
		}
		q->look_ns = UINT64_MAX;
	}
	if (list_empty(&q->large))
		q->look_ns = UINT64_MAX;
	else if (q->look_ns == UINT64_MAX)
		q->look_ns = now_ns + GROW_LOOK_NS;
}

struct stream *stream_qp_woken(struct stream_qp *q)
{
	struct list_node *n = list_pop_head(&q->woken);

	return n ? container_of(n, struct stream, woken) : NULL;
}

struct stream *stream_qp_over(struct stream_qp *q)
{
	struct list_node *n, *next;
	struct stream *s;

	if (!list_empty(&q->left))
		stream_qp_reap(q);
	list_for_each_safe(n, next, &q->left) {
		s = container_of(n, struct stream, left_link);
		if (!stream_is_over(s))
			continue;
		stream_qp_del(q, s);
		return s;
	}
	return NULL;
}
