/* SPDX-License-Identifier: MIT */
/*
 * vqp_port.h - what the fuzzers' engines need of a world in which nothing
 * happens.
 */
#ifndef SKEIN_TESTS_FUZZ_VQP_PORT_H
#define SKEIN_TESTS_FUZZ_VQP_PORT_H

#include "vqp/engine.h"

#include <stdlib.h>

static inline int no_replace(void *arg, unsigned dci)
{
	(void)arg, (void)dci;
	return 0;
}

static inline int a_way(void *arg, const struct meta_node *n, void **way)
{
	(void)n;
	*way = arg;
	return 0;
}

static inline void no_way(void *arg, void *way)
{
	(void)arg, (void)way;
}

static inline void *from_heap(void *arg, size_t len)
{
	(void)arg;
	return calloc(1, len);
}

static inline void to_heap(void *arg, void *p)
{
	(void)arg;
	free(p);
}

static inline void no_log(void *arg, const char *line)
{
	(void)arg, (void)line;
}

#define PORT_OF_NOTHING                                          \
	.replace = no_replace, .way = a_way, .way_free = no_way, \
	.alloc = from_heap, .free = to_heap, .log = no_log

#endif
