/* SPDX-License-Identifier: MIT */
/*
 * conform.c - random programs of verbs calls against the reference model.
 *
 *	conform [--device D [--device2 D]] --seeds A..B [--jobs N] [--stop N]
 *	conform [--device D [--device2 D]] --seed N [--print] [--shrink]
 *
 *	conform --compare A,B --seeds A..B
 *
 * --tame: programs in which nothing goes wrong.
 * --types rc,uc,ud: connections of these types only.
 * --srq: all programs have shared receive queues, not only each eighth.
 * --rounds A..B: each program so often; in harsh mode each time it meets
 * something else, the same for the same round (0).
 * --patience S: what has not come after so many seconds never will (20).
 * SKEIN_TEST_ROUNDS=N (more than 10) makes it 100 programs a round.
 */
#include "compare.h"
#include "normal.h"
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
	uint64_t round_from, round_to;
	int jobs;
	uint64_t stop; /* a job ends after so many failures */
	bool print, shrink, tame, srq;
	unsigned types; /* 1 << enum ibv_qp_type; 0: all */
	unsigned patience_s;
	const char *compare;
	FILE *forms;	 /* NULL, or where normal forms go */
	bool lossy, rxe; /* rxe: programs that it understands */
};

static const char *const act_names[M_ACTS] = {
	[M_LATE] = "late local error",
	[M_OTHER] = "other of two errors",
	[M_LOST] = "answer lost",
	[M_CUT] = "region gone under a READ",
	[M_CUT_HERE] = "own region gone under a READ",
	[M_STOP] = "held back by SQD",
	[M_FLY] = "arrived from a QP that was gone",
	[M_SENT] = "arrived from a region that was gone",
};

