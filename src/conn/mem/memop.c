/* SPDX-License-Identifier: MIT */
/*
 * memop.c - one-sided operations on a peer's regions.
 *
 * On an accepted connection a thread posts an operation at once if it owns the
 * engine or can enter it. Else it hands the operation to the engine's owner;
 * there an operation that finds no room waits on conn->mem_waiting.
 * conn->mem_deferred counts operations handed over: while there are any, new
 * ones are handed over too, so that none overtakes them.
 *
 * On a handle with lanes a thread prepares its work request and submits it to
 * its lane's send queue, and the leader posts it (sendq.h); -EAGAIN when there
 * is no room.
 *
 * A timed-out operation stays under way, and its memory is the device's until
 * op_done(): the waiting thread abandons it, and op_done() frees it.
 */
#include "base/assert.h"
#include "conn/state.h"
#include "conn/handle/lanes.h"
#include "conn/mem/mem_handle.h"
#include "conn/handle/thread.h"
#include "conn/wc_status.h"

#include <errno.h>

#define DEFERRED_MAX 1024u

struct memop {
	struct conn_op op;
	struct engine_call call;
	struct list_node link;
	struct skein_conn *conn;
	struct conn_thread *rec; /* of the thread, on a handle with lanes */
	enum ibv_wr_opcode opcode;
	uint64_t local;
	uint32_t lkey;
	uint32_t len;
	uint64_t remote;
	uint32_t rkey;
	uint64_t compare_add, swap;
	uint64_t *scratch, old;
	uint64_t *old_out; /* where old goes before done(), or NULL */
	void (*done)(void *arg, int status);
	void *arg;

	/* blocking calls: 0 under way, 1 finished, 2 abandoned */
	atomic_int fate;
	int status;
};

enum {
	UNDER_WAY,
	FINISHED,
	ABANDONED,
};

/* Owner. Release pairs with the acquire in conn_thread_idle(). */
static void thread_wr_ended(struct conn_thread *rec)
{
	atomic_store_explicit(
		&rec->wrs_ended,
		atomic_load_explicit(&rec->wrs_ended, memory_order_relaxed) + 1,
		memory_order_release);
}

static void finish(struct memop *m, int status)
{
	struct skein_env *env = m->conn->ctx->env;
	int under_way = UNDER_WAY;

	if (m->rec)
		thread_wr_ended(m->rec);
	if (m->scratch) {
		m->old = *m->scratch;
		eng_scratch_put(m->conn->eng, m->scratch);
		m->scratch = NULL;
	}
	if (m->done) {
		if (status == 0 && m->old_out)
			*m->old_out = m->old;
		m->done(m->arg, status);
		env_free(env, m);
		return;
	}
	m->status = status;
	/* Release pairs with the acquire in finished(): a thread that sees
	 * FINISHED also sees status and old. Acquire: if the thread has
	 * abandoned m, all its uses of m come before the free here. */
	if (!atomic_compare_exchange_strong_explicit(
		    &m->fate, &under_way, FINISHED, memory_order_acq_rel,
		    memory_order_acquire))
		env_free(env, m);
}

static void op_done(struct conn_op *op, enum ibv_wc_status status)
{
	finish(container_of(op, struct memop, op), wc_status_err(status));
}

static bool is_atomic(const struct memop *m)
{
	return m->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       m->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int scratch_take(struct memop *m)
{
	m->scratch = eng_scratch_get(m->conn->eng, &m->lkey);
	if (!m->scratch)
		return -EAGAIN;
	m->local = (uintptr_t)m->scratch;
	m->len = 8;
	return 0;
}

static void scratch_drop(struct memop *m)
{
	if (m->scratch)
		eng_scratch_put(m->conn->eng, m->scratch);
	m->scratch = NULL;
}

/* Makes m a work request with one sge. */
static int prepare(struct memop *m, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	int rc = is_atomic(m) && !m->scratch ? scratch_take(m) : 0;

	if (rc)
		return rc;
	*sge = (struct ibv_sge){m->local, m->len, m->lkey};
	wr->opcode = m->opcode;
	wr->send_flags = 0;
	wr->sg_list = sge;
	wr->num_sge = 1;
	if (is_atomic(m)) {
		wr->wr.atomic.remote_addr = m->remote;
		wr->wr.atomic.rkey = m->rkey;
		wr->wr.atomic.compare_add = m->compare_add;
		wr->wr.atomic.swap = m->swap;
	} else {
		wr->wr.rdma.remote_addr = m->remote;
		wr->wr.rdma.rkey = m->rkey;
	}
	m->op.done = op_done;
	return 0;
}

/* Owner. */
static int memop_post(struct memop *m)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	int rc;

	if (is_atomic(m) && eng_scratch_make(m->conn->eng))
		return -EAGAIN;
	rc = prepare(m, &wr, &sge);
	if (rc == 0)
		rc = conn_post(m->conn, &wr, &m->op);
	if (rc)
		scratch_drop(m);
	return rc;
}

