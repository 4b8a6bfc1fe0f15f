/* SPDX-License-Identifier: MIT */
/*
 * serve.c - the receiver: calls to sessions; see serve.h.
 */
#include "cp/receiver/serve.h"

#include "cp/receiver/below.h"
#include "cp/receiver/session.h"

#include <skein/rpc.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A call's handler, under the lock: the session is not reaped meanwhile. */
struct handler {
	struct cp_serve *serve;
	int (*fn)(struct cp_serve *serve, struct skein_rpc_req *req);
};

enum {
	CALLS = CP_CALL_MEMBERS - CP_CALL_OPEN + 1,
};

struct cp_serve {
	struct cp_serve_attr attr;
	struct handler handler[CALLS];
	struct skein_listener *listener;
	int root;
	char *dir;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stopped;
	struct cp_session *session; /* under way, or not reaped yet */
	struct skein_conn *conn;    /* of its sender; NULL: it has left */
	uint64_t number;	    /* of the session */
	bool ended;
};

static void on_ended(void *arg, struct cp_session *session)
{
	struct cp_serve *serve = arg;

	pthread_mutex_lock(&serve->lock);
	serve->ended = true;
	pthread_cond_broadcast(&serve->wake);
	pthread_mutex_unlock(&serve->lock);
}

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct cp_serve *serve = arg;

	if (state == SKEIN_CONN_READY)
		return;
	pthread_mutex_lock(&serve->lock);
	if (serve->conn == conn) {
		serve->conn = NULL;
		cp_session_drop(serve->session, "the sender has left");
	}
	pthread_mutex_unlock(&serve->lock);
}

/* The session that a call is for: its number, from the sender's connection. */
static struct cp_session *session_of(struct cp_serve *serve,
				     const struct skein_rpc_req *req,
				     uint64_t number)
{
	if (serve->session && serve->number == number &&
	    serve->conn == skein_rpc_req_conn(req))
		return serve->session;
	return NULL;
}

static int new_session(struct cp_serve *serve, struct skein_conn *conn,
		       const struct cp_open *open, struct cp_err *err)
{
	struct cp_session_attr attr = {
		.ctx = serve->attr.ctx,
		.mcast = serve->attr.mcast,
		.root = serve->root,
		.open = open,
		.allow = serve->attr.allow,
		.max_size = serve->attr.max_size,
		.ended = on_ended,
		.arg = serve,
	};
	char path[CP_PATH_MAX + 1], rel[CP_PATH_MAX + 1];
	const char *from = skein_conn_peer(conn);
	int rc;

	if (attr.allow && !cp_allow_has(attr.allow, from))
		return cp_fail(err, -EACCES,
			       "%s may not copy to this receiver (--allow)",
			       from);

	memcpy(path, open->path, open->path_len);
	path[open->path_len] = 0;
	rc = cp_below_rel(serve->dir, path, rel);
	if (rc)
		return cp_fail(err, rc,
			       "%s does not lie below %s, which is "
			       "served here",
			       path, serve->dir);
	attr.path = rel;
	if (serve->session || serve->stopped)
		return cp_fail(err, -EBUSY, "another copy is under way here");
	rc = cp_session_new(&attr, &serve->session);
	if (rc) {
		serve->session = NULL;
		return cp_fail_sys(err, rc, "a new copy");
	}
	serve->number++;
	serve->conn = conn;
	serve->ended = false;
	return 0;
}

static int answer(struct skein_rpc_req *req, const struct bytes_out *out)
{
	void *resp;

	if (out->failed)
		return -EMSGSIZE;
	resp = skein_rpc_resp_buf(req, out->pos);
	if (!resp)
		return -EMSGSIZE;
	memcpy(resp, out->buf, out->pos);
	return 0;
}

static struct bytes_in request(const struct skein_rpc_req *req)
{
	return bytes_in(skein_rpc_req_data(req), skein_rpc_req_len(req));
}

static int on_open(struct cp_serve *serve, struct skein_rpc_req *req)
{
	uint8_t buf[CP_ERR_MAX + 64];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct bytes_in in = request(req);
	struct cp_status st = {0};
	struct cp_err err = {""};
	struct cp_open open;

	st.status = cp_get_open(&in, &open);
	if (!st.status)
		st.status = new_session(serve, skein_rpc_req_conn(req), &open,
					&err);
	else
		cp_fail(&err, st.status, "this receiver is of another version");
	if (st.status)
		st.phase = CP_FAILED;
	memcpy(st.text, err.text, sizeof(st.text));
	cp_put_opened(&out, serve->number, &st);
	return answer(req, &out);
}

