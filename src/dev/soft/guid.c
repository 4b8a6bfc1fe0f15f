/* SPDX-License-Identifier: MIT */
/*
 * guid.c - the device's GUID. Every process opens a device of its own, but
 * programs compare GUIDs to learn whether they mean the same one: it is made
 * from the boot's id and the network namespace's inode. An EUI-64 of local
 * administration.
 */
#include "dev/dev.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

uint64_t dev_soft_guid(void)
{
	struct {
		char boot[40];
		uint64_t ns;
	} id;
	struct stat st;
	uint64_t guid;
	FILE *f;

	memset(&id, 0, sizeof(id));
	f = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (f) {
		/* what cannot be read stays zero: still one per namespace */
		if (!fgets(id.boot, sizeof(id.boot), f))
			memset(id.boot, 0, sizeof(id.boot));
		fclose(f);
	}
	if (!stat("/proc/self/ns/net", &st))
		id.ns = st.st_ino;
	guid = XXH64(&id, sizeof(id), 0);
	guid = (guid & ~(1ull << 56)) | 1ull << 57; /* not a group; local */
	return htobe64(guid);
}
