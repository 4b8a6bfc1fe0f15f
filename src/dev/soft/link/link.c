/* SPDX-License-Identifier: MIT */
/*
 * link.c - see link.h: what the engine asks for, done with a QP's queues, its
 * device's regions and the sockets.
 */
#include "dev/soft/link/link.h"

#include "base/fence.h"
#include "dev/soft/exec/copy.h"
#include "dev/soft/link/datagram.h"
#include "dev/soft/link/dma.h"
#include "dev/soft/link/rc.h"
#include "dev/soft/link/take.h"
#include "dev/soft/link/udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct link_wqe {
	struct rc_wqe e;
	uint32_t pos;
	struct ibv_send_wr wr;
	struct ibv_sge sge[]; /* then inline bytes */
};

struct soft_link_qp {
	struct list_node node; /* soft_link.qps; soft.lock */
	struct soft_qp *q;
	struct soft_link *link;
	struct udp_path path;
	uint64_t deadline;
	bool touched; /* by the batch that is taken in now */
	bool started;
	/* the receive queue: as a same-host peer's */
	uint32_t rq_head, ready;
	struct link_take take; /* of a shared one */
	struct rc rc;	       /* with what follows it */
};

struct soft_link {
	struct soft *s;
	struct udp *udp;
	struct list_node qps;
	/* No engine has anything to do before it. Posters lower it. */
	_Atomic uint64_t due;
	struct soft_qp *touched[2 * UDP_BATCH];
	uint32_t n_touched;
	uint64_t faults[PACKET_FAULTS];
	uint64_t bad_icrc, no_qp, wrong_peer, ud_dropped;
};

/* What the engine asks for. */

static uint8_t *op_begin(void *o)
{
	struct soft_link_qp *l = o;

	return udp_begin(l->link->udp);
}

static void op_send(void *o, size_t len)
{
	struct soft_link_qp *l = o;

	udp_send(l->link->udp, &l->path, len);
}

static struct link_wqe *wqe_of(const struct rc_wqe *w)
{
	return (struct link_wqe *)(void *)(uintptr_t)w;
}

static bool is_inline(const struct link_wqe *w)
{
	return w->wr.send_flags & IBV_SEND_INLINE;
}

static bool piece_good(const struct soft_qp *q, const struct link_wqe *w,
		       uint64_t addr, const struct ibv_sge *g, size_t len)
{
	bool reads = w->wr.opcode >= IBV_WR_RDMA_READ;

	return is_inline(w) || !len ||
	       soft_mr_local(q->s, q->pd, g->lkey, addr, len,
			     reads ? IBV_ACCESS_LOCAL_WRITE : 0);
}

static int op_local(void *o, const struct rc_wqe *e)
{
	const struct soft_qp *q = ((struct soft_link_qp *)o)->q;
	const struct link_wqe *w = wqe_of(e);
	uint64_t len = 0;
	int i;

	for (i = 0; i < w->wr.num_sge; i++) {
		if (!piece_good(q, w, w->sge[i].addr, &w->sge[i],
				w->sge[i].length))
			return IBV_WC_LOC_PROT_ERR;
		len += w->sge[i].length;
	}
	if (len > SOFT_MSG_MAX || (w->wr.opcode > IBV_WR_RDMA_READ && len != 8))
		return IBV_WC_LOC_LEN_ERR;
	return 0;
}

/* len bytes of its memory from at on, piece by piece. */
static int local_copy(struct soft_qp *q, const struct link_wqe *w, uint64_t at,
		      uint8_t *to, const uint8_t *from, size_t len)
{
	const struct ibv_sge *g = w->sge;
	uint64_t addr;
	size_t n;

	for (; len; g++) {
		if (at >= g->length) {
			at -= g->length;
			continue;
		}
		addr = g->addr + at;
		n = g->length - at < len ? g->length - at : len;
		if (!piece_good(q, w, addr, g, n))
			return IBV_WC_LOC_PROT_ERR;
		dma_begin();
		if (to) {
			memcpy(to, soft_ptr(addr), n);
			to += n;
		} else {
			memcpy(soft_ptr(addr), from, n);
			from += n;
		}
		dma_end();
		len -= n;
		at = 0;
	}
	return 0;
}

