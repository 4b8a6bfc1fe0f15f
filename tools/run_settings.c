/* SPDX-License-Identifier: MIT */
/*
 * run_settings.c - see run_settings.h.
 */
#include "run_settings.h"

#include "stream/poller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STRING(x) #x
#define DIGITS(x) STRING(x)

static bool is_mode(const char *value)
{
	enum poller_mode mode;

	return !poller_mode_find(value, &mode);
}

static bool is_flag(const char *value)
{
	return !strcmp(value, "0") || !strcmp(value, "1");
}

/* Decimal, without a sign, from least to most. */
static bool is_number(const char *value, unsigned long least,
		      unsigned long most)
{
	unsigned long n;

	if (!*value || value[strspn(value, "0123456789")])
		return false;
	errno = 0;
	n = strtoul(value, NULL, 10);
	return !errno && n >= least && n <= most;
}

static bool is_pollers(const char *value)
{
	return is_number(value, 0, POLLER_THREADS_MAX);
}

static bool is_calls(const char *value)
{
	return is_number(value, 1, 1000000000);
}

static bool is_seconds(const char *value)
{
	char *end;

	return *value && !value[strspn(value, "0123456789.")] &&
	       strtod(value, &end) < 1e9 && !*end;
}

static bool is_link(const char *value)
{
	return !strcmp(value, "ethernet") || !strcmp(value, "infiniband");
}

static bool is_devices(const char *value)
{
	return !*value || !strcmp(value, "soft");
}

static bool is_memory(const char *value)
{
	static const char *const kinds[] = {"heap", "mmap", "shm"};
	size_t n, i;

	for (; *value; value += n + (value[n] == ',')) {
		n = strcspn(value, ",");
		for (i = 0; i < 3; i++)
			if (strlen(kinds[i]) == n &&
			    !memcmp(kinds[i], value, n))
				break;
		if (i == 3 || (value[n] && !value[n + 1]))
			return false;
	}
	return true;
}

static const struct {
	const char *name;
	bool (*fits)(const char *value);
	const char *must;
} settings[] = {
	{"SKEIN_RUN_WAIT", is_mode,
	 "must be one of adaptive, bp, bpts, event, bpev, tcp"},
	{"SKEIN_RUN_POLLERS", is_pollers,
	 "must be a number of threads from 0 to " DIGITS(POLLER_THREADS_MAX)},
	{"SKEIN_RUN_REQUIRE", is_flag, "must be 0 or 1"},
	{"SKEIN_RUN_AFTER", is_calls,
	 "must be a number of calls from 1 to 1000000000"},
	{"SKEIN_RUN_IDLE", is_seconds,
	 "must be a number of seconds, 0 for never"},
	{"SKEIN_VERBS_DEVICES", is_devices, "must be soft, or unset for all"},
	{"SKEIN_VERBS_LINK", is_link, "must be ethernet or infiniband"},
	{"SKEIN_VERBS_BACK", is_memory,
	 "must be a list of heap, mmap and shm, with commas, or empty"},
};

#define COUNT (sizeof(settings) / sizeof(*settings))

const char *run_setting_name(unsigned i)
{
	return i < COUNT ? settings[i].name : NULL;
}

const char *run_setting_wrong(const char *name, const char *value)
{
	for (unsigned i = 0; i < COUNT; i++)
		if (!strcmp(settings[i].name, name) && !settings[i].fits(value))
			return settings[i].must;
	return NULL;
}
