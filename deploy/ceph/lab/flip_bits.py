#!/usr/bin/env python3
"""Flips single bits in what a file holds, as a bad disk would, and prints their places."""

import argparse
import os
import random


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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0, help="byte of the file to begin at")
    parser.add_argument("--spread", type=int, default=0, help="no two are nearer to each other than so many bytes")
    parser.add_argument("--pair", type=int, default=0, help="each has another one so many bytes behind it")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    chance = random.Random(given.seed)
    fd = os.open(given.file, os.O_RDWR)
    held = extents(fd, os.fstat(fd).st_size)
    ranges = [(max(begin, given.first), end - given.pair) for begin, end in held]
    ranges = [(begin, end) for begin, end in ranges if begin < end]
    chosen = []
    for _ in range(100 * given.count):
        begin, end = chance.choices(ranges, [end - begin for begin, end in ranges])[0]
        at = chance.randrange(begin, end)
        if len(chosen) < given.count and all(abs(at - other) >= given.spread for other in chosen):
            chosen.append(at)
    if len(chosen) < given.count:
        raise SystemExit(f"{given.file} has room for {len(chosen)} of {given.count}")
    for at in sorted({at + apart for at in chosen for apart in {0, given.pair}}):
        byte = os.pread(fd, 1, at)
        os.pwrite(fd, bytes([byte[0] ^ (1 << chance.randrange(8))]), at)
        print(at)
    os.fsync(fd)


main()
