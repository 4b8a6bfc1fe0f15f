/* SPDX-License-Identifier: MIT */
/*
 * mirror.c - answers that the caller READs; see mirror.h.
 */
#include "rpc/server/mirror.h"

#include <errno.h>

struct rpc_mirror *rpc_mirror_new(struct skein_env *env, uint32_t resp_lines,
				  bool sums)
{
	/* No message has fewer lines, so there are at most n messages. */
	uint32_t n = resp_lines / RPC_RESP_LINES_MIN;
	struct rpc_mirror *m;

	m = env_alloc(env, sizeof(*m) + n * sizeof(m->built[0]));
	if (!m)
		return NULL;
	*m = (struct rpc_mirror){.sums = sums, .mask = n - 1};
	return m;
}

static void drop_taken(struct rpc_mirror *m, uint64_t caller_head)
{
	while (m->first != m->last &&
	       (int32_t)(m->built[m->first & m->mask].pos -
			 (uint32_t)caller_head) < 0)
		m->first++;
}

int rpc_mirror_seal(struct rpc_mirror *m, struct rpc_port *port, uint8_t *at,
		    uint64_t pos, uint32_t len, unsigned count,
		    uint64_t req_head, uint64_t caller_head)
{
	drop_taken(m, caller_head);
	/* An honest caller's Head is less than a lap behind. */
	if (m->last - m->first > m->mask)
		return -SKEIN_EPEER;
	m->built[m->last++ & m->mask] =
		(struct rpc_mirror_msg){(uint32_t)pos, len};
	rpc_msg_seal_fetched(at, len, (uint16_t)count, req_head,
			     rpc_canary(&port->secret_out, pos), m->sums);
	if (__builtin_expect(port->model != NULL, 0)) {
		rpc_port_charge(port, ENV_COST_ENCODE, count);
		env_charge(port->model, ENV_COST_SUM, m->sums);
	}
	port->stats.fetched += count;
	port->stats.fetched_messages++;
	return 0;
}

void rpc_mirror_recall(struct rpc_mirror *m, uint64_t end)
{
	m->recalled = end;
	m->resend = true;
}

int rpc_mirror_resend(struct rpc_mirror *m, struct rpc_port *port,
		      uint64_t caller_head)
{
	const struct rpc_geom *g = &port->geom;

	drop_taken(m, caller_head);
	for (; m->first != m->last; m->first++) {
		const struct rpc_mirror_msg *b = &m->built[m->first & m->mask];
		uint64_t pos = rpc_pos_extend(caller_head, b->pos), off;
		struct rpc_hdr *hdr;
		int rc;

		off = rpc_geom_resp(g) + (pos & (g->resp_lines - 1)) * RPC_LINE;
		hdr = (void *)(port->base + off);
		/* The recall says that no READ of the message is under way.
		 * Head is as it was: the replies after it do not go back behind
		 * it. */
		rpc_msg_seal(hdr, b->len, hdr->count, hdr->head,
			     rpc_canary(&port->secret_out, pos),
			     port->tail_out);
		rc = rpc_port_send(port, off, b->len);
		if (rc)
			return rc;
		port->stats.resent++;
	}
	m->resend = false;
	return 0;
}
