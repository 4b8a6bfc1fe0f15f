/* SPDX-License-Identifier: MIT */
/*
 * pair.c - makes the two ends of a measurement and their control link.
 *
 * With --self the server is a child forked before anything is opened: a device
 * belongs to one process. It dies with its parent.
 */
#include "cmd.h"
#include "out.h"
#include "perf/ctl.h"
#include "perf/device.h"
#include "perf/pin.h"
#include "perf/probe.h"
#include "perf/ticks.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a server without a client stays. */
#define CLIENT_WAIT_NS 600000000000ull
#define CHILD_WAIT_MS 5000

const char *const perf_op_names[] = {
	[PERF_WRITE] = "write",
	[PERF_READ] = "read",
	[PERF_SEND] = "send",
	[PERF_ATOMIC] = "atomic",
	[PERF_RPC] = "rpc",
	[PERF_STREAM] = "stream",
	NULL,
};
const char *const perf_wait_names[] = {
	[PERF_WAIT_SPIN] = "spin",
	[PERF_WAIT_POLL] = "poll",
	[PERF_WAIT_ADAPTIVE] = "adaptive",
	[PERF_WAIT_EVENT] = "event",
	NULL,
};
const char *const perf_atomic_names[] = {
	[PERF_FETCH_ADD] = "FETCH_AND_ADD",
	[PERF_CMP_SWAP] = "CMP_AND_SWAP",
	NULL,
};

static const struct perf_op *const ops[] = {
	[PERF_WRITE] = &perf_op_write, [PERF_READ] = &perf_op_read,
	[PERF_SEND] = &perf_op_send,   [PERF_ATOMIC] = &perf_op_atomic,
	[PERF_RPC] = &perf_op_rpc,     [PERF_STREAM] = &perf_op_stream,
};

int perf_fail(struct perf *p, int rc, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&p->err_lock);
	if (!p->err[0]) {
		va_start(ap, fmt);
		vsnprintf(p->err, sizeof(p->err), fmt, ap);
		va_end(ap);
	}
	pthread_mutex_unlock(&p->err_lock);
	return rc;
}

static void perf_init(struct perf *p, const struct perf_opts *o)
{
	memset(p, 0, sizeof(*p));
	p->o = *o;
	p->op = ops[o->op];
	p->event_fd[0] = p->event_fd[1] = -1;
	p->ns_per_tick = ticks_calibrate();
	pthread_mutex_init(&p->err_lock, NULL);
}

static void perf_fini(struct perf *p)
{
	for (unsigned i = 0; p->workers && i < p->o.threads; i++) {
		free(p->workers[i].lat);
		free(p->workers[i].chunks);
	}
	free(p->workers);
	for (int i = 0; i < 2; i++)
		if (p->event_fd[i] >= 0)
			close(p->event_fd[i]);
	shm_free(p->shm);
	ctl_free(p->ctl);
	pthread_mutex_destroy(&p->err_lock);
}

/* Runs this end to its end, and tells the other one of a failure. */
static int run_end(struct perf *p)
{
	int rc = p->server ? perf_server(p) : perf_client(p);

	if (!rc)
		return CMD_OK;
	if (!p->err[0])
		perf_fail(p, rc, "%s", strerror(-rc));
	if (p->ctl)
		perf_blame(p);
	if (!p->err_known && p->ctl)
		(void)ctl_send(p->ctl, json_pack("{s:s}", "error", p->err));
	/* of two ends on one terminal the client speaks */
	if (!p->o.self || !p->server)
		out_error(PERF_CMD, "%s", p->err);
	return CMD_FAILED;
}

