/* SPDX-License-Identifier: MIT */
/*
 * cmd_run.c - `skein run -- CMD`: starts a program with Skein's libraries in
 * front of the system's, by LD_PRELOAD: its TCP connections move onto streams,
 * or, with --verbs, it finds the software RDMA device.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"
#include "run_list.h"
#include "run_settings.h"
#include "settings.h"

#include "stream/conf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN_CMD "skein run"

/* As env(1) and sh(1) have it. */
enum {
	RUN_REQUIRED = 70, /* as the library has it */
	RUN_CANNOT = 126,
	RUN_NOT_FOUND = 127,
};

struct run {
	bool verbs;
	bool soft_only;
	const char *link, *back;
	const char *wait, *report, *pollers;
	bool require;
	bool json;
	bool list;
};

/* A library: its name, where it lies seen from the folder of this program when
 * it was built, and the variable that names it. */
struct run_lib {
	const char *name, *built, *env;
	bool verbs;
};

static const struct run_lib lib_verbs = {
	"libskein-verbs.so", "../src/bind/verbs", "SKEIN_VERBS_LIB", true};
static const struct run_lib lib_socket = {
	"libskein-socket.so", "../src/bind/socket", "SKEIN_SOCKET_LIB", false};

static int find_lib(const struct run_lib *lib, char *path, size_t len)
{
	const char *places[] = {SKEIN_RUN_LIBDIR, lib->built};
	const char *set = lib->verbs ? getenv("SKEIN_VERBS_LIB")
				     : getenv("SKEIN_SOCKET_LIB");
	char exe[PATH_MAX];
	ssize_t n;
	int i;

	if (set && *set) {
		snprintf(path, len, "%s", set);
		return access(path, R_OK) ? -errno : 0;
	}
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (n < 0)
		return -errno;
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	for (i = 0; i < 2; i++) {
		if ((size_t)snprintf(path, len, "%s/%s/%s", exe, places[i],
				     lib->name) < len &&
		    !access(path, R_OK))
			return 0;
	}
	return -ENOENT;
}

/* Puts VALUE before what NAME holds: a program's own entries stay. */
static int prepend(const char *name, const char *value)
{
	const char *old = getenv(name);
	char *list;
	int rc;

	if (!old || !*old)
		return setenv(name, value, 1) ? -errno : 0;
	if (asprintf(&list, "%s:%s", value, old) < 0)
		return -ENOMEM;
	rc = setenv(name, list, 1) ? -errno : 0;
	free(list);
	return rc;
}

/* LD_PRELOAD takes no path with a space. LD_LIBRARY_PATH does: the loader then
 * finds the library in its folder, by its name alone. */
static int preload(char *lib)
{
	char *name = strrchr(lib, '/');
	int rc;

	if (!strpbrk(lib, " :"))
		return prepend("LD_PRELOAD", lib);
	if (!name || strpbrk(name, " :") || strpbrk(lib, ":;")) {
		out_error(RUN_CMD,
			  "the loader cannot take a path with a colon, or a "
			  "name with a space: %s",
			  lib);
		return -EINVAL;
	}
	*name++ = '\0';
	rc = prepend("LD_LIBRARY_PATH", lib);
	return rc ? rc : prepend("LD_PRELOAD", name);
}

/* What the loader is to find: the library's front (bind/own/front.c), if there is
 * one beside it. */
static void front_of(char *lib, size_t len)
{
	char path[2 * PATH_MAX];
	char *end = strrchr(lib, '.');

	if (!end || strcmp(end, ".so") ||
	    (size_t)snprintf(path, sizeof(path), "%.*s-front.so",
			     (int)(end - lib), lib) >= len)
		return;
	if (!access(path, R_OK))
		memcpy(lib, path, strlen(path) + 1);
}

/* Finds a library and puts it in front. */
static int front(const struct run_lib *lib)
{
	char path[2 * PATH_MAX];
	const char *named = getenv(lib->env);
	int rc = find_lib(lib, path, sizeof(path));

	if (rc && named && *named) {
		out_error(RUN_CMD, "%s=%s: %s", lib->env, path, strerror(-rc));
		return rc;
	}
	if (rc) {
		out_error(RUN_CMD,
			  "%s is not beside this program (%s); %s can name it",
			  lib->name, strerror(-rc), lib->env);
		return rc;
	}
	front_of(path, sizeof(path));
	return preload(path);
}

/* An option comes before a variable, a variable before the default. */
static const char *chosen(const char *option, const char *name)
{
	return option ? option : getenv(name);
}

