/* SPDX-License-Identifier: MIT */
/*
 * fmt.h - numbers for people: three significant digits and a unit. Each writes
 * into buf (FMT_LEN is enough) and returns it. JSON gets the plain number.
 */
#ifndef SKEIN_BASE_FMT_H
#define SKEIN_BASE_FMT_H

#include <stddef.h>
#include <stdint.h>

#define FMT_LEN 24

/* "512 B", "4.00 KiB", "1.50 GiB" */
const char *fmt_bytes(char *buf, size_t len, uint64_t bytes);
/* "999", "1.20 k", "22.0 M" */
const char *fmt_count(char *buf, size_t len, double v);
/* "850 ns", "1.20 us", "15.0 ms", "2.50 s" */
const char *fmt_ns(char *buf, size_t len, uint64_t ns);

#endif
