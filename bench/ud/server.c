/* SPDX-License-Identifier: MIT */
/*
 * server.c - see server.h.
 */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ud_server_open(struct ud_server *s, const struct ud_server_conf *conf)
{
	struct ud_port_conf port = conf->port;
	size_t all = (size_t)conf->sessions * conf->slots;
	int rc;

	if (!all || conf->sessions > UINT16_MAX || conf->slots > UD_RECVS_MAX)
		return -EINVAL;
	memset(s, 0, sizeof(*s));
	s->conf = *conf;
	port.bufs = (unsigned)all;
	rc = ud_port_open(&s->port, &port);
	if (rc)
		return rc;
	s->sessions = calloc(conf->sessions, sizeof(*s->sessions));
	s->numbers = calloc(all, sizeof(*s->numbers));
	if (!s->sessions || !s->numbers) {
		ud_server_close(s);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < all; i++) {
		*ud_port_buf(&s->port, i) = (struct ud_head){
			.magic = UD_MAGIC,
			.type = UD_RESPONSE,
			.session = (uint16_t)(i / conf->slots)};
		/* a client's first request of a slot has the number that
		 * follows */
		s->numbers[i] = i % conf->slots;
	}
	for (unsigned i = 0; i < conf->sessions; i++) {
		s->sessions[i].first_slot = i * conf->slots;
		s->sessions[i].numbers = &s->numbers[i * conf->slots];
	}
	return 0;
}

int ud_server_connect(struct ud_server *s, unsigned session,
		      const struct dev_qp_addr *addr)
{
	return ud_peer_open(&s->port, addr, &s->sessions[session].client);
}

void ud_server_close(struct ud_server *s)
{
	ud_port_close(&s->port);
	for (unsigned i = 0; s->sessions && i < s->conf.sessions; i++)
		ud_peer_close(&s->port, &s->sessions[i].client);
	free(s->sessions);
	free(s->numbers);
	s->sessions = NULL;
	s->numbers = NULL;
}

/* The response to a request, executed now or before. */
static int serve(struct ud_server *s, const struct ud_msg *m)
{
	const struct ud_head *ask = m->head;
	struct ud_session *ses = &s->sessions[ask->session];
	unsigned slot = (unsigned)(ask->number % s->conf.slots);
	struct ud_head *resp = ud_port_buf(&s->port, ses->first_slot + slot);
	uint64_t *last = &ses->numbers[slot];
	bool again = ask->number == *last && *last >= s->conf.slots;

	if (again) {
		s->counts.answered_again++;
	} else if (ask->number < *last) {
		s->counts.old++;
		return 0;
	} else if (ask->number != *last + s->conf.slots) {
		s->port.counts.strange++;
		return 0;
	} else {
		*last = ask->number;
		resp->number = ask->number;
		resp->len = (uint16_t)s->conf.handler(s->conf.arg, m->data,
						      ask->len, resp + 1);
		s->counts.executed++;
	}
	return ud_port_send(&s->port, &ses->client, resp, again);
}

int ud_server_round(struct ud_server *s, unsigned *n)
{
	struct ud_msg msgs[UD_BURST];
	unsigned got;
	int rc = ud_port_poll(&s->port, msgs, &got);

	for (unsigned i = 0; i < got && !rc; i++) {
		const struct ud_head *head = msgs[i].head;

		if (head->type != UD_REQUEST ||
		    head->session >= s->conf.sessions) {
			s->port.counts.strange++;
			continue;
		}
		rc = serve(s, &msgs[i]);
	}
	s->counts.bursts += got > 0;
	/* First: a response is a credit, and the receive must be there. */
	if (!rc)
		rc = ud_port_give_back(&s->port);
	if (!rc)
		rc = ud_port_flush(&s->port);
	*n = got;
	return rc;
}
