/* SPDX-License-Identifier: MIT */
/*
 * pool.c - a pool of this process: its objects on the device, and the calls.
 * See pool.h.
 */
#include "vqp/pool.h"

#include "base/prng.h"
#include "dev/states.h"
#include "env/local.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pool_addr_print(const uint8_t g[16], uint32_t port, char *buf, size_t len)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0,    0,
					   0, 0, 0, 0, 0xff, 0xff};
	bool v4 = !memcmp(g, mapped, sizeof(mapped));
	char host[INET6_ADDRSTRLEN];

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? g + 12 : g, host, sizeof(host));
	snprintf(buf, len, v4 ? "%s:%u" : "[%s]:%u", host, port);
}

#define POOL_ACCESS                                         \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define CQ_MAX (8 * POOL_SQ) /* requests outstanding at most */
#define GRH_LEN 40u	     /* before a datagram */
#define RECV_BATCH 16
#define RNR_RETRIES 6u /* 7: for ever */
/* Timeouts of RC queue pairs, five times before they give up: 1.3 s. But what
 * names a region is over after REGION_RETRY_NS: 0.3 s. */
#define PATIENT 16u
#define LINKED 14u
_Static_assert(5 * (4096ull << LINKED) <= REGION_RETRY_NS, "a lease's retries");
_Static_assert(5 * (4096ull << PATIENT) > VQP_RC_PATIENCE_NS,
	       "a probe lives for longer");

/* --- the engine's port -------------------------------------------------- */

/* All or nothing. libibverbs may take the first ones of a list and refuse the
 * next one: then the queue pair ends, and with it the rest of the list. */
static int rc_post(struct pool *p, struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = wr, mark = {.opcode = IBV_WR_RDMA_WRITE,
					      .send_flags = IBV_SEND_SIGNALED};
	int err = ibv_post_send(qp, wr, &bad);

	if (!err || bad == wr)
		return -err;
	mark.wr_id = bad->wr_id;
	(void)dev_qp_err(p->dev, qp);
	return -ibv_post_send(qp, &mark, &bad);
}

static bool is_asker(const struct pool *p, unsigned qp)
{
	return qp == p->n_dcis + 2 * p->n_rcs;
}

static struct ibv_qp **dci_at(struct pool *p, unsigned qp)
{
	return is_asker(p, qp) ? &p->asker : &p->dci[qp];
}

static int port_post(void *arg, unsigned dci, struct ibv_send_wr *wr,
		     unsigned n, const struct vqp_peer *to)
{
	struct pool *p = arg;

	(void)n;
	if (dci >= p->n_dcis && !is_asker(p, dci))
		return rc_post(p, p->rc[dci - p->n_dcis], wr);
	return p->dev->ops->post_dc(p->dev, *dci_at(p, dci), wr, to->way,
				    to->node.dctn, to->node.key);
}

static int port_poll(void *arg, int n, struct ibv_wc *wc)
{
	struct pool *p = arg;

	return ibv_poll_cq(p->scq, n, wc);
}

/* Soft and sim write the state at once, verbs with the event that says so. */
static bool port_broken(void *arg, unsigned qp)
{
	struct pool *p = arg;
	struct ibv_qp *q = qp < p->n_dcis ? p->dci[qp] : p->rc[qp - p->n_dcis];

	return __atomic_load_n(&q->state, __ATOMIC_ACQUIRE) == IBV_QPS_ERR;
}

static int dci_make(struct pool *p, struct ibv_qp **qp)
{
	struct ibv_qp_init_attr a = {.send_cq = p->scq,
				     .recv_cq = p->scq,
				     .cap = {.max_send_wr = POOL_SQ,
					     .max_send_sge = VQP_SGES + 1}};

	return p->dev->ops->create_dci(p->dev, p->ctx->pd, &a, &p->opts, qp);
}

static int port_replace(void *arg, unsigned dci)
{
	struct pool *p = arg;
	struct ibv_qp **qp = dci_at(p, dci);

	if (*qp) {
		p->dev->ops->destroy_qp(p->dev, *qp);
		*qp = NULL;
	}
	return dci_make(p, qp);
}

static int port_way(void *arg, const struct meta_node *n, void **way)
{
	struct dev_qp_addr to = {.qpn = n->dctn ? n->dctn : 1,
				 .mtu = IBV_MTU_4096};
	struct pool *p = arg;
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;
	int err;

	memcpy(&to.gid, n->gid, sizeof(n->gid));
	err = dev_ah_attr(p->dev, &to, NULL, &attr);
	if (!err)
		err = p->dev->ops->create_ah(p->dev, p->ctx->pd, &attr, &ah);
	if (!err)
		*way = ah;
	return err;
}

static bool is_under_way(const struct pool *p, const struct ibv_ah *ah)
{
	for (uint32_t i = p->ud_done; i != p->ud_sent; i++)
		if (p->ud_ah[i % POOL_UD] == ah)
			return true;
	return false;
}

/* An address handle outlives the datagrams that were posted with it. */
static void port_way_free(void *arg, void *way)
{
	struct pool *p = arg;

	if (is_under_way(p, way))
		p->late_ah[p->n_late_ah++] = way;
	else
		p->dev->ops->destroy_ah(p->dev, way);
}

/* The oldest datagram has left. */
static void datagram_done(struct pool *p)
{
	struct ibv_ah *ah = p->ud_ah[p->ud_done++ % POOL_UD];

	for (unsigned i = 0; i < p->n_late_ah; i++) {
		if (p->late_ah[i] != ah || is_under_way(p, ah))
			continue;
		p->late_ah[i] = p->late_ah[--p->n_late_ah];
		p->dev->ops->destroy_ah(p->dev, ah);
		return;
	}
}

