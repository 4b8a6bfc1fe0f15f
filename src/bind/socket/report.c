/* SPDX-License-Identifier: MIT */
/*
 * report.c - a line of JSON for each connection, when it ends: whether it was on
 * a stream, and why not.
 */
#include "bind/socket/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_end(const struct meet_end *end, char *buf, size_t len)
{
	char addr[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, end->addr, addr, sizeof(addr));
	if (!strncmp(addr, "::ffff:", 7) && strchr(addr, '.'))
		snprintf(buf, len, "%s:%u", addr + 7, end->port);
	else
		snprintf(buf, len, "[%s]:%u", addr, end->port);
}

void report_with(const struct sock *s, char *buf, size_t len)
{
	struct meet_names names = s->names;
	char peer[64];

	*buf = '\0';
	if (!names.remote.port && names_of(s->fd, &names))
		return;
	print_end(&names.remote, peer, sizeof(peer));
	snprintf(buf, len, " with %s", peer);
}

void report_line(struct sock *s)
{
	bool on = s->demotions ||
		  (s->on_ns && (s->tx_on || s->switch_seen || s->back_why));
	bool undecided = !on && atomic_load(&s->mode) != SOCK_TIED;
	char line[768], local[64], peer[64];
	int fd, n;

	if (!st.report || !*st.report ||
	    (!atomic_load(&s->calls) && !s->meeting && !on))
		return; /* it was never used */
	if (!on && !s->names.local.port)
		names_of(s->fd, &s->names);
	print_end(&s->names.local, local, sizeof(local));
	print_end(&s->names.remote, peer, sizeof(peer));
	n = snprintf(
		line, sizeof(line),
		"{\"pid\": %d, \"program\": \"%s\", \"local\": \"%s\", "
		"\"peer\": \"%s\", \"carrier\": \"%s\", \"reason\": "
		"\"%s\", \"undecided\": %s, \"calls_before\": %u, \"promote_us\": %llu, "
		"\"rx_stream\": %llu, \"tx_stream\": %llu, "
		"\"records\": %llu, \"full\": %llu, \"asks\": %llu, "
		"\"bells\": %llu, "
		"\"demotions\": %u, \"back\": \"%s\"}\n",
		st.pid, st.program, local, peer, on ? "stream" : "tcp",
		on ? "" : sock_reason(s), undecided ? "true" : "false",
		atomic_load(&s->calls),
		on ? (unsigned long long)s->promote_ns / 1000 : 0,
		(unsigned long long)sock_row(s)->rx_stream,
		(unsigned long long)sock_row(s)->tx_stream,
		(unsigned long long)s->records, (unsigned long long)s->full,
		(unsigned long long)s->asks, (unsigned long long)s->bells,
		s->demotions, s->demotions && s->back_why ? s->back_why : "");
	fd = open(st.report, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (REAL(write)(fd, line, (size_t)n) != n)
		state_say("skein run: the report %s cannot be written: %s",
			  st.report, strerror(errno));
	close(fd);
}
