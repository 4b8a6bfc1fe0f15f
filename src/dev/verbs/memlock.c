/* SPDX-License-Identifier: MIT */
/*
 * memlock.c - whether it was the limit of locked memory.
 *
 * The kernel says ENOMEM for RLIMIT_MEMLOCK too, and that is the usual cause:
 * without the numbers a user does not find it. Registered memory counts
 * (VmPin), and so do the queues of most NICs, which are in the process's
 * memory.
 */
#include "dev/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Bytes that are pinned now; 0 where the kernel does not say. */
static unsigned long long pinned_now(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[128];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %llu kB", &kib) == 1)
			break;
	fclose(f);
	return kib << 10;
}

void verbs_log_refused(struct dev *dev, const char *doing, size_t len, int err)
{
	unsigned long long pinned = pinned_now();
	struct rlimit lim;
	char what[64];

	if (len)
		snprintf(what, sizeof(what), "%s (%zu bytes)", doing, len);
	else
		snprintf(what, sizeof(what), "%s", doing);
	/* If the limit leaves room for len bytes, there was another cause.
	 * Queues are small, and their size is unknown: near the limit we take
	 * the limit for the cause. */
	if (err != -ENOMEM || getrlimit(RLIMIT_MEMLOCK, &lim) ||
	    lim.rlim_cur == RLIM_INFINITY ||
	    pinned + (len ? len : 1 << 20) <= lim.rlim_cur) {
		env_log(dev->env, ENV_LOG_ERROR, "%s: cannot %s: %s", dev->name,
			what, strerror(-err));
		return;
	}
	env_log(dev->env, ENV_LOG_ERROR,
		"%s: cannot %s: RLIMIT_MEMLOCK is %llu KiB, %llu KiB of it are "
		"in use, and all registered memory counts: ulimit -l "
		"unlimited, or LimitMEMLOCK=infinity in the unit",
		dev->name, what, (unsigned long long)lim.rlim_cur >> 10,
		pinned >> 10);
}