static bool mem_has(const struct pool_mem *m, uint32_t lkey, uint64_t addr,
		    uint32_t len, bool write)
{
	uint64_t start = (uintptr_t)m->region->addr;

	return m->region->mr->lkey == lkey && (!write || m->write) &&
	       addr >= start && len <= m->region->len &&
	       addr - start <= m->region->len - len;
}

static bool port_local_ok(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
			  bool write)
{
	struct pool *p = arg;
	struct pool_mem *m;
	struct list_node *n;

	if (p->last && mem_has(p->last, lkey, addr, len, write))
		return true;
	list_for_each(n, &p->mems) {
		m = container_of(n, struct pool_mem, link);
		if (!mem_has(m, lkey, addr, len, write))
			continue;
		p->last = m;
		return true;
	}
	return false;
}

/* All memory is registered for READs. */
static bool port_rkey_of(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
			 uint32_t *rkey)
{
	struct pool *p = arg;

	if (!port_local_ok(arg, lkey, addr, len, false))
		return false;
	*rkey = p->last->region->mr->rkey;
	return true;
}

/* Peers READ the word: two bytes are not torn. */
static void port_bound(void *arg, uint16_t port, uint16_t domain)
{
	uint16_t *at = (uint16_t *)(void *)((uint8_t *)((struct pool *)arg)
						    ->table->addr +
					    REGION_PORTS_AT);

	__atomic_store_n(&at[port], htole16(domain), __ATOMIC_RELEASE);
}

/* --- messages ----------------------------------------------------------- */

static int recv_post(struct pool *p, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)p->bufs->addr + i * MSG_BUF, MSG_BUF,
			      p->bufs->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return -ibv_post_srq_recv(p->srq, &wr, &bad);
}

static int recv_round(struct pool *p)
{
	struct ibv_wc wc[RECV_BATCH];
	int n, i;

	p->receiving = true;
	n = ibv_poll_cq(p->rcq, RECV_BATCH, wc);
	for (i = 0; i < n; i++) {
		const uint8_t *buf = (const uint8_t *)p->bufs->addr +
				     wc[i].wr_id % POOL_RECVS * MSG_BUF;

		if (wc[i].status == IBV_WC_SUCCESS &&
		    wc[i].opcode == IBV_WC_RECV)
			vqp_engine_receive(&p->e, buf, wc[i].byte_len);
		else
			p->e.counts.garbage++;
		recv_post(p, wc[i].wr_id % POOL_RECVS);
	}
	p->receiving = false;
	return n > 0 ? n : 0;
}

/* --- RC queue pairs, and the datagrams about them ------------------------ */

static int port_rc_make(void *arg, unsigned rc, struct rc_addr *own)
{
	struct pool *p = arg;
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
				     .send_cq = p->scq,
				     .recv_cq = p->rcq,
				     .srq = p->srq,
				     .cap = {.max_send_wr = POOL_SQ,
					     .max_send_sge = VQP_SGES + 1}};
	const struct dev_ops *ops = p->dev->ops;
	struct dev_qp_addr at;
	struct ibv_qp *qp;
	int err;

	err = ops->create_qp(p->dev, p->ctx->pd, &a, 0, &qp);
	if (err)
		return err;
	err = dev_qp_init(p->dev, qp, POOL_ACCESS);
	if (err) {
		ops->destroy_qp(p->dev, qp);
		return err;
	}
	dev_qp_addr(p->dev, qp, (uint32_t)env_random_u64(p->env), &at);
	*own = (struct rc_addr){.qpn = at.qpn,
				.psn = at.psn,
				.mtu = at.mtu,
				.rd_atomic = at.rd_atomic};
	p->rc[rc] = qp;
	p->rc_psn[rc] = at.psn;
	return 0;
}

/* Has the device a longer timeout of its own to this peer? A cable between hosts
 * may be out for a moment. */
static bool is_linked(const struct pool *p, unsigned rc)
{
	struct dev_caps caps;

	dev_qp_caps(p->dev, p->rc[rc], &caps);
	return caps.timeout != 0;
}

static int port_rc_join(void *arg, unsigned rc, const struct rc_addr *far,
			const struct vqp_peer *peer)
{
	struct dev_qp_addr to = {.qpn = far->qpn,
				 .psn = far->psn,
				 .mtu = far->mtu,
				 .rd_atomic = far->rd_atomic};
	struct pool *p = arg;
	struct dev_qp_opts opts = p->opts;
	int err;

	/* It has one peer alone, and the engine ends the wait for a receive. */
	opts.rnr_retry = 7;
	opts.min_rnr_timer = 5;
	memcpy(&to.gid, peer->node.gid, sizeof(to.gid));
	err = dev_qp_rtr(p->dev, p->rc[rc], &to, &opts);
	if (err)
		return err;
	if (rc >= p->n_rcs)
		opts.timeout = PATIENT; /* its probes */
	else if (!p->retry_given && is_linked(p, rc))
		opts.timeout = p->raw ? PATIENT : LINKED;
	return dev_qp_rts(p->dev, p->rc[rc], p->rc_psn[rc], &to, &opts);
}

/* In ERR nothing more arrives. A device may drop what it has completed of a
 * queue pair that it destroys. */
static void arrived_take(struct pool *p, unsigned rc)
{
	if (rc < p->n_rcs || p->receiving || dev_qp_err(p->dev, p->rc[rc]))
		return;
	for (unsigned i = 0; i <= 2 * POOL_RECVS / RECV_BATCH; i++)
		if (!recv_round(p))
			return;
}

static void port_rc_free(void *arg, unsigned rc)
{
	struct pool *p = arg;

	if (!p->rc[rc])
		return;
	arrived_take(p, rc);
	p->dev->ops->destroy_qp(p->dev, p->rc[rc]);
	p->rc[rc] = NULL;
}

