/* SPDX-License-Identifier: MIT */
/*
 * port.c - see port.h.
 */
#include "port.h"

#include "env/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	GRH = 40,
	LINE = 64,
	/* so that the datagram begins a line */
	FRONT = LINE - GRH,
	QKEY = 0x55440001,
	INLINE_MAX = 256, /* as Skein asks for its own QPs */
};

/* A completion that has not come by then does not come. */
#define PATIENCE_NS 10000000000u

static size_t lines(size_t len)
{
	return (len + LINE - 1) & ~(size_t)(LINE - 1);
}

static size_t datagram_len(const struct ud_port *p)
{
	return sizeof(struct ud_head) + p->conf.size;
}

static char *recv_at(const struct ud_port *p, uint64_t i)
{
	return (char *)p->mem->addr + p->conf.bufs * p->stride +
	       i * (LINE + p->stride);
}

static int open_queues(struct ud_port *p)
{
	const struct ud_port_conf *conf = &p->conf;
	const struct dev_ops *ops = conf->dev->ops;
	uint32_t inlined = conf->dev->caps.inline_max < INLINE_MAX
				   ? conf->dev->caps.inline_max
				   : INLINE_MAX;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = {UD_SENDS, conf->recvs, 1, 1, inlined},
	};
	int rc = ops->create_cq(conf->dev, UD_SENDS, NULL, NULL, &p->send_cq);

	if (!rc)
		rc = ops->create_cq(conf->dev, (int)conf->recvs, NULL, NULL,
				    &p->recv_cq);
	if (rc)
		return rc;
	attr.send_cq = p->send_cq;
	attr.recv_cq = p->recv_cq;
	rc = ops->create_qp(
		conf->dev, conf->pd, &attr,
		conf->dev->caps.single_threaded ? DEV_QP_SINGLE_THREADED : 0,
		&p->qp);
	p->inline_max = attr.cap.max_inline_data;
	return rc ? rc : dev_qp_ud(conf->dev, p->qp, QKEY, 0);
}

static int open_memory(struct ud_port *p)
{
	size_t len;

	p->stride = lines(datagram_len(p));
	len = p->conf.bufs * p->stride + p->conf.recvs * (LINE + p->stride);
	p->recv_wr = calloc(p->conf.recvs, sizeof(*p->recv_wr));
	p->recv_sge = calloc(p->conf.recvs, sizeof(*p->recv_sge));
	if (!p->recv_wr || !p->recv_sge)
		return -ENOMEM;
	return mem_region_new(p->conf.dev, p->conf.pd, "ud", len,
			      IBV_ACCESS_LOCAL_WRITE, 1, &p->mem);
}

static void burst_add(struct ud_port *p, uint64_t i)
{
	*p->burst_end = &p->recv_wr[i];
	p->burst_end = &p->recv_wr[i].next;
}

static int post_all(struct ud_port *p)
{
	for (unsigned i = 0; i < p->conf.recvs; i++) {
		p->recv_sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)recv_at(p, i) + FRONT,
			.length = (uint32_t)(GRH + datagram_len(p)),
			.lkey = p->mem->mr->lkey};
		p->recv_wr[i] = (struct ibv_recv_wr){
			.wr_id = i, .sg_list = &p->recv_sge[i], .num_sge = 1};
		burst_add(p, i);
	}
	return ud_port_give_back(p);
}

int ud_port_open(struct ud_port *p, const struct ud_port_conf *conf)
{
	int rc;

	memset(p, 0, sizeof(*p));
	p->conf = *conf;
	p->burst_end = &p->burst;
	if (!conf->dev->caps.ud)
		return -EOPNOTSUPP;
	if (!conf->recvs || conf->recvs > UD_RECVS_MAX || !conf->bufs)
		return -EINVAL;
	if (datagram_len(p) > 128u << conf->dev->port_attr.active_mtu)
		return -EMSGSIZE;
	rc = open_memory(p);
	if (!rc)
		rc = open_queues(p);
	if (!rc)
		rc = post_all(p);
	if (rc)
		ud_port_close(p);
	return rc;
}

void ud_port_close(struct ud_port *p)
{
	const struct dev_ops *ops = p->conf.dev->ops;

	if (p->qp)
		ops->destroy_qp(p->conf.dev, p->qp);
	if (p->recv_cq)
		ops->destroy_cq(p->conf.dev, p->recv_cq);
	if (p->send_cq)
		ops->destroy_cq(p->conf.dev, p->send_cq);
	if (p->mem)
		mem_region_free(p->mem);
	free(p->recv_wr);
	free(p->recv_sge);
	p->qp = NULL;
	p->recv_cq = p->send_cq = NULL;
	p->mem = NULL;
	p->recv_wr = NULL;
	p->recv_sge = NULL;
}

void ud_port_addr(struct ud_port *p, struct dev_qp_addr *addr)
{
	dev_qp_addr(p->conf.dev, p->qp, 0, addr);
}

int ud_peer_open(struct ud_port *p, const struct dev_qp_addr *addr,
		 struct ud_peer *peer)
{
	struct ibv_ah_attr attr;
	int rc = dev_ah_attr(p->conf.dev, addr, NULL, &attr);

