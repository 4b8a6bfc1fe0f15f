/* SPDX-License-Identifier: MIT */
/*
 * cmd_run.c - `skein run --verbs -- CMD`: starts a program with Skein's
 * libraries in front of the system's, by LD_PRELOAD.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN_CMD "skein run"
#define RUN_LIB "libskein-verbs.so"

/* As env(1) and sh(1) have it. */
enum {
	RUN_CANNOT = 126,
	RUN_NOT_FOUND = 127,
};

struct run {
	bool verbs;
	bool soft_only;
	uint32_t link;
	const char *back;
	bool json;
};

/* Where it lies seen from the folder of this program: installed, or built. */
static const char *const places[] = {SKEIN_RUN_LIBDIR, "../src/bind/verbs",
				     NULL};

static int find_lib(char *path, size_t len)
{
	const char *set = getenv("SKEIN_VERBS_LIB");
	char exe[PATH_MAX];
	const char *const *place;
	ssize_t n;

	if (set && *set) {
		snprintf(path, len, "%s", set);
		return access(path, R_OK) ? -errno : 0;
	}
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (n < 0)
		return -errno;
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	for (place = places; *place; place++) {
		if ((size_t)snprintf(path, len, "%s/%s/" RUN_LIB, exe, *place) <
			    len &&
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

static const char *const links[] = {"ethernet", "infiniband", NULL};

static int start(const struct run *r, char **argv)
{
	char lib[2 * PATH_MAX];
	int err;

	err = find_lib(lib, sizeof(lib));
	if (err) {
		out_error(RUN_CMD,
			  RUN_LIB " is not beside this program (%s); "
				  "SKEIN_VERBS_LIB can name it",
			  strerror(-err));
		return CMD_FAILED;
	}
	if (preload(lib) ||
	    (r->soft_only && setenv("SKEIN_VERBS_DEVICES", "soft", 1)) ||
	    setenv("SKEIN_VERBS_LINK", links[r->link], 1) ||
	    (r->back && setenv("SKEIN_VERBS_BACK", r->back, 1))) {
		out_error(RUN_CMD, "cannot set the environment");
		return CMD_FAILED;
	}
	execvp(argv[0], argv);
	err = errno;
	out_error(RUN_CMD, "%s: %s", argv[0], strerror(err));
	return err == ENOENT ? RUN_NOT_FOUND : RUN_CANNOT;
}

int cmd_run(int argc, char **argv)
{
	struct run r = {0};
	const struct opt opts[] = {
		{0, "verbs", OPT_FLAG, &r.verbs,
		 .help = "programs that use libibverbs see the device skein0"},
		{0, "soft-only", OPT_FLAG, &r.soft_only,
		 .help = "and no other device"},
		{0, "link", OPT_CHOICE, &r.link, "KIND",
		 "what its port looks like: ethernet or infiniband",
		 .choices = links},
		{0, "back", OPT_STR, &r.back, "LIST",
		 "what peers may map: of heap,mmap,shm (all); none: \"\""},
		{0, "json", OPT_FLAG, &r.json,
		 .help = "one JSON object when it cannot be started; else "
			 "stdout is the command's"},
		{0},
	};
	const struct opt_usage u = {
		RUN_CMD, "--verbs [options] -- COMMAND [ARGUMENT]...",
		"Runs a program that was built for RDMA NICs on the software "
		"device: one\nprogram at each end, on this host.",
		opts, NULL};
	int first = 0;

	switch (opt_parse(&u, argc, argv, &first)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	if (!r.verbs) {
		out_error(RUN_CMD, "say what for: --verbs");
		return CMD_USAGE;
	}
	if (first == argc) {
		out_error(RUN_CMD, "no command after \"--\"");
		return CMD_USAGE;
	}
	return start(&r, argv + first);
}