static int op_gather(void *o, const struct rc_wqe *w, uint32_t at, uint8_t *dst,
		     size_t len)
{
	struct soft_link_qp *l = o;

	return local_copy(l->q, wqe_of(w), at, dst, NULL, len);
}

static int op_scatter(void *o, const struct rc_wqe *w, uint32_t at,
		      const uint8_t *src, size_t len)
{
	struct soft_link_qp *l = o;

	return local_copy(l->q, wqe_of(w), at, NULL, src, len);
}

static void log_given_up(const struct soft_link_qp *l, int status)
{
	char to[INET6_ADDRSTRLEN] = "?";

	inet_ntop(AF_INET6, l->path.flow.dst, to, sizeof(to));
	env_log(l->q->s->env, ENV_LOG_ERROR,
		"skein0: QP 0x%x to QP 0x%x at %s gives up by UDP: %s; "
		"last PSN acknowledged 0x%06x, %" PRIu64 " retries",
		l->q->ex.qp_base.qp_num, l->q->attr.dest_qp_num, to,
		status == IBV_WC_RETRY_EXC_ERR
			? "no answer (is the peer there, and UDP 4791 open?)"
			: "no receive posted there",
		(l->rc.rq.una + PACKET_PSN_MASK) & PACKET_PSN_MASK,
		l->rc.retries);
}

static void op_done(void *o, struct rc_wqe *e, int status)
{
	struct soft_link_qp *l = o;
	struct link_wqe *w = wqe_of(e);

	if (status == IBV_WC_RETRY_EXC_ERR ||
	    status == IBV_WC_RNR_RETRY_EXC_ERR)
		log_given_up(l, status);
	soft_complete(l->q, &w->wr, w->pos, status);
	env_free(l->q->s->env, w);
}

static struct shm_slot *slot_of(struct soft_link_qp *l)
{
	return l->q->srq ? link_take_slot(l->q, &l->take)
			 : soft_slot(l->q, l->rq_head);
}

static bool op_recv_begin(void *o)
{
	struct soft_link_qp *l = o;

	if (l->q->srq)
		return link_take(l->q, &l->take);
	/* acquire: pairs with the owner's release of POSTED */
	return l->q->rq_slots &&
	       atomic_load_explicit(&slot_of(l)->word, memory_order_acquire) ==
		       (l->rq_head << 2 | SHM_SLOT_POSTED);
}

static int op_recv_put(void *o, uint32_t at, const uint8_t *src, size_t len)
{
	struct soft_link_qp *l = o;

	return link_take_put(l->q, slot_of(l), at, src, len);
}

/* As finish_slot() of exec/exec.c, by the owner itself. */
static void op_recv_end(void *o, int status, uint32_t len,
			const struct packet *last)
{
	struct soft_link_qp *l = o;
	struct soft_qp *q = l->q;
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.recv_cq);
	bool imm = packet_has(last->op) & PACKET_HAS_IMM;
	bool write = last->op >= PACKET_WRITE_FIRST;
	struct shm_slot *slot = slot_of(l);

	slot->status = (uint32_t)status;
	slot->byte_len = len;
	slot->imm = imm ? last->imm : 0;
	slot->flags = (imm ? SHM_SLOT_IMM : 0) | (write ? SHM_SLOT_WRITE : 0);
	if (q->srq)
		link_take_done(q, &l->take, l->rq_head);
	else
		/* release: data and completion before DONE; pairs with
		 * soft_reap() */
		atomic_store_explicit(&slot->word,
				      l->rq_head << 2 | SHM_SLOT_DONE,
				      memory_order_release);
	l->rq_head++;
	soft_cq_set_ready(q, ++l->ready);
	if (!c->ex.channel)
		return;
	/* pairs with req_notify_cq(), as in finish_slot() */
	fence_full();
	soft_bell_ring(&c->shm->armed, c->ex.channel->fd,
		       last->solicited || status);
}

static bool op_check(void *o, uint32_t rkey, uint64_t va, uint64_t len,
		     int access)
{
	const struct soft_qp *q = ((struct soft_link_qp *)o)->q;

	/* a key is both: what is asked for is a remote right */
	return soft_mr_local(q->s, q->pd, rkey, va, len, (uint32_t)access);
}