static void usage(void)
{
	fputs("usage: conform [--tame] [--device D [--device2 D]] --seeds A..B "
	      "[--jobs N] [--stop N]\n"
	      "              [--rounds A..B]\n"
	      "       conform [--tame] [--device D [--device2 D]] --seed N [--print] "
	      "[--shrink]\n"
	      "       conform --compare A,B --seeds A..B\n",
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

static void parse_range(const char *s, uint64_t *from, uint64_t *to)
{
	const char *dots = strstr(s, "..");

	*from = *to = strtoull(s, NULL, 10);
	if (dots)
		*to = strtoull(dots + 2, NULL, 10);
	if (*to < *from)
		usage();
}

static void parse(int argc, char **argv, struct args *a)
{
	static const struct option options[] = {
		{"device", 1, NULL, 'd'},   {"device2", 1, NULL, 'e'},
		{"seeds", 1, NULL, 'r'},    {"seed", 1, NULL, 's'},
		{"jobs", 1, NULL, 'j'},	    {"print", 0, NULL, 'p'},
		{"shrink", 0, NULL, 'k'},   {"stop", 1, NULL, 'x'},
		{"tame", 0, NULL, 't'},	    {"types", 1, NULL, 'y'},
		{"patience", 1, NULL, 'w'}, {"srq", 0, NULL, 'q'},
		{"compare", 1, NULL, 'c'},  {"rounds", 1, NULL, 'n'},
		{NULL, 0, NULL, 0},
	};
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
			parse_range(optarg, &a->from, &a->to);
			break;
		case 'n':
			parse_range(optarg, &a->round_from, &a->round_to);
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
		case 'q':
			a->srq = true;
			break;
		case 'c':
			a->compare = optarg;
			a->tame = true;
			break;
		case 'y':
			a->types = parse_types(optarg);
			break;
		case 'w':
			a->patience_s = (unsigned)atoi(optarg);
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

static void replay_hint(const struct args *a, const struct world *w,
			uint64_t seed)
{
	const char *harsh = getenv("SKEIN_SOFT_HARSH");

	printf("  again: %s%s%sconform --device %s --device2 %s --seed %llu --rounds "
	       "%llu%s%s --shrink\n",
	       harsh ? "SKEIN_SOFT_HARSH=" : "", harsh ? harsh : "",
	       harsh ? " " : "", a->device, a->device2,
	       (unsigned long long)seed, (unsigned long long)w->round,
	       a->tame ? " --tame" : "", a->srq ? " --srq" : "");
}

/* What the audience of a program writes. */
struct scribe {
	const struct args *a;
	const struct program *p;
};

static void write_down(void *arg, const struct epoch *e)
{
	const struct scribe *s = arg;

	if (s->a->forms)
		normal_print(s->p, e, s->a->lossy, s->a->forms);
}

static void run_one(const struct args *a, struct world *w, uint64_t seed,
		    struct program *p, struct tally *t)
{
	struct scribe scribe = {a, p};
	const struct audience to = {write_down, &scribe};
	struct outcome o;
	int i;

	program_make(p, seed, &w->features);
	if (a->print)
		program_print(p, stdout);
	if (a->forms)
		fprintf(a->forms, "seed %llu\n", (unsigned long long)seed);
	program_run(w, p, a->print ? stdout : NULL, &to, &o);
	t->programs++;
	t->epochs += (uint64_t)o.epochs;
	for (i = 0; i < M_ACTS; i++)
		t->used[i] += o.used >> i & 1;
	if (o.ok)
		return;
	t->failed++;
	printf("FAIL seed %llu: %s\n", (unsigned long long)seed, o.why);
	if (!a->shrink) {
		replay_hint(a, w, seed);
		return;
	}
	program_shrink(w, p, &o);
	printf("made small: %s\n", o.why);
	program_print(p, stdout);
	program_run(w, p, stdout, NULL, &o);
}

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

	j->rc = world_open(&w, a->device, a->device2) ? 1 : 0;
	if (j->rc) {
		free(p);
		return;
	}
	w.features.tame = a->tame;
	w.features.types = a->types;
	w.features.srq = a->srq;
	w.features.rxe = a->rxe || w.quirks & M_QUIRK_RXE;
	w.features.no_srq =
		!w.node[0].dev->caps.srq || (w.features.rxe && !a->srq);
	if (a->patience_s)
		w.patience_ns = a->patience_s * 1000000000ull;
	w.complain = a->shrink ? NULL : stdout;
	for (; j->seed <= a->to && t->failed < a->stop;
	     j->seed += (uint64_t)a->jobs)
		for (w.round = a->round_from;
		     w.round <= a->round_to && t->failed < a->stop; w.round++) {
			run_one(a, &w, j->seed, p, t);
			fflush(stdout);
		}
	world_close(&w);
	free(p);
}

static int job(const struct args *a, int no, struct tally *t)
{
	struct job j = {.a = a, .seed = a->from + (uint64_t)no, .t = t};

	return stage_run(a->device, job_do, &j) ? 1 : j.rc;
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

/* One of two devices, in a process of its own. */
static pid_t compete(const struct args *a, const char *name, size_t len,
		     FILE *forms)
{
	struct tally t = {0};
	struct args mine = *a;
	struct contender c;
	pid_t pid;
	int rc;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	if (!contender_init(&c, name, len))
		usage();
	mine.device = c.device;
	mine.device2 = c.device2;
	mine.forms = forms;
	rc = job(&mine, 0, &t);
	fflush(forms);
	printf("%.*s: %llu programs, %llu failed\n", (int)len, name,
	       (unsigned long long)t.programs, (unsigned long long)t.failed);
	exit(rc || t.failed);
}

static int compare(struct args *a)
{
	const char *comma = strchr(a->compare, ',');
	FILE *forms[2] = {tmpfile(), tmpfile()};
	uint64_t programs, differ;
	int status, i, bad = 0;
	pid_t pid[2];

	if (!comma || !forms[0] || !forms[1])
		usage();
	a->jobs = 1;
	a->lossy = strstr(a->compare, "harsh");
	a->rxe = strstr(a->compare, "verbs");
	pid[0] = compete(a, a->compare, (size_t)(comma - a->compare), forms[0]);
	pid[1] = compete(a, comma + 1, strlen(comma + 1), forms[1]);
	for (i = 0; i < 2; i++) {
		waitpid(pid[i], &status, 0);
		bad |= !WIFEXITED(status) || WEXITSTATUS(status);
		rewind(forms[i]);
	}
	differ = forms_compare(forms[0], forms[1], a->compare, &programs);
	printf("%s: %llu programs compared, %llu differ\n", a->compare,
	       (unsigned long long)programs, (unsigned long long)differ);
	return bad || differ || programs != a->to - a->from + 1;
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
	if (a.compare)
		return compare(&a);
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
