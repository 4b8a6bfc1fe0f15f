/* SPDX-License-Identifier: MIT */
/*
 * served.h - a process that serves calls over the software device until it is
 * killed, or its parent ends.
 */
#ifndef SKEIN_TEST_RPC_SERVED_H
#define SKEIN_TEST_RPC_SERVED_H

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/cm.h"
#include "unit/device.h"
#include <skein/skein.h>

#define SERVED_ADDR 64

/* In the child: 0, or why it cannot serve. */
typedef int (*served_setup)(struct skein_ctx *ctx);

static inline _Noreturn void served_run(int fd, enum skein_wait wait,
					served_setup setup)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = test_device(), .wait = wait};
	struct skein_listener *listener;
	struct skein_ctx *ctx;
	char addr[SERVED_ADDR] = "";

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (skein_ctx_open(&attr, &ctx) || setup(ctx) ||
	    skein_listener_open(ctx, "127.0.0.1:0", NULL, &listener))
		_exit(1);
	snprintf(addr, sizeof(addr), "%s", skein_listener_addr(listener));
	if (write(fd, addr, sizeof(addr)) != sizeof(addr))
		_exit(1);
	for (;;)
		skein_engine_run(skein_ctx_engine(ctx), SKEIN_FOREVER);
}

/* Its address is in `addr` when this returns. */
static inline pid_t served_start(enum skein_wait wait, served_setup setup,
				 char addr[SERVED_ADDR])
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(fds[0]);
		served_run(fds[1], wait, setup);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], addr, SERVED_ADDR), SERVED_ADDR);
	close(fds[0]);
	return pid;
}

static inline void served_stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#endif
