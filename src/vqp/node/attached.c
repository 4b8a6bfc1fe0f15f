/* SPDX-License-Identifier: MIT */
/*
 * attached.c - see attached.h.
 */
#include "vqp/node/attached.h"

#include "base/fence.h"

#include <errno.h>
#include <skein/error.h>
#include <string.h>

/* --- attaching ---------------------------------------------------------- */

/* 0 if the service runs as this process's user, or as root. */
static int service_check(int fd)
{
	uint32_t uid, pid;
	int err = local_peer(fd, &uid, &pid);

	if (err)
		return err;
	return uid == (uint32_t)geteuid() || !uid ? 0 : -EACCES;
}

static int hello(struct attached *a, const char *path, uint64_t deadline,
		 struct attach_msg *m, int fds[LOCAL_FDS], int *n)
{
	uint8_t buf[ATTACH_LEN];
	ssize_t got;
	uint64_t now;
	int err;

	while ((err = local_connect(path, &a->fd)) == -EAGAIN &&
	       env_now_ns(a->env) < deadline)
		env_yield(a->env);
	if (!err)
		err = service_check(a->fd);
	attach_fill(m, ATTACH_HELLO);
	if (!err)
		err = local_send(a->fd, m, sizeof(*m), NULL, 0);
	/* a service that is full has answered already */
	if (err && err != -EPIPE)
		return err;
	do {
		now = env_now_ns(a->env);
		got = local_recv(a->fd, buf, sizeof(buf), fds, n);
		if (got == -EAGAIN && now < deadline)
			local_wait(a->fd, deadline - now);
		/* A service that closed before it read this message has said
		 * why: its answer comes after the error. */
	} while ((got == -EAGAIN || got == -ECONNRESET) && now < deadline);
	if (got <= 0)
		return got == -EAGAIN ? -ETIMEDOUT : -SKEIN_EDEAD;
	err = attach_decode(buf, (size_t)got, m);
	if (!err && m->status == -SKEIN_EBUSY)
		env_log(a->env, ENV_LOG_WARN,
			"vqp: the node service at %s has as many clients as it "
			"takes (skein node --clients): try again in %u ms",
			path, (unsigned)m->len);
	return err ? err : m->status;
}

int attached_open(struct attached *a, struct skein_env *env, const char *path,
		  uint64_t deadline)
{
	int fds[LOCAL_FDS], n = 0, err;
	struct attach_msg m;
	void *life = NULL;

	memset(a, 0, sizeof(*a));
	a->env = env;
	a->fd = -1;
	err = hello(a, path, deadline, &m, fds, &n);
	if (!err && (n != 2 || m.kind != ATTACH_HELLO || m.len != RING_LEN))
		err = -SKEIN_EPEER;
	if (!err)
		err = local_map(fds[0], RING_LEN, true, &a->rings);
	if (!err)
		err = local_map(fds[1], LOCAL_LIFE_LEN, false, &life);
	while (n > 0)
		close(fds[--n]);
	if (err) {
		attached_close(a);
		return err;
	}
	a->life = life;
	a->requests_max = m.id;
	ring_init(&a->ring, a->rings);
	memcpy(a->gid, m.gid, sizeof(m.gid));
	memcpy(a->addr, m.addr, sizeof(m.addr));
	return 0;
}

void attached_close(struct attached *a)
{
	if (a->rings)
		local_unmap(a->rings, RING_LEN);
	if (a->life)
		local_unmap(a->life, LOCAL_LIFE_LEN);
	if (a->fd >= 0)
		close(a->fd);
	a->rings = NULL;
	a->life = NULL;
	a->fd = -1;
}

static bool is_closed(const struct attached *a)
{
	return atomic_load_explicit(&a->ring.heads->closed,
				    memory_order_relaxed);
}

bool attached_lives(const struct attached *a)
{
	return !a->hung_up && local_lives(a->life) && !is_closed(a);
}

bool attached_barred(const struct attached *a)
{
	/* A service that ends marks its life first. */
	return is_closed(a) && local_lives(a->life);
}

/* --- waking and sleeping: tests/model/node*.pml ------------------------- */

/* The service sets its word, then looks at the ring, then sleeps. The client
 * puts a request into the ring, then looks at the word. Each has a fence in
 * between. */
void attached_wake(struct attached *a)
{
	struct attach_msg m;
	uint32_t sleeps;

	fence_full();
	sleeps = atomic_load_explicit(&a->life->asleep, memory_order_relaxed);
	if (!(sleeps & 1) || sleeps == a->woken)
		return;
	a->woken = sleeps;
	attach_fill(&m, ATTACH_WAKE);
	/* A full socket has messages that wake the service. */
	local_send(a->fd, &m, sizeof(m), NULL, 0);
}

/* Not only after a full ring: the service may have seen the client's cursor
 * late, and have stopped at fewer. tests/model/node_full.pml */
void attached_took(struct attached *a, unsigned n)
{
	a->taken += n;
	if (a->taken < RING_LOOK)
		return;
	a->taken = 0;
	attached_wake(a);
}

void attached_refused(struct attached *a)
{
	/* no fence: a thread that sleeps for room has that of attached_arm() */
	atomic_store_explicit(&a->ring.heads->wants_room, 1,
			      memory_order_relaxed);
}

/* The word is taken back here only: a post that finds room may be another
 * thread's than the one that was refused. */
bool attached_room(struct attached *a)
{
	_Atomic(uint32_t) *wants = &a->ring.heads->wants_room;

	if (!atomic_load_explicit(wants, memory_order_relaxed) ||
	    !ring_has_room(&a->ring))
		return false;
	atomic_store_explicit(wants, 0, memory_order_relaxed);
	return true;
}

int attached_read(struct attached *a, struct attach_msg *m, int *fd)
{
	uint8_t buf[ATTACH_LEN];
	int fds[LOCAL_FDS], n;
	ssize_t got;

	*fd = -1;
	got = local_recv(a->fd, buf, sizeof(buf), fds, &n);
	if (got == -EAGAIN)
		return -EAGAIN;
	if (got <= 0 || attach_decode(buf, (size_t)got, m)) {
		a->hung_up = true;
	} else if (n) {
		*fd = fds[0];
		fds[0] = fds[--n];
	}
	while (n > 0)
		close(fds[--n]);
	return a->hung_up ? -SKEIN_EDEAD : 0;
}

void attached_arm(struct attached *a)
{
	atomic_store_explicit(&a->ring.heads->asleep, 1, memory_order_relaxed);
	/* pairs with the fence in the service's client_wake(): it sees the word,
	 * or the caller's look sees what it has put */
	fence_full();
}

void attached_sleep(struct attached *a, const struct ring *seen, uint64_t ns)
{
	struct ring_heads *h = seen->heads;

	/* as in attached_arm() */
	atomic_store_explicit(&h->asleep, 1, memory_order_relaxed);
	fence_full();
	if (!ring_comp_has(seen))
		local_wait(a->fd, ns);
	atomic_store_explicit(&h->asleep, 0, memory_order_relaxed);
}