static int port_rc_probe(void *arg, unsigned rc)
{
	struct pool *p = arg;

	return p->dev->ops->probe ? p->dev->ops->probe(p->dev, p->rc[rc])
				  : -EOPNOTSUPP;
}

/* The Q_Key of a node's datagrams; the highest bit has a meaning of its own. */
static uint32_t qkey_of(const struct meta_node *n)
{
	return (uint32_t)n->key & 0x7fffffff;
}

static uint8_t *ud_buf(struct pool *p, uint32_t i)
{
	return (uint8_t *)p->ud_bufs->addr + (size_t)i * POOL_UD_BUF;
}

static int ud_recv_post(struct pool *p, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)ud_buf(p, (uint32_t)i), POOL_UD_BUF,
			      p->ud_bufs->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int err = -ibv_post_recv(p->ud, &wr, &bad);

	p->ud_recvs += !err;
	return err;
}

static int ud_start(struct pool *p)
{
	int err = dev_qp_ud(p->dev, p->ud, qkey_of(&p->own), 0);
	uint32_t i;

	for (i = 0; i < POOL_UD && !err; i++)
		err = ud_recv_post(p, i);
	return err;
}

/* It has failed, and all that was posted has ended. Peers know its number, so
 * it is used again, not another one. */
static void ud_restart(struct pool *p)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	if (p->dev->ops->modify_qp(p->dev, p->ud, &attr, IBV_QP_STATE) ||
	    ud_start(p))
		vqp_say(&p->e, 64,
			"vqp: the queue pair for datagrams has failed: RC "
			"queue pairs cannot be made");
}

static void datagram_take(struct pool *p, const struct ibv_wc *wc)
{
	p->ud_recvs--;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (wc->byte_len >= GRH_LEN)
		vqp_engine_datagram(&p->e,
				    ud_buf(p, (uint32_t)wc->wr_id) + GRH_LEN,
				    wc->byte_len - GRH_LEN);
	ud_recv_post(p, wc->wr_id);
}

static int ud_round(struct pool *p)
{
	struct ibv_wc wc[8];
	int n, i;

	n = ibv_poll_cq(p->ucq, 8, wc);
	for (i = 0; i < n; i++) {
		if (wc[i].wr_id >= POOL_UD)
			datagram_done(p);
		else
			datagram_take(p, &wc[i]);
	}
	if (!p->ud_recvs && p->ud_done == p->ud_sent)
		ud_restart(p);
	return n > 0 ? n : 0;
}

static void port_tell(void *arg, const struct vqp_peer *to, const uint8_t *msg)
{
	struct pool *p = arg;
	uint32_t i = POOL_UD + p->ud_sent % POOL_UD;
	struct ibv_sge sge = {(uintptr_t)ud_buf(p, i), RC_MSG,
			      p->ud_bufs->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = POOL_UD,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (p->ud_sent - p->ud_done == POOL_UD)
		return; /* the engine tells it again */
	memcpy(ud_buf(p, i), msg, RC_MSG);
	wr.wr.ud.ah = to->way;
	wr.wr.ud.remote_qpn = to->node.udqpn;
	wr.wr.ud.remote_qkey = qkey_of(&to->node);
	if (!ibv_post_send(p->ud, &wr, &bad))
		p->ud_ah[p->ud_sent++ % POOL_UD] = to->way;
}

static int ud_make(struct pool *p)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_UD,
				     .cap = {.max_send_wr = POOL_UD,
					     .max_recv_wr = POOL_UD,
					     .max_send_sge = 1,
					     .max_recv_sge = 1}};
	const struct dev_ops *ops = p->dev->ops;
	int err;

	err = mem_region_new(p->dev, p->ctx->pd, "vqp-datagrams",
			     (size_t)2 * POOL_UD * POOL_UD_BUF,
			     IBV_ACCESS_LOCAL_WRITE, 0, &p->ud_bufs);
	if (!err)
		err = ops->create_cq(p->dev, 2 * POOL_UD, NULL, p->channel,
				     &p->ucq);
	if (err)
		return err;
	a.send_cq = a.recv_cq = p->ucq;
	err = ops->create_qp(p->dev, p->ctx->pd, &a, 0, &p->ud);
	return err ? err : ud_start(p);
}

/* On soft, processes of one host alone have DC between them. */
static bool port_has_dc(void *arg, const struct meta_node *n)
{
	struct pool *p = arg;
	struct dev_caps far;
	struct dev_gid gid;
	int i;

	dev_qp_caps(p->dev, NULL, &far);
	if (far.dc || !memcmp(n->gid, p->own.gid, sizeof(n->gid)))
		return true;
	for (i = 0; i < p->dev->port_attr.gid_tbl_len; i++)
		if (!p->dev->ops->query_gid(p->dev, p->dev->port, i, &gid) &&
		    !memcmp(n->gid, &gid.gid, sizeof(n->gid)))
			return true;
	return false;
}

static int port_meta_read(void *arg, unsigned server, const uint32_t place[2],
			  uint64_t token)
{
	return publish_look(arg, server, place, token);
}

static void *port_alloc(void *arg, size_t len)
{
	return env_alloc(((struct pool *)arg)->env, len);
}

static void port_free(void *arg, void *mem)
{
	env_free(((struct pool *)arg)->env, mem);
}

static void port_log(void *arg, const char *line)
{
	env_log(((struct pool *)arg)->env, ENV_LOG_WARN, "%s", line);
}

