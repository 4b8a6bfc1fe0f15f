/* SPDX-License-Identifier: MIT */
/* sim_fuzz.c - scenarios under many seeds; see sim_fuzz.h. */
#include "sim_fuzz.h"

#include "cmd.h"
#include "out.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIM_CMD "skein sim"
#define JOBS_MAX 256u
#define SCENARIOS_MAX 16u
#define NONE UINT64_MAX

/* A task is a seed and a scenario: number task / n of the seeds, task % n. */
struct work {
	const struct sim_fuzz *conf;
	const struct scenario *s[SCENARIOS_MAX];
	unsigned n;
	uint32_t first, last;
	uint64_t tasks;
	unsigned jobs;
	pid_t pids[JOBS_MAX];	    /* 0: it has ended */
	uint64_t running[JOBS_MAX]; /* the task that each is at */
	int signal;		    /* that ended a job; 0: none did */
	int fd[2];		    /* a pipe, of struct task_event */
};

/* What a job says before and after each task. */
struct task_event {
	uint32_t job;
	enum {
		TASK_BEGINS,
		TASK_PASSED,
		TASK_FAILED
	} what;
	uint64_t task;
};

static void send_event(const struct work *w, unsigned job, int what,
		       uint64_t task)
{
	struct task_event ev;

	memset(&ev, 0, sizeof(ev));
	ev.job = job;
	ev.what = what;
	ev.task = task;
	/* The reader is gone: another job has failed. */
	if (write(w->fd[1], &ev, sizeof(ev)) != sizeof(ev))
		_exit(0);
}

static void job(const struct work *w, unsigned k)
{
	signal(SIGPIPE, SIG_IGN);
	for (uint64_t t = k; t < w->tasks; t += w->jobs) {
		bool ok;

		send_event(w, k, TASK_BEGINS, t);
		ok = w->conf->run(w->conf->arg, w->s[t % w->n],
				  w->first + (uint32_t)(t / w->n));
		send_event(w, k, ok ? TASK_PASSED : TASK_FAILED, t);
		if (!ok)
			break;
	}
	_exit(0);
}

static int start(struct work *w)
{
	for (unsigned k = 0; k < w->jobs; k++) {
		w->running[k] = NONE;
		w->pids[k] = fork();
		if (w->pids[k] < 0) {
			w->pids[k] = 0;
			return -errno;
		}
		if (!w->pids[k]) {
			close(w->fd[0]);
			job(w, k);
		}
	}
	return 0;
}

/* The task at which a job died, or NONE. options: waitpid()'s. */
static uint64_t died(struct work *w, int options)
{
	int status;

	for (unsigned k = 0; k < w->jobs; k++) {
		if (!w->pids[k] ||
		    waitpid(w->pids[k], &status, options) != w->pids[k])
			continue;
		w->pids[k] = 0;
		if (WIFSIGNALED(status))
			w->signal = WTERMSIG(status);
		if (status)
			return w->running[k];
	}
	return NONE;
}

/* How many tasks went well; *bad: the first that did not, or NONE. */
static uint64_t collect(struct work *w, uint64_t *bad)
{
	struct pollfd p = {.fd = w->fd[0], .events = POLLIN};
	struct progress bar;
	uint64_t well = 0;
	struct task_event ev;

	*bad = NONE;
	progress_start(&bar, "runs");
	while (*bad == NONE) {
		/* Read all that a job wrote before its death is noticed. */
		if (!poll(&p, 1, 200)) {
			*bad = died(w, WNOHANG);
			continue;
		}
		if (read(w->fd[0], &ev, sizeof(ev)) != sizeof(ev)) {
			/* All have ended. A job that dies closes the pipe
			 * before waitpid() can find it. */
			*bad = died(w, 0);
			break;
		}
		w->running[ev.job] = ev.task;
		if (ev.what == TASK_PASSED)
			progress_set(&bar, ++well, w->tasks);
		else if (ev.what == TASK_FAILED)
			*bad = ev.task;
	}
	progress_end(&bar);
	return well;
}

