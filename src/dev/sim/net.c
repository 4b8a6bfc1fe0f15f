/* SPDX-License-Identifier: MIT */
/*
 * net.c - NICs, their units and caches, and the network between them.
 *
 * A message is one object here, however many packets it has: it holds a cable
 * for the time of all its packets. A station passes a message on when it has
 * `cut` bytes of it, so stations overlap. m->tail is the time at which the last
 * byte reaches the sending station; the station cannot finish earlier.
 */
#include "dev/sim/link.h"
#include "dev/sim/sim_dev.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BITS 21 /* a translation covers 2 MiB */
#define TAG_WIRE 16u

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* --- NICs -------------------------------------------------------------- */

static void msgs_free(struct sim_net *net, struct list_node *head)
{
	struct list_node *n, *tmp;

	list_for_each_safe(n, tmp, head) {
		struct sim_msg *m = container_of(n, struct sim_msg, link);

		sim_cancel(net->w, &m->ev);
		free(m->data);
		free(m);
	}
}

static void net_fini(void *arg)
{
	struct sim_net *net = arg;
	struct list_node *n, *tmp;

	msgs_free(net, &net->live);
	msgs_free(net, &net->spare);
	list_for_each_safe(n, tmp, &net->nics) {
		struct sim_nic *nic = container_of(n, struct sim_nic, link);

		lru_fini(&nic->ctx);
		lru_fini(&nic->mtt);
		free(nic->qps);
		free(nic->mrs);
		free(nic);
	}
	free(net->rack);
	free(net);
}

struct sim_net *sim_net_of(struct sim_world *w)
{
	struct sim_net *net = sim_net(w);

	if (net)
		return net;
	net = calloc(1, sizeof(*net));
	skein_assert(net);
	net->w = w;
	skein_assert(!nic_model_find("connectx5", &net->model));
	list_init(&net->nics);
	list_init(&net->spare);
	list_init(&net->live);
	net->send_wr_max = SIM_WR_MAX;
	sim_prng(w, 0x6e6574, &net->loss_rng);
	sim_set_net(w, net, net_fini);
	return net;
}

static void trace_nic(struct sim_nic *nic)
{
	struct sim_world *w = nic->net->w;
	char name[24];

	if (!sim_tracing(w))
		return;
	sim_trace_name(w, nic->id, SIM_TRACK_REQUESTS, "NIC: requests");
	sim_trace_name(w, nic->id, SIM_TRACK_EGRESS, "NIC: cable out");
	sim_trace_name(w, nic->id, SIM_TRACK_PORT, "switch: cable in");
	for (unsigned i = 0; i < nic->net->model.units; i++) {
		snprintf(name, sizeof(name), "NIC: unit %u", i);
		sim_trace_name(w, nic->id, SIM_TRACK_UNITS + i, name);
	}
}

void sim_nic_span(struct sim_nic *nic, uint32_t track, const char *name,
		  uint64_t begin, uint64_t end)
{
	struct sim_span span = {.name = name,
				.node = nic->id,
				.track = track,
				.begin = begin,
				.end = end};

	if (sim_tracing(nic->net->w))
		sim_trace(nic->net->w, &span);
}

static struct sim_nic *nic_new(struct sim_net *net, struct sim_node *node)
{
	struct sim_nic *nic = calloc(1, sizeof(*nic));

	if (!nic)
		return NULL;
	nic->net = net;
	nic->node = node;
	nic->id = sim_node_id(node);
	if (lru_init(&nic->ctx, net->model.ctx_entries))
		goto err_nic;
	if (lru_init(&nic->mtt, net->model.mr_entries))
		goto err_ctx;
	list_add_tail(&net->nics, &nic->link);
	trace_nic(nic);
	return nic;

err_ctx:
	lru_fini(&nic->ctx);
err_nic:
	free(nic);
	return NULL;
}

struct sim_nic *sim_nic_of(struct sim_node *node)
{
	struct sim_net *net = sim_net_of(sim_node_world(node));
	struct list_node *n;

