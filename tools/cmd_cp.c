/* SPDX-License-Identifier: MIT */
/*
 * cmd_cp.c - `skein cp`: its options, the key, the context; cp.h says where the
 * rest is.
 */
#include "cmd.h"
#include "cmds.h"
#include "cp.h"
#include "opt.h"
#include "out.h"

#include "cp/sender/gather.h"
#include "cp/manifest.h"
#include "cp/sender/racks.h"
#include "env/key_file.h"

#include <skein/mcast.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const cp_algorithms[] = {"pipeline", "sequential", "chain",
				     "tree",	 "hybrid",     NULL};

static const char *const wait_fors[] = {
	[CP_WAIT_ANY] = "any",
	[CP_WAIT_MOST] = "most",
	[CP_WAIT_ALL] = "all",
	NULL,
};

static const char args[] = "[options] FILE... TARGETS\n"
			   "       " CP_CMD " --serve DIR [options]";

static const char about[] =
	"Copies files, directories, links, or standard input (-) to many "
	"machines at once, at\n"
	"nearly the price of one copy. On each, `" CP_CMD " --serve DIR` "
	"receives; or --ssh starts it.";

static const char more[] =
	"TARGETS: HOST[:PORT][:PATH], several apart by commas; "
	"node[1-64]:/data; [::1]:7450;\n"
	"@FILE: targets from a file. PATH: a directory at or below DIR.";

static enum opt_verdict parse(int argc, char **argv, struct cp_opts *o,
			      int *first)
{
	const struct opt opts[] = {
		{0, "serve", OPT_STR, &o->serve, "DIR",
		 "receive below this directory"},
		{'p', "port", OPT_U32, &o->port, "N",
		 "--serve: of this receiver, 0: a free one; else: of targets "
		 "that name none",
		 0, UINT16_MAX},
		{0, "listen", OPT_STR, &o->listen, "HOST",
		 "--serve: address to listen on; without a key 127.0.0.1"},
		{0, "insecure", OPT_FLAG, &o->insecure, NULL,
		 "--serve: other hosts may write here without a key"},
		{0, "allow", OPT_STR, &o->allow, "LIST",
		 "--serve: hosts and networks of senders and receivers"},
		{0, "max-size", OPT_SIZE, &o->max_size, "BYTES",
		 "--serve: data of one copy"},
		{0, "once", OPT_FLAG, &o->once, NULL,
		 "--serve: end with the first copy, and by its success"},
		{0, "until-eof", OPT_FLAG, &o->until_eof, NULL,
		 "--serve: end when standard input does"},
		{0, "hosts", OPT_STR, &o->hosts, "FILE",
		 "targets from a file: all operands are what to copy"},
		{0, "dir", OPT_STR, &o->dir, "PATH",
		 "directory of targets that name none"},
		{0, "name", OPT_STR, &o->name, "NAME",
		 "what standard input is called there"},
		{0, "verify", OPT_FLAG, &o->verify, NULL,
		 "receivers read back what they wrote"},
		{0, "resume", OPT_FLAG, &o->resume, NULL,
		 "go on where a copy failed; send what is lacking"},
		{0, "sync", OPT_FLAG, &o->sync, NULL,
		 "on the disk before it has its name"},
		{0, "limit-rate", OPT_SIZE, &o->limit_rate, "BYTES",
		 "a second that are read to be sent"},
		{0, "algorithm", OPT_CHOICE, &o->algorithm, "NAME",
		 "which member sends to which", 0, 0, cp_algorithms},
		{0, "racks", OPT_STR, &o->racks, "FILE",
		 "--algorithm hybrid: a line names the hosts of one rack"},
		{0, "block-size", OPT_SIZE, &o->block_size, "BYTES",
		 "a power of two; default by what is sent, up to 1M",
		 CP_BLOCK_MIN, CP_BLOCK_MAX},
		{0, "connect-timeout", OPT_NS, &o->connect_timeout_ns, "TIME",
		 "how long a target may take to answer"},
		{0, "wait-for", OPT_CHOICE, &o->wait_for, "SOME",
		 "targets without which the copy does not begin", 0, 0,
		 wait_fors},
		{0, "greeting", OPT_NS, &o->greeting_ns, "TIME",
		 "so long the others are waited for, when those are there",
		 1000000, SKEIN_S(3600)},
		{0, "patience", OPT_NS, &o->patience_ns, "TIME",
		 "how long one may be silent while others wait for it", 1000000,
		 SKEIN_S(3600)},
		{0, "ssh", OPT_FLAG, &o->ssh, NULL,
		 "start the receivers through ssh"},
		{0, "ssh-command", OPT_STR, &o->ssh_command, "WORDS",
		 "ssh and its options"},
		{0, "remote-skein", OPT_STR, &o->remote, "PATH",
		 "what skein is called there"},
		{0, "key", OPT_STR, &o->key_file, "FILE",
		 "with a secret that both ends know; -: a line of stdin"},
		{0, "device", OPT_STR, &o->device, "NAME",
		 "soft, verbs, verbs:NAME"},
		{0, "json", OPT_FLAG, &o->json, NULL,
		 "one JSON object on stdout"},
		{0},
	};
	const struct opt_usage usage = {CP_CMD, args, about, opts, more};

	return opt_parse(&usage, argc, argv, first);
}

