/* SPDX-License-Identifier: MIT */
/*
 * large.c - a large payload on its way in; see large.h.
 */
#include <errno.h>

#include "base/list.h"
#include "rpc/large.h"

static void piece_done(struct rpc_read *rd, int err)
{
	struct rpc_pull *p = container_of(rd, struct rpc_pull_read, rd)->pull;

	p->ended++;
	if (err) {
		p->err = err;
		p->starved = false;
	}
	if (p->look)
		*p->look = true;
}

void rpc_pull_init(struct rpc_pull *p, bool *look)
{
	*p = (struct rpc_pull){.look = look};
	for (unsigned i = 0; i < RPC_PIECES; i++)
		p->reads[i] = (struct rpc_pull_read){.rd.done = piece_done,
						     .pull = p};
}

void rpc_pull_start(struct rpc_pull *p, struct rpc_buf *buf, int err)
{
	p->buf = buf;
	p->err = err;
	p->posted = 0;
	p->begun = p->ended = 0;
	p->starved = false;
	p->on = true;
}

static int piece_post(struct rpc_pull *p, struct rpc_port *port)
{
	uint32_t len = rpc_port_piece(port, p->from.len, p->posted);
	int rc;

	/* READs of one queue pair end in order, so the READ in this slot has
	 * ended. */
	rc = port->ops->read(port, p->buf, &p->from, p->posted, len,
			     &p->reads[p->begun % RPC_PIECES].rd);
	if (rc)
		return rc;
	p->posted += len;
	p->begun++;
	port->stats.reads++;
	return 0;
}

int rpc_pull_post(struct rpc_pull *p, struct rpc_port *port)
{
	int rc = 0, n = 0;

	while (!rc && rpc_pull_wants_post(p) &&
	       p->begun - p->ended < port->reads_max) {
		rc = piece_post(p, port);
		n += !rc;
	}
	if (rc == -ENOMEM) {
		p->err = rc;
		p->starved = true;
		return n + 1;
	}
	return rc && rc != -EAGAIN ? rc : n;
}

int rpc_pull_end(struct rpc_pull *p, struct rpc_port *port,
		 struct rpc_buf **buf, int *err)
{
	if (p->buf && p->err && !p->starved)
		return p->err;
	if (p->starved) {
		port->ops->buf_put(port, p->buf);
		p->buf = NULL;
	}
	*buf = p->buf;
	*err = p->err;
	p->buf = NULL;
	p->on = false;
	return 0;
}

void rpc_pull_break(struct rpc_pull *p, struct rpc_port *port)
{
	if (p->buf)
		port->ops->buf_put(port, p->buf);
	p->buf = NULL;
	p->on = false;
}