static const struct vqp_port pool_port = {
	.post = port_post,
	.poll = port_poll,
	.broken = port_broken,
	.replace = port_replace,
	.way = port_way,
	.way_free = port_way_free,
	.local_ok = port_local_ok,
	.rkey_of = port_rkey_of,
	.bound = port_bound,
	.alloc = port_alloc,
	.free = port_free,
	.log = port_log,
	.rc_make = port_rc_make,
	.rc_join = port_rc_join,
	.rc_free = port_rc_free,
	.rc_probe = port_rc_probe,
	.tell = port_tell,
	.has_dc = port_has_dc,
	.meta_read = port_meta_read,
};

/* --- rounds ------------------------------------------------------------- */

static void mem_free(struct pool_mem *m)
{
	struct pool *p = pool_of(m->base.pool);

	list_del(&m->link);
	if (m->counted)
		*m->counted -= m->region->len;
	if (m->held)
		--*m->held;
	mem_region_free(m->region);
	env_free(p->env, m);
}

/* Does a request that waits in software name it, or (posted) any? The memory's
 * owner may be another process, which promises nothing. */
static bool mem_waited(struct pool *p, const struct pool_mem *m, bool posted)
{
	const struct vqp_slot *s;
	uint32_t i;
	int k;

	for (i = 0; i < VQP_SLOTS; i++) {
		s = &p->e.slots[i];
		if (!(s->v && !s->posted) && !(s->posted && posted))
			continue;
		for (k = 0; k < s->wr.num_sge + s->pieces; k++)
			if (s->sge[k].lkey == m->base.lkey)
				return true;
	}
	return false;
}

static void leases_end(struct pool *p, uint64_t now_ns)
{
	struct pool_mem *m;

	while (!list_empty(&p->leased)) {
		m = container_of(p->leased.next, struct pool_mem, link);
		if (now_ns < m->keep_ns)
			break;
		if (now_ns != UINT64_MAX && mem_waited(p, m, false)) {
			m->keep_ns = now_ns + REGION_KEEP_NS;
			list_del(&m->link);
			list_add_tail(&p->leased, &m->link);
			continue;
		}
		mem_free(m);
	}
}

int pool_round(struct pool *p)
{
	uint64_t now = env_now_ns(p->env);
	int moved;

	vqp_engine_at(&p->e, now); /* for messages and datagrams */
	moved = recv_round(p);
	if (p->ud)
		moved += ud_round(p);
	moved += vqp_engine_round(&p->e, now);
	leases_end(p, now);
	publish_round(p, now);
	p->moved |= moved != 0;
	return moved;
}

/* --- sleeping ----------------------------------------------------------- */

#define SOON_NS SKEIN_MS(1)   /* something is under way that no event ends */
#define LATER_NS SKEIN_MS(10) /* something waits, perhaps for a retry */
#define REST_NS SKEIN_MS(100)

int pool_notify(struct pool *p)
{
	int err = dev_req_notify_cq(p->scq, 0);

	if (!err)
		err = dev_req_notify_cq(p->rcq, 0);
	if (!err && p->ucq)
		err = dev_req_notify_cq(p->ucq, 0);
	return err;
}

uint64_t pool_due(const struct pool *p, uint64_t now_ns)
{
	const struct vqp_engine *e = &p->e;
	const struct publish *u = p->publish;
	uint64_t wait = REST_NS, due;
	unsigned i;

	if (!list_empty(&e->busy) || !list_empty(&e->closing))
		wait = LATER_NS;
	if (!list_empty(&e->lookups) || !list_empty(&e->want_rc))
		wait = SOON_NS;
	if (!list_empty(&e->lookups) && e->conf.lookup_wait_ns < wait)
		wait = e->conf.lookup_wait_ns;
	due = now_ns + wait;
	for (i = 0; i < p->n_publish; i++, u++) {
		if (u->step != PUBLISH_REST && u->step != PUBLISH_LOST &&
		    due > now_ns + SOON_NS)
			due = now_ns + SOON_NS;
		if (u->due_ns < due)
			due = u->due_ns;
	}
	return due;
}

void channel_drain(struct dev *dev, struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq;

	while (!dev->ops->get_cq_event(dev, ch, &cq))
		dev->ops->ack_cq_events(dev, cq, 1);
}

/* --- open and close ----------------------------------------------------- */

static int memory_make(struct pool *p)
{
	int err;

	err = mem_region_new(p->dev, p->ctx->pd, "vqp-cells",
			     (size_t)VQP_SLOTS * VQP_CELL,
			     IBV_ACCESS_LOCAL_WRITE, 0, &p->cells);
	if (!err)
		err = mem_region_new(p->dev, p->ctx->pd, "vqp-words",
				     VQP_SLOTS * sizeof(uint64_t),
				     IBV_ACCESS_REMOTE_READ, 0, &p->words);
	if (!err)
		err = mem_region_new(p->dev, p->ctx->pd, "vqp-messages",
				     (size_t)POOL_RECVS * MSG_BUF,
				     IBV_ACCESS_LOCAL_WRITE, 0, &p->bufs);
	if (!err)
		err = mem_region_new(
			p->dev, p->ctx->pd, "vqp-regions", REGION_TABLE_LEN,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0,
			&p->table);
	return err;
}

static int objects_make(struct pool *p, uint64_t key)
{
	struct ibv_srq_init_attr a = {
		.attr = {.max_wr = POOL_RECVS, .max_sge = 1}};
	const struct dev_ops *ops = p->dev->ops;
	unsigned i;
	int err;

	err = ops->create_cq(p->dev, (int)(2 * CQ_MAX), NULL, p->channel,
			     &p->scq);
	if (!err)
		err = ops->create_cq(p->dev, 2 * POOL_RECVS, NULL, p->channel,
				     &p->rcq);
	if (!err)
		err = ops->create_srq(p->dev, p->ctx->pd, &a, &p->srq);
	if (!err && p->n_dcis)
		err = ops->create_dct(p->dev, p->ctx->pd, p->rcq, p->srq, key,
				      POOL_ACCESS, &p->opts, &p->dct);
	if (!err && p->n_rcs)
		err = ud_make(p);
	for (i = 0; i < p->n_dcis && !err; i++)
		err = dci_make(p, &p->dci[i]);
	for (i = 0; i < POOL_RECVS && !err; i++)
		err = recv_post(p, i);
	return err;
}

