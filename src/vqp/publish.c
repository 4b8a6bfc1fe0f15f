/* SPDX-License-Identifier: MIT */
/*
 * publish.c - this node's record at the meta server: written once the server is
 * met, renewed each second, written again where the server comes back empty.
 *
 * The server's CPU has no part in it: both places are READ, one is written. A
 * node is the only writer of its record; where two fight for one place, the one
 * that finds the other there takes its other place.
 */
#include "vqp/pool.h"

#include <errno.h>
#include <string.h>

#define STEP_NS SKEIN_MS(200)
#define LOOK_NS SKEIN_MS(20)
/* Longer than the pause between two renewals. */
#define BEATS_NS (META_RENEW_NS * 3 / 2)
#define NAMES 16 /* drawn, before we give up */

static uint8_t *buf(const struct publish *u)
{
	return skein_mem_addr(u->mem);
}

static void places(const struct publish *u, uint32_t at[2])
{
	meta_places(u->own.gid, u->own.port, u->head.places, at);
}

static uint64_t off_of(uint32_t place)
{
	return (uint64_t)(1 + place) * META_RECORD;
}

/* --- meeting ------------------------------------------------------------ */

/* The table's head was read: how look-ups reach it. */
static int head_take(struct pool *p)
{
	struct publish *u = &p->publish;
	struct meta_node at = {0};
	int err;

	err = meta_head_decode(buf(u), &u->head);
	if (!err && (uint64_t)(1 + u->head.places) * META_RECORD > u->table.len)
		err = -EBADMSG;
	if (err)
		return err;
	memcpy(at.gid, u->head.gid, sizeof(at.gid));
	at.dctn = u->head.dctn;
	at.key = u->head.key;
	/* a number that no node has; each life of the server is a new one */
	at.incarnation = env_now_ns(p->env);
	return vqp_engine_meta(&p->e, 0, &at, u->table.addr, u->table.rkey,
			       u->head.places);
}

static int table_meet(struct pool *p, uint64_t timeout_ns)
{
	struct publish *u = &p->publish;
	int err;

	u->table.size = sizeof(u->table);
	err = skein_mem_find(u->conn, META_NAME, timeout_ns, &u->table);
	if (!err)
		err = skein_mem_read(u->conn, u->mem, 0, &u->table, 0,
				     META_RECORD, timeout_ns);
	return err ? err : head_take(p);
}

static int read_both(struct publish *u, uint64_t timeout_ns)
{
	uint32_t at[2];
	int err, i;

	places(u, at);
	for (i = 0, err = 0; i < 2 && !err; i++)
		err = skein_mem_read(u->conn, u->mem, (uint64_t)i * META_RECORD,
				     &u->table, off_of(at[i]), META_RECORD,
				     timeout_ns);
	return err;
}

/* Is there a node of our name that renews its record? Waits for the next
 * renewal. 1: it lives. */
static int other_lives(struct pool *p, uint64_t timeout_ns)
{
	struct publish *u = &p->publish;
	uint64_t end = env_now_ns(p->env) + BEATS_NS;
	struct meta_node first, n;
	int err;

	err = read_both(u, timeout_ns);
	if (err)
		return err;
	if (meta_find(buf(u), buf(u) + META_RECORD, u->own.gid, u->own.port,
		      &first) != META_FOUND)
		return 0;
	while (env_now_ns(p->env) < end) {
		err = read_both(u, timeout_ns);
		if (err)
			return err;
		if (meta_find(buf(u), buf(u) + META_RECORD, u->own.gid,
			      u->own.port, &n) == META_FOUND &&
		    (n.beat != first.beat ||
		     n.incarnation != first.incarnation))
			return 1;
		env_yield(p->env);
	}
	return 0;
}

static int write_first(struct pool *p, uint64_t timeout_ns)
{
	struct publish *u = &p->publish;
	uint32_t at[2];
	int err, which;

	err = read_both(u, timeout_ns);
	if (err)
		return err;
	which = meta_place_own(buf(u), buf(u) + META_RECORD, &u->own);
	if (which < 0)
		return which;
	places(u, at);
	u->own.beat++;
	meta_encode(&u->own, buf(u) + 2 * META_RECORD);
	err = skein_mem_write(u->conn, u->mem, 2 * META_RECORD, &u->table,
			      off_of(at[which]), META_RECORD, timeout_ns);
	u->count += !err;
	return err;
}

/* Under a number that nobody has; any: one may be drawn. */
static int name_take(struct pool *p, bool any, uint64_t timeout_ns)
{
	struct publish *u = &p->publish;
	int err = -EADDRINUSE, i;

	for (i = 0; i < NAMES; i++) {
		err = any ? 0 : other_lives(p, timeout_ns);
		if (err > 0)
			return -EADDRINUSE;
		if (!err && any)
			err = read_both(u, timeout_ns);
		if (err)
			return err;
		/* One that was drawn is not fought for. */
		if (any && meta_find(buf(u), buf(u) + META_RECORD, u->own.gid,
				     u->own.port,
				     &(struct meta_node){0}) == META_FOUND)
			err = -EADDRINUSE;
		else
			err = write_first(p, timeout_ns);
		if (!any || (err != -EADDRINUSE && err != -ENOSPC))
			return err;
		u->own.port = 1024 + env_random_u64(p->env) % 64512;
	}
	return err;
}