static void tell_modules(struct conn_thread *rec, size_t len)
{
	const struct conn_module *m;

	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->thread_wr)
			m->thread_wr(rec, len);
}

/* Submits m on the calling thread's lane. Counts m first, as it may end before
 * conn_sendq_submit() returns. */
static int submit_shared(struct memop *m)
{
	struct conn_thread *rec;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	size_t len = m->len;
	int rc, at;

	rc = conn_check(m->conn);
	if (rc)
		return rc;
	rc = conn_thread(m->conn, &rec);
	if (rc)
		return rc;
	if (conn_thread_held(rec))
		return -EAGAIN;
	at = conn_thread_lane(rec);
	if (at < 0)
		return at;
	rc = prepare(m, &wr, &sge);
	if (rc)
		return rc;
	rec->req.kind = CONN_REQ_WR;
	rec->req.wr = &wr;
	rec->req.op = &m->op;
	m->rec = rec;
	rec->wrs_begun++;
	rc = conn_sendq_submit(rec->lanes[at], &rec->req);
	if (rc) {
		rec->wrs_begun--;
		m->rec = NULL;
		scratch_drop(m);
	} else {
		tell_modules(rec, len);
	}
	return rc;
}

static void deferred_end(struct memop *m, int rc)
{
	struct skein_conn *conn = m->conn;

	if (rc)
		finish(m, rc);
	atomic_fetch_sub(&conn->mem_deferred, 1);
}

/* Owner: the QP's queue has room again, or the connection is down. */
void conn_mem_room(struct skein_conn *conn)
{
	struct memop *m;
	int rc;

	while (!list_empty(&conn->mem_waiting)) {
		m = container_of(conn->mem_waiting.next, struct memop, link);
		rc = memop_post(m);
		if (rc == -EAGAIN)
			return;
		list_del(&m->link);
		deferred_end(m, rc);
	}
}

static void submit_call(struct engine_call *call)
{
	struct memop *m = container_of(call, struct memop, call);
	struct skein_conn *conn = m->conn;
	int rc = -EAGAIN;

	if (list_empty(&conn->mem_waiting))
		rc = memop_post(m);
	if (rc == -EAGAIN)
		list_add_tail(&conn->mem_waiting, &m->link);
	else
		deferred_end(m, rc);
}

/* 0: m is under way and frees itself, or its waiting thread does. Cancellation
 * is off: a thread that leads the combiner or owns the engine must go on. */
static int submit(struct memop *m)
{
	struct skein_conn *conn = m->conn;
	struct engine *e = conn->eng->e;
	int rc;

	if (conn->client)
		return submit_shared(m);
	rc = conn_check(conn);
	if (rc)
		return rc;
	if (!atomic_load(&conn->mem_deferred)) {
		if (engine_is_owner(e))
			return memop_post(m);
		if (engine_try_enter(e)) {
			rc = memop_post(m);
			engine_leave(e);
			return rc;
		}
	}
	if (atomic_fetch_add(&conn->mem_deferred, 1) >= DEFERRED_MAX) {
		atomic_fetch_sub(&conn->mem_deferred, 1);
		return -EAGAIN;
	}
	m->call.fn = submit_call;
	engine_post(e, &m->call);
	return 0;
}

static int check(struct skein_conn *conn, struct skein_mem *local,
		 uint64_t local_off, const struct skein_remote *remote,
		 uint64_t remote_off, size_t len, unsigned access)
{
	uint64_t max = conn->eng->dev->caps.msg_sz_max;

	if (remote->size < MEM_REMOTE_MIN)
		return -EINVAL;
	if (local && (local_off > local->region->len ||
		      len > local->region->len - local_off))
		return -ERANGE;
	if (remote_off > remote->len || len > remote->len - remote_off)
		return -ERANGE;
	if ((remote->access & access) != access)
		return -EACCES;
	if (len > UINT32_MAX || (max && len > max))
		return -EMSGSIZE;
	return 0;
}

