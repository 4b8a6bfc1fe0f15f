/* SPDX-License-Identifier: MIT */
/*
 * err.c - one line that says why; see err.h.
 */
#include "cp/err.h"

#include <skein/error.h>

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the character that begins here; 0: none that may be shown. */
static size_t shown_len(const unsigned char *p)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
	uint32_t c = n == 1 ? *p : *p & (0xffu >> (n + 1));

	if (*p >= 0xf8 || (*p >= 0x80 && *p < 0xc0))
		return 0;
	for (size_t i = 1; i < n; i++) {
		/* the terminating NUL is none of these */
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < ' ' || (c >= 0x7f && c < 0xa0) || c < least[n] ||
	    (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		return 0;
	return n;
}

void cp_text_clean(char *text)
{
	while (*text) {
		size_t n = shown_len((unsigned char *)text);

		if (!n)
			*text = '?';
		text += n ? n : 1;
	}
}

__attribute__((format(printf, 2, 0))) static void say(struct cp_err *err,
						      const char *fmt,
						      va_list ap)
{
	if (!err)
		return;
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	cp_text_clean(err->text);
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
