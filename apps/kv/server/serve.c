/* SPDX-License-Identifier: MIT */
/*
 * serve.c - which transports serve, and where their threads run.
 */
#include "kv/server/serve.h"

#include "base/assert.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

int kv_serve_start(const struct kv_serve_attr *attr, struct kv_serve **serve)
{
	static const struct kv_serve_ops *const ops[KV_TRANSPORTS] = {
		&kv_serve_skein,
		&kv_serve_tcp,
		&kv_serve_tcp,
	};

	skein_assert(attr->transport < KV_TRANSPORTS);
	if (attr->workers && attr->transport != KV_SKEIN)
		return -EINVAL;
	return ops[attr->transport]->start(attr, serve);
}

void kv_serve_stop(struct kv_serve *serve)
{
	if (serve)
		serve->ops->stop(serve);
}

int kv_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return 0;
	if (cpu >= CPU_SETSIZE)
		return -EINVAL;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return -pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

int kv_pin_parse(const char *text, unsigned threads, int *cpu)
{
	long first, cpus = sysconf(_SC_NPROCESSORS_CONF);
	char *end;

	if (!text) {
		*cpu = -1;
		return 0;
	}
	first = strtol(text, &end, 10);
	if (end == text || *end || first < 0 || first + (long)threads > cpus)
		return -EINVAL;
	*cpu = (int)first;
	return 0;
}
