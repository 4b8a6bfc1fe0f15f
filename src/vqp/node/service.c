/* SPDX-License-Identifier: MIT */
/*
 * service.c - the node service's sockets, clients, memory and poller; see
 * service.h.
 *
 * The poller sleeps in one epoll for everything: requests (a client that reads
 * the word `asleep` sends a message on its socket), attaches, deaths, the
 * device's completions. With a futex word that clients may write, one client
 * could take away another's wake-up; a message cannot be taken back.
 */
#include "vqp/node/service.h"
#include "vqp/room.h"

#include "base/fence.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define FDS_NS 50000u /* between two looks at the sockets while it polls */
#define FDS_BATCH 16
#define SILENT_NS SKEIN_MS(100) /* a client attaches in microseconds */
#define BUSY_MS 100u		/* when a refused client may come again */
#define MSGS_BATCH 8

/* --- clients ------------------------------------------------------------ */

/* The memory counts for the user until its lease has ended. Else a client that
 * takes and gives up in a loop would have all memory. */
static void mem_given_up(struct node_client *c, struct pool_mem *mem)
{
	c->serve.quota.used[QUOTA_MEMORY] -= mem->region->len;
	pool_mem_retire(mem);
}

static void client_free(struct node_client *c)
{
	struct skein_node *n = c->node;
	uint32_t i;

	if (c->attached) {
		serve_fini(&c->serve);
		for (i = 0; i < SERVE_MEMS; i++)
			if (c->serve.mem[i].id)
				mem_given_up(c, c->serve.mem[i].owner);
		atomic_store(&c->serve.ring.heads->closed, 1);
		env_mem_free(n->env, c->ring_fd, c->ring, RING_LEN);
		n->stats.clients--;
	}
	env_waiter_unwatch(n->env, n->w, c->fd);
	close(c->fd);
	list_del(&c->link);
	n->n_clients--;
	env_free(n->env, c);
}

static void client_detach(struct node_client *c, const char *why)
{
	c->gone = true;
	c->node->stats.detached++;
	env_log(c->node->env, ENV_LOG_WARN,
		"node: client %u (uid %u) is detached: %s", c->pid, c->uid,
		why);
}

/* Logs what a quota refused, once for each client, and the option that gives
 * more. */
static void quota_say(struct node_client *c)
{
	static const struct {
		const char *what, *option;
	} row[QUOTA_KINDS] = {
		[QUOTA_MEMORY] = {"bytes of memory", "--memory"},
		[QUOTA_REQUESTS] = {"requests outstanding", "--requests"},
		[QUOTA_VQPS] = {"virtual queue pairs", "--vqps"},
		[QUOTA_PORTS] = {"ports", "--ports"},
	};
	unsigned now = c->serve.quota.refused & ~c->logged, k;

	c->logged |= now;
	for (k = 0; k < QUOTA_KINDS; k++) {
		unsigned long long max = c->node->max[k];

		if (now & 1u << 2 * k)
			env_log(c->node->env, ENV_LOG_WARN,
				"node: client %u (uid %u) may have %llu %s "
				"(skein node %s)",
				c->pid, c->uid, max, row[k].what,
				row[k].option);
		if (now & 2u << 2 * k)
			env_log(c->node->env, ENV_LOG_WARN,
				"node: client %u: all of uid %u may have %llu "
				"%s (skein node --user-times, %s)",
				c->pid, c->uid, max * c->node->user_times,
				row[k].what, row[k].option);
	}
}

static struct quota_user *user_of(struct skein_node *n, uint32_t uid)
{
	struct quota_user *u;
	struct list_node *l;

	list_for_each(l, &n->users) {
		u = container_of(l, struct quota_user, link);
		if (u->uid == uid)
			return u;
	}
	u = env_alloc(n->env, sizeof(*u));
	if (!u)
		return NULL;
	u->uid = uid;
	list_add_tail(&n->users, &u->link);
	return u;
}

/* --- domains ------------------------------------------------------------ */

