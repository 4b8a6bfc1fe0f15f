/* SPDX-License-Identifier: MIT */
/*
 * gather.c - see gather.h.
 */
#include "cp/sender/gather.h"

#include <errno.h>
#include <stdbool.h>
#include <skein/error.h>

#define PAUSE_MIN_NS 50000000u
#define PAUSE_MAX_NS 1000000000u

void cp_gather_init(struct cp_gather *g, enum cp_wait_for wait_for,
		    struct cp_candidate *v, size_t n, uint64_t now_ns,
		    uint64_t greeting_ns, uint64_t timeout_ns)
{
	*g = (struct cp_gather){.wait_for = wait_for, .v = v, .n = n};
	g->end_ns = now_ns + timeout_ns;
	g->greeting_end_ns = g->end_ns;
	if (greeting_ns && greeting_ns < timeout_ns)
		g->greeting_end_ns = now_ns + greeting_ns;
	for (size_t i = 0; i < n; i++)
		v[i] = (struct cp_candidate){.pause_ns = PAUSE_MIN_NS};
}

void cp_gather_ready(struct cp_gather *g, size_t i)
{
	g->v[i].there = CP_THERE_YES;
	g->v[i].err = 0;
}

/* Skein is there and cannot take one more just now. */
static bool is_busy(int err)
{
	switch (-err) {
	case SKEIN_EBUSY:
	case SKEIN_ERESOURCE:
	case EAGAIN:
	case ENOMEM:
	case ENOBUFS:
	case EMFILE:
	case ENFILE:
		return true;
	default:
		return false;
	}
}

/* Nobody is there, or nobody yet. */
static bool is_absent(int err)
{
	switch (-err) {
	case ECONNREFUSED:
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENETUNREACH:
	case ENETDOWN:
	case ESHUTDOWN:
	case ENOTCONN:
		return true;
	default:
		return false;
	}
}

void cp_gather_failed(struct cp_gather *g, size_t i, int err, uint64_t now_ns)
{
	struct cp_candidate *c = &g->v[i];

	c->err = err;
	/* --wait-for most and all wait for hosts that are being started */
	if (!is_busy(err) && (g->wait_for == CP_WAIT_ANY || !is_absent(err))) {
		c->there = CP_THERE_NO;
		return;
	}
	c->there = CP_THERE_PAUSE;
	c->again_ns = now_ns + c->pause_ns;
	c->pause_ns *= 2;
	if (c->pause_ns > PAUSE_MAX_NS)
		c->pause_ns = PAUSE_MAX_NS;
}

void cp_gather_again(struct cp_gather *g, size_t i)
{
	g->v[i].there = CP_THERE_TRYING;
}

size_t cp_gather_need(const struct cp_gather *g)
{
	if (g->wait_for == CP_WAIT_ALL)
		return g->n;
	return g->wait_for == CP_WAIT_MOST ? g->n / 2 + 1 : 1;
}

enum cp_gathered cp_gather_decide(const struct cp_gather *g, uint64_t now_ns)
{
	size_t yes = 0, no = 0, need = cp_gather_need(g);

	for (size_t i = 0; i < g->n; i++) {
		yes += g->v[i].there == CP_THERE_YES;
		no += g->v[i].there == CP_THERE_NO;
	}
	if (g->n - no < need)
		return CP_GATHER_FAIL;
	if (yes >= need && (yes + no == g->n || now_ns >= g->greeting_end_ns))
		return CP_GATHER_BEGIN;
	return now_ns >= g->end_ns ? CP_GATHER_FAIL : CP_GATHER_WAIT;
}

uint64_t cp_gather_next(const struct cp_gather *g, uint64_t now_ns)
{
	uint64_t next =
		now_ns < g->greeting_end_ns ? g->greeting_end_ns : g->end_ns;

	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].there == CP_THERE_PAUSE && g->v[i].again_ns < next)
			next = g->v[i].again_ns;
	return next;
}
