/* SPDX-License-Identifier: MIT */
/*
 * peer.c - the devices that our QPs are connected to: how they are found,
 * their NIC files, their MRs that are mapped here, their end.
 *
 * A peer is found by the block of the QPN: the name of an abstract socket,
 * which the kernel frees when the process ends. It is kept while it lives.
 * The asking end of every exchange is here; answers to requests of the data
 * path come to the control thread.
 */
#include "base/fence.h"
#include "base/assert.h"
#include "dev/soft/peer/msg.h"
#include "dev/soft/peer/pid.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* How long a peer may take to answer: one that may be stopped, and one that is
 * there and has others to answer first. */
#define PATIENCE_S 5u
#define PATIENCE_BUSY_S 30u

static void map_free(struct soft *s, struct soft_map *m)
{
	if (m->base)
		munmap(m->base, m->base_len);
	env_free(s->env, m);
}

void soft_peer_unwatch(struct soft *s, struct soft_peer *p)
{
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, p->sock, NULL);
	if (p->pid_fd >= 0)
		epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, p->pid_fd, NULL);
}

static void bell_free(struct soft *s, struct soft_bell *b)
{
	list_del(&b->link);
	b->peer->n_bells--;
	close(b->fd);
	env_free(s->env, b);
}

void soft_bell_get(struct soft_bell *b)
{
	if (!b)
		return;
	if (b->peer->idle_bell == b)
		b->peer->idle_bell = NULL;
	b->refs++;
}

/* One that nobody needs is kept: the next QP does not have to ask for it. */
void soft_bell_put(struct soft *s, struct soft_bell *b)
{
	struct soft_bell *last;

	if (!b || --b->refs)
		return;
	last = b->peer->idle_bell;
	b->peer->idle_bell = b;
	if (last)
		bell_free(s, last);
}

/* The owner of a QP or a channel does not tell peers that it is gone, and a UD
 * QP keeps what it has met. So bells are looked at together, once there are
 * bells_due of them. */
void soft_bells_sweep(struct soft *s, struct soft_peer *p)
{
	struct soft_qp *q;
	uint32_t i;

	if (p->n_bells < p->bells_due)
		return;
	for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS; i++) {
		q = s->qps[i];
		if (!q || !q->ud || q->dying)
			continue;
		soft_qp_hold(q);
		soft_ud_tidy(q, p);
		soft_qp_release(q);
	}
	p->bells_due = 2 * p->n_bells > SOFT_BELLS_DUE ? 2 * p->n_bells
						       : SOFT_BELLS_DUE;
}

static void peer_free(struct soft *s, struct soft_peer *p)
{
	struct soft_map *m;
	unsigned i;

	list_del(&p->link);
	soft_peer_unwatch(s, p);
	for (i = 0; i < SOFT_MAPS; i++) {
		while ((m = p->maps[i])) {
			p->maps[i] = m->next;
			map_free(s, m);
		}
	}
	while (!list_empty(&p->bells))
		bell_free(s,
			  container_of(p->bells.next, struct soft_bell, link));
	if (p->base)
		munmap(p->base, SHM_SPAN);
	if (p->sock >= 0)
		close(p->sock);
	if (p->pid_fd >= 0)
		close(p->pid_fd);
	if (p->kick_fd >= 0)
		close(p->kick_fd);
	if (p->mem_fd >= 0)
		close(p->mem_fd);
	pthread_mutex_destroy(&p->lock);
	env_free(s->env, p);
}

void soft_peer_put(struct soft *s, struct soft_peer *p)
{
	p->refs--;
	/* A living peer is kept: the next QP to it finds it. */
	if (p->refs == 0 && atomic_load(&p->dead))
		peer_free(s, p);
}

void soft_peers_free(struct soft *s)
{
	while (!list_empty(&s->peers))
		peer_free(s,
			  container_of(s->peers.next, struct soft_peer, link));
}

