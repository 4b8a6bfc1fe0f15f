/* SPDX-License-Identifier: MIT */
/*
 * conform.c - random programs of verbs calls against the reference model.
 *
 *	conform [--device D [--device2 D]] --seeds A..B [--jobs N] [--stop N]
 *	conform [--device D [--device2 D]] --seed N [--print] [--shrink]
 *
 * --tame: programs in which nothing goes wrong.
 * --types rc,uc,ud: connections of these types only.
 * SKEIN_TEST_ROUNDS=N (more than 10) makes it 100 programs a round.
 */
#include "run.h"
#include "shrink.h"
#include "stage.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct args {
	const char *device, *device2;
	uint64_t from, to; /* both included */
	int jobs;
	uint64_t stop; /* a job ends after so many failures */
	bool print, shrink, tame;
	unsigned types; /* 1 << enum ibv_qp_type; 0: all */
};

static const char *const act_names[M_ACTS] = {
	[M_LATE] = "late local error", [M_OTHER] = "other of two errors",
	[M_LOST] = "answer lost",      [M_CUT] = "region gone under a READ",
	[M_STOP] = "held back by SQD",
};

static void usage(void)
{
	fputs("usage: conform [--tame] [--device D [--device2 D]] --seeds A..B "
	      "[--jobs N] [--stop N]\n"
	      "       conform [--tame] [--device D [--device2 D]] --seed N [--print] "
	      "[--shrink]\n",
	      stderr);
	exit(2);
}

static unsigned parse_types(const char *s)
{
	unsigned types = 0;

	if (strstr(s, "rc"))
		types |= 1u << IBV_QPT_RC;
	if (strstr(s, "uc"))
		types |= 1u << IBV_QPT_UC;
	if (strstr(s, "ud"))
		types |= 1u << IBV_QPT_UD;
	if (!types)
		usage();
	return types;
}

static void parse(int argc, char **argv, struct args *a)
{
	static const struct option options[] = {
		{"device", 1, NULL, 'd'}, {"device2", 1, NULL, 'e'},
		{"seeds", 1, NULL, 'r'},  {"seed", 1, NULL, 's'},
		{"jobs", 1, NULL, 'j'},	  {"print", 0, NULL, 'p'},
		{"shrink", 0, NULL, 'k'}, {"stop", 1, NULL, 'x'},
		{"tame", 0, NULL, 't'},	  {"types", 1, NULL, 'y'},
		{NULL, 0, NULL, 0},
	};
	char *dots;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			a->device = optarg;
			break;
		case 'e':
			a->device2 = optarg;
			break;
		case 'r':
			dots = strstr(optarg, "..");
			if (!dots)
				usage();
			a->from = strtoull(optarg, NULL, 10);
			a->to = strtoull(dots + 2, NULL, 10);
			break;
		case 's':
			a->from = a->to = strtoull(optarg, NULL, 10);
			break;
		case 'j':
			a->jobs = atoi(optarg);
			break;
		case 'x':
			a->stop = strtoull(optarg, NULL, 10);
			break;
		case 't':
			a->tame = true;
			break;
		case 'y':
			a->types = parse_types(optarg);
			break;
		case 'p':
			a->print = true;
			break;
		case 'k':
			a->shrink = true;
			break;
		default:
			usage();
		}
	}
	if (optind < argc || a->to < a->from || a->jobs < 1)
		usage();
}

/* What a job hands to the parent. */
struct tally {
	uint64_t programs, epochs, failed;
	uint64_t used[M_ACTS];
};

static void replay_hint(const struct args *a, uint64_t seed)
{
	const char *harsh = getenv("SKEIN_SOFT_HARSH");

	printf("  again: %s%s%sconform --device %s --device2 %s --seed %llu%s "
	       "--shrink\n",
	       harsh ? "SKEIN_SOFT_HARSH=" : "", harsh ? harsh : "",
	       harsh ? " " : "", a->device, a->device2,
	       (unsigned long long)seed, a->tame ? " --tame" : "");
}

static void run_one(const struct args *a, struct world *w, uint64_t seed,
		    struct program *p, struct tally *t)
{
	struct outcome o;
	int i;

