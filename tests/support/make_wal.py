#!/usr/bin/env python3
"""Makes WAL segments that look like PostgreSQL's to whoever checks names and headers.

  make_wal.py DIR SYSTEM_ID SEGMENT_BYTES FIRST COUNT [SEED]

Writes COUNT segments from number FIRST on (timeline 1) into DIR: a long page header
(access/xlog_internal.h, XLogLongPageHeaderData) and bytes that depend on name and SEED.
"""
import hashlib
import os
import struct
import sys


def main():
    folder, system, size, first, count = sys.argv[1], *map(int, sys.argv[2:6])
    seed = sys.argv[6] if len(sys.argv) > 6 else ""
    per_id = 0x100000000 // size
    for number in range(first, first + count):
        name = f"{1:08X}{number // per_id:08X}{number % per_id:08X}"
        header = struct.pack("<HHIQI4xQII", 0xD110, 2, 1, number * size, 0, system, size, 8192)
        body = hashlib.shake_128((name + seed).encode()).digest(size - len(header))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(header + body)


main()
