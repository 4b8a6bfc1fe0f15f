/* SPDX-License-Identifier: MIT */
/*
 * cmd_node.c - `skein node`: the node service, until SIGTERM or SIGINT.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"
#include "until.h"

#include "base/hostport.h"

#include <skein/ctx.h>
#include <skein/error.h>
#include <skein/vqp.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CMD "skein node"
#define PATH_ROOM 256
#define SOCKET_PATH_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)

struct node_opts {
	struct opt_strs listen;
	const char *meta;
	const char *device;
	uint32_t port;
	uint32_t clients, requests, vqps, ports, user_times;
	uint64_t memory, meta_wait_ns;
	bool json;
};

/* "HOST:PORT", or two of them. */
static bool meta_check(const char *meta)
{
	const char *comma = strchr(meta, ',');
	char *copy, *rest, *at;
	struct hostport addr;
	bool ok = true;

	if (comma && strchr(comma + 1, ',')) {
		out_error(CMD, "--meta: two servers at most");
		return false;
	}
	copy = rest = strdup(meta);
	while (ok && (at = strsep(&rest, ","))) {
		ok = !hostport_parse(at, &addr);
		if (!ok)
			out_error(CMD,
				  "--meta: \"%.64s\" is not HOST:PORT (an IPv6 "
				  "address in brackets)",
				  at);
	}
	free(copy);
	return ok;
}

static enum opt_verdict parse(int argc, char **argv, struct node_opts *o)
{
	const struct opt opts[] = {
		{'l', "listen", OPT_STRS, &o->listen, "PATH[:DOMAIN]",
		 "a socket, of mode 0600, and what its clients are of; again "
		 "for more; default: SKEIN_NODE"},
		{0, "meta", OPT_STR, &o->meta, "ADDR[,ADDR]",
		 "the meta server, HOST:PORT, or two of them"},
		{0, "meta-wait", OPT_NS, &o->meta_wait_ns, "TIME",
		 "the second one is asked when the first is silent so long", 1,
		 SKEIN_S(1)},
		{0, "port", OPT_U32, &o->port, "N",
		 "this node's number; 0: a free one", 0, 65535},
		{0, "clients", OPT_U32, &o->clients, "N",
		 "clients at a time at most", 1, 4096},
		{0, "memory", OPT_SIZE, &o->memory, "SIZE",
		 "memory of a client at most", 4096, 1ull << 40},
		{0, "requests", OPT_U32, &o->requests, "N",
		 "requests of a client outstanding at most", 1, 1u << 20},
		{0, "vqps", OPT_U32, &o->vqps, "N",
		 "virtual queue pairs of a client at most", 1, 1024},
		{0, "ports", OPT_U32, &o->ports, "N",
		 "ports of a client at most", 1, 65535},
		{0, "user-times", OPT_U32, &o->user_times, "N",
		 "all clients of a user have so many times each of these", 1,
		 4096},
		{0, "device", OPT_STR, &o->device, "NAME",
		 "soft, verbs, verbs:NAME"},
		{0, "json", OPT_FLAG, &o->json, NULL,
		 "one JSON object when it listens"},
		{0},
	};
	const struct opt_usage usage = {
		.cmd = CMD,
		.args = "[options]",
		.about = "Owns the device's queue pairs; other processes of "
			 "this user connect through\nits rings, in "
			 "microseconds.",
		.opts = opts,
	};
	enum opt_verdict v = opt_parse(&usage, argc, argv, NULL);

	if (v == OPT_RUN && !o->listen.n) {
		o->listen.at[0] = getenv("SKEIN_NODE");
		o->listen.n = o->listen.at[0] && *o->listen.at[0];
	}
	if (v == OPT_RUN && !o->listen.n) {
		out_error(CMD, "where? --listen PATH, or SKEIN_NODE");
		return OPT_BAD;
	}
	if (v == OPT_RUN && o->meta && !meta_check(o->meta))
		return OPT_BAD;
	return v;
}

/* The last colon ends the path, if no folder is behind it. Its length; what
 * does not fit into path is cut off. */
static size_t path_of(const char *at, char path[PATH_ROOM])
{
	const char *colon = strrchr(at, ':');
	size_t len = colon && !strchr(colon, '/') ? (size_t)(colon - at)
						  : strlen(at);

	snprintf(path, PATH_ROOM, "%.*s", (int)len, at);
	return len;
}

static int listen_one(struct skein_node *node, const char *at)
{
	char path[PATH_ROOM];
	size_t len = path_of(at, path);

	if (len >= sizeof(path))
		return -ENAMETOOLONG;
	return skein_node_listen(node, path, at[len] ? at + len + 1 : NULL);
}

/* The folder that a path is in. */
static void folder_of(const char *path, char folder[PATH_ROOM])
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(folder, PATH_ROOM, ".");
	else
		snprintf(folder, PATH_ROOM, "%.*s",
			 (int)(slash - path) + (slash == path), path);
}

