/* SPDX-License-Identifier: MIT */
/*
 * strerror.c - words for errors, and the version.
 */
#include <errno.h>
#include <skein/error.h>
#include <skein/version.h>
#include <string.h>

static const char *const words[] = {
	[SKEIN_EVERSION - SKEIN_EVERSION] =
		"the peer speaks another version of the protocol",
	[SKEIN_EPEER - SKEIN_EVERSION] =
		"the peer sent what the protocol does not allow",
	[SKEIN_EAUTH - SKEIN_EVERSION] = "authentication failed",
	[SKEIN_EDEAD - SKEIN_EVERSION] = "the peer is gone",
	[SKEIN_EBUSY - SKEIN_EVERSION] = "the peer is too busy: try later",
	[SKEIN_EFORKED - SKEIN_EVERSION] =
		"this is a forked child: the context stayed with the parent",
	[SKEIN_ENOHANDLER - SKEIN_EVERSION] =
		"no handler is registered for this RPC id",
};

const char *skein_strerror(int err)
{
	const char *text;

	if (err < 0)
		err = -err;
	if (err >= SKEIN_EVERSION &&
	    err < SKEIN_EVERSION + (int)(sizeof(words) / sizeof(words[0])))
		return words[err - SKEIN_EVERSION];
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
