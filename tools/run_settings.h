/* SPDX-License-Identifier: MIT */
/*
 * run_settings.h - which values the settings of `skein run` may have: for its
 * options, its environment, and `skein info`.
 *
 * Thread rule: no state.
 */
#ifndef SKEIN_TOOLS_RUN_SETTINGS_H
#define SKEIN_TOOLS_RUN_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

/* The name of setting i, SKEIN_RUN_WAIT and the like; NULL behind the last. */
const char *run_setting_name(unsigned i);

/* NULL: the value is one that the setting may have. Else what it must be, as in
 * "must be 0 or 1". */
const char *run_setting_wrong(const char *name, const char *value);

#endif
