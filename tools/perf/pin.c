/* SPDX-License-Identifier: MIT */
/*
 * pin.c - which core runs which end.
 */
#include "perf/pin.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse(const char *s, int core[2])
{
	char end;

	if (sscanf(s, "%d,%d%c", &core[0], &core[1], &end) != 2 ||
	    core[0] < 0 || core[1] < 0 || core[0] == core[1])
		return -EINVAL;
	return 0;
}

bool pin_fits(const char *cores)
{
	int core[2];

	return !parse(cores, core);
}

/* The number that all hyperthreads of one core share; the cpu's own when the
 * system does not say. */
static int physical(int cpu)
{
	char path[96];
	int id = cpu;
	FILE *f;

	snprintf(path, sizeof(path),
		 "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
		 cpu);
	f = fopen(path, "re");
	if (!f)
		return cpu;
	if (fscanf(f, "%d", &id) != 1) /* the first of the list */
		id = cpu;
	fclose(f);
	return id;
}

static int choose_two(const cpu_set_t *set, int core[2])
{
	int second = -1;

	core[0] = core[1] = -1;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, set))
			continue;
		if (core[0] < 0) {
			core[0] = i;
		} else if (physical(i) != physical(core[0])) {
			core[1] = i;
			return 0;
		} else if (second < 0) {
			second = i;
		}
	}
	core[1] = second;
	return second < 0 ? -ENODEV : 0;
}

/* As "0-3,8"; what finds no room is left out. */
static void list_cores(const cpu_set_t *set, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0; i < CPU_SETSIZE && at < len; i++) {
		int first = i;

		if (!CPU_ISSET(i, set))
			continue;
		while (i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, set))
			i++;
		at += (size_t)snprintf(buf + at, len - at, "%s%d",
				       at ? "," : "", first);
		if (i > first && at < len)
			at += (size_t)snprintf(buf + at, len - at, "-%d", i);
	}
}

int pin_choose(const char *cores, int core[2], char *why, size_t why_len)
{
	char ours[256];
	cpu_set_t set;
	int rc;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -errno;
	if (!cores) {
		rc = choose_two(&set, core);
		if (rc)
			snprintf(why, why_len,
				 "--self needs two cores and may use one only");
		return rc;
	}
	rc = parse(cores, core);
	if (!rc && (core[0] >= CPU_SETSIZE || core[1] >= CPU_SETSIZE))
		rc = -EINVAL;
	if (rc) {
		snprintf(why, why_len,
			 "--cores cannot be \"%.32s\": two numbers as 0,1",
			 cores);
		return rc;
	}
	for (int i = 0; i < 2; i++) {
		if (CPU_ISSET(core[i], &set))
			continue;
		list_cores(&set, ours, sizeof(ours));
		snprintf(why, why_len,
			 "core %d is not ours to use: --cores takes two of %s",
			 core[i], ours);
		return -ENODEV;
	}
	return 0;
}

int pin_to(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}
