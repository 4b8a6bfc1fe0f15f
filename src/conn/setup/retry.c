/* SPDX-License-Identifier: MIT */
/*
 * retry.c - the retry policy of skein_conn_attr.retries and .reconnect.
 */
#include "conn/setup/retry.h"

#include <errno.h>
#include <skein/error.h>

void retry_init(struct retry *r, uint32_t retries, uint64_t deadline_ns)
{
	r->left = retries;
	r->pause_ns = RETRY_PAUSE_MIN_NS;
	r->deadline_ns = deadline_ns;
}

bool retry_helps(int err)
{
	switch (-err) {
	case ECONNREFUSED:
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENETUNREACH:
	case ENETDOWN:
	case ESHUTDOWN:
	case ENOTCONN:
	case EAGAIN:
	/* shortages of this side pass, as the peer's do */
	case ENOMEM:
	case ENOBUFS:
	case EMFILE:
	case ENFILE:
	case ETOOMANYREFS:
	case SKEIN_EBUSY:
	case SKEIN_ERESOURCE:
	case SKEIN_EDEAD:
		return true;
	default:
		return false;
	}
}

bool retry_next(struct retry *r, int err, uint64_t now_ns, uint64_t hint_ns,
		uint64_t *at_ns)
{
	uint64_t pause = r->pause_ns > hint_ns ? r->pause_ns : hint_ns;
	/* The peer runs, and has said when to try again. */
	bool invited = err == -SKEIN_EBUSY && hint_ns;

	if ((!r->left && !invited) || !retry_helps(err) ||
	    now_ns >= r->deadline_ns || pause >= r->deadline_ns - now_ns)
		return false;
	if (r->left && r->left != RETRY_UNLIMITED)
		r->left--;
	r->pause_ns *= 2;
	if (r->pause_ns > RETRY_PAUSE_MAX_NS)
		r->pause_ns = RETRY_PAUSE_MAX_NS;
	*at_ns = now_ns + pause;
	return true;
}