static int check(const struct cp_opts *o, int operands)
{
	if (o->block_size & (o->block_size - 1)) {
		out_error(CP_CMD, "--block-size is a power of two");
		return CMD_USAGE;
	}
	if (o->serve && operands) {
		out_error(CP_CMD, "--serve takes no files: it receives");
		return CMD_USAGE;
	}
	if (!o->serve && (o->once || o->until_eof || o->listen || o->allow ||
			  o->max_size || o->insecure)) {
		out_error(CP_CMD, "--once, --until-eof, --listen, --insecure, "
				  "--allow and --max-size are --serve's");
		return CMD_USAGE;
	}
	if (!o->serve && operands < (o->hosts ? 1 : 2)) {
		out_error(CP_CMD,
			  "wants FILE... and TARGETS: see `" CP_CMD " --help`");
		return CMD_USAGE;
	}
	if (o->insecure && o->key_file) {
		out_error(CP_CMD, "--key and --insecure exclude each other");
		return CMD_USAGE;
	}
	if (o->racks && o->algorithm != SKEIN_MCAST_HYBRID) {
		out_error(CP_CMD, "--racks is --algorithm hybrid's");
		return CMD_USAGE;
	}
	if (o->ssh && o->key_file) {
		out_error(CP_CMD, "--ssh makes a key of its own: not --key");
		return CMD_USAGE;
	}
	return CMD_OK;
}

static int read_racks(struct cp_opts *o, struct cp_err *err)
{
	char self[HOST_NAME_MAX + 1] = "";

	gethostname(self, sizeof(self) - 1);
	return cp_racks_read(o->racks, &o->targets, self, &o->rack, err);
}

static int read_targets(struct cp_opts *o, char **argv, int argc)
{
	struct cp_err err = {""};
	int rc;

	if (o->hosts)
		rc = cp_targets_add_file(&o->targets, o->hosts, &err);
	else
		rc = cp_targets_add(&o->targets, argv[--argc], true, &err);
	if (!rc)
		rc = cp_targets_check(&o->targets, o->ssh, &err);
	if (!rc && o->racks)
		rc = read_racks(o, &err);
	if (rc) {
		out_error(CP_CMD, "%s", err.text);
		return CMD_USAGE;
	}
	o->operand = argv;
	o->operands = argc;
	return CMD_OK;
}

int cp_key_read(const char *file, struct cp_key *key)
{
	int fd = STDIN_FILENO, rc = 0;
	const char *why;

	key->len = 0;
	if (!file)
		return 0;
	if (strcmp(file, "-"))
		rc = key_file_open(file, &fd, &why);
	if (!rc) {
		rc = key_file_line(fd, key->buf, sizeof(key->buf), &key->len,
				   &why);
		if (fd != STDIN_FILENO)
			close(fd);
	}
	if (rc)
		out_error(CP_CMD, "--key: %s: %s", file, why);
	return rc;
}

int cp_ctx_open(const struct cp_opts *o, const struct cp_key *key,
		struct out_log *log, struct skein_ctx **ctx)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr),
		.device = o->device,
		.background = true,
		.key = key->len ? key->buf : NULL,
		.key_len = key->len,
		.log = out_log_line,
		.log_arg = log,
	};
	int rc = skein_ctx_open(&attr, ctx);

	if (rc)
		out_error(CP_CMD, "%s", out_log_reason(log, rc));
	else
		out_log_opened(log);
	return rc;
}

int cmd_cp(int argc, char **argv)
{
	struct cp_opts o = {
		.port = CP_PORT,
		.ssh_command = "ssh",
		.remote = "skein",
		.connect_timeout_ns = SKEIN_S(10),
		.greeting_ns = SKEIN_S(2),
	};
	int first = 0, rc;

	switch (parse(argc, argv, &o, &first)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	rc = check(&o, argc - first);
	if (rc)
		return rc;
	if (o.serve)
		return cp_recv_main(&o);
	rc = read_targets(&o, argv + first, argc - first);
	if (!rc)
		rc = cp_send_main(&o);
	free(o.rack);
	cp_targets_fini(&o.targets);
	return rc;
}
