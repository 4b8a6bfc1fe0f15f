/* SPDX-License-Identifier: MIT */
/*
 * device.h - a device for a tool that speaks verbs itself, and words for it.
 */
#ifndef SKEIN_TOOLS_PERF_DEVICE_H
#define SKEIN_TOOLS_PERF_DEVICE_H

#include "dev/dev.h"

/*
 * Opens what --device, else the environment's SKEIN_DEVICE, asks for. require:
 * NULL, or the kind that it must be ("verbs"): another is -ENODEV. gid_index
 * -1 chooses. err receives one line.
 */
int device_open(const char *spec, const char *require, int gid_index,
		struct skein_env **env, char *err, size_t err_len,
		struct dev **dev);
/* NULL, soft or verbs? If not, says what --require takes. */
bool device_require_fits(const char *cmd, const char *require);
/* Both may be NULL. */
void device_close(struct skein_env *env, struct dev *dev);

/* "soft:skein0", short, for tables and JSON. */
void device_name(const struct dev *dev, char *buf, size_t len);
/* One line: the device and why, the GID and why. */
void device_describe(const struct dev *dev, char *buf, size_t len);
/* "::ffff:10.0.0.7" */
void device_gid(const struct dev *dev, char *buf, size_t len);
const char *device_gid_type(enum dev_gid_type type);

#endif
