/* SPDX-License-Identifier: MIT */
/*
 * strerror.c - words for errors, and the version.
 */
#include <errno.h>
#include <skein/error.h>
#include <skein/version.h>
#include <string.h>

#define AT(err) [(err) & (SKEIN_EVERSION - 1)]

static const char *const words[] = {
	AT(SKEIN_EVERSION) = "the peer speaks another version of the protocol",
	AT(SKEIN_EPEER) = "the peer sent what the protocol does not allow",
	AT(SKEIN_EAUTH) = "authentication failed",
	AT(SKEIN_EDEAD) = "the peer is gone",
	AT(SKEIN_EBUSY) = "the peer is too busy: try later",
	AT(SKEIN_EFORKED) =
		"this is a forked child: the context stayed with the parent",
	AT(SKEIN_ENOHANDLER) = "no handler is registered for this RPC id",
	AT(SKEIN_ERESOURCE) =
		"the peer is out of memory, queue pairs or descriptors",
};

const char *skein_strerror(int err)
{
	const char *text;

	if (err < 0)
		err = -err;
	if (err >= SKEIN_EVERSION &&
	    err < SKEIN_EVERSION + (int)(sizeof(words) / sizeof(words[0])))
		return words[err - SKEIN_EVERSION];
	/* A name that nobody knows; the system's words speak of assignments. */
	if (err == EADDRNOTAVAIL)
		return "no such host, or no such address here: check the name";
	/* The same: of references that cannot be spliced. */
	if (err == ETOOMANYREFS)
		return "too many descriptors of this user are under way "
		       "between processes: raise ulimit -n";
	/* Constant strings, and not subject to the locale. */
	text = strerrordesc_np(err);
	return text ? text : "unknown error";
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *skein_version(void)
{
	return TEXT(SKEIN_VERSION_MAJOR) "." TEXT(SKEIN_VERSION_MINOR) "." TEXT(
		SKEIN_VERSION_PATCH);
}
