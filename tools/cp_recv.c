/* SPDX-License-Identifier: MIT */
/*
 * cp_recv.c - `skein cp --serve`: receives copies until a signal, the end of
 * standard input, or with --once the end of the first.
 */
#include "cmd.h"
#include "cp.h"
#include "guard.h"
#include "out.h"

#include "cp/receiver/serve.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Waits for what ends the receiver; apart, for the main thread waits for
 * copies. */
struct ender {
	struct cp_serve *serve;
	bool until_eof;
	int signals; /* a signalfd */
	int quit[2]; /* a pipe: the receiver has ended by itself */
	pthread_t thread;
};

/* Is there nothing more to read, ever? */
static bool at_eof(void)
{
	char buf[256];
	ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));

	return !n || (n < 0 && errno != EINTR && errno != EAGAIN);
}

static void *end_it(void *arg)
{
	struct ender *e = arg;
	struct pollfd fds[] = {
		{.fd = e->signals, .events = POLLIN},
		{.fd = e->quit[0], .events = POLLIN},
		{.fd = e->until_eof ? STDIN_FILENO : -1, .events = POLLIN},
	};

	for (;;) {
		if (poll(fds, 3, -1) < 0)
			continue;
		if (fds[1].revents)
			return NULL;
		if (fds[0].revents || (fds[2].revents && at_eof())) {
			cp_serve_stop(e->serve);
			return NULL;
		}
	}
}

static int start_ender(struct ender *e, const sigset_t *ends)
{
	int rc = -EMFILE;

	e->signals = signalfd(-1, ends, SFD_CLOEXEC);
	if (e->signals < 0)
		return rc;
	if (pipe(e->quit))
		goto err_signals;
	rc = -pthread_create(&e->thread, NULL, end_it, e);
	if (!rc)
		return 0;
	close(e->quit[0]);
	close(e->quit[1]);
err_signals:
	close(e->signals);
	return rc;
}

static void stop_ender(struct ender *e)
{
	close(e->quit[1]); /* the reading end hangs up */
	pthread_join(e->thread, NULL);
	close(e->quit[0]);
	close(e->signals);
}

/* The one line (or object) that says that senders may come. */
static int announce(const struct cp_opts *o, struct cp_serve *serve,
		    struct skein_ctx *ctx)
{
	if (o->json)
		return out_json(json_pack(
			"{s:s, s:s, s:s, s:i}", "listening",
			cp_serve_addr(serve), "directory", cp_serve_dir(serve),
			"device", skein_ctx_device(ctx), "pid", (int)getpid()));
	printf("cp: listening on %s, serving %s, device %s\n",
	       cp_serve_addr(serve), cp_serve_dir(serve),
	       skein_ctx_device(ctx));
	return fflush(stdout) ? -EIO : 0;
}

static void tell(const struct cp_opts *o, const struct cp_status *st)
{
	if (st->phase != CP_DONE)
		out_error(CP_CMD, "a copy failed: %s", st->text);
	else if (!o->json)
		printf("cp: a copy is complete\n");
	fflush(stdout);
}

static int serve_until(const struct cp_opts *o, struct cp_serve *serve)
{
	struct cp_status st;

	while (cp_serve_wait(serve, &st)) {
		tell(o, &st);
		if (o->once)
			return st.phase == CP_DONE ? CMD_OK : CMD_FAILED;
	}
	return o->once ? CMD_FAILED : CMD_OK;
}

/* Where it listens. Without a key other hosts are served only when that was
 * said. */
static int choose_listen(const struct cp_opts *o, char *buf, size_t len)
{
	bool open = o->key_file || o->insecure;
	const char *host = o->listen;

	if (!host)
		host = open ? "" : "127.0.0.1";
	if (!open && !guard_is_loopback(host)) {
		out_error(CP_CMD,
			  "--listen %s is reached from other hosts, which "
			  "would write below %s without being asked for "
			  "anything: give --key FILE, or --insecure",
			  host, o->serve);
		return -EACCES;
	}
	snprintf(buf, len, "%s:%u", host, o->port);
	return 0;
}

/* Hosts that it has to do with; without a key and a word, this one. */
static int choose_allow(const struct cp_opts *o, struct cp_allow *allow,
			bool *any)
{
	struct cp_err err = {""};
	int rc = 0;

	*any = !o->allow && (o->key_file || o->insecure);
	if (o->allow)
		rc = cp_allow_add(allow, o->allow, &err);
	else if (!*any)
		rc = cp_allow_loopback(allow);
	if (rc)
		out_error(CP_CMD, "%s", err.text[0] ? err.text : "no memory");
	return rc;
}

static int receive(const struct cp_opts *o, struct skein_ctx *ctx,
		   const char *listen, const struct cp_allow *allow,
		   const sigset_t *ends)
{
	struct cp_serve_attr attr = {
		.ctx = ctx,
		.mcast = &cp_mcast_real,
		.listen = listen,
		.dir = o->serve,
		.allow = allow,
		.max_size = o->max_size,
	};
	struct ender e = {.until_eof = o->until_eof};
	struct cp_err err = {""};
	int rc;

	rc = cp_serve_open(&attr, &e.serve, &err);
	if (rc) {
		out_error(CP_CMD, "%s", err.text);
		return CMD_FAILED;
	}
	rc = start_ender(&e, ends);
	if (rc) {
		out_error(CP_CMD, "%s", strerror(-rc));
		cp_serve_close(e.serve);
		return CMD_FAILED;
	}
	if (announce(o, e.serve, ctx))
		rc = CMD_FAILED;
	else
		rc = serve_until(o, e.serve);
	stop_ender(&e);
	cp_serve_close(e.serve);
	return rc;
}

int cp_recv_main(const struct cp_opts *o)
{
	struct out_log log = {0};
	struct skein_ctx *ctx;
	struct cp_allow allow = {0};
	struct cp_key key;
	char listen[300];
	sigset_t ends;
	bool any;
	int rc;

	if (choose_listen(o, listen, sizeof(listen)) ||
	    choose_allow(o, &allow, &any)) {
		cp_allow_fini(&allow);
		return CMD_USAGE;
	}
	rc = CMD_FAILED;
	if (cp_key_read(o->key_file, &key))
		goto out;
	/* before any thread starts: they inherit it */
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	/* a file that is too large is an error of that file */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (!cp_ctx_open(o, &key, &log, &ctx)) {
		rc = receive(o, ctx, listen, any ? NULL : &allow, &ends);
		skein_ctx_close(ctx);
	}
	explicit_bzero(&key, sizeof(key));
out:
	cp_allow_fini(&allow);
	return rc;
}
