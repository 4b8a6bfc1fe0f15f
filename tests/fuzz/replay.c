/* SPDX-License-Identifier: MIT */
/*
 * replay.c - runs a fuzzer's target without libFuzzer: on every file of a
 * corpus folder, on every cut of it, and with every single bit flipped (up to
 * INPUT_MAX bytes; in a sanitizer's lane, SKEIN_TEST_TIME_SCALE, one bit in
 * three). What once broke a decoder stays a test in every build.
 */
#include <dirent.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond it only the input itself runs. */
#define INPUT_MAX 2048

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each run gets a copy of exact size: a sanitizer then sees one byte too far */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static unsigned replay(uint8_t *data, size_t size)
{
	size_t step = getenv("SKEIN_TEST_TIME_SCALE") ? 3 : 1;
	unsigned runs = 1;

	run(data, size);
	if (size > INPUT_MAX)
		return runs;
	for (size_t cut = 0; cut < size; cut++, runs++)
		run(data, cut);
	for (size_t bit = 0; bit < size * 8; bit += step, runs++) {
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		run(data, size);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	return runs;
}

/* A target allocates what it needs anew in each run, so that a memory checker
 * sees every mistake. glibc would map and unmap the larger pieces each time,
 * and the kernel clear them: a hundred times what the run itself costs. */
static void keep_memory(void)
{
#ifdef M_MMAP_THRESHOLD
	mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most it takes */
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

static int replay_file(const char *path, unsigned *runs)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data;
	long size;

	if (!file)
		return -1;
	if (fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0)
		goto err_close;
	rewind(file);
	data = malloc((size_t)size + 1);
	if (!data)
		goto err_close;
	if (fread(data, 1, (size_t)size, file) != (size_t)size)
		goto err_free;
	*runs += replay(data, (size_t)size);
	free(data);
	fclose(file);
	return 0;
err_free:
	free(data);
err_close:
	fclose(file);
	return -1;
}

int main(int argc, char **argv)
{
	unsigned files = 0, runs = 0;
	struct dirent *entry;
	char path[4096];
	DIR *dir;

	if (argc != 2 || !(dir = opendir(argv[1]))) {
		fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
		return 2;
	}
	keep_memory();
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
		if (replay_file(path, &runs)) {
			perror(path);
			closedir(dir);
			return 1;
		}
		files++;
	}
	closedir(dir);
	printf("%u inputs, %u runs\n", files, runs);
	return files ? 0 : 1;
}
