/* SPDX-License-Identifier: MIT */
/*
 * main.c - `skein`: finds the subcommand in a table and runs it.
 */
#include "cmd.h"
#include "cmds.h"
#include "out.h"

#include "skein/version.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STR_(x) #x
#define STR(x) STR_(x)
#define VERSION                  \
	STR(SKEIN_VERSION_MAJOR) \
	"." STR(SKEIN_VERSION_MINOR) "." STR(SKEIN_VERSION_PATCH)

/* Keep in the order in which a newcomer meets them. Ends with a NULL name. */
static const struct cmd cmds[] = {
	{"info", "the RDMA device taken here and why; abilities, limits",
	 cmd_info},
	{"perf",
	 "latency, throughput: write, read, send, atomic, rpc, stream, connect",
	 cmd_perf},
	{"cp", "copy files to many machines at once", cmd_cp},
	{"run", "TCP programs on RDMA: run -- CMD; verbs programs: --verbs",
	 cmd_run},
	{"top", "live counters of the processes on this host", cmd_top},
	{"sim", "the library in a simulated world, from a seed", cmd_sim},
	{"meta", "keep what nodes need to reach each other (vqp)", cmd_meta},
	{"node", "the node service: queue pairs for many processes (vqp)",
	 cmd_node},
	{"kv", "serve an in-memory key-value store", cmd_kv},
	{"ycsb", "run YCSB's core workloads against it", cmd_ycsb},
	{"race", "a hash table by one-sided operations alone (vqp)", cmd_race},
	{0},
};

static void print_help(FILE *f)
{
	fprintf(f, "usage: skein COMMAND [options]\n\n"
		   "RDMA communication: RPC, memory operations and tools, on "
		   "RDMA NICs or on none.\n\n"
		   "commands:\n");
	for (const struct cmd *c = cmds; c->name; c++)
		fprintf(f, "  %-8s %s\n", c->name, c->help);
	fprintf(f, "\n`skein COMMAND --help` tells more about one of them; "
		   "`skein --version` the version.\n");
}

static const struct cmd *find(const char *name)
{
	for (const struct cmd *c = cmds; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

/* `skein help CMD` is `skein CMD --help`. */
static int help(int argc, char **argv)
{
	char opt[] = "--help";
	char *args[] = {NULL, opt, NULL};
	const struct cmd *c;

	if (argc < 2) {
		print_help(stdout);
		return CMD_OK;
	}
	c = find(argv[1]);
	if (!c) {
		out_error("skein",
			  "no command is called \"%s\": `skein "
			  "--help` lists them",
			  argv[1]);
		return CMD_USAGE;
	}
	args[0] = argv[1];
	return c->run(2, args);
}

/* Before "--": what follows is another command's. */
static bool has_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "--json"))
			return true;
	return false;
}

static int run(int argc, char **argv)
{
	const struct cmd *c;

	if (argc < 2) {
		print_help(stderr);
		return CMD_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help"))
		return help(argc - 1, argv + 1);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("skein " VERSION);
		return CMD_OK;
	}
	c = find(argv[1]);
	if (!c) {
		out_error("skein",
			  "no command is called \"%s\": `skein "
			  "--help` lists them",
			  argv[1]);
		return CMD_USAGE;
	}
	return c->run(argc - 1, argv + 1);
}

/* What opens a file or a socket must not get the number of a closed standard
 * descriptor. /dev/null takes its place, opened the wrong way: reading stdin or
 * writing stdout fails as on a closed one. A program that is started gets none
 * of it. */
static void fill_closed(void)
{
	static const int ways[] = {O_WRONLY, O_RDONLY, O_WRONLY};

	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", ways[fd] | O_CLOEXEC) < 0)
			return;
}

int main(int argc, char **argv)
{
	fill_closed();
	/* A command line that stops making sense before its --json is parsed
	 * has it nevertheless. */
	if (has_json(argc, argv))
		out_json_wanted();
	return out_end(run(argc, argv));
}
