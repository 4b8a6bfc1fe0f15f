/* SPDX-License-Identifier: MIT */
/*
 * run_lives.c - random lives of connections, for test_run_lives.py: it runs on
 * plain TCP and under `skein run`, and must say the same.
 *
 *	run_lives SEED		starts both ends, which say what they see
 *
 * The seed says what happens in each turn: which end does what to which of a few
 * connections. The ends step together, by a socket of their own (tell(), hear()),
 * so that TCP's rules leave one outcome only; what they leave open is not said:
 * how many bytes go in one call, and how many a buffer takes. All data goes at
 * once (TCP_NODELAY), so what was written before a reset has come before it.
 * After each turn every connection carries bytes both ways, and a connection that
 * is over begins anew. Which of the calls wait, and how, is drawn by each end.
 *
 * With RUN_LIVES_ON an end speaks before most turns until TCP counts no bytes of
 * the connection any more: it is on a stream.
 */
#include "run_ends.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURNS 12

extern char **environ;

static int listener = -1;
static uint64_t script;
static struct sockaddr_in where = {.sin_family = AF_INET};

/* The same at both ends. */
static uint32_t draw(uint32_t n)
{
	return next(&script, n);
}

/* --- a connection begins, and ends ----------------------------------------- */

static bool used(int number)
{
	int i;

	for (i = 0; i < CONNS; i++)
		if (all[i].fd == number)
			return true;
	return number <= 2 || number == ctl || number == listener ||
	       number == set;
}

/* The descriptor, at the lowest number that this program does not use, where the
 * kernel puts it on plain TCP. The library's new one may be there: it is moved up at
 * once (docs/run.md). */
static int lowest(int fd)
{
	const int copy =
		fcntl(fd, F_GETFD) & FD_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD;
	int want = 0, n = -1, tries;

	while (used(want))
		want++;
	if (fd == want)
		return fd;
	for (tries = 0; n != want; tries++) {
		must(n < 0 || (!close(n) && tries < WAIT_MS), "a lower number");
		if (tries)
			usleep(1000);
		n = fcntl(fd, copy, want);
		must(n >= 0, "F_DUPFD");
	}
	must(!close(fd), "close");
	return n;
}

static int new_set(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	must(fd >= 0, "epoll_create1");
	return lowest(fd);
}

static void begin(struct conn *c)
{
	int on = 1, fd;

	if (server) {
		fd = accept(listener, NULL, NULL);
		must(fd >= 0, "accept");
	} else {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		must(!connect(fd, (void *)&where, sizeof(where)), "connect");
	}
	must(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)),
	     "TCP_NODELAY");
	c->in_set = false;
	c->fd = -1;
	c->fd = lowest(fd);
	say("connection %d is number %d", (int)(c - all), c->fd);
}

static void end(struct conn *c)
{
	leave_set(c);
	must(!close(c->fd), "close");
	c->fd = -1;
}

/* The other end closed in order. */
static void see_end(struct conn *c)
{
	char b;
	ssize_t n = recv(c->fd, &b, 1, 0);

	say("the end: %zd, %s", n, n < 0 ? strerror(errno) : "");
	end(c);
}

/* The calls that find a reset; what each of them says. */
static void see_reset(struct conn *c, size_t size)
{
	static const char *const orders[] = {"drs", "sdr",  "pdrrss", "edrs",
					     "wdr", "fdrp", "ssd",    "dsrr"};
	const char *order = orders[t.kind % 8];
	struct pollfd p = {c->fd, 0, 0};
	uint8_t buf[8000];
	socklen_t len = sizeof(int);
	size_t got = 0;
	ssize_t n = 0;
	int x = 0;

	must(poll(&p, 1, WAIT_MS) == 1, "the reset");
	for (; *order; order++) {
		errno = 0;
		switch (*order) {
		case 'd':
			while ((n = recv(c->fd, buf, sizeof(buf), 0)) > 0) {
				compare(buf, got, (size_t)n);
				got += (size_t)n;
			}
			say("%zu of %zu bytes before the reset", got, size);
			break;
		case 'r':
			n = recv(c->fd, buf, 1, 0);
			break;
		case 's':
			n = send(c->fd, buf, 1, MSG_NOSIGNAL);
			break;
		case 'w':
			n = write(c->fd, buf, 1);
			break;
		case 'p':
			p.events = POLLIN | POLLOUT | POLLRDHUP;
			n = poll(&p, 1, 0);
			x = p.revents;
			break;
		case 'e':
			n = getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &x, &len);
			break;
		case 'f':
			n = ioctl(c->fd, FIONREAD, &x);
			break;
		}
		say("%c: %zd, %s, %#x", *order, n, n < 0 ? strerror(errno) : "",
		    x);
	}
	end(c);
}