/* "one" or "one, two" */
static void names(const struct work *w, char *buf, size_t len)
{
	size_t n = 0;

	*buf = '\0';
	for (unsigned i = 0; i < w->n && n < len; i++)
		n += (size_t)snprintf(buf + n, len - n, "%s%s", i ? ", " : "",
				      w->s[i]->name);
}

static int report(const struct work *w, uint64_t well, uint64_t bad)
{
	bool ok = bad == NONE && well == w->tasks;
	char replay[160] = "", all[160];

	names(w, all, sizeof(all));
	if (bad != NONE)
		snprintf(replay, sizeof(replay),
			 "skein sim %s --seed %" PRIu64 "%s",
			 w->s[bad % w->n]->name, w->first + bad / w->n,
			 w->conf->options);
	if (w->conf->json) {
		json_t *j = json_pack("{s:s, s:I, s:I, s:I, s:b, s:s, s:i}",
				      "scenario", all, "first",
				      (json_int_t)w->first, "last",
				      (json_int_t)w->last, "passed",
				      (json_int_t)well, "ok", ok, "replay",
				      replay, "signal", w->signal);

		if (out_json(j))
			return CMD_FAILED;
	} else if (ok) {
		printf("%s: %" PRIu64 " runs, no failure\n", all, well);
	} else if (w->signal && bad != NONE) {
		printf("%s: a worker was ended by signal %d while it ran seed "
		       "%" PRIu64 ", after %" PRIu64
		       " runs; to run it again:\n  %s\n",
		       all, w->signal, w->first + bad / w->n, well, replay);
	} else {
		printf("%s: a failure after %" PRIu64
		       " runs; to see it again:\n  %s\n",
		       all, well,
		       *replay ? replay : "(a process died between two runs)");
	}
	return ok ? CMD_OK : CMD_FAILED;
}

static int run(struct work *w)
{
	uint64_t well, bad;
	cpu_set_t set;
	int rc;

	w->jobs = sched_getaffinity(0, sizeof(set), &set)
			  ? 1
			  : (unsigned)CPU_COUNT(&set);
	if (w->jobs > JOBS_MAX)
		w->jobs = JOBS_MAX;
	if (pipe(w->fd)) {
		out_error(SIM_CMD, "pipe: %s", strerror(errno));
		return CMD_FAILED;
	}
	rc = start(w);
	close(w->fd[1]);
	well = collect(w, &bad);
	/* A job that meets a closed pipe ends. */
	close(w->fd[0]);
	for (unsigned k = 0; k < w->jobs; k++)
		if (w->pids[k])
			waitpid(w->pids[k], NULL, 0);
	if (rc) {
		out_error(SIM_CMD, "fork: %s", strerror(-rc));
		return CMD_FAILED;
	}
	return report(w, well, bad);
}

static int choose(struct work *w)
{
	const struct scenario *s;

	for (unsigned i = 0; i < w->conf->n_names; i++) {
		s = scenario_find(w->conf->names[i]);
		if (!s || w->n == SCENARIOS_MAX) {
			out_error(SIM_CMD,
				  "no scenario is called \"%s\": --list names "
				  "them",
				  w->conf->names[i]);
			return -EINVAL;
		}
		w->s[w->n++] = s;
	}
	for (unsigned i = 0; !w->conf->n_names && (s = scenario_at(i)); i++)
		if (s->fuzz && w->n < SCENARIOS_MAX)
			w->s[w->n++] = s;
	return 0;
}

int sim_fuzz(const struct sim_fuzz *f)
{
	struct work w = {.conf = f};

	if (!f->seeds ||
	    sscanf(f->seeds, "%" SCNu32 "..%" SCNu32, &w.first, &w.last) != 2 ||
	    w.last < w.first) {
		out_error(SIM_CMD, "fuzz wants --seeds A..B, not \"%s\"",
			  f->seeds ? f->seeds : "");
		return CMD_USAGE;
	}
	if (choose(&w))
		return CMD_USAGE;
	w.tasks = ((uint64_t)w.last - w.first + 1) * w.n;
	return run(&w);
}
