/* SPDX-License-Identifier: MIT */
/*
 * main.c - ud_rpc, calls over unreliable datagrams in eRPC's manner: a baseline
 * on the device that Skein's own calls use, and no part of the library.
 *
 *	opts.c		options
 *	ctl.c		how the ends meet
 *	serve.c		the server's threads
 *	call.c		the client's, and what they measured
 *	server.c	sessions of a server thread
 *	client.c	the session of a client thread
 *	port.c		a QP of datagrams
 */
#include "ends.h"

#include "env/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ud_end_open(struct ud_end *e, const struct ud_opts *o)
{
	const char *spec = o->device ? o->device : getenv("SKEIN_DEVICE");
	const char *log = getenv("SKEIN_LOG");
	char err[256] = "";
	int rc = env_real_new(&e->env);

	e->o = o;
	if (!rc && log && !strcmp(log, "info")) /* names the device */
		e->env->log_level = ENV_LOG_INFO;
	if (!rc)
		rc = dev_open(e->env, spec, -1, err, sizeof(err), &e->dev);
	if (!rc)
		rc = e->dev->ops->alloc_pd(e->dev, &e->pd);
	if (rc)
		fprintf(stderr, "ud_rpc: %s\n", *err ? err : strerror(-rc));
	return rc ? -1 : 0;
}

void ud_end_close(struct ud_end *e)
{
	if (e->pd)
		e->dev->ops->dealloc_pd(e->dev, e->pd);
	if (e->dev)
		dev_close(e->dev);
	if (e->env)
		env_real_free(e->env);
}

static bool lose(void *arg, const struct ud_head *head)
{
	struct ud_loss *l = arg;

	(void)head;
	return prng_below(&l->rnd, l->one_in) == 0;
}

void ud_loss_init(struct ud_loss *l, const struct ud_opts *o, unsigned thread,
		  struct ud_port_conf *conf)
{
	if (!o->lose)
		return;
	prng_init(&l->rnd, thread + 1);
	l->one_in = o->lose;
	conf->lose = lose;
	conf->lose_arg = l;
}

int main(int argc, char **argv)
{
	struct ud_opts o;
	int rc = ud_opts_parse(argc, argv, &o);

	if (rc >= 0)
		return rc;
	return o.host ? ud_call(&o) : ud_serve(&o);
}
