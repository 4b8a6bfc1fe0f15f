/* SPDX-License-Identifier: MIT */
/* join.h - what the sender tells each receiver before a group is opened. */
#ifndef JOIN_H
#define JOIN_H

#include <stdint.h>

#define JOIN 1 /* the RPC id */
#define MEMBERS_MAX 16
#define ADDR_LEN 64
#define BLOCK (64u << 10)

/* The same for all but rank. A struct, since both ends are this example. */
struct join {
	uint32_t rank, count;
	uint32_t number;  /* of the group: each try is another one */
	uint32_t resumes; /* 1: what a group before has not finished */
	char member[MEMBERS_MAX][ADDR_LEN];
};

#endif
