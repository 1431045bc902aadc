# Writes to an NBD export and reads back what it wrote, until a line "end" comes on standard input.
# For every line "count" it prints how many requests were done so far.
# Ends with code 3 if the server answers an error or leaves, with 1 if it answers anything but what was written.
# Usage: reload.py URI
import random
import select
import sys

import nbd

BLOCK = 65536

def work():
    handle = nbd.NBD()
    handle.connect_uri(sys.argv[1])
    blocks = handle.get_size() // BLOCK
    written = {}
    chance = random.Random(7)
    count = 0
    while True:
        if select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline().strip()
            if line == "end":
                break
            print(count, flush=True)
        at = chance.randrange(blocks)
        written[at] = chance.randrange(256)
        handle.pwrite(bytes([written[at]]) * BLOCK, at * BLOCK)
        at = chance.choice(list(written))
        assert handle.pread(BLOCK, at * BLOCK) == bytes([written[at]]) * BLOCK, at
        count += 2
    handle.flush()
    for at, value in written.items():
        assert handle.pread(BLOCK, at * BLOCK) == bytes([value]) * BLOCK, at
    print("ok", len(written), flush=True)


try:
    work()
except nbd.Error:
    sys.exit(3)
