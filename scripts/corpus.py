"""The parts of scripts/corpus.sh that make bytes: corpus.py KIND OUT MIB [FOLDER GLOB...]."""

import array
import fnmatch
import gzip
import itertools
import json
import math
import os
import random
import signal
import sqlite3
import sys

BLOCK = 4096
CHUNK = 1 << 20


class Out:
    """A file of a given length: takes bytes until it is full."""

    def __init__(self, path, mib):
        self.left = mib << 20
        self.file = open(path, "wb")

    def write(self, data):
        data = data[: self.left]
        self.file.write(data)
        self.left -= len(data)
        return self.left > 0


def gather(out, folder, globs):
    """Files of a folder, in an order that mixes them, each from a block's border on, as on a disk."""
    paths = []
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path):
                if any(fnmatch.fnmatch(path, "*" + glob) for glob in globs):
                    paths.append(path)
    paths.sort()
    random.Random(1).shuffle(paths)
    for path in paths:
        opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
        with opened as file:
            data = file.read()
        if not out.write(data + bytes(-len(data) % BLOCK)):
            return


def head(out):
    while (data := sys.stdin.buffer.read(CHUNK)) and out.write(data):
        pass
    while sys.stdin.buffer.read(CHUNK):
        pass


def rounded(out):
    """Tensors of a safetensors file of float32, each number rounded to bfloat16."""
    length = int.from_bytes(sys.stdin.buffer.read(8), "little")
    sys.stdin.buffer.read(length)
    while data := sys.stdin.buffer.read(CHUNK):
        wide = array.array("I", data)
        narrow = array.array("H", [(bits + 0x7FFF + (bits >> 16 & 1)) >> 16 for bits in wide])
        if not out.write(narrow.tobytes()):
            break
    while sys.stdin.buffer.read(CHUNK):
        pass


def raw12(out):
    """Pictures (PPM, one behind another) as a sensor with colour filters (RGGB) reads them: 12 bits in words of 16.

    Each pixel gets the light that gives its value back by sRGB's curve, and noise: that of counting 10,000 electrons at
    white, and 2.5 electrons of reading. Every brightness of every colour has 1024 values drawn beforehand.
    """
    pick, source = random.Random(10), sys.stdin.buffer
    white, black, full, reading, draws = 4095, 240, 10_000, 2.5, 1024
    step = full / (white - black)
    tables = []
    # Red and blue filters let less light through.
    for gain in (0.5, 1.0, 0.65):
        values = array.array("H")
        for value in range(256):
            light = value / 255 / 12.92 if value <= 10 else ((value / 255 + 0.055) / 1.055) ** 2.4
            electrons = light * full * gain
            width = math.sqrt(electrons + reading**2)
            values.extend(min(white, max(0, round(black + pick.gauss(electrons, width) / step))) for _ in range(draws))
        tables.append(values)
    red, green, blue = tables
    while source.readline().strip() == b"P6":
        columns, rows = map(int, source.readline().split())
        source.readline()
        written = 0
        for row in range(rows):
            line = source.read(columns * 3)
            noise = array.array("H", pick.randbytes(columns * 2))
            even, odd, at = (red, green, 0) if row % 2 == 0 else (green, blue, 1)
            cells = array.array("H", bytes(columns * 2))
            cells[0::2] = array.array("H", [even[value << 10 | draw >> 6] for value, draw in zip(line[at::6], noise[0::2])])
            cells[1::2] = array.array("H", [odd[value << 10 | draw >> 6] for value, draw in zip(line[at + 4 :: 6], noise[1::2])])
            written += columns * 2
            if not out.write(cells.tobytes()):
                break
        else:
            if out.write(bytes(-written % BLOCK)):
                continue
        break
    while source.read(CHUNK):
        pass


class Language:
    """Words by rank (Zipf), spelt from syllables, and phrases made of them, some far more frequent than others."""

    def __init__(self, seed, words=6000, phrases=3000):
        self.random = random.Random(seed)
        pick = self.random
        syllable = lambda: pick.choice("tnsrhldcmpfgwbvk") + pick.choice("eaoiu") + pick.choice(["", "", "n", "r", "s", "t"])
        self.words = ["".join(syllable() for _ in range(pick.choice([1, 2, 2, 3]))) for _ in range(words)]
        self.word_weights = self.cumulated(words)
        self.phrases = [" ".join(self.some_words(pick.randint(3, 8))) for _ in range(phrases)]
        self.phrase_weights = self.cumulated(phrases)

    @staticmethod
    def cumulated(count):
        total, sums = 0.0, []
        for rank in range(1, count + 1):
            total += 1 / rank
            sums.append(total)
        return sums

    def some_words(self, count):
        return self.random.choices(self.words, cum_weights=self.word_weights, k=count)

    def phrase(self):
        return self.random.choices(self.phrases, cum_weights=self.phrase_weights)[0]

    def sentence(self):
        return (self.phrase() + " " + " ".join(self.some_words(self.random.randint(2, 9)))).capitalize() + "."


