/* SPDX-License-Identifier: MIT */
/*
 * dial.c - looks for the QP behind a number that a UD QP or a DCI sends to, or
 * that an RC or UC QP is about to be connected to (soft_reach_qp()). It waits
 * for nobody: a connection that cannot be had at once is left to a timer, an
 * answer to the socket, both for the control thread. Nobody is there only where
 * that is refused or ends: a process that is stopped, or has a thousand others
 * to answer first, gets what is kept for it once it comes round. In another PID
 * namespace, where no event tells of its death, it has 5 s. soft.lock is held
 * throughout.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/link/link.h"
#include "dev/soft/peer/msg.h"
#include "dev/soft/peer/pid.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define RETRY_MIN_NS 2000000ull
#define RETRY_MAX_NS 64000000ull
/* Descriptors are the process's: so many connections at once. A connection that
 * got no answer within TIME_NS is not counted: its process may be stopped. */
#define AT_ONCE 64
#define SECOND_NS 1000000000ull
#define TIME_NS 100000000ull

struct soft_dial {
	struct list_node link;
	struct soft_src src;	 /* fd -1: no connection yet */
	struct soft_src src_pid; /* of the listening process; fd -1: not
				  * watched */
	uint32_t qpn;
	uint64_t pause_ns, due_ns; /* of the next attempt at a connection */
	uint64_t begun_ns;	   /* of this one */
	struct list_node reaches;  /* soft_reach.link: QPs that are told */
	bool looked_for; /* by soft_dial(): UD QPs and DCIs get the answer, too */
};

/* -EAGAIN: its backlog is full. */
static int dial_connect(uint32_t block, pid_t *pid)
{
	struct sockaddr_un un;
	struct ucred cred = {0};
	socklen_t clen = sizeof(cred);
	int fd, len, err = 0;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	len = soft_block_name(block, &un);
	if (connect(fd, (struct sockaddr *)&un, (socklen_t)len) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &clen))
		err = -errno;
	else if (cred.uid != geteuid())
		err = -EACCES;
	if (err) {
		close(fd);
		return err;
	}
	*pid = cred.pid;
	return fd;
}

static void unwatch(struct soft *s, struct soft_src *src)
{
	if (src->fd < 0)
		return;
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, src->fd, NULL);
	close(src->fd);
	src->fd = -1;
}

/* The listening process may be dead while a child of it holds the socket: then
 * nobody accepts. -ECONNREFUSED, or 0: it is watched if it can be. */
static int dial_watch(struct soft *s, struct soft_dial *d, pid_t pid)
{
	int fd = soft_pid_open(pid);

	if (fd == -ESRCH)
		return -ECONNREFUSED;
	d->src_pid.kind = SOFT_SRC_DIAL_PID;
	d->src_pid.fd = fd;
	d->src_pid.obj = d;
	if (fd >= 0 && soft_src_add(s, &d->src_pid, EPOLLIN))
		unwatch(s, &d->src_pid);
	return 0;
}

static int dial_start(struct soft *s, struct soft_dial *d)
{
	struct msg m = {.magic = MSG_MAGIC, .op = MSG_CONNECT, .qpn = d->qpn};
	pid_t pid = 0;
	int fd, err;

	fd = dial_connect(d->qpn / SHM_BLOCK_QPS, &pid);
	if (fd < 0)
		return fd;
	d->src.kind = SOFT_SRC_DIAL;
	d->src.fd = fd;
	d->src.obj = d;
	err = msg_send(fd, &m, 0, NULL, 0);
	if (!err)
		err = soft_src_add(s, &d->src, EPOLLIN);
	if (!err)
		err = dial_watch(s, d, pid);
	if (err)
		unwatch(s, &d->src);
	return err;
}

static void dial_drop(struct soft *s, struct soft_dial *d)
{
	list_del(&d->link);
	unwatch(s, &d->src);
	unwatch(s, &d->src_pid);
	env_free(s->env, d);
}

static void answer(struct soft_qp *q, int err, struct soft_peer *peer,
		   uint64_t area, struct soft_bell *bell)
{
	struct soft_reach *r = &q->reach;

	r->state = SOFT_REACH_ANSWERED;
	r->dial = NULL;
	r->err = err;
	r->peer = peer;
	r->area = area;
	r->bell = bell;
	if (peer)
		peer->refs++;
	soft_bell_get(bell);
	r->user->on_answer(r->user);
}

/* Tells all QPs that wait for it; peer is NULL if no process answered. */
static void dial_over(struct soft *s, struct soft_dial *d, int err,
		      struct soft_peer *peer, uint64_t area,
		      struct soft_bell *bell)
{
	bool looked_for = d->looked_for;
	uint32_t qpn = d->qpn, i;
	struct list_node *n;
	struct soft_qp *q;

