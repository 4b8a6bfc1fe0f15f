/* SPDX-License-Identifier: MIT */
/*
 * compare.h - one program on two devices: their normal forms must be the same.
 */
#ifndef SKEIN_TESTS_CONFORM_COMPARE_H
#define SKEIN_TESTS_CONFORM_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A device by its name on the command line: "soft", "soft-harsh", "sim",
 * "verbs:A+verbs:B". */
struct contender {
	char device[64], device2[64];
	FILE *forms; /* its normal forms, a line "seed N" before each */
};

/* False: no such name. For soft-harsh the environment is set, so this is for
 * the process that opens the device. */
bool contender_init(struct contender *c, const char *name, size_t len);
/* Reads what both wrote; says on stdout where they differ. How many programs
 * do, and out-parameter: how many there were. */
uint64_t forms_compare(FILE *a, FILE *b, const char *names, uint64_t *programs);

#endif
