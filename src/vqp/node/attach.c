/* SPDX-License-Identifier: MIT */
/*
 * attach.c - the messages of attach.h.
 */
#include "vqp/node/attach.h"

#include <errno.h>
#include <skein/error.h>
#include <string.h>

void attach_fill(struct attach_msg *m, enum attach_kind kind)
{
	memset(m, 0, sizeof(*m));
	m->magic = ATTACH_MAGIC;
	m->version = ATTACH_VERSION;
	m->kind = (uint16_t)kind;
}

int attach_decode(const void *buf, size_t len, struct attach_msg *m)
{
	struct attach_msg in;

	if (len != sizeof(in))
		return -EBADMSG;
	memcpy(&in, buf, sizeof(in));
	if (in.magic != ATTACH_MAGIC)
		return -EBADMSG;
	if (in.version != ATTACH_VERSION)
		return -SKEIN_EVERSION;
	if (in.kind < ATTACH_HELLO || in.kind > ATTACH_MEM_AGAIN ||
	    in.addr[sizeof(in.addr) - 1] || in.status > 0)
		return -EBADMSG;
	*m = in;
	return 0;
}
