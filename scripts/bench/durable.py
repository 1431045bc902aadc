#!/usr/bin/python3
"""Durable writes (NBD WRITE with FUA, 4 KiB, at random) on drives of one or more programs, in turns.

usage: scripts/bench.sh durable [--rounds N] PUMICE...

Prints, for 1 and for 32 requests in flight, writes a second of each round in rising order and their median; for one in
flight also the median latency. Needs the Python module of libnbd (python3-libnbd). Drives are made in $TMPDIR.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time

import nbd

BLOCK_BYTES = 4096
WARM_UP_WRITES = 200
# Requests in flight, and how many writes are timed.
RUNS = ((1, 2000), (32, 8000))


def contents():
    """Blocks of which half can be compressed away."""
    source = random.Random(1)
    return [bytearray(source.randbytes(BLOCK_BYTES // 2) + bytes(BLOCK_BYTES // 2)) for _ in range(64)]


class Served:
    """A new drive, served on a Unix socket."""

    def __init__(self, program):
        self.directory = tempfile.mkdtemp(prefix="pumice-bench.")
        drive, socket = f"{self.directory}/drive", f"{self.directory}/socket"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([program, "create", drive, "--size", "512MiB"], check=True, **quiet)
        self.server = subprocess.Popen([program, "serve", drive, "--nbd", f"unix:{socket}"], **quiet)
        while not os.path.exists(socket):
            if self.server.poll() is not None:
                raise SystemExit(f"{program} serve ended with {self.server.returncode}")
            time.sleep(0.02)
        self.handle = nbd.NBD()
        self.handle.connect_unix(socket)

    def close(self):
        self.handle.shutdown()
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.directory)


def write(handle, in_flight, count, blocks, place):
    """Returns the latencies in seconds, in the order in which the writes were done."""
    flying, latencies, sent = {}, [], 0
    while len(latencies) < count:
        while sent < count and len(flying) < in_flight:
            buffer = nbd.Buffer.from_bytearray(blocks[sent % len(blocks)])
            offset = place.randrange(handle.get_size() // BLOCK_BYTES) * BLOCK_BYTES
            flying[handle.aio_pwrite(buffer, offset, flags=nbd.CMD_FLAG_FUA)] = time.monotonic()
            sent += 1
        handle.poll(-1)
        for cookie in [cookie for cookie in flying if handle.aio_command_completed(cookie)]:
            latencies.append(time.monotonic() - flying.pop(cookie))
    return latencies


def measure(program, in_flight, count):
    """Returns writes a second, and the median latency in microseconds."""
    served, blocks, place = Served(program), contents(), random.Random(2)
    try:
        write(served.handle, in_flight, WARM_UP_WRITES, blocks, place)
        start = time.monotonic()
        latencies = write(served.handle, in_flight, count, blocks, place)
        return count / (time.monotonic() - start), statistics.median(latencies) * 1e6
    finally:
        served.close()


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench.sh durable", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("programs", nargs="+", metavar="PUMICE")
    options = parser.parse_args()
    for in_flight, count in RUNS:
        results = {program: [] for program in options.programs}
        for _ in range(options.rounds):
            for program in options.programs:
                results[program].append(measure(program, in_flight, count))
        for program, rounds in results.items():
            rates = sorted(round(rate) for rate, _ in rounds)
            latency = statistics.median(latency for _, latency in rounds)
            print(f"{in_flight} in flight, {program}: {round(statistics.median(rates))} a second {rates}, p50 {latency:.0f} us")


if __name__ == "__main__":
    main()
