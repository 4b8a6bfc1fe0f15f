/* SPDX-License-Identifier: MIT */
/*
 * racks.c - the network's upper tier: each rack's switch has one cable up to
 * the spine and one down from it, with a queue each.
 *
 * Such a cable carries 1/oversubscription of what the cables of a rack's nodes
 * carry together; it stands for all uplinks of the switch. A message waits for
 * its turn there as at any port. If its bytes come more slowly than the cable
 * takes them, packets of other messages go in between.
 */
#include "dev/sim/link.h"
#include "dev/sim/sim_dev.h"

#include "base/assert.h"
#include "base/pow2.h"

#include <stdlib.h>
#include <string.h>

void sim_net_set_racks(struct sim_world *w, const struct sim_racks *racks)
{
	struct sim_net *net = sim_net_of(w);

	skein_assert(list_empty(&net->nics));
	net->racks = *racks;
	if (!net->racks.oversub_pct)
		net->racks.oversub_pct = 100;
}

static uint32_t rack_of(const struct sim_nic *nic)
{
	return (nic->id - 1) / nic->net->racks.nodes;
}

static struct sim_rack *rack_at(struct sim_net *net, uint32_t i)
{
	uint32_t cap;

	if (i >= net->rack_cap) {
		cap = (uint32_t)doubled_to(8, i + 1ull);
		net->rack = realloc(net->rack, cap * sizeof(*net->rack));
		skein_assert(net->rack);
		memset(net->rack + net->rack_cap, 0,
		       (cap - net->rack_cap) * sizeof(*net->rack));
		net->rack_cap = cap;
	}
	return &net->rack[i];
}

static uint64_t cable_ns(const struct sim_net *net, uint64_t bytes)
{
	return bytes * 8 * net->racks.oversub_pct /
	       (100ull * net->racks.nodes * net->model.link_gbps);
}

/* m's first bytes are at the queue of c; then they go to the next station. */
static void pass(struct sim_cable *c, struct sim_msg *m,
		 void (*next)(struct sim_event *ev))
{
	struct sim_net *net = m->to->net;
	uint64_t way = net->model.link_delay + net->model.hop;
	uint64_t bytes = sim_msg_bytes(m), begin, end;

	begin = sim_cable_begin(c, m, sim_now(net->w),
				cable_ns(net, sim_packet_bytes(&net->model)));
	end = begin + cable_ns(net, bytes);
	sim_cable_hold(c, m, begin, end);
	if (m->tail < end)
		m->tail = end;
	m->tail += way;
	m->ev.fn = next;
	sim_at(net->w, &m->ev,
	       begin + cable_ns(net, sim_first(m->to, bytes)) + way);
}

static void at_spine(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_net *net = m->to->net;

	pass(&rack_at(net, rack_of(m->to))->down, m, sim_net_at_port);
}

void sim_net_at_switch(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_net *net = m->to->net;

	if (!net->racks.nodes || rack_of(m->from) == rack_of(m->to))
		sim_net_at_port(ev);
	else
		pass(&rack_at(net, rack_of(m->from))->up, m, at_spine);
}
