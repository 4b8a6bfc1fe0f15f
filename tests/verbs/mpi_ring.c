/* SPDX-License-Identifier: MIT */
/*
 * mpi_ring.c - each process sends to the next one and receives from the one
 * before it, at sizes that take UCX's short, copying and rendezvous ways; each
 * byte is looked at. Process 0 prints the sum over all.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static char out[1 << 20], in[1 << 20];

static int lap(int len, int tag, int me, int n)
{
	int from = (me + n - 1) % n, i;

	memset(out, me + tag, (size_t)len);
	memset(in, -1, (size_t)len);
	MPI_Sendrecv(out, len, MPI_CHAR, (me + 1) % n, tag, in, len, MPI_CHAR,
		     from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (i = 0; i < len; i++)
		if (in[i] != (char)(from + tag))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	static const int lens[] = {1, 100, 5000, 20000, 1 << 20};
	long one, all = 0;
	int me, n, i, tag = 0, bad = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	one = me + 1;
	for (i = 0; i < 5; i++)
		for (tag = 0; tag < 10; tag++)
			bad += lap(lens[i], tag, me, n);
	MPI_Allreduce(&one, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (bad)
		printf("process %d: %d messages are wrong\n", me, bad);
	if (me == 0)
		printf("%d processes, sum %ld\n", n, all);
	MPI_Finalize();
	return bad != 0;
}