def json_logs(out):
    """What services log: a time that goes up, few templates, identifiers with real entropy."""
    language, pick = Language(2), random.Random(2)
    services = ["gateway", "orders", "billing", "search", "auth", "mailer", "inventory"]
    pods = [f"{service}-{pick.getrandbits(40):010x}-{pick.getrandbits(20):05x}" for service in services for _ in range(6)]
    templates = [(language.phrase(), pick.choice(services), pick.choice(["info"] * 6 + ["warn", "error", "debug"])) for _ in range(160)]
    clock, lines = 1_760_000_000.0, []
    while True:
        clock += pick.expovariate(400)
        message, service, level = templates[int(pick.paretovariate(0.9)) % 160]
        record = {
            "ts": f"{clock:.6f}", "level": level, "service": service, "pod": pick.choice(pods), "msg": message,
            "trace_id": f"{pick.getrandbits(128):032x}", "span_id": f"{pick.getrandbits(64):016x}",
            "user": int(pick.paretovariate(0.5)) % 2_000_000, "duration_ms": round(pick.lognormvariate(2.5, 1.2), 3),
            "http": {"method": pick.choice(["GET", "GET", "GET", "POST", "PUT"]), "status": pick.choice([200] * 12 + [201, 204, 304, 404, 500])},
        }
        if pick.random() < 0.15:
            record["error"] = {"kind": pick.choice(["Timeout", "ConnectionReset", "Validation"]), "detail": language.sentence()}
        lines.append(json.dumps(record, separators=(",", ":")))
        if len(lines) == 4000:
            if not out.write(("\n".join(lines) + "\n").encode()):
                return
            lines.clear()


def access_log(out):
    """A web server's log in the combined format: visitors who fetch several pages, popular pages and rare ones."""
    language, pick = Language(3), random.Random(3)
    paths = ["/" + "/".join(language.some_words(pick.randint(1, 4))) + pick.choice(["", ".html", ".png", ".js", "?page=%d"]) for _ in range(20000)]
    weights = Language.cumulated(len(paths))
    agents = [f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) {browser}/{pick.randint(80, 140)}.0.{pick.randint(0, 6000)}.{pick.randint(0, 200)} Safari/537.36"
              for system in ["Windows NT 10.0; Win64; x64", "X11; Linux x86_64", "Macintosh; Intel Mac OS X 10_15_7", "Linux; Android 14; K"] for browser in ["Chrome", "Edg", "OPR"] for _ in range(12)]
    visitors = [(f"{pick.randint(1, 223)}.{pick.randint(0, 255)}.{pick.randint(0, 255)}.{pick.randint(0, 255)}", pick.choice(agents)) for _ in range(3000)]
    clock, lines = 0.0, []
    while True:
        clock += pick.expovariate(30)
        at = pick.randrange(len(visitors))
        if pick.random() < 0.05:
            visitors[at] = (f"{pick.randint(1, 223)}.{pick.randint(0, 255)}.{pick.randint(0, 255)}.{pick.randint(0, 255)}", pick.choice(agents))
        address, agent = visitors[at]
        path = pick.choices(paths, cum_weights=weights)[0]
        if "%d" in path:
            path = path % pick.randint(1, 400)
        referrer = "-" if pick.random() < 0.4 else "https://shop.example" + pick.choices(paths, cum_weights=weights)[0].replace("%d", "1")
        second = int(clock)
        time = f"{10 + second // 86400 % 20:02}/Oct/2026:{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02} +0000"
        status = pick.choice([200] * 15 + [304, 301, 404, 206])
        lines.append(f'{address} - - [{time}] "GET {path} HTTP/1.1" {status} {int(pick.lognormvariate(8.5, 1.6))} "{referrer}" "{agent}"')
        if len(lines) == 4000:
            if not out.write(("\n".join(lines) + "\n").encode()):
                return
            lines.clear()


def rides():
    """Rides of a taxi company: key, vendor, times in seconds, passengers, distance, place, payment, fare, tip, total."""
    pick, clock, key = random.Random(4), 0.0, 8_000_000
    while True:
        clock += pick.expovariate(2)
        key += pick.randint(1, 3)
        seconds, distance = pick.lognormvariate(6.5, 0.6), round(pick.lognormvariate(1.2, 0.8), 2)
        fare = round(3 + distance * 1.9 + seconds / 200, 2)
        tip = round(fare * pick.choice([0, 0, 0.1, 0.15, 0.2]), 2)
        vendor, passengers = pick.choice("ABBB"), pick.choice([1, 1, 1, 1, 2, 2, 3, 4])
        latitude, longitude = 52.5 + pick.gauss(0, 0.05), 13.4 + pick.gauss(0, 0.08)
        payment = pick.choice(["card", "card", "cash", "app"])
        yield key, vendor, clock, clock + seconds, passengers, distance, latitude, longitude, payment, fare, tip, round(fare + tip, 2)


