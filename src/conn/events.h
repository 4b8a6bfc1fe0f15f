/* SPDX-License-Identifier: MIT */
/*
 * events.h - asynchronous events of the device, and the connections that they
 * break.
 */
#ifndef SKEIN_CONN_EVENTS_H
#define SKEIN_CONN_EVENTS_H

#include "conn/ctx.h"

/* The first engine of a context watches for events. 0 or a negative errno. */
int events_watch(struct skein_engine *eng);
void events_unwatch(struct skein_engine *eng);
/* Reads events if eng is the default engine, and breaks the connections of eng
 * that events name. Returns as beat(). Owner only. */
int events_beat(struct skein_engine *eng);
/* The same at once, and any engine reads: a QP was flushed, and an event may
 * say why. Owner only. */
void events_now(struct skein_engine *eng);

#endif