static int self_setup(struct perf *p, int sv[2])
{
	int rc;

	rc = shm_new(&p->shm);
	if (rc)
		return rc;
	for (int i = 0; i < 2; i++) {
		p->event_fd[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (p->event_fd[i] < 0)
			return -errno;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -errno;
	return 0;
}

static int take_ctl(struct perf *p, int fd)
{
	p->ctl = ctl_new(fd);
	return p->ctl ? 0 : -ENOMEM;
}

static _Noreturn void child_main(struct perf *p, int fd, int core, pid_t parent)
{
	int rc;

	p->server = true;
	/* A parent that died before this line is noticed by the next. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CMD_FAILED);
	rc = take_ctl(p, fd);
	if (!rc)
		rc = pin_to(core);
	if (rc) {
		perf_fail(p, rc, "cannot run on core %d: %s", core,
			  strerror(-rc));
		_exit(CMD_FAILED);
	}
	rc = run_end(p);
	perf_fini(p);
	_exit(rc);
}

/* The child has been told to end, or has failed: it gets a moment. */
static int reap(pid_t pid)
{
	int status, i;

	for (i = 0; i < CHILD_WAIT_MS; i++) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status)
						 : CMD_FAILED;
		if (got < 0 && errno != EINTR)
			return CMD_FAILED;
		usleep(1000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return CMD_FAILED;
}

static int main_self(struct perf *p)
{
	int sv[2] = {-1, -1}, core[2], rc, child_rc;
	pid_t parent = getpid(), pid;

	rc = pin_choose(p->o.cores, core, p->err, sizeof(p->err));
	if (rc) {
		out_error(PERF_CMD, "%s", p->err);
		return CMD_FAILED;
	}
	rc = self_setup(p, sv);
	if (rc) {
		out_error(PERF_CMD, "cannot make the pair of processes: %s",
			  strerror(-rc));
		return CMD_FAILED;
	}
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		out_error(PERF_CMD, "fork: %s", strerror(errno));
		close(sv[0]);
		close(sv[1]);
		return CMD_FAILED;
	}
	if (pid == 0) {
		close(sv[0]);
		child_main(p, sv[1], core[1], parent);
	}
	close(sv[1]);
	rc = take_ctl(p, sv[0]);
	if (!rc)
		rc = pin_to(core[0]);
	if (rc)
		out_error(PERF_CMD, "cannot run on core %d: %s", core[0],
			  strerror(-rc));
	else
		rc = run_end(p);
	ctl_free(p->ctl); /* a child that still waits sees the end */
	p->ctl = NULL;
	child_rc = reap(pid);
	if (!rc && child_rc) {
		out_error(PERF_CMD, "the server's end failed at its end");
		rc = child_rc;
	}
	return rc;
}

/* Both ends say at their start that there is no such device: a server before a
 * client comes, a client before it takes a server from its wait. */
static int try_device(struct perf *p)
{
	struct skein_env *env;
	struct dev *dev;
	int rc = device_open(p->o.device, p->o.require, (int)p->o.gid_index,
			     &env, p->err, sizeof(p->err), &dev);

	if (!rc)
		device_close(env, dev);
	return rc;
}

static int main_remote(struct perf *p)
{
	const struct perf_opts *o = &p->o;
	uint32_t port;
	int fd, rc = try_device(p);

	p->server = !o->host;
	if (!rc && p->server) {
		rc = ctl_accept_one(o->port, !o->insecure, CLIENT_WAIT_NS,
				    p->err, sizeof(p->err), &fd);
	} else if (!rc) {
		snprintf(p->host, sizeof(p->host), "%s", o->host);
		rc = ctl_connect(o->host, o->port, p->err, sizeof(p->err), &fd);
	}
	if (rc) {
		out_error(PERF_CMD, "%s", p->err);
		return CMD_FAILED;
	}
	if (take_ctl(p, fd)) {
		out_error(PERF_CMD, "out of memory");
		return CMD_FAILED;
	}
	port = ctl_port(p->ctl);
	rc = run_end(p);
	return rc || !p->server ? rc : perf_report_served(p, port);
}

int perf_main(const struct perf_opts *o)
{
	struct perf p;
	int rc;

	perf_init(&p, o);
	rc = o->self ? main_self(&p) : main_remote(&p);
	perf_fini(&p);
	return rc;
}
