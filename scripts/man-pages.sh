#!/bin/bash
# SPDX-License-Identifier: MIT
#
# man-pages.sh - writes docs/man/*.1 and *.3 from the Markdown beside them by
# pandoc. The result is committed, so that no build needs pandoc; its first line
# keeps the source's checksum, by which scripts/lint/man.py sees a page that was
# not made anew.
set -eu
cd "$(dirname "$0")/../docs/man"
for source in *.[13].md; do
	page=${source%.md}
	{
		echo ".\\\" made from $source" \
			"$(sha256sum <"$source" | cut -c1-64); do not edit"
		pandoc --standalone --from markdown-smart --to man "$source" |
			sed '/^\.\\" Automatically generated/d'
		! grep -q 'docs/' "$source" || printf '%s\n' '.SH FILES' \
			'Pages named docs/... are installed in' \
			'\fIshare/doc/skein/docs\fR below the prefix' \
			'(\fI/usr/local\fR where none was given).'
	} >"$page.new"
	mv "$page.new" "$page"
	echo "docs/man/$page"
done
