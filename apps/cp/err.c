/* SPDX-License-Identifier: MIT */
/*
 * err.c - one line that says why; see err.h.
 */
#include "cp/err.h"

#include <skein/error.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 0))) static void say(struct cp_err *err,
						      const char *fmt,
						      va_list ap)
{
	if (err)
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
}

int cp_fail(struct cp_err *err, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(err, fmt, ap);
	va_end(ap);
	return rc;
}

int cp_fail_sys(struct cp_err *err, int rc, const char *fmt, ...)
{
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	say(err, fmt, ap);
	va_end(ap);
	if (!err)
		return rc;
	len = strlen(err->text);
	snprintf(err->text + len, sizeof(err->text) - len, ": %s",
		 skein_strerror(rc));
	return rc;
}