def csv(out):
    """Rides as text: numbers make most of it."""
    stamp = lambda time: f"2026-{1 + int(time) // 2_592_000 % 12:02}-{1 + int(time) // 86400 % 28:02} {int(time) // 3600 % 24:02}:{int(time) // 60 % 60:02}:{int(time) % 60:02}"
    rows = ["ride_id,vendor,pickup,dropoff,passengers,distance_km,pickup_lat,pickup_lon,payment,fare,tip,total"]
    for key, vendor, begun, ended, passengers, distance, latitude, longitude, payment, fare, tip, total in rides():
        rows.append(f"{key},{vendor},{stamp(begun)},{stamp(ended)},{passengers},{distance},{latitude:.6f},{longitude:.6f},{payment},{fare},{tip},{total}")
        if len(rows) == 4000:
            if not out.write(("\n".join(rows) + "\n").encode()):
                return
            rows.clear()


def columns(kind, path, mib):
    """Rides as an uncompressed file of columns, Parquet or Arrow IPC, with the writer's own choice of encodings."""
    import pyarrow
    import pyarrow.parquet

    second, text = pyarrow.timestamp("us"), pyarrow.string()
    schema = pyarrow.schema([
        ("ride_id", pyarrow.int64()), ("vendor", text), ("pickup", second), ("dropoff", second), ("passengers", pyarrow.int64()),
        ("distance_km", pyarrow.float64()), ("pickup_lat", pyarrow.float64()), ("pickup_lon", pyarrow.float64()),
        ("payment", text), ("fare", pyarrow.float64()), ("tip", pyarrow.float64()), ("total", pyarrow.float64()),
    ])
    epoch, endless = 1_767_225_600, rides()
    with pyarrow.OSFile(path, "wb") as file:
        if kind == "arrow":
            writer = pyarrow.ipc.new_file(file, schema)
        else:
            writer = pyarrow.parquet.ParquetWriter(file, schema, compression="none")
        with writer:
            while file.tell() < mib << 20:
                # As many rows as DuckDB puts into a row group.
                table = [list(column) for column in zip(*itertools.islice(endless, 122_880))]
                for at in (2, 3):
                    table[at] = [(epoch + int(time)) * 1_000_000 for time in table[at]]
                for at in (6, 7):
                    table[at] = [round(degrees, 6) for degrees in table[at]]
                writer.write_batch(pyarrow.record_batch(table, schema=schema))


