/* SPDX-License-Identifier: MIT */
/*
 * calib.h - what `skein perf calibrate` has measured of a device: calls a
 * second, replied and fetched, by how long the server's handler takes, with
 * processors to spare; and in-bound READs a second by size (RF-RPC, sections
 * 3.2 and 3.3; docs/design/rf-rpc.md).
 *
 * Pure: the file's text comes in and goes out. The text is lines of words:
 *
 *	skein-calibration 1
 *	key DEVICE, FIRMWARE, VERSION
 *	time NS REPLIED FETCHED		by rising NS
 *	read BYTES READS		by rising BYTES
 *	sum CRC				in hexadecimal, of all before this line
 */
#ifndef SKEIN_RPC_CLIENT_CALIB_H
#define SKEIN_RPC_CLIENT_CALIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPC_CALIB_POINTS 16u
#define RPC_CALIB_TEXT_MAX 4096u
#define RPC_CALIB_KEY_MAX 256u /* with its end */

struct rpc_calib_row {
	uint32_t ns;
	uint32_t replied, fetched; /* calls a second; not 0 */
};

struct rpc_calib_read {
	uint32_t bytes; /* not 0 */
	uint32_t rate;	/* a second; not 0 */
};

struct rpc_calib {
	unsigned n_times; /* at least 1 */
	unsigned n_reads;
	struct rpc_calib_row times[RPC_CALIB_POINTS];
	struct rpc_calib_read reads[RPC_CALIB_POINTS];
};

/* Does fetching give more calls a second at this response time? time: as in
 * rpc_resp_meta, not 0. Between two points by a line; beyond the last point as
 * there. */
bool rpc_calib_fetch(const struct rpc_calib *c, uint16_t time);

/* Up to this response time fetching gives a tenth more (section 3.3: "within
 * 10 %"), by a line between two points; 0: at no point. */
uint32_t rpc_calib_crossover_ns(const struct rpc_calib *c);
/* L and H of section 3.3: up to *least bytes a READ costs no more than a short
 * one, from *most on bandwidth is what limits. Both 0 without reads. */
void rpc_calib_range(const struct rpc_calib *c, uint32_t *least,
		     uint32_t *most);

/* How long a READ of so many bytes takes the NIC, with many under way: between
 * two points by a line, beyond the last one by its bytes. There are reads. */
double rpc_calib_read_ns(const struct rpc_calib *c, uint32_t bytes);

/* The text of a calibration, terminated: its length, or 0 if it does not fit
 * len. */
size_t rpc_calib_encode(const struct rpc_calib *c, const char *key, char *text,
			size_t len);
/* 0; or -EINVAL, and *why in a few words: the text is damaged, of another
 * format, or was measured under another key. */
int rpc_calib_decode(const char *text, size_t len, const char *key,
		     struct rpc_calib *c, const char **why);

#endif