	if (!rc)
		rc = p->conf.dev->ops->create_ah(p->conf.dev, p->conf.pd, &attr,
						 &peer->ah);
	if (!rc)
		peer->qpn = addr->qpn;
	return rc;
}

void ud_peer_close(struct ud_port *p, struct ud_peer *peer)
{
	if (peer->ah)
		p->conf.dev->ops->destroy_ah(p->conf.dev, peer->ah);
	peer->ah = NULL;
}

/* Is it whole, and one of ours? */
static bool sane(const struct ud_head *head, uint32_t byte_len)
{
	return byte_len >= GRH + sizeof(*head) && head->magic == UD_MAGIC &&
	       byte_len == GRH + sizeof(*head) + head->len;
}

int ud_port_poll(struct ud_port *p, struct ud_msg msgs[UD_BURST], unsigned *n)
{
	struct ibv_wc wc[UD_BURST];
	int got = dev_poll_cq(&p->stats, p->recv_cq, UD_BURST, wc);

	*n = 0;
	if (got < 0)
		return -EIO;
	for (int i = 0; i < got; i++) {
		const char *at = recv_at(p, wc[i].wr_id) + LINE;
		const struct ud_head *head = (const void *)at;

		if (wc[i].status != IBV_WC_SUCCESS)
			return -EIO;
		burst_add(p, wc[i].wr_id);
		if (!sane(head, wc[i].byte_len)) {
			p->counts.strange++;
			continue;
		}
		msgs[*n].head = head;
		msgs[(*n)++].data = head + 1;
	}
	return 0;
}

int ud_port_give_back(struct ud_port *p)
{
	struct ibv_recv_wr *bad, *list;

	if (p->burst_end == &p->burst)
		return 0;
	*p->burst_end = NULL;
	list = p->burst;
	p->burst = NULL;
	p->burst_end = &p->burst;
	return dev_post_recv(&p->stats, p->qp, list, &bad);
}

/* Looks for the completions of sends: everything before one has left. */
static int reap(struct ud_port *p)
{
	struct ibv_wc wc[UD_SENDS / UD_SIGNAL_EACH];
	int got = dev_poll_cq(&p->stats, p->send_cq, UD_SENDS / UD_SIGNAL_EACH,
			      wc);

	for (int i = 0; i < got; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			return -EIO;
		p->done = wc[i].wr_id;
	}
	return got < 0 ? -EIO : 0;
}

/* Until no more than `left` sends are under way. */
static int await_sends(struct ud_port *p, uint64_t left)
{
	struct skein_env *env = p->conf.dev->env;
	uint64_t limit = 0;
	int rc = 0;

	for (unsigned i = 1; !rc && p->sent - p->done > left; i++) {
		rc = reap(p);
		if (i % 1024)
			continue;
		if (!limit)
			limit = env_now_ns(env) + PATIENCE_NS;
		else if (env_now_ns(env) > limit)
			return -ETIMEDOUT;
		env_yield(env);
	}
	return rc;
}

int ud_port_flush(struct ud_port *p)
{
	struct ibv_send_wr *last, *bad;
	bool drain = p->drain;
	int rc;

	p->drain = false;
	if (!p->n)
		return 0;
	last = &p->send_wr[p->n - 1];
	last->next = NULL;
	if (drain)
		last->send_flags |= IBV_SEND_SIGNALED;
	/* A full queue has a signalled send in each quarter. */
	rc = await_sends(p, UD_SENDS - p->n);
	p->sent += p->n;
	p->n = 0;
	if (!rc)
		rc = dev_post_send(&p->stats, p->qp, p->send_wr, &bad);
	if (rc || !drain)
		return rc;
	p->counts.drains++;
	return await_sends(p, 0);
}

int ud_port_send(struct ud_port *p, const struct ud_peer *to,
		 struct ud_head *head, bool again)
{
	uint32_t len = (uint32_t)sizeof(*head) + head->len;
	bool copied = len <= p->inline_max;
	struct ibv_send_wr *wr;
	uint64_t number;
	int rc = 0;

	if (p->conf.lose && p->conf.lose(p->conf.lose_arg, head)) {
		p->counts.lost++;
		return 0;
	}
	/* A burst and its answers go together: not before there is one more. */
	if (p->n == UD_BURST)
		rc = ud_port_flush(p);
	if (rc)
		return rc;
	number = p->sent + p->n + 1;
	wr = &p->send_wr[p->n];
	p->send_sge[p->n] = (struct ibv_sge){.addr = (uintptr_t)head,
					     .length = len,
					     .lkey = p->mem->mr->lkey};
	wr->wr_id = number;
	wr->next = wr + 1; /* the last one's is cut off */
	wr->sg_list = &p->send_sge[p->n];
	wr->num_sge = 1;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = (copied ? IBV_SEND_INLINE : 0u) |
			 (number % UD_SIGNAL_EACH ? 0u : IBV_SEND_SIGNALED);
	wr->wr.ud.ah = to->ah;
	wr->wr.ud.remote_qpn = to->qpn;
	wr->wr.ud.remote_qkey = QKEY;
	p->drain |= again && !copied;
	p->n++;
	return 0;
}
