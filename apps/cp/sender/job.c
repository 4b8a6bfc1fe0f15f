/* SPDX-License-Identifier: MIT */
/*
 * job.c - the order of things at the sender; see job.h.
 */
#include "cp/sender/state.h"

#include "cp/receiver/stage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long a receiver may be busy with another copy: it may not have noticed
 * yet that the one before has ended. */
#define BUSY_NS SKEIN_S(10)
#define BUSY_NAP_NS 50000000u

enum {
	/* rounds in which nobody failed and nobody got anything */
	ROUNDS_IN_VAIN = 3,
	CHECKS = 3,
};

struct encoded {
	void *buf;
	size_t len;
	uint8_t id[CP_ID_LEN];
	uint64_t off; /* of the chunk that is sent */
};

/* Which members the next call names. */
struct naming {
	const char **v;
	uint32_t count, first, said;
};

static bool addr_of(const struct cp_job_attr *attr, const struct cp_target *t,
		    struct cp_result *result)
{
	/* "user@" is for ssh */
	const char *at = strrchr(t->host, '@'), *host = at ? at + 1 : t->host;

	return snprintf(result->addr, sizeof(result->addr), "%s:%u", host,
			t->port ? t->port : attr->port) <
	       (int)sizeof(result->addr);
}

static int make_peers(struct cp_job *job, struct cp_result *results)
{
	uint64_t bytes = (job->blocks + 7) / 8 + 1;

	job->peer = calloc(job->attr.targets->n + 1, sizeof(*job->peer));
	if (!job->peer)
		return cp_fail(job->err, -ENOMEM, "no memory");
	job->n = job->attr.targets->n;
	for (size_t i = 0; i < job->n; i++) {
		const struct cp_target *t = &job->attr.targets->v[i];
		struct cp_peer *p = &job->peer[i];

		memset(&results[i], 0, sizeof(results[i]));
		p->job = job;
		p->live = true;
		p->result = &results[i];
		p->path = t->path ? t->path : job->attr.path;
		p->lacks = calloc(1, bytes);
		if (!p->lacks)
			return cp_fail(job->err, -ENOMEM, "no memory");
		if (!addr_of(&job->attr, t, &results[i]))
			return cp_fail(job->err, -ENAMETOOLONG, "%s", t->host);
	}
	return 0;
}

/* A message of the group has only so many blocks. */
static int check_blocks(const struct cp_job *job)
{
	uint64_t size = job->layout.block_size;

	if (job->blocks <= SKEIN_MCAST_BLOCKS_MAX)
		return 0;
	while ((job->layout.len + size - 1) / size > SKEIN_MCAST_BLOCKS_MAX)
		size *= 2;
	return cp_fail(job->err, -EFBIG,
		       "%llu blocks are too many for one copy: it wants a "
		       "--block-size of %lluK",
		       (unsigned long long)job->blocks,
		       (unsigned long long)size >> 10);
}

static void make_open(struct cp_peer *p, struct bytes_out *out, void *arg)
{
	const struct encoded *m = arg;
	struct cp_open open = {
		.flags = p->job->attr.flags,
		.manifest_len = m->len,
		.path = p->path ? p->path : "",
	};

	open.path_len = (uint16_t)strlen(open.path);
	memcpy(open.id, m->id, CP_ID_LEN);
	cp_put_open(out, &open);
}

static int take_open(struct cp_peer *p, struct bytes_in *in, void *arg)
{
	int rc = cp_get_opened(in, &p->session, &p->st);

	if (!rc && p->st.status && p->st.status != -EBUSY)
		cp_peer_fail(p, p->st.status, "%s", p->st.text);
	return rc;
}

/* Opens the copy at all; asks those again that are busy: while others are
 * there that would go on, no longer than a greeting may take. */
static int open_all(struct cp_job *job, struct encoded *m)
{
	struct cp_fan fan = {
		.call = CP_CALL_OPEN,
		.what = "opening the copy",
		.req_max = CP_PATH_MAX + 64,
		.resp_max = CP_ERR_MAX + 64,
		.make = make_open,
		.take = take_open,
		.arg = m,
	};
	uint64_t begun = cp_now_ns(), busy_ns = BUSY_NS;
	bool busy = true, late = false;
	size_t open = 0;
	int rc = 0;

	while (busy && !rc) {
		rc = cp_fan(job, &fan);
		busy = false;
		if (open && job->attr.greeting_ns &&
		    job->attr.wait_for != CP_WAIT_ALL &&
		    job->attr.greeting_ns < busy_ns)
			busy_ns = job->attr.greeting_ns;
		late = cp_now_ns() > begun + busy_ns;
		for (size_t i = 0; i < job->n && !rc; i++) {
			struct cp_peer *p = &job->peer[i];

			p->skip = p->live && p->st.status != -EBUSY;
			open += p->skip;
			if (!p->live || p->skip)
				continue;
			if (late)
				cp_peer_fail(p, -EBUSY, "%s", p->st.text);
			busy = true;
		}
		if (late)
			break;
		if (busy)
			cp_nap_ns(BUSY_NAP_NS);
	}
	for (size_t i = 0; i < job->n; i++)
		job->peer[i].skip = false;
	return rc;
}

