/* SPDX-License-Identifier: MIT */
/*
 * pin.h - which core runs which end.
 */
#ifndef SKEIN_TOOLS_PERF_PIN_H
#define SKEIN_TOOLS_PERF_PIN_H

#include <stdbool.h>
#include <stddef.h>

/* Is it "A,B", two different numbers of cores? */
bool pin_fits(const char *cores);

/* Two different cores that this process may use: those of "A,B", or with NULL
 * the first one and the first that is no hyperthread of it. core[0] is the
 * client's. -EINVAL, -ENODEV: why says it. */
int pin_choose(const char *cores, int core[2], char *why, size_t why_len);

/* Pins the calling thread. */
int pin_to(int core);

#endif
