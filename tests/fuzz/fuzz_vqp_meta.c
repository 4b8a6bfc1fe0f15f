/* SPDX-License-Identifier: MIT */
/*
 * fuzz_vqp_meta.c - a reader of the meta server's table fed with records. What
 * is taken is the same when it is encoded again; a head names a table that the
 * two places of any node are in. The same for records of regions.
 */
#include "base/assert.h"
#include "vqp/region.h"

#include <stddef.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void record(const uint8_t *buf)
{
	uint8_t again[META_RECORD];
	struct meta_node n;

	if (meta_decode(buf, &n))
		return;
	skein_assert(n.port && n.port <= UINT16_MAX && n.dctn <= 0xffffff);
	meta_encode(&n, again);
	skein_assert(!memcmp(again, buf, META_RECORD));
}

static void head(const uint8_t *buf)
{
	struct meta_head h;
	uint32_t at[2];

	if (meta_head_decode(buf, &h))
		return;
	meta_places(h.gid, h.dctn, h.places, at);
	skein_assert(at[0] < h.places && at[1] < h.places && at[0] != at[1]);
}

static void region(const uint8_t *buf)
{
	uint8_t again[REGION_RECORD];
	struct region_record r;

	if (region_decode(buf, &r))
		return;
	skein_assert(region_place(r.id) < REGION_PLACES);
	skein_assert(r.addr + r.len >= r.addr);
	region_encode(&r, again);
	skein_assert(!memcmp(again, buf, REGION_RECORD));
}

/* The same fields behind a checksum that is right. */
static void region_made(const uint8_t *data)
{
	uint8_t made[REGION_RECORD];
	struct region_record r;

	memcpy(&r, data, sizeof(r));
	region_encode(&r, made);
	region(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct meta_node own, n;
	uint8_t made[META_RECORD];
	struct meta_owner other = {0};
	int which;

	if (size < 2 * META_RECORD)
		return 0;
	head(data);
	record(data);
	record(data + META_RECORD);
	region(data);
	region_made(data);
	/* the same fields behind a checksum that is right */
	memcpy(&own, data,
	       sizeof(own) < META_RECORD ? sizeof(own) : META_RECORD);
	meta_encode(&own, made);
	record(made);
	own.port = own.port % UINT16_MAX + 1;
	own.dctn &= 0xffffff;
	meta_encode(&own, made);
	skein_assert(!meta_decode(made, &n) && n.key == own.key);
	if (meta_find(made, data + META_RECORD, own.gid, own.port, &n) ==
	    META_FOUND)
		skein_assert(meta_same(&n, own.gid, own.port));
	which = meta_place_own(data, data + META_RECORD, &own, 1, &other);
	skein_assert(which < 2);
	return 0;
}
