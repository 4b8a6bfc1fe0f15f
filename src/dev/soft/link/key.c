/* SPDX-License-Identifier: MIT */
/*
 * key.c - see key.h.
 */
#include "dev/soft/link/key.h"

#include "dev/soft/link/link.h"
#include "env/key_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX 4096

static int read_psk(const char *file, uint8_t psk[SEAL_KEY], const char **why)
{
	char line[LINE_MAX];
	size_t len;
	int fd, err;

	err = key_file_open(file, &fd, why);
	if (err)
		return err;
	err = key_file_line(fd, line, sizeof(line), &len, why);
	close(fd);
	if (!err)
		seal_psk(line, len, psk);
	explicit_bzero(line, sizeof(line));
	return err;
}

static int read_clear(bool *clear)
{
	const char *v = getenv("SKEIN_LINK_CLEAR");

	*clear = v && !strcmp(v, "1");
	return *clear || !v || !*v || !strcmp(v, "0") ? 0 : -EINVAL;
}

int soft_link_key_read(struct soft *s, char *why, size_t len)
{
	const char *file = getenv("SKEIN_LINK_KEY"), *what = "memory";
	struct soft_link_key *k;
	bool clear;
	int err = read_clear(&clear);

	if (err) {
		snprintf(why, len, "SKEIN_LINK_CLEAR is 1 or 0");
		return err;
	}
	if (!file)
		return 0;
	/* An unset variable of a script must not turn the key off. */
	if (!*file) {
		snprintf(why, len,
			 "SKEIN_LINK_KEY is empty: name a file, or unset it");
		return -EINVAL;
	}
	if (!seal_available()) {
		snprintf(why, len,
			 "SKEIN_LINK_KEY needs a library built with "
			 "nettle and hogweed");
		return -EOPNOTSUPP;
	}
	k = env_alloc(s->env, sizeof(*k));
	s->link_key = k;
	err = k ? read_psk(file, k->psk, &what) : -ENOMEM;
	if (err) {
		snprintf(why, len, "SKEIN_LINK_KEY: %.64s: %s", file, what);
		return err;
	}
	k->clear_too = clear;
	if (!k->clear_too && s->link_mode == SOFT_LINK_UDP) {
		err = -EINVAL;
		snprintf(why, len,
			 "SKEIN_LINK=udp cannot be sealed: SKEIN_LINK=tcp, or "
			 "SKEIN_LINK_CLEAR=1, or no SKEIN_LINK_KEY");
	}
	return err;
}

void soft_link_key_free(struct soft *s)
{
	if (s->link_key)
		explicit_bzero(s->link_key, sizeof(*s->link_key));
	env_free(s->env, s->link_key);
}
