/* SPDX-License-Identifier: MIT */
/*
 * out.c - aligned tables, JSON, progress and error lines.
 */
#include "out.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ERROR_MAX 1024u
#define AGAIN_NS 2000000000u

/* What out_end() has to know of the process's one command. */
static struct {
	bool json;		       /* an object is wanted */
	volatile sig_atomic_t printed; /* and stdout has it */
	pid_t pid;		       /* of the command itself */
	char error[ERROR_MAX];	       /* the first that was said */
} end;

struct table {
	const char *const *heads;
	unsigned n;
	size_t cells;
	size_t room;
	char **cell;
};

static void *must(void *p)
{
	if (p)
		return p;
	out_error("skein", "out of memory");
	exit(out_end(1));
}

struct table *table_new(const char *const *heads, unsigned n)
{
	struct table *t = must(calloc(1, sizeof(*t)));

	t->heads = heads;
	t->n = n;
	return t;
}

void table_cell(struct table *t, const char *fmt, ...)
{
	va_list ap;
	char *s = NULL;

	if (t->cells == t->room) {
		t->room = t->room ? 2 * t->room : 64;
		t->cell = must(realloc(t->cell, t->room * sizeof(*t->cell)));
	}
	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0)
		s = NULL;
	va_end(ap);
	t->cell[t->cells++] = must(s);
}

void table_num(struct table *t, double v)
{
	if (!isfinite(v))
		table_cell(t, "-");
	else if (fabs(v) < 10)
		table_cell(t, "%.3f", v);
	else if (fabs(v) < 100)
		table_cell(t, "%.2f", v);
	else if (fabs(v) < 1000)
		table_cell(t, "%.1f", v);
	else
		table_cell(t, "%.0f", v);
}

static const char *head_text(const struct table *t, unsigned col)
{
	const char *h = t->heads[col];

	return h[0] == '<' ? h + 1 : h;
}

static int width_of(const struct table *t, unsigned col)
{
	size_t w = strlen(head_text(t, col));

	for (size_t i = col; i < t->cells; i += t->n)
		if (strlen(t->cell[i]) > w)
			w = strlen(t->cell[i]);
	return (int)w;
}

static void put(const struct table *t, FILE *f, unsigned col, int width,
		const char *s)
{
	bool left = t->heads[col][0] == '<';

	if (left && col + 1 == t->n)
		width = 0; /* no blanks at the end of a line */
	fprintf(f, "%s%*s%s", col ? "  " : "", left ? -width : width, s,
		col + 1 == t->n ? "\n" : "");
}

void table_print(const struct table *t, FILE *f)
{
	int *width = must(calloc(t->n, sizeof(*width)));
	unsigned col;

	for (col = 0; col < t->n; col++)
		width[col] = width_of(t, col);
	for (col = 0; col < t->n; col++)
		put(t, f, col, width[col], head_text(t, col));
	for (size_t i = 0; i < t->cells; i++) {
		col = (unsigned)(i % t->n);
		put(t, f, col, width[col], t->cell[i]);
	}
	if (t->cells % t->n)
		fputc('\n', f);
	free(width);
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->cells; i++)
		free(t->cell[i]);
	free(t->cell);
	free(t);
}

int out_json(json_t *json)
{
	int rc = 0;

	if (!json)
		return -ENOMEM;
	end.printed = 1;
	errno = 0;
	if (json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) ||
	    fputc('\n', stdout) == EOF || fflush(stdout))
		rc = -(errno ? errno : EIO);
	json_decref(json);
	return rc;
}

json_t *out_num(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

void out_error(const char *cmd, const char *fmt, ...)
{
	char line[ERROR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s: %s\n", cmd, line);
	if (!end.error[0])
		memcpy(end.error, line, sizeof(line));
}

/* Calls what a signal handler may. */
static void put_text(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) < 0)
		return; /* nobody reads it */
}

static void on_end(int sig)
{
	/* a child's end is its parent's to tell */
	if (getpid() == end.pid) {
		put_text(STDERR_FILENO, sig == SIGTERM
						? "skein: ended by SIGTERM\n"
						: "skein: ended by SIGINT\n");
		if (!end.printed)
			put_text(STDOUT_FILENO,
				 sig == SIGTERM
					 ? "{\"error\": \"ended by SIGTERM\", "
					   "\"status\": 143}\n"
					 : "{\"error\": \"ended by SIGINT\", "
					   "\"status\": 130}\n");
	}
	raise(sig); /* blocked until this returns; then as it would be */
}

