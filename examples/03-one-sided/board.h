/* SPDX-License-Identifier: MIT */
/* board.h - the memory that server and clients of 03-one-sided share. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#define BOARD_NAME "board"
#define BOARD_LINES 8

struct board {
	uint64_t tickets; /* lines taken; grows by fetch-and-add only */
	char line[BOARD_LINES][56];
};

#endif