int publish_open(struct pool *p, const char *addr, bool any,
		 uint64_t timeout_ns)
{
	struct skein_conn_attr a = {.size = sizeof(a),
				    .timeout_ns = timeout_ns,
				    .retries = 16,
				    .reconnect = true};
	struct publish *u = &p->publish;
	int err;

	u->addr = env_strdup(p->env, addr);
	if (!u->addr)
		return -ENOMEM;
	err = skein_mem_new(p->ctx, 3 * META_RECORD, &u->mem);
	if (!err)
		err = skein_conn_open(p->ctx, addr, &a, &u->conn);
	if (!err)
		err = table_meet(p, timeout_ns);
	if (!err)
		err = name_take(p, any, timeout_ns);
	if (err)
		env_log(p->env, ENV_LOG_ERROR, "vqp: the meta server at %s: %s",
			addr, skein_strerror(err));
	u->due_ns = env_now_ns(p->env) + META_RENEW_NS;
	return err;
}

void publish_close(struct pool *p)
{
	struct publish *u = &p->publish;

	if (u->conn)
		skein_conn_close(u->conn, SKEIN_MS(100));
	if (u->mem)
		skein_mem_free(u->mem);
	env_free(p->env, u->addr);
	memset(u, 0, sizeof(*u));
}

/* --- renewing ----------------------------------------------------------- */

/* Any thread. */
static void part_done(void *arg, int status)
{
	struct publish *u = arg;

	if (status)
		atomic_store(&u->failed, true);
	/* release: failed is older */
	atomic_fetch_sub_explicit(&u->pending, 1, memory_order_release);
}

static void lost(struct publish *u, uint64_t now_ns)
{
	u->step = PUBLISH_LOST;
	u->due_ns = now_ns + LOOK_NS;
}

static void reads_begin(struct publish *u, uint64_t now_ns)
{
	uint32_t at[2];
	int i;

	places(u, at);
	atomic_store(&u->failed, false);
	u->step = PUBLISH_READS;
	for (i = 0; i < 2; i++) {
		atomic_fetch_add(&u->pending, 1);
		if (!skein_mem_read_async(u->conn, u->mem,
					  (uint64_t)i * META_RECORD, &u->table,
					  off_of(at[i]), META_RECORD, part_done,
					  u))
			continue;
		part_done(u, -EAGAIN);
	}
	u->due_ns = now_ns + STEP_NS;
}

static void write_begin(struct pool *p, uint64_t now_ns)
{
	struct publish *u = &p->publish;
	uint32_t at[2];
	int which;

	which = meta_place_own(buf(u), buf(u) + META_RECORD, &u->own);
	u->step = PUBLISH_REST;
	u->due_ns = now_ns + META_RENEW_NS;
	if (which < 0) {
		p->e.counts.garbage++;
		vqp_say(&p->e, 8,
			"vqp: this node's record cannot be renewed: its place "
			"is another's");
		return;
	}
	places(u, at);
	u->own.beat++;
	meta_encode(&u->own, buf(u) + 2 * META_RECORD);
	atomic_fetch_add(&u->pending, 1);
	u->step = PUBLISH_WRITES;
	u->due_ns = now_ns + STEP_NS;
	if (skein_mem_write_async(u->conn, u->mem, 2 * META_RECORD, &u->table,
				  off_of(at[which]), META_RECORD, part_done, u))
		part_done(u, -EAGAIN);
}

/* The server was gone, or is another one: from the beginning. The pool's lock is
 * held, so nothing here waits. */
static void meet_again(struct publish *u, uint64_t now_ns)
{
	u->due_ns = now_ns + LOOK_NS;
	if (skein_conn_get_state(u->conn) != SKEIN_CONN_READY ||
	    atomic_load(&u->pending))
		return;
	/* one that has not shared its table yet is asked again */
	u->table.size = sizeof(u->table);
	if (skein_mem_find(u->conn, META_NAME, 0, &u->table))
		return;
	atomic_store(&u->failed, false);
	atomic_store(&u->pending, 1);
	u->step = PUBLISH_HEAD;
	u->due_ns = now_ns + STEP_NS;
	if (skein_mem_read_async(u->conn, u->mem, 0, &u->table, 0, META_RECORD,
				 part_done, u))
		part_done(u, -EAGAIN);
}

/* All parts of a step have come. */
static void step_over(struct pool *p, uint64_t now_ns)
{
	struct publish *u = &p->publish;

	if (u->step == PUBLISH_READS) {
		write_begin(p, now_ns);
	} else if (u->step == PUBLISH_WRITES) {
		u->step = PUBLISH_REST;
		u->due_ns = now_ns + META_RENEW_NS;
		u->count++;
	} else if (head_take(p)) {
		lost(u, now_ns);
	} else {
		reads_begin(u, now_ns);
	}
}

void publish_round(struct pool *p, uint64_t now_ns)
{
	struct publish *u = &p->publish;
	bool over;

	/* look-ups tell it first */
	if (u->step == PUBLISH_REST && p->e.meta[0].v &&
	    p->e.meta[0].v->state == VQP_ERROR)
		lost(u, now_ns);
	if (u->step == PUBLISH_REST && now_ns < u->due_ns)
		return;
	skein_ctx_progress(p->ctx);
	/* acquire: pairs with part_done() */
	over = !atomic_load_explicit(&u->pending, memory_order_acquire);
	switch (u->step) {
	case PUBLISH_REST:
		if (skein_conn_get_state(u->conn) != SKEIN_CONN_READY)
			lost(u, now_ns);
		else
			reads_begin(u, now_ns);
		break;
	case PUBLISH_HEAD:
	case PUBLISH_READS:
	case PUBLISH_WRITES:
		if (over && !atomic_load(&u->failed))
			step_over(p, now_ns);
		else if (over || now_ns >= u->due_ns)
			lost(u, now_ns);
		break;
	case PUBLISH_LOST:
		if (now_ns >= u->due_ns)
			meet_again(u, now_ns);
		break;
	}
}
