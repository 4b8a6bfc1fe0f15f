/* SPDX-License-Identifier: MIT */
/*
 * conf.h - configuration rows: name, default, help and parser in one line.
 *
 * A module has a struct of plain fields and a const table of rows that say how
 * to fill it. Values come from the defaults, then from the environment
 * (SKEIN_<name>), then from callers of conf_set(). For a value that does not
 * parse there is one line of text with the row, the value, and what is allowed.
 * No I/O: the environment is read through a function of the caller. No locks.
 *
 *	static const struct conf_row rows[] = {
 *		CONF_ROW(struct opts, ring_len, "RING_SIZE", "4M",
 *			 "bytes of a receive ring", conf_size, NULL),
 *		CONF_END
 *	};
 */
#ifndef SKEIN_BASE_CONF_H
#define SKEIN_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conf_row;

/* 0, -EINVAL (not such a value) or -ERANGE; *field untouched on failure. */
typedef int (*conf_parse_fn)(const struct conf_row *row, const char *value,
			     void *field);
/* As getenv(). */
typedef const char *(*conf_lookup_fn)(void *arg, const char *name);

struct conf_row {
	/* upper case; in the environment SKEIN_ comes before it */
	const char *name;
	const char *def;
	const char *help;
	conf_parse_fn parse;
	const void *arg; /* conf_enum: the names, ended by NULL */
	size_t offset;	 /* of the field */
	size_t size;	 /* of the field; checked by the parser */
	/* of numbers, sizes and times; max 0: no bound */
	uint64_t min, max;
};

#define CONF_ROW(type, field, name, def, help, parse, arg)          \
	{                                                           \
		name, def, help, parse, arg, offsetof(type, field), \
			sizeof(((type *)0)->field), 0, 0            \
	}
/* Of values from min to max; max 0: or more. */
#define CONF_RANGE(type, field, name, def, help, parse, min, max)    \
	{                                                            \
		name, def, help, parse, NULL, offsetof(type, field), \
			sizeof(((type *)0)->field), min, max         \
	}
#define CONF_END     \
	{            \
		NULL \
	}

/* Parsers, by the type of the field. */
int conf_u32(const struct conf_row *row, const char *value, void *field);
int conf_u64(const struct conf_row *row, const char *value, void *field);
/* size_t: 4096, 64K, 4M, 1G, 2T (powers of 1024; an iB or B may follow). */
int conf_size(const struct conf_row *row, const char *value, void *field);
/* uint64_t of nanoseconds: 250ns, 50us, 10ms, 1.5s, 2m; 0 without a unit. */
int conf_time(const struct conf_row *row, const char *value, void *field);
/* bool: yes no on off true false 1 0. */
int conf_bool(const struct conf_row *row, const char *value, void *field);
/* int: the index of value in the NULL-ended array of names row->arg. */
int conf_enum(const struct conf_row *row, const char *value, void *field);
/* const char *: the value itself, not copied. */
int conf_string(const struct conf_row *row, const char *value, void *field);

/* Fills all fields from the rows' own defaults, which must parse (asserted). */
void conf_defaults(const struct conf_row *rows, void *obj);
/* Sets the row of this name (without SKEIN_; case does not matter). 0,
 * -ENOENT, -EINVAL or -ERANGE, and then one line in err. */
int conf_set(const struct conf_row *rows, void *obj, const char *name,
	     const char *value, char *err, size_t err_len);
/* Sets each row for which lookup finds SKEIN_<name>; stops at the first that
 * fails, as conf_set(). */
int conf_load(const struct conf_row *rows, void *obj, conf_lookup_fn lookup,
	      void *arg, char *err, size_t err_len);

/* The parsers without a row, for command lines. 0, -EINVAL or -ERANGE. */
int conf_parse_size(const char *value, uint64_t *size);
int conf_parse_time(const char *value, uint64_t *ns);

#endif
