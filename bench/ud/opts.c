/* SPDX-License-Identifier: MIT */
/*
 * opts.c - see opts.h.
 */
#include "opts.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: ud_rpc [options]         the server, of one client\n"
	"       ud_rpc [options] HOST    the client, which measures\n"
	"\n"
	"Calls over unreliable datagrams, in eRPC's manner: a baseline beside\n"
	"`skein perf rpc`. Each thread has a QP of its own and polls; pin\n"
	"the two ends to measure.\n"
	"\n"
	"  -p, --port N         rendezvous (default 18515; 0: a free one)\n"
	"      --device SPEC    as skein's (SKEIN_DEVICE, or chosen)\n"
	"      --threads N      of this end (1); a client thread has one session,\n"
	"                       with the server's threads by turns\n"
	"      --lose N         this end loses one datagram in N on purpose\n"
	"      --json           one JSON object instead of lines (client)\n"
	"  -h, --help\n"
	"\n"
	"the client's:\n"
	"  -s, --size N         bytes of a request and its response (64)\n"
	"  -t, --window N       calls outstanding of each thread (1)\n"
	"      --credits N      of a session (as many as the window)\n"
	"  -D, --duration T     100ms, 2s (1s); its first fifth is not measured\n"
	"  -n, --calls N        of each thread, instead; all are measured\n"
	"      --timeout T      until a request is sent again (5ms)\n"
	"      --check          each response's bytes are compared\n"
	"\n"
	"the server's:\n"
	"      --recvs N        receives of a session (its credits; fewer: loss)\n";

enum {
	LONG_FIRST = 256,
	DEVICE,
	THREADS,
	LOSE,
	JSON,
	CREDITS,
	TIMEOUT,
	CHECK,
	RECVS
};

static const struct option longs[] = {
	{"port", required_argument, NULL, 'p'},
	{"device", required_argument, NULL, DEVICE},
	{"threads", required_argument, NULL, THREADS},
	{"lose", required_argument, NULL, LOSE},
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, 'h'},
	{"size", required_argument, NULL, 's'},
	{"window", required_argument, NULL, 't'},
	{"credits", required_argument, NULL, CREDITS},
	{"duration", required_argument, NULL, 'D'},
	{"calls", required_argument, NULL, 'n'},
	{"timeout", required_argument, NULL, TIMEOUT},
	{"check", no_argument, NULL, CHECK},
	{"recvs", required_argument, NULL, RECVS},
	{NULL, 0, NULL, 0},
};

static bool number(const char *text, uint64_t low, uint64_t high, uint64_t *n)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || value < low ||
	    value > high)
		return false;
	*n = value;
	return true;
}

static bool duration(const char *text, uint64_t *ns)
{
	char *end;
	double value = strtod(text, &end), unit = 1e9;

	if (!strcmp(end, "ms"))
		unit = 1e6;
	else if (!strcmp(end, "us"))
		unit = 1e3;
	else if (*end && strcmp(end, "s") != 0)
		return false;
	if (end == text || !(value * unit >= 1e3) || value * unit > 1e12)
		return false;
	*ns = (uint64_t)(value * unit);
	return true;
}

/* false: the value makes no sense. */
static bool take(int letter, const char *text, struct ud_opts *o)
{
	switch (letter) {
	case 'p':
		return number(text, 0, 65535, &o->port);
	case 's':
		return number(text, 1, 65535, &o->size);
	case 't':
		return number(text, 1, UD_WINDOW_MAX, &o->window);
	case 'n':
		return number(text, 1, UINT64_MAX, &o->calls);
	case 'D':
		return duration(text, &o->duration_ns);
	case DEVICE:
		o->device = text;
		return true;
	case THREADS:
		return number(text, 1, UD_THREADS_MAX, &o->threads);
	case LOSE:
		return number(text, 2, UINT32_MAX, &o->lose);
	case CREDITS:
		return number(text, 1, UD_WINDOW_MAX, &o->credits);
	case TIMEOUT:
		return duration(text, &o->timeout_ns);
	case RECVS:
		return number(text, 1, UD_WINDOW_MAX, &o->recvs);
	case JSON:
		o->json = true;
		return true;
	default:
		o->check = true;
		return true;
	}
}

int ud_opts_parse(int argc, char **argv, struct ud_opts *o)
{
	int letter, at = -1;

	*o = (struct ud_opts){.port = 18515,
			      .threads = 1,
			      .size = 64,
			      .window = 1,
			      .duration_ns = 1000000000,
			      .timeout_ns = 5000000};
	while ((letter = getopt_long(argc, argv, "p:s:t:n:D:h", longs, &at)) !=
	       -1) {
		if (letter == 'h') {
			fputs(help, stdout);
			return 0;
		}
		if (letter == '?')
			return 2;
		if (!take(letter, optarg, o)) {
			fprintf(stderr, "ud_rpc: %s cannot be \"%s\"\n",
				argv[optind - 1 - (argv[optind - 1] == optarg)],
				optarg);
			return 2;
		}
	}
	if (argc - optind > 1) {
		fprintf(stderr, "ud_rpc: one HOST, not \"%s\" too\n",
			argv[optind + 1]);
		return 2;
	}
	o->host = argv[optind];
	if (!o->credits)
		o->credits = o->window;
	return -1;
}
