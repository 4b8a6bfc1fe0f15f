#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""unpack-kernel.py VMLINUZ OUT - the ELF image inside a bzImage.

QEMU enters an ELF kernel directly (PVH): no BIOS, and none of the kernel's own
decompression, which takes seconds under emulation. Offsets: Linux x86 boot
protocol, Documentation/arch/x86/boot.rst."""

import lzma
import struct
import subprocess
import sys
import zlib

SETUP_SECTS = 0x1F1
PAYLOAD = 0x248  # offset and length, 32 bits each


def unpack(data):
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        zstd = subprocess.run(["zstd", "-dc"], input=data, check=False,
                              stdout=subprocess.PIPE)
        return zstd.stdout
    sys.exit("unpack-kernel: unknown compression " + data[:6].hex())


def main():
    with open(sys.argv[1], "rb") as f:
        image = f.read()
    start = (image[SETUP_SECTS] + 1) * 512
    offset, length = struct.unpack_from("<II", image, PAYLOAD)
    elf = unpack(image[start + offset:start + offset + length])
    if not elf.startswith(b"\x7fELF"):
        sys.exit("unpack-kernel: no ELF image inside " + sys.argv[1])
    with open(sys.argv[2], "wb") as f:
        f.write(elf)


main()
