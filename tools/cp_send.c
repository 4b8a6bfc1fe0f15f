/* SPDX-License-Identifier: MIT */
/*
 * cp_send.c - `skein cp FILE... TARGETS`: the sender, and what it tells its
 * user.
 */
#include "cmd.h"
#include "cp.h"
#include "out.h"

#include "base/fmt.h"
#include "cp/sender/job.h"
#include "cp/sender/meter.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_DEFAULT (1u << 20)
#define BLOCK_LEAST (64u << 10)
/* A pipeline wants many blocks beside its few steps of start and end. */
#define BLOCKS_WANTED 64u

struct sender {
	const struct cp_opts *o;
	struct cp_tree tree;
	struct cp_result *results;
	bool *reported; /* the user knows already what became of the target */
	struct cp_totals totals;
	struct cp_err err;
	struct cp_meter meter;
	bool terminal;
	uint64_t ns; /* that it took */
	const char *device;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void show(void *arg, const struct cp_progress *p)
{
	struct sender *s = arg;
	char line[CP_METER_LINE];

	if (s->terminal && cp_meter_line(&s->meter, now_ns(), p, line)) {
		fprintf(stderr, "\r%s\033[K", line);
		fflush(stderr);
	}
}

static void missing(void *arg, const struct cp_result *r)
{
	struct sender *s = arg;

	if (s->terminal)
		fprintf(stderr, "\r\033[K");
	out_error(CP_CMD, "begins without %s: %s", r->addr, r->text);
	s->reported[r - s->results] = true;
}

static uint32_t block_size_for(uint64_t stream_len)
{
	uint32_t size = BLOCK_DEFAULT;

	while (size > BLOCK_LEAST && stream_len / size < BLOCKS_WANTED)
		size /= 2;
	return size;
}

static void count(const struct cp_manifest *m, unsigned n[4], uint64_t *bytes)
{
	*bytes = 0;
	for (size_t i = 0; i < m->n; i++) {
		n[m->v[i].type]++;
		if (m->v[i].type == CP_FILE)
			*bytes += m->v[i].size;
	}
}

static json_t *json_targets(const struct sender *s)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->o->targets.n; i++) {
		const struct cp_result *r = &s->results[i];
		/* what a peer says may be any bytes */
		json_t *text = json_string(r->text);

		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:I, s:o}", "target", r->addr,
				  "state", r->status ? "failed" : "done",
				  "bytes", (json_int_t)r->bytes, "error",
				  text ? text : json_string("?")));
	}
	return list;
}

/* Of the whole: what failed everywhere, or how many targets did; "" is none. */
static const char *whole_error(const struct sender *s, char *buf, size_t len)
{
	if (s->err.text[0] || !s->totals.failed)
		return s->err.text;
	snprintf(buf, len, "%u of %zu targets failed", s->totals.failed,
		 s->o->targets.n);
	return buf;
}

static int print_json(const struct sender *s, int rc)
{
	char failed[64];
	unsigned n[4] = {0};
	uint64_t bytes;
	json_t *all;

	count(&s->tree.m, n, &bytes);
	all = json_pack(
		"{s:b, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, "
		"s:s, s:s, s:o}",
		"ok", !rc, "files", n[CP_FILE], "directories", n[CP_DIR],
		"links", n[CP_LINK], "bytes", (json_int_t)bytes, "data_bytes",
		(json_int_t)s->tree.m.stream_len, "block_size",
		(json_int_t)s->tree.m.block_size, "sent_bytes",
		(json_int_t)s->totals.bytes_sent, "sent_blocks",
		(json_int_t)s->totals.blocks_sent, "rounds",
		(json_int_t)s->totals.rounds, "seconds", (double)s->ns / 1e9,
		"algorithm", cp_algorithms[s->o->algorithm], "device",
		s->device, "error", whole_error(s, failed, sizeof(failed)),
		"targets", json_targets(s));
	return out_json(all);
}

