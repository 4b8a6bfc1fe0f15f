/* SPDX-License-Identifier: MIT */
/*
 * placeholder.c - lets programs that choose a device link until the software
 * device is there. Refuses, plainly. To be deleted by the commit that adds it.
 */
#include "dev/dev.h"

#include <errno.h>
#include <stdio.h>

int dev_soft_open(struct skein_env *env, const char *name, int gid_index,
		  char *err, size_t err_len, struct dev **dev)
{
	(void)env;
	(void)name;
	(void)gid_index;
	(void)dev;
	snprintf(err, err_len, "the software device is not built yet");
	return -ENODEV;
}