static int domain_new(struct skein_node *n, const struct node_domain *like,
		      struct node_domain **domain)
{
	struct node_domain *d;

	if (n->n_domains == UINT16_MAX)
		return -EDQUOT;
	d = env_alloc(n->env, sizeof(*d));
	if (!d)
		return -ENOMEM;
	*d = *like;
	if (like->name) {
		d->name = env_strdup(n->env, like->name);
		if (!d->name) {
			env_free(n->env, d);
			return -ENOMEM;
		}
	}
	d->number = (uint16_t)++n->n_domains;
	list_add_tail(&n->domains, &d->link);
	*domain = d;
	return 0;
}

static bool is_same(const struct node_domain *a, const struct node_domain *b)
{
	if (a->name || b->name)
		return a->name && b->name && !strcmp(a->name, b->name);
	return a->uid == b->uid && a->mount_ns == b->mount_ns &&
	       a->net_ns == b->net_ns;
}

static int domain_get(struct skein_node *n, const struct node_domain *like,
		      struct node_domain **domain)
{
	struct list_node *l;

	list_for_each(l, &n->domains) {
		*domain = container_of(l, struct node_domain, link);
		if (is_same(*domain, like))
			return 0;
	}
	return domain_new(n, like, domain);
}

/* The door's domain, or the one that the kernel tells of the attaching
 * process. */
static int domain_of(struct skein_node *n, const struct node_door *door, int fd,
		     uint32_t uid, uint32_t pid, struct node_domain **domain)
{
	struct node_domain d = {.uid = uid};
	int err;

	if (door->domain) {
		*domain = door->domain;
		return 0;
	}
	err = local_spaces(fd, pid, &d.mount_ns, &d.net_ns);
	if (!err)
		return domain_get(n, &d, domain);
	if (err == -ESRCH) /* the process is gone already */
		return err;
	n->stats.refused++;
	env_log(n->env, ENV_LOG_WARN,
		"node: process %u (uid %u) is refused: its namespaces cannot "
		"be read: %s (skein node --listen PATH:DOMAIN names a domain)",
		pid, uid, strerror(-err));
	return -EACCES;
}

static int client_new(struct skein_node *n, const struct node_door *door,
		      int fd)
{
	struct node_domain *domain;
	struct quota_user *user;
	struct node_client *c;
	uint32_t uid, pid;
	int err;

	err = local_peer(fd, &uid, &pid);
	if (err)
		return err;
	if (uid != n->uid && uid != 0) {
		n->stats.refused++;
		env_log(n->env, ENV_LOG_WARN,
			"node: process %u is refused: its user is %u, ours %u",
			pid, uid, n->uid);
		return -EACCES;
	}
	err = domain_of(n, door, fd, uid, pid, &domain);
	if (err)
		return err;
	user = user_of(n, uid);
	c = user ? env_alloc(n->env, sizeof(*c)) : NULL;
	if (!c)
		return -ENOMEM;
	err = env_waiter_watch(n->env, n->w, fd, EPOLLIN);
	if (err) {
		env_free(n->env, c);
		return err;
	}
	c->node = n;
	c->fd = fd;
	c->uid = uid;
	c->pid = pid;
	c->user = user;
	c->domain = domain;
	c->since_ns = env_now_ns(n->env);
	list_add_tail(&n->clients, &c->link);
	n->n_clients++;
	return 0;
}

static void client_read(struct node_client *c);

/* The oldest process that has connected and says nothing makes room for another
 * one. What it has said may lie unread: the service was busy, or stood still. */
static void silent_drop(struct skein_node *n)
{
	uint64_t now = env_now_ns(n->env);
	struct node_client *c;
	struct list_node *l;

	list_for_each(l, &n->clients) {
		c = container_of(l, struct node_client, link);
		if (c->attached || now - c->since_ns < SILENT_NS)
			continue;
		client_read(c);
		if (c->attached && !c->gone)
			continue;
		client_free(c);
		return;
	}
}

