/* SPDX-License-Identifier: MIT */
/*
 * far.c - work that the peer's control thread does for us: atomics on ordinary
 * memory, and copies where /proc/PID/mem is refused. A request of the send
 * queue becomes one control message at a time, 32 KiB each; it is parked
 * meanwhile, and the answer, which comes to our control thread, moves it on.
 * Each message is sent once, so an atomic is executed once.
 */
#include "dev/soft/peer/msg.h"
#include "dev/soft/qp/qp.h"

#include <errno.h>
#include <string.h>

/* Copies between a message and the local pieces, from byte off on. */
static void pieces(const struct ibv_send_wr *wr, uint64_t off, char *buf,
		   size_t len, bool into)
{
	const struct ibv_sge *g = wr->sg_list;
	size_t n;
	char *at;

	for (; len; g++, off = 0) {
		while (off >= g->length) {
			off -= g->length;
			g++;
		}
		n = g->length - off < len ? g->length - off : len;
		at = (char *)soft_ptr(g->addr) + off;
		memcpy(into ? at : buf, into ? buf : at, n);
		buf += n;
		len -= n;
	}
}

static enum msg_op op_of(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		return MSG_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return MSG_CMP_SWP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return MSG_FETCH_ADD;
	default:
		return MSG_WRITE;
	}
}

/* Asks for the next part: n bytes at addr under key. */
static int ask(struct soft_qp *q, const struct ibv_send_wr *wr,
	       struct soft_wqe *w, uint32_t key, uint64_t addr, size_t n,
	       uint32_t access)
{
	struct msg_buf b;
	struct msg *m = &b.m;
	int err;

	if (n > MSG_DATA)
		n = MSG_DATA;
	memset(m, 0, sizeof(*m));
	m->magic = MSG_MAGIC;
	m->op = op_of(wr);
	m->qpn = q->ex.qp_base.qp_num;
	m->seq = w->far_seq = ++q->far_seq;
	m->dest = q->attr.dest_qp_num;
	m->conn = q->far_conn;
	m->key = key;
	m->pd = q->far_pd;
	m->access = access;
	m->addr = addr;
	m->len = (uint32_t)n;
	if (m->op == MSG_WRITE)
		pieces(wr, w->far_done, (char *)b.data, n, false);
	if (m->op == MSG_CMP_SWP || m->op == MSG_FETCH_ADD) {
		m->a = wr->wr.atomic.compare_add;
		m->b = wr->wr.atomic.swap;
	}
	pthread_mutex_lock(&q->peer->lock);
	err = msg_send(q->peer->sock, m, m->op == MSG_WRITE ? n : 0, NULL, 0);
	pthread_mutex_unlock(&q->peer->lock);
	w->sent_no = err != 0; /* the timer tries again, or death comes */
	w->asked = !err;
	w->far_chunk = (uint32_t)n;
	return -SOFT_PARK_FAR;
}

/* 1: go on and ask; else what to return. */
static int answer_take(struct soft_wqe *w)
{
	if (!w)
		return -SOFT_PARK_FAR;
	if (w->asked && !w->answered)
		return -SOFT_PARK_FAR;
	if (!w->answered)
		return 1;
	w->asked = w->answered = false;
	if (w->far_status == -ENOTCONN)
		return IBV_WC_RETRY_EXC_ERR;
	if (w->far_status)
		return w->far_status == -EACCES ? IBV_WC_REM_ACCESS_ERR
						: IBV_WC_REM_OP_ERR;
	w->far_done += w->far_chunk;
	return 1;
}

int soft_far(struct soft_qp *q, const struct ibv_send_wr *wr,
	     struct soft_wqe *w, size_t len)
{
	bool atomic = op_of(wr) == MSG_CMP_SWP || op_of(wr) == MSG_FETCH_ADD;
	uint32_t access = IBV_ACCESS_REMOTE_WRITE;
	int r = answer_take(w);

	if (r != 1)
		return r;
	if (w->far_done >= len)
		return 0;
	if (atomic)
		return ask(q, wr, w, wr->wr.atomic.rkey,
			   wr->wr.atomic.remote_addr, 8,
			   IBV_ACCESS_REMOTE_ATOMIC);
	if (wr->opcode == IBV_WR_RDMA_READ)
		access = IBV_ACCESS_REMOTE_READ;
	return ask(q, wr, w, wr->wr.rdma.rkey,
		   wr->wr.rdma.remote_addr + w->far_done, len - w->far_done,
		   access);
}

int soft_far_send(struct soft_qp *q, const struct shm_slot *slot,
		  const struct ibv_send_wr *wr, struct soft_wqe *w, size_t len)
{
	uint32_t n = shm_once(slot->num_sge), i;
	uint64_t off;
	int r = answer_take(w);

	if (r == IBV_WC_REM_ACCESS_ERR)
		return IBV_WC_LOC_PROT_ERR; /* what the receiver is told */
	if (r != 1)
		return r;
	if (w->far_done >= len)
		return 0;
	off = w->far_done;
	for (i = 0; i < n && i < q->far_sges; i++) {
		struct shm_sge g = shm_sge_once(&slot->sge[i]);

		if (off >= g.len) {
			off -= g.len;
			continue;
		}
		if (len - w->far_done < g.len - off)
			g.len = (uint32_t)(len - w->far_done + off);
		return ask(q, wr, w, g.lkey, g.addr + off, g.len - off,
			   IBV_ACCESS_LOCAL_WRITE);
	}
	return IBV_WC_LOC_LEN_ERR;
}

void soft_far_answer(struct soft_qp *q, const struct msg *m,
		     const unsigned char *data, size_t len)
{
	struct soft_wqe *w;

	soft_qp_hold(q);
	/* the head; in harsh mode there may be some before it that have only
	 * to complete */
	for (w = q->parked; w && !w->asked; w = w->next)
		;
	if (!w || m->seq != w->far_seq)
		goto out;
	w->answered = true;
	w->far_status = m->status;
	if (m->status)
		goto out;
	if (m->op != (op_of(&w->wr) | MSG_REPLY)) {
		w->far_status = -EPROTO;
	} else if (m->op == (MSG_READ | MSG_REPLY)) {
		if (len == w->far_chunk)
			pieces(&w->wr, w->far_done, soft_ptr((uintptr_t)data),
			       len, true);
		else
			w->far_status = -EPROTO;
	} else if (m->op != (MSG_WRITE | MSG_REPLY)) {
		soft_scatter8(&w->wr, m->a);
	}
out:
	soft_qp_release(q);
}
