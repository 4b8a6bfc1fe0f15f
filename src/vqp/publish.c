/* SPDX-License-Identifier: MIT */
/*
 * publish.c - this node's record at the meta servers: written once a server is
 * connected, renewed each second, written again where a server comes back
 * empty. Of two servers each is connected, lost and connected again by itself.
 *
 * The servers' CPUs have no part in it: both places are READ, one is written. A
 * node is the only writer of its record. Where two nodes write to one place,
 * the node that finds the other's record there takes its other place.
 *
 * Look-ups at a server that DC does not reach go through the same connection.
 *
 * Thread rule: under the pool's lock, except part_done() and look_done().
 */
#include "vqp/pool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STEP_NS SKEIN_MS(200)
#define LOOK_NS SKEIN_MS(10)
/* Longer than the time between two renewals. */
#define NAMES 16 /* numbers drawn before this gives up */
#define TORN 3	 /* times that a record may be torn at open */
/* Time for the second server at open, when the first one is there. */
#define OTHER_NS SKEIN_MS(10)
/* Time for a server that was not there at open; it is tried again all the
 * time. */
#define CONNECT_NS SKEIN_S(60)
/* Numbers that no node has. */
#define META_PORTS 65536u

static uint8_t *buf(const struct publish *u)
{
	return skein_mem_addr(u->mem);
}

static void places(const struct publish *u, uint32_t at[2])
{
	const struct meta_node *own = &u->pool->own;

	meta_places(own->gid, own->port, u->head.places, at);
}

static uint64_t off_of(uint32_t place)
{
	return (uint64_t)(1 + place) * META_RECORD;
}

/* What comes back may be another process, with another table: look-ups READ
 * nothing there before head_take() has met it. */
static void lost(struct publish *u, uint64_t now_ns)
{
	u->step = PUBLISH_LOST;
	u->due_ns = now_ns + LOOK_NS;
	(void)vqp_engine_meta(&u->pool->e, u->server, NULL, 0, 0, 0);
}

/* Connected, and nothing is under way. */
static bool is_met(const struct publish *u)
{
	return u->step == PUBLISH_REST;
}

static bool has_own(const struct publish *u, struct meta_node *n)
{
	const struct meta_node *own = &u->pool->own;

	return meta_find(buf(u), buf(u) + META_RECORD, own->gid, own->port,
			 n) == META_FOUND;
}

static void own_encode(struct publish *u)
{
	struct meta_node own = u->pool->own;

	own.beat = ++u->beat;
	meta_encode(&own, buf(u) + 2 * META_RECORD);
}

/* --- meeting ------------------------------------------------------------ */

/* The table's head was read: tells the engine how look-ups reach the table. */
static int head_take(struct publish *u)
{
	struct pool *p = u->pool;
	struct meta_node at = {0};
	int err;

	err = meta_head_decode(buf(u), &u->head);
	if (!err && (uint64_t)(1 + u->head.places) * META_RECORD > u->table.len)
		err = -EBADMSG;
	if (err)
		return err;
	memcpy(at.gid, u->head.gid, sizeof(at.gid));
	at.port = META_PORTS + u->server;
	at.dctn = u->head.dctn;
	at.key = u->head.key;
	/* each process of the server is a new incarnation */
	at.incarnation = env_random_u64(p->env);
	return vqp_engine_meta(&p->e, u->server, &at, u->table.addr,
			       u->table.rkey, u->head.places);
}