/* A NIC file that a peer cannot shrink under us, of a layout that we know. */
static int nic_check(int fd, struct stat *st)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPERM;
	if (fstat(fd, st))
		return -errno;
	if ((uint64_t)st->st_size < SHM_ARENA_OFF)
		return -EPROTO;
	/* What is mapped of it is the bound of all offsets in it. */
	if ((uint64_t)st->st_size > SHM_SPAN)
		st->st_size = (off_t)SHM_SPAN;
	return 0;
}

int soft_peer_answer(const struct msg *r, uint32_t qpn, const int *fds,
		     int nfds, struct stat *st)
{
	if (r->op != (MSG_CONNECT | MSG_REPLY) || r->qpn != qpn)
		return -EPROTO;
	if (r->status == -ETOOMANYREFS)
		return r->status;
	return nfds < 2 ? -EPROTO : nic_check(fds[0], st);
}

static int peer_map_nic(struct soft_peer *p, int fd)
{
	p->base = mmap(NULL, SHM_SPAN, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p->base == MAP_FAILED) {
		p->base = NULL;
		return -errno;
	}
	if (madvise(p->base, SHM_SPAN, MADV_DONTFORK))
		return -errno;
	madvise(p->base, SHM_SPAN, MADV_DONTDUMP); /* else cores are larger */
	p->nic = (struct shm_nic *)(void *)p->base;
	if (p->nic->magic != SHM_MAGIC || p->nic->version != SHM_VERSION)
		return -EPROTO;
	return 0;
}

static int peer_watch(struct soft *s, struct soft_peer *p)
{
	int err;

	p->src_sock.kind = SOFT_SRC_PEER_SOCK;
	p->src_sock.fd = p->sock;
	p->src_sock.obj = p;
	err = soft_src_add(s, &p->src_sock, EPOLLIN | EPOLLRDHUP);
	if (err)
		return err;
	p->pid_fd = soft_pid_open(p->pid);
	if (p->pid_fd < 0)
		return 0; /* another pid namespace: the socket must do */
	p->src_pid.kind = SOFT_SRC_PEER_PID;
	p->src_pid.fd = p->pid_fd;
	p->src_pid.obj = p;
	return soft_src_add(s, &p->src_pid, EPOLLIN);
}

/* Takes over sock and fds[0..1] on success. s->lock held. */
static int peer_new(struct soft *s, int sock, const struct msg *r,
		    const int *fds, const struct stat *st,
		    struct soft_peer **out)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);
	struct soft_peer *p;
	int err;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	p = env_alloc(s->env, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->s = s;
	p->nic_id = r->a;
	p->nic_dev = st->st_dev;
	p->nic_ino = st->st_ino;
	p->claimant = r->pd;
	p->pid = cred.pid;
	p->sock = sock;
	p->kick_fd = fds[1];
	p->pid_fd = p->mem_fd = -1;
	pthread_mutex_init(&p->lock, NULL);
	list_init(&p->bells);
	p->bells_due = SOFT_BELLS_DUE;
	list_add_tail(&s->peers, &p->link);
	err = peer_map_nic(p, fds[0]);
	if (!err && p->nic->nic_id != p->nic_id)
		err = -EPROTO;
	if (!err)
		err = peer_watch(s, p);
	/* A pid may have been given away before pidfd_open(2). */
	if (!err && !soft_life(p->nic))
		err = -ECONNREFUSED;
	/* The control thread must never wait for a peer. */
	if (!err && fcntl(sock, F_SETFL, O_NONBLOCK))
		err = -errno;
	if (!err) {
		*out = p;
		return 0;
	}
	soft_peer_unwatch(s, p);
	p->sock = p->kick_fd = -1; /* the caller's still */
	peer_free(s, p);
	return err;
}

struct soft_bell *soft_bell_find(struct soft_peer *p, uint32_t id)
{
	struct soft_bell *b;
	struct list_node *n;

	for (n = p->bells.next; n != &p->bells; n = n->next) {
		b = container_of(n, struct soft_bell, link);
		if (b->id == id)
			return b;
	}
	return NULL;
}