static struct memop *memop_new(struct skein_conn *conn,
			       enum ibv_wr_opcode opcode,
			       const struct skein_remote *remote,
			       uint64_t remote_off)
{
	struct memop *m = env_alloc(conn->ctx->env, sizeof(*m));

	if (!m)
		return NULL;
	m->conn = conn;
	m->opcode = opcode;
	m->remote = remote->addr + remote_off;
	m->rkey = remote->rkey;
	return m;
}

/* A checked READ or WRITE, not yet submitted. */
static int rw_new(struct skein_conn *conn, enum ibv_wr_opcode opcode,
		  struct skein_mem *local, uint64_t local_off,
		  const struct skein_remote *remote, uint64_t remote_off,
		  size_t len, struct memop **op)
{
	unsigned access =
		opcode == IBV_WR_RDMA_READ ? SKEIN_MEM_READ : SKEIN_MEM_WRITE;
	struct memop *m;
	int rc;

	rc = check(conn, local, local_off, remote, remote_off, len, access);
	if (rc)
		return rc;
	m = memop_new(conn, opcode, remote, remote_off);
	if (!m)
		return -ENOMEM;
	m->local = (uintptr_t)local->region->addr + local_off;
	m->lkey = local->region->mr->lkey;
	m->len = (uint32_t)len;
	*op = m;
	return 0;
}

/* A checked compare-and-swap or fetch-and-add, not yet submitted. */
static int atomic_new(struct skein_conn *conn, enum ibv_wr_opcode opcode,
		      const struct skein_remote *remote, uint64_t remote_off,
		      uint64_t compare_add, uint64_t swap, struct memop **op)
{
	struct memop *m;
	int rc;

	rc = check(conn, NULL, 0, remote, remote_off, 8, SKEIN_MEM_ATOMIC);
	if (rc)
		return rc;
	if ((remote->addr + remote_off) % 8)
		return -EINVAL;
	if (conn->eng->dev->caps.atomic_scope == DEV_ATOMIC_NONE)
		return -EOPNOTSUPP;
	m = memop_new(conn, opcode, remote, remote_off);
	if (!m)
		return -ENOMEM;
	m->compare_add = compare_add;
	m->swap = swap;
	*op = m;
	return 0;
}

/* --- with a callback --------------------------------------------------- */

static int start(struct memop *m, void (*done)(void *arg, int status),
		 void *arg)
{
	struct skein_env *env = m->conn->ctx->env;
	int rc, cancel;

	m->done = done;
	m->arg = arg;
	cancel = env_cancel_off(env);
	rc = submit(m);
	env_cancel_back(env, cancel);
	if (rc)
		env_free(env, m);
	return rc;
}

int skein_mem_read_async(struct skein_conn *conn, struct skein_mem *local,
			 uint64_t local_off, const struct skein_remote *remote,
			 uint64_t remote_off, size_t len,
			 void (*done)(void *arg, int status), void *arg)
{
	struct memop *m;
	int rc = rw_new(conn, IBV_WR_RDMA_READ, local, local_off, remote,
			remote_off, len, &m);

	return rc ? rc : start(m, done, arg);
}

int skein_mem_write_async(struct skein_conn *conn, struct skein_mem *local,
			  uint64_t local_off, const struct skein_remote *remote,
			  uint64_t remote_off, size_t len,
			  void (*done)(void *arg, int status), void *arg)
{
	struct memop *m;
	int rc = rw_new(conn, IBV_WR_RDMA_WRITE, local, local_off, remote,
			remote_off, len, &m);

	return rc ? rc : start(m, done, arg);
}

static int start_atomic(struct memop *m, uint64_t *old,
			void (*done)(void *arg, int status), void *arg)
{
	m->old_out = old;
	return start(m, done, arg);
}

int skein_mem_cmp_swap_async(struct skein_conn *conn,
			     const struct skein_remote *remote,
			     uint64_t remote_off, uint64_t compare,
			     uint64_t swap, uint64_t *old,
			     void (*done)(void *arg, int status), void *arg)
{
	struct memop *m;
	int rc = atomic_new(conn, IBV_WR_ATOMIC_CMP_AND_SWP, remote, remote_off,
			    compare, swap, &m);

	return rc ? rc : start_atomic(m, old, done, arg);
}

