/* SPDX-License-Identifier: MIT */
/*
 * bcast.c - the same as group.c by MPI_Bcast: from memory to the memory of
 * the other ranks. Built with each MPI that is there (build.sh).
 *
 *	mpiexec -n MEMBERS bcast BYTES ROUNDS
 *
 * A round ends when a barrier says that all have it.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE 4099u
#define PIECE (1u << 30) /* MPI counts in int */

static uint8_t sample(uint64_t round, size_t i)
{
	return (uint8_t)(round * 7 + i / SAMPLE);
}

static double once(uint8_t *data, size_t bytes)
{
	double begun;
	size_t off, len;

	MPI_Barrier(MPI_COMM_WORLD);
	begun = MPI_Wtime();
	for (off = 0; off < bytes; off += len) {
		len = bytes - off < PIECE ? bytes - off : PIECE;
		MPI_Bcast(data + off, (int)len, MPI_BYTE, 0, MPI_COMM_WORLD);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	return MPI_Wtime() - begun;
}

int main(int argc, char **argv)
{
	size_t bytes;
	uint8_t *data;
	int rank, rounds, wrong = 0;

	MPI_Init(&argc, &argv);
	if (argc != 3)
		return 2;
	bytes = strtoull(argv[1], NULL, 10);
	rounds = atoi(argv[2]);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	data = malloc(bytes);
	if (!data)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(data, 0, bytes);
	for (int r = 0; r < rounds; r++) {
		double seconds;

		for (size_t i = 0; !rank && i < bytes; i += SAMPLE)
			data[i] = sample((uint64_t)r, i);
		seconds = once(data, bytes);
		for (size_t i = 0; i < bytes; i += SAMPLE)
			wrong |= data[i] != sample((uint64_t)r, i);
		if (!rank)
			printf("%.6f\n", seconds);
	}
	free(data);
	if (wrong)
		fprintf(stderr, "bcast: rank %d did not get what was sent\n",
			rank);
	MPI_Finalize();
	return wrong;
}
