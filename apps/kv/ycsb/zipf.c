/* SPDX-License-Identifier: MIT */
/*
 * zipf.c - see zipf.h; the names follow the paper's.
 */
#include "kv/ycsb/zipf.h"

#include "base/assert.h"

#include <math.h>
#include <stddef.h>

#define PROGRESS_EVERY 65536

double kv_zeta(uint64_t from, uint64_t n, double theta, double sum,
	       kv_zipf_progress *progress, void *arg)
{
	for (uint64_t i = from + 1; i <= n; i++) {
		sum += pow((double)i, -theta);
		if (progress && i % PROGRESS_EVERY == 0)
			progress(arg, i, n);
	}
	return sum;
}

static void derive(struct kv_zipf *z)
{
	z->eta = (1 - pow(2.0 / (double)z->n, 1 - z->theta)) /
		 (1 - z->zeta2 / z->zetan);
}

void kv_zipf_init(struct kv_zipf *z, uint64_t n, double theta, double zetan,
		  kv_zipf_progress *progress, void *arg)
{
	skein_assert(n >= 1 && theta > 0 && theta < 1);
	z->n = n;
	z->theta = theta;
	z->alpha = 1 / (1 - theta);
	z->half_pow = 1 + pow(0.5, theta);
	z->zeta2 = kv_zeta(0, 2, theta, 0, NULL, NULL);
	z->zetan = zetan > 0 ? zetan : kv_zeta(0, n, theta, 0, progress, arg);
	derive(z);
}

void kv_zipf_grow(struct kv_zipf *z, uint64_t n)
{
	if (n <= z->n)
		return;
	z->zetan = kv_zeta(z->n, n, z->theta, z->zetan, NULL, NULL);
	z->n = n;
	derive(z);
}

uint64_t kv_zipf_next(const struct kv_zipf *z, struct prng *rng)
{
	double u = prng_double(rng), uz = u * z->zetan;
	uint64_t i;

	if (uz < 1 || z->n == 1)
		return 0;
	if (uz < z->half_pow || z->n == 2)
		return 1;
	i = (uint64_t)((double)z->n * pow(z->eta * u - z->eta + 1, z->alpha));
	return i < z->n ? i : z->n - 1;
}
