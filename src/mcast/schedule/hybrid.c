/* SPDX-License-Identifier: MIT */
/*
 * hybrid.c - binomial pipelines at two levels: among the racks and inside each
 * rack (RDMC, section 4.3; docs/design/mcast.md has the time table).
 *
 * Among the racks, blocks are dealt to D = dims_max + 1 classes, and each class
 * has its own pipeline over the racks. Slot t of the upper level is step t / D
 * of class t mod D. So a rack has D slots from one hop to the next. In that
 * time its own pipeline brings a block from its leader, which receives from
 * other racks, to the member that is idle in that step, which sends to other
 * racks. A leader relays inside its rack only. So each member sends one block a
 * step, and each block enters each rack once.
 *
 * Inside a rack the pipeline moves slots instead of blocks: slot t is the block
 * that the leader received in slot t, or none.
 */
#include <errno.h>

#include "base/assert.h"
#include "mcast/schedule/hypercube.h"
#include "mcast/schedule/moves.h"

int mcast_racks_init(struct mcast_racks *r, const uint32_t *rack_of,
		     uint32_t members, uint32_t *storage)
{
	uint32_t *rack = storage, *place = rack + members;
	uint32_t *order = place + members, *first = order + members;
	uint32_t racks = 0, largest = 0;

	if (members == 0 || members > MCAST_MEMBERS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < members; i++) {
		if (rack_of[i] >= members)
			return -EINVAL;
		order[i] =
			/* until below: the caller's number -> ours */
			MCAST_NONE;
		first[i] = 0;
	}
	first[members] = 0;
	for (uint32_t i = 0; i < members; i++) {
		if (order[rack_of[i]] == MCAST_NONE)
			order[rack_of[i]] = racks++;
		rack[i] = order[rack_of[i]];
		place[i] = first[rack[i] + 1]++;
		if (place[i] >= largest)
			largest = place[i] + 1;
	}
	for (uint32_t v = 0; v < racks; v++)
		first[v + 1] += first[v];
	for (uint32_t i = 0; i < members; i++)
		order[first[rack[i]] + place[i]] = i;
	r->members = members;
	r->racks = racks;
	r->dims_max = 31 - (uint32_t)__builtin_clz(largest);
	r->rack = rack;
	r->place = place;
	r->order = order;
	r->first = first;
	return 0;
}

static uint32_t rack_size(const struct mcast_racks *r, uint32_t rack)
{
	return r->first[rack + 1] - r->first[rack];
}

static uint32_t member_at(const struct mcast_racks *r, uint32_t rack,
			  uint32_t place)
{
	return r->order[r->first[rack] + place];
}

static uint64_t classes(const struct mcast_racks *r)
{
	return r->dims_max + 1;
}

/* The pipeline of one class over the racks. */
static struct hypercube class_cube(const struct mcast_plan *p, uint64_t class)
{
	uint64_t d = classes(p->racks);
	struct hypercube h;

	hypercube_init(&h, p->racks->racks,
		       class < p->blocks ? (p->blocks - 1 - class) / d + 1 : 0);
	return h;
}

static uint64_t slots(const struct mcast_plan *p)
{
	struct hypercube one;

	hypercube_init(&one, p->racks->racks, 1);
	if (p->racks->racks == 1)
		return 0;
	return p->blocks + classes(p->racks) * (hypercube_steps(&one) - 1);
}

static bool slot_send(const struct mcast_plan *p, uint32_t rack, uint64_t slot,
		      uint32_t *to, uint64_t *block)
{
	uint64_t d = classes(p->racks), nth;
	struct hypercube h = class_cube(p, slot % d);

	if (!hypercube_send(&h, rack, slot / d, to, &nth))
		return false;
	*block = nth * d + slot % d;
	return true;
}

static bool slot_recv(const struct mcast_plan *p, uint32_t rack, uint64_t slot,
		      uint32_t *from, uint64_t *block)
{
	uint64_t d = classes(p->racks), nth;
	struct hypercube h = class_cube(p, slot % d);

	if (!hypercube_recv(&h, rack, slot / d, from, &nth))
		return false;
	*block = nth * d + slot % d;
	return true;
}

