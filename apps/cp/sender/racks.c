/* SPDX-License-Identifier: MIT */
/*
 * racks.c - racks from a file; see racks.h.
 */
#include "cp/sender/racks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Without the user that ssh is to log in as. */
static const char *bare(const char *host)
{
	const char *at = strchr(host, '@');

	return at ? at + 1 : host;
}

/* The line that names the len bytes of a host; 0: none does. */
static unsigned line_of(const struct cp_targets *file, const char *host,
			size_t len)
{
	for (size_t i = 0; i < file->n; i++)
		if (strlen(file->v[i].host) == len &&
		    !strncasecmp(file->v[i].host, host, len))
			return file->v[i].line;
	return 0;
}

static int check(const struct cp_targets *file, const char *name,
		 struct cp_err *err)
{
	int rc = cp_targets_check(file, false, err);

	for (size_t i = 0; i < file->n && !rc; i++)
		if (file->v[i].port || file->v[i].path)
			rc = cp_fail(err, -EINVAL,
				     "racks, %s, line %u: hosts only, without "
				     "ports and paths",
				     name, file->v[i].line);
	return rc;
}

int cp_racks_read(const char *name, const struct cp_targets *targets,
		  const char *self, uint32_t **rack, struct cp_err *err)
{
	struct cp_targets file = {0};
	uint32_t *r = calloc(targets->n + 1, sizeof(*r));
	int rc;

	if (!r)
		return cp_fail(err, -ENOMEM, "no memory");
	rc = cp_targets_add_file(&file, name, err);
	if (!rc)
		rc = check(&file, name, err);
	if (!rc) {
		r[0] = line_of(&file, self, strlen(self));
		if (!r[0]) /* or 0: no line's */
			r[0] = line_of(&file, self, strcspn(self, "."));
	}
	for (size_t i = 0; i < targets->n && !rc; i++) {
		const char *host = bare(targets->v[i].host);

		r[i + 1] = line_of(&file, host, strlen(host));
		if (!r[i + 1])
			rc = cp_fail(err, -EINVAL, "racks, %s: no line has %s",
				     name, host);
	}
	cp_targets_fini(&file);
	if (rc)
		free(r);
	else
		*rack = r;
	return rc;
}