/* Answers with the status: it says which host is not allowed. */
static int on_members(struct cp_serve *serve, struct skein_rpc_req *req)
{
	uint8_t buf[CP_ERR_MAX + 64];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct bytes_in in = request(req);
	struct cp_session *s = session_of(serve, req, bytes_get_u64(&in));
	struct cp_status st;
	int rc;

	if (in.failed || !s)
		return -EPROTO;
	rc = cp_session_members(s, &in);
	if (rc)
		return rc;
	cp_session_status(s, &st);
	cp_put_status(&out, &st);
	return answer(req, &out);
}

static int on_manifest(struct cp_serve *serve, struct skein_rpc_req *req)
{
	struct bytes_in in = request(req);
	uint64_t number = bytes_get_u64(&in), off = bytes_get_u64(&in);
	struct cp_session *s = session_of(serve, req, number);
	size_t len = bytes_left(&in);

	if (in.failed || !s)
		return -EPROTO;
	return cp_session_manifest(s, off, bytes_get(&in, len), len);
}

static int on_status(struct cp_serve *serve, struct skein_rpc_req *req)
{
	uint8_t buf[CP_ERR_MAX + 64];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct bytes_in in = request(req);
	struct cp_session *s = session_of(serve, req, bytes_get_u64(&in));
	struct cp_status st;

	if (in.failed || bytes_left(&in) || !s)
		return -EPROTO;
	cp_session_status(s, &st);
	cp_put_status(&out, &st);
	return answer(req, &out);
}

static int on_have(struct cp_serve *serve, struct skein_rpc_req *req)
{
	struct bytes_in in = request(req);
	struct cp_session *s;
	struct bytes_out out;
	struct cp_list list;
	void *resp;

	if (cp_get_list(&in, 0, 0, &list) && in.failed)
		return -EPROTO;
	s = session_of(serve, req, list.session);
	if (!s || list.count > CP_CHUNK_SUMS)
		return -EPROTO;
	resp = skein_rpc_resp_buf(req, (size_t)list.count * 8);
	if (!resp)
		return -EMSGSIZE;
	out = bytes_out(resp, (size_t)list.count * 8);
	return cp_session_have(s, list.first, list.count, &out);
}

static int on_round(struct cp_serve *serve, struct skein_rpc_req *req)
{
	struct bytes_in in = request(req);
	struct cp_session *s = session_of(serve, req, bytes_get_u64(&in));

	return s ? cp_session_round(s, &in) : -EPROTO;
}

static int on_sums(struct cp_serve *serve, struct skein_rpc_req *req)
{
	struct bytes_in in = request(req);
	struct cp_session *s;
	struct cp_list list;

	if (cp_get_list(&in, 8, CP_CHUNK_SUMS, &list))
		return -EPROTO;
	s = session_of(serve, req, list.session);
	return s ? cp_session_sums(s, &list, &in) : -EPROTO;
}

static int on_files(struct cp_serve *serve, struct skein_rpc_req *req)
{
	struct bytes_in in = request(req);
	struct cp_session *s;
	struct cp_list list;

	if (cp_get_list(&in, CP_ID_LEN, CP_CHUNK_FILES, &list))
		return -EPROTO;
	s = session_of(serve, req, list.session);
	return s ? cp_session_files(s, &list, &in) : -EPROTO;
}

static int on_check(struct cp_serve *serve, struct skein_rpc_req *req)
{
	struct bytes_in in = request(req);
	struct cp_session *s = session_of(serve, req, bytes_get_u64(&in));

	return s ? cp_session_check(s) : -EPROTO;
}

static int on_commit(struct cp_serve *serve, struct skein_rpc_req *req)
{
	struct bytes_in in = request(req);
	struct cp_session *s = session_of(serve, req, bytes_get_u64(&in));

	return s ? cp_session_commit(s) : -EPROTO;
}

static int on_abort(struct cp_serve *serve, struct skein_rpc_req *req)
{
	struct bytes_in in = request(req);
	struct cp_session *s = session_of(serve, req, bytes_get_u64(&in));

	if (!s)
		return -EPROTO;
	cp_session_drop(s, "the sender has given up");
	return 0;
}

static int on_call(struct skein_rpc_req *req, void *arg)
{
	struct handler *h = arg;
	int rc;

	pthread_mutex_lock(&h->serve->lock);
	rc = h->fn(h->serve, req);
	pthread_mutex_unlock(&h->serve->lock);
	return rc;
}

