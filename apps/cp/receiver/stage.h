/* SPDX-License-Identifier: MIT */
/*
 * stage.h - the staging directory of one copy at a receiver: its files grow
 * there, one numbered file each, until commit.h renames them (docs/cp.md).
 *
 * A live copy holds a lock on the directory; one without is a crashed copy's.
 * A file that is in place already (resume) stands there as a hard link of the
 * final one, and is copied before the first byte that differs is written.
 *
 * Thread rule: one thread at a time.
 */
#ifndef CP_RECEIVER_STAGE_H
#define CP_RECEIVER_STAGE_H

#include "cp/hash.h"
#include "cp/layout.h"
#include "cp/state.h"

#define CP_STAGE_PREFIX ".skein-cp."
enum {
	CP_STAGE_NAME_LEN = sizeof(CP_STAGE_PREFIX) - 1 + 2 * CP_ID_LEN,
	CP_STAGE_OPEN = 16, /* files kept open */
	/* Room for smaller files is not reserved one by one, which costs more
	 * than to write them: it is looked whether there is enough for all. */
	CP_STAGE_SMALL = 64 << 10,
};

struct cp_stage_attr {
	int root;	  /* of what is served */
	const char *path; /* below it; "": itself. Made when missing */
	const struct cp_manifest *m;
	const struct cp_layout *layout;
	const uint8_t *id;
	bool resume;
};

struct cp_stage {
	int target; /* the directory that gets the copy */
	int dir;    /* the staging directory */
	char name[CP_STAGE_NAME_LEN + 1];
	const struct cp_manifest *m;
	const struct cp_layout *layout;
	struct cp_state state;
	uint64_t have;	 /* blocks with a hash */
	uint8_t *linked; /* by entry: the staged file is the final one */
	void *buf;	 /* of a block */
	XXH3_state_t *hash;
	struct {
		int fd;
		uint32_t entry;
	} open[CP_STAGE_OPEN];
};

/* Checks what is in the way, removes crashed copies' directories (all without
 * resume, else none), makes the directory, its files, and reserves their
 * space. With resume the blocks that are there are read. -EBUSY: the same copy
 * is under way; -ENOSPC, -EFBIG, ... before any data. Blocks. */
int cp_stage_open(struct cp_stage *s, const struct cp_stage_attr *attr,
		  struct cp_err *err);
/* Writes a block that has not been written, and notes its hash. */
int cp_stage_write(struct cp_stage *s, uint64_t block, const void *data,
		   struct cp_err *err);
/* Forgets blocks with hashes other than sums[first, first + n); returns how
 * many of these the stage lacks. Negative: an error. */
int64_t cp_stage_compare(struct cp_stage *s, uint64_t first,
			 const uint64_t *sums, uint64_t n);
/* Reads a file back: XXH3 of 128 bits, as cp_file_hash(). */
int cp_stage_hash(struct cp_stage *s, uint32_t entry, uint8_t hash[CP_ID_LEN],
		  struct cp_err *err);
/* A descriptor of an entry's staged file, for as long as none other is asked
 * for. */
int cp_stage_file(struct cp_stage *s, uint32_t entry, int *fd);
/* Nothing more is written: files that are open are closed, and tell whether
 * that went well. */
int cp_stage_settle(struct cp_stage *s);
/* keep: the directory stays, for cp --resume. */
void cp_stage_close(struct cp_stage *s, bool keep);

/* Of cp_stage_open(), in stage_dir.c: opens the target's directory and in it the
 * staging directory, locked. */
int cp_stage_enter(struct cp_stage *s, const struct cp_stage_attr *attr,
		   struct cp_err *err);
/* The name of an entry's staged file. */
void cp_stage_file_name(char name[16], uint32_t entry);
/* XXH3 of 128 bits of a whole file, holes and all, canonical. */
int cp_file_hash(int fd, void *buf, size_t buf_len, uint8_t hash[CP_ID_LEN]);
/* Removes a staging directory's files, then it. */
void cp_stage_remove(int target, const char *name, int dir);

#endif