/* NULL: no memory. */
static struct soft_bell *bell_of(struct soft *s, struct soft_peer *p,
				 uint32_t id, int *fd)
{
	struct soft_bell *b = soft_bell_find(p, id);

	if (b)
		return b;
	b = env_alloc(s->env, sizeof(*b));
	if (!b)
		return NULL;
	*b = (struct soft_bell){.peer = p, .id = id, .fd = *fd};
	*fd = -1;
	list_add_tail(&p->bells, &b->link);
	p->n_bells++;
	return b;
}

bool soft_peer_patient(pid_t pid, unsigned waited_s)
{
	return waited_s < PATIENCE_S ||
	       (waited_s < PATIENCE_BUSY_S && soft_pid_up(pid));
}

static int dial(uint32_t block, pid_t *pid)
{
	struct timeval tv = {.tv_sec = PATIENCE_BUSY_S};
	struct sockaddr_un un;
	struct ucred cred = {0};
	socklen_t clen = sizeof(cred);
	int fd, len, err = 0;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	len = soft_block_name(block, &un);
	/* With a full backlog a thousand connections are before ours. Without
	 * these limits the wait has no end. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)))
		err = -errno;
	tv.tv_sec = 1;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)))
		err = -errno;
	if (err)
		;
	else if (connect(fd, (struct sockaddr *)&un, (socklen_t)len) ||
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

/* By its file: a peer could claim another device's id. */
static struct soft_peer *peer_find(struct soft *s, const struct msg *r,
				   const struct stat *st)
{
	struct list_node *n;
	struct soft_peer *p;

	for (n = s->peers.next; n != &s->peers; n = n->next) {
		p = container_of(n, struct soft_peer, link);
		if (p->nic_ino == st->st_ino && p->nic_dev == st->st_dev &&
		    p->nic_id == r->a && !atomic_load(&p->dead))
			return p;
	}
	return NULL;
}

int soft_peer_use(struct soft *s, const struct msg *r, int *sock, int *fds,
		  int nfds, const struct stat *st, struct soft_peer **peer,
		  uint64_t *area, struct soft_bell **bell)
{
	struct soft_peer *p = peer_find(s, r, st);
	uint64_t size = (uint64_t)st->st_size;
	struct soft_bell *b = NULL;
	int err = 0;

	if (!p) {
		err = peer_new(s, *sock, r, fds, st, &p);
		if (err)
			return err;
		*sock = fds[1] = -1;
	}
	if (r->status == 0) {
		if (r->b < SHM_ARENA_OFF || r->b % SHM_PAGE ||
		    r->b > size - SHM_PAGE)
			return -EPROTO;
		if (r->bell && nfds == 3) {
			b = bell_of(s, p, r->bell, &fds[2]);
			if (!b)
				return -ENOMEM;
		}
	}
	skein_assert(p);
	if (r->len < SHM_BLOCK_MAX)
		p->blocks[r->len] = r->qpn / SHM_BLOCK_QPS;
	if (size > soft_peer_size(p))
		atomic_store_explicit(&p->size, size, memory_order_relaxed);
	p->refs++;
	soft_bell_get(b);
	*peer = p;
	*area = r->status == 0 ? r->b : 0;
	*bell = b;
	return 0;
}

/* A child of a dead process may hold the listening socket; it accepts
 * nobody. */
static int answer_wait(pid_t pid, int sock)
{
	unsigned waited_s = 0;
	int err;

	do
		err = soft_pid_answer(pid, sock, 1000);
	while (err == -ETIMEDOUT && soft_peer_patient(pid, ++waited_s));
	return err;
}

int soft_peer_connect(struct soft *s, struct soft_qp *q, uint32_t qpn,
		      struct soft_peer **peer, uint64_t *area,
		      struct soft_bell **bell)
{
	struct msg m = {.magic = MSG_MAGIC, .op = MSG_CONNECT, .qpn = qpn};
	struct msg_buf b;
	int fds[MSG_FDS] = {-1, -1, -1}, nfds = 0, sock, err, i;
	struct stat st = {0};
	pid_t pid = 0;
	bool known;

	pthread_mutex_lock(&s->lock);
	known = soft_peer_known(s, qpn, peer, area, bell);
	pthread_mutex_unlock(&s->lock);
	if (known)
		return 0;
	sock = dial(qpn / SHM_BLOCK_QPS, &pid);
	if (sock < 0)
		return sock;
	memset(&b.m, 0, sizeof(b.m));
	err = msg_send(sock, &m, 0, NULL, 0);
	if (!err)
		err = answer_wait(pid, sock);
	if (!err)
		err = msg_recv(sock, &b, fds, &nfds);
	if (err >= 0)
		err = soft_peer_answer(&b.m, qpn, fds, nfds, &st);
	if (!err) {
		pthread_mutex_lock(&s->lock);
		err = soft_peer_use(s, &b.m, &sock, fds, nfds, &st, peer, area,
				    bell);
		pthread_mutex_unlock(&s->lock);
	}
	if (err == -EAGAIN)
		err = -ETIMEDOUT;
	for (i = 0; i < nfds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (sock >= 0)
		close(sock);
	return err;
}

bool soft_peer_gone(struct soft_peer *p)
{
	struct pollfd f[2] = {{.fd = p->pid_fd, .events = POLLIN},
			      {.fd = p->sock, .events = POLLRDHUP}};

	if (atomic_load(&p->gone))
		return true;
	if (soft_life(p->nic) || poll(f, 2, 0) <= 0)
		return false;
	return f[0].revents || (f[1].revents & (POLLRDHUP | POLLHUP));
}

int soft_peer_mem_fd(struct soft_peer *p)
{
	char path[32];
	int cancel = env_cancel_off(NULL); /* open(2) */

	pthread_mutex_lock(&p->lock);
	if (p->mem_fd == -1) {
		snprintf(path, sizeof(path), "/proc/%d/mem", (int)p->pid);
		p->mem_fd = p->pid > 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
		/* Bound to that address space from here on, and it was the
		 * right one if its owner still lives. */
		if (p->mem_fd >= 0 && !soft_life(p->nic)) {
			close(p->mem_fd);
			p->mem_fd = -1;
		}
		if (p->mem_fd < 0)
			p->mem_fd = -2;
	}
	pthread_mutex_unlock(&p->lock);
	env_cancel_back(NULL, cancel);
	return p->mem_fd;
}

static struct soft_map *map_find(struct soft_peer *p, uint32_t key,
				 uint32_t life)
{
	struct soft_map *f = p->maps[(key >> 16) % SOFT_MAPS];

	while (f && f->life != life)
		f = f->next;
	return f;
}

int soft_peer_map(struct soft_peer *p, uint32_t qpn, _Atomic uint32_t *asked,
		  uint32_t key, uint32_t life, struct soft_map **map)
{
	struct msg m = {.magic = MSG_MAGIC,
			.op = MSG_MR_FD,
			.key = key,
			.qpn = qpn,
			.seq = life};
	struct soft_map *f;

	pthread_mutex_lock(&p->lock);
	f = map_find(p, key, life);
	/* A QP asks once, and again only after its timer. Every answer makes
	 * the QP try again: if it asked at each try, a peer with useless
	 * answers would keep both busy without end. */
	if (!f && atomic_load(asked) != life &&
	    !msg_send(p->sock, &m, 0, NULL, 0))
		atomic_store(asked, life);
	pthread_mutex_unlock(&p->lock);
	if (!f)
		return -EAGAIN;
	*map = f;
	return 0;
}

/* Maps [off, off + len) of a file that cannot shrink. demand: its owner has
 * pages made as they are used. */
static int file_map(int fd, struct soft_map *m, uint64_t off, uint64_t len,
		    bool demand)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	uint64_t align, lo;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPERM;
	if (fstat(fd, &st))
		return -errno;
	/* st_blksize is the size of a page: the huge ones' too */
	align = st.st_blksize > 0 ? (uint64_t)st.st_blksize : SHM_PAGE;
	if (off > (uint64_t)st.st_size || len > (uint64_t)st.st_size - off)
		return -ERANGE;
	lo = off & ~(align - 1);
	m->base_len = (off + len - lo + align - 1) & ~(align - 1);
	/* What is long is mapped as it is used: to map it all would keep s->lock
	 * for as long as a copy of it. */
	m->base = mmap(NULL, m->base_len, PROT_READ | PROT_WRITE,
		       demand || m->base_len > SOFT_POPULATE_MAX
			       ? MAP_SHARED
			       : MAP_SHARED | MAP_POPULATE,
		       fd, (off_t)lo);
	if (m->base == MAP_FAILED) {
		m->base = NULL;
		return -errno;
	}
	madvise(m->base, m->base_len, MADV_DONTFORK);
	m->ptr = (char *)m->base + (off - lo);
	return 0;
}

/* The answer to MSG_MR_FD. s->lock held. */
static void got_mr(struct soft *s, struct soft_peer *p, const struct msg *r,
		   const int *fds, int nfds)
{
	uint32_t idx = r->key >> 16;
	struct shm_mr *e =
		(struct shm_mr *)(void *)(p->base + SHM_MR_OFF) + idx;
	struct soft_map *m;
	uint64_t off, len;
	uint32_t life, key, access;
	int err;

	if (idx >= atomic_load_explicit(&p->nic->mr_top, memory_order_acquire))
		return;
	/* acquire: pairs with mr_publish() */
	life = atomic_load_explicit(&e->life, memory_order_acquire);
	off = shm_once(e->off);
	len = shm_once(e->len);
	key = shm_once(e->key);
	access = shm_once(e->access);
	/* acquire: the fields above are of this life if it is still there */
	fence_acquire();
	if (!life ||
	    atomic_load_explicit(&e->life, memory_order_relaxed) != life ||
	    key != r->key || map_find(p, key, life))
		return;
	/* Registered again meanwhile: it is asked for again. */
	if (life != r->a && life != r->seq)
		return;
	/* A region that is there has a file, where it says so. */
	if (r->status != -ENOENT && (r->status || nfds != 1))
		return;
	m = env_alloc(s->env, sizeof(*m));
	if (!m)
		return;
	m->key = key;
	m->life = life;
	m->len = len;
	err = life != r->a ? -EPROTO : r->status;
	if (!err)
		err = file_map(fds[0], m, off, len,
			       access & IBV_ACCESS_ON_DEMAND);
	if (err) {
		env_log(s->env, ENV_LOG_ERROR,
			"skein0: cannot map a peer's memory region 0x%x: %s",
			key, strerror(-err));
		m->refused = true;
	}
	pthread_mutex_lock(&p->lock);
	m->next = p->maps[idx % SOFT_MAPS];
	p->maps[idx % SOFT_MAPS] = m;
	pthread_mutex_unlock(&p->lock);
}

static struct soft_qp *qp_by_num(struct soft *s, uint32_t qpn)
{
	uint32_t i;

	for (i = 0; i < s->n_blocks; i++)
		if (s->blocks[i] == qpn / SHM_BLOCK_QPS)
			return s->qps[i * SHM_BLOCK_QPS + qpn % SHM_BLOCK_QPS];
	return NULL;
}

/* No descriptor was left for a file of p, and which file it was is lost with
 * the message. So all requests that wait for a file of p fail. */
static void fail_waiters(struct soft *s, struct soft_peer *p)
{
	struct soft_qp *q;
	uint32_t i;

	env_log(s->env, ENV_LOG_ERROR,
		"skein0: no descriptor left to map memory of process %d; raise "
		"RLIMIT_NOFILE",
		(int)p->pid);
	for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS; i++) {
		q = s->qps[i];
		if (!q || q->dying || (!q->ud && !q->dc && q->peer != p))
			continue;
		soft_qp_hold(q);
		if (q->ud)
			soft_ud_unreached(q, p);
		if (q->harsh)
			soft_harsh_no_file(q, IBV_WC_LOC_QP_OP_ERR);
		else if (q->parked && q->parked->park == SOFT_PARK_XLAT)
			soft_park_expire_as(q, IBV_WC_LOC_QP_OP_ERR);
		soft_qp_release(q);
	}
}

