/* SPDX-License-Identifier: MIT */
/* peer.c - peer serve ADDR, or peer call|again|fork|exec ADDR CALLS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "peer.h"

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return peer_serve(argv[2]);
	if (argc == 4)
		return peer_client(argv[1], argv[2],
				   strtoull(argv[3], NULL, 10), argv);
	fprintf(stderr,
		"usage: peer serve ADDR | call|again|fork|exec ADDR CALLS\n");
	return 2;
}