static void op_write(void *o, uint64_t va, const uint8_t *src, size_t len,
		     bool last)
{
	dma_begin();
	if (last)
		soft_copy_all(soft_ptr(va), src, len);
	else
		soft_copy_body(soft_ptr(va), src, len);
	dma_end();
}

static void op_read(void *o, uint64_t va, uint8_t *dst, size_t len)
{
	/* acquire: as in do_read() of exec/exec.c */
	fence_acquire();
	dma_begin();
	soft_copy_body(dst, soft_ptr(va), len);
	dma_end();
}

static uint64_t op_atomic(void *o, uint64_t va, bool swaps, uint64_t compare,
			  uint64_t swap_add)
{
	_Atomic uint64_t *word = soft_ptr(va);

	if (!swaps)
		return atomic_fetch_add(word, swap_add);
	atomic_compare_exchange_strong(word, &compare, swap_add);
	return compare;
}

static void op_event(void *o, enum rc_event what)
{
	struct soft_qp *q = ((struct soft_link_qp *)o)->q;

	if (what == RC_MET) {
		if (soft_qp_state(q) == IBV_QPS_RTR)
			soft_async(q->s, IBV_EVENT_COMM_EST, q);
		return;
	}
	if (what == RC_ACCESS)
		soft_async(q->s, IBV_EVENT_QP_ACCESS_ERR, q);
	else if (what == RC_REQUEST)
		soft_async(q->s, IBV_EVENT_QP_REQ_ERR, q);
	soft_qp_to_err(q);
}

static const struct rc_ops ops = {
	.begin = op_begin,
	.send = op_send,
	.local = op_local,
	.gather = op_gather,
	.scatter = op_scatter,
	.done = op_done,
	.recv_begin = op_recv_begin,
	.recv_put = op_recv_put,
	.recv_end = op_recv_end,
	.check = op_check,
	.write = op_write,
	.read = op_read,
	.atomic = op_atomic,
	.event = op_event,
};

/* From INIT to RTR, and back. */

