/* SPDX-License-Identifier: MIT */
/* join.h - what the sender tells each receiver before the group is opened. */
#ifndef JOIN_H
#define JOIN_H

#include <stdint.h>

#define JOIN 1 /* the RPC id */
#define MEMBERS_MAX 64
#define ADDR_LEN 64

/* The same for all but rank. A struct, since both ends are this example. */
struct join {
	uint32_t rank, count;
	char member[MEMBERS_MAX][ADDR_LEN];
};

#endif
