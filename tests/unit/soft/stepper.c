/* SPDX-License-Identifier: MIT */
/*
 * stepper.c - kill at every instruction: see stepper.h.
 */
#include "stepper.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STRIDE 370 /* ten times the instructions and the time */
#else
#define STRIDE 37
#endif

void step_pattern(char *p, unsigned seed)
{
	int i;

	for (i = 0; i < STEP_LEN; i++)
		p[i] = (char)(seed + 1 + (unsigned)i * 3);
}

void step_begin(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
}

void step_end(void)
{
	raise(SIGUSR1);
	_exit(3);
}

void step_await(struct rig_child *c)
{
	int st;

	assert_int_equal(waitpid(c->pid, &st, 0), c->pid);
	assert_true(WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
}

long step_child(struct rig_child *c, long n)
{
	long i;
	int st;

	for (i = 0; i < n; i++) {
		if (ptrace(PTRACE_SINGLESTEP, c->pid, NULL, NULL))
			fail_msg("cannot step");
		assert_int_equal(waitpid(c->pid, &st, 0), c->pid);
		assert_true(WIFSTOPPED(st));
		if (WSTOPSIG(st) == SIGUSR1)
			break;
		assert_int_equal(WSTOPSIG(st), SIGTRAP);
	}
	return i;
}

void step_kill(struct rig_child *c)
{
	kill(c->pid, SIGKILL);
	assert_true(WIFSIGNALED(rig_join(c)));
}

long step_count(struct step_run *r)
{
	long n;

	r->begin(r);
	n = step_child(&r->c, 1 << 20);
	r->over = true;
	r->end(r);
	return n;
}

static long stride(void)
{
	const char *s = getenv("SKEIN_STEP_STRIDE");
	const char *soak = getenv("SKEIN_TEST_ROUNDS");

	if (s && atol(s) > 0)
		return atol(s);
	return soak && atol(soak) >= 1000 ? 1 : STRIDE;
}

void step_sweep(struct step_run *r)
{
	long n = step_count(r), by = stride() * (r->coarse ? r->coarse : 1), at;

	print_message("  %ld instructions\n", n);
	for (at = 1; at < n; at += by) {
		r->begin(r);
		/* their number varies a little */
		r->over = step_child(&r->c, at) < at;
		r->end(r);
	}
}