/* The pipeline inside a rack. In the root's rack it moves blocks, not slots. */
static struct hypercube rack_cube(const struct mcast_plan *p, uint32_t rack)
{
	struct hypercube h;

	hypercube_init(&h, rack_size(p->racks, rack),
		       rack == 0 ? p->blocks : slots(p));
	return h;
}

/* The block in a slot of a rack's own pipeline; false: there is none. */
static bool slot_block(const struct mcast_plan *p, uint32_t rack, uint64_t slot,
		       uint64_t *block)
{
	uint32_t from;

	if (rack != 0)
		return slot_recv(p, rack, slot, &from, block);
	*block = slot;
	return true;
}

static uint64_t slot_of(const struct mcast_plan *p, uint32_t rack,
			uint64_t block)
{
	uint64_t d = classes(p->racks);
	struct hypercube h = class_cube(p, block % d);

	if (rack == 0)
		return block;
	return hypercube_recv_step(&h, rack, block / d) * d + block % d;
}

/* The step of slot 0. By then the members of rack 0 that send have their
 * block. */
static uint64_t slots_begin(const struct mcast_plan *p)
{
	return rack_cube(p, 0).dims;
}

/*
 * The step in which the pipeline inside a rack begins. Small racks wait, so
 * that in every rack the idle member has the block of D - 1 slots ago, and all
 * racks end together.
 */
static uint64_t rack_begin(const struct mcast_plan *p, uint32_t rack)
{
	if (rack == 0)
		return 0;
	return slots_begin(p) + 1 + p->racks->dims_max -
	       rack_cube(p, rack).dims;
}

/* The member that sends to other racks in a step at or after slot 0. */
static uint32_t envoy(const struct mcast_plan *p, uint32_t rack, uint64_t step)
{
	struct hypercube h = rack_cube(p, rack);
	uint64_t begin = rack_begin(p, rack);

	if (h.nodes == 1 || step < begin)
		return member_at(p->racks, rack, 0);
	return member_at(p->racks, rack, hypercube_idle(&h, step - begin));
}

static uint64_t hybrid_steps(const struct mcast_plan *p)
{
	struct hypercube h = rack_cube(p, 0);
	uint64_t last = hypercube_steps(&h), end;

	for (uint32_t v = 1; v < p->racks->racks; v++) {
		h = rack_cube(p, v);
		end = slots_begin(p) + slots(p);
		if (h.nodes > 1)
			end = rack_begin(p, v) + hypercube_steps(&h);
		last = end > last ? end : last;
	}
	return last;
}

static bool hybrid_send(const struct mcast_plan *p, uint32_t member,
			uint64_t step, uint32_t *peer, uint64_t *block)
{
	const struct mcast_racks *r = p->racks;
	uint32_t rack = r->rack[member], to;
	uint64_t begin = rack_begin(p, rack), slot;
	struct hypercube h = rack_cube(p, rack);

	if (step >= slots_begin(p) && envoy(p, rack, step) == member &&
	    slot_send(p, rack, step - slots_begin(p), &to, block)) {
		*peer = member_at(r, to, 0);
		return true;
	}
	if (step < begin ||
	    !hypercube_send(&h, r->place[member], step - begin, &to, &slot) ||
	    !slot_block(p, rack, slot, block))
		return false;
	*peer = member_at(r, rack, to);
	return true;
}

static bool hybrid_recv(const struct mcast_plan *p, uint32_t member,
			uint64_t step, uint32_t *peer, uint64_t *block)
{
	const struct mcast_racks *r = p->racks;
	uint32_t rack = r->rack[member], from;
	uint64_t begin = rack_begin(p, rack), slot;
	struct hypercube h = rack_cube(p, rack);

	if (r->place[member] == 0) {
		if (step < slots_begin(p) ||
		    !slot_recv(p, rack, step - slots_begin(p), &from, block))
			return false;
		*peer = envoy(p, from, step);
		return true;
	}
	if (step < begin ||
	    !hypercube_recv(&h, r->place[member], step - begin, &from, &slot) ||
	    !slot_block(p, rack, slot, block))
		return false;
	*peer = member_at(r, rack, from);
	return true;
}