static void opts_fill(struct pool *p, uint64_t retry_ns)
{
	uint64_t each = (retry_ns ? retry_ns : 20000000) / 5;
	uint8_t t = 0;

	while (t < 31 && (4096ull << t) < each)
		t++;
	/* Memory is kept for no longer than that. */
	while (5 * (4096ull << t) > REGION_RETRY_NS)
		t--;
	p->opts = (struct dev_qp_opts){.timeout = t ? t : 1,
				       .retry_cnt = 4,
				       .rnr_retry = RNR_RETRIES,
				       .min_rnr_timer = 1};
	/* A peer without a receive is waited for as long. Its codes are in
	 * order, but for 0. */
	while (p->opts.min_rnr_timer < 31 &&
	       RNR_RETRIES * dev_rnr_ns(p->opts.min_rnr_timer) < 5 * each)
		p->opts.min_rnr_timer++;
	while (RNR_RETRIES * dev_rnr_ns(p->opts.min_rnr_timer) >
	       REGION_RETRY_NS)
		p->opts.min_rnr_timer--;
}

/* RC queue pairs at most. */
static unsigned rcs_of(const struct pool *p, const struct skein_pool_attr *a)
{
	unsigned fast = p->dev->caps.qp_fast / 2;

	if (a->rcs == SKEIN_POOL_NO_RCS || !p->dev->caps.ud)
		return 0;
	if (a->rcs)
		return a->rcs;
	if (!fast)
		fast = POOL_RCS_DEFAULT;
	return fast < VQP_RCS_MAX ? fast : VQP_RCS_MAX;
}

static int pool_up(struct pool *p, const struct skein_pool_attr *a)
{
	struct meta_node *own = &p->own;
	struct vqp_conf c = {.port = &pool_port, .arg = p};
	const char *meta = a->meta ? a->meta : getenv("SKEIN_META");
	uint32_t i;
	int err;

	p->n_dcis = a->dcis ? a->dcis : 8;
	p->n_rcs = rcs_of(p, a);
	if (p->n_dcis > VQP_DCIS_MAX || p->n_rcs > VQP_RCS_MAX ||
	    a->retry_ns > REGION_RETRY_NS)
		return -ERANGE;
	if (!p->dev->caps.dc)
		p->n_dcis = 0;
	opts_fill(p, a->retry_ns);
	p->retry_given = a->retry_ns != 0;
	memcpy(own->gid, p->dev->gid.gid.raw, sizeof(own->gid));
	own->port = a->node_port;
	own->key = env_random_u64(p->env);
	own->incarnation = env_random_u64(p->env);
	err = memory_make(p);
	if (!err)
		err = objects_make(p, own->key);
	if (err)
		return err;
	own->dctn = p->dct ? p->dct->qp_num : 0;
	own->udqpn = p->ud ? p->ud->qp_num : 0;
	own->table = (uintptr_t)p->table->addr;
	own->table_rkey = p->table->mr->rkey;
	/* An id of an earlier pool matches no region, except by chance. */
	for (i = 0; i < REGION_PLACES; i++)
		p->place[i].gen = (uint16_t)prng_mix(own->key + i);
	while (!own->port)
		own->port = 1024 + env_random_u64(p->env) % 64512;
	c.dcis = p->n_dcis;
	c.rcs = p->n_rcs;
	c.sq_max = POOL_SQ;
	c.cq_max = CQ_MAX;
	c.cells = p->cells->addr;
	c.cells_lkey = p->cells->mr->lkey;
	c.words = p->words->addr;
	c.words_rkey = p->words->mr->rkey;
	c.self = *own;
	c.lookup_wait_ns = a->meta_wait_ns;
	err = vqp_engine_init(&p->e, &c);
	if (err)
		return err;
	p->engine_up = true;
	err = publish_open(p, meta ? meta : META_DEFAULT, !a->node_port,
			   a->timeout_ns ? a->timeout_ns : SKEIN_S(5));
	p->e.conf.self = *own; /* its number may have changed */
	pool_addr_print(own->gid, own->port, p->base.addr,
			sizeof(p->base.addr));
	return err;
}

void pool_free(struct pool *p)
{
	const struct dev_ops *ops = p->dev->ops;
	struct pool_vqp *v;
	unsigned i;

	publish_close(p);
	while (!list_empty(&p->vqps)) {
		v = container_of(p->vqps.next, struct pool_vqp, link);
		list_del(&v->link);
		env_free(p->env, v);
	}
	/* First the QPs: then no request of this pool is under way. */
	for (i = 0; i < p->n_dcis; i++)
		if (p->dci[i])
			ops->destroy_qp(p->dev, p->dci[i]);
	if (p->asker)
		ops->destroy_qp(p->dev, p->asker);
	if (p->dct)
		ops->destroy_qp(p->dev, p->dct);
	if (p->engine_up)
		vqp_engine_fini(&p->e);
	if (p->ud)
		ops->destroy_qp(p->dev, p->ud);
	while (p->n_late_ah)
		ops->destroy_ah(p->dev, p->late_ah[--p->n_late_ah]);
	if (p->ucq)
		ops->destroy_cq(p->dev, p->ucq);
	if (p->srq)
		ops->destroy_srq(p->dev, p->srq);
	if (p->rcq)
		ops->destroy_cq(p->dev, p->rcq);
	if (p->scq)
		ops->destroy_cq(p->dev, p->scq);
	leases_end(p, UINT64_MAX);
	while (!list_empty(&p->mems))
		mem_free(container_of(p->mems.next, struct pool_mem, link));
	if (p->table)
		mem_region_free(p->table);
	if (p->cells)
		mem_region_free(p->cells);
	if (p->words)
		mem_region_free(p->words);
	if (p->bufs)
		mem_region_free(p->bufs);
	if (p->ud_bufs)
		mem_region_free(p->ud_bufs);
	pool_fd_close(&p->fd);
	if (p->owns_channel)
		ops->destroy_comp_channel(p->dev, p->channel);
	env_mutex_fini(p->env, &p->lock);
	env_free(p->env, p);
}