static void make_members(struct cp_peer *p, struct bytes_out *out, void *arg)
{
	struct naming *n = arg;

	n->said = cp_put_members(out, p->session, n->v + n->first,
				 n->count - n->first);
}

/* Receivers dial nobody but the copy's members: all targets that are live. */
static int name_members(struct cp_job *job)
{
	struct naming n = {0};
	struct cp_fan fan = {
		.call = CP_CALL_MEMBERS,
		.what = "naming the members",
		.req_max = CP_CHUNK + 64,
		.resp_max = CP_ERR_MAX + 64,
		.make = make_members,
		.take = cp_take_status,
		.arg = &n,
	};
	int rc = 0;

	n.v = calloc(job->n + 1, sizeof(char *));
	if (!n.v)
		return cp_fail(job->err, -ENOMEM, "no memory");
	for (size_t i = 0; i < job->n; i++)
		if (job->peer[i].live)
			n.v[n.count++] = job->peer[i].result->addr;
	while (n.first < n.count && !rc) {
		n.said = n.count; /* nobody is live any more */
		rc = cp_fan(job, &fan);
		n.first += n.said;
	}
	free(n.v);
	return rc;
}

static void make_chunk(struct cp_peer *p, struct bytes_out *out, void *arg)
{
	const struct encoded *m = arg;
	size_t left = m->len - m->off;

	bytes_put_u64(out, p->session);
	bytes_put_u64(out, m->off);
	bytes_put_mem(out, (char *)m->buf + m->off,
		      left < CP_CHUNK ? left : CP_CHUNK);
}

static int send_manifest(struct cp_job *job, struct encoded *m)
{
	struct cp_fan fan = {
		.call = CP_CALL_MANIFEST,
		.what = "sending the manifest",
		.req_max = CP_CHUNK + 16,
		.resp_max = 8,
		.make = make_chunk,
		.arg = m,
	};
	int rc = 0;

	for (m->off = 0; m->off < m->len && !rc; m->off += CP_CHUNK)
		rc = cp_fan(job, &fan);
	return rc;
}

static int open_copy(struct cp_job *job)
{
	struct encoded m = {0};
	int rc = cp_manifest_encode(&job->attr.tree->m, &m.buf, &m.len);

	if (rc)
		return cp_fail_sys(job->err, rc, "the manifest");
	cp_manifest_id(m.buf, m.len, m.id);
	rc = open_all(job, &m);
	if (!rc)
		rc = name_members(job);
	if (!rc)
		rc = send_manifest(job, &m);
	free(m.buf);
	return rc ? rc : cp_fan_until(job, CP_READY, CP_READY, "preparing");
}

/* With resume, what receivers have counts when it is what we would send: our
 * blocks are hashed first, if somebody has any. */
static int hash_source(struct cp_job *job)
{
	bool some = false;
	void *buf;
	int rc = 0;

	for (size_t i = 0; i < job->n; i++)
		some |= job->peer[i].live && job->peer[i].st.have;
	if (!some)
		return 0;
	buf = malloc(job->layout.block_size);
	if (!buf)
		return cp_fail(job->err, -ENOMEM, "no memory");
	for (uint64_t b = 0; b < job->blocks && !rc; b++)
		rc = cp_source_read(&job->source, b, buf, job->err);
	free(buf);
	return rc;
}

static uint64_t all_lacking(const struct cp_job *job)
{
	uint64_t n = 0;

	for (size_t i = 0; i < job->n; i++)
		if (job->peer[i].live)
			n += job->peer[i].lacking;
	return n;
}

/* After a round: which targets have all of it, and what the others have now. */
static int take_stock(struct cp_job *job, const struct cp_round *r,
		      struct cp_peer **members)
{
	bool all = true;
	int rc = cp_fan_until(job, CP_READY, CP_READY, "sending");

	for (uint32_t i = 0; i + 1 < r->count && !rc; i++) {
		struct cp_peer *p = members[i];

		if (p->live && p->st.round == r->round && !p->st.round_status)
			cp_lack_none(p, job->blocks);
		else
			all &= !p->live;
	}
	if (rc || all)
		return rc;
	return cp_lack_ask(job, false);
}

