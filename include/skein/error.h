/* SPDX-License-Identifier: MIT */
/*
 * error.h - how Skein says what went wrong.
 *
 * Functions return 0 or a negative error: an errno value where one says it
 * exactly, else one of the causes below (always negated, as errno values are).
 */
#ifndef SKEIN_ERROR_H
#define SKEIN_ERROR_H

#include <skein/version.h>

#ifdef __cplusplus
extern "C" {
#endif

enum skein_error {
	/* the peer speaks a version of the protocol that we do not */
	SKEIN_EVERSION = 4096,
	/* the peer sent bytes that the protocol does not allow */
	SKEIN_EPEER,
	/* the shared keys differ, or only one end has one */
	SKEIN_EAUTH,
	/* the peer's process is gone */
	SKEIN_EDEAD,
	/* the peer has too many handshakes under way: try later */
	SKEIN_EBUSY,
	/* this process is a forked child: the context stayed with the parent */
	SKEIN_EFORKED,
	/* no handler is registered for this RPC id */
	SKEIN_ENOHANDLER,
	/* the peer is out of memory, queue pairs or descriptors */
	SKEIN_ERESOURCE,
};

/* What became of a call or an operation. */
enum skein_outcome {
	SKEIN_DONE,	/* it was executed (or the peer's library refused it for
			   a reason of its own), and its result is known */
	SKEIN_NOT_SENT, /* it was never executed, and never will be */
	SKEIN_UNKNOWN,	/* it may have been executed */
};

/* Words for an error; takes negative or positive values. A constant string,
 * never NULL. Any thread. */
SKEIN_API const char *skein_strerror(int err);

#ifdef __cplusplus
}
#endif
#endif
