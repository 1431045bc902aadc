#!/usr/bin/python3
"""Writes blocks that hold their own number and version, until the server is gone; or verifies them.

usage: versions.py write|verify SOCKET STATE REGION

STATE is a file that keeps, for each block of the region, the version last known durable and the version last attempted.
A block must hold a version in between, and all of it. Regions are 8 MiB each.
"""

import hashlib
import json
import os
import random
import sys

import nbd

BLOCK = 4096
BLOCKS = 2048
command, socket, state_path, region = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
first = region * BLOCKS


def contents(block, version):
    if version == 0:
        return bytes(BLOCK)
    stamp = f"block {block} version {version} ".encode()
    # Half of it does not compress, so that the drive has something to keep and to clean.
    return (stamp + hashlib.shake_128(stamp).digest(BLOCK // 2)).ljust(BLOCK, b"-")


def load():
    if not os.path.exists(state_path):
        return {"durable": [0] * BLOCKS, "attempted": [0] * BLOCKS}
    with open(state_path) as file:
        return json.load(file)


def save(state):
    with open(state_path, "w") as file:
        json.dump(state, file)


def write(h, state):
    dice = random.Random(os.urandom(8))
    written = list(state["durable"])
    attempted = state["attempted"]
    print("writing", flush=True)
    while True:
        count = dice.randint(1, 16)
        start = dice.randint(0, BLOCKS - count)
        blocks = range(start, start + count)
        for block in blocks:
            attempted[block] += 1
        fua = dice.random() < 0.1
        data = b"".join(contents(first + block, attempted[block]) for block in blocks)
        h.pwrite(data, (first + start) * BLOCK, nbd.CMD_FLAG_FUA if fua else 0)
        for block in blocks:
            written[block] = attempted[block]
            if fua:
                state["durable"][block] = attempted[block]
        if dice.random() < 0.05:
            h.flush()
            state["durable"] = list(written)


def verify(h, state):
    for block in range(BLOCKS):
        found = h.pread(BLOCK, (first + block) * BLOCK)
        low, high = state["durable"][block], state["attempted"][block]
        held = [version for version in range(low, high + 1) if contents(first + block, version) == found]
        if not held:
            sys.exit(f"block {first + block}: none of the versions {low} to {high}: {found[:48]!r}")
        # What a reader has been shown stays.
        state["durable"][block] = held[0]
    save(state)


h = nbd.NBD()
h.connect_unix(socket)
state = load()
if command == "verify":
    verify(h, state)
else:
    try:
        write(h, state)
    except nbd.Error:
        save(state)
