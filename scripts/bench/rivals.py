#!/usr/bin/env python3
"""Tables of what rivals.sh noted: rivals.py NOTES BLOCKS.

NOTES has a line "round contestant figure value" for each figure of each turn, tabs between; BLOCKS is how many blocks of 4 KiB
the data has. Figures are medians over the rounds. What is held against another contestant is the median of the ratios of
each round, since a round is a short time on a machine that others use too.
"""

import sys
from collections import defaultdict
from statistics import median

# The contestant that all others are held against.
BASE = "auto"
NAMES = {
    "auto": "Pumice `auto` (zstd 1)",
    "auto-settled": "Pumice `auto`, settled",
    "lz4": "Pumice `lz4`",
    "none": "Pumice `none`",
    "direct": "raw file, direct I/O",
    "nbdkit-file": "nbdkit file",
    "nbdkit-memory": "nbdkit memory, zstd (RAM)",
    "btrfs-zstd": "btrfs zstd:1",
    "btrfs-lzo": "btrfs lzo",
    "qcow2": "qcow2 zstd",
    "zram": "zram lz4 (RAM)",
    "bluestore-zstd": "BlueStore zstd",
    "bluestore-lz4": "BlueStore lz4",
}
# Figure, how it is called, whether it is counted in requests (else in bytes).
PARTS = [
    ("write", "128 KiB sequential write", False),
    ("read", "128 KiB sequential read", False),
    ("randread", "4 KiB random read", True),
    ("hotread", "4 KiB read, hot set", True),
    ("randwrite", "4 KiB random overwrite", True),
    ("hardwrite", "128 KiB write, hardly compressible", False),
]
PUMICE = {"auto", "auto-settled", "lz4", "none"}
# Smaller differences are not told as being ahead: of speed and CPU, and of space.
NOISE, NOISE_SPACE = 1.05, 1.005


def rate(turn, part, requests):
    """Requests or 10^6 bytes a second."""
    seconds = turn.get(f"{part}.seconds")
    if not seconds:
        return None
    return turn[f"{part}.requests"] / seconds if requests else turn[f"{part}.bytes"] / seconds / 1e6


def cpu(turn, part, sides):
    """CPU seconds of the sides for each 10^9 bytes."""
    if f"{part}.seconds" not in turn:
        return None
    return sum(turn[f"{part}.{side}"] for side in sides) / turn[f"{part}.bytes"] * 1e9


def overwritten(turn):
    """Physical bytes after overwriting, if that went well."""
    return turn.get("overwritten") if "randwrite.seconds" in turn else None


class Run:
    """All turns: contestants in the order in which they came first."""

    def __init__(self, path):
        self.turns = defaultdict(dict)
        self.contestants = []
        for line in open(path, encoding="utf-8"):
            turn, contestant, figure, value = line.rstrip("\n").split("\t")
            key = (int(turn), contestant)
            # The same figure several times in a turn adds up.
            self.turns[key][figure] = self.turns[key].get(figure, 0) + float(value)
            if contestant not in self.contestants:
                self.contestants.append(contestant)
        self.rounds = sorted({key[0] for key in self.turns})

    def median(self, contestant, figure):
        """Over the rounds; None if it failed in any."""
        values = [figure(self.turns[turn, contestant]) for turn in self.rounds]
        return None if None in values else median(values)

    def against(self, contestant, other, figure):
        """The median over the rounds of one's figure over another's."""
        values = [[figure(self.turns[turn, one]) for one in (contestant, other)] for turn in self.rounds]
        if other not in self.contestants or any(None in pair or not pair[1] for pair in values):
            return None
        return median(one / another for one, another in values)


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def shown(value, pattern):
    return "failed" if value is None else format(value, pattern)


