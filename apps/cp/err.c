/* SPDX-License-Identifier: MIT */
/*
 * err.c - one line that says why; see err.h.
 */
#include "cp/err.h"

#include <skein/error.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int cp_fail(struct cp_err *err, int rc, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return rc;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return rc;
}

int cp_fail_sys(struct cp_err *err, int rc, const char *fmt, ...)
{
	size_t len;
	va_list ap;

	if (!err)
		return rc;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	len = strlen(err->text);
	snprintf(err->text + len, sizeof(err->text) - len, ": %s",
		 skein_strerror(rc));
	return rc;
}
