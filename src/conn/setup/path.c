/* SPDX-License-Identifier: MIT */
/*
 * path.c - see path.h. Each option is a row: its name in the environment, what
 * it may be, and the field of struct skein_path. Zero is always the default.
 */
#include "conn/setup/path.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MTU_MIN 256u
#define MTU_MAX 4096u
/* The local ACK timeout is 4.096 us * 2^n, n of 5 bits (IBA 9.9.2.1.2). */
#define ACK_UNIT_NS 4096ull
#define ACK_EXP_MAX 31u

struct range {
	const char *field;
	uint64_t max;
	bool power_of_2;
};

static const struct range mtu = {"mtu", MTU_MAX, true};
static const struct range traffic_class = {"traffic_class", 255, false};
static const struct range service_level = {"service_level", 15, false};
static const struct range retry_timeout = {"retry_timeout_ns",
					   ACK_UNIT_NS << ACK_EXP_MAX, false};
static const struct range retry_count = {"retry_count", 7, false};
static const struct range rnr_retry = {"rnr_retry", 7, false};

static bool in_range(const struct range *r, uint64_t v)
{
	if (v == 0)
		return true;
	if (r->power_of_2)
		return v >= MTU_MIN && v <= r->max && !(v & (v - 1));
	return v <= r->max;
}

static int parse_number(const struct conf_row *row, const char *value,
			void *field)
{
	uint32_t v;
	int rc = conf_u32(row, value, &v);

	if (rc)
		return rc;
	if (!in_range(row->arg, v))
		return -ERANGE;
	*(uint32_t *)field = v;
	return 0;
}

static int parse_time(const struct conf_row *row, const char *value,
		      void *field)
{
	uint64_t v;
	int rc = conf_time(row, value, &v);

	if (rc)
		return rc;
	if (!in_range(row->arg, v))
		return -ERANGE;
	*(uint64_t *)field = v;
	return 0;
}

static const struct conf_row rows[] = {
	CONF_ROW(struct skein_path, mtu, "PATH_MTU", "0",
		 "256, 512, 1024, 2048 or 4096 bytes; 0: the port's",
		 parse_number, &mtu),
	CONF_ROW(struct skein_path, traffic_class, "TRAFFIC_CLASS", "0",
		 "0 to 255: DSCP times 4, and 2 bits of ECN", parse_number,
		 &traffic_class),
	CONF_ROW(struct skein_path, service_level, "SERVICE_LEVEL", "0",
		 "0 to 15", parse_number, &service_level),
	CONF_ROW(struct skein_path, retry_timeout_ns, "RETRY_TIMEOUT", "0",
		 "such as 70ms, up to 8796s; 0: 67 ms, on soft's link 4.3 s",
		 parse_time, &retry_timeout),
	CONF_ROW(struct skein_path, retry_count, "RETRY_COUNT", "0",
		 "1 to 7; 0: 7", parse_number, &retry_count),
	CONF_ROW(struct skein_path, rnr_retry, "RNR_RETRY", "0",
		 "1 to 7, which is for ever; 0: 7", parse_number, &rnr_retry),
	CONF_END};

static uint64_t value_of(const struct conf_row *row,
			 const struct skein_path *path)
{
	const char *field = (const char *)path + row->offset;

	return row->size == sizeof(uint32_t)
		       ? *(const uint32_t *)(const void *)field
		       : *(const uint64_t *)(const void *)field;
}

int path_over(const struct skein_path *own, const struct skein_path *base,
	      struct skein_path *path, char *err, size_t err_len)
{
	struct skein_path p = *base;
	const struct conf_row *row;
	const struct range *range;

	for (row = rows; row->name; row++) {
		range = row->arg;
		if (!in_range(range, value_of(row, own))) {
			snprintf(err, err_len,
				 "path.%s is %" PRIu64 ": out of range; "
				 "expected %s",
				 range->field, value_of(row, own), row->help);
			return -ERANGE;
		}
		if (value_of(row, own))
			memcpy((char *)&p + row->offset,
			       (const char *)own + row->offset, row->size);
	}
	*path = p;
	return 0;
}

int path_configure(const struct skein_path *own, conf_lookup_fn lookup,
		   void *arg, struct skein_path *path, char *err,
		   size_t err_len)
{
	struct skein_path env;
	int rc;

	conf_defaults(rows, &env);
	rc = conf_load(rows, &env, lookup, arg, err, err_len);
	if (rc)
		return rc;
	return path_over(own, &env, path, err, err_len);
}

static uint8_t mtu_code(uint32_t bytes)
{
	uint8_t code = IBV_MTU_256;

	while (MTU_MIN << (code - IBV_MTU_256) < bytes)
		code++;
	return code;
}

/* The smallest exponent with a timeout of at least ns; 0 would mean none. */
static uint8_t ack_exponent(uint64_t ns)
{
	uint8_t n = 1;

	while (n < ACK_EXP_MAX && ACK_UNIT_NS << n < ns)
		n++;
	return n;
}

void path_opts(const struct skein_path *path, struct dev_qp_opts *opts)
{
	struct dev_qp_opts o = {
		.mtu = path->mtu ? mtu_code(path->mtu) : 0,
		.timeout = path->retry_timeout_ns
				   ? ack_exponent(path->retry_timeout_ns)
				   : 0,
		.retry_cnt = (uint8_t)path->retry_count,
		.rnr_retry = (uint8_t)path->rnr_retry,
		.traffic_class = (uint8_t)path->traffic_class,
		.sl = (uint8_t)path->service_level,
	};

	*opts = o;
}
