/* SPDX-License-Identifier: MIT */
/*
 * ext.h - the device's entries in libibverbs' verbs_context.
 */
#ifndef SKEIN_DEV_SOFT_EXT_H
#define SKEIN_DEV_SOFT_EXT_H

#include <infiniband/verbs.h>

void soft_ext_fill(struct verbs_context *v);

#endif