static void accept_all(struct skein_node *n, const struct node_door *door)
{
	struct attach_msg m;
	int fd, err;

	while (!local_accept(door->fd, &fd)) {
		if (n->n_clients >= n->clients_max)
			silent_drop(n);
		err = n->n_clients < n->clients_max ? client_new(n, door, fd)
						    : -SKEIN_EBUSY;
		if (!err)
			continue;
		attach_fill(&m, ATTACH_HELLO);
		m.status = err;
		m.len = err == -SKEIN_EBUSY ? BUSY_MS : 0;
		local_send(fd, &m, sizeof(m), NULL, 0);
		close(fd);
	}
}

/* --- messages of clients -------------------------------------------------- */

static void answer(struct node_client *c, struct attach_msg *m, int err,
		   const int *fds, int n)
{
	m->status = err;
	err = local_send(c->fd, m, sizeof(*m), err ? NULL : fds, err ? 0 : n);
	if (!err)
		return;
	/* A client that does not read its answers is detached, as is one that no
	 * descriptor can be sent to: it is told why. */
	c->gone = true;
	if (err != -ETOOMANYREFS)
		return;
	m->status = err;
	local_send(c->fd, m, sizeof(*m), NULL, 0);
}

static void on_hello(struct node_client *c, struct attach_msg *m)
{
	struct skein_node *n = c->node;
	int fds[2], err;

	if (c->attached) {
		client_detach(c, "it attached twice");
		return;
	}
	err = env_mem_alloc(n->env, "skein-node", RING_LEN, &c->ring_fd,
			    &c->ring);
	if (!err) {
		serve_init(&c->serve, &n->pool->e, c->ring);
		c->serve.quota = (struct quota){.max = n->max,
						.user_times = n->user_times,
						.user = c->user};
		c->serve.domain = c->domain->number;
		c->attached = true;
		n->stats.clients++;
		n->stats.attached++;
	}
	m->len = RING_LEN;
	m->id = (uint32_t)n->max[QUOTA_REQUESTS];
	memcpy(m->gid, n->pool->base.gid, sizeof(m->gid));
	memcpy(m->addr, n->pool->base.addr, sizeof(m->addr));
	fds[0] = c->ring_fd;
	fds[1] = local_life_fd(n->life);
	answer(c, m, err, fds, 2);
}

/* A domain's memories that others cannot take, while there are some. */
#define DOMAIN_MEMS_LEAST 4u

/* Domains have shares of the memories. Those of one client are SERVE_MEMS at
 * most. */
static bool domain_has_room(struct node_client *c)
{
	const struct node_domain *d;
	struct list_node *l;
	uint32_t all = 0;

	list_for_each(l, &c->node->domains) {
		d = container_of(l, struct node_domain, link);
		all += d->mems;
	}
	if (all < c->node->mems_max &&
	    room_allows(c->domain->mems, 1, c->node->mems_max - all,
			c->node->mems_max, DOMAIN_MEMS_LEAST))
		return true;
	if (!c->domain->full)
		env_log(c->node->env, ENV_LOG_WARN,
			"node: client %u (uid %u): the clients of its domain "
			"have %u memories of %u: the rest is for others (ulimit "
			"-n, up to %u memories)",
			c->pid, c->uid, c->domain->mems, c->node->mems_max,
			REGION_PLACES - 1);
	c->domain->full = true;
	return false;
}

static int mem_allowed(struct node_client *c, uint64_t len)
{
	if (!len)
		return -EINVAL;
	if (!domain_has_room(c))
		return -EDQUOT;
	return quota_take(&c->serve.quota, QUOTA_MEMORY, len) ? 0 : -EDQUOT;
}

static void mem_named(struct node_client *c, struct attach_msg *m,
		      struct pool_mem *mem)
{
	mem->counted = &c->user->used[QUOTA_MEMORY];
	mem->held = &c->domain->mems;
	c->domain->mems++;
	m->region = mem->base.id;
	m->region_addr = mem->base.raddr;
}