/* Bytes of the connection that TCP has counted. The C library's getsockopt() adds
 * those of a stream; this does not. */
static uint64_t by_tcp(int fd)
{
	uint64_t counts[2] = {0};
	char info[136];
	socklen_t len = sizeof(info);

	must(!syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, info, &len),
	     "TCP_INFO");
	memcpy(counts, info + 120, sizeof(counts));
	return counts[0] + counts[1];
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* The client speaks until the connection is on a stream, or for a while. */
static void settle(struct conn *c)
{
	const uint64_t until = now_ms() + (getenv("RUN_LIVES_ON") ? 60 : 0);
	uint64_t counted = 0;
	int still = 0;
	char b = 'p';

	if (server) {
		while (b == 'p') {
			must(read_some(c, (uint8_t *)&b, 1) == 1, "a ping");
			must(write_some(c->fd, (uint8_t *)&b, 1) == 1, "pong");
		}
		return;
	}
	while (b == 'p') {
		still = by_tcp(c->fd) == counted ? still + 1 : 0;
		counted = by_tcp(c->fd);
		b = still < 4 && now_ms() < until ? 'p' : 'e';
		must(write_some(c->fd, (uint8_t *)&b, 1) == 1, "a ping");
		must(read_some(c, (uint8_t *)&b, 1) == 1, "a pong");
	}
}

/* Every connection carries bytes both ways. */
static void check_all(void)
{
	int i;

	for (i = 0; i < CONNS; i++) {
		put(&all[i], 100 + (size_t)i);
		take(&all[i], 100 + (size_t)i);
	}
}

/* --- turns: closes ---------------------------------------------------------- */

static void turn_close(struct conn *c)
{
	int null;

	if (!t.mine) {
		take(c, t.sent);
		see_end(c);
		return begin(c);
	}
	put(c, t.sent);
	/* The kernel takes what is closed out of the set by itself. */
	if (own(2))
		leave_set(c);
	switch (t.kind % 5) {
	case 0:
		must(!close(c->fd), "close");
		break;
	case 1:
		must(!close_range((unsigned)c->fd, (unsigned)c->fd, 0),
		     "close_range");
		break;
	case 2:
		must(!syscall(SYS_close, c->fd), "SYS_close");
		break;
	case 3: /* its number is another file's at once */
		null = open("/dev/null", O_RDWR);
		must(dup2(null, c->fd) == c->fd && write(c->fd, "x", 1) == 1 &&
			     !close(c->fd) && !close(null),
		     "dup2 onto it");
		break;
	default:
		must(!shutdown(c->fd, SHUT_RDWR) && !close(c->fd), "shutdown");
	}
	begin(c);
}

static void turn_linger(struct conn *c)
{
	struct linger hard = {1, 0};

	t.sent %= 5000;
	if (t.mine) {
		put(c, t.sent);
		if (t.kind & 8)
			hear();
		must(!setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard,
				 sizeof(hard)),
		     "SO_LINGER");
		end(c);
	} else {
		if (t.kind & 8) {
			until_there(c, t.sent);
			tell();
		}
		see_reset(c, t.sent);
	}
	begin(c);
}

