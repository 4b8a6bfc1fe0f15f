/* SPDX-License-Identifier: MIT */
/*
 * until.c - see until.h.
 */
#include "until.h"

#include "cmd.h"
#include "out.h"

#include <signal.h>

/* The signal handlers'. */
static struct skein_stop *stop;

static void on_signal(int sig)
{
	(void)sig;
	skein_stop_set(stop);
}

int until_signal(const char *cmd,
		 int (*serve)(const void *opts, struct skein_stop *stop),
		 const void *opts)
{
	int status;

	if (skein_stop_new(&stop)) {
		out_error(cmd, "no memory");
		return CMD_FAILED;
	}
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	status = serve(opts, stop);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	skein_stop_free(stop);
	return status;
}
