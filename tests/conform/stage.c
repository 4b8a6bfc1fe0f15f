/* SPDX-License-Identifier: MIT */
/*
 * stage.c - see stage.h.
 */
#include "stage.h"

#include "dev/sim/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STACK (1u << 20)

static struct {
	struct sim_world *w; /* NULL: no simulation */
	struct skein_env *env[2];
} stage;

static void say(void *arg, uint64_t now_ns, const char *line)
{
	(void)arg;
	if (getenv("CONFORM_LOG"))
		fprintf(stderr, "%12llu ns  %s\n", (unsigned long long)now_ns,
			line);
}

unsigned stage_loss(void)
{
	const char *ppm = getenv("CONFORM_LOSS");

	return stage.w && ppm ? (unsigned)atoi(ppm) : 0;
}

int stage_run(const char *device, void (*fn)(void *arg), void *arg)
{
	struct sim_conf conf = {.seed = 1,
				.stack_len = STACK,
				.log = say,
				.log_level = ENV_LOG_WARN};
	struct sim_proc *proc[2] = {NULL, NULL};
	struct sim_link lossy = {0};
	struct sim_node *node;
	int i, rc;

	if (strcmp(device, "sim") != 0) {
		fn(arg);
		return 0;
	}
	rc = sim_world_new(&conf, &stage.w);
	for (i = 0; i < 2 && !rc; i++) {
		rc = sim_node_new(stage.w, i ? "b" : "a", 2, &node);
		if (!rc)
			rc = sim_proc_new(node, "conform", &proc[i]);
		if (!rc)
			stage.env[i] = sim_proc_env(proc[i]);
	}
	if (!rc && stage_loss()) {
		lossy.loss_ppm = stage_loss();
		sim_link_set(node, &lossy);
	}
	if (!rc)
		rc = sim_spawn(proc[0], "conform", fn, arg);
	if (rc)
		fprintf(stderr, "conform: no simulation: %s\n", strerror(-rc));
	else
		sim_run(stage.w, ENV_NEVER);
	sim_world_free(stage.w);
	stage.w = NULL;
	return rc ? -1 : 0;
}

struct skein_env *stage_env(int side)
{
	return stage.w ? stage.env[side] : NULL;
}

void stage_sleep(uint64_t ns)
{
	struct timespec ts = {.tv_nsec = (long)ns};

	if (stage.w)
		sim_sleep(stage.w, ns);
	else /* between two looks; the caller says why it waits */
		nanosleep(&ts, NULL);
}
