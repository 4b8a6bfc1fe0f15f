/* SPDX-License-Identifier: MIT */
/*
 * serve.c - what a device answers to its peers, in its control thread:
 * descriptors, the place of a QP, and work on memory that cannot be mapped.
 *
 * A connection with an answer that does not fit into its socket is not read
 * until it fits: nothing is dropped, and one slow peer costs one buffer. A peer
 * of another uid is refused; nonsense closes the connection.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/peer/msg.h"
#include "dev/soft/peer/pid.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct soft_conn {
	struct list_node link;
	struct soft_src src;
	struct soft_src src_pid; /* fd -1: not watched */
	pid_t pid;
	bool pending; /* out, out_len and fds wait for room */
	int fds[MSG_FDS], nfds;
	int own_fd;	   /* a duplicate among fds, or -1 */
	uint32_t claimant; /* its id, should it claim receives of ours */
	size_t out_len;
	struct msg_buf out;
};

static void pid_unwatch(struct soft *s, struct soft_conn *c)
{
	if (c->src_pid.fd < 0)
		return;
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->src_pid.fd, NULL);
	close(c->src_pid.fd);
	c->src_pid.fd = -1;
}

/* The end of the process, which need not be the end of the socket. Only while
 * there are enough descriptors. Without the watch, if a child holds the dead
 * process's sockets, its claims are swept when a thread here waits for them, or
 * when the child ends. */
static void pid_watch(struct soft *s, struct soft_conn *c)
{
	struct rlimit l;
	int fd;

	if (getrlimit(RLIMIT_NOFILE, &l) || (rlim_t)c->src.fd >= l.rlim_cur / 4)
		return;
	fd = soft_pid_open(c->pid);
	if (fd < 0)
		return;
	c->src_pid.kind = SOFT_SRC_CONN_PID;
	c->src_pid.fd = fd;
	c->src_pid.obj = c;
	if (soft_src_add(s, &c->src_pid, EPOLLIN))
		pid_unwatch(s, c);
}

/* A descriptor for something more urgent. */
static bool pid_give(struct soft *s)
{
	struct soft_conn *c;
	struct list_node *n;

	for (n = s->conns.next; n != &s->conns; n = n->next) {
		c = container_of(n, struct soft_conn, link);
		if (c->src_pid.fd < 0)
			continue;
		pid_unwatch(s, c);
		return true;
	}
	return false;
}

/* Without descriptors the caller would stay in the backlog, and epoll would
 * spin on it. A spare one takes it out and closes it: the caller sees an error
 * at once. */
static int turn_away(struct soft *s, int listen_fd)
{
	int fd;

	soft_spare_give(s);
	fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	soft_spares_fill(s);
	env_log_rare(
		s->env, &s->no_fd_said, ENV_LOG_ERROR,
		"skein0: no descriptor left for a peer; raise RLIMIT_NOFILE");
	return -EMFILE;
}

static void own_fd_drop(struct soft_conn *c)
{
	if (c->own_fd >= 0)
		close(c->own_fd);
	c->own_fd = -1;
}

/* While an answer waits, its region may be deregistered and the number of its
 * descriptor may become another file's. */
static void own_fd_make(struct soft_conn *c)
{
	if (c->out.m.op != (MSG_MR_FD | MSG_REPLY) || !c->nfds)
		return;
	c->own_fd = fcntl(c->fds[0], F_DUPFD_CLOEXEC, 0);
	c->fds[0] = c->own_fd;
	if (c->own_fd >= 0)
		return;
	c->nfds = 0;
	c->out.m.status = -EMFILE; /* it asks again by its timer */
}

/* Never the owner's, nor that of a connection that still is: after 262,142 of
 * them they begin again. */
static uint32_t claimant_new(struct soft *s)
{
	const uint32_t ids = SOFT_LINK_ID - SOFT_UD_ID;
	struct list_node *n;
	uint32_t id;

again:
	id = SOFT_UD_ID + s->claimants++ % ids;
	if (s->claimants <= ids)
		return id;
	for (n = s->conns.next; n != &s->conns; n = n->next)
		if (container_of(n, struct soft_conn, link)->claimant == id)
			goto again;
	return id;
}

int soft_conn_accept(struct soft *s, int listen_fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct soft_conn *c;
	int fd, err;

	do
		fd = accept4(listen_fd, NULL, NULL,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (fd < 0 && errno == EMFILE && pid_give(s));
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return turn_away(s, listen_fd);
	if (fd < 0)
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    cred.uid != geteuid()) {
		close(fd);
		return 0;
	}
	c = env_alloc(s->env, sizeof(*c));
	if (!c) {
		close(fd);
		return 0;
	}
	c->own_fd = c->src_pid.fd = -1;
	c->pid = cred.pid;
	c->claimant = claimant_new(s);
	c->src.kind = SOFT_SRC_CONN;
	c->src.fd = fd;
	c->src.obj = c;
	err = soft_src_add(s, &c->src, EPOLLIN);
	if (err) {
		close(fd);
		env_free(s->env, c);
		return 0;
	}
	list_add_tail(&s->conns, &c->link);
	pid_watch(s, c);
	return 0;
}

