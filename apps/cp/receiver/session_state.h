/* SPDX-License-Identifier: MIT */
/*
 * session_state.h - the inside of a session, for session.c (its calls and its
 * worker) and round.c (a round of multicast).
 */
#ifndef CP_RECEIVER_SESSION_STATE_H
#define CP_RECEIVER_SESSION_STATE_H

#include <pthread.h>

#include "cp/receiver/commit.h"
#include "cp/receiver/session.h"
#include "cp/receiver/stage.h"

enum cp_work {
	CP_WORK_NONE,
	CP_WORK_PREPARE,
	CP_WORK_ROUND,
	CP_WORK_CHECK,
	CP_WORK_COMMIT,
};

struct cp_session {
	struct cp_session_attr attr; /* open and path are not kept */
	uint16_t flags;
	uint8_t id[CP_ID_LEN];
	char path[CP_PATH_MAX + 1];
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t wake; /* the worker */
	enum cp_work work;
	bool dropped;
	struct cp_status st;

	/* The worker's, or the calls' while it has no work. */
	uint8_t *text; /* the encoded manifest */
	uint64_t text_len, text_have;
	struct cp_manifest m;
	struct cp_layout layout;
	struct cp_stage stage;
	bool staged;
	uint64_t blocks;
	uint64_t *sums; /* of blocks, from the sender */
	uint8_t *files; /* of files, in the order of entries */
	uint64_t file_count;
	struct cp_round round;
	/* The calls': the copy's own members, sorted when the first round
	 * comes. */
	const char **member;
	size_t members;
	bool sorted;

	/* Of a round, under lock. */
	struct {
		/* that wait for the disk: as many as the group's ring has */
		struct skein_mcast_block *block;
		size_t head, tail, room; /* room: a power of two */
		uint64_t seq;
		bool open, done;
		int status; /* of the message, or of the group */
		char why[CP_ERR_MAX];
	} q;
};

/* Opens the group, writes what comes, closes it. The worker's. 0, or why the
 * round failed, in err; *fatal: this receiver cannot go on. */
int cp_session_do_round(struct cp_session *s, bool *fatal, struct cp_err *err);

#endif