/* What was not read has a close reset the connection. */
static void turn_unread(struct conn *c)
{
	t.sent %= 5000;
	t.back = 1 + t.back % 5000;
	if (t.mine) {
		until_there(c, t.back);
		put(c, t.sent);
		if (t.kind & 8)
			hear();
		end(c);
	} else {
		put(c, t.back);
		if (t.kind & 8) {
			until_there(c, t.sent);
			tell();
		}
		see_reset(c, t.sent);
	}
	begin(c);
}

/* The client's socket becomes another connection. */
static void turn_again(struct conn *c)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	int on = 1;

	t.sent %= 5000;
	if (server) {
		if (t.kind & 8) {
			until_there(c, t.sent);
			tell();
		}
		see_reset(c, t.sent);
		return begin(c);
	}
	put(c, t.sent);
	if (t.kind & 8)
		hear();
	must(!(t.kind & 16
		       ? (int)syscall(SYS_connect, c->fd, &none, sizeof(none))
		       : connect(c->fd, &none, sizeof(none))),
	     "AF_UNSPEC");
	must(send(c->fd, "x", 1, MSG_NOSIGNAL) < 0, "a send to nobody");
	say("%s", strerror(errno));
	must(!connect(c->fd, (void *)&where, sizeof(where)), "connect again");
	must(!setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)),
	     "TCP_NODELAY");
	say("number %d again", c->fd);
}

static void *receives(void *arg)
{
	char b;

	return (void *)(intptr_t)recv(((struct conn *)arg)->fd, &b, 1, 0);
}

/* By halves, or while another thread reads. */
static void turn_shut(struct conn *c)
{
	pthread_t thread;
	void *got;

	if (t.kind & 1) {
		if (t.mine) {
			put(c, t.sent);
			must(!shutdown(c->fd, SHUT_WR), "SHUT_WR");
			must(send(c->fd, "x", 1, MSG_NOSIGNAL) < 0, "a send");
			say("%s", strerror(errno));
			take(c, t.back);
			see_end(c);
		} else {
			char b;

			take(c, t.sent);
			say("%zd", recv(c->fd, &b, 1, 0));
			put(c, t.back);
			end(c);
		}
	} else if (t.mine) {
		must(!pthread_create(&thread, NULL, receives, c), "a thread");
		pause_us(own(200));
		must(!shutdown(c->fd, SHUT_RDWR), "SHUT_RDWR");
		pthread_join(thread, &got);
		say("a reader had %d", (int)(intptr_t)got);
		end(c);
	} else {
		see_end(c);
	}
	begin(c);
}

/* --- turns: numbers ---------------------------------------------------------- */

