/* SPDX-License-Identifier: MIT */
/*
 * conf.h - the settings of streams, for contexts and for `skein run`.
 */
#ifndef SKEIN_STREAM_CONF_H
#define SKEIN_STREAM_CONF_H

#include <stddef.h>
#include <stdint.h>

struct stream_conf {
	uint32_t qps; /* that streams of two processes share; 0: one each */
	size_t mem;   /* bytes of all streams */
	size_t ring;  /* a ring that grows has at most so many */
};

/* From the environment. -EINVAL or -ERANGE, and a line that says why. */
int stream_conf_load(struct stream_conf *c, char *err, size_t err_len);

#endif
