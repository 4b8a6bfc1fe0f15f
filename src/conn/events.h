/* SPDX-License-Identifier: MIT */
/*
 * events.h - asynchronous events of the device, told to whom they concern.
 */
#ifndef SKEIN_CONN_EVENTS_H
#define SKEIN_CONN_EVENTS_H

#include "conn/ctx.h"

/* The first engine of a context watches for events. 0 or a negative errno. */
int events_watch(struct skein_engine *eng);
void events_unwatch(struct skein_engine *eng);
/* Reads them, and breaks connections of this engine that they name. Returns
 * as beat(). Owner only. */
int events_beat(struct skein_engine *eng);
/* The same, by any engine and at once: a QP was flushed, and nobody knows yet
 * why. Owner only. */
void events_now(struct skein_engine *eng);

#endif