/* Maps a region if its file is the next message. Peeking keeps the message
 * until there was a descriptor for it. */
static int take_mr(struct soft *s, struct soft_peer *p)
{
	int err, fds[MSG_FDS], nfds = 0;
	struct soft_qp *q;
	struct msg m;

	do
		err = msg_peek(p->sock, &m, fds, &nfds);
	while (err == -EMFILE && soft_spare_give(s));
	if (!err && m.op == (MSG_MR_FD | MSG_REPLY)) {
		q = qp_by_num(s, m.qpn);
		if (q && (q->ud || q->dc || q->peer == p))
			got_mr(s, p, &m, fds, nfds);
	}
	while (nfds)
		close(fds[--nfds]);
	soft_spares_fill(s);
	return err;
}

void soft_peer_event(struct soft *s, struct soft_peer *p)
{
	struct msg_buf b;
	struct soft_qp *q;
	int err, len;

	err = take_mr(s, p);
	len = msg_recv(p->sock, &b, NULL, NULL);
	if (len == -EAGAIN)
		return;
	if (err == -EMFILE) {
		fail_waiters(s, p);
		return;
	}
	if (len < 0) {
		/* The end of the stream: it closed, exec'ed or died; all of
		 * its threads have left the old image's user space. */
		atomic_store(&p->gone, true);
		soft_peer_died(s, p);
		return;
	}
	q = qp_by_num(s, b.m.qpn);
	if (q && (q->ud || q->dc || q->peer == p)) {
		if (b.m.op != (MSG_MR_FD | MSG_REPLY))
			soft_far_answer(q, &b.m, b.data, (size_t)len);
		soft_qp_service(s, q);
	}
}

