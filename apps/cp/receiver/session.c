/* SPDX-License-Identifier: MIT */
/*
 * session.c - one copy at a receiver; see session.h.
 */
#include "cp/receiver/session_state.h"

#include "cp/sender/targets.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* With the lock. A session that was dropped stays so, unless what was under way
 * came to its end. */
static bool may_become(const struct cp_session *s, enum cp_phase phase)
{
	return !s->dropped || phase == CP_DONE;
}

static void set_phase(struct cp_session *s, enum cp_phase phase)
{
	pthread_mutex_lock(&s->lock);
	if (may_become(s, phase))
		s->st.phase = phase;
	pthread_mutex_unlock(&s->lock);
}

static void set_failed(struct cp_session *s, int rc, const struct cp_err *err)
{
	pthread_mutex_lock(&s->lock);
	if (may_become(s, CP_FAILED)) {
		s->st.phase = CP_FAILED;
		s->st.status = rc;
		memcpy(s->st.text, err->text, sizeof(s->st.text));
	}
	pthread_mutex_unlock(&s->lock);
}

/* No thread has the stage while the session waits for a call: what is in it may
 * be read by calls. Its counter is published here. */
static void publish_have(struct cp_session *s)
{
	pthread_mutex_lock(&s->lock);
	s->st.have = s->staged ? s->stage.have : 0;
	pthread_mutex_unlock(&s->lock);
}

static uint64_t count_files(const struct cp_manifest *m)
{
	uint64_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		n += m->v[i].type == CP_FILE;
	return n;
}

static int prepare(struct cp_session *s, struct cp_err *err)
{
	struct cp_stage_attr attr = {
		.root = s->attr.root,
		.path = s->path,
		.m = &s->m,
		.layout = &s->layout,
		.id = s->id,
		.resume = s->flags & CP_FLAG_RESUME,
	};
	uint8_t id[CP_ID_LEN];
	int rc;

	cp_manifest_id(s->text, s->text_len, id);
	if (memcmp(id, s->id, CP_ID_LEN) != 0)
		return cp_fail(err, -EBADMSG,
			       "the manifest is not what was announced");
	rc = cp_manifest_decode(s->text, s->text_len, &s->m, err);
	if (rc)
		return rc;
	free(s->text);
	s->text = NULL;
	if (s->attr.max_size && s->m.stream_len > s->attr.max_size)
		return cp_fail(err, -EFBIG,
			       "%llu bytes are more than this receiver takes: "
			       "%llu (--max-size)",
			       (unsigned long long)s->m.stream_len,
			       (unsigned long long)s->attr.max_size);
	rc = cp_layout_init(&s->layout, &s->m);
	if (rc)
		return cp_fail(err, rc, "no memory");
	s->blocks = cp_layout_blocks(&s->layout);
	s->file_count = count_files(&s->m);
	s->sums = calloc(s->blocks + 1, sizeof(*s->sums));
	s->files = calloc(s->file_count + 1, CP_ID_LEN);
	if (!s->sums || !s->files)
		return cp_fail(err, -ENOMEM, "no memory");
	rc = cp_stage_open(&s->stage, &attr, err);
	s->staged = !rc;
	return rc;
}

static int check_files(struct cp_session *s, struct cp_err *err)
{
	uint8_t hash[CP_ID_LEN];
	const uint8_t *want = s->files;

	for (uint32_t i = 0; i < s->m.n; i++) {
		int rc;

		if (s->m.v[i].type != CP_FILE)
			continue;
		rc = cp_stage_hash(&s->stage, i, hash, err);
		if (rc)
			return rc;
		if (memcmp(hash, want, CP_ID_LEN) != 0)
			return cp_fail(err, -EILSEQ,
				       "%s reads back otherwise than it was "
				       "sent",
				       s->m.v[i].path);
		want += CP_ID_LEN;
	}
	return 0;
}

/* Blocks that are wrong are forgotten, and sent again by another round. */
static int check(struct cp_session *s, struct cp_err *err)
{
	int64_t lacking = cp_stage_compare(&s->stage, 0, s->sums, s->blocks);
	int rc = 0;

	if (lacking < 0)
		return cp_fail_sys(err, (int)lacking, "writing the state file");
	if (!lacking && (s->flags & CP_FLAG_VERIFY)) {
		if (syncfs(s->stage.dir))
			return cp_fail_sys(err, -errno, "syncing");
		rc = check_files(s, err);
	}
	pthread_mutex_lock(&s->lock);
	s->st.lacking = (uint64_t)lacking;
	pthread_mutex_unlock(&s->lock);
	if (!rc)
		set_phase(s, lacking ? CP_READY : CP_CHECKED);
	return rc;
}

static int commit(struct cp_session *s, struct cp_err *err)
{
	int rc = cp_commit(&s->stage, s->flags & CP_FLAG_SYNC, err);

	if (rc)
		return rc;
	cp_stage_close(&s->stage, false);
	s->staged = false;
	set_phase(s, CP_DONE);
	return 0;
}