static bool is_set(const char *value, const char *to)
{
	return value && !strcmp(value, to);
}

/* The environment's settings make sense. */
static bool settings_fit(bool verbs)
{
	const char *name, *value, *wrong;

	for (unsigned i = 0; (name = run_setting_name(i)); i++) {
		value = getenv(name);
		if (!value || verbs != !strncmp(name, "SKEIN_VERBS_", 12))
			continue;
		wrong = run_setting_wrong(name, value);
		if (!wrong)
			continue;
		out_error(RUN_CMD, "%s is \"%s\": it %s", name, value, wrong);
		return false;
	}
	return true;
}

static int prepare_verbs(const struct run *r)
{
	if (front(&lib_verbs) ||
	    (r->soft_only && setenv("SKEIN_VERBS_DEVICES", "soft", 1)) ||
	    (r->link && setenv("SKEIN_VERBS_LINK", r->link, 1)) ||
	    (r->back && setenv("SKEIN_VERBS_BACK", r->back, 1)) ||
	    !settings_fit(true))
		return -1;
	return 0;
}

/* The program may change its folder: the report's path is made absolute. What
 * cannot be written is said now: the program has no line for it. */
static int prepare_report(const char *report)
{
	char here[PATH_MAX], *path = NULL;
	int rc, fd = open(report, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
			  0600);

	if (fd < 0) {
		out_error(RUN_CMD, "the report %s cannot be written: %s",
			  report, strerror(errno));
		return -1;
	}
	close(fd);
	if (*report == '/')
		return setenv("SKEIN_RUN_REPORT", report, 1);
	if (!getcwd(here, sizeof(here)) ||
	    asprintf(&path, "%s/%s", here, report) < 0)
		return -1;
	rc = setenv("SKEIN_RUN_REPORT", path, 1);
	free(path);
	return rc;
}

static bool streams_fit(void)
{
	struct stream_conf conf;
	char why[320];

	if (!stream_conf_load(&conf, why, sizeof(why)))
		return true;
	out_error(RUN_CMD, "%s", why);
	return false;
}

static int prepare_socket(const struct run *r)
{
	const char *report = r->report ? r->report : getenv("SKEIN_RUN_REPORT");

	if (front(&lib_socket) ||
	    (r->wait && setenv("SKEIN_RUN_WAIT", r->wait, 1)) ||
	    (r->pollers && setenv("SKEIN_RUN_POLLERS", r->pollers, 1)) ||
	    (r->require && setenv("SKEIN_RUN_REQUIRE", "1", 1)) ||
	    !settings_fit(false) || !streams_fit() ||
	    (report && *report && prepare_report(report)))
		return -1;
	return 0;
}

/* The file that execvp() would take. */
static int open_command(const char *name)
{
	const char *at = getenv("PATH");
	char path[2 * PATH_MAX];
	int fd = -1, len;

	if (strchr(name, '/'))
		return open(name, O_RDONLY | O_CLOEXEC);
	for (; at && fd < 0; at = at[len] ? at + len + 1 : NULL) {
		len = (int)strcspn(at, ":");
		snprintf(path, sizeof(path), "%.*s/%s", len, at, name);
		if (!access(path, X_OK))
			fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	return fd;
}

/* Does musl's loader start it? Its name is in the file's first page or two. */
static bool is_musl(const char *name)
{
	char head[8192];
	int fd = open_command(name);
	ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof(head));

	if (fd >= 0)
		close(fd);
	return n > SELFMAG && !memcmp(head, ELFMAG, SELFMAG) &&
	       memmem(head, (size_t)n, "/lib/ld-musl-", 13);
}

static int start(const struct run *r, char **argv)
{
	int err;

	settings_say_unknown(RUN_CMD);
	if (r->verbs ? prepare_verbs(r) : prepare_socket(r))
		return CMD_FAILED;
	if (!r->verbs && is_musl(argv[0])) {
		out_error(RUN_CMD,
			  "%s is not a program of glibc: it stays on "
			  "TCP",
			  argv[0]);
		if (is_set(getenv("SKEIN_RUN_REQUIRE"), "1"))
			return RUN_REQUIRED;
	}
	execvp(argv[0], argv);
	err = errno;
	out_error(RUN_CMD, "%s: %s", *argv[0] ? argv[0] : "\"\"",
		  strerror(err));
	return err == ENOENT ? RUN_NOT_FOUND : RUN_CANNOT;
}