	list_for_each(n, &net->nics) {
		struct sim_nic *nic = container_of(n, struct sim_nic, link);

		if (nic->node == node)
			return nic;
	}
	return nic_new(net, node);
}

/* ::ffff:10.x.y.z, RoCEv2 over IPv4 */
void sim_nic_gid(const struct sim_nic *nic, union ibv_gid *gid)
{
	uint32_t ip = htonl(0x0a000000u | nic->id);

	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(&gid->raw[12], &ip, sizeof(ip));
}

struct sim_nic *sim_nic_by_gid(struct sim_net *net, const union ibv_gid *gid)
{
	struct list_node *n;
	union ibv_gid own;

	list_for_each(n, &net->nics) {
		struct sim_nic *nic = container_of(n, struct sim_nic, link);

		sim_nic_gid(nic, &own);
		if (!memcmp(&own, gid, sizeof(own)))
			return nic;
	}
	return NULL;
}

uint64_t sim_nic_work(struct sim_nic *nic, uint64_t from, uint64_t ns)
{
	struct sim_server *best = &nic->units[0];

	for (unsigned i = 1; i < nic->net->model.units; i++)
		if (nic->units[i].free_at < best->free_at)
			best = &nic->units[i];
	from = later(best->free_at, from);
	best->free_at = from + ns;
	sim_nic_span(nic, SIM_TRACK_UNITS + (uint32_t)(best - nic->units),
		     "request", from, best->free_at);
	return best->free_at;
}

uint64_t sim_nic_ctx(struct sim_nic *nic, uint32_t name)
{
	return lru_touch(&nic->ctx, name) ? 0 : nic->net->model.ctx_miss;
}

/* The key is the offset in the region: a run must not depend on addresses of
 * memory. */
uint64_t sim_nic_mtt(struct sim_nic *nic, uint32_t key, uint64_t addr,
		     uint64_t len)
{
	struct sim_mr *m = key >> 8 < nic->mrs_cap ? nic->mrs[key >> 8] : NULL;
	uint64_t page, last, ns = 0;

	/* A wrong address is refused without being looked up. */
	if (!len || !m || m->mr.lkey != key ||
	    addr - (uintptr_t)m->mr.addr >= m->mr.length)
		return 0;
	addr -= (uintptr_t)m->mr.addr;
	last = (addr + len - 1) >> PAGE_BITS;
	for (page = addr >> PAGE_BITS; page <= last; page++)
		if (!lru_touch(&nic->mtt, (uint64_t)key << 32 | page))
			ns += nic->net->model.mr_miss;
	return ns;
}

uint32_t sim_nic_mtu(const struct sim_nic *nic)
{
	uint32_t mtu = 4096;

	while (mtu > 256 && mtu > nic->net->model.mtu)
		mtu /= 2;
	return mtu;
}

uint64_t sim_pcie_ns(const struct sim_nic *nic, uint64_t len)
{
	return len * 8 / nic->net->model.pcie_gbps;
}

void sim_control(struct sim_dev *d, uint64_t cpu_ns, uint64_t nic_ns)
{
	struct sim_server *s = &d->nic->commands;

	if (!sim_self(d->w))
		return; /* outside of all threads nothing takes time */
	sim_charge(d->w, cpu_ns);
	sim_flush(d->w, 0);
	if (!nic_ns)
		return;
	s->free_at = later(s->free_at, sim_now(d->w)) + nic_ns;
	sim_sleep(d->w, s->free_at - sim_now(d->w));
}

void sim_control_destroy(struct sim_dev *d)
{
	const struct nic_model *model = &d->nic->net->model;

	sim_control(d, model->destroy_cpu_ns, model->destroy_nic_ns);
}

/* --- messages ---------------------------------------------------------- */

struct sim_msg *sim_msg_new(struct sim_net *net, uint32_t len)
{
	struct list_node *n = list_pop_head(&net->spare);
	struct sim_msg *m;
	unsigned char *data;
	uint32_t cap;

