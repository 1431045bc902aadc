#!/usr/bin/env python3
"""Flips single bits in what a file holds, as a bad disk would: flip_bits.py FILE COUNT SEED [FROM_BYTE]. Prints their places."""

import os
import random
import sys


def extents(fd: int, size: int):
    """Ranges of a file that are not holes."""
    at = 0
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        yield begin, at


def main() -> None:
    path, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    chance = random.Random(seed)
    fd = os.open(path, os.O_RDWR)
    ranges = [(max(begin, first), end) for begin, end in extents(fd, os.fstat(fd).st_size) if end > first]
    for _ in range(count):
        begin, end = chance.choices(ranges, [end - begin for begin, end in ranges])[0]
        at = chance.randrange(begin, end)
        byte = os.pread(fd, 1, at)
        os.pwrite(fd, bytes([byte[0] ^ (1 << chance.randrange(8))]), at)
        print(at)
    os.fsync(fd)


main()