def floats(out):
    """Rows of a time, as a float64, and seven measurements: some wander, some swing, two are rounded by their sensor."""
    pick, row, level = random.Random(5), 0, [20.0, 1013.0, 0.5]
    data = array.array("d")
    while True:
        for _ in range(16384):
            row += 1
            level[0] += pick.gauss(0, 0.01)
            level[1] += pick.gauss(0, 0.05)
            level[2] = abs(level[2] * 0.999 + pick.gauss(0, 0.01))
            data.extend((1.76e9 + row * 0.1, round(level[0], 2), round(level[1], 1), level[2], 230 + math.sin(row / 500) * 4 + pick.gauss(0, 0.1), float(row // 900 % 4), level[0] * 1.8 + 32, 0.0 if row % 7 else level[2] * 3))
        if not out.write(data.tobytes()):
            return
        del data[:]


def weights(out):
    """Weights of a network as bfloat16: normal, of another width in each layer."""
    pick = random.Random(6)
    while True:
        width = math.exp(pick.uniform(-5, -2.5))
        gauss = pick.gauss
        layer = array.array("f", [gauss(0, width) for _ in range(1 << 19)]).tobytes()
        upper = bytearray(len(layer) // 2)
        upper[0::2], upper[1::2] = layer[2::4], layer[3::4]
        if not out.write(bytes(upper)):
            return


def sqlite(path, mib):
    """Mail and contacts in a database with indices, some of it deleted again."""
    language, pick = Language(7), random.Random(7)
    base = sqlite3.connect(path)
    base.executescript("pragma journal_mode = off; pragma page_size = 4096;"
                       "create table contact (id integer primary key, name text, mail text, since integer);"
                       "create table message (id integer primary key, sender integer, sent integer, subject text, body text, flags integer, message_id text);"
                       "create index by_sender on message (sender, sent); create unique index by_message_id on message (message_id);")
    name = lambda: " ".join(language.some_words(2)).title()
    contacts = [(key, who := name(), f"{who.replace(' ', '.').lower()}@{language.some_words(1)[0]}.example", pick.randint(1_500_000_000, 1_760_000_000)) for key in range(20000)]
    base.executemany("insert into contact values (?, ?, ?, ?)", contacts)
    clock, key = 1_600_000_000, 0
    while os.path.getsize(path) < mib << 20:
        rows = []
        for _ in range(4000):
            key += 1
            clock += int(pick.expovariate(0.01))
            body = " ".join(language.sentence() for _ in range(int(pick.paretovariate(1.1)) % 40 + 1))
            rows.append((key, int(pick.paretovariate(0.6)) % 20000, clock, language.phrase(), body, pick.choice([0, 1, 1, 1, 3, 5]), f"<{pick.getrandbits(96):024x}@mail.example>"))
        base.executemany("insert into message values (?, ?, ?, ?, ?, ?, ?)", rows)
        base.execute("delete from message where id > ? and id % 23 = 0", (key - 4000,))
        base.commit()
    base.close()


def machine(mib):
    """Runs as the first process of a virtual machine: fills its memory with two programs' data and with files, and waits."""
    import resource

    def fills(share):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > share * (mib << 20)

    # One program keeps rides as objects, another keeps mail in a database.
    ready, write = os.pipe()
    if not os.fork():
        names = ["key", "vendor", "begun", "ended", "passengers", "distance", "latitude", "longitude", "payment", "fare", "tip", "total"]
        kept = {}
        for ride in rides():
            kept[ride[0]] = dict(zip(names, ride))
            if len(kept) % 500 == 0 and fills(0.3):
                break
        os.write(write, b"1")
        signal.pause()
    os.read(ready, 1)
    if not os.fork():
        language, base = Language(9), sqlite3.connect(":memory:")
        base.execute("create table message (id integer primary key, subject text, body text)")
        while not fills(0.3):
            base.executemany("insert into message values (null, ?, ?)", [(language.phrase(), " ".join(language.sentence() for _ in range(8))) for _ in range(200)])
        base.execute("create index by_subject on message (subject)")
        os.write(write, b"1")
        signal.pause()
    os.read(ready, 1)
    # The cache of files takes what is left.
    for where, folders, names in os.walk("/usr"):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(where, name)
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    while file.read(CHUNK):
                        pass
    print("memory is filled", flush=True)
    signal.pause()


def sql(mib):
    """Statements that give a server `mib` MiB of tables and indices, and as much log or more."""
    language = Language(8, phrases=1500)
    orders = mib * 4200
    print("set synchronous_commit = off; select setseed(0.25);")
    print("create table word (id int, phrase text);")
    print("insert into word values " + ",".join(f"({number}, '{phrase}')" for number, phrase in enumerate(language.phrases)) + ";")
    print("create table customer (id int primary key, name text, mail text, balance numeric(12,2), since timestamptz, tags jsonb);")
    print("create table orders (id bigint primary key, customer int, placed timestamptz, state text, total numeric(10,2), token uuid, note text);")
    print(f"insert into customer select g, initcap(w.phrase), md5(g::text) || '@mail.example', (random() * 10000)::numeric(12,2), timestamptz '2020-01-01' + random() * interval '2000 days', jsonb_build_object('tier', (array['gold','silver','basic'])[1 + (random() * 2)::int], 'visits', (random() * 300)::int) from generate_series(1, {orders // 10}) g join word w on w.id = (g * 7919) % 1500 order by g;")
    print(f"insert into orders select g, 1 + (random() * {orders // 10 - 1})::int, timestamptz '2024-01-01' + g * interval '37 seconds', (array['new','paid','shipped','shipped','returned'])[1 + (random() * 4)::int], (random() * 900)::numeric(10,2), md5(random()::text)::uuid, w.phrase || ' ' || v.phrase from generate_series(1, {orders}) g join word w on w.id = (g::bigint * g % 1500) join word v on v.id = (g::bigint * 31 % 1500) order by g;")
    print("checkpoint; create index on orders (customer, placed);")
    # New versions of rows beside the old ones, and a log of single changes behind a checkpoint.
    print(f"update orders set state = 'shipped', total = total + 1 where id % 9 = 0; checkpoint; update customer set balance = balance + 1 where id % 3 = 0; update orders set state = 'closed' where id % 11 = 0;")


def main():
    kind, path, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if kind == "machine":
        return machine(mib)
    if kind == "sql":
        return sql(mib)
    if kind in ("parquet", "arrow"):
        return columns(kind, path, mib)
    if kind == "sqlite":
        return sqlite(path, mib)
    out = Out(path, mib)
    if kind == "gather":
        return gather(out, sys.argv[4], sys.argv[5:])
    {"head": head, "rounded": rounded, "raw12": raw12, "json-logs": json_logs, "access-log": access_log, "csv": csv, "floats": floats, "weights": weights}[kind](out)


main()