static void do_round(struct cp_session *s)
{
	struct cp_err err = {""};
	bool fatal = false;
	int rc = cp_session_do_round(s, &fatal, &err);

	publish_have(s);
	if (fatal) {
		set_failed(s, rc, &err);
		return;
	}
	pthread_mutex_lock(&s->lock);
	if (may_become(s, CP_READY)) {
		s->st.phase = CP_READY;
		s->st.round = s->round.round;
		s->st.round_status = rc;
		memcpy(s->st.text, err.text, sizeof(s->st.text));
	}
	pthread_mutex_unlock(&s->lock);
	cp_round_fini(&s->round);
}

static void do_work(struct cp_session *s, enum cp_work work)
{
	struct cp_err err = {""};
	int rc = 0;

	switch (work) {
	case CP_WORK_PREPARE:
		rc = prepare(s, &err);
		if (!rc) {
			publish_have(s);
			set_phase(s, CP_READY);
		}
		break;
	case CP_WORK_ROUND:
		do_round(s);
		break;
	case CP_WORK_CHECK:
		rc = check(s, &err);
		publish_have(s);
		break;
	case CP_WORK_COMMIT:
		rc = commit(s, &err);
		break;
	case CP_WORK_NONE:
		break;
	}
	if (rc)
		set_failed(s, rc, &err);
}

/* With the lock. Is what the stage holds worth keeping? Not when the disk is
 * what failed. */
static bool worth_keeping(const struct cp_session *s)
{
	int status = s->st.phase == CP_FAILED ? s->st.status : 0;

	return s->stage.have && status != -ENOSPC && status != -EFBIG &&
	       status != -EDQUOT && status != -EILSEQ;
}

static void *worker(void *arg)
{
	struct cp_session *s = arg;
	bool keep;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		enum cp_work work;

		while (!s->work && !s->dropped)
			pthread_cond_wait(&s->wake, &s->lock);
		if (s->dropped)
			break;
		work = s->work;
		pthread_mutex_unlock(&s->lock);
		do_work(s, work);
		pthread_mutex_lock(&s->lock);
		s->work = CP_WORK_NONE;
	}
	keep = s->staged && worth_keeping(s);
	pthread_mutex_unlock(&s->lock);
	if (s->staged)
		cp_stage_close(&s->stage, keep);
	s->staged = false;
	s->attr.ended(s->attr.arg, s);
	return NULL;
}

int cp_session_new(const struct cp_session_attr *attr, struct cp_session **out)
{
	struct cp_session *s = calloc(1, sizeof(*s));
	int rc = -ENOMEM;

	if (!s)
		return rc;
	s->attr = *attr;
	s->attr.open = NULL;
	s->attr.path = NULL;
	s->flags = attr->open->flags;
	memcpy(s->id, attr->open->id, CP_ID_LEN);
	strncpy(s->path, attr->path, sizeof(s->path) - 1);
	s->text_len = attr->open->manifest_len;
	s->text = malloc(s->text_len);
	if (!s->text)
		goto err_free;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	rc = -pthread_create(&s->thread, NULL, worker, s);
	if (rc)
		goto err_text;
	*out = s;
	return 0;
err_text:
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s->text);
err_free:
	free(s);
	return rc;
}

void cp_session_free(struct cp_session *s)
{
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	cp_round_fini(&s->round);
	cp_layout_fini(&s->layout);
	cp_manifest_fini(&s->m);
	for (size_t i = 0; i < s->members; i++)
		free((char *)s->member[i]);
	free(s->member);
	free(s->text);
	free(s->sums);
	free(s->files);
	free(s);
}