	m = n ? container_of(n, struct sim_msg, link) : calloc(1, sizeof(*m));
	skein_assert(m);
	data = m->data;
	cap = m->data_cap;
	memset(m, 0, sizeof(*m));
	if (cap < len) {
		free(data);
		cap = len;
		data = malloc(cap);
		skein_assert(data);
	}
	m->data = data;
	m->data_cap = cap;
	m->len = len;
	list_add_tail(&net->live, &m->link);
	return m;
}

/* Memory of long messages is not kept for reuse: thousands of them may be on
 * their way at once. */
void sim_msg_free(struct sim_net *net, struct sim_msg *m)
{
	if (m->data_cap > 4096) {
		free(m->data);
		m->data = NULL;
		m->data_cap = 0;
	}
	list_del(&m->link);
	list_add_head(&net->spare, &m->link);
}

/* How long a part of m, or of any message, takes on nic's cable. */
static uint64_t cable_ns(const struct sim_nic *nic, const struct sim_msg *m,
			 uint64_t bytes)
{
	const struct sim_path *p = &nic->net->path;
	uint64_t slow = nic->slow ? nic->slow : 1;

	if (p->slow && m &&
	    ((m->from == p->a && m->to == p->b) ||
	     (m->from == p->b && m->to == p->a)))
		slow *= p->slow;
	return bytes * 8 * slow / nic->net->model.link_gbps;
}

static uint64_t wire_bytes(const struct nic_model *model, uint64_t len)
{
	uint64_t packets = len ? (len + model->mtu - 1) / model->mtu : 1;

	return len + packets * model->packet_overhead;
}

uint64_t sim_msg_bytes(const struct sim_msg *m)
{
	bool read = m->opcode == IBV_WR_RDMA_READ;

	return wire_bytes(&m->to->net->model, read == m->answer ? m->len : 0);
}

static bool is_lost(struct sim_msg *m)
{
	uint32_t ppm = m->from->loss_ppm + m->to->loss_ppm;

	if (m->from->down || m->to->down)
		return true;
	return ppm && prng_below(&m->from->net->loss_rng, 1000000) < ppm;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t sim_first(const struct sim_nic *nic, uint64_t len)
{
	return least(len, nic->net->model.cut);
}

/* m takes cable c of nic at `from`, or at *begin when its turn comes later.
 * Returns when its last byte has passed. The trace does not show messages that
 * go between the packets of another message. */
static uint64_t on_cable(struct sim_cable *c, struct sim_nic *nic,
			 const struct sim_msg *m, uint64_t from,
			 uint64_t *begin)
{
	uint64_t packet = sim_packet_bytes(&nic->net->model);
	uint64_t bytes = sim_msg_bytes(m), end;
	bool out = c == &nic->egress, alone;

	*begin = sim_cable_begin(c, m, from, cable_ns(nic, NULL, packet));
	alone = *begin >= c->free_at;
	end = later(*begin + cable_ns(nic, m, bytes),
		    m->tail + cable_ns(nic, m, sim_first(nic, bytes)));
	sim_cable_hold(c, m, *begin, end);
	if (alone)
		sim_nic_span(nic, out ? SIM_TRACK_EGRESS : SIM_TRACK_PORT,
			     out ? "out" : "in", *begin, end);
	return end;
}

static void leaves(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);

	sim_flow_leaves(m);
	if (m->answer)
		sim_answer_arrives(ev);
	else
		sim_request_arrives(ev);
}

/* The message's head is at the switch's port to its destination. */
void sim_net_at_port(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_net *net = m->to->net;
	uint64_t begin, end;

	end = on_cable(&m->to->port, m->to, m, sim_now(net->w), &begin);
	ev->fn = leaves;
	sim_at(net->w, ev, end + net->model.link_delay);
}

