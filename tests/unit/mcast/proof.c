/* SPDX-License-Identifier: MIT */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "unit/cm.h"
#include "unit/mcast/proof.h"

void moves_of_plan(struct moves *m, const struct mcast_plan *p)
{
	size_t most = (size_t)p->members * p->blocks;
	struct mcast_item it;

	m->members = p->members;
	m->blocks = p->blocks;
	m->steps = p->steps;
	m->send_count = m->recv_count = 0;
	/* A mistaken plan may have more than there should be. */
	m->sends = malloc((2 * most + 1) * sizeof(*m->sends));
	m->recvs = malloc((2 * most + 1) * sizeof(*m->recvs));
	assert_non_null(m->sends);
	assert_non_null(m->recvs);
	for (uint32_t i = 0; i < p->members; i++) {
		for (uint64_t s = 0; mcast_plan_next_send(p, i, s, &it);
		     s = it.step + 1) {
			assert_true(m->send_count < 2 * most);
			m->sends[m->send_count++] =
				(struct move){it.step, it.block, i, it.peer};
		}
		for (uint64_t s = 0; mcast_plan_next_recv(p, i, s, &it);
		     s = it.step + 1) {
			assert_true(m->recv_count < 2 * most);
			m->recvs[m->recv_count++] =
				(struct move){it.step, it.block, i, it.peer};
		}
	}
}

void moves_free(struct moves *m)
{
	free(m->sends);
	free(m->recvs);
}

/* Where and when each member received each block. */
struct arrival {
	uint64_t step;
	uint32_t from;
	bool there;
	bool sent; /* its send has been seen */
};

static const char *one_a_step(const struct move *list, size_t count,
			      const struct moves *m)
{
	for (size_t i = 0; i < count; i++) {
		if (list[i].step >= m->steps)
			return "past the last step";
		if (list[i].member >= m->members || list[i].peer >= m->members)
			return "no such member";
		if (list[i].block >= m->blocks)
			return "no such block";
		if (i > 0 && list[i].member == list[i - 1].member &&
		    list[i].step <= list[i - 1].step)
			return "two in one step";
	}
	return NULL;
}

static const char *receives(const struct moves *m, struct arrival *at)
{
	for (size_t i = 0; i < m->recv_count; i++) {
		const struct move *r = &m->recvs[i];
		struct arrival *a = &at[r->member * m->blocks + r->block];

		if (r->member == 0)
			return "the root receives";
		if (a->there)
			return "received twice";
		*a = (struct arrival){r->step, r->peer, true, false};
	}
	if (m->recv_count != (m->members - 1) * m->blocks)
		return "not received";
	return NULL;
}

static const char *sends(const struct moves *m, struct arrival *at)
{
	for (size_t i = 0; i < m->send_count; i++) {
		const struct move *s = &m->sends[i];
		const struct arrival *own =
			&at[s->member * m->blocks + s->block];
		struct arrival *a = &at[s->peer * m->blocks + s->block];

		if (s->member != 0 && own->step >= s->step)
			return "sent before it was received";
		if (!a->there || a->sent || a->step != s->step ||
		    a->from != s->member)
			return "sent, not received so";
		a->sent = true;
	}
	if (m->send_count != m->recv_count)
		return "received, not sent";
	return NULL;
}

const char *proof(const struct moves *m)
{
	struct arrival *at = calloc(m->members * m->blocks + 1, sizeof(*at));
	const char *why = one_a_step(m->sends, m->send_count, m);

	assert_non_null(at);
	if (!why)
		why = one_a_step(m->recvs, m->recv_count, m);
	if (!why)
		why = receives(m, at);
	if (!why)
		why = sends(m, at);
	free(at);
	return why;
}
