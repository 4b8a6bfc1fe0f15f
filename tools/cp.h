/* SPDX-License-Identifier: MIT */
/*
 * cp.h - `skein cp`: what its files share. cmd_cp.c parses, cp_send.c is the
 * sender, cp_recv.c the receiver, cp_ssh.c starts receivers through ssh.
 */
#ifndef SKEIN_TOOLS_CP_H
#define SKEIN_TOOLS_CP_H

#include <skein/ctx.h>

#include "cp/sender/targets.h"
#include "out.h"

#define CP_CMD "skein cp"
#define CP_PORT 7450

struct cp_opts {
	/* both */
	const char *device;
	const char *key_file;
	bool json;
	uint32_t port;
	/* the receiver */
	const char *serve;
	const char *listen;
	const char *allow;
	uint64_t max_size;
	bool insecure;
	bool once;
	bool until_eof;
	/* the sender */
	const char *hosts;
	const char *dir;
	const char *name;
	const char *ssh_command;
	const char *remote;
	bool ssh;
	bool verify;
	bool resume;
	bool sync;
	uint32_t algorithm;
	const char *racks; /* the file */
	uint32_t *rack;	   /* what it says: cp_racks_read() */
	uint64_t limit_rate;
	uint64_t block_size; /* 0: by what is sent */
	uint64_t connect_timeout_ns;
	uint64_t greeting_ns;
	uint32_t wait_for;
	uint64_t patience_ns;
	char *const *operand; /* files; targets are taken off */
	int operands;
	struct cp_targets targets;
};

extern const char *const cp_algorithms[];

/* A secret that both ends know. */
struct cp_key {
	unsigned char buf[4096];
	size_t len;
};
/* Reads --key: a file that nobody else may read, or "-": one line of standard
 * input. What is wrong is printed. 0 or a negative error. */
int cp_key_read(const char *file, struct cp_key *key);
/* A context with a background engine; says what is wrong. log, all zero,
 * outlives the context. */
int cp_ctx_open(const struct cp_opts *o, const struct cp_key *key,
		struct out_log *log, struct skein_ctx **ctx);

/* Each returns an exit status. */
int cp_send_main(struct cp_opts *o);
int cp_recv_main(const struct cp_opts *o);

/* Receivers started through ssh, one a target. */
struct cp_ssh;
/* Starts all, gives them a key of its own, and waits until each has told its
 * port, which becomes the target's. What is wrong is printed. */
int cp_ssh_start(const struct cp_opts *o, struct cp_targets *targets,
		 struct cp_key *key, struct cp_ssh **ssh);
/* Their standard input ends, and so do they. */
void cp_ssh_end(struct cp_ssh *ssh);

#endif
