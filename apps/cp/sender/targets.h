/* SPDX-License-Identifier: MIT */
/*
 * targets.h - the targets of a copy: "node[1-64]:/data,[fe80::1]:7450" and
 * files of such lists (skein-cp(1)).
 *
 * Pure but for @FILE. Thread rule: one thread.
 */
#ifndef CP_SENDER_TARGETS_H
#define CP_SENDER_TARGETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cp/err.h"

enum {
	CP_TARGETS_MAX = 4096, /* more than that is a typing error */
	CP_HOST_MAX = 255,
};

struct cp_target {
	char *host;    /* as written, brackets of IPv6 included, ranges not */
	uint16_t port; /* 0: none was given */
	char *path;    /* NULL: none was given */
	unsigned line; /* of the file that named it; 0: none */
};

struct cp_targets {
	struct cp_target *v;
	size_t n, room;
};

/* Adds the items of a list. files: @FILE is allowed. On failure what was added
 * before the error stays. -EINVAL with the place in err, -E2BIG, -ENOMEM, or
 * what opening the file said. */
int cp_targets_add(struct cp_targets *t, const char *text, bool files,
		   struct cp_err *err);
/* Adds what the lines of a file name: lists apart by blanks or newlines, "#"
 * begins a comment, no @FILE. "-" is standard input. */
int cp_targets_add_file(struct cp_targets *t, const char *name,
			struct cp_err *err);
/* -EINVAL when there are none, or when a target is named twice: a host (in
 * upper or lower case) with the same port and, when by_path, the same path. */
int cp_targets_check(const struct cp_targets *t, bool by_path,
		     struct cp_err *err);
void cp_targets_fini(struct cp_targets *t);

#endif