/* A round failed, and it is not known which target made it fail. */
static void give_up(struct cp_job *job)
{
	for (size_t i = 0; i < job->n; i++) {
		struct cp_peer *p = &job->peer[i];

		if (p->live && p->lacking)
			cp_peer_fail(p,
				     p->st.round_status ? p->st.round_status
							: -EIO,
				     "%s",
				     p->st.text[0] ? p->st.text
						   : "the group failed again "
						     "and again");
	}
}

static int one_round(struct cp_job *job)
{
	struct cp_peer **members = calloc(job->n + 1, sizeof(struct cp_peer *));
	struct cp_round r;
	int rc;

	if (!members)
		return cp_fail(job->err, -ENOMEM, "no memory");
	rc = cp_lack_round(job, &r, members);
	if (!rc) {
		rc = cp_job_round(job, &r, members);
		if (!rc)
			rc = take_stock(job, &r, members);
		cp_round_fini(&r);
	}
	free(members);
	return rc;
}

static int send_all(struct cp_job *job)
{
	unsigned vain = 0;
	int rc = 0;

	while (!rc && all_lacking(job)) {
		uint64_t lacking = all_lacking(job);
		unsigned live = cp_job_live(job);

		rc = one_round(job);
		if (all_lacking(job) < lacking || cp_job_live(job) < live)
			vain = 0;
		else if (++vain == ROUNDS_IN_VAIN)
			give_up(job);
	}
	return rc ? rc : cp_source_finish(&job->source, job->err);
}

struct sums {
	struct cp_list list;
	const uint8_t *files;
};

static void make_sums(struct cp_peer *p, struct bytes_out *out, void *arg)
{
	struct sums *s = arg;

	s->list.session = p->session;
	cp_put_list(out, &s->list);
	for (uint32_t i = 0; i < s->list.count; i++)
		bytes_put_u64(out, p->job->source.sums[s->list.first + i]);
}

static void make_files(struct cp_peer *p, struct bytes_out *out, void *arg)
{
	struct sums *s = arg;

	s->list.session = p->session;
	cp_put_list(out, &s->list);
	bytes_put_mem(out, s->files + s->list.first * CP_ID_LEN,
		      (size_t)s->list.count * CP_ID_LEN);
}

static int send_list(struct cp_job *job, struct cp_fan *fan, uint64_t n,
		     uint32_t chunk)
{
	struct sums *s = fan->arg;
	int rc = 0;

	fan->what = "sending the sums";
	fan->req_max = CP_CHUNK + 64;
	fan->resp_max = 8;
	for (uint64_t i = 0; i < n && !rc; i += chunk) {
		s->list.first = i;
		s->list.count = n - i < chunk ? (uint32_t)(n - i) : chunk;
		rc = cp_fan(job, fan);
	}
	return rc;
}

/* Hashes of whole files, as they read here now. */
static int hash_files(struct cp_job *job, uint8_t **hashes, uint64_t *n)
{
	const struct cp_manifest *m = &job->attr.tree->m;
	uint8_t *hash = malloc((m->n + 1) * CP_ID_LEN);
	void *buf = malloc(m->block_size);
	int rc = 0, fd;

	*hashes = hash;
	if (!hash || !buf)
		rc = cp_fail(job->err, -ENOMEM, "no memory");
	for (size_t i = 0; i < m->n && !rc; i++) {
		if (m->v[i].type != CP_FILE)
			continue;
		rc = cp_tree_open(job->attr.tree, &m->v[i], &fd, job->err);
		if (rc)
			break;
		rc = cp_file_hash(fd, buf, m->block_size,
				  hash + (*n)++ * CP_ID_LEN);
		close(fd);
		if (rc)
			cp_fail_sys(job->err, rc, "reading %s", m->v[i].path);
	}
	free(buf);
	return rc;
}

static int send_sums(struct cp_job *job, const uint8_t *files, uint64_t n)
{
	struct sums s = {.files = files};
	struct cp_fan blocks = {
		.call = CP_CALL_SUMS,
		.make = make_sums,
		.arg = &s,
	};
	struct cp_fan hashes = {
		.call = CP_CALL_FILES,
		.make = make_files,
		.arg = &s,
	};
	int rc = send_list(job, &blocks, job->blocks, CP_CHUNK_SUMS);

	return rc ? rc : send_list(job, &hashes, n, CP_CHUNK_FILES);
}

/* A target that was found right takes no part in what follows. */
static bool skip_finished(struct cp_job *job)
{
	bool all = true;

	for (size_t i = 0; i < job->n; i++) {
		struct cp_peer *p = &job->peer[i];

		p->finished |= p->live && p->st.phase == CP_CHECKED;
		p->skip = p->finished;
		all &= !p->live || p->finished;
	}
	return all;
}

