/* SPDX-License-Identifier: MIT */
/*
 * cp_ssh.c - receivers started through ssh: one `skein cp --serve` a target,
 * on a free port, with a key that goes over ssh's standard input. They end when
 * that ends: with the copy, or with this process, whatever becomes of it.
 */
#include "cp.h"
#include "out.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	KEY_LEN = 32, /* random bytes, sent as hex digits */
	LINE_MAX_LEN = 512,
};

struct child {
	pid_t pid;
	int in;	 /* its standard input */
	int out; /* its standard output */
	size_t len;
	char line[LINE_MAX_LEN];
};

struct cp_ssh {
	struct child *child;
	size_t n;
};

/* A growing command line. */
struct text {
	char buf[16384];
	size_t len;
};

static void add(struct text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;

	if (t->len >= sizeof(t->buf))
		return;
	va_start(ap, fmt);
	t->len += (size_t)vsnprintf(t->buf + t->len, sizeof(t->buf) - t->len,
				    fmt, ap);
	va_end(ap);
}

/* A word for a shell. */
static void add_quoted(struct text *t, const char *word)
{
	add(t, " '");
	for (; *word; word++)
		add(t, *word == '\'' ? "'\\''" : "%c", *word);
	add(t, "'");
}

/* What the shell there runs. */
static void remote_words(struct text *t, const struct cp_opts *o,
			 const struct cp_target *target)
{
	const char *dir = target->path ? target->path : o->dir;

	add(t, "exec");
	add_quoted(t, o->remote);
	add(t, " cp --once --until-eof --key - --port %u --serve",
	    target->port);
	add_quoted(t, dir ? dir : ".");
	if (o->device) {
		add(t, " --device");
		add_quoted(t, o->device);
	}
}

static void run_child(const struct cp_opts *o, const struct cp_target *target,
		      int in, int out)
{
	struct text remote = {.len = 0}, all = {.len = 0};
	char host[CP_HOST_MAX + 1];
	size_t len = strlen(target->host);

	/* ssh wants IPv6 without brackets */
	snprintf(host, sizeof(host), "%s", target->host);
	if (host[0] == '[' && host[len - 1] == ']') {
		memmove(host, host + 1, len - 2);
		host[len - 2] = 0;
	}
	remote_words(&remote, o, target);
	add(&all, "exec %s", o->ssh_command);
	add_quoted(&all, host);
	add_quoted(&all, remote.buf);
	if (all.len >= sizeof(all.buf) || remote.len >= sizeof(remote.buf))
		_exit(126);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	execl("/bin/sh", "sh", "-c", all.buf, (char *)NULL);
	_exit(127);
}

static int start_one(const struct cp_opts *o, const struct cp_target *target,
		     struct child *c)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC))
		return -errno;
	if (pipe2(out, O_CLOEXEC)) {
		close(in[0]);
		close(in[1]);
		return -errno;
	}
	c->pid = fork();
	if (!c->pid)
		run_child(o, target, in[0], out[1]);
	close(in[0]);
	close(out[1]);
	c->in = in[1];
	c->out = out[0];
	return c->pid < 0 ? -errno : 0;
}

static int give_key(struct child *c, const struct cp_key *key)
{
	/* a pipe has room for it */
	if (write(c->in, key->buf, key->len) != (ssize_t)key->len ||
	    write(c->in, "\n", 1) != 1)
		return -EPIPE;
	return 0;
}

/* The port in "cp: listening on HOST:PORT, ...": 0 when it is not there. */
static uint16_t port_in(const char *line)
{
	static const char begin[] = "cp: listening on ";
	const char *at = strstr(line, begin), *comma, *colon;

	if (!at)
		return 0;
	at += sizeof(begin) - 1;
	comma = strchr(at, ',');
	if (!comma)
		return 0;
	colon = memrchr(at, ':', (size_t)(comma - at));
	return colon ? (uint16_t)strtoul(colon + 1, NULL, 10) : 0;
}

/* Waits for the line that tells the port. */
static int await_port(struct child *c, uint64_t end_ns, uint16_t *port)
{
	for (;;) {
		struct pollfd p = {.fd = c->out, .events = POLLIN};
		struct timespec t;
		int64_t left;
		ssize_t n;

		clock_gettime(CLOCK_MONOTONIC, &t);
		left = (int64_t)end_ns - (int64_t)t.tv_sec * 1000000000 -
		       t.tv_nsec;
		if (left <= 0 || poll(&p, 1, (int)(left / 1000000) + 1) == 0)
			return -ETIMEDOUT;
		n = read(c->out, c->line + c->len,
			 sizeof(c->line) - 1 - c->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EPIPE;
		c->len += (size_t)n;
		c->line[c->len] = 0;
		if (!strchr(c->line, '\n')) {
			if (c->len == sizeof(c->line) - 1)
				return -EPROTO;
			continue;
		}
		*port = port_in(c->line);
		return *port ? 0 : -EPROTO;
	}
}

static int make_key(struct cp_key *key)
{
	unsigned char raw[KEY_LEN];

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return -EIO;
	key->len = 2 * KEY_LEN;
	for (size_t i = 0; i < KEY_LEN; i++)
		snprintf((char *)key->buf + 2 * i, 3, "%02x", raw[i]);
	return 0;
}

static int await_all(struct cp_ssh *ssh, struct cp_targets *targets,
		     uint64_t timeout_ns)
{
	struct timespec t;
	uint64_t end;

	clock_gettime(CLOCK_MONOTONIC, &t);
	end = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec +
	      timeout_ns;
	for (size_t i = 0; i < ssh->n; i++) {
		struct cp_target *target = &targets->v[i];
		int rc = await_port(&ssh->child[i], end, &target->port);

		if (rc) {
			out_error(CP_CMD, "ssh to %s started no receiver: %s",
				  target->host, strerror(-rc));
			return rc;
		}
		/* the path is what is served there */
		free(target->path);
		target->path = NULL;
	}
	return 0;
}

int cp_ssh_start(const struct cp_opts *o, struct cp_targets *targets,
		 struct cp_key *key, struct cp_ssh **out)
{
	struct cp_ssh *ssh = calloc(1, sizeof(*ssh));
	int rc = make_key(key);

	if (ssh)
		ssh->child = calloc(targets->n, sizeof(*ssh->child));
	if (!ssh || !ssh->child || rc) {
		free(ssh);
		out_error(CP_CMD, "no memory");
		return -ENOMEM;
	}
	for (; ssh->n < targets->n && !rc; ssh->n++) {
		struct child *c = &ssh->child[ssh->n];

		rc = start_one(o, &targets->v[ssh->n], c);
		if (!rc)
			rc = give_key(c, key);
		if (rc)
			out_error(CP_CMD, "ssh to %s: %s",
				  targets->v[ssh->n].host, strerror(-rc));
	}
	if (!rc)
		rc = await_all(ssh, targets, o->connect_timeout_ns);
	if (rc) {
		cp_ssh_end(ssh);
		return rc;
	}
	*out = ssh;
	return 0;
}

void cp_ssh_end(struct cp_ssh *ssh)
{
	for (size_t i = 0; i < ssh->n; i++) {
		close(ssh->child[i].in);
		close(ssh->child[i].out);
	}
	for (size_t i = 0; i < ssh->n; i++)
		if (ssh->child[i].pid > 0)
			waitpid(ssh->child[i].pid, NULL, 0);
	free(ssh->child);
	free(ssh);
}