def ahead(run, what, figure, less_is_better, noise):
    """One line: which rivals are ahead of the base, and which of them of Pumice in any form."""
    found = []
    for rival in run.contestants:
        ratios = [run.against(rival, one, figure) for one in [BASE] + sorted(PUMICE & set(run.contestants))]
        if rival in PUMICE or None in ratios:
            continue
        if less_is_better:
            ratios = [1 / ratio for ratio in ratios]
        if ratios[0] >= noise:
            name = f"{NAMES[rival]} ({ratios[0]:.2f})"
            found.append(f"**{name}**" if min(ratios) >= noise else name)
    print(f"- {what}: {', '.join(found) or 'none'}")


def main():
    run, blocks = Run(sys.argv[1]), int(sys.argv[2])
    pumice_first = sorted(run.contestants, key=list(NAMES).index)

    rows = []
    for one in pumice_first:
        row = [NAMES[one]]
        for part, _, requests in PARTS:
            figure = lambda turn: rate(turn, part, requests)
            ratio = run.against(one, BASE, figure)
            row.append(shown(run.median(one, figure), ",.0f") + (f" ({ratio:.2f})" if ratio else ""))
        rows.append(row)
    print(f"Throughput, in brackets times that of `{BASE}`:\n")
    table([""] + [f"{name}, {'requests/s' if requests else 'MB/s'}" for _, name, requests in PARTS], rows)

    rows = []
    for one in pumice_first:
        row = [NAMES[one]]
        for part, _, _ in PARTS:
            sides = [run.median(one, lambda turn: cpu(turn, part, [side])) for side in ("server", "client")]
            row.append("failed" if None in sides else " + ".join(f"{side:.2f}" for side in sides))
        rows.append(row)
    print("CPU seconds for each GB (10^9 bytes) written or read, server + client:\n")
    table([""] + [name for _, name, _ in PARTS], rows)

    rows = []
    for one in pumice_first:
        filled, reclaimable = (run.median(one, lambda turn: turn.get(figure)) for figure in ("filled", "reclaimable"))
        row = [NAMES[one], f"{filled / 1e6:,.1f}", f"{blocks * 4096 / filled:.3f}"]
        after = run.median(one, overwritten)
        if after is None:
            row += ["failed"] * 3
        else:
            share = run.median(one, lambda turn: turn["randwrite.requests"]) / blocks * 100
            row += [
                f"{after / 1e6:,.1f}" + (f" and {reclaimable / 1e6:,.1f}" if reclaimable else ""),
                f"{blocks * 4096 / after:.3f}",
                f"{share:.1f} %",
            ]
        rows.append(row)
    print("Physical space in MB, and the data divided by it. *and*: what is dead besides, and comes back by itself:\n")
    table(["", "filled", "ratio", "overwritten", "ratio", "blocks overwritten, of all"], rows)

    if "auto-settled" in run.contestants:
        settle = [run.median("auto-settled", lambda turn: figure(turn)) for figure in
                  (lambda turn: turn.get("settle.seconds"), lambda turn: cpu(turn, "settle", ["server"]))]
        if None not in settle:
            print(f"Settling took {settle[0]:.1f} s and {settle[1]:.2f} CPU s for each GB.\n")

    if BASE in run.contestants:
        print(f"Ahead of Pumice `{BASE}`, by so much (**bold**: ahead of Pumice with every codec, too, settled or not):\n")
        for part, name, requests in PARTS:
            ahead(run, f"{name}, speed", lambda turn: rate(turn, part, requests), False, NOISE)
        for part, name, _ in PARTS:
            ahead(run, f"{name}, CPU of both sides", lambda turn: cpu(turn, part, ["server", "client"]), True, NOISE)
        ahead(run, "space, filled", lambda turn: turn.get("filled"), True, NOISE_SPACE)
        ahead(run, "space, overwritten", overwritten, True, NOISE_SPACE)
        print()

    others, real = (sum(turn.get(figure, 0) for turn in run.turns.values()) for figure in ("others", "real"))
    print(f"While this was measured, other programs of the machine took {others / real:.2f} processors.")


main()