static void print_text(const struct sender *s)
{
	uint64_t data = s->tree.m.stream_len; /* without holes */
	char size[FMT_LEN], rate[FMT_LEN], sent[FMT_LEN];
	double seconds = (double)s->ns / 1e9;
	unsigned n[4] = {0};
	uint64_t bytes;

	count(&s->tree.m, n, &bytes);
	if (!s->totals.done)
		return;
	printf("cp: %u file%s, %s, ", n[CP_FILE], n[CP_FILE] == 1 ? "" : "s",
	       fmt_bytes(size, sizeof(size), bytes));
	if (data < bytes)
		printf("of it %s of data, ",
		       fmt_bytes(sent, sizeof(sent), data));
	printf("to %u target%s in %.2f s: %s/s each\n", s->totals.done,
	       s->totals.done == 1 ? "" : "s", seconds,
	       fmt_bytes(rate, sizeof(rate),
			 (uint64_t)((double)data / seconds)));
}

static int report(struct sender *s, int rc)
{
	int out = 0;

	if (s->terminal)
		fprintf(stderr, "\r\033[K");
	if (rc && rc != -EIO)
		out_error(CP_CMD, "%s", s->err.text);
	for (size_t i = 0; i < s->o->targets.n && (!rc || rc == -EIO); i++)
		if (s->results[i].status && !s->reported[i])
			out_error(CP_CMD, "%s: %s", s->results[i].addr,
				  s->results[i].text);
	if (s->o->json)
		out = print_json(s, rc);
	else
		print_text(s);
	if (s->totals.failed && s->totals.done)
		out_error(CP_CMD,
			  "%u of %zu targets failed; the others are "
			  "complete",
			  s->totals.failed, s->o->targets.n);
	return rc || out ? CMD_FAILED : CMD_OK;
}

static int send_it(struct sender *s, const struct cp_key *key)
{
	const struct cp_opts *o = s->o;
	struct cp_job_attr attr = {
		.mcast = &cp_mcast_real,
		.tree = &s->tree,
		.targets = &o->targets,
		.port = (uint16_t)o->port,
		.path = o->ssh ? NULL : o->dir,
		.flags = (uint16_t)((o->resume ? CP_FLAG_RESUME : 0) |
				    (o->verify ? CP_FLAG_VERIFY : 0) |
				    (o->sync ? CP_FLAG_SYNC : 0)),
		.algorithm = (enum skein_mcast_algorithm)o->algorithm,
		.racks = o->rack,
		.limit_rate = o->limit_rate,
		.connect_timeout_ns = o->connect_timeout_ns,
		.wait_for = (enum cp_wait_for)o->wait_for,
		.greeting_ns = o->greeting_ns,
		.patience_ns = o->patience_ns,
		.missing = missing,
		.progress = show,
		.arg = s,
	};
	uint64_t begun = now_ns();
	struct out_log log = {0};
	int rc;

	if (cp_ctx_open(o, key, &log, &attr.ctx))
		return CMD_FAILED;
	s->device = skein_ctx_device(attr.ctx);
	rc = cp_job_run(&attr, s->results, &s->totals, &s->err);
	s->ns = now_ns() - begun;
	rc = report(s, rc);
	skein_ctx_close(attr.ctx);
	return rc;
}

static int with_targets(struct sender *s, struct cp_opts *o)
{
	struct cp_ssh *ssh = NULL;
	struct cp_key key;
	int rc;

	if (cp_key_read(o->key_file, &key))
		return CMD_FAILED;
	if (o->ssh && cp_ssh_start(o, &o->targets, &key, &ssh))
		return CMD_FAILED;
	rc = send_it(s, &key);
	if (ssh)
		cp_ssh_end(ssh);
	explicit_bzero(&key, sizeof(key));
	return rc;
}

int cp_send_main(struct cp_opts *o)
{
	struct sender s = {.o = o, .terminal = isatty(STDERR_FILENO)};
	int rc;

	signal(SIGPIPE, SIG_IGN);
	rc = cp_walk(o->operand, (size_t)o->operands, o->name,
		     o->block_size ? (uint32_t)o->block_size : BLOCK_DEFAULT,
		     &s.tree, &s.err);
	if (rc) {
		out_error(CP_CMD, "%s", s.err.text);
		return CMD_FAILED;
	}
	if (!o->block_size)
		s.tree.m.block_size = block_size_for(s.tree.m.stream_len);
	s.results = calloc(o->targets.n, sizeof(*s.results));
	s.reported = calloc(o->targets.n, sizeof(*s.reported));
	if (s.results && s.reported) {
		rc = with_targets(&s, o);
	} else {
		out_error(CP_CMD, "no memory");
		rc = CMD_FAILED;
	}
	free(s.results);
	free(s.reported);
	cp_tree_fini(&s.tree);
	return rc;
}
