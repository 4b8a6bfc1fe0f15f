/* SPDX-License-Identifier: MIT */
/*
 * err.h - why something failed, in one line for the user: what, where, and the
 * likely cause. Functions that take a struct cp_err fill it when they fail, and
 * only then.
 */
#ifndef CP_ERR_H
#define CP_ERR_H

#define CP_ERR_MAX 512

struct cp_err {
	char text[CP_ERR_MAX];
};

/* Makes a text fit for a terminal and for JSON: control characters, and what
 * is no UTF-8 (a name may be any bytes, a line may be cut), become '?'. */
void cp_text_clean(char *text);

/* Writes the line, cleaned, and returns rc: `return cp_fail(err, -EINVAL, ...)`. err may
 * be NULL. */
int cp_fail(struct cp_err *err, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with ": " and the words for rc at the end. */
int cp_fail_sys(struct cp_err *err, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
