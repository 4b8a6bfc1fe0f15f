/* SPDX-License-Identifier: MIT */
/*
 * wc_status.h - words for work completion statuses (libibverbs, which has
 * some, is not linked).
 */
#ifndef SKEIN_CONN_WC_STATUS_H
#define SKEIN_CONN_WC_STATUS_H

#include <infiniband/verbs.h>

/* Never NULL. */
const char *wc_status_text(enum ibv_wc_status status);
/* The error that an operation ends with, and a connection breaks with. */
int wc_status_err(enum ibv_wc_status status);

#endif
