/* SPDX-License-Identifier: MIT */
/*
 * wc_status.c - the statuses of the InfiniBand specification (11.6.2), as
 * errors of the API and in words that say what happened on which side.
 */
#include "conn/wc_status.h"

#include <errno.h>
#include <skein/error.h>

static const struct {
	int err;
	const char *text;
} statuses[] = {
	[IBV_WC_SUCCESS] = {0, "success"},
	[IBV_WC_LOC_LEN_ERR] = {-EMSGSIZE, "local length error"},
	[IBV_WC_LOC_QP_OP_ERR] = {-EIO, "local QP operation error"},
	[IBV_WC_LOC_PROT_ERR] = {-EFAULT,
				 "local protection error: the local buffer is "
				 "not inside its region"},
	[IBV_WC_WR_FLUSH_ERR] = {-ECONNRESET, "its QP was in the error state"},
	[IBV_WC_LOC_ACCESS_ERR] = {-EACCES, "local access error"},
	[IBV_WC_REM_INV_REQ_ERR] = {-SKEIN_EPEER,
				    "the peer's device found the request "
				    "invalid"},
	[IBV_WC_REM_ACCESS_ERR] = {-EACCES,
				   "the peer's device denied access: outside "
				   "a region, or the region is gone"},
	[IBV_WC_REM_OP_ERR] = {-SKEIN_EPEER,
			       "the peer's device could not carry it out"},
	[IBV_WC_RETRY_EXC_ERR] = {-SKEIN_EDEAD,
				  "the peer's device does not answer "
				  "(transport retries exceeded)"},
	[IBV_WC_RNR_RETRY_EXC_ERR] = {-SKEIN_EPEER,
				      "the peer has no receive posted (RNR "
				      "retries exceeded)"},
	[IBV_WC_REM_ABORT_ERR] = {-ECONNABORTED, "the peer aborted it"},
	[IBV_WC_FATAL_ERR] = {-EIO, "fatal device error"},
	[IBV_WC_RESP_TIMEOUT_ERR] = {-ETIMEDOUT, "response timeout"},
	[IBV_WC_GENERAL_ERR] = {-EIO, "general device error"},
};
#define N_STATUSES (sizeof(statuses) / sizeof(statuses[0]))

const char *wc_status_text(enum ibv_wc_status status)
{
	if ((unsigned)status < N_STATUSES && statuses[status].text)
		return statuses[status].text;
	return "a device error without a name";
}

int wc_status_err(enum ibv_wc_status status)
{
	if ((unsigned)status < N_STATUSES && statuses[status].text)
		return statuses[status].err;
	return -EIO;
}