static int mem_make(struct node_client *c, struct attach_msg *m,
		    struct pool_mem **mem)
{
	int err = mem_allowed(c, m->len);

	if (err)
		return err;
	err = pool_mem_make(c->node->pool, m->len, m->access, c->domain->number,
			    mem);
	if (err) {
		quota_give(&c->serve.quota, QUOTA_MEMORY, m->len);
		return err;
	}
	mem_named(c, m, *mem);
	m->id = serve_mem_add(&c->serve, (*mem)->base.addr, m->len,
			      (*mem)->base.lkey, *mem);
	if (m->id)
		return 0;
	if (!c->mems_said)
		env_log(c->node->env, ENV_LOG_WARN,
			"node: client %u (uid %u): a client may have %u "
			"memories",
			c->pid, c->uid, SERVE_MEMS);
	c->mems_said = true;
	mem_given_up(c, *mem);
	return -EDQUOT;
}

static void on_mem(struct node_client *c, struct attach_msg *m)
{
	struct pool_mem *mem = NULL;
	int err = mem_make(c, m, &mem);

	answer(c, m, err, err ? NULL : &mem->region->fd, 1);
}

/* *fd: -1 from now on where the pool took it. */
static int mem_adopt(struct node_client *c, struct attach_msg *m, int *fd)
{
	struct pool_mem *mem;
	int err = *fd >= 0 ? mem_allowed(c, m->len) : -EBADF;

	if (err)
		return err;
	err = pool_mem_adopt(c->node->pool, *fd, m->len, m->access,
			     c->domain->number, m->region, &mem);
	if (err) {
		quota_give(&c->serve.quota, QUOTA_MEMORY, m->len);
		return err;
	}
	*fd = -1;
	mem_named(c, m, mem);
	if (serve_mem_put(&c->serve, m->id, mem->base.addr, m->len,
			  mem->base.lkey, mem))
		return 0;
	mem_given_up(c, mem);
	return -EEXIST;
}

static void on_mem_again(struct node_client *c, struct attach_msg *m, int *fd)
{
	answer(c, m, mem_adopt(c, m, fd), NULL, 0);
}

static void on_mem_free(struct node_client *c, const struct attach_msg *m)
{
	struct pool_mem *mem = serve_mem_del(&c->serve, m->id);

	if (!mem) {
		client_detach(c, "it gave up memory that it has not");
		return;
	}
	mem_given_up(c, mem);
}

/* *fd: the message's descriptor, or -1; set to -1 if it is taken. */
static void on_msg(struct node_client *c, const void *buf, size_t len, int *fd)
{
	struct attach_msg m;
	int err = attach_decode(buf, len, &m);

	if (err == -SKEIN_EVERSION && !c->attached) {
		attach_fill(&m, ATTACH_HELLO);
		answer(c, &m, err, NULL, 0);
		c->gone = true;
		return;
	}
	if (err || (!c->attached && m.kind != ATTACH_HELLO)) {
		client_detach(c, "a message that makes no sense");
		return;
	}
	switch (m.kind) {
	case ATTACH_HELLO:
		on_hello(c, &m);
		break;
	case ATTACH_MEM:
		on_mem(c, &m);
		break;
	case ATTACH_MEM_AGAIN:
		on_mem_again(c, &m, fd);
		break;
	case ATTACH_MEM_FREE:
		on_mem_free(c, &m);
		break;
	default: /* a wake-up: the service is awake */
		break;
	}
	if (c->serve.quota.refused & ~c->logged)
		quota_say(c);
}

static void client_read(struct node_client *c)
{
	uint8_t buf[ATTACH_LEN];
	int fds[LOCAL_FDS], none = -1, n, i;
	ssize_t got;

	for (i = 0; i < MSGS_BATCH && !c->gone; i++) {
		got = local_recv(c->fd, buf, sizeof(buf), fds, &n);
		if (got == -EAGAIN)
			return;
		if (got == -EMSGSIZE)
			client_detach(c, "a message that is too long");
		else if (got <= 0)
			c->gone = true;
		else
			on_msg(c, buf, (size_t)got, n ? fds : &none);
		while (n > 0)
			if (fds[--n] >= 0)
				close(fds[n]);
	}
}

