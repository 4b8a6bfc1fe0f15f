/* SPDX-License-Identifier: MIT */
/*
 * auth.h - the keyed hash by which both ends prove that they know one key.
 *
 * HMAC-SHA256 of nettle (chosen because it is plain functions over plain
 * structs: no initialisation, no global state, no allocation). Without it the
 * library builds and runs, but a context with a key cannot be opened.
 */
#ifndef SKEIN_CONN_SETUP_AUTH_H
#define SKEIN_CONN_SETUP_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTH_MAC_LEN 32u

struct auth_part {
	const void *buf;
	size_t len;
};

bool auth_available(void);
/* The MAC of the parts, one after the other. Asserts auth_available(). */
void auth_mac(const void *key, size_t key_len, const struct auth_part *parts,
	      unsigned n, uint8_t mac[AUTH_MAC_LEN]);
/* Are they equal? Takes the same time wherever they differ. */
bool auth_equal(const uint8_t *a, const uint8_t *b, size_t len);

#endif
