/* SPDX-License-Identifier: MIT */
/*
 * conf.c - SKEIN_STREAM_*.
 */
#include "stream/conf.h"

#include "base/conf.h"
#include "stream/host.h"
#include "stream/ring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define QPS_MAX 4u
/* Of one stream, before it grows. */
#define STREAM_MEM_MIN (40u << 10)
_Static_assert(STREAM_MEM_MIN >= STREAM_HOST_LEN(STREAM_RING_FIRST),
	       "a stream fits");

static const struct conf_row rows[] = {
	CONF_RANGE(struct stream_conf, qps, "STREAM_QPS", "1",
		   "QPs that the streams of two processes share; 0: each "
		   "stream has its own",
		   conf_u32, 0, QPS_MAX),
	CONF_RANGE(struct stream_conf, mem, "STREAM_MEM", "1G",
		   "bytes that the streams of a process may take", conf_size,
		   STREAM_MEM_MIN, 0),
	CONF_RANGE(struct stream_conf, ring, "STREAM_RING", "4M",
		   "bytes up to which the ring of a stream grows, a power of "
		   "two",
		   conf_size, STREAM_RING_MIN, STREAM_RING_MAX),
	CONF_END};

static const char *lookup(void *arg, const char *name)
{
	return getenv(name);
}

int stream_conf_load(struct stream_conf *c, char *err, size_t err_len)
{
	struct stream_conf conf;
	int rc;

	conf_defaults(rows, &conf);
	rc = conf_load(rows, &conf, lookup, NULL, err, err_len);
	if (rc)
		return rc;
	if (conf.ring & (conf.ring - 1)) {
		snprintf(err, err_len,
			 "SKEIN_STREAM_RING=%s: not a power of two from 16K to "
			 "4M",
			 getenv("SKEIN_STREAM_RING"));
		return -ERANGE;
	}
	*c = conf;
	return 0;
}