static struct node_client *client_of(struct skein_node *n, int fd)
{
	struct node_client *c;
	struct list_node *l;

	list_for_each(l, &n->clients) {
		c = container_of(l, struct node_client, link);
		if (c->fd == fd)
			return c;
	}
	return NULL;
}

static struct node_door *door_of(struct skein_node *n, int fd)
{
	struct node_door *d;
	struct list_node *l;

	list_for_each(l, &n->doors) {
		d = container_of(l, struct node_door, link);
		if (d->fd == fd)
			return d;
	}
	return NULL;
}

/* Level-triggered: messages that are not read now are reported again. */
static int fds_look(struct skein_node *n)
{
	struct node_client *c;
	struct node_door *d;
	int fds[FDS_BATCH], k, i;

	k = env_waiter_ready_fds(n->env, n->w, fds, FDS_BATCH);
	for (i = 0; i < k; i++) {
		if (fds[i] == n->channel->fd)
			channel_drain(n->ctx->dev, n->channel);
		else if ((d = door_of(n, fds[i])))
			accept_all(n, d);
		else if ((c = client_of(n, fds[i])))
			client_read(c);
	}
	return k > 0 ? k : 0;
}

/* --- rounds ------------------------------------------------------------- */

/* The client sets its words, then looks at its rings, then sleeps. The service
 * has written to a ring, or counted the lines that it took, and then looks at the
 * words. Each has a fence in between. */
static void client_wake(struct node_client *c, bool comps)
{
	struct ring_heads *h = c->serve.ring.heads;
	struct attach_msg m;

	fence_full();
	if (!atomic_load_explicit(&h->asleep, memory_order_relaxed))
		return;
	if (!comps &&
	    !atomic_load_explicit(&h->wants_room, memory_order_relaxed))
		return;
	/* An exchange: a late store would clear the word of the client's next
	 * sleep. */
	if (!atomic_exchange(&h->asleep, 0))
		return;
	attach_fill(&m, ATTACH_WAKE);
	/* A full socket has wake-ups to read. */
	local_send(c->fd, &m, sizeof(m), NULL, 0);
	c->node->stats.wakes++;
}

static int client_round(struct node_client *c)
{
	bool comps;
	int moved;

	if (c->gone) {
		client_free(c);
		return 1;
	}
	if (!c->attached)
		return 0;
	moved = serve_round(&c->serve);
	if (c->serve.quota.refused & ~c->logged)
		quota_say(c);
	if (c->serve.wrong) {
		client_detach(c, c->serve.wrong);
		return 1;
	}
	comps = c->comps != c->serve.ring.comp;
	if (comps || c->lines != c->serve.ring.line) {
		c->comps = c->serve.ring.comp;
		c->lines = c->serve.ring.line;
		client_wake(c, comps);
	}
	return moved;
}

static int clients_round(struct skein_node *n)
{
	struct list_node *l, *next;
	struct node_client *c;
	int moved = 0;

	list_for_each_safe(l, next, &n->clients) {
		uint64_t before;

		c = container_of(l, struct node_client, link);
		before = c->attached ? c->serve.requests : 0;
		if (c->gone) {
			moved += client_round(c);
			continue;
		}
		moved += client_round(c);
		if (c->attached)
			n->stats.requests += c->serve.requests - before;
	}
	return moved;
}

static int round_once(struct skein_node *n)
{
	uint64_t now = env_now_ns(n->env);
	int moved = 0;

	if (now - n->fds_ns >= FDS_NS) {
		n->fds_ns = now;
		moved = fds_look(n);
	}
	vqp_engine_at(&n->pool->e, now);
	moved += clients_round(n);
	return moved + pool_round(n->pool);
}

