/* SPDX-License-Identifier: MIT */
/*
 * path.h - struct skein_path: from the application and the environment to what
 * a QP is told.
 *
 * Thread rule: no state.
 */
#ifndef SKEIN_CONN_PATH_H
#define SKEIN_CONN_PATH_H

#include "base/conf.h"
#include "dev/dev.h"
#include <skein/ctx.h>

/* Fills *path from the environment (SKEIN_PATH_MTU and so on), for what own
 * leaves zero. -EINVAL or -ERANGE, and then one line in err. */
int path_configure(const struct skein_path *own, conf_lookup_fn lookup,
		   void *arg, struct skein_path *path, char *err,
		   size_t err_len);

/* own, and base for what it leaves zero. -ERANGE, and then one line in err. */
int path_over(const struct skein_path *own, const struct skein_path *base,
	      struct skein_path *path, char *err, size_t err_len);

/* A path that is in range, in the terms of the device. */
void path_opts(const struct skein_path *path, struct dev_qp_opts *opts);

#endif