	while ((n = list_pop_head(&d->reaches)))
		answer(container_of(n, struct soft_qp, reach.link), err, peer,
		       area, bell);
	/* Dropped first: a QP that sends below may start a new dial. */
	dial_drop(s, d);
	for (i = 0; looked_for && i < s->n_blocks * SHM_BLOCK_QPS; i++) {
		q = s->qps[i];
		if (!q || q->dying ||
		    !(q->dc || (q->ud && atomic_load(&q->ud->waits))))
			continue;
		soft_qp_hold(q);
		if (q->dc)
			soft_dci_met(q, qpn, peer, area, bell);
		else
			soft_ud_met(q, qpn, peer, area, bell);
		soft_qp_release(q);
	}
	soft_bell_put(s, bell);
	if (!peer)
		return;
	soft_bells_sweep(s, peer);
	soft_peer_put(s, peer);
}

/* NULL: no memory. */
static struct soft_dial *dial_of(struct soft *s, uint32_t qpn)
{
	struct list_node *n;
	struct soft_dial *d;

	for (n = s->dials.next; n != &s->dials; n = n->next) {
		d = container_of(n, struct soft_dial, link);
		if (d->qpn == qpn)
			return d;
	}
	d = env_alloc(s->env, sizeof(*d));
	if (!d)
		return NULL;
	d->src.fd = d->src_pid.fd = -1;
	d->qpn = qpn;
	d->pause_ns = RETRY_MIN_NS;
	d->due_ns = 0;
	list_init(&d->reaches);
	list_add_tail(&s->dials, &d->link);
	return d;
}

void soft_dial(struct soft *s, uint32_t qpn)
{
	struct soft_dial *d = dial_of(s, qpn);

	if (!d || d->looked_for)
		return; /* without memory its senders' timer asks again */
	d->looked_for = true;
	/* The caller holds a QP, and telling a QP the result takes its lock. So
	 * the timer, which is due at once, begins the connection. */
	soft_kick(s);
}

static void dial_later(struct soft_dial *d, uint64_t now)
{
	d->due_ns = now + d->pause_ns;
	if (d->pause_ns < RETRY_MAX_NS)
		d->pause_ns *= 2;
}

void soft_dial_event(struct soft *s, void *dial)
{
	int fds[MSG_FDS] = {-1, -1, -1}, nfds = 0, err, i;
	struct soft_bell *bell = NULL;
	struct soft_dial *d = dial;
	struct soft_peer *p = NULL;
	struct msg_buf b;
	uint64_t area = 0;
	struct stat st;

	err = msg_recv(d->src.fd, &b, fds, &nfds);
	if (err == -EAGAIN)
		return;
	/* The socket is the peer's from here on, or nobody's. */
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, d->src.fd, NULL);
	if (err >= 0)
		err = soft_peer_answer(&b.m, d->qpn, fds, nfds, &st);
	if (err == -ETOOMANYREFS && list_empty(&d->reaches)) {
		unwatch(s, &d->src);
		unwatch(s, &d->src_pid);
		dial_later(d, env_now_ns(s->env));
		soft_kick(s);
		return;
	}
	if (!err)
		err = soft_peer_use(s, &b.m, &d->src.fd, fds, nfds, &st, &p,
				    &area, &bell);
	for (i = 0; i < nfds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (err == -EMFILE)
		env_log_rare(s->env, &s->no_fd_said, ENV_LOG_ERROR,
			     "skein0: no descriptor left for a peer; raise "
			     "RLIMIT_NOFILE");
	dial_over(s, d, p ? 0 : err, p, area, bell);
}

void soft_dial_died(struct soft *s, void *dial)
{
	dial_over(s, dial, -ECONNREFUSED, NULL, 0, NULL);
}

static int under_way(const struct soft *s, uint64_t now)
{
	const struct soft_dial *d;
	struct list_node *n;
	int k = 0;

	for (n = s->dials.next; n != &s->dials; n = n->next) {
		d = container_of(n, struct soft_dial, link);
		k += d->src.fd >= 0 && now - d->begun_ns < TIME_NS;
	}
	return k;
}

/* It was asked. Its death is an event; a process that cannot be watched is waited
 * for as by soft_peer_connect(). True: no longer. */
static bool dial_waited(const struct soft_dial *d, uint64_t now, uint64_t *due)
{
	uint64_t waited_s = (now - d->begun_ns) / SECOND_NS;

	if (d->src_pid.fd >= 0)
		return false;
	if (!soft_peer_patient(0, (unsigned)waited_s))
		return true;
	if (now + SECOND_NS < *due)
		*due = now + SECOND_NS;
	return false;
}

