/* SPDX-License-Identifier: MIT */
/*
 * sections.c - the modules' sections of the handshake.
 *
 * Each module has one opaque section in OFFER and one in ACCEPT. If one side
 * requires a module that the other side lacks the handshake ends with
 * -SKEIN_EVERSION. A connection for one module has no other sections.
 */
#include "conn/state.h"

#include <errno.h>

static const struct handshake_section *find_section(
	const struct handshake_params *p, unsigned id)
{
	for (unsigned i = 0; i < p->n_sections; i++)
		if (p->sections[i].id == id)
			return &p->sections[i];
	return NULL;
}

/* Does the peer require a module that is not linked in here? */
static bool unknown_must(const struct handshake_params *p)
{
	for (unsigned i = 0; i < p->n_sections; i++) {
		bool known = !p->sections[i].must_understand;

		for (unsigned m = 0; !known && conn_modules[m]; m++)
			known = (unsigned)conn_modules[m]->id ==
				p->sections[i].id;
		if (!known)
			return true;
	}
	return false;
}

/* Does m belong to this connection? */
static bool concerns(const struct skein_conn *conn, const struct conn_module *m)
{
	return conn->sole ? m == conn->sole : !m->sole;
}

static int add(struct conn_sections *s, const struct conn_module *m,
	       size_t start, struct handshake_params *own)
{
	size_t len = s->out.pos - start;

	if (s->out.failed || len > HANDSHAKE_MSG_MAX ||
	    own->n_sections == HANDSHAKE_SECTIONS_MAX)
		return -EMSGSIZE;
	own->sections[own->n_sections++] = (struct handshake_section){
		.id = (uint8_t)m->id,
		.must_understand = m->must_understand,
		.buf = s->buf + start,
		.len = (uint16_t)len,
	};
	return 0;
}

int conn_sections_offer(struct skein_conn *conn, struct conn_sections *s,
			struct handshake_params *own)
{
	const struct conn_module *m;
	size_t start;
	int rc;

	s->out = bytes_out(s->buf, sizeof(s->buf));
	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		if (!concerns(conn, m))
			continue;
		start = s->out.pos;
		rc = m->offer(conn, &s->out);
		if (rc == 0)
			rc = add(s, m, start, own);
		if (rc)
			return rc;
	}
	return 0;
}

int conn_sections_accept(struct skein_conn *conn, struct conn_sections *s,
			 const struct handshake_params *peer,
			 struct handshake_params *own)
{
	const struct handshake_section *in;
	const struct conn_module *m;
	struct bytes_in cursor;
	size_t start;
	int rc;

	if (unknown_must(peer))
		return -SKEIN_EVERSION;
	conn->sole = NULL;
	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->sole && find_section(peer, m->id))
			conn->sole = m;
	s->out = bytes_out(s->buf, sizeof(s->buf));
	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		if (!concerns(conn, m))
			continue;
		in = find_section(peer, m->id);
		if (!in && m->must_understand)
			return -SKEIN_EVERSION;
		if (!in)
			continue;
		cursor = bytes_in(in->buf, in->len);
		start = s->out.pos;
		rc = m->accept(conn, &cursor, &s->out);
		if (rc == 0)
			rc = add(s, m, start, own);
		if (rc)
			return rc;
	}
	return 0;
}

int conn_sections_confirm(struct skein_conn *conn,
			  const struct handshake_params *peer)
{
	const struct handshake_section *in;
	const struct conn_module *m;
	struct bytes_in cursor;
	int rc;

	if (unknown_must(peer))
		return -SKEIN_EVERSION;
	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		if (!concerns(conn, m))
			continue;
		in = find_section(peer, m->id);
		if (!in && m->must_understand)
			return -SKEIN_EVERSION;
		if (in) {
			cursor = bytes_in(in->buf, in->len);
			rc = m->confirm(conn, &cursor);
			if (rc)
				return rc;
			continue;
		}
		/* The server does not use this module: close it here too. */
		if (m->closed && conn_module_state(conn, m->id))
			m->closed(conn, conn_module_state(conn, m->id));
		conn_module_set(conn, m->id, NULL);
	}
	return 0;
}
