/* SPDX-License-Identifier: MIT */
/*
 * compare.c - see compare.h.
 */
#include "compare.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LINE 4096
#define HARSH "soft-harsh"

bool contender_init(struct contender *c, const char *name, size_t len)
{
	const char *plus = memchr(name, '+', len);
	size_t one = plus ? (size_t)(plus - name) : len;

	memset(c, 0, sizeof(*c));
	if (!len || len >= sizeof(c->device))
		return false;
	if (len == strlen(HARSH) && !memcmp(name, HARSH, len)) {
		if (!getenv("SKEIN_SOFT_HARSH"))
			setenv("SKEIN_SOFT_HARSH", "1", 1);
		strcpy(c->device, "soft");
		strcpy(c->device2, "soft");
		return true;
	}
	unsetenv("SKEIN_SOFT_HARSH");
	memcpy(c->device, name, one);
	if (plus)
		memcpy(c->device2, plus + 1, len - one - 1);
	else
		memcpy(c->device2, name, one);
	return true;
}

static bool is_seed(const char *line)
{
	return !strncmp(line, "seed ", 5);
}

/* To the next program, or the end. */
static bool skip(FILE *f, char line[LINE])
{
	while (!is_seed(line))
		if (!fgets(line, LINE, f))
			return false;
	return true;
}

uint64_t forms_compare(FILE *a, FILE *b, const char *names, uint64_t *programs)
{
	char la[LINE] = "", lb[LINE] = "", seed[32] = "";
	uint64_t differ = 0;
	bool more_a, more_b;

	*programs = 0;
	for (;;) {
		more_a = fgets(la, LINE, a);
		more_b = fgets(lb, LINE, b);
		if (!more_a && !more_b)
			return differ;
		if (more_a && more_b && !strcmp(la, lb)) {
			if (is_seed(la)) {
				snprintf(seed, sizeof(seed), "%.30s", la);
				++*programs;
			}
			continue;
		}
		differ++;
		seed[strcspn(seed, "\n")] = '\0';
		printf("DIFFER (%s) %s\n  %s  %s", names, seed,
		       more_a ? la : "nothing\n", more_b ? lb : "nothing\n");
		if (!more_a || !more_b || !skip(a, la) || !skip(b, lb))
			return differ;
		if (strcmp(la, lb) != 0) {
			printf("  and not the same programs\n");
			return differ;
		}
		snprintf(seed, sizeof(seed), "%.30s", la);
		++*programs;
	}
}