/* -EAGAIN: at due_ns once more. */
static int dial_again(struct soft *s, struct soft_dial *d, uint64_t now,
		      int *room)
{
	int err;

	if (now < d->due_ns)
		return -EAGAIN;
	if (!*room) { /* an answer comes first, as a rule */
		d->due_ns = now + RETRY_MIN_NS;
		return -EAGAIN;
	}
	err = dial_start(s, d);
	if (!err) {
		d->begun_ns = now;
		--*room;
	}
	/* A QP that is being connected is told that no descriptor is left. */
	if ((err == -EMFILE || err == -ENFILE) && list_empty(&d->reaches))
		err = -EAGAIN;
	if (err == -EAGAIN)
		dial_later(d, now);
	return err;
}

uint64_t soft_dials_timer(struct soft *s, uint64_t now)
{
	struct list_node *n, *next;
	uint64_t due = ENV_NEVER;
	struct soft_dial *d;
	int err, room = AT_ONCE - under_way(s, now);

	for (n = s->dials.next; n != &s->dials; n = next) {
		next = n->next;
		d = container_of(n, struct soft_dial, link);
		err = d->src.fd >= 0 ? 0 : dial_again(s, d, now, &room);
		if (!err && dial_waited(d, now, &due))
			err = -ETIMEDOUT;
		if (err == -EAGAIN) {
			if (d->due_ns < due)
				due = d->due_ns;
		} else if (err) {
			dial_over(s, d, err, NULL, 0, NULL);
			/* dial_over() may have added dials: start from the
			 * beginning. */
			next = s->dials.next;
		}
	}
	return due;
}

/* --- a QP that is about to be connected ---------------------------------- */

/* The timer goes on with what cannot begin now. */
static void reach_begin(struct soft *s, struct soft_dial *d)
{
	uint64_t now = env_now_ns(s->env);
	int err, room = AT_ONCE - under_way(s, now);

	if (d->src.fd >= 0)
		return;
	err = dial_again(s, d, now, &room);
	if (err == -EAGAIN || (!err && d->src_pid.fd < 0))
		soft_kick(s); /* it reckons its next deadline anew */
	else if (err)
		dial_over(s, d, err, NULL, 0, NULL);
}

int soft_reach_qp(struct dev *dev, struct ibv_qp *qp,
		  const struct dev_qp_addr *to, struct dev_reach *user)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_qp *q = soft_qp_of(qp);
	struct soft_reach *r = &q->reach;
	struct soft_dial *d;
	int err = 0;

	if (!soft_here(s))
		return -EPERM;
	pthread_mutex_lock(&s->lock);
	soft_reach_drop(q);
	/* Elsewhere modify_qp() waits for nobody, or refuses. */
	if (!soft_gid_local(s, &to->gid) || soft_link_wants(s, q, &to->gid))
		goto out;
	r->qpn = to->qpn & 0xffffff;
	r->user = user;
	r->err = 0;
	if (soft_peer_known(s, r->qpn, &r->peer, &r->area, &r->bell)) {
		r->state = SOFT_REACH_ANSWERED;
		goto out;
	}
	err = -ENOMEM;
	d = dial_of(s, r->qpn);
	if (!d)
		goto out;
	r->state = SOFT_REACH_ASKED;
	r->dial = d;
	list_add_tail(&d->reaches, &r->link);
	reach_begin(s, d);
	err = -EINPROGRESS;
out:
	pthread_mutex_unlock(&s->lock);
	return err;
}

bool soft_reach_take(struct soft_qp *q, uint32_t qpn, int *err,
		     struct soft_peer **peer, uint64_t *area,
		     struct soft_bell **bell)
{
	struct soft_reach *r = &q->reach;
	const struct shm_qp *far;

	if (r->state != SOFT_REACH_ANSWERED || r->qpn != qpn) {
		soft_reach_drop(q);
		return false;
	}
	r->state = SOFT_REACH_NONE;
	*err = r->err;
	*peer = r->peer;
	*bell = r->bell;
	*area = r->area;
	/* The peer's QP may be gone since, and another one in its place. */
	if (r->area) {
		far = (const void *)(r->peer->base + r->area);
		*area = shm_once(far->qpn) == qpn ? r->area : 0;
	}
	r->peer = NULL;
	r->bell = NULL;
	return true;
}

void soft_reach_drop(struct soft_qp *q)
{
	struct soft_reach *r = &q->reach;
	struct soft_dial *d = r->dial;

	if (r->state == SOFT_REACH_ASKED) {
		list_del(&r->link);
		if (list_empty(&d->reaches) && !d->looked_for)
			dial_drop(q->s, d);
	} else if (r->state == SOFT_REACH_ANSWERED) {
		soft_bell_put(q->s, r->bell);
		if (r->peer)
			soft_peer_put(q->s, r->peer);
	}
	r->state = SOFT_REACH_NONE;
	r->dial = NULL;
	r->peer = NULL;
	r->bell = NULL;
}

void soft_dials_free(struct soft *s)
{
	while (!list_empty(&s->dials))
		dial_drop(s,
			  container_of(s->dials.next, struct soft_dial, link));
}
