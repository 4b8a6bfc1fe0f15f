/* SPDX-License-Identifier: MIT */
/*
 * ops.c - what the engine asks for, done with a QP's queues, its device's
 * regions and the sockets.
 */
#include "base/fence.h"
#include "base/fmt.h"
#include "dev/soft/exec/copy.h"
#include "dev/soft/link/dma.h"
#include "dev/soft/link/state.h"
#include "dev/soft/mw.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint8_t *op_begin(void *o, bool answers)
{
	struct soft_link_qp *l = o;
	uint8_t *buf = NULL;

	if (!l->conn && !l->tcp_only)
		return udp_begin(l->link->udp);
	l->tx = l->bulk && (answers ? l->back_bulk : l->out_bulk) ? l->bulk
								  : l->conn;
	if (l->tx)
		buf = framing_begin(l->link->framing, l->tx);
	if (buf)
		return buf;
	l->waits = true;
	if (!l->conn && !l->dialling) {
		l->dialling = true;
		l->dial_ns = 0;
	}
	return NULL;
}

static void op_send(void *o, size_t len)
{
	struct soft_link_qp *l = o;

	if (l->conn)
		framing_send(l->link->framing, l->tx, len);
	else
		udp_send(l->link->udp, &l->path, len);
}

static bool piece_good(const struct soft_qp *q, const struct link_wqe *w,
		       uint64_t addr, const struct ibv_sge *g, size_t len)
{
	bool reads = soft_is_answered(&w->wr);

	return link_is_inline(w) || !len ||
	       soft_mr_local(q->s, q->pd, g->lkey, addr, len,
			     reads ? IBV_ACCESS_LOCAL_WRITE : 0);
}

static int op_local(void *o, const struct rc_wqe *e)
{
	const struct soft_qp *q = ((struct soft_link_qp *)o)->q;
	const struct link_wqe *w = link_wqe_of(e);
	uint64_t len = 0;
	int i;

	for (i = 0; i < w->wr.num_sge; i++) {
		if (!piece_good(q, w, w->sge[i].addr, &w->sge[i],
				w->sge[i].length))
			return IBV_WC_LOC_PROT_ERR;
		len += w->sge[i].length;
	}
	if (len > SOFT_MSG_MAX ||
	    (soft_is_answered(&w->wr) && w->wr.opcode != IBV_WR_RDMA_READ &&
	     len != 8))
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

	return local_copy(l->q, link_wqe_of(w), at, dst, NULL, len);
}

static int op_scatter(void *o, const struct rc_wqe *w, uint32_t at,
		      const uint8_t *src, size_t len)
{
	struct soft_link_qp *l = o;

	return local_copy(l->q, link_wqe_of(w), at, NULL, src, len);
}

static const char *carrier_name(const struct soft_link_qp *l)
{
	return l->conn || l->tcp_only ? "TCP" : "UDP";
}

void link_log_counts(const struct soft_link_qp *l)
{
	const uint64_t *n = l->rc.drops;
	char to[INET6_ADDRSTRLEN] = "?";

	inet_ntop(AF_INET6, l->path.flow.dst, to, sizeof(to));
	env_log(l->q->s->env, ENV_LOG_DEBUG,
		"skein0: QP 0x%x to QP 0x%x at %s by %s: sent %" PRIu64
		", taken %" PRIu64 "; retries %" PRIu64 ", gaps %" PRIu64
		", RNR NAKs %" PRIu64 "; dropped: behind a gap %" PRIu64
		", repeated %" PRIu64 ", no receive %" PRIu64
		", refused %" PRIu64 ", answers to nothing %" PRIu64
		", in no state for it %" PRIu64,
		l->q->ex.qp_base.qp_num, l->dest_qpn, to, carrier_name(l),
		l->rc.sent, n[RC_TAKEN], l->rc.retries, l->rc.gaps, l->rc.rnrs,
		n[RC_DROP_GAP], n[RC_DROP_REPEATED], n[RC_DROP_NOT_READY],
		n[RC_DROP_REFUSED], n[RC_DROP_STRANGE], n[RC_DROP_STATE]);
}

/* What was waited for, for how long, and what may be the matter. */
static void silence_words(const struct soft_link_qp *l, char *buf, size_t len)
{
	uint64_t ns = env_now_ns(l->q->s->env) - l->rc.rq.since_ns;
	char silence[FMT_LEN];

	fmt_ns(silence, sizeof(silence), ns);
	if (l->conn)
		snprintf(buf, len,
			 "no answer for %s (is the peer stopped, or the cable "
			 "out?)",
			 silence);
	else
		snprintf(buf, len,
			 "no %s for %s (is the peer there, SKEIN_LINK the same "
			 "there, and %s %u open?)",
			 l->tcp_only ? "connection" : "answer", silence,
			 l->tcp_only ? "TCP" : "UDP", l->q->s->link_port);
}