static int handle_all(struct cp_serve *serve)
{
	static const struct {
		uint16_t id;
		int (*fn)(struct cp_serve *, struct skein_rpc_req *);
	} calls[CALLS] = {
		{CP_CALL_OPEN, on_open},       {CP_CALL_MANIFEST, on_manifest},
		{CP_CALL_STATUS, on_status},   {CP_CALL_HAVE, on_have},
		{CP_CALL_ROUND, on_round},     {CP_CALL_SUMS, on_sums},
		{CP_CALL_FILES, on_files},     {CP_CALL_CHECK, on_check},
		{CP_CALL_COMMIT, on_commit},   {CP_CALL_ABORT, on_abort},
		{CP_CALL_MEMBERS, on_members},
	};
	int rc = 0;

	for (size_t i = 0; i < CALLS && !rc; i++) {
		serve->handler[i] = (struct handler){serve, calls[i].fn};
		rc = skein_rpc_handle(serve->attr.ctx, calls[i].id, on_call,
				      &serve->handler[i]);
	}
	return rc;
}

static int open_dir(struct cp_serve *serve, struct cp_err *err)
{
	serve->dir = realpath(serve->attr.dir, NULL);
	if (!serve->dir)
		return cp_fail_sys(err, -errno, "%s", serve->attr.dir);
	serve->root = open(serve->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (serve->root < 0) {
		int rc = cp_fail_sys(err, -errno, "%s", serve->dir);

		free(serve->dir);
		return rc;
	}
	return 0;
}

int cp_serve_open(const struct cp_serve_attr *attr, struct cp_serve **out,
		  struct cp_err *err)
{
	struct cp_serve *serve = calloc(1, sizeof(*serve));
	struct skein_listener_attr listen = {
		.size = sizeof(listen),
		.on_conn = on_conn,
		.arg = serve,
	};
	int rc;

	if (!serve)
		return cp_fail(err, -ENOMEM, "no memory");
	serve->attr = *attr;
	pthread_mutex_init(&serve->lock, NULL);
	pthread_cond_init(&serve->wake, NULL);
	rc = open_dir(serve, err);
	if (rc)
		goto err_free;
	rc = handle_all(serve);
	if (!rc)
		rc = skein_listener_open(attr->ctx, attr->listen, &listen,
					 &serve->listener);
	if (rc) {
		cp_fail_sys(err, rc, "listening on %s", attr->listen);
		goto err_dir;
	}
	*out = serve;
	return 0;
err_dir:
	close(serve->root);
	free(serve->dir);
err_free:
	pthread_cond_destroy(&serve->wake);
	pthread_mutex_destroy(&serve->lock);
	free(serve);
	return rc;
}

const char *cp_serve_addr(struct cp_serve *serve)
{
	return skein_listener_addr(serve->listener);
}

const char *cp_serve_dir(struct cp_serve *serve)
{
	return serve->dir;
}

/* The worker has ended: how the copy did, and room for the next. */
static void reap(struct cp_serve *serve, struct cp_status *st)
{
	struct cp_session *s;

	pthread_mutex_lock(&serve->lock);
	s = serve->session;
	serve->session = NULL;
	serve->conn = NULL;
	serve->ended = false;
	pthread_mutex_unlock(&serve->lock);
	cp_session_status(s, st);
	cp_session_free(s);
}

bool cp_serve_wait(struct cp_serve *serve, struct cp_status *st)
{
	bool ended;

	pthread_mutex_lock(&serve->lock);
	while (!serve->ended && !serve->stopped)
		pthread_cond_wait(&serve->wake, &serve->lock);
	ended = serve->ended;
	pthread_mutex_unlock(&serve->lock);
	if (ended)
		reap(serve, st);
	return ended;
}

void cp_serve_stop(struct cp_serve *serve)
{
	pthread_mutex_lock(&serve->lock);
	serve->stopped = true;
	pthread_cond_broadcast(&serve->wake);
	pthread_mutex_unlock(&serve->lock);
}

void cp_serve_close(struct cp_serve *serve)
{
	struct cp_status st;
	struct cp_session *s;

	cp_serve_stop(serve);
	skein_listener_close(serve->listener);
	pthread_mutex_lock(&serve->lock);
	s = serve->session;
	pthread_mutex_unlock(&serve->lock);
	if (s) {
		cp_session_drop(s, "the receiver was stopped");
		reap(serve, &st); /* joins the worker */
	}
	close(serve->root);
	free(serve->dir);
	pthread_cond_destroy(&serve->wake);
	pthread_mutex_destroy(&serve->lock);
	free(serve);
}
