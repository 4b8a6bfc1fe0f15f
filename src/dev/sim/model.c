/* SPDX-License-Identifier: MIT */
/*
 * model.c - NIC models: their parameters' names, the files' syntax, and the
 * models that the library carries (sim/models/).
 */
#include "dev/sim/model.h"

#include "base/assert.h"
#include "base/conf.h"
#include "dev/sim/model_text.h"
#include "dev/sim/sim_dev.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define VALUE_MAX 1000000000u /* a second */
#define LINE_MAX_LEN 160

static const struct {
	const char *name, *text;
} models[] = {
	{"connectx3", connectx3_text},
	{"connectx3-outbound", connectx3_outbound_text},
	{"connectx3-roce", connectx3_roce_text},
	{"connectx4", connectx4_text},
	{"connectx5", connectx5_text},
};

#define N_MODELS (sizeof(models) / sizeof(models[0]))

static int parse_value(const struct conf_row *row, const char *value,
		       void *field)
{
	uint32_t v;
	int rc = conf_u32(row, value, &v);

	if (rc)
		return rc;
	if (v > VALUE_MAX)
		return -ERANGE;
	*(uint32_t *)field = v;
	return 0;
}

/* What is divided by, or indexes. */
static int parse_positive(const struct conf_row *row, const char *value,
			  void *field)
{
	uint32_t v;
	int rc = parse_value(row, value, &v);

	if (!rc && (!v || (row->offset == offsetof(struct nic_model, units) &&
			   v > SIM_UNITS_MAX)))
		rc = -ERANGE;
	if (!rc)
		*(uint32_t *)field = v;
	return rc;
}

#define ROW(field) \
	CONF_ROW(struct nic_model, field, #field, "0", "", parse_value, NULL)
#define ROW_POS(field)                                            \
	CONF_ROW(struct nic_model, field, #field, "1", "above 0", \
		 parse_positive, NULL)

static const struct conf_row rows[] = {
	ROW(cpu_post),
	ROW(cpu_wr),
	ROW(cpu_inline64),
	ROW(cpu_poll),
	ROW(cpu_cqe),
	ROW(doorbell),
	ROW(wqe_push),
	ROW(wqe_read),
	ROW_POS(units),
	ROW(tx),
	ROW(rx),
	ROW(reply),
	ROW(out_gap),
	ROW(out_qps),
	ROW(out_more),
	ROW(dma_read),
	ROW(dma_write),
	ROW_POS(pcie_gbps),
	ROW_POS(ctx_entries),
	ROW(ctx_miss),
	ROW_POS(mr_entries),
	ROW(mr_miss),
	ROW_POS(link_gbps),
	ROW(link_delay),
	ROW(hop),
	ROW_POS(mtu),
	ROW(packet_overhead),
	ROW_POS(cut),
	ROW(irq),
	ROW(dc_tx),
	ROW(dc_rx),
	ROW(dc_connect_ns),
	ROW(open_us),
	ROW(create_cq_cpu_ns),
	ROW(create_cq_nic_ns),
	ROW(create_srq_cpu_ns),
	ROW(create_srq_nic_ns),
	ROW(create_qp_cpu_ns),
	ROW(create_qp_nic_ns),
	ROW(create_ah_cpu_ns),
	ROW(modify_cpu_ns),
	ROW(modify_init_nic_ns),
	ROW(modify_rtr_nic_ns),
	ROW(modify_rts_nic_ns),
	ROW(modify_nic_ns),
	ROW(destroy_cpu_ns),
	ROW(destroy_nic_ns),
	ROW(reg_mr_cpu_ns),
	ROW(reg_mr_nic_ns),
	ROW(reg_page_ns),
	CONF_END,
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]) - 1)

_Static_assert(N_ROWS == sizeof(struct nic_model) / sizeof(uint32_t),
	       "every parameter has its name");

const char *nic_model_name(unsigned i)
{
	return i < N_MODELS ? models[i].name : NULL;
}

const char *nic_model_parameter(size_t i)
{
	return i < N_ROWS ? rows[i].name : NULL;
}

int nic_model_find(const char *name, struct nic_model *m)
{
	char err[200];

	for (unsigned i = 0; i < N_MODELS; i++) {
		if (strcmp(models[i].name, name))
			continue;
		skein_assert(
			!nic_model_parse(models[i].text, m, err, sizeof(err)));
		return 0;
	}
	return -ENOENT;
}

int nic_model_set(struct nic_model *m, const char *name, const char *value,
		  char *err, size_t err_len)
{
	return conf_set(rows, m, name, value, err, err_len);
}

/* --- files ------------------------------------------------------------- */

static char *trim(char *s)
{
	size_t n;

	while (isspace((unsigned char)*s))
		s++;
	n = strlen(s);
	while (n && isspace((unsigned char)s[n - 1]))
		s[--n] = '\0';
	return s;
}

/* One line, without its comment; *row is what it sets, or N_ROWS. */
static int parse_line(char *line, struct nic_model *m, size_t *row, char *err,
		      size_t err_len)
{
	char *name, *value = strchr(line, '=');

	*row = N_ROWS;
	name = trim(line);
	if (!value) {
		if (!*name)
			return 0;
		snprintf(err, err_len, "not \"name = value\"");
		return -EINVAL;
	}
	*value++ = '\0';
	name = trim(name);
	if (nic_model_set(m, name, trim(value), err, err_len))
		return -EINVAL;
	*row = 0;
	while (strcasecmp(rows[*row].name, name))
		++*row;
	return 0;
}

/* The line at *text without its comment; *text moves behind it. */
static int take_line(const char **text, char *line)
{
	size_t whole = strcspn(*text, "\n"), n = strcspn(*text, "#\n");

	if (n >= LINE_MAX_LEN)
		return -EINVAL;
	memcpy(line, *text, n);
	line[n] = '\0';
	*text += whole + ((*text)[whole] != '\0');
	return 0;
}

int nic_model_parse(const char *text, struct nic_model *m, char *err,
		    size_t err_len)
{
	bool seen[N_ROWS] = {false};
	char line[LINE_MAX_LEN], why[160];
	struct nic_model out;
	unsigned num = 0;
	size_t row;

	while (*text) {
		num++;
		snprintf(why, sizeof(why), "too long");
		if (take_line(&text, line) ||
		    parse_line(line, &out, &row, why, sizeof(why))) {
			snprintf(err, err_len, "line %u: %s", num, why);
			return -EINVAL;
		}
		if (row == N_ROWS)
			continue;
		if (seen[row]) {
			snprintf(err, err_len, "line %u: %s comes twice", num,
				 rows[row].name);
			return -EINVAL;
		}
		seen[row] = true;
	}
	for (row = 0; row < N_ROWS; row++)
		if (!seen[row]) {
			snprintf(err, err_len, "%s is missing", rows[row].name);
			return -EINVAL;
		}
	*m = out;
	return 0;
}