static int copy_of(int fd)
{
	switch (t.kind % 5) {
	case 0:
		return dup(fd);
	case 1:
		return fcntl(fd, F_DUPFD, 20 + t.number);
	case 2:
		return dup2(fd, 40 + t.number);
	case 3:
		return dup3(fd, 60 + t.number, O_CLOEXEC);
	}
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static void turn_copy(struct conn *c)
{
	struct conn copy = {0};

	if (!t.mine) {
		take(c, t.sent);
		put(c, t.back);
		return;
	}
	leave_set(c);
	copy.fd = copy_of(c->fd);
	must(copy.fd >= 0, "a copy");
	/* As lowest() says of the others. */
	if (t.kind % 5 == 2 || t.kind % 5 == 3)
		say("a copy is number %d", copy.fd);
	put(t.kind & 8 ? c : &copy, t.sent);
	take_from(&copy, 0, t.back / 2);
	leave_set(&copy);
	if (t.kind & 16) {
		must(!close(c->fd), "close");
		c->fd = copy.fd;
		/* exec keeps it */
		must(!fcntl(c->fd, F_SETFD, 0), "F_SETFD");
		take_from(c, t.back / 2, t.back - t.back / 2);
	} else {
		must(!close(copy.fd), "close");
		take_from(c, t.back / 2, t.back - t.back / 2);
	}
}

/* A connection's number becomes another one's. */
static void turn_replace(struct conn *c)
{
	struct conn *other = &all[(t.conn + 1) % CONNS];

	if (!t.mine) {
		take(other, t.sent);
		see_end(other);
		take(c, t.sent);
		put(c, t.back);
		return begin(other);
	}
	put(other, t.sent);
	leave_set(c);
	leave_set(other);
	must(dup2(c->fd, other->fd) == other->fd, "dup2");
	put(t.kind & 1 ? other : c, t.sent);
	if (t.kind & 2) {
		int fd = c->fd;

		c->fd = other->fd;
		other->fd = fd;
	}
	must(!close(other->fd), "close");
	take(c, t.back);
	begin(other);
}

/* --- turns: waits -------------------------------------------------------------- */

/* More than the buffers of both take, where they are not read. */
static void turn_both_write(struct conn *c)
{
	static const size_t sizes[] = {100000, 1000000, 6000000};
	static uint8_t buf[65536];
	const size_t size = sizes[t.kind % 3];
	size_t sent = 0, got = 0, i, n;
	bool filled = false;
	ssize_t rc;

	must(!fcntl(c->fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
	while (sent < size || got < size) {
		struct pollfd p = {c->fd, 0, 0};

		n = size - sent < sizeof(buf) ? size - sent : sizeof(buf);
		for (i = 0; i < n; i++)
			buf[i] = byte_at(server, sent + i);
		rc = n ? write_some(c->fd, buf, n) : 0;
		must(rc >= 0 || errno == EAGAIN, "a write");
		sent += rc > 0 ? (size_t)rc : 0;
		if (!filled && rc > 0 && sent < size)
			continue;
		if (!filled)
			both();
		filled = true;
		n = size - got < sizeof(buf) ? size - got : sizeof(buf);
		rc = n ? recv(c->fd, buf, n, 0) : 0;
		must(rc > 0 || !n || (rc < 0 && errno == EAGAIN), "a read");
		if (rc > 0)
			compare(buf, got, (size_t)rc);
		got += rc > 0 ? (size_t)rc : 0;
		p.events = (short)((sent < size ? POLLOUT : 0) |
				   (got < size ? POLLIN : 0));
		must(!p.events || poll(&p, 1, WAIT_MS) == 1, "poll");
	}
	must(!fcntl(c->fd, F_SETFL, 0), "blocking again");
	say("%zu bytes both ways", size);
}

static void *waits(void *arg)
{
	struct conn *c = arg;
	struct pollfd p = {c->fd, POLLIN, 0};
	struct epoll_event ev;
	char b;

	switch (t.kind % 4) {
	case 0:
		poll(&p, 1, -1);
		break;
	case 1:
		epoll_wait(set, &ev, 1, -1);
		break;
	case 2:
		return (void *)(intptr_t)read(c->fd, &b, 1);
	default:
		return (void *)(intptr_t)recv(c->fd, &b, 1, 0);
	}
	return NULL;
}

static void turn_cancel(struct conn *c)
{
	pthread_t thread;
	void *result;
	int i;

	for (i = 0; i < 8; i++) {
		if (t.mine) {
			join_set(c);
			must(!pthread_create(&thread, NULL, waits, c),
			     "a thread");
			pause_us(own(4) ? own(100) : own(3000));
			must(!pthread_cancel(thread) &&
				     !pthread_join(thread, &result),
			     "pthread_cancel");
			must(result == PTHREAD_CANCELED, "a cancelled thread");
			put(c, 10);
			take(c, 10);
		} else {
			take(c, 10);
			put(c, 10);
		}
	}
	if (t.mine)
		say("8 cancelled");
}

static atomic_int handled;
static atomic_bool enough;

static void on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&handled, 1);
}

static void *strikes(void *arg)
{
	struct timespec ts = {0, 20000};

	while (!atomic_load(&enough)) {
		pthread_kill(*(pthread_t *)arg, SIGUSR1);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
	}
	return NULL;
}

/* A signal each 20 us, while bytes go both ways. */
static void turn_storm(struct conn *c)
{
	struct sigaction sa = {.sa_handler = on_signal};
	const int sig = t.kind & 1 ? SIGALRM : SIGUSR1;
	struct itimerval tick = {{0, 20}, {0, 20}}, off = {0};
	pthread_t self = pthread_self(), thread;
	int i;

	if (t.mine) {
		restarts = t.kind & 2;
		sa.sa_flags = restarts ? SA_RESTART : 0;
		atomic_store(&enough, false);
		atomic_store(&handled, 0);
		must(!sigaction(sig, &sa, NULL), "sigaction");
		in_storm = true;
		must(t.kind & 1
			     ? !setitimer(ITIMER_REAL, &tick, NULL)
			     : !pthread_create(&thread, NULL, strikes, &self),
		     "signals");
		while (!atomic_load(&handled))
			pause_us(20);
	}
	for (i = 0; i < 50; i++) {
		if (t.mine) {
			put(c, 1 + (size_t)i);
			take(c, 1 + (size_t)i);
		} else {
			take(c, 1 + (size_t)i);
			put(c, 1 + (size_t)i);
		}
	}
	if (t.mine) {
		put(c, t.sent);
		take(c, t.back);
		atomic_store(&enough, true);
		if (t.kind & 1)
			must(!setitimer(ITIMER_REAL, &off, NULL), "setitimer");
		else
			pthread_join(thread, NULL);
		in_storm = false;
		signal(sig, SIG_IGN);
	} else {
		take(c, t.sent);
		put(c, t.back);
	}
}

/* --- turns: processes --------------------------------------------------------- */

static void reap(pid_t child)
{
	int status;

	must(child > 0 && waitpid(child, &status, 0) == child && !status,
	     "a child");
}

static pid_t forked(void)
{
	pid_t child = fork();

	must(child >= 0, "fork");
	return child;
}

__attribute__((noreturn)) static void leave(unsigned how)
{
	switch (how % 4) {
	case 0:
		exit(0);
	case 1:
		syscall(SYS_exit_group, 0);
		/* fallthrough */
	case 2:
		_Exit(0);
	}
	_exit(0);
}

/* The numbers of the children's way to read are theirs: no set of the parent's. */
static void child_begins(void)
{
	int i;

	set = new_set();
	for (i = 0; i < CONNS; i++)
		all[i].in_set = false;
}

/* Parent and child use it by turns. */
static void turn_child(struct conn *c)
{
	unsigned i, steps = t.kind % 4, who = t.kind / 4;
	size_t n = 1 + t.sent % 3000;
	pid_t child;

	if (!t.mine) {
		for (i = 0; i < steps; i++) {
			take_from(c, i * n, n);
			put_from(c->fd, i * n, n);
		}
		return;
	}
	/* Without a step: the child has it, and that is all. */
	for (i = 0; i < steps || !i; i++) {
		child = who >> i & 1 ? 0 : forked();
		if (!child && steps) {
			put_from(c->fd, i * n, n);
			if (!(who >> i & 1))
				child_begins();
			take_from(c, i * n, n);
		}
		if (who >> i & 1)
			continue;
		if (!child)
			leave(t.kind / 64);
		reap(child);
	}
}

/* The child has it alone, and ends. */
static void turn_given(struct conn *c)
{
	pid_t child;

	if (!t.mine) {
		take(c, t.sent);
		put(c, t.back);
		take(c, t.sent);
		see_end(c);
		return begin(c);
	}
	leave_set(c);
	if (t.kind & 1)
		put(c, t.sent);
	child = forked();
	if (!child) {
		child_begins();
		if (!(t.kind & 1))
			put(c, t.sent);
		take(c, t.back);
		put(c, t.sent);
		if (t.kind & 2)
			end(c);
		leave(t.kind / 4);
	}
	end(c);
	reap(child);
	begin(c);
}

/* This process ends, and its child goes on with all connections. */
static void turn_move(struct conn *c)
{
	int gone[2];
	char b;

	if (t.mine) {
		must(!pipe(gone), "pipe");
		if (t.kind & 1)
			put(c, t.sent);
		if (forked())
			leave(t.kind / 4);
		close(set);
		set = -1;
		close(gone[1]);
		if (t.kind & 2)
			must(read(gone[0], &b, 1) == 0, "the parent's end");
		if (!(t.kind & 1))
			put(c, t.sent);
		/* A last one has it: numbers are free that were the parent's */
		must(read(gone[0], &b, 1) == 0, "the parent's end");
		close(gone[0]);
		child_begins();
		take(c, t.back);
	} else {
		take(c, t.sent);
		put(c, t.back);
	}
}

static char *number(long n)
{
	char *text = malloc(24);

	must(text, "memory");
	snprintf(text, 24, "%ld", n);
	return text;
}

static char *number_of_seed(void)
{
	char *text = malloc(24);

	must(text, "memory");
	snprintf(text, 24, "%llu", (unsigned long long)seed);
	return text;
}

/* The program begins again, and keeps the connections by their numbers. */
static void turn_exec(struct conn *c)
{
	const bool closes = t.kind & 1;

	if (!t.mine) {
		take(c, t.sent);
		put(c, closes ? 0 : t.back);
		if (closes) {
			see_end(c);
			begin(c);
		}
		return;
	}
	put(c, t.sent);
	leave_set(c);
	if (closes)
		must(!fcntl(c->fd, F_SETFD, FD_CLOEXEC), "F_SETFD");
	{
		char *args[] = {"run_lives",
				number_of_seed(),
				server ? "server" : "client",
				number(ctl),
				number(t.number),
				number(listener),
				number(ntohs(where.sin_port)),
				number(all[0].fd),
				number(all[1].fd),
				number(all[2].fd),
				NULL};

		execv("/proc/self/exe", args);
	}
	fail("execv");
}

static void exec_goes_on(struct conn *c)
{
	if (t.kind & 1)
		begin(c);
	else
		take(c, t.back);
}

/* Another program has it, as its 0 and 1 or by its number. */
static void turn_spawn(struct conn *c)
{
	struct conn *other = &all[(t.conn + 1) % CONNS];
	posix_spawn_file_actions_t actions;
	const bool named = t.kind & 1;
	pid_t child;

	if (!t.mine) {
		take(c, t.sent);
		put(c, t.back);
		return;
	}
	must(!posix_spawn_file_actions_init(&actions), "actions");
	if (named)
		must(!posix_spawn_file_actions_adddup2(&actions, c->fd, 0) &&
			     !posix_spawn_file_actions_addclose(&actions,
								c->fd),
		     "adddup2");
	if (t.kind & 2)
		must(!posix_spawn_file_actions_addclose(&actions, other->fd),
		     "addclose");
	{
		char *args[] = {"run_lives",
				number_of_seed(),
				server ? "server" : "client",
				number(ctl),
				number(t.number),
				"child",
				number(named ? 0 : c->fd),
				NULL};

		must(!posix_spawn(&child, "/proc/self/exe", &actions, NULL,
				  args, environ),
		     "posix_spawn");
	}
	posix_spawn_file_actions_destroy(&actions);
	reap(child);
}

/* The last turn: this end's process is over. */
static void turn_exit(struct conn *c)
{
	int i;

	if (t.mine) {
		put(c, t.sent);
		say("ends");
		/* A known difference (docs/run.md): of what a killed process has
		 * just written the last may be lost, as if it had been killed
		 * before. TCP keeps it; this end waits until it was read. */
		if (t.kind % 5 == 4) {
			hear();
			raise(SIGKILL);
		}
		leave(t.kind % 5);
	}
	take(c, t.sent);
	if (t.kind % 5 == 4)
		tell();
	for (i = 0; i < CONNS; i++)
		see_end(&all[i]);
}

/* --- the program --------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*fn)(struct conn *c);
} ops[] = {
	{"close", turn_close},	   {"linger", turn_linger},
	{"unread", turn_unread},   {"again", turn_again},
	{"shut", turn_shut},	   {"copy", turn_copy},
	{"replace", turn_replace}, {"both write", turn_both_write},
	{"cancel", turn_cancel},   {"storm", turn_storm},
	{"child", turn_child},	   {"given", turn_given},
	{"move", turn_move},	   {"exec", turn_exec},
	{"spawn", turn_spawn},	   {"exit", turn_exit},
};

#define OPS (sizeof(ops) / sizeof(ops[0]))

static size_t size(void)
{
	switch (draw(4)) {
	case 0:
		return 1 + draw(100000);
	case 1:
		return 1 + draw(5000);
	}
	return 1 + draw(100);
}

static void draw_turn(int n)
{
	script = seed * 1000003 + (uint64_t)n * 7919;
	own_state = script ^ (server ? 0x5bd1e995 : 0x1b873593);
	draw(2);
	t.number = n;
	t.op = n == TURNS ? (int)OPS - 1 : (int)draw(OPS - 1);
	t.conn = (int)draw(CONNS);
	t.mine = draw(2) == server;
	t.kind = draw(1000);
	t.sent = size();
	t.back = size();
}

static void settle_some(void)
{
	if (draw(4))
		settle(&all[t.conn]);
	if (!draw(4))
		settle(&all[(t.conn + 1) % CONNS]);
}

static void run(int from)
{
	int n;

	for (n = from; n <= TURNS; n++) {
		draw_turn(n);
		both();
		say("%s of %d, %s, kind %u, %zu, %zu", ops[t.op].name, t.conn,
		    t.mine ? "mine" : "the other's", t.kind, t.sent, t.back);
		settle_some();
		ops[t.op].fn(&all[t.conn]);
		if (n < TURNS)
			check_all();
	}
	say("done");
}

static void child_main(char **argv)
{
	struct conn c = {atoi(argv[6]), false};

	set = epoll_create1(EPOLL_CLOEXEC);
	put(&c, t.sent);
	take(&c, t.back);
	leave(t.kind / 4);
}

static void starts(bool is_server, int word)
{
	char port[2];
	int i;

	server = is_server;
	ctl = word;
	where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (server) {
		socklen_t len = sizeof(where);

		listener = socket(AF_INET, SOCK_STREAM, 0);
		must(!bind(listener, (void *)&where, len) &&
			     !listen(listener, 9) &&
			     !getsockname(listener, (void *)&where, &len),
		     "listen");
		must(write(ctl, &where.sin_port, 2) == 2, "the port");
	} else {
		must(read(ctl, port, 2) == 2, "the port");
		memcpy(&where.sin_port, port, 2);
	}
	set = new_set();
	for (i = 0; i < CONNS; i++)
		begin(&all[i]);
	run(1);
}

/* Behind an exec. */
static void goes_on(char **argv)
{
	int i;

	where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = atoi(argv[5]);
	where.sin_port = htons((uint16_t)atoi(argv[6]));
	for (i = 0; i < CONNS; i++)
		all[i].fd = atoi(argv[7 + i]);
	if (t.kind & 1) /* exec closed it */
		all[t.conn].fd = -1;
	set = new_set();
	exec_goes_on(&all[t.conn]);
	check_all();
	run(t.number + 1);
}

int main(int argc, char **argv)
{
	int ends[2], i;

	if (argc < 2)
		return 2;
	seed = strtoull(argv[1], NULL, 10);
	signal(SIGPIPE, SIG_IGN);
	if (argc > 4) {
		server = !strcmp(argv[2], "server");
		ctl = atoi(argv[3]);
		draw_turn(atoi(argv[4]));
		if (!strcmp(argv[5], "child"))
			child_main(argv);
		goes_on(argv);
		return 0;
	}
	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	for (i = 0; i < 2; i++) {
		if (forked())
			continue;
		close(ends[!i]);
		starts(i, ends[i]);
		return 0;
	}
	close(ends[0]);
	close(ends[1]);
	while (wait(NULL) > 0)
		;
	return 0;
}
