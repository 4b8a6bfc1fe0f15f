/* SPDX-License-Identifier: MIT */
/*
 * cable.c - which message goes first on a cable.
 *
 * A message is one thing here, but on a real cable NICs and switches take
 * turns between packets of different QPs: a message of one packet does not
 * wait for the end of another QP's long message. It goes in behind one packet
 * of the long message, and the cable is busy for that much longer. The end of
 * the long message is not computed anew.
 *
 * Messages of one flow (a QP's requests; its answers) keep their order: a
 * message goes in between only while its flow has no long message under way.
 */
#include "dev/sim/sim_dev.h"

#include "base/assert.h"

uint64_t sim_packet_bytes(const struct nic_model *model)
{
	return model->mtu + model->packet_overhead;
}

void sim_flow_enters(struct sim_msg *m)
{
	struct sim_qp *q = sim_qp_find(m->from, m->src_qpn);
	uint64_t packet = sim_packet_bytes(&m->from->net->model);

	m->held_epoch = 0;
	m->slips = sim_msg_bytes(m) <= packet && !(q && q->held[m->answer]);
	if (m->slips || !q)
		return;
	q->held[m->answer]++;
	m->held_epoch = q->epoch;
}

void sim_flow_leaves(const struct sim_msg *m)
{
	struct sim_qp *q;

	if (!m->held_epoch)
		return;
	/* It may have been destroyed or reset meanwhile. */
	q = sim_qp_find(m->from, m->src_qpn);
	if (!q || q->epoch != m->held_epoch)
		return;
	skein_assert(q->held[m->answer] > 0);
	q->held[m->answer]--;
}

uint64_t sim_cable_begin(const struct sim_cable *c, const struct sim_msg *m,
			 uint64_t from, uint64_t packet_ns)
{
	uint64_t turn;

	if (from >= c->free_at)
		return from;
	if (!m->slips)
		return c->free_at;
	turn = from > c->slip_at ? from : c->slip_at;
	/* All before it have slipped too, or one has not. */
	if (turn < c->free_at)
		turn += packet_ns;
	return turn < c->free_at ? turn : c->free_at;
}

void sim_cable_hold(struct sim_cable *c, const struct sim_msg *m,
		    uint64_t begin, uint64_t end)
{
	if (m->slips) {
		c->slip_at = end;
		if (begin < c->free_at)
			end = c->free_at + (end - begin);
	}
	c->free_at = end;
}