void sim_net_send(struct sim_msg *m, uint64_t depart,
		  void (*arrive)(struct sim_event *ev))
{
	struct sim_net *net = m->from->net;
	uint64_t bytes = sim_msg_bytes(m), head, start, end, way;

	net->sent++;
	m->from->tx_msgs++;
	m->from->tx_bytes += bytes;
	if (is_lost(m)) {
		net->lost++;
		sim_msg_free(net, m);
		return;
	}
	m->ev.tag = TAG_WIRE;
	if (m->from == m->to) {
		/* The NIC's own loop: no cable. */
		start = later(m->from->loop.free_at, later(depart, m->tail));
		m->from->loop.free_at = start + sim_pcie_ns(m->from, bytes);
		m->ev.fn = arrive;
		sim_at(net->w, &m->ev, m->from->loop.free_at);
		return;
	}
	sim_flow_enters(m);
	way = net->model.link_delay + net->model.hop + m->from->extra_delay +
	      m->to->extra_delay;
	end = on_cable(&m->from->egress, m->from, m, depart, &start);
	head = start + cable_ns(m->from, m, sim_first(m->from, bytes));
	m->tail = end + way;
	m->ev.fn = sim_net_at_switch;
	sim_at(net->w, &m->ev, head + way);
}

/* --- faults and counts ------------------------------------------------- */

void sim_link_set(struct sim_node *node, const struct sim_link *link)
{
	struct sim_nic *nic = sim_nic_of(node);

	skein_assert(nic);
	sim_node_cut(node, link->down);
	nic->down = link->down;
	nic->loss_ppm = link->loss_ppm;
	nic->slow = link->slow;
	nic->extra_delay = link->extra_delay;
}

void sim_path_slow(struct sim_node *a, struct sim_node *b, uint32_t times)
{
	struct sim_net *net = sim_net_of(sim_node_world(a));

	net->path.a = sim_nic_of(a);
	net->path.b = sim_nic_of(b);
	skein_assert(net->path.a && net->path.b);
	net->path.slow = times;
}

void sim_net_set_hollow(struct sim_world *w, uint32_t from_len)
{
	sim_net_of(w)->hollow_from = from_len;
}

void sim_net_set_send_wr_max(struct sim_world *w, uint32_t n)
{
	struct sim_net *net = sim_net_of(w);

	skein_assert(list_empty(&net->nics) && n && n <= SIM_WR_MAX);
	net->send_wr_max = n;
}

void sim_nic_counts(struct sim_node *node, struct sim_nic_counts *c)
{
	struct sim_nic *nic = sim_nic_of(node);

	skein_assert(nic);
	c->messages_out = nic->tx_msgs;
	c->messages_in = nic->rx_msgs;
	c->bytes_out = nic->tx_bytes;
	c->doorbells = nic->doorbells;
	c->rnr_naks = nic->rnr_naks;
	c->strangers = nic->strangers;
	c->interrupts = nic->interrupts;
	c->ctx_hits = nic->ctx.hits;
	c->ctx_misses = nic->ctx.misses;
	c->mr_hits = nic->mtt.hits;
	c->mr_misses = nic->mtt.misses;
	c->dc_connects = nic->dc_connects;
}

void sim_net_set_model(struct sim_world *w, const struct nic_model *model)
{
	struct sim_net *net = sim_net_of(w);

	skein_assert(list_empty(&net->nics));
	net->model = *model;
}

bool sim_qp_break(struct sim_node *node, uint32_t i)
{
	struct sim_nic *nic = sim_nic_of(node);
	struct sim_qp *q;

	skein_assert(nic);
	if (!nic->n_qps)
		return false;
	i %= nic->n_qps;
	for (uint32_t k = 0;; k++)
		if (nic->qps[k] && !i--) {
			q = nic->qps[k];
			break;
		}
	if (q->ex.qp_base.state != IBV_QPS_RTS)
		return false;
	sim_qp_to_err(q);
	sim_async(q->d, IBV_EVENT_QP_FATAL, &q->ex.qp_base);
	return true;
}