static bool work_is_there(struct skein_node *n)
{
	struct node_client *c;
	struct list_node *l;

	list_for_each(l, &n->clients) {
		c = container_of(l, struct node_client, link);
		if (c->gone || (c->attached && serve_has(&c->serve)))
			return true;
	}
	return false;
}

/* The service sets `asleep`, has a fence, and looks at the rings. A client
 * writes its request, has a fence, and looks at `asleep`.
 * tests/model/node.pml */
static void sleep_once(struct skein_node *n)
{
	struct local_life *page = local_life_page(n->life);

	env_waiter_arm(n->env, n->w);
	/* odd while asleep; each client wakes the service once a sleep */
	atomic_fetch_add_explicit(&page->asleep, 1, memory_order_relaxed);
	fence_full();
	if (pool_notify(n->pool) || work_is_there(n) || pool_round(n->pool)) {
		env_waiter_disarm(n->env, n->w);
	} else {
		n->stats.sleeps++;
		env_waiter_sleep(n->env, n->w,
				 pool_due(n->pool, env_now_ns(n->env)));
		n->fds_ns = 0; /* look what the wake-up was */
	}
	atomic_fetch_add_explicit(&page->asleep, 1, memory_order_relaxed);
}

int skein_node_run(struct skein_node *n, uint64_t timeout_ns,
		   struct skein_stop *stop)
{
	uint64_t end = env_deadline(env_now_ns(n->env), timeout_ns);
	unsigned fruitless = 0;

	for (;;) {
		if (stop && skein_stop_is_set(stop))
			return 0;
		if (round_once(n)) {
			fruitless = 0;
			continue;
		}
		if (env_now_ns(n->env) >= end)
			return -ETIMEDOUT;
		if (env_idle(n->env, n->w, fruitless++) == ENV_IDLE_SLEEP) {
			sleep_once(n);
			fruitless = 0;
		}
	}
}

/* --- open and close ----------------------------------------------------- */

static void door_close(struct skein_node *n, struct node_door *d)
{
	if (d->path && d->fd >= 0)
		unlink(d->path);
	if (d->fd >= 0) {
		env_waiter_unwatch(n->env, n->w, d->fd);
		close(d->fd);
	}
	list_del(&d->link);
	env_free(n->env, d->path);
	env_free(n->env, d);
}

