/* SPDX-License-Identifier: MIT */
/*
 * device.h - the device that a test runs on: the software one; the VM lane
 * says which other.
 */
#ifndef SKEIN_TESTS_DEVICE_H
#define SKEIN_TESTS_DEVICE_H

#include <stdlib.h>

static inline const char *test_device(void)
{
	const char *name = getenv("SKEIN_TEST_DEVICE");

	return name && *name ? name : "soft";
}

#endif
