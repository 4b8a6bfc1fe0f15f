/* SPDX-License-Identifier: MIT */
/*
 * racks.h - which targets share a rack, from a file: a line is a rack, and
 * names its hosts as a list of targets does: "r1n[1-32] r1gpu1". "#" begins a
 * comment. A host with several receivers is named once.
 *
 * Thread rule: one thread.
 */
#ifndef CP_SENDER_RACKS_H
#define CP_SENDER_RACKS_H

#include "cp/sender/targets.h"

/*
 * *rack: a number for the sender and then one for each target, equal for
 * members of the same rack; the caller frees it. self: the sender's host name;
 * if no line has it (whole, or up to its first dot) the sender is a rack of its
 * own. -EINVAL: no line has a target's host, or two have one; else as
 * cp_targets_add_file().
 */
int cp_racks_read(const char *file, const struct cp_targets *targets,
		  const char *self, uint32_t **rack, struct cp_err *err);

#endif