static uint64_t hybrid_recv_step(const struct mcast_plan *p, uint32_t member,
				 uint64_t block)
{
	uint32_t rack = p->racks->rack[member], place = p->racks->place[member];
	uint64_t slot = slot_of(p, rack, block);
	struct hypercube h = rack_cube(p, rack);

	if (place == 0)
		return slots_begin(p) + slot;
	return rack_begin(p, rack) + hypercube_recv_step(&h, place, slot);
}

static struct mcast_span hybrid_span(const struct mcast_plan *p,
				     uint32_t member)
{
	return (struct mcast_span){0, p->steps};
}

/*
 * The irregular steps at the beginning and the end, and the periods of both
 * levels: 2 * dims steps inside, 2 * D times the racks' dimensions above.
 */
static uint64_t hybrid_gap(const struct mcast_plan *p)
{
	struct hypercube upper = class_cube(p, 0);
	uint64_t inside = p->racks->dims_max + 1, above = upper.dims + 1;

	return p->steps - p->blocks + 1 + 4 * inside * inside * above;
}

/* The members of a rack that send to other racks in some step. */
static uint32_t envoys(const struct mcast_plan *p, uint32_t rack, uint32_t *out)
{
	struct hypercube h = rack_cube(p, rack);
	uint32_t count = 0;

	if (rack == 0 || h.nodes == 1)
		out[count++] = 0;
	for (uint32_t m = 0; m < h.dims; m++) {
		uint32_t twin = hypercube_twin(&h, (uint32_t)1 << m);

		out[count++] = (uint32_t)1 << m;
		if (twin != UINT32_MAX)
			out[count++] = twin;
	}
	for (uint32_t i = 0; i < count; i++)
		out[i] = member_at(p->racks, rack, out[i]);
	return count;
}

static bool among(const uint32_t *list, uint32_t count, uint32_t member)
{
	for (uint32_t i = 0; i < count; i++) {
		if (list[i] == member)
			return true;
	}
	return false;
}

static uint32_t hybrid_neighbours(const struct mcast_plan *p, uint32_t member,
				  uint32_t *peers, uint32_t max)
{
	const struct mcast_racks *r = p->racks;
	uint32_t rack = r->rack[member], count = 0, near, senders;
	uint32_t racks[HYPERCUBE_NEIGHBOURS_MAX];
	uint32_t found[HYPERCUBE_NEIGHBOURS_MAX];
	struct hypercube inside = rack_cube(p, rack), upper = class_cube(p, 0);
	bool sends, leads = r->place[member] == 0 && rack != 0;

	near = hypercube_neighbours(&inside, r->place[member], found);
	for (uint32_t i = 0; i < near; i++)
		peer_add(peers, max, &count, member_at(r, rack, found[i]));
	sends = among(found, envoys(p, rack, found), member);
	near = hypercube_neighbours(&upper, rack, racks);
	for (uint32_t v = 0; v < near; v++) {
		uint32_t leader = member_at(r, racks[v], 0);

		senders = envoys(p, racks[v], found);
		for (uint32_t i = 0; leads && i < senders; i++)
			peer_add(peers, max, &count, found[i]);
		if (sends && racks[v] != 0 &&
		    !(leads && among(found, senders, leader)))
			peer_add(peers, max, &count, leader);
	}
	return count;
}

const struct mcast_moves mcast_hybrid = {
	.steps = hybrid_steps,
	.send = hybrid_send,
	.recv = hybrid_recv,
	.recv_step = hybrid_recv_step,
	.send_span = hybrid_span,
	.recv_span = hybrid_span,
	.gap = hybrid_gap,
	.neighbours = hybrid_neighbours,
};
