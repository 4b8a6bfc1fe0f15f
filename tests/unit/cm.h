/* SPDX-License-Identifier: MIT */
/*
 * cm.h - cmocka with the headers that it wants before itself.
 */
#ifndef SKEIN_TESTS_CM_H
#define SKEIN_TESTS_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