static bool option_fits(const char *option, const char *name, const char *value)
{
	const char *wrong = value ? run_setting_wrong(name, value) : NULL;

	if (wrong)
		out_error(RUN_CMD, "%s is \"%s\": it %s", option, value, wrong);
	return !wrong;
}

/* Which kind of program is it for? */
static bool fits(const struct run *r)
{
	const char *wait = chosen(r->wait, "SKEIN_RUN_WAIT");
	bool require = r->require || is_set(getenv("SKEIN_RUN_REQUIRE"), "1");

	if (!r->verbs && (r->soft_only || r->back || r->link)) {
		out_error(RUN_CMD, "--soft-only, --link and --back go with "
				   "--verbs");
		return false;
	}
	if (r->verbs && (r->report || r->require || r->wait || r->pollers)) {
		out_error(RUN_CMD,
			  "--report, --require, --wait and --pollers are for "
			  "TCP programs, not with --verbs");
		return false;
	}
	if (!option_fits("--wait", "SKEIN_RUN_WAIT", r->wait) ||
	    !option_fits("--pollers", "SKEIN_RUN_POLLERS", r->pollers) ||
	    !option_fits("--link", "SKEIN_VERBS_LINK", r->link) ||
	    !option_fits("--back", "SKEIN_VERBS_BACK", r->back))
		return false;
	if (!r->verbs && require && is_set(wait, "tcp")) {
		out_error(
			RUN_CMD,
			"--require (SKEIN_RUN_REQUIRE) does not go with "
			"--wait=tcp (SKEIN_RUN_WAIT), which promotes nothing");
		return false;
	}
	if (r->pollers && !is_set(wait, "bpev")) {
		out_error(RUN_CMD, "--pollers goes with --wait=bpev: no other "
				   "mode has polling threads");
		return false;
	}
	return true;
}

static bool fits_list(const struct run *r, bool command)
{
	if (!command && !r->verbs && !r->report && !r->require && !r->wait &&
	    !r->pollers)
		return true;
	out_error(RUN_CMD, "--list goes with --json alone: it starts nothing");
	return false;
}

int cmd_run(int argc, char **argv)
{
	struct run r = {0};
	const struct opt opts[] = {
		{0, "wait", OPT_STR, &r.wait, "MODE",
		 "how a program waits [adaptive, bp, bpts, event, bpev, tcp] "
		 "(default adaptive)"},
		{0, "pollers", OPT_STR, &r.pollers, "N",
		 "polling threads of --wait=bpev (default by cores: 0 to 2)"},
		{0, "report", OPT_STR, &r.report, "FILE",
		 "a line of JSON for each TCP connection, when it ends"},
		{0, "require", OPT_FLAG, &r.require,
		 .help = "ends the program when a connection must stay on TCP"},
		{0, "list", OPT_FLAG, &r.list,
		 .help = "instead: what runs so now, and its TCP connections"},
		{0, "verbs", OPT_FLAG, &r.verbs,
		 .help = "instead: programs that use libibverbs see skein0"},
		{0, "soft-only", OPT_FLAG, &r.soft_only,
		 .help = "and no other device"},
		{0, "link", OPT_STR, &r.link, "KIND",
		 "what its port looks like [ethernet, infiniband] "
		 "(default ethernet)"},
		{0, "back", OPT_STR, &r.back, "LIST",
		 "what peers may map: of heap,mmap,shm (all); none: \"\""},
		{0, "json", OPT_FLAG, &r.json,
		 .help = "one JSON object: the list, or why COMMAND cannot be "
			 "started; else stdout is COMMAND's"},
		{0},
	};
	const struct opt_usage u = {
		RUN_CMD, "[options] -- COMMAND [ARGUMENT]... | --list",
		"Runs an unmodified program: its TCP connections to programs "
		"that also run so,\non this host, move onto streams. With "
		"--verbs: a program built for RDMA NICs,\non the software "
		"device.",
		opts, NULL};
	/* opt_parse() moves it */
	const char *word = argc > 1 && *argv[1] != '-' ? argv[1] : NULL;
	int first = 0;

	switch (opt_parse(&u, argc, argv, &first)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		if (word)
			out_error(RUN_CMD,
				  "a command with options goes behind \"--\": "
				  "`skein run -- %s ...`",
				  word);
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	if (!fits(&r) || (r.list && !fits_list(&r, first < argc)))
		return CMD_USAGE;
	if (r.list)
		return run_list(RUN_CMD, r.json);
	if (first == argc) {
		out_error(RUN_CMD,
			  "no command: `skein run [options] -- COMMAND`");
		return CMD_USAGE;
	}
	return start(&r, argv + first);
}
