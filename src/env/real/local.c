/* SPDX-License-Identifier: MIT */
/*
 * local.c - Unix sockets with descriptors, and life pages (local.h).
 *
 * A life page is a memfd that is sealed against future writable mappings, so a
 * reader cannot fake a life, nor lead the kernel, which walks the owner's robust
 * list at its end, to other memory: the list itself lies in private memory.
 */
#include "env/local.h"
#include "env/mem_file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>

#define BACKLOG 128

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int addr_make(const char *path, struct sockaddr_un *a)
{
	size_t len = strlen(path);

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	if (!len || len >= sizeof(a->sun_path))
		return -ENAMETOOLONG;
	memcpy(a->sun_path, path, len);
	return 0;
}

static int sock_new(int *fd)
{
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	return *fd < 0 ? -errno : 0;
}

int local_connect(const char *path, int *fd)
{
	struct sockaddr_un a;
	int err, s;

	err = addr_make(path, &a);
	if (!err)
		err = sock_new(&s);
	if (err)
		return err;
	/* A full backlog is -EAGAIN. */
	if (connect(s, (struct sockaddr *)&a, sizeof(a))) {
		err = -errno;
		close(s);
		return err;
	}
	*fd = s;
	return 0;
}

/* Removes a socket's file at which no process listens. */
static bool stale_goes(const char *path)
{
	struct stat st;
	int fd = -1, err;

	if (lstat(path, &st) || !S_ISSOCK(st.st_mode))
		return false;
	err = local_connect(path, &fd);
	if (!err)
		close(fd);
	return err == -ECONNREFUSED && !unlink(path);
}

int local_listen(const char *path, int *fd)
{
	struct sockaddr_un a;
	int err, s;

	err = addr_make(path, &a);
	if (!err)
		err = sock_new(&s);
	if (err)
		return err;
	/* The mode that bind() gives the file, whatever the umask allows. */
	err = fchmod(s, 0600) ? -errno : 0;
	if (!err && bind(s, (struct sockaddr *)&a, sizeof(a))) {
		err = -errno;
		if (err == -EADDRINUSE && stale_goes(path))
			err = bind(s, (struct sockaddr *)&a, sizeof(a)) ? -errno
									: 0;
	}
	if (!err && listen(s, BACKLOG))
		err = -errno;
	if (err)
		close(s);
	else
		*fd = s;
	return err;
}

int local_accept(int fd, int *conn_fd)
{
	int s = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (s < 0)
		return -errno;
	*conn_fd = s;
	return 0;
}

int local_peer(int fd, uint32_t *uid, uint32_t *pid)
{
	socklen_t len = sizeof(struct ucred);
	struct ucred c;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len))
		return -errno;
	*uid = c.uid;
	*pid = (uint32_t)c.pid;
	return 0;
}

static int space_of(uint32_t pid, const char *name, uint64_t *number)
{
	struct stat st;
	char at[64];

	snprintf(at, sizeof(at), "/proc/%u/ns/%s", pid, name);
	if (stat(at, &st))
		return errno == ENOENT ? -ESRCH : -errno;
	*number = st.st_ino;
	return 0;
}

/* Does the process still run that made the other end? A pidfd shows the end of
 * a process as something to read. */
static int peer_lives(int fd)
{
	struct pollfd p = {.events = POLLIN};
	socklen_t len = sizeof(int);
	int err;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &p.fd, &len))
		return errno == ENOPROTOOPT ? 0 : -ESRCH; /* before Linux 6.5 */
	err = poll(&p, 1, 0) ? -ESRCH : 0;
	close(p.fd);
	return err;
}

int local_spaces(int fd, uint32_t pid, uint64_t *mount, uint64_t *net)
{
	int err = space_of(pid, "mnt", mount);

	if (!err)
		err = space_of(pid, "net", net);
	return err ? err : peer_lives(fd);
}

int local_send(int fd, const void *buf, size_t len, const int *fds, int n)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(LOCAL_FDS * sizeof(int))];
	} c = {0};
	struct iovec v = {(void *)(uintptr_t)buf, len};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

	if (n) {
		m.msg_control = &c;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		c.head.cmsg_level = SOL_SOCKET;
		c.head.cmsg_type = SCM_RIGHTS;
		c.head.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(&c.head), fds, (size_t)n * sizeof(int));
	}
	if (sendmsg(fd, &m, MSG_NOSIGNAL) >= 0)
		return 0;
	/* ECONNRESET, once: the peer has closed, and left messages unread or
	 * this connection unaccepted. */
	return errno == ECONNRESET ? -EPIPE : -errno;
}

static void fds_take(struct msghdr *m, int *fds, int *n)
{
	struct cmsghdr *c;
	size_t i, k;
	int one;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < k; i++) {
			memcpy(&one, CMSG_DATA(c) + i * sizeof(int),
			       sizeof(one));
			if (*n < LOCAL_FDS)
				fds[(*n)++] = one;
			else
				close(one);
		}
	}
}