/* Subcommands that end in order at a signal take it over. */
static void end_by(int sig)
{
	struct sigaction now = {.sa_handler = on_end,
				.sa_flags = (int)SA_RESETHAND},
			 was;

	if (!sigaction(sig, NULL, &was) && was.sa_handler == SIG_DFL)
		sigaction(sig, &now, NULL);
}

void out_json_wanted(void)
{
	if (end.json)
		return;
	end.json = true;
	end.pid = getpid();
	end_by(SIGTERM);
	end_by(SIGINT);
}

/* Words may hold any bytes: a file's name, say. */
static json_t *words_json(const char *words)
{
	char clean[ERROR_MAX];
	json_t *text = json_string(words);
	size_t i;

	if (text)
		return text;
	for (i = 0; i < sizeof(clean) - 1 && words[i]; i++)
		clean[i] = (unsigned char)words[i] < 0x80 ? words[i] : '?';
	clean[i] = '\0';
	return json_string(clean);
}

int out_end(int status)
{
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		if (!end.error[0])
			out_error("skein",
				  "cannot write to standard output%s%s",
				  errno ? ": " : "",
				  errno ? strerror(errno) : "");
		if (!status)
			status = 1;
	}
	if (!status || !end.json || end.printed)
		return status;
	out_json(json_pack("{s:o, s:i}", "error",
			   words_json(end.error[0] ? end.error
						   : "the command failed"),
			   "status", status));
	return status;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t hash_of(const char *line)
{
	uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

	for (; *line; line++)
		h = (h ^ (unsigned char)*line) * 0x100000001b3u;
	return h;
}

/* Was it printed just now? If not, it is from here on. */
static bool said_of_late(struct out_log *log, const char *line)
{
	const unsigned room = sizeof(log->late) / sizeof(log->late[0]);
	uint64_t hash = hash_of(line), now = now_ns();
	bool said = false;

	pthread_mutex_lock(&log->lock);
	for (unsigned i = 0; i < room; i++)
		said |= log->late[i].hash == hash &&
			now - log->late[i].ns < AGAIN_NS;
	if (!said) {
		log->late[log->n_late % room].hash = hash;
		log->late[log->n_late++ % room].ns = now;
	}
	pthread_mutex_unlock(&log->lock);
	return said;
}

void out_log_line(void *arg, enum skein_log_level level, const char *line)
{
	static const char *const names[] = {"error", "warning", "info",
					    "debug"};
	struct out_log *log = arg;

	if (level == SKEIN_LOG_ERROR && !atomic_load(&log->opened)) {
		if (!log->reason[0])
			snprintf(log->reason, sizeof(log->reason), "%s", line);
		return;
	}
	if (!said_of_late(log, line))
		fprintf(stderr, "skein: %s: %s\n", names[level], line);
	if (level == SKEIN_LOG_ERROR && !atomic_exchange(&log->claimed, true)) {
		snprintf(log->later_reason, sizeof(log->later_reason), "%s",
			 line);
		atomic_store(&log->later, true);
	}
}

const char *out_log_reason(const struct out_log *log, int rc)
{
	return log->reason[0] ? log->reason : skein_strerror(rc);
}

const char *out_log_later(struct out_log *log)
{
	return atomic_load(&log->later) ? log->later_reason : "";
}

void out_log_opened(struct out_log *log)
{
	atomic_store(&log->opened, true);
}

enum {
	SHOWN_NONE = -1,
	SHOWN_SILENT = -2
};

void progress_start(struct progress *p, const char *label)
{
	p->label = label;
	p->shown = isatty(STDERR_FILENO) ? SHOWN_NONE : SHOWN_SILENT;
}

void progress_set(struct progress *p, uint64_t done, uint64_t total)
{
	int percent;

	if (p->shown == SHOWN_SILENT)
		return;
	percent = total ? (int)(done * 100.0 / (double)total) : 100;
	if (percent == p->shown)
		return;
	p->shown = percent;
	fprintf(stderr, "\r%s  %3d %%", p->label, percent);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->shown != SHOWN_SILENT && p->shown != SHOWN_NONE)
		fputs("\r\033[K", stderr);
}
