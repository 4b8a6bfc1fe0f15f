/* SPDX-License-Identifier: MIT */
/*
 * path.h - struct skein_path: from settings of the application and the
 * environment to options of a QP.
 *
 * Thread rule: no state.
 */
#ifndef SKEIN_CONN_SETUP_PATH_H
#define SKEIN_CONN_SETUP_PATH_H

#include "base/conf.h"
#include "dev/dev.h"
#include <skein/ctx.h>

/* *path is own, with fields that are zero filled from the environment
 * (SKEIN_PATH_MTU and so on). 0, or -EINVAL or -ERANGE and one line in err. */
int path_configure(const struct skein_path *own, conf_lookup_fn lookup,
		   void *arg, struct skein_path *path, char *err,
		   size_t err_len);

/* *path is own, with fields that are zero taken from base. 0, or -ERANGE and
 * one line in err. */
int path_over(const struct skein_path *own, const struct skein_path *base,
	      struct skein_path *path, char *err, size_t err_len);

/* Turns a path that is in range into options of the device. */
void path_opts(const struct skein_path *path, struct dev_qp_opts *opts);

#endif