int soft_link_open(struct soft *s, uint32_t block, const char **what)
{
	struct soft_link *k;
	int err;

	if (s->link) {
		*what = "a socket for packets that others pass on";
		return udp_own_block(s->link->udp, block);
	}
	*what = "memory";
	k = env_alloc(s->env, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->s = s;
	list_init(&k->qps);
	atomic_init(&k->due, ENV_NEVER);
	err = udp_open(s, &k->udp, what);
	if (err) {
		env_free(s->env, k);
		return err;
	}
	s->link = k;
	atomic_fetch_add(&s->asking_qps, SOFT_LINK_ASKS);
	*what = "a socket for packets that others pass on";
	return udp_own_block(k->udp, block);
}

struct udp *soft_link_udp(const struct soft *s)
{
	return s->link->udp;
}

static struct soft_link_qp *link_qp_new(struct soft_qp *q,
					const struct udp_path *p)
{
	enum ibv_mtu fits = soft_link_mtu(p->mtu), mtu = q->attr.path_mtu;
	struct soft_link_qp *l;

	l = env_alloc(q->s->env, sizeof(*l) - sizeof(l->rc) +
					 rc_bytes(q->attr.max_dest_rd_atomic));
	if (!l)
		return NULL;
	l->q = q;
	l->link = q->s->link;
	l->path = *p;
	l->deadline = ENV_NEVER;
	if (mtu > fits) {
		env_log(q->s->env, ENV_LOG_INFO,
			"skein0: QP 0x%x: a path MTU of %u does not fit into "
			"the route's %u bytes: %u it is, and the peer must do "
			"the same",
			q->ex.qp_base.qp_num, 128u << mtu, p->mtu,
			128u << fits);
		mtu = fits;
	}
	if (q->unreliable)
		rc_init_uc(&l->rc, &ops, l, &q->attr, 128u << mtu);
	else
		rc_init(&l->rc, &ops, l, &q->attr, 128u << mtu);
	return l;
}

static int link_connect(struct soft_qp *q, const struct ibv_qp_attr *a,
			struct soft_link_qp **link, const char **what)
{
	struct soft *s = q->s;
	struct udp_path p;
	int err;

	err = soft_link_open(s, q->ex.qp_base.qp_num / SHM_BLOCK_QPS, what);
	if (!err)
		err = soft_link_path(s, &a->ah_attr, &p, what);
	if (err)
		return err;
	*what = "memory";
	*link = link_qp_new(q, &p);
	if (!*link)
		return -ENOMEM;
	udp_path_own(s->link->udp, &(*link)->path,
		     q->ex.qp_base.qp_num / SHM_BLOCK_QPS,
		     (q->attr.dest_qp_num & PACKET_PSN_MASK) / SHM_BLOCK_QPS);
	if ((*link)->path.host)
		rc_share(&(*link)->rc, &(*link)->path.host->cong);
	return 0;
}

int soft_link_connect(struct soft_qp *q, const struct ibv_qp_attr *a,
		      struct soft_link_qp **link)
{
	struct soft *s = q->s;
	const char *what;
	int err;

	pthread_mutex_lock(&s->lock);
	err = link_connect(q, a, link, &what);
	if (!err)
		list_add_tail(&s->link->qps, &(*link)->node);
	pthread_mutex_unlock(&s->lock);
	if (err) {
		env_log(s->env, ENV_LOG_ERROR,
			"skein0: QP 0x%x: no link to another host for want of "
			"%s: %s",
			q->ex.qp_base.qp_num, what, strerror(-err));
		return err;
	}
	/* The control thread completes, too. */
	soft_lock_share(&soft_cq_of(q->ex.qp_base.send_cq)->lock);
	soft_lock_share(&soft_cq_of(q->ex.qp_base.recv_cq)->lock);
	return 0;
}

void soft_link_leave(struct soft_qp *q)
{
	struct soft_link_qp *l = q->link;

	if (!l)
		return;
	soft_link_drop(q);
	list_del(&l->node);
	udp_path_put(l->link->udp, &l->path);
	q->link = NULL;
	env_free(q->s->env, l);
}

/* Work. */

static void due_lower(struct soft_link *k, uint64_t at, bool kick)
{
	uint64_t was = atomic_load(&k->due);

	while (at < was)
		if (atomic_compare_exchange_weak(&k->due, &was, at)) {
			if (kick)
				soft_kick(k->s);
			return;
		}
}

/* The engine has run: when again? q->lock held. */
static void ran(struct soft_qp *q, uint64_t deadline, bool kick)
{
	struct soft_link_qp *l = q->link;

	l->deadline = deadline;
	if (deadline != ENV_NEVER)
		due_lower(l->link, deadline, kick);
	if (q->sqd_notify && !rc_is_busy(&l->rc))
		soft_attend(q->s, q->idx);
}

static bool is_up(const struct soft_qp *q)
{
	enum ibv_qp_state st = soft_qp_state(q);

	return q->link &&
	       (st == IBV_QPS_RTR || st == IBV_QPS_RTS || st == IBV_QPS_SQD);
}

/* s->lock held, so that regions stay; q is held, sending is locked. */
static void turn(struct soft_qp *q, uint64_t now)
{
	if (is_up(q))
		rc_run(&q->link->rc, now);
	ran(q, is_up(q) ? rc_deadline(&q->link->rc) : ENV_NEVER, false);
}

/* With q->lock alone: requests, no answers, for these read regions
 * that may go. */
static void turn_requests(struct soft_qp *q)
{
	struct soft_link_qp *l = q->link;
	uint64_t due;

	udp_lock(l->link->udp);
	rc_requester_run(&l->rc, env_now_ns(q->s->env));
	udp_unlock(l->link->udp);
	/* what was due before stays so: a look too many does no harm */
	due = rc_requester_deadline(&l->rc);
	ran(q, due < l->deadline ? due : l->deadline, true);
}

void soft_link_state(struct soft_qp *q)
{
	struct soft_link_qp *l = q->link;
	enum ibv_qp_state st = soft_qp_state(q);

	if (st != IBV_QPS_RTS && st != IBV_QPS_SQD)
		return;
	rc_pause(&l->rc, st == IBV_QPS_SQD);
	if (!l->started) {
		l->started = true;
		rc_start(&l->rc);
	} else if (q->unreliable) {
		rc_resume(&l->rc);
	}
	if (st == IBV_QPS_RTS)
		turn_requests(q);
}

static struct link_wqe *wqe_new(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	size_t sges = (size_t)wr->num_sge * sizeof(struct ibv_sge);
	uint64_t len = 0;
	struct link_wqe *w;
	char *data;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	w = env_alloc(q->s->env,
		      sizeof(*w) + sges +
			      (wr->send_flags & IBV_SEND_INLINE ? len : 0));
	if (!w)
		return NULL;
	w->wr = *wr;
	w->wr.next = NULL;
	w->wr.sg_list = w->sge;
	data = (char *)w->sge + sges;
	for (i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		if (!is_inline(w) || !wr->sg_list[i].length)
			continue;
		memcpy(data, soft_ptr(wr->sg_list[i].addr),
		       wr->sg_list[i].length);
		w->sge[i].addr = (uintptr_t)data;
		data += wr->sg_list[i].length;
	}
	w->e.len = len > UINT32_MAX ? UINT32_MAX : (uint32_t)len;
	return w;
}

int soft_link_post(struct soft_qp *q, const struct ibv_send_wr *wr,
		   uint32_t pos)
{
	struct link_wqe *w = wqe_new(q, wr);

	if (!w)
		return ENOMEM;
	w->pos = pos;
	w->e.op = wr->opcode;
	w->e.imm = wr->imm_data;
	w->e.solicited = wr->send_flags & IBV_SEND_SOLICITED;
	w->e.fenced = wr->send_flags & IBV_SEND_FENCE;
	if (wr->opcode > IBV_WR_RDMA_READ) {
		w->e.va = wr->wr.atomic.remote_addr;
		w->e.rkey = wr->wr.atomic.rkey;
		w->e.compare_add = wr->wr.atomic.compare_add;
		w->e.swap = wr->wr.atomic.swap;
	} else {
		w->e.va = wr->wr.rdma.remote_addr;
		w->e.rkey = wr->wr.rdma.rkey;
	}
	q->sq_posted++;
	rc_post(&q->link->rc, &w->e);
	turn_requests(q);
	return 0;
}

void soft_link_flush(struct soft_qp *q)
{
	struct link_wqe *w;
	struct rc_wqe *e;

	while ((e = rc_take(&q->link->rc))) {
		w = wqe_of(e);
		soft_complete(q, &w->wr, w->pos, IBV_WC_WR_FLUSH_ERR);
		env_free(q->s->env, w);
	}
	q->link->deadline = ENV_NEVER;
}

void soft_link_drop(struct soft_qp *q)
{
	struct rc_wqe *e;

	while ((e = rc_take(&q->link->rc)))
		env_free(q->s->env, wqe_of(e));
	q->link->deadline = ENV_NEVER;
}

bool soft_link_busy(const struct soft_qp *q)
{
	return rc_is_busy(&q->link->rc);
}

/* Packets. */

static bool is_own_block(const struct soft *s, uint32_t block)
{
	uint32_t i;

	for (i = 0; i < s->n_blocks; i++)
		if (s->blocks[i] == block)
			return true;
	return false;
}

static struct soft_qp *qp_find(struct soft *s, uint32_t qpn)
{
	struct soft_qp *q = NULL;
	uint32_t i;

	for (i = 0; i < s->n_blocks; i++)
		if (s->blocks[i] == qpn / SHM_BLOCK_QPS)
			q = s->qps[i * SHM_BLOCK_QPS + qpn % SHM_BLOCK_QPS];
	return q && !q->dying ? q : NULL;
}

/* Is it of that transport, and in a state to take anything? */
static bool takes(const struct soft_qp *q, unsigned op)
{
	switch (packet_transport(op)) {
	case PACKET_RC:
		return q->ex.qp_base.qp_type == IBV_QPT_RC && is_up(q);
	case PACKET_UC:
		return q->ex.qp_base.qp_type == IBV_QPT_UC && is_up(q);
	case PACKET_UD:
		return q->ex.qp_base.qp_type == IBV_QPT_UD;
	case PACKET_NO: /* CNP */
		return is_up(q);
	}
	return false;
}

/* The end of a batch: answers, and what may go now. */
static void batch_end(struct soft_link *k)
{
	uint64_t now = env_now_ns(k->s->env);
	struct soft_qp *q;
	uint32_t i;

	if (!k->n_touched)
		return;
	for (i = 0; i < k->n_touched; i++) {
		q = k->touched[i];
		soft_qp_hold(q);
		udp_lock(k->udp);
		if (q->link) {
			q->link->touched = false;
			turn(q, now);
		}
		udp_unlock(k->udp);
		soft_qp_release(q);
	}
	k->n_touched = 0;
}

static void take_for(struct soft_link *k, struct soft_qp *q,
		     const struct icrc_flow *f, const struct packet *p)
{
	soft_qp_hold(q);
	if (is_up(q)) {
		udp_met(k->udp, f, &q->link->path);
		rc_input(&q->link->rc, env_now_ns(k->s->env), p);
		if (!q->link->touched) {
			q->link->touched = true;
			k->touched[k->n_touched++] = q;
		}
	}
	soft_qp_release(q);
	if (k->n_touched == sizeof(k->touched) / sizeof(k->touched[0]))
		batch_end(k);
}

static void take(void *o, const struct icrc_flow *f, uint8_t *buf, size_t len)
{
	struct soft_link *k = o;
	enum packet_fault fault;
	struct packet p;
	struct soft_qp *q;

	if (!f) {
		batch_end(k);
		return;
	}
	fault = len < PACKET_BTH + PACKET_ICRC
			? PACKET_SHORT
			: packet_decode(buf, len - PACKET_ICRC, &p);
	if (fault != PACKET_OK) {
		k->faults[fault]++;
		return;
	}
	if (!is_own_block(k->s, p.qpn / SHM_BLOCK_QPS)) {
		udp_pass(k->udp, p.qpn / SHM_BLOCK_QPS, f, buf, len);
		return;
	}
	q = qp_find(k->s, p.qpn);
	if (!q || !takes(q, p.op)) {
		k->no_qp++;
	} else if (q->link &&
		   (memcmp(f->src, q->link->path.flow.dst, 16) != 0 ||
		    memcmp(f->dst, q->link->path.flow.src, 16) != 0)) {
		k->wrong_peer++;
	} else if (!udp_check(k->udp, f, buf, len)) {
		k->bad_icrc++;
	} else if (q->ud) {
		udp_met(k->udp, f, NULL);
		k->ud_dropped += !soft_link_take_datagram(q, f, &p);
	} else {
		take_for(k, q, f, &p);
	}
}

void soft_link_event(struct soft *s)
{
	udp_poll(s->link->udp, take, s->link);
}

void soft_link_poll(struct soft *s)
{
	int was = env_cancel_off(NULL);

	if (!pthread_mutex_trylock(&s->lock)) {
		if (s->link)
			udp_poll(s->link->udp, take, s->link);
		pthread_mutex_unlock(&s->lock);
	}
	env_cancel_back(NULL, was);
}

uint64_t soft_link_timers(struct soft *s, uint64_t now)
{
	struct soft_link *k = s->link;
	struct soft_link_qp *l;
	struct list_node *n;

	if (!k)
		return ENV_NEVER;
	if (atomic_load(&k->due) > now)
		return atomic_load(&k->due);
	atomic_store(&k->due, ENV_NEVER);
	for (n = k->qps.next; n != &k->qps; n = n->next) {
		l = container_of(n, struct soft_link_qp, node);
		if (!l->q->link) /* on its way to RTR */
			continue;
		soft_qp_hold(l->q);
		udp_lock(k->udp);
		if (l->deadline <= now)
			turn(l->q, now);
		else
			due_lower(k, l->deadline, false);
		udp_unlock(k->udp);
		soft_qp_release(l->q);
	}
	return atomic_load(&k->due);
}

void soft_link_close(struct soft *s)
{
	struct soft_link *k = s->link;
	struct udp_counts c;

	if (!k)
		return;
	udp_counts(k->udp, &c);
	env_log(s->env, ENV_LOG_DEBUG,
		"skein0: link: %" PRIu64 " packets sent by %" PRIu64
		" calls, %" PRIu64 " taken by %" PRIu64 "; not sent %" PRIu64
		", passed on %" PRIu64 ", not passed on %" PRIu64
		", wrong ICRC %" PRIu64 ", for no QP %" PRIu64
		", from a wrong address %" PRIu64
		", datagrams dropped %" PRIu64,
		c.sent, c.send_calls, c.taken, c.take_calls, c.send_failed,
		c.passed, c.pass_failed, k->bad_icrc, k->no_qp, k->wrong_peer,
		k->ud_dropped);
	udp_close(k->udp);
	env_free(s->env, k);
	s->link = NULL;
}