	program_make(p, seed, &w->features);
	if (a->print)
		program_print(p, stdout);
	program_run(w, p, a->print ? stdout : NULL, NULL, &o);
	t->programs++;
	t->epochs += (uint64_t)o.epochs;
	for (i = 0; i < M_ACTS; i++)
		t->used[i] += o.used >> i & 1;
	if (o.ok)
		return;
	t->failed++;
	printf("FAIL seed %llu: %s\n", (unsigned long long)seed, o.why);
	if (!a->shrink) {
		replay_hint(a, seed);
		return;
	}
	program_shrink(w, p, &o);
	printf("made small: %s\n", o.why);
	program_print(p, stdout);
	program_run(w, p, stdout, NULL, &o);
}

/* Programs in one world: soft keeps a descriptor for each channel that a peer
 * had (docs/soft.md, known gaps). */
#define WORLD_PROGRAMS 2000

struct job {
	const struct args *a;
	uint64_t seed; /* the next */
	struct tally *t;
	int rc;
};

static void job_do(void *arg)
{
	struct job *j = arg;
	const struct args *a = j->a;
	struct tally *t = j->t;
	struct program *p = malloc(sizeof(*p));
	struct world w;
	int n;

	j->rc = world_open(&w, a->device, a->device2) ? 1 : 0;
	if (j->rc) {
		free(p);
		return;
	}
	w.features.tame = a->tame;
	w.features.types = a->types;
	w.features.no_fence = w.quirks & M_QUIRK_RXE;
	w.complain = a->shrink ? NULL : stdout;
	for (n = 0;
	     n < WORLD_PROGRAMS && j->seed <= a->to && t->failed < a->stop;
	     n++, j->seed += (uint64_t)a->jobs) {
		run_one(a, &w, j->seed, p, t);
		fflush(stdout);
	}
	world_close(&w);
	free(p);
}

static int job(const struct args *a, int no, struct tally *t)
{
	struct job j = {.a = a, .seed = a->from + (uint64_t)no, .t = t};

	while (!j.rc && j.seed <= a->to && t->failed < a->stop)
		if (stage_run(a->device, job_do, &j))
			return 1;
	return j.rc;
}

/* Each job in a process of its own: the devices are its own as well. */
static bool spawn(const struct args *a, struct tally *sum)
{
	int pipes[64][2], i, k, status;
	pid_t pid[64];
	bool ok = true;

	for (i = 0; i < a->jobs; i++) {
		if (pipe(pipes[i]))
			exit(1);
		fflush(stdout);
		pid[i] = fork();
		if (pid[i] == 0) {
			struct tally t = {0};
			int rc = job(a, i, &t);

			if (write(pipes[i][1], &t, sizeof(t)) != sizeof(t))
				rc = 1;
			exit(rc);
		}
		close(pipes[i][1]);
	}
	for (i = 0; i < a->jobs; i++) {
		struct tally t = {0};

		if (read(pipes[i][0], &t, sizeof(t)) != sizeof(t))
			ok = false;
		waitpid(pid[i], &status, 0);
		ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
		sum->programs += t.programs;
		sum->epochs += t.epochs;
		sum->failed += t.failed;
		for (k = 0; k < M_ACTS; k++)
			sum->used[k] += t.used[k];
	}
	return ok;
}

int main(int argc, char **argv)
{
	struct args a = {.jobs = 1, .stop = 20};
	struct tally sum = {0};
	const char *rounds;
	bool ok;
	int i;

	a.device = getenv("SKEIN_TEST_DEVICE");
	a.device2 = getenv("SKEIN_TEST_DEVICE2");
	parse(argc, argv, &a);
	if (!a.device || !*a.device)
		a.device = "soft";
	if (!a.device2 || !*a.device2)
		a.device2 = a.device;
	if (a.jobs > 64)
		a.jobs = 64;
	rounds = getenv("SKEIN_TEST_ROUNDS");
	if (rounds && a.to > a.from && atoll(rounds) > 10)
		a.to = a.from + 100 * (uint64_t)atoll(rounds) - 1;
	ok = spawn(&a, &sum);
	printf("%s, %s: %llu programs, %llu epochs, %llu failed\n", a.device,
	       a.device2, (unsigned long long)sum.programs,
	       (unsigned long long)sum.epochs, (unsigned long long)sum.failed);
	for (i = 0; i < M_ACTS; i++)
		if (act_names[i])
			printf("  programs that needed \"%s\": %llu\n",
			       act_names[i], (unsigned long long)sum.used[i]);
	if (!ok)
		printf("a job did not end well\n");
	return ok && sum.programs && !sum.failed ? 0 : 1;
}
