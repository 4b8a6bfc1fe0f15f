/* SPDX-License-Identifier: MIT */
/*
 * commit.h - a verified stage gets its final names: directories, then files by
 * one rename each, links, and last the directories' modes and times.
 */
#ifndef CP_RECEIVER_COMMIT_H
#define CP_RECEIVER_COMMIT_H

#include "cp/receiver/stage.h"

/* sync: the data is on the disk before a name is. On failure some entries have
 * their names and others not; each file is old or new. The stage is closed by
 * its owner. Blocks. */
int cp_commit(struct cp_stage *s, bool sync, struct cp_err *err);

#endif