int skein_node_listen(struct skein_node *n, const char *path,
		      const char *domain)
{
	struct node_domain like = {.name = (char *)(uintptr_t)domain};
	struct node_door *d;
	int err = 0;

	if (ctx_forked(n->ctx))
		return -SKEIN_EFORKED;
	if (domain && !*domain)
		return -EINVAL;
	d = env_alloc(n->env, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->fd = -1;
	list_add_tail(&n->doors, &d->link);
	d->path = env_strdup(n->env, path);
	if (!d->path)
		err = -ENOMEM;
	if (!err && domain)
		err = domain_get(n, &like, &d->domain);
	if (!err)
		err = local_listen(path, &d->fd);
	if (!err)
		err = env_waiter_watch(n->env, n->w, d->fd, EPOLLIN);
	if (err)
		door_close(n, d);
	return err;
}

/* A memory has two descriptors, this pool's and the device's. Others are two for
 * each client, and those of the device, its peers and the doors. */
#define FDS_MEM 2u
#define FDS_OWN 64u

static uint32_t mems_max(const struct skein_node *n)
{
	uint64_t kept = FDS_OWN + 2ull * n->clients_max, most;
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return REGION_PLACES - 1;
	/* too few for all clients: a few memories all the same */
	most = l.rlim_cur > kept ? (l.rlim_cur - kept) / FDS_MEM : 0;
	if (most < 16)
		return 16;
	return most < REGION_PLACES ? (uint32_t)most : REGION_PLACES - 1;
}

static int waiter_open(struct skein_node *n)
{
	int err = env_waiter_new(n->env, ENV_WAIT_ADAPTIVE, &n->w);

	return err ? err
		   : env_waiter_watch(n->env, n->w, n->channel->fd, EPOLLIN);
}

static int node_up(struct skein_node *n, const char *path,
		   const struct skein_node_attr *a)
{
	struct skein_pool_attr pa = {.size = sizeof(pa),
				     .meta = a->meta,
				     .node_port = a->node_port,
				     .timeout_ns = a->timeout_ns,
				     .meta_wait_ns = a->meta_wait_ns};
	int err;

	err = n->ctx->dev->ops->create_comp_channel(n->ctx->dev, &n->channel);
	if (!err)
		err = pool_make(n->ctx, &pa, n->channel, NULL, &n->pool);
	if (!err)
		n->pool->e.conf.piece = VQP_PIECE;
	if (!err)
		err = local_life_new(n->env, &n->life);
	if (!err)
		err = waiter_open(n);
	if (!err && path)
		err = skein_node_listen(n, path, NULL);
	return err;
}

void skein_node_close(struct skein_node *n)
{
	struct node_domain *domain;
	struct quota_user *user;

	if (!n || ctx_forked(n->ctx))
		return;
	/* First no client finds the service, then clients see that it is
	 * gone. */
	while (!list_empty(&n->doors))
		door_close(n,
			   container_of(n->doors.next, struct node_door, link));
	if (n->life)
		local_life_free(n->life);
	while (!list_empty(&n->clients))
		client_free(container_of(n->clients.next, struct node_client,
					 link));
	if (n->w)
		env_waiter_free(n->env, n->w);
	if (n->pool)
		pool_free(n->pool);
	/* after pool_free(), which counts the memory that it frees */
	while (!list_empty(&n->users)) {
		user = container_of(n->users.next, struct quota_user, link);
		list_del(&user->link);
		env_free(n->env, user);
	}
	while (!list_empty(&n->domains)) {
		domain =
			container_of(n->domains.next, struct node_domain, link);
		list_del(&domain->link);
		env_free(n->env, domain->name);
		env_free(n->env, domain);
	}
	if (n->channel)
		n->ctx->dev->ops->destroy_comp_channel(n->ctx->dev, n->channel);
	env_free(n->env, n);
}

int skein_node_open(struct skein_ctx *ctx, const char *path,
		    const struct skein_node_attr *attr,
		    struct skein_node **node)
{
	struct skein_node_attr a = {.size = sizeof(a)};
	struct skein_node *n;
	int err;

	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	err = attr ? ctx_attr_copy(&a, sizeof(a), attr) : 0;
	if (err)
		return err;
	n = env_alloc(ctx->env, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->ctx = ctx;
	n->env = ctx->env;
	n->uid = (uint32_t)geteuid();
	n->clients_max = a.clients_max ? a.clients_max : 256;
	n->max[QUOTA_MEMORY] = a.mem_max ? a.mem_max : 64u << 20;
	n->max[QUOTA_REQUESTS] = a.requests_max ? a.requests_max : 256;
	n->max[QUOTA_VQPS] = a.vqps_max ? a.vqps_max : SERVE_VQPS;
	n->max[QUOTA_PORTS] = a.ports_max ? a.ports_max : 64;
	n->user_times = a.user_times ? a.user_times : 4;
	n->mems_max = mems_max(n);
	list_init(&n->clients);
	list_init(&n->users);
	list_init(&n->doors);
	list_init(&n->domains);
	err = node_up(n, path, &a);
	if (err)
		skein_node_close(n);
	else
		*node = n;
	return err;
}

const char *skein_node_addr(struct skein_node *n)
{
	return n->pool->base.addr;
}

void skein_node_get_stats(struct skein_node *n, struct skein_node_stats *st)
{
	n->stats.size = sizeof(n->stats);
	(void)ctx_struct_fill(st, sizeof(size_t), &n->stats, sizeof(n->stats));
}