void cp_session_drop(struct cp_session *s, const char *why)
{
	pthread_mutex_lock(&s->lock);
	s->dropped = true;
	if (s->st.phase != CP_DONE && s->st.phase != CP_FAILED) {
		s->st.phase = CP_FAILED;
		s->st.status = -ECANCELED;
		strncpy(s->st.text, why, sizeof(s->st.text) - 1);
	}
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

void cp_session_status(struct cp_session *s, struct cp_status *st)
{
	pthread_mutex_lock(&s->lock);
	*st = s->st;
	pthread_mutex_unlock(&s->lock);
}

/* Gives the worker something to do, if the session is in that phase and it has
 * nothing to do. */
static int start(struct cp_session *s, enum cp_phase from, enum cp_phase to,
		 enum cp_work work)
{
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	if (s->st.phase != from || s->work || s->dropped) {
		rc = -EPROTO;
	} else {
		s->st.phase = to;
		s->work = work;
		pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* In this phase the worker has no work and leaves everything alone. */
static bool idle_in(struct cp_session *s, enum cp_phase phase)
{
	bool idle;

	pthread_mutex_lock(&s->lock);
	idle = s->st.phase == phase && !s->work && !s->dropped;
	pthread_mutex_unlock(&s->lock);
	return idle;
}

int cp_session_manifest(struct cp_session *s, uint64_t off, const void *data,
			size_t len)
{
	if (!idle_in(s, CP_OPENING) || off != s->text_have ||
	    len > s->text_len - s->text_have)
		return -EPROTO;
	memcpy(s->text + off, data, len);
	s->text_have += len;
	if (s->text_have < s->text_len)
		return 0;
	return start(s, CP_OPENING, CP_PREPARING, CP_WORK_PREPARE);
}

int cp_session_have(struct cp_session *s, uint64_t first, uint32_t count,
		    struct bytes_out *out)
{
	if (!idle_in(s, CP_READY) || first > s->blocks ||
	    count > s->blocks - first)
		return -EPROTO;
	for (uint32_t i = 0; i < count; i++)
		bytes_put_u64(out, s->stage.state.hash[first + i]);
	return out->failed ? -EMSGSIZE : 0;
}

/* The session ends before it has begun to work. */
static void refuse(struct cp_session *s, const struct cp_err *err)
{
	pthread_mutex_lock(&s->lock);
	if (may_become(s, CP_FAILED)) {
		s->st.phase = CP_FAILED;
		s->st.status = -EACCES;
		memcpy(s->st.text, err->text, sizeof(s->st.text));
	}
	pthread_mutex_unlock(&s->lock);
}

int cp_session_members(struct cp_session *s, struct bytes_in *in)
{
	struct cp_members more = {0};
	struct cp_err err;
	const char **p;
	int rc;

	if (!idle_in(s, CP_OPENING))
		return -EPROTO;
	rc = cp_get_members(in, &more);
	if (rc)
		return rc;
	rc = -EMSGSIZE;
	if (more.count > CP_TARGETS_MAX - s->members)
		goto out;
	for (uint32_t i = 0; i < more.count; i++) {
		if (!s->attr.allow || cp_allow_has(s->attr.allow, more.v[i]))
			continue;
		cp_fail(&err, -EACCES,
			"%s is among the targets, and this receiver has to do "
			"with other hosts only (--allow)",
			more.v[i]);
		refuse(s, &err);
		rc = 0;
		goto out;
	}
	p = realloc(s->member, (s->members + more.count) * sizeof(char *));
	rc = p ? 0 : -ENOMEM;
	if (rc)
		goto out;
	s->member = p;
	memcpy(p + s->members, more.v, more.count * sizeof(char *));
	s->members += more.count;
	s->sorted = false;
	more.count = 0; /* they are the session's now */
out:
	cp_members_fini(&more);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Is each member of the round, but for the sender, one of the copy's? */
static bool members_known(struct cp_session *s)
{
	const struct cp_round *r = &s->round;

	if (!s->sorted && s->members)
		qsort(s->member, s->members, sizeof(char *), by_name);
	s->sorted = true;
	for (uint32_t i = 1; i < r->count; i++)
		if (!s->members ||
		    !bsearch(&r->members[i], s->member, s->members,
			     sizeof(char *), by_name))
			return false;
	return true;
}

int cp_session_round(struct cp_session *s, struct bytes_in *in)
{
	int rc;

	if (!idle_in(s, CP_READY))
		return -EPROTO;
	rc = cp_get_round(in, s->blocks, &s->round);
	if (rc)
		return rc;
	if (!members_known(s)) {
		cp_round_fini(&s->round);
		return -EACCES;
	}
	return start(s, CP_READY, CP_RECEIVING, CP_WORK_ROUND);
}

int cp_session_sums(struct cp_session *s, const struct cp_list *list,
		    struct bytes_in *in)
{
	if (!idle_in(s, CP_READY) || list->first > s->blocks ||
	    list->count > s->blocks - list->first)
		return -EPROTO;
	for (uint32_t i = 0; i < list->count; i++)
		s->sums[list->first + i] = bytes_get_u64(in);
	return 0;
}

int cp_session_files(struct cp_session *s, const struct cp_list *list,
		     struct bytes_in *in)
{
	const uint8_t *hashes;
	size_t len = (size_t)list->count * CP_ID_LEN;

	if (!idle_in(s, CP_READY) || list->first > s->file_count ||
	    list->count > s->file_count - list->first)
		return -EPROTO;
	hashes = bytes_get(in, len);
	if (hashes && len)
		memcpy(s->files + list->first * CP_ID_LEN, hashes, len);
	return 0;
}

int cp_session_check(struct cp_session *s)
{
	return start(s, CP_READY, CP_CHECKING, CP_WORK_CHECK);
}

int cp_session_commit(struct cp_session *s)
{
	return start(s, CP_CHECKED, CP_COMMITTING, CP_WORK_COMMIT);
}
