/* SPDX-License-Identifier: MIT */
/*
 * settings.h - which settings of the environment no program can open with, and
 * which nothing reads: for `skein info`.
 *
 * Thread rule: changes the environment while it looks, and puts it back; one
 * thread.
 */
#ifndef SKEIN_TOOLS_SETTINGS_H
#define SKEIN_TOOLS_SETTINGS_H

#include "doctor.h"

/* Opens a context on this device (NULL: as it comes), and does what a
 * connection does with its settings. Returns how many findings there are, at
 * most DOCTOR_MAX, an error for each setting that is refused. */
unsigned settings_look(const char *device, struct doctor_finding *out);

#define SETTINGS_UNKNOWN_MAX 16u

struct settings_unknown {
	char name[64];	   /* with SKEIN_ */
	const char *meant; /* without it; NULL: none is like it */
};

/* SKEIN_* of the environment that nothing reads: how many. */
unsigned settings_unknown(struct settings_unknown *out, unsigned max);

/* A line on stderr for each of these: no error, another program may read them. */
void settings_say_unknown(const char *cmd);

#endif