static void log_given_up(const struct soft_link_qp *l, int status)
{
	char to[INET6_ADDRSTRLEN] = "?", why[160] = "no receive posted there";

	if (status == IBV_WC_RETRY_EXC_ERR)
		silence_words(l, why, sizeof(why));
	inet_ntop(AF_INET6, l->path.flow.dst, to, sizeof(to));
	env_log(l->q->s->env, ENV_LOG_ERROR,
		"skein0: QP 0x%x to QP 0x%x at %s gives up by %s: %s; "
		"last PSN acknowledged 0x%06x, %" PRIu64 " retries",
		l->q->ex.qp_base.qp_num, l->dest_qpn, to, carrier_name(l), why,
		(l->rc.rq.una + PACKET_PSN_MASK) & PACKET_PSN_MASK,
		l->rc.retries);
}

void link_log_first_silence(const struct soft_link_qp *l)
{
	char to[INET6_ADDRSTRLEN] = "?", why[160];

	if (l->q->attr.timeout < LINK_PATIENT ||
	    counts_get(l->peer, COUNTS_RETRIES) ||
	    counts_get(l->peer, COUNTS_TAKEN))
		return;
	silence_words(l, why, sizeof(why));
	inet_ntop(AF_INET6, l->path.flow.dst, to, sizeof(to));
	env_log(l->q->s->env, ENV_LOG_WARN,
		"skein0: QP 0x%x to QP 0x%x at %s goes on trying by %s: %s",
		l->q->ex.qp_base.qp_num, l->dest_qpn, to, carrier_name(l), why);
}

static void op_done(void *o, struct rc_wqe *e, int status)
{
	struct soft_link_qp *l = o;
	struct link_wqe *w = link_wqe_of(e);

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
	bool inv = packet_has(last->op) & PACKET_HAS_IETH;
	bool write = last->op >= PACKET_WRITE_FIRST && !inv;
	struct shm_slot *slot = slot_of(l);

	slot->status = (uint32_t)status;
	slot->byte_len = len;
	slot->imm = imm ? last->imm : inv ? last->rkey : 0;
	slot->flags = (imm ? SHM_SLOT_IMM : 0) | (inv ? SHM_SLOT_INV : 0) |
		      (write ? SHM_SLOT_WRITE : 0);
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
	soft_cq_ring(c, last->solicited || status);
}

static struct soft_dest dest_of(const struct soft_link_qp *l)
{
	return (struct soft_dest){l->q->pd->id, l->q->ex.qp_base.qp_num};
}

static bool op_check(void *o, uint32_t rkey, uint64_t va, uint64_t len,
		     int access)
{
	struct soft_link_qp *l = o;
	struct soft_dest to = dest_of(l);
	uint64_t at;

	if (!soft_key_open(l->q->s, &to, rkey, va, len, (uint32_t)access, &at))
		return false;
	l->moved = at - va;
	return true;
}

static bool op_invalidate(void *o, uint32_t rkey)
{
	struct soft_link_qp *l = o;
	struct soft_dest to = dest_of(l);
	struct soft *s = l->q->s;

	/* relaxed: as in soft_key_open() */
	return rkey >> 16 < atomic_load_explicit(&s->nic->mr_top,
						 memory_order_relaxed) &&
	       soft_mw_shut(&s->mr_table[rkey >> 16], &to, rkey);
}

static int op_carry_out(void *o, const struct rc_wqe *e)
{
	struct soft_link_qp *l = o;
	const struct link_wqe *w = link_wqe_of(e);
	int r = soft_mw_exec(l->q, &w->wr, true, w->pos);

	return r < 0 ? -1 : r;
}

static void *moved(const struct soft_link_qp *l, uint64_t va)
{
	return soft_ptr(va + l->moved);
}

static void op_write(void *o, uint64_t va, const uint8_t *src, size_t len,
		     bool last)
{
	dma_begin();
	if (last)
		soft_copy_all(moved(o, va), src, len);
	else
		soft_copy_body(moved(o, va), src, len);
	dma_end();
}

static void op_read(void *o, uint64_t va, uint8_t *dst, size_t len)
{
	/* acquire: as in do_read() of exec/exec.c */
	fence_acquire();
	dma_begin();
	soft_copy_body(dst, moved(o, va), len);
	dma_end();
}

static uint64_t op_atomic(void *o, uint64_t va, bool swaps, uint64_t compare,
			  uint64_t swap_add)
{
	_Atomic uint64_t *word = moved(o, va);

	dma_begin();
	if (!swaps)
		compare = atomic_fetch_add(word, swap_add);
	else
		atomic_compare_exchange_strong(word, &compare, swap_add);
	dma_end();
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

const struct rc_ops soft_link_ops = {
	.may_begin = carrier_may_begin,
	.begin = op_begin,
	.send = op_send,
	.local = op_local,
	.gather = op_gather,
	.scatter = op_scatter,
	.carry_out = op_carry_out,
	.done = op_done,
	.recv_begin = op_recv_begin,
	.recv_put = op_recv_put,
	.recv_end = op_recv_end,
	.check = op_check,
	.invalidate = op_invalidate,
	.write = op_write,
	.read = op_read,
	.atomic = op_atomic,
	.event = op_event,
};