/* What can be seen before the device is opened: -errno, or 0. */
static int path_look(const char *at)
{
	char path[PATH_ROOM], folder[PATH_ROOM];
	size_t len = path_of(at, path);
	struct stat st;

	if (!len || (at[len] && !at[len + 1]))
		return -EINVAL;
	if (len > SOCKET_PATH_MAX)
		return -ENAMETOOLONG;
	folder_of(path, folder);
	if (stat(folder, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (access(folder, W_OK | X_OK))
		return -errno;
	return !stat(path, &st) && !S_ISSOCK(st.st_mode) ? -EADDRINUSE : 0;
}

/* Why no socket can be at this path, and what to do. */
static void listen_failed(const char *at, int rc)
{
	char path[PATH_ROOM], folder[PATH_ROOM];
	size_t len = path_of(at, path);
	struct stat st;

	folder_of(path, folder);
	if (rc == -EINVAL)
		out_error(CMD, "--listen \"%s\": the %s is empty", at,
			  len ? "domain after the colon" : "path");
	else if (rc == -ENAMETOOLONG)
		out_error(CMD,
			  "%.64s...: %zu bytes are too long for a Unix socket, "
			  "which takes %zu: give a shorter path",
			  at, len, SOCKET_PATH_MAX);
	else if (rc == -ENOENT || rc == -ENOTDIR)
		out_error(CMD,
			  "%s: there is no folder %s: make it first, or give "
			  "another path",
			  path, folder);
	else if (rc == -EACCES || rc == -EPERM || rc == -EROFS)
		out_error(CMD,
			  "%s: the folder %s cannot be written: give a path in "
			  "a folder of your own",
			  path, folder);
	else if (rc == -EADDRINUSE && !stat(path, &st) && !S_ISSOCK(st.st_mode))
		out_error(CMD, "%s is %s: give another path", path,
			  S_ISDIR(st.st_mode) ? "a folder"
					      : "a file and no socket");
	else if (rc == -EADDRINUSE)
		out_error(CMD,
			  "%s: another node service listens there: stop it, or "
			  "give another path",
			  path);
	else
		out_error(CMD, "%s: %s", at, skein_strerror(rc));
}

static bool paths_fit(const struct node_opts *o)
{
	for (unsigned i = 0; i < o->listen.n; i++) {
		int rc = path_look(o->listen.at[i]);

		if (!rc)
			continue;
		listen_failed(o->listen.at[i], rc);
		return false;
	}
	return true;
}

/* soft hears strangers of other hosts only where SKEIN_LINK asks for that. */
static bool serves_this_host(struct skein_ctx *ctx)
{
	const char *link = getenv("SKEIN_LINK");

	return !strncmp(skein_ctx_device(ctx), "soft", 4) &&
	       (!link || !*link || !strcmp(link, "off"));
}

static int announce(const struct node_opts *o, struct skein_ctx *ctx,
		    struct skein_node *node)
{
	unsigned i;

	if (o->json)
		return out_json(json_pack(
			"{s:s, s:s, s:s, s:i}", "listening", o->listen.at[0],
			"node", skein_node_addr(node), "device",
			skein_ctx_device(ctx), "pid", (int)getpid()));
	printf("node: %s, listening at ", skein_node_addr(node));
	for (i = 0; i < o->listen.n; i++)
		printf("%s, ", o->listen.at[i]);
	printf("device %s\n", skein_ctx_device(ctx));
	if (serves_this_host(ctx))
		printf("node: nodes of other hosts do not reach this one: "
		       "start it with SKEIN_LINK=auto for them\n");
	return fflush(stdout) ? -EIO : 0;
}

static int node_open(const struct node_opts *o, struct skein_ctx *ctx,
		     struct out_log *log, struct skein_node **node)
{
	struct skein_node_attr a = {.size = sizeof(a),
				    .meta = o->meta,
				    .node_port = (uint16_t)o->port,
				    .clients_max = o->clients,
				    .mem_max = o->memory,
				    .requests_max = o->requests,
				    .vqps_max = o->vqps,
				    .ports_max = o->ports,
				    .user_times = o->user_times,
				    .meta_wait_ns = o->meta_wait_ns};
	unsigned i;
	int rc = skein_node_open(ctx, NULL, &a, node);

	if (rc) {
		out_error(CMD, "%s%s", out_log_reason(log, rc),
			  rc == -ECONNREFUSED
				  ? ": start one by `skein meta`, or name one "
				    "that runs by --meta"
				  : "");
		return rc;
	}
	for (i = 0; i < o->listen.n; i++) {
		rc = listen_one(*node, o->listen.at[i]);
		if (!rc)
			continue;
		listen_failed(o->listen.at[i], rc);
		skein_node_close(*node);
		return rc;
	}
	return 0;
}

static int run(const void *opts, struct skein_stop *stop)
{
	const struct node_opts *o = opts;
	struct out_log log = {0};
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = o->device,
				      .log = out_log_line,
				      .log_arg = &log};
	struct skein_node *node;
	struct skein_ctx *ctx;
	int rc;

	if (!paths_fit(o))
		return CMD_FAILED;
	rc = skein_ctx_open(&attr, &ctx);
	if (rc) {
		out_error(CMD, "%s", out_log_reason(&log, rc));
		return CMD_FAILED;
	}
	rc = node_open(o, ctx, &log, &node);
	if (rc) {
		skein_ctx_close(ctx);
		return CMD_FAILED;
	}
	out_log_opened(&log);
	rc = announce(o, ctx, node);
	if (!rc)
		skein_node_run(node, UINT64_MAX, stop);
	else
		out_error(CMD, "cannot write to standard output");
	skein_node_close(node);
	skein_ctx_close(ctx);
	return rc ? CMD_FAILED : CMD_OK;
}

int cmd_node(int argc, char **argv)
{
	struct node_opts o = {.clients = 256,
			      .memory = 64u << 20,
			      .requests = 256,
			      .vqps = 1024,
			      .ports = 64,
			      .user_times = 4,
			      .meta_wait_ns = 50000};

	switch (parse(argc, argv, &o)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	return until_signal(CMD, run, &o);
}