ssize_t local_recv(int fd, void *buf, size_t len, int *fds, int *n)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(LOCAL_FDS * sizeof(int))];
	} c = {0};
	struct iovec v = {buf, len};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = &c,
			   .msg_controllen = sizeof(c)};
	ssize_t got;

	*n = 0;
	do
		got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	fds_take(&m, fds, n);
	if (!(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return got;
	while (*n)
		close(fds[--*n]);
	return -EMSGSIZE;
}

int local_wait(int fd, uint64_t timeout_ns)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t ms = timeout_ns / 1000000 + 1;

	return poll(&p, 1, ms < 60000 ? (int)ms : 60000) > 0;
}

int local_timer_new(int *fd)
{
	*fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	return *fd < 0 ? -errno : 0;
}

void local_timer_set(int fd, uint64_t due_ns)
{
	struct itimerspec t = {.it_value = {(time_t)(due_ns / 1000000000u),
					    (long)(due_ns % 1000000000u)}};

	timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL);
}

void local_park(_Atomic(uint32_t) *word, uint32_t was, uint64_t timeout_ns)
{
	struct timespec t = {(time_t)(timeout_ns / 1000000000u),
			     (long)(timeout_ns % 1000000000u)};

	if (t.tv_sec > 60)
		t.tv_sec = 60;
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, was, &t, NULL, 0);
}

void local_unpark(_Atomic(uint32_t) *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool is_sealed(int fd, size_t len)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &st) &&
	       (uint64_t)st.st_size >= len;
}

int local_fill(int fd, size_t len)
{
	if (!is_sealed(fd, len))
		return -EPERM;
	return mem_file_alloc(fd, 0, len) ? -ENOMEM : 0;
}

int local_map(int fd, size_t len, bool write, void **addr)
{
	void *p;

	if (!is_sealed(fd, len))
		return -EPERM;
	p = mmap(NULL, len, write ? PROT_READ | PROT_WRITE : PROT_READ,
		 MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, len, MADV_DONTFORK)) {
		munmap(p, len);
		return -ENOMEM;
	}
	*addr = p;
	return 0;
}

void local_unmap(void *addr, size_t len)
{
	munmap(addr, len);
}

/* --- life --------------------------------------------------------------- */

struct local_life_owner {
	struct skein_env *env;
	struct local_life *page;
	int fd;
	struct robust_list_head head, *was;
	size_t was_len;
	struct robust_list node;
};

static int page_make(struct local_life_owner *o)
{
	const int seals =
		F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	void *p;
	int rc;

	o->fd = memfd_create("skein-life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (o->fd < 0)
		return -errno;
	rc = mem_file_alloc(o->fd, 0, LOCAL_LIFE_LEN);
	if (rc)
		return rc;
	p = mmap(NULL, LOCAL_LIFE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED,
		 o->fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	o->page = p;
	if (madvise(p, LOCAL_LIFE_LEN, MADV_DONTFORK) ||
	    fcntl(o->fd, F_ADD_SEALS, seals))
		return -errno;
	return 0;
}

/* The kernel adds the offset to each node of the list: one word, one list. */
static int life_begin(struct local_life_owner *o)
{
	if (syscall(SYS_get_robust_list, 0, &o->was, &o->was_len))
		return -errno;
	o->head.list.next = &o->node;
	o->node.next = &o->head.list;
	o->head.futex_offset =
		(long)((uintptr_t)&o->page->life - (uintptr_t)&o->node);
	atomic_store(&o->page->life, (uint32_t)syscall(SYS_gettid));
	return syscall(SYS_set_robust_list, &o->head, sizeof(o->head)) ? -errno
								       : 0;
}

int local_life_new(struct skein_env *env, struct local_life_owner **out)
{
	struct local_life_owner *o = env_alloc(env, sizeof(*o));
	int err;

	if (!o)
		return -ENOMEM;
	o->env = env;
	o->fd = -1;
	err = page_make(o);
	if (!err)
		err = life_begin(o);
	if (err)
		local_life_free(o);
	else
		*out = o;
	return err;
}

void local_life_free(struct local_life_owner *o)
{
	if (o->page) {
		atomic_store(&o->page->life, 0);
		if (o->head.list.next)
			syscall(SYS_set_robust_list, o->was, o->was_len);
		munmap(o->page, LOCAL_LIFE_LEN);
	}
	if (o->fd >= 0)
		close(o->fd);
	env_free(o->env, o);
}

struct local_life *local_life_page(struct local_life_owner *o)
{
	return o->page;
}

int local_life_fd(const struct local_life_owner *o)
{
	return o->fd;
}