static void conn_free(struct soft *s, struct soft_conn *c)
{
	list_del(&c->link);
	/* The end of the stream, or of the process: it closed, exec'ed or
	 * died, and none of its threads is in the old image's user space. */
	if (s->n_uds)
		soft_ud_swept(s, c->claimant);
	soft_dc_swept(s, c->claimant);
	own_fd_drop(c);
	/* Closing is not enough: a forked child may hold the socket too, and
	 * its events would still come. */
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->src.fd, NULL);
	close(c->src.fd);
	pid_unwatch(s, c);
	env_free(s->env, c);
}

void soft_conn_died(struct soft *s, struct soft_conn *c)
{
	conn_free(s, c);
}

void soft_conns_free(struct soft *s)
{
	while (!list_empty(&s->conns))
		conn_free(s,
			  container_of(s->conns.next, struct soft_conn, link));
}

void soft_conns_look(struct soft *s)
{
	struct soft_conn *c;
	struct list_node *n;
	char byte;

	for (n = s->conns.next; n != &s->conns; n = n->next) {
		c = container_of(n, struct soft_conn, link);
		if (recv(c->src.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 ||
		    soft_pid_gone(c->pid)) {
			soft_ud_swept(s, c->claimant);
			soft_dc_swept(s, c->claimant);
		}
	}
}

static struct soft_qp *qp_find(struct soft *s, uint32_t qpn)
{
	struct soft_qp *qp = NULL;
	uint32_t i;

	for (i = 0; i < s->n_blocks; i++)
		if (s->blocks[i] == qpn / SHM_BLOCK_QPS)
			qp = s->qps[i * SHM_BLOCK_QPS + qpn % SHM_BLOCK_QPS];
	return qp && !qp->dying ? qp : NULL;
}

static void serve_connect(struct soft *s, const struct msg *q,
			  struct soft_conn *c)
{
	struct msg *r = &c->out.m;
	struct soft_qp *qp = qp_find(s, q->qpn);

	while (r->len < s->n_blocks &&
	       s->blocks[r->len] != q->qpn / SHM_BLOCK_QPS)
		r->len++;
	r->a = s->nic->nic_id;
	r->pd = c->claimant;
	c->fds[c->nfds++] = s->nic_fd;
	c->fds[c->nfds++] = s->kick_fd;
	r->status = -ENOENT;
	if (!qp)
		return;
	r->status = 0;
	r->b = qp->area_off;
	if (qp->init.recv_cq->channel) {
		r->bell = container_of(qp->init.recv_cq->channel,
				       struct soft_chan, ch)
				  ->id;
		c->fds[c->nfds++] = qp->init.recv_cq->channel->fd;
	}
}

static struct soft_mr *mr_find(struct soft *s, uint32_t key)
{
	struct soft_mr *m = s->mrs[key >> 16];

	return m && !m->window && m->mr.rkey == key ? m : NULL;
}

static void serve_mr_fd(struct soft *s, const struct msg *q,
			struct soft_conn *c)
{
	struct soft_mr *m = mr_find(s, q->key);

	if (m)
		c->out.m.a = m->life;
	if (!m || m->fd < 0) {
		c->out.m.status = -ENOENT;
		return;
	}
	c->fds[c->nfds++] = m->fd;
}

/* The same where process_vm_readv(2) is refused: through a pipe, which takes
 * MSG_DATA bytes at once and says EFAULT as well. */
static int self_touch_pipe(void *to, const void *from, size_t n)
{
	int fds[2], err = 0;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	if (write(fds[1], from, n) != (ssize_t)n ||
	    read(fds[0], to, n) != (ssize_t)n)
		err = -EFAULT;
	close(fds[0]);
	close(fds[1]);
	return err;
}

/* Reads n bytes of our own memory to out, or writes data there. */
static int self_touch(uint64_t addr, size_t n, const void *data, void *out)
{
	struct iovec there = {soft_ptr(addr), n};
	struct iovec here = {data ? soft_ptr((uintptr_t)data) : out, n};
	ssize_t r;

	r = data ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
		 : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
	if (r < 0 && errno != EFAULT)
		return data ? self_touch_pipe(there.iov_base, data, n)
			    : self_touch_pipe(out, there.iov_base, n);
	return r == (ssize_t)n ? 0 : -EFAULT;
}

/* The gate for work that comes by message: true while the QP that the work is
 * for still takes requests, in the life that the asker met. soft.lock is held;
 * a move to ERR or RESET takes it before it returns. */
static bool gate_open(struct soft *s, const struct msg *q)
{
	struct soft_qp *qp;
	enum ibv_qp_state st;

	if (!q->dest)
		return true;
	qp = qp_find(s, q->dest);
	if (!qp || qp->conn != q->conn)
		return false;
	st = soft_qp_state(qp);
	return st == IBV_QPS_RTR || st == IBV_QPS_RTS || st == IBV_QPS_SQD;
}

/* The work itself, on memory that the key is open for. */
static void touch(struct soft *s, const struct msg *q,
		  const unsigned char *data, size_t len, struct soft_conn *c)
{
	struct soft_dest to = {q->pd, q->dest};
	struct msg *r = &c->out.m;
	uint64_t n = q->op == MSG_WRITE ? len : q->len;
	_Atomic uint64_t *word;
	uint64_t at;

	r->status = -EACCES;
	if (n > MSG_DATA ||
	    !soft_key_open(s, &to, q->key, q->addr, n, q->access, &at))
		return;
	word = soft_ptr(at);
	/* What is registered may have been unmapped since: an error, no
	 * signal. */
	r->status = self_touch(at, n, q->op == MSG_WRITE ? data : NULL,
			       c->out.data);
	if (r->status)
		return;
	switch (q->op) {
	case MSG_WRITE:
		break;
	case MSG_READ:
		c->out_len = n;
		break;
	case MSG_CMP_SWP:
		r->a = q->a;
		atomic_compare_exchange_strong(word, &r->a, q->b);
		break;
	default:
		r->a = atomic_fetch_add(word, q->a);
		break;
	}
}

static void serve_memory(struct soft *s, const struct msg *q,
			 const unsigned char *data, size_t len,
			 struct soft_conn *c)
{
	const struct soft_mr *m = s->mrs[q->key >> 16];
	struct soft_qp *qp = q->dest ? qp_find(s, q->dest) : NULL;

	c->out.m.status = -ENOTCONN;
	if (!gate_open(s, q))
		return;
	/* LOCAL_INV on this QP does not wait for what we do for its peer: it
	 * comes before or after it (mw.c). */
	if (m && m->window && qp)
		soft_qp_hold(qp);
	touch(s, q, data, len, c);
	if (m && m->window && qp)
		soft_qp_release(qp);
}

static bool serve(struct soft *s, struct soft_conn *c, const struct msg_buf *b,
		  size_t len)
{
	const struct msg *q = &b->m;

	memset(&c->out.m, 0, sizeof(c->out.m));
	c->out.m.magic = MSG_MAGIC;
	c->out.m.op = q->op | MSG_REPLY;
	c->out.m.qpn = q->qpn;
	c->out.m.seq = q->seq;
	c->out.m.key = q->key;
	c->out_len = 0;
	c->nfds = 0;
	switch (q->op) {
	case MSG_CONNECT:
		serve_connect(s, q, c);
		return true;
	case MSG_MR_FD:
		serve_mr_fd(s, q, c);
		return true;
	case MSG_CMP_SWP:
	case MSG_FETCH_ADD:
		if (q->len != 8 || (q->addr & 7))
			return false;
		/* fall through */
	case MSG_WRITE:
	case MSG_READ:
		serve_memory(s, q, b->data, len, c);
		return true;
	default:
		return false;
	}
}

/* The kernel sends no descriptors while more than RLIMIT_NOFILE of this user,
 * which has no special rights, are on their way anywhere. The peer is told, and
 * asks again. */
static int send_without(struct soft *s, struct soft_conn *c)
{
	env_log_rare(s->env, &s->under_way_said, ENV_LOG_ERROR,
		     "skein0: too many descriptors of this user are on their "
		     "way between processes; raise RLIMIT_NOFILE");
	c->nfds = 0;
	c->out.m.status = -ETOOMANYREFS;
	return msg_send(c->src.fd, &c->out.m, c->out_len, NULL, 0);
}

/* Sends what waits. False: the connection is over. */
static bool conn_flush(struct soft *s, struct soft_conn *c)
{
	struct epoll_event ev = {.data.ptr = &c->src};
	int err;

	err = msg_send(c->src.fd, &c->out.m, c->out_len, c->fds, c->nfds);
	if (err == -ETOOMANYREFS)
		err = send_without(s, c);
	if (err && err != -EAGAIN)
		return false;
	if (!err)
		own_fd_drop(c);
	else if (!c->pending)
		own_fd_make(c);
	if (c->pending != (err == -EAGAIN)) {
		c->pending = err == -EAGAIN;
		ev.events = c->pending ? EPOLLOUT : EPOLLIN;
		if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->src.fd, &ev))
			return false;
	}
	return true;
}

void soft_conn_event(struct soft *s, struct soft_conn *c, uint32_t events)
{
	struct msg_buf b;
	int fds[MSG_FDS], nfds, len;

	if (c->pending) {
		if (!conn_flush(s, c))
			conn_free(s, c);
		return;
	}
	len = msg_recv(c->src.fd, &b, fds, &nfds);
	if (len == -EAGAIN)
		return;
	while (len >= 0 && nfds)
		close(fds[--nfds]); /* nobody sends us any */
	if (len < 0 || !serve(s, c, &b, (size_t)len) || !conn_flush(s, c))
		conn_free(s, c);
}
