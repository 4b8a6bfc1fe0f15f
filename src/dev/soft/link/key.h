/* SPDX-License-Identifier: MIT */
/*
 * key.h - the key of the link between hosts: SKEIN_LINK_KEY names a file. With
 * a key packets go sealed or not at all, unless SKEIN_LINK_CLEAR=1.
 */
#ifndef SKEIN_DEV_SOFT_LINK_KEY_H
#define SKEIN_DEV_SOFT_LINK_KEY_H

#include "dev/soft/link/seal.h"
#include "dev/soft/soft.h"

struct soft_link_key {
	bool clear_too;
	uint8_t psk[SEAL_KEY];
};

/* Reads both settings into s->link_key. -errno, with one line in why. */
int soft_link_key_read(struct soft *s, char *why, size_t len);
void soft_link_key_free(struct soft *s);

/* May packets go, and come, as they are? */
static inline bool soft_link_clear(const struct soft *s)
{
	return !s->link_key || s->link_key->clear_too;
}

#endif
