/* SPDX-License-Identifier: MIT */
/*
 * client.c - see client.h.
 */
#include "client.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Looks for late ones in a timeout. */
#define LOOKS 8

int ud_client_open(struct ud_client *c, const struct ud_client_conf *conf)
{
	struct ud_port_conf port = conf->port;
	int rc;

	if (!conf->slots || !conf->credits || conf->timeout_ns < LOOKS)
		return -EINVAL;
	memset(c, 0, sizeof(*c));
	c->conf = *conf;
	c->credits = conf->credits;
	port.recvs = conf->credits;
	port.bufs = conf->slots;
	rc = ud_port_open(&c->port, &port);
	if (rc)
		return rc;
	c->slots = calloc(conf->slots, sizeof(*c->slots));
	c->waiting = calloc(conf->slots, sizeof(*c->waiting));
	if (!c->slots || !c->waiting) {
		ud_client_close(c);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < conf->slots; i++) {
		c->slots[i].head = ud_port_buf(&c->port, i);
		*c->slots[i].head = (struct ud_head){
			.magic = UD_MAGIC, .type = UD_REQUEST, .number = i};
	}
	return 0;
}

int ud_client_connect(struct ud_client *c, const struct dev_qp_addr *addr,
		      uint16_t session)
{
	for (unsigned i = 0; i < c->conf.slots; i++)
		c->slots[i].head->session = session;
	return ud_peer_open(&c->port, addr, &c->server);
}

void ud_client_close(struct ud_client *c)
{
	ud_port_close(&c->port);
	ud_peer_close(&c->port, &c->server);
	free(c->slots);
	free(c->waiting);
	c->slots = NULL;
	c->waiting = NULL;
}

static void send_slot(struct ud_client *c, struct ud_slot *s, bool again)
{
	int rc = ud_port_send(&c->port, &c->server, s->head, again);

	s->sent_ns = c->now;
	s->sent = true;
	if (rc && !c->rc)
		c->rc = rc;
}

/* Sends what waits for credits, as far as they go. */
static void pump(struct ud_client *c)
{
	unsigned under_way;

	while (c->credits && c->wait_head != c->wait_tail) {
		c->credits--;
		send_slot(c,
			  &c->slots[c->waiting[c->wait_head++ % c->conf.slots]],
			  false);
	}
	under_way = c->conf.credits - c->credits;
	if (under_way > c->counts.under_way_max)
		c->counts.under_way_max = under_way;
}

uint64_t ud_client_call(struct ud_client *c, unsigned slot, size_t len)
{
	struct ud_slot *s = &c->slots[slot];

	assert(!s->busy && len <= c->port.conf.size);
	s->head->number += c->conf.slots;
	s->head->len = (uint16_t)len;
	s->busy = true;
	s->sent = false;
	c->waiting[c->wait_tail++ % c->conf.slots] = slot;
	c->counts.calls++;
	return s->head->number;
}

static void take(struct ud_client *c, const struct ud_msg *m)
{
	unsigned slot = (unsigned)(m->head->number % c->conf.slots);
	struct ud_slot *s = &c->slots[slot];

	if (m->head->type != UD_RESPONSE ||
	    m->head->session != s->head->session ||
	    m->head->number > s->head->number) {
		c->port.counts.strange++;
		return;
	}
	if (!s->busy || !s->sent || m->head->number != s->head->number) {
		c->counts.stale++;
		return;
	}
	s->busy = false;
	c->credits++;
	c->counts.answers++;
	c->conf.done(c->conf.arg, slot, m->data, m->head->len);
}

static void look_for_late(struct ud_client *c)
{
	c->look_ns = c->now + c->conf.timeout_ns / LOOKS;
	for (unsigned i = 0; i < c->conf.slots; i++) {
		struct ud_slot *s = &c->slots[i];

		if (!s->busy || !s->sent ||
		    c->now - s->sent_ns < c->conf.timeout_ns)
			continue;
		c->counts.again++;
		send_slot(c, s, true);
	}
}

int ud_client_round(struct ud_client *c, uint64_t now, unsigned *n)
{
	struct ud_msg msgs[UD_BURST];
	unsigned got;
	int rc = ud_port_poll(&c->port, msgs, &got);

	if (rc)
		return rc;
	c->now = now;
	for (unsigned i = 0; i < got; i++)
		take(c, &msgs[i]);
	/* First: a request may be answered as soon as it leaves. */
	rc = ud_port_give_back(&c->port);
	pump(c);
	/* After the answers that are there: this end may have been away. */
	if (now >= c->look_ns)
		look_for_late(c);
	if (!rc)
		rc = ud_port_flush(&c->port);
	*n = got;
	return rc ? rc : c->rc;
}
