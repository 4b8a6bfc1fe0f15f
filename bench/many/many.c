/* SPDX-License-Identifier: MIT */
/*
 * many.c - finds the word in a table and runs it; see many.h.
 */
#include "many.h"

#include <skein/error.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t many_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void many_die(const char *what, int rc)
{
	fprintf(stderr, "many: %s: %s\n", what, skein_strerror(rc));
	exit(1);
}

unsigned long many_number(const char *word)
{
	char *end;
	unsigned long n = strtoul(word, &end, 10);

	if (!*word || *end)
		many_die(word, -EINVAL);
	return n;
}

enum skein_wait many_wait(const char *word)
{
	if (!strcmp(word, "poll"))
		return SKEIN_WAIT_POLL;
	if (!strcmp(word, "sleep"))
		return SKEIN_WAIT_EVENT;
	if (!strcmp(word, "default"))
		return SKEIN_WAIT_ADAPTIVE;
	many_die(word, -EINVAL);
}

void many_lat_add(struct many_lat *l, uint64_t ns)
{
	if (l->n == l->room) {
		l->room = l->room ? 2 * l->room : 4096;
		l->ns = realloc(l->ns, l->room * sizeof(*l->ns));
		if (!l->ns)
			many_die("latencies", -ENOMEM);
	}
	l->ns[l->n++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

void many_lat_print(struct many_lat *l)
{
	if (l->n) {
		qsort(l->ns, l->n, sizeof(*l->ns), by_value);
		printf(" count=%lu p50_ns=%u p99_ns=%u", l->n, l->ns[l->n / 2],
		       l->ns[l->n - 1 - l->n / 100]);
	} else {
		printf(" count=0");
	}
	free(l->ns);
}

long many_switches(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return ru.ru_nvcsw;
}

void many_await_eof(void)
{
	char buf[64];

	while (read(STDIN_FILENO, buf, sizeof(buf)) > 0)
		;
}

bool many_eof(void)
{
	static unsigned asked;
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

	if (++asked % EOF_ROUNDS || poll(&p, 1, 0) <= 0)
		return false;
	many_await_eof();
	return true;
}

static int nothing(int argc, char **argv)
{
	return 0;
}

/* "spawn N WORD...": starts so many of this program at once, and waits for all:
 * how long, and how many failed. */
static int spawn(int argc, char **argv)
{
	unsigned long n = argc > 2 ? many_number(argv[1]) : 0, failed = 0;
	uint64_t begun = many_now_ns();
	int status;

	for (unsigned long i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid < 0)
			many_die("fork", -errno);
		if (!pid) {
			argv[1] = program_invocation_name;
			execv("/proc/self/exe", argv + 1);
			_exit(127);
		}
	}
	while (wait(&status) > 0)
		failed += status != 0;
	printf("ns=%llu failed=%lu\n",
	       (unsigned long long)(many_now_ns() - begun), failed);
	return 0;
}

static const struct {
	const char *word;
	int (*run)(int argc, char **argv);
	int args; /* at least */
} words[] = {
	{"serve", many_serve, 1},
	{"first", many_first, 2},
	{"one", many_one, 2},
	{"idle", many_idle, 3},
	{"calls", many_calls, 4},
	{"load", many_load, 2},
	{"tcp-serve", many_tcp_serve, 0},
	{"pass", many_pass, 4},
	{"tcp-take", many_tcp_take, 1},
	{"tcp-pass", many_tcp_pass, 3},
	{"tcp-calls", many_tcp_calls, 3},
	{"unix-calls", many_unix_calls, 1},
	{"vqp-serve", many_vqp_serve, 0},
	{"vqp-one", many_vqp_one, 1},
	{"vqp-calls", many_vqp_calls, 1},
	{"vqp-pass", many_vqp_pass, 3},
	{"vqp-parts", many_vqp_pass, 3},
	{"big-serve", many_big_serve, 0},
	{"big", many_big, 3},
	{"floor", many_floor, 1},
	{"floor-child", many_floor_child, 1},
	{"nothing", nothing, 0},
	{"spawn", spawn, 2},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(words) / sizeof(words[0]);
	     i++)
		if (!strcmp(words[i].word, argv[1]) &&
		    argc - 2 >= words[i].args)
			return words[i].run(argc - 1, argv + 1);
	fputs("usage: many WORD ARGUMENT...: see bench/many/many.h\n", stderr);
	return 2;
}