static bool waits(const struct pool *p)
{
	const struct vqp_engine *e = &p->e;

	return !list_empty(&e->busy) || !list_empty(&e->closing) ||
	       !list_empty(&e->lookups) || !list_empty(&e->want_rc);
}

/* -SKEIN_EFORKED, or 0 with the lock. */
static int enter(struct pool *p)
{
	if (ctx_forked(p->ctx))
		return -SKEIN_EFORKED;
	env_mutex_lock(p->env, &p->lock);
	return 0;
}

/* What this call has moved may be for another thread, which sleeps. What waits now
 * may need a round before that thread's timer. */
static void leave(struct pool *p)
{
	if (p->fd.armed && (p->moved || p->seen != p->e.events || waits(p)))
		pool_fd_wake(&p->fd);
	p->moved = false;
	p->seen = p->e.events;
	env_mutex_unlock(p->env, &p->lock);
}

static int progress(struct skein_pool *base)
{
	struct pool *p = pool_of(base);
	int err = enter(p);

	if (err)
		return err;
	err = pool_round(p);
	leave(p);
	return err;
}

static int fd_of(struct skein_pool *base)
{
	struct pool *p = pool_of(base);
	int rc = enter(p);

	if (rc)
		return rc;
	rc = pool_fd_get(&p->fd, p->env, p->channel->fd, true);
	leave(p);
	return rc;
}

/* pool_fd.h */
static int arm_locked(struct pool *p)
{
	uint64_t now;
	int err;

	if (pool_round(p) || vqp_any_ready(&p->e))
		return 1;
	if (pool_fd_empty(&p->fd, p->channel->fd))
		channel_drain(p->dev, p->channel);
	err = pool_notify(p);
	if (err)
		return err;
	/* A completion before the request makes no event; a vqp that fails by time
	 * counts as nothing that has moved. */
	if (pool_round(p) || vqp_any_ready(&p->e))
		return 1;
	now = env_now_ns(p->env);
	pool_fd_due(&p->fd, now, pool_due(p, now));
	return 0;
}

static int arm(struct skein_pool *base)
{
	struct pool *p = pool_of(base);
	int err = enter(p);

	if (err)
		return err;
	/* What moves here is looked at here; pool_due() knows of what waits. */
	err = p->fd.w ? arm_locked(p) : -EINVAL;
	if (err)
		leave(p); /* other threads may sleep */
	else
		env_mutex_unlock(p->env, &p->lock);
	return err;
}

static void stats(struct skein_pool *base, struct skein_pool_stats *st)
{
	struct pool *p = pool_of(base);
	const struct vqp_counts *c = &p->e.counts;
	struct skein_pool_stats s = {.size = sizeof(s)};
	unsigned i;

	if (enter(p))
		return;
	s.lookups = c->lookups;
	s.lookups_torn = c->lookups_torn;
	s.cache_hits = c->cache_hits;
	s.posts = c->posts;
	s.requests = c->requests;
	s.dcis_replaced = c->dcis_replaced;
	s.reposted = c->reposted;
	s.garbage = c->garbage;
	s.dropped = c->dropped;
	for (i = 0; i < p->n_publish; i++)
		s.publishes += p->publish[i].count;
	s.region_reads = c->region_reads;
	s.rcs_made = c->rcs_made;
	s.rcs_busy = c->rcs_busy;
	s.rcs_reclaimed = c->rcs_reclaimed;
	s.rcs_refused = c->rcs_refused;
	s.rcs_failed = c->rcs_failed;
	s.transfers = c->transfers;
	s.announced = c->announced;
	s.fetched = c->fetched;
	s.refusals = c->refusals;
	leave(p);
	/* It fails for a wrong size, and writes nothing then. */
	(void)ctx_struct_fill(st, sizeof(size_t), &s, sizeof(s));
}

/* --- memory ------------------------------------------------------------- */

/* Also of memory without remote rights: announced messages are READ out of it,
 * by engines, which have its key from the announcement alone. */
#define MEM_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)
#define REMOTE_RIGHTS                                       \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

static uint8_t *record_of(struct pool *p, uint32_t place)
{
	return (uint8_t *)p->table->addr + (size_t)place * REGION_RECORD;
}

/* Peers may READ the record at any moment: its checksum shows a torn one. */
static int region_publish(struct pool *p, struct pool_mem *m, unsigned access,
			  uint16_t domain, uint32_t was)
{
	struct region_record r = {.addr = (uintptr_t)m->region->addr,
				  .len = m->region->len,
				  .rkey = m->region->mr->rkey,
				  .access = access & REMOTE_RIGHTS,
				  .domain = domain};
	uint32_t i = region_place(was);

	if (!r.access)
		return 0;
	if (!i || i >= REGION_PLACES || p->place[i].used)
		for (i = 1; i < REGION_PLACES && p->place[i].used; i++)
			;
	if (i == REGION_PLACES)
		return -ENOSPC;
	do
		p->place[i].gen++;
	while (!p->place[i].gen || p->place[i].gen == was >> 16);
	p->place[i].used = true;
	m->base.id = r.id = (uint32_t)p->place[i].gen << 16 | i;
	region_encode(&r, record_of(p, i));
	return 0;
}