static void fail_wrong(struct cp_job *job)
{
	for (size_t i = 0; i < job->n; i++) {
		struct cp_peer *p = &job->peer[i];

		if (p->live && !p->finished)
			cp_peer_fail(p, -EILSEQ,
				     "%llu blocks arrive wrong again and again",
				     (unsigned long long)p->st.lacking);
	}
}

/* Each target compares what it has with the sums. Wrong blocks come again. */
static int check_once(struct cp_job *job, const uint8_t *files, uint64_t n,
		      bool *all)
{
	int rc = send_sums(job, files, n);

	if (!rc)
		rc = cp_fan_plain(job, CP_CALL_CHECK, "checking");
	if (!rc)
		rc = cp_fan_until(job, CP_CHECKED, CP_READY, "verifying");
	if (rc)
		return rc;
	*all = skip_finished(job);
	if (*all)
		return 0;
	rc = cp_lack_ask(job, false);
	if (!rc)
		rc = send_all(job);
	skip_finished(job);
	return rc;
}

static int check_all(struct cp_job *job)
{
	uint64_t n = 0;
	uint8_t *files = NULL;
	bool all = false;
	int rc = 0;

	if (job->attr.flags & CP_FLAG_VERIFY)
		rc = hash_files(job, &files, &n);
	for (int i = 0; i < CHECKS && !rc && !all; i++)
		rc = check_once(job, files, n, &all);
	free(files);
	if (!rc && !all)
		fail_wrong(job);
	for (size_t i = 0; i < job->n; i++)
		job->peer[i].finished = job->peer[i].skip = false;
	return rc;
}

static int commit_all(struct cp_job *job)
{
	int rc = cp_fan_plain(job, CP_CALL_COMMIT, "putting files in place");

	return rc ? rc
		  : cp_fan_until(job, CP_DONE, CP_DONE,
				 "putting files in place");
}

static int run(struct cp_job *job)
{
	bool resume = job->attr.flags & CP_FLAG_RESUME;
	int rc;

	rc = cp_connect(job);
	if (!rc)
		rc = open_copy(job);
	if (!rc && resume)
		rc = hash_source(job);
	if (!rc)
		rc = cp_lack_ask(job, !resume);
	if (!rc)
		rc = send_all(job);
	if (!rc)
		rc = check_all(job);
	return rc ? rc : commit_all(job);
}

static uint64_t bytes_there(const struct cp_peer *p)
{
	uint64_t len = p->job->layout.len;
	uint64_t some = p->st.have * p->job->layout.block_size;

	return p->live || some > len ? len : some;
}

/* Closes what is open. On the sender's own failure all others end with it. */
static void end_all(struct cp_job *job, int rc)
{
	for (size_t i = 0; i < job->n; i++)
		job->peer[i].skip = !job->peer[i].conn;
	if (rc)
		cp_fan_plain(job, CP_CALL_ABORT, "giving up");
	for (size_t i = 0; i < job->n; i++) {
		struct cp_peer *p = &job->peer[i];

		if (rc)
			cp_peer_fail(p, rc, "%s", job->err->text);
		else if (p->live)
			job->totals.done++;
		if (p->result)
			p->result->bytes = bytes_there(p);
		if (p->conn)
			skein_conn_close(p->conn, SKEIN_S(1));
		free(p->lacks);
	}
	job->totals.failed = (unsigned)job->n - job->totals.done;
}

int cp_job_run(const struct cp_job_attr *attr, struct cp_result *results,
	       struct cp_totals *totals, struct cp_err *err)
{
	struct cp_job job = {
		.attr = *attr,
		.err = err,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	pthread_condattr_t monotonic;
	int rc = cp_layout_init(&job.layout, &attr->tree->m);

	if (rc)
		return cp_fail(err, rc, "no memory");
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&job.wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	job.blocks = cp_layout_blocks(&job.layout);
	rc = cp_source_open(&job.source, attr->tree, &job.layout);
	if (rc) {
		cp_fail(err, rc, "no memory");
		goto out_layout;
	}
	rc = make_peers(&job, results);
	if (!rc)
		rc = check_blocks(&job);
	if (!rc)
		rc = run(&job);
	end_all(&job, rc);
	free(job.peer);
	cp_source_close(&job.source);
out_layout:
	pthread_cond_destroy(&job.wake);
	cp_layout_fini(&job.layout);
	*totals = job.totals;
	if (!rc && totals->failed)
		return -EIO;
	return rc;
}
