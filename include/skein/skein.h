/* SPDX-License-Identifier: MIT */
/*
 * skein.h - all of Skein's public interface.
 *
 *	ctx.h	a context: device, engines, waiting
 *	conn.h	listening, connecting, connections and their errors
 *	rpc.h	calls and handlers
 *	mem.h	shared memory and one-sided operations
 *	mcast.h	one sender, many receivers
 *	stream.h	byte streams
 *	vqp.h	connections in microseconds
 */
#ifndef SKEIN_SKEIN_H
#define SKEIN_SKEIN_H

#include <skein/conn.h>
#include <skein/ctx.h>
#include <skein/error.h>
#include <skein/mcast.h>
#include <skein/mem.h>
#include <skein/rpc.h>
#include <skein/stream.h>
#include <skein/version.h>
#include <skein/vqp.h>

#endif