/* Takes the region over if it returns 0. */
static int mem_add(struct pool *p, struct mem_region *region, unsigned access,
		   uint16_t domain, uint32_t was, struct pool_mem **mem)
{
	struct pool_mem *m = env_alloc(p->env, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->region = region;
	m->base.pool = &p->base;
	m->base.addr = m->region->addr;
	m->base.raddr = (uintptr_t)m->region->addr;
	m->base.lkey = m->region->mr->lkey;
	m->write = true;
	err = region_publish(p, m, access, domain, was);
	if (err) {
		env_free(p->env, m);
		return err;
	}
	list_add_tail(&p->mems, &m->link);
	*mem = m;
	return 0;
}

int pool_mem_make(struct pool *p, size_t len, unsigned access, uint16_t domain,
		  struct pool_mem **mem)
{
	struct mem_region *region;
	int err;

	err = mem_region_new(p->dev, p->ctx->pd, "vqp", len,
			     (int)access | MEM_ACCESS, 0, &region);
	if (err)
		return err;
	err = mem_add(p, region, access, domain, 0, mem);
	if (err)
		mem_region_free(region);
	return err;
}

int pool_mem_adopt(struct pool *p, int fd, size_t len, unsigned access,
		   uint16_t domain, uint32_t was, struct pool_mem **mem)
{
	struct mem_region *region;
	void *addr;
	int err;

	err = local_fill(fd, len);
	if (!err)
		err = local_map(fd, len, true, &addr);
	if (err)
		return err;
	err = mem_region_adopt(p->dev, p->ctx->pd, fd, addr, len,
			       (int)access | MEM_ACCESS, 0, &region);
	if (err) {
		local_unmap(addr, len);
		return err;
	}
	err = mem_add(p, region, access, domain, was, mem);
	if (err) {
		region->fd = -1; /* the caller's */
		mem_region_free(region);
		local_unmap(addr, len);
	}
	return err;
}

void pool_mem_retire(struct pool_mem *m)
{
	struct pool *p = pool_of(m->base.pool);

	if (p->last == m)
		p->last = NULL;
	if (m->base.id) {
		memset(record_of(p, region_place(m->base.id)), 0,
		       REGION_RECORD);
		p->place[region_place(m->base.id)].used = false;
	}
	m->keep_ns = env_now_ns(p->env) + REGION_KEEP_NS;
	list_del(&m->link);
	list_add_tail(&p->leased, &m->link);
}

static int mem_new(struct skein_pool *base, size_t len, unsigned access,
		   struct skein_vqp_mem **mem)
{
	struct pool *p = pool_of(base);
	struct pool_mem *m;
	int err = enter(p);

	if (err)
		return err;
	err = pool_mem_make(p, len, access, 0, &m);
	if (!err)
		*mem = &m->base;
	leave(p);
	return err;
}

static void mem_end(struct skein_vqp_mem *base)
{
	struct pool_mem *m = container_of(base, struct pool_mem, base);
	struct pool *p = pool_of(base->pool);

	if (enter(p))
		return;
	if (p->last == m)
		p->last = NULL;
	/* A message may be READ into it that its program knows nothing of. */
	if (base->id || mem_waited(p, m, true))
		pool_mem_retire(m);
	else
		mem_free(m);
	leave(p);
}

/* --- vqps --------------------------------------------------------------- */

static struct pool_vqp *handle_of(struct skein_vqp *vqp)
{
	return container_of(vqp, struct pool_vqp, base);
}

static struct pool_vqp *handle_new(struct pool *p, struct vqp *v)
{
	struct pool_vqp *h = env_alloc(p->env, sizeof(*h));

	if (!h)
		return NULL;
	verbs_vqp_init(&h->base, &p->base, v->id, v->state == VQP_CONNECTED);
	h->v = v;
	v->front = h;
	v->ours = false;
	list_add_tail(&p->vqps, &h->link);
	return h;
}

static int new (struct skein_pool *base, struct skein_vqp **vqp)
{
	struct pool *p = pool_of(base);
	struct pool_vqp *h = NULL;
	struct vqp *v;
	int err = enter(p);

	if (err)
		return err;
	err = vqp_new(&p->e, &v);
	if (!err) {
		h = handle_new(p, v);
		if (!h)
			vqp_free(v);
	}
	leave(p);
	if (err || !h)
		return -ENOMEM;
	*vqp = &h->base;
	return 0;
}

static void end(struct skein_vqp *vqp)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);

	if (enter(p))
		return;
	vqp_engine_at(&p->e, env_now_ns(p->env));
	vqp_close(h->v);
	/* The pool may be closed next. */
	vqp_pump(&p->e);
	list_del(&h->link);
	env_free(p->env, h);
	leave(p);
}

static int connect_to(struct skein_vqp *vqp, const uint8_t gid[16],
		      uint32_t node_port, uint16_t port, uint64_t timeout_ns)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	uint64_t deadline;
	int err;

	err = enter(p);
	if (err)
		return err;
	vqp_engine_at(&p->e, env_now_ns(p->env));
	deadline = env_deadline(p->e.now_ns, timeout_ns);
	err = vqp_connect(h->v, gid, node_port, port);
	while (err == -EINPROGRESS) {
		pool_round(p);
		if (h->v->state != VQP_LOOKS_UP) {
			err = 0;
		} else if (env_now_ns(p->env) >= deadline) {
			err = vqp_connect_stop(h->v);
		} else {
			leave(p);
			env_yield(p->env);
			env_mutex_lock(p->env, &p->lock);
		}
	}
	if (err == -EHOSTUNREACH || err == -ENETUNREACH)
		publish_say(p, gid, node_port, err);
	leave(p);
	return err;
}

