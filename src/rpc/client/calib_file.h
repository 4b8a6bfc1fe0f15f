/* SPDX-License-Identifier: MIT */
/*
 * calib_file.h - where the calibration of a device (calib.h) is kept: the
 * user's cache directory, one file a device.
 *
 * Thread rule: rpc_calib_file_get() under a lock of the caller's; the others
 * any thread.
 */
#ifndef SKEIN_RPC_CLIENT_CALIB_FILE_H
#define SKEIN_RPC_CLIENT_CALIB_FILE_H

#include "rpc/client/calib.h"

struct dev;
struct skein_env;

#define RPC_CALIB_PATH_MAX 512u

struct rpc_calib_file {
	char path[RPC_CALIB_PATH_MAX]; /* "": no calibration */
	bool named;		       /* by the user */
	bool looked;		       /* read, or found to be useless */
	bool known;		       /* calib is valid */
	struct rpc_calib calib;
};

/* Can fetching pay on this device? Where the threads themselves copy it gains
 * nothing (bench/fetch.py), and its calibration would be noise. */
bool rpc_calib_counts(const struct dev *dev);
/* What a calibration of the device holds for. */
void rpc_calib_key(struct dev *dev, char key[RPC_CALIB_KEY_MAX]);
/* Where it is kept. 0, or as cache_file_path(). */
int rpc_calib_path(const struct dev *dev, char path[RPC_CALIB_PATH_MAX]);

/* setting: "on" (the file in the cache directory, if it counts), "off", or the
 * path of a file. */
void rpc_calib_file_init(struct rpc_calib_file *f, const struct dev *dev,
			 const char *setting);
/* The calibration, or NULL. Reads the file once. A file that is damaged, or of
 * another device, firmware or version, is one line in the log. So is a file that
 * is not there, if the setting names it. */
const struct rpc_calib *rpc_calib_file_get(struct rpc_calib_file *f,
					   struct dev *dev);
/* named: by the user, as cache_file_find(); else the folders of the path are
 * made. 0, or a negative errno. */
int rpc_calib_file_put(struct dev *dev, const char *path, bool named,
		       const struct rpc_calib *c);

#endif