/* Drops the mapping of one MR that its owner has deregistered. */
static void sweep_map(struct soft *s, struct soft_peer *p, struct soft_map *m)
{
	struct soft_qp *q;
	uint32_t i, j;

	for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS; i++) {
		q = s->qps[i];
		if (!q || (!q->ud && !q->dc && q->peer != p))
			continue;
		soft_qp_hold(q);
		if (q->ud)
			soft_ud_forget(q, p, m->key);
		for (j = 0; j < SOFT_XLATS; j++)
			if (q->xlat[j].key == m->key)
				q->xlat[j].live = NULL;
		soft_qp_release(q);
	}
	map_free(s, m);
}

static bool map_stale(struct soft_peer *p, const struct soft_map *m)
{
	struct shm_mr *e = (struct shm_mr *)(void *)(p->base + SHM_MR_OFF) +
			   (m->key >> 16);

	return atomic_load_explicit(&e->life, memory_order_acquire) != m->life;
}

void soft_peer_sweep(struct soft *s)
{
	struct soft_map **at, *m;
	struct soft_peer *p;
	struct list_node *n;
	unsigned i;

	for (n = s->peers.next; n != &s->peers; n = n->next) {
		p = container_of(n, struct soft_peer, link);
		for (i = 0; i < SOFT_MAPS; i++) {
			at = &p->maps[i];
			while ((m = *at)) {
				if (!map_stale(p, m)) {
					at = &m->next;
					continue;
				}
				/* out of the table before the QPs are told,
				 * so that none finds it again */
				pthread_mutex_lock(&p->lock);
				*at = m->next;
				pthread_mutex_unlock(&p->lock);
				sweep_map(s, p, m);
			}
		}
	}
}