int skein_mem_fetch_add_async(struct skein_conn *conn,
			      const struct skein_remote *remote,
			      uint64_t remote_off, uint64_t add, uint64_t *old,
			      void (*done)(void *arg, int status), void *arg)
{
	struct memop *m;
	int rc = atomic_new(conn, IBV_WR_ATOMIC_FETCH_AND_ADD, remote,
			    remote_off, add, 0, &m);

	return rc ? rc : start_atomic(m, old, done, arg);
}

/* --- blocking ---------------------------------------------------------- */

static bool finished(void *arg)
{
	struct memop *m = arg;

	return atomic_load_explicit(&m->fate, memory_order_acquire) != 0;
}

static uint64_t deadline_of(struct skein_env *env, uint64_t timeout_ns)
{
	return env_deadline(env_now_ns(env), timeout_ns);
}

static bool never(void *arg)
{
	return false;
}

/* Submits and waits. On return the caller frees *mp; NULL: m was abandoned. */
static int submit_and_wait(struct memop **mp, uint64_t timeout_ns)
{
	struct memop *m = *mp;
	struct skein_env *env = m->conn->ctx->env;
	struct engine *e = m->conn->eng->e;
	uint64_t deadline = deadline_of(env, timeout_ns);
	int rc, under_way = UNDER_WAY;

	if (engine_is_owner(e))
		return -EDEADLK;
	while ((rc = submit(m)) == -EAGAIN) {
		if (env_now_ns(env) >= deadline)
			return -ETIMEDOUT;
		engine_run_until(e, never, NULL, env_now_ns(env) + 1000);
	}
	if (rc)
		return rc;
	rc = engine_run_until(e, finished, m, deadline);
	if (rc && atomic_compare_exchange_strong_explicit(
			  &m->fate, &under_way, ABANDONED, memory_order_acq_rel,
			  memory_order_acquire)) {
		*mp = NULL;
		return rc;
	}
	return m->status;
}

static int run(struct memop **mp, uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();

	return submit_and_wait(mp, timeout_ns);
}

static int run_rw(struct skein_conn *conn, enum ibv_wr_opcode opcode,
		  struct skein_mem *local, uint64_t local_off,
		  const struct skein_remote *remote, uint64_t remote_off,
		  size_t len, uint64_t timeout_ns)
{
	struct memop *m;
	int rc;

	rc = rw_new(conn, opcode, local, local_off, remote, remote_off, len,
		    &m);
	if (rc)
		return rc;
	rc = run(&m, timeout_ns);
	env_free(conn->ctx->env, m);
	return rc;
}

int skein_mem_read(struct skein_conn *conn, struct skein_mem *local,
		   uint64_t local_off, const struct skein_remote *remote,
		   uint64_t remote_off, size_t len, uint64_t timeout_ns)
{
	return run_rw(conn, IBV_WR_RDMA_READ, local, local_off, remote,
		      remote_off, len, timeout_ns);
}

int skein_mem_write(struct skein_conn *conn, struct skein_mem *local,
		    uint64_t local_off, const struct skein_remote *remote,
		    uint64_t remote_off, size_t len, uint64_t timeout_ns)
{
	return run_rw(conn, IBV_WR_RDMA_WRITE, local, local_off, remote,
		      remote_off, len, timeout_ns);
}

static int run_atomic(struct skein_conn *conn, enum ibv_wr_opcode opcode,
		      const struct skein_remote *remote, uint64_t remote_off,
		      uint64_t compare_add, uint64_t swap, uint64_t timeout_ns,
		      uint64_t *old)
{
	struct memop *m;
	int rc = atomic_new(conn, opcode, remote, remote_off, compare_add, swap,
			    &m);

	if (rc)
		return rc;
	rc = run(&m, timeout_ns);
	if (rc == 0 && old)
		*old = m->old;
	env_free(conn->ctx->env, m);
	return rc;
}

int skein_mem_cmp_swap(struct skein_conn *conn,
		       const struct skein_remote *remote, uint64_t remote_off,
		       uint64_t compare, uint64_t swap, uint64_t timeout_ns,
		       uint64_t *old)
{
	return run_atomic(conn, IBV_WR_ATOMIC_CMP_AND_SWP, remote, remote_off,
			  compare, swap, timeout_ns, old);
}

int skein_mem_fetch_add(struct skein_conn *conn,
			const struct skein_remote *remote, uint64_t remote_off,
			uint64_t add, uint64_t timeout_ns, uint64_t *old)
{
	return run_atomic(conn, IBV_WR_ATOMIC_FETCH_AND_ADD, remote, remote_off,
			  add, 0, timeout_ns, old);
}