static int table_meet(struct publish *u, uint64_t timeout_ns)
{
	int err;

	u->table.size = sizeof(u->table);
	err = skein_mem_find(u->conn, META_NAME, timeout_ns, &u->table);
	if (!err)
		err = skein_mem_read(u->conn, u->mem, 0, &u->table, 0,
				     META_RECORD, timeout_ns);
	return err ? err : head_take(u);
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

/* Reads this node's places at each server; a server that does not answer is
 * lost. */
static void read_all(struct pool *p, uint64_t timeout_ns)
{
	struct publish *u;

	for (u = p->publish; u < p->publish + p->n_publish; u++)
		if (is_met(u) && read_both(u, timeout_ns))
			lost(u, env_now_ns(p->env));
}

/* Is there another node of this name that renews its record? Waits for the next
 * renewal. */
static bool other_lives(struct pool *p, uint64_t timeout_ns)
{
	uint64_t end = env_now_ns(p->env) + META_BEATS_NS;
	struct meta_node first[VQP_METAS], n;
	bool has[VQP_METAS] = {false}, any = false;
	unsigned i;

	read_all(p, timeout_ns);
	for (i = 0; i < p->n_publish; i++) {
		has[i] = is_met(&p->publish[i]) &&
			 has_own(&p->publish[i], &first[i]);
		any |= has[i];
	}
	for (i = 0; i < p->n_publish; i++)
		p->publish[i].other = (struct meta_owner){0};
	for (i = 0; i < p->n_publish; i++)
		if (has[i])
			p->publish[i].other = (struct meta_owner){
				.incarnation = first[i].incarnation,
				.key = first[i].key,
				.beat = first[i].beat,
				.since_ns = end - META_BEATS_NS};
	while (any && env_now_ns(p->env) < end) {
		read_all(p, timeout_ns);
		for (i = 0; i < p->n_publish; i++)
			if (has[i] && is_met(&p->publish[i]) &&
			    has_own(&p->publish[i], &n) &&
			    (n.beat != first[i].beat ||
			     n.incarnation != first[i].incarnation))
				return true;
		env_yield(p->env);
	}
	return false;
}

static int write_first(struct publish *u, uint64_t timeout_ns)
{
	int err, which = -EAGAIN, i;
	uint32_t at[2];

	for (i = 0; i < TORN && which == -EAGAIN; i++) {
		err = read_both(u, timeout_ns);
		if (err)
			return err;
		which = meta_place_own(buf(u), buf(u) + META_RECORD,
				       &u->pool->own, env_now_ns(u->pool->env),
				       &u->other);
	}
	if (which == -EINPROGRESS)
		which = -EADDRINUSE; /* it was not there a moment ago */
	if (which < 0)
		return which;
	places(u, at);
	own_encode(u);
	err = skein_mem_write(u->conn, u->mem, 2 * META_RECORD, &u->table,
			      off_of(at[which]), META_RECORD, timeout_ns);
	u->count += !err;
	return err;
}

/* Writes the record at all connected servers; one is enough. */
static int name_write(struct pool *p, uint64_t timeout_ns)
{
	int err = -ETIMEDOUT, rc;
	bool written = false;
	struct publish *u;

	for (u = p->publish; u < p->publish + p->n_publish; u++) {
		if (!is_met(u))
			continue;
		rc = write_first(u, timeout_ns);
		if (rc == -EADDRINUSE)
			return rc;
		if (rc && rc != -ENOSPC && rc != -EAGAIN)
			lost(u, env_now_ns(p->env));
		written |= !rc;
		err = rc;
	}
	return written ? 0 : err;
}

/* Takes a number that no node has. any: it may be drawn. */
static int name_take(struct pool *p, bool any, uint64_t timeout_ns)
{
	struct meta_node n;
	int err = 0, i;
	unsigned k;

	if (!any)
		return other_lives(p, timeout_ns) ? -EADDRINUSE
						  : name_write(p, timeout_ns);
	for (i = 0; i < NAMES; i++) {
		read_all(p, timeout_ns);
		/* A drawn number that another node has too is given up. */
		for (k = 0, err = 0; k < p->n_publish; k++)
			if (is_met(&p->publish[k]) &&
			    has_own(&p->publish[k], &n))
				err = -EADDRINUSE;
		if (!err)
			err = name_write(p, timeout_ns);
		if (err != -EADDRINUSE && err != -ENOSPC)
			return err;
		p->own.port = 1024 + env_random_u64(p->env) % 64512;
	}
	return err;
}

/* Runs what carries the connections. */
static void run(struct pool *p)
{
	if (!p->eng)
		skein_ctx_progress(p->ctx);
}

/* "ADDR" or "ADDR,ADDR". */
static int addrs_take(struct pool *p, const char *addrs)
{
	struct publish *u;
	const char *at;

	for (at = addrs; at; at = strchr(at, ',')) {
		at += at != addrs; /* the comma */
		if (p->n_publish == VQP_METAS)
			return -EINVAL;
		u = &p->publish[p->n_publish];
		u->pool = p;
		u->server = p->n_publish++;
		u->step = PUBLISH_LOST;
		u->addr = env_strdup(p->env, at);
		if (!u->addr)
			return -ENOMEM;
		u->addr[strcspn(u->addr, ",")] = '\0';
		if (skein_mem_new(p->ctx,
				  (size_t)(3 + 2 * PUBLISH_LOOKS) * META_RECORD,
				  &u->mem))
			return -ENOMEM;
	}
	return 0;
}

/* Any thread. A connection may break and be ready again between two rounds. */
static void on_state(void *arg, struct skein_conn *conn,
		     enum skein_conn_state state)
{
	struct publish *u = arg;

	(void)conn;
	if (state != SKEIN_CONN_READY)
		atomic_store(&u->away, true);
}

static int conn_begin(struct publish *u, unsigned retries, uint64_t timeout_ns)
{
	struct skein_conn_attr a = {.size = sizeof(a),
				    .timeout_ns = timeout_ns,
				    .retries = retries,
				    .reconnect = true,
				    .pooled = SKEIN_POOLED_NO,
				    .engine = u->pool->eng,
				    .on_state = on_state,
				    .arg = u};

	return skein_conn_open_async(u->pool->ctx, u->addr, &a, &u->conn);
}

/* Waits until all are ready or have failed; but not long for the second. */
static int conns_wait(struct pool *p, uint64_t timeout_ns)
{
	uint64_t begin = env_now_ns(p->env);
	uint64_t end = env_deadline(begin, timeout_ns);
	bool ready, waiting;
	struct publish *u;
	int err = 0, rc;

	do {
		ready = waiting = false;
		for (u = p->publish; u < p->publish + p->n_publish; u++) {
			rc = u->conn ? skein_conn_wait(u->conn, SKEIN_MS(2))
				     : -ECONNREFUSED;
			ready |= !rc;
			if (rc && u->conn &&
			    skein_conn_get_state(u->conn) ==
				    SKEIN_CONN_CONNECTING)
				waiting = true;
			else if (rc)
				err = rc;
		}
	} while (waiting && env_now_ns(p->env) < end &&
		 !(ready && env_now_ns(p->env) - begin >= OTHER_NS));
	if (ready)
		return 0;
	return err ? err : -ETIMEDOUT;
}

int publish_open(struct pool *p, const char *addrs, bool any,
		 uint64_t timeout_ns)
{
	struct publish *u;
	int err, rc;

	err = addrs_take(p, addrs);
	for (u = p->publish; u < p->publish + p->n_publish && !err; u++) {
		rc = conn_begin(u, 16, timeout_ns);
		if (rc && p->n_publish == 1)
			err = rc;
	}
	if (!err)
		err = conns_wait(p, timeout_ns + OTHER_NS);
	for (u = p->publish; u < p->publish + p->n_publish && !err; u++) {
		if (!u->conn ||
		    skein_conn_get_state(u->conn) != SKEIN_CONN_READY)
			continue;
		rc = table_meet(u, timeout_ns);
		u->step = rc ? PUBLISH_LOST : PUBLISH_REST;
		u->due_ns = env_now_ns(p->env) + META_RENEW_NS;
		if (rc && p->n_publish == 1)
			err = rc;
	}
	if (!err)
		err = name_take(p, any, timeout_ns);
	if (err == -EADDRINUSE)
		env_log(p->env, ENV_LOG_ERROR,
			"vqp: the meta server at %s: this host has a node of "
			"number %u already",
			addrs, p->own.port);
	else if (err)
		env_log(p->env, ENV_LOG_ERROR,
			"vqp: the meta server at %s: %s%s", addrs,
			skein_strerror(err),
			err == -ECONNREFUSED || err == -ETIMEDOUT
				? ": start it there (skein meta --listen)"
				: "");
	return err;
}

void publish_close(struct pool *p)
{
	struct publish *u;

	for (u = p->publish; u < p->publish + p->n_publish; u++) {
		if (u->conn)
			skein_conn_close(u->conn, SKEIN_MS(100));
		if (u->mem)
			skein_mem_free(u->mem);
		env_free(p->env, u->addr);
	}
	memset(p->publish, 0, sizeof(p->publish));
	p->n_publish = 0;
}

/* --- renewing ----------------------------------------------------------- */

/* Any thread. */
static void part_done(void *arg, int status)
{
	struct publish *u = arg;

	if (status)
		atomic_store(&u->failed, true);
	/* Release pairs with the acquire in server_round(): a thread that sees
	 * no part pending also sees `failed`. */
	atomic_fetch_sub_explicit(&u->pending, 1, memory_order_release);
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

static void write_begin(struct publish *u, uint64_t now_ns)
{
	struct pool *p = u->pool;
	uint32_t at[2];
	int which;

	which = meta_place_own(buf(u), buf(u) + META_RECORD, &p->own, now_ns,
			       &u->other);
	u->step = PUBLISH_REST;
	u->due_ns = now_ns + (which == -EAGAIN ? LOOK_NS : META_RENEW_NS);
	if (which == -EINPROGRESS)
		return;
	if (which < 0) {
		p->e.counts.garbage++;
		if (which == -EADDRINUSE)
			vqp_say(&p->e, 8,
				"vqp: this node's record is not renewed: "
				"another node has its number");
		else if (which == -ENOSPC)
			vqp_say(&p->e, 32,
				"vqp: this node's record is not renewed: both "
				"of its places are others'");
		return;
	}
	places(u, at);
	own_encode(u);
	atomic_fetch_add(&u->pending, 1);
	u->step = PUBLISH_WRITES;
	u->due_ns = now_ns + STEP_NS;
	if (skein_mem_write_async(u->conn, u->mem, 2 * META_RECORD, &u->table,
				  off_of(at[which]), META_RECORD, part_done, u))
		part_done(u, -EAGAIN);
}

/* The server was gone, or is another process: begins anew. The pool's lock is
 * held, so nothing here waits. */
static void meet_again(struct publish *u, uint64_t now_ns)
{
	u->due_ns = now_ns + LOOK_NS;
	if (atomic_load(&u->pending) || u->n_looks)
		return;
	/* it was not there at open */
	if (!u->conn || skein_conn_get_state(u->conn) == SKEIN_CONN_BROKEN) {
		if (u->conn)
			skein_conn_close(u->conn, 0);
		u->conn = NULL;
		u->due_ns = now_ns + META_RENEW_NS;
		(void)conn_begin(u, UINT32_MAX, CONNECT_NS);
		return;
	}
	if (skein_conn_get_state(u->conn) != SKEIN_CONN_READY)
		return;
	/* a server that has not shared its table yet is asked again */
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

/* All parts of a step have ended. */
static void step_over(struct publish *u, uint64_t now_ns)
{
	if (u->step == PUBLISH_READS) {
		write_begin(u, now_ns);
	} else if (u->step == PUBLISH_WRITES) {
		u->step = PUBLISH_REST;
		u->due_ns = now_ns + META_RENEW_NS;
		u->count++;
	} else if (head_take(u)) {
		lost(u, now_ns);
	} else {
		reads_begin(u, now_ns);
	}
}

static void server_round(struct publish *u, uint64_t now_ns)
{
	const struct vqp *asks = u->pool->e.meta[u->server].v;
	bool away = atomic_exchange(&u->away, false), over;

	/* a look-up may fail first */
	if (u->step != PUBLISH_LOST &&
	    (away ||
	     (u->step == PUBLISH_REST && asks && asks->state == VQP_ERROR)))
		lost(u, now_ns);
	if ((u->step == PUBLISH_REST || u->step == PUBLISH_LOST) &&
	    now_ns < u->due_ns)
		return;
	run(u->pool);
	/* Acquire pairs with the release in part_done(). */
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
			step_over(u, now_ns);
		else if (over || now_ns >= u->due_ns)
			lost(u, now_ns);
		break;
	case PUBLISH_LOST:
		meet_again(u, now_ns);
		break;
	}
}

/* --- look-ups ----------------------------------------------------------- */

/* Any thread. */
static void look_done(void *arg, int status)
{
	struct publish_lookup *l = arg;

	if (status)
		atomic_store(&l->failed, true);
	/* Release pairs with the acquire in looks_round(): the records, and
	 * `failed`, are there. */
	atomic_fetch_sub_explicit(&l->pending, 1, memory_order_release);
}

static uint64_t look_off(unsigned i, unsigned which)
{
	return (uint64_t)(3 + 2 * i + which) * META_RECORD;
}

int publish_look(struct pool *p, unsigned server, const uint32_t place[2],
		 uint64_t token)
{
	struct publish *u = &p->publish[server];
	struct publish_lookup *l;
	unsigned i, k;

	/* What is there now may be another process, with another table. */
	if (atomic_load(&u->away) || !u->conn ||
	    skein_conn_get_state(u->conn) != SKEIN_CONN_READY)
		return -ENOTCONN;
	for (i = 0; i < PUBLISH_LOOKS && u->looks[i].token; i++)
		;
	if (i == PUBLISH_LOOKS)
		return -ENOMEM;
	l = &u->looks[i];
	l->token = token;
	u->n_looks++;
	atomic_store(&l->failed, false);
	atomic_store(&l->pending, 2);
	for (k = 0; k < 2; k++)
		if (skein_mem_read_async(u->conn, u->mem, look_off(i, k),
					 &u->table, off_of(place[k]),
					 META_RECORD, look_done, l))
			look_done(l, -EAGAIN);
	return 0;
}

static void looks_round(struct publish *u)
{
	struct publish_lookup *l;
	unsigned i;

	run(u->pool);
	for (i = 0; i < PUBLISH_LOOKS; i++) {
		l = &u->looks[i];
		/* Acquire pairs with the release in look_done(). */
		if (!l->token ||
		    atomic_load_explicit(&l->pending, memory_order_acquire))
			continue;
		vqp_engine_meta_read(&u->pool->e, l->token,
				     !atomic_load(&l->failed),
				     buf(u) + look_off(i, 0));
		l->token = 0;
		u->n_looks--;
	}
}

void publish_round(struct pool *p, uint64_t now_ns)
{
	struct publish *u;

	for (u = p->publish; u < p->publish + p->n_publish; u++) {
		if (u->n_looks)
			looks_round(u);
		server_round(u, now_ns);
	}
}

void publish_say(struct pool *p, const uint8_t gid[16], uint32_t port, int err)
{
	char node[INET6_ADDRSTRLEN + 8], why[512] = "";
	const struct publish *u;
	const char *text;
	size_t n = 0;

	pool_addr_print(gid, port, node, sizeof(node));
	if (err != -ENETUNREACH) {
		env_log(p->env, ENV_LOG_ERROR,
			"vqp: %s: no meta server has a node of this name that "
			"renews its record",
			node);
		return;
	}
	for (u = p->publish; u < p->publish + p->n_publish; u++) {
		text = "";
		if (u->conn)
			(void)skein_conn_error(u->conn, &text);
		if (n < sizeof(why))
			n += (size_t)snprintf(why + n, sizeof(why) - n,
					      "%s%s: %s", n ? "; " : "",
					      u->addr,
					      *text ? text : "no answer");
	}
	env_log(p->env, ENV_LOG_ERROR,
		"vqp: %s was not met before, and no meta server answers: %s",
		node, why);
}
