#!/bin/bash
# SPDX-License-Identifier: MIT
#
# static.sh OBJCOPY AR OBJECTS.a LIBRARY.a CC... - makes the library that
# programs link statically: all objects as one, which defines the public names
# and no others.
set -eu
objcopy=$1 ar=$2 objects=$3 library=$4
shift 4
one=${library%.a}.o
"$@" -r -nostdlib -Wl,--whole-archive "$objects" -Wl,--no-whole-archive -o "$one"
# -fvisibility=hidden marks what is not public; here it becomes local.
"$objcopy" --localize-hidden "$one"
rm -f "$library"
"$ar" rcsD "$library" "$one"
rm -f "$one"
