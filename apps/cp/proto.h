/* SPDX-License-Identifier: MIT */
/*
 * proto.h - what sender and receiver of `skein cp` tell each other beside the
 * data: calls of the sender (skein/rpc.h), one id each, and their answers
 * (docs/cp.md, "Protocol"). Encoders and decoders; little-endian.
 *
 * Pure. Decoded strings and lists point into what was decoded, or are checked
 * here and copied by the caller.
 */
#ifndef CP_PROTO_H
#define CP_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "cp/err.h"
#include "cp/manifest.h"

enum {
	CP_PROTO_VERSION = 2, /* 2: MEMBERS */
	CP_CHUNK = 64 << 10,  /* of manifests and lists in one call */
	CP_CHUNK_SUMS = CP_CHUNK / 8,
	CP_CHUNK_FILES = CP_CHUNK / CP_ID_LEN,
	CP_MEMBER_MAX = 300, /* "HOST:PORT" */
	CP_REPLY_MAX = CP_CHUNK + 64,
};

enum cp_call {
	CP_CALL_OPEN = 0x6370,
	CP_CALL_MANIFEST,
	CP_CALL_STATUS,
	CP_CALL_HAVE,
	CP_CALL_ROUND,
	CP_CALL_SUMS,
	CP_CALL_FILES,
	CP_CALL_CHECK,
	CP_CALL_COMMIT,
	CP_CALL_ABORT,
	CP_CALL_MEMBERS,
};

enum {
	CP_FLAG_RESUME = 1 << 0,
	CP_FLAG_VERIFY = 1 << 1,
	CP_FLAG_SYNC = 1 << 2,
	CP_FLAGS = CP_FLAG_RESUME | CP_FLAG_VERIFY | CP_FLAG_SYNC,
};

/* Where a receiver is with a copy. */
enum cp_phase {
	CP_OPENING,   /* the manifest comes */
	CP_PREPARING, /* the stage is made */
	CP_READY,     /* for a round, or to be checked */
	CP_RECEIVING, /* a round is under way */
	CP_CHECKING,  /* blocks and files are compared with the sums */
	CP_CHECKED,   /* all is right */
	CP_COMMITTING,
	CP_DONE,   /* all stands under its name */
	CP_FAILED, /* for the reason that the status tells */
	CP_PHASES,
};

struct cp_open {
	uint16_t flags;
	uint8_t id[CP_ID_LEN];
	uint64_t manifest_len;
	const char *path; /* path_len bytes, no NUL among them */
	uint16_t path_len;
};

struct cp_status {
	enum cp_phase phase;
	uint32_t round;	       /* the last that ended */
	int32_t round_status;  /* of it */
	int32_t status;	       /* when FAILED */
	uint64_t have;	       /* blocks */
	uint64_t lacking;      /* after a check: blocks that were wrong */
	char text[CP_ERR_MAX]; /* why the round or the copy failed */
};

/* A range of blocks of the stream. */
struct cp_range {
	uint64_t first, count;
};

struct cp_round {
	uint32_t round;
	uint32_t number; /* of the group */
	uint32_t algorithm;
	uint32_t rank;	      /* of the receiver that is told */
	uint64_t patience_ns; /* with members that are silent */
	uint32_t count;
	const char **members; /* count; the first is the sender */
	uint32_t *racks;      /* count */
	uint32_t ranges;
	struct cp_range *range; /* ascending, apart: what is sent */
};

/* Session, first and count of calls that carry or ask for a list. */
struct cp_list {
	uint64_t session;
	uint64_t first;
	uint32_t count;
};

void cp_put_open(struct bytes_out *out, const struct cp_open *open);
/* Each get: 0, or -EBADMSG; nothing is left over. */
int cp_get_open(struct bytes_in *in, struct cp_open *open);
void cp_put_status(struct bytes_out *out, const struct cp_status *st);
int cp_get_status(struct bytes_in *in, struct cp_status *st);

/* The answer to an open: the session and its status. */
void cp_put_opened(struct bytes_out *out, uint64_t session,
		   const struct cp_status *st);
int cp_get_opened(struct bytes_in *in, uint64_t *session, struct cp_status *st);

/* Some of the copy's members: "HOST:PORT" each. */
struct cp_members {
	uint32_t count;
	const char **v; /* count */
};
/* As many of v as fit in len bytes of a request, and how many those are. */
uint32_t cp_put_members(struct bytes_out *out, uint64_t session,
			const char *const *v, uint32_t count);
/* Behind the session; each is allocated. -ENOMEM too. */
int cp_get_members(struct bytes_in *in, struct cp_members *m);
void cp_members_fini(struct cp_members *m);

void cp_put_list(struct bytes_out *out, const struct cp_list *list);
/* The head alone; items of item_len bytes follow, exactly (0: none do). */
int cp_get_list(struct bytes_in *in, size_t item_len, uint32_t count_max,
		struct cp_list *list);

size_t cp_round_len(const struct cp_round *r);
void cp_put_round(struct bytes_out *out, uint64_t session,
		  const struct cp_round *r);
/* blocks: of the stream. Lists and members are allocated. -ENOMEM too. */
int cp_get_round(struct bytes_in *in, uint64_t blocks, struct cp_round *r);
void cp_round_fini(struct cp_round *r);
/* How many blocks are in the ranges, and the index-th of them. */
uint64_t cp_round_blocks(const struct cp_round *r);
uint64_t cp_round_block(const struct cp_round *r, uint64_t index);
/* Bytes of the message that carries them, of a stream of stream_len. */
uint64_t cp_round_bytes(const struct cp_round *r, uint64_t stream_len,
			uint32_t block_size);

#endif