static int bind_to(struct skein_vqp *vqp, uint16_t port)
{
	struct pool *p = pool_of(vqp->pool);
	int err = enter(p);

	if (err)
		return err;
	err = vqp_bind(handle_of(vqp)->v, port);
	leave(p);
	return err;
}

static bool msg_fill(struct pool *p, const struct vqp_pop_out *in,
		     struct skein_vqp_msg *out)
{
	struct pool_vqp *from = in->from->front;

	if (!from)
		from = handle_new(p, in->from);
	*out = (struct skein_vqp_msg){.from = from ? &from->base : NULL,
				      .wr_id = in->wr_id,
				      .len = in->len,
				      .imm = in->imm,
				      .with_imm = in->with_imm,
				      .status = in->status};
	if (!from)
		out->status = -ENOMEM;
	return true;
}

static int pop(struct skein_vqp *vqp, unsigned n, struct skein_vqp_msg *msgs)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	struct vqp_pop_out m;
	unsigned got = 0;
	int err = enter(p);

	if (err)
		return err;
	if (h->v->state != VQP_BOUND) {
		leave(p);
		return -EINVAL;
	}
	pool_round(p);
	while (got < n && vqp_pop(h->v, &m) && msg_fill(p, &m, &msgs[got]))
		got++;
	leave(p);
	return (int)got;
}

static int post_send(struct skein_vqp *vqp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	int err;

	err = enter(p);
	if (err)
		return err;
	vqp_engine_at(&p->e, env_now_ns(p->env));
	err = vqp_post_send(h->v, wr, bad);
	leave(p);
	return err;
}

static int post_recv(struct skein_vqp *vqp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	int err;

	err = enter(p);
	if (err)
		return err;
	err = vqp_post_recv(h->v, wr, bad);
	leave(p);
	return err;
}

static int poll_it(struct skein_vqp *vqp, int n, struct ibv_wc *wc)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	int got = enter(p);

	if (got)
		return got;
	pool_round(p);
	got = vqp_poll(h->v, n, wc);
	leave(p);
	return got;
}

#define CLOSE_NS SKEIN_S(1)

/* Frees its vqps, and sends what they still have to say, above all their ends: a
 * peer that hears no end keeps its vqp. No longer than CLOSE_NS. */
static void vqps_end(struct pool *p)
{
	uint64_t deadline = env_deadline(env_now_ns(p->env), CLOSE_NS);
	struct pool_vqp *h;

	env_mutex_lock(p->env, &p->lock);
	vqp_engine_at(&p->e, env_now_ns(p->env));
	while (!list_empty(&p->vqps)) {
		h = container_of(p->vqps.next, struct pool_vqp, link);
		vqp_close(h->v);
		list_del(&h->link);
		env_free(p->env, h);
	}
	while (!list_empty(&p->e.closing) && p->e.now_ns < deadline)
		if (!pool_round(p))
			env_yield(p->env);
	env_mutex_unlock(p->env, &p->lock);
}

static void close_it(struct skein_pool *base)
{
	vqps_end(pool_of(base));
	pool_free(pool_of(base));
}

static const struct vqp_front pool_front = {
	.close = close_it,
	.progress = progress,
	.fd = fd_of,
	.arm = arm,
	.stats = stats,
	.mem_new = mem_new,
	.mem_free = mem_end,
	.vqp_new = new,
	.vqp_free = end,
	.connect = connect_to,
	.bind = bind_to,
	.pop = pop,
	.post_send = post_send,
	.post_recv = post_recv,
	.poll = poll_it,
};

int pool_make(struct skein_ctx *ctx, const struct skein_pool_attr *a,
	      struct ibv_comp_channel *channel, struct skein_engine *eng,
	      struct pool **pool)
{
	const struct dev_caps *c = &ctx->dev->caps;
	struct pool *p;
	int err;

	if (!c->srq || (!c->dc && (!c->ud || a->rcs == SKEIN_POOL_NO_RCS))) {
		env_log(ctx->env, ENV_LOG_ERROR, "vqp: %s has no %s",
			ctx->device,
			c->srq ? "dynamically connected transport (DC), and RC "
				 "queue pairs need UD ones"
			       : "shared receive queues");
		return -EOPNOTSUPP;
	}
	p = env_alloc(ctx->env, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->ctx = ctx;
	p->env = ctx->env;
	p->dev = ctx->dev;
	p->channel = channel;
	p->eng = eng;
	p->base.front = &pool_front;
	p->base.env = ctx->env;
	verbs_pool_init(&p->base);
	memcpy(p->base.gid, p->dev->gid.gid.raw, 16);
	env_mutex_init(p->env, &p->lock);
	list_init(&p->mems);
	list_init(&p->leased);
	list_init(&p->vqps);
	err = pool_up(p, a);
	if (err) {
		pool_free(p);
		return err;
	}
	*pool = p;
	return 0;
}

int pool_embed(struct skein_ctx *ctx, const struct skein_pool_attr *a,
	       struct skein_pool **pool)
{
	const struct dev_ops *ops = ctx->dev->ops;
	struct ibv_comp_channel *channel;
	struct pool *p;
	int err;

	err = ops->create_comp_channel(ctx->dev, &channel);
	if (err)
		return err;
	err = pool_make(ctx, a, channel, NULL, &p);
	if (err) {
		ops->destroy_comp_channel(ctx->dev, channel);
		return err;
	}
	p->owns_channel = true;
	*pool = &p->base;
	return 0;
}
