/* SPDX-License-Identifier: MIT */
/* version.h - the library's version, and what marks its exported functions. */
#ifndef SKEIN_VERSION_H
#define SKEIN_VERSION_H

#if defined(__GNUC__)
#define SKEIN_API __attribute__((visibility("default")))
#else
#define SKEIN_API
#endif

#define SKEIN_VERSION_MAJOR 0
#define SKEIN_VERSION_MINOR 1
#define SKEIN_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0": of the library that is running. */
SKEIN_API const char *skein_version(void);

#ifdef __cplusplus
}
#endif
#endif
