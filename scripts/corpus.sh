#!/usr/bin/env bash
# corpus.sh DIR [MIB]: makes the corpus that compression is measured on, one file a kind of data, MIB MiB each (64 unless
# given), from Debian packages and from generators that always make the same bytes. docs/corpus.md describes the kinds.
# Files that are there already are kept. Needs apt-get, dpkg-deb, python3; for two kinds a PostgreSQL server, for one
# mkfs.ext4 (kinds whose tools are missing are skipped with a line that says so).
set -euo pipefail

usage() {
    echo "usage: scripts/corpus.sh DIR [MIB]" >&2
    exit 2
}
[ $# -ge 1 ] && [ $# -le 2 ] && [ -n "$1" ] || usage
mib=${2:-64}
case $mib in *[!0-9]* | '') usage ;; esac
[ "$mib" -ge 1 ] || usage
make="$(cd "$(dirname "$0")" && pwd)/corpus.py"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/corpus.XXXXXX")
server=
cleanup() {
    [ -z "$server" ] || as_postgres "$server/pg_ctl" -D "$work/pg/data" -m immediate -s stop || true
    rm -rf "$work"
}
trap cleanup EXIT
export PATH="$PATH:/usr/sbin:/sbin"

# wanted KIND: whether the file is still to be made. Files are made under another name and get theirs when complete.
wanted() { [ ! -s "$dir/$1" ]; }

finish() {
    mv "$dir/.$1" "$dir/$1"
    echo "corpus: $1, $(stat -c %s "$dir/$1") bytes"
}

# unpack FOLDER PACKAGE...: downloads packages, without installing anything, and unpacks them into a folder.
unpack() {
    local folder=$work/$1 package
    shift
    mkdir -p "$folder" "$work/debs"
    chmod 755 "$work"
    for package in "$@"; do
        (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download "$package" >/dev/null)
        dpkg-deb -x "$work"/debs/"${package}"_*.deb "$folder"
    done
}

# gathered KIND FOLDER GLOB...: a kind that consists of files, as a file system would lay them out.
gathered() {
    local kind=$1
    shift
    python3 "$make" gather "$dir/.$kind" "$mib" "$@"
    finish "$kind"
}

if wanted elf; then
    unpack elf libllvm15 coreutils gdb-minimal
    gathered elf "$work/elf" '*.so*' 'bin/*'
fi
if wanted source; then
    unpack source rust-src
    gathered source "$work/source" '*.rs' '*.c' '*.h' '*.cpp'
fi
if wanted text; then
    unpack text wordnet-base linux-doc-6.1 perl-doc python3.11-doc
    gathered text "$work/text" '*/dict/data.*' '*/Documentation/*.rst*' '*/Documentation/*.txt*' '*.pod' '*/_sources/*'
fi
if wanted html; then
    unpack html python3.11-doc postgresql-doc-15 openjdk-17-doc
    gathered html "$work/html" '*.html'
fi
if wanted photos || wanted compressed; then
    unpack photos mate-backgrounds
    unpack jpeg libjpeg-turbo-progs libjpeg62-turbo
    if wanted compressed; then
        # JPEG files, and the package that they came in, which is xz.
        mkdir -p "$work/photos/debs"
        ln -f "$work"/debs/mate-backgrounds_*.deb "$work/photos/debs/"
        gathered compressed "$work/photos" '*.jpg' '*.deb'
    fi
    if wanted photos; then
        # Bytes of brightness, one picture behind another, as a camera's Y plane holds them.
        find "$work/photos" -name '*.jpg' -size +200k | LC_ALL=C sort | while read -r picture; do
            LD_LIBRARY_PATH=$(echo "$work"/jpeg/usr/lib/*-linux-gnu) "$work/jpeg/usr/bin/djpeg" -grayscale "$picture"
        done | python3 "$make" head "$dir/.photos" "$mib"
        finish photos
    fi
fi
if wanted rootfs; then
    if command -v mkfs.ext4 >/dev/null; then
        unpack rootfs libc6 bash coreutils perl-base perl-modules-5.36 libpython3.11-stdlib tzdata
        rm -rf "$work/rootfs/usr/share/doc"
        size=$(du -sm "$work/rootfs" | cut -f1)
        mkfs.ext4 -q -F -d "$work/rootfs" -U 6c1f9a52-6a1d-4a6e-9d0e-0c5b7b8f6d11 \
            -E hash_seed=0c5b7b8f-6d11-4a6e-9d0e-6c1f9a526a1d "$dir/.rootfs" "$((size * 5 / 4 + 8))M" >/dev/null
        finish rootfs
    else
        echo "corpus: rootfs skipped: no mkfs.ext4"
    fi
fi

for kind in json-logs access-log csv floats weights; do
    if wanted $kind; then
        python3 "$make" $kind "$dir/.$kind" "$mib"
        finish $kind
    fi
done
if wanted sqlite; then
    rm -f "$dir/.sqlite"
    python3 "$make" sqlite "$dir/.sqlite" "$mib"
    finish sqlite
fi

# A server refuses to run as root.
as_postgres() {
    if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}
if wanted postgres-heap || wanted postgres-wal; then
    programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1 || true)
    if [ -x "$programs/initdb" ]; then
        mkdir "$work/pg"
        if [ "$(id -u)" = 0 ]; then chown postgres "$work/pg"; fi
        as_postgres "$programs/initdb" -D "$work/pg/data" -A trust -N >/dev/null
        printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work/pg'" 'fsync = off' 'jit = off' \
            'max_wal_size = 4GB' 'wal_keep_size = 4GB' 'autovacuum = off' 'max_parallel_workers_per_gather = 0' \
            >>"$work/pg/data/postgresql.conf"
        as_postgres "$programs/pg_ctl" -D "$work/pg/data" -s -w -l "$work/pg/log" start >/dev/null
        server=$programs
        python3 "$make" sql - "$mib" | as_postgres "$programs/psql" -q -v ON_ERROR_STOP=1 -h "$work/pg" postgres >/dev/null
        as_postgres "$programs/pg_ctl" -D "$work/pg/data" -s -w -m fast stop
        server=
        python3 "$make" gather "$dir/.postgres-heap" "$mib" "$work/pg/data/base" '*/[0-9]*'
        finish postgres-heap
        python3 "$make" gather "$dir/.postgres-wal" "$mib" "$work/pg/data/pg_wal" '*/0000*'
        finish postgres-wal
    else
        echo "corpus: postgres-heap and postgres-wal skipped: no PostgreSQL server"
    fi
fi
du -sh "$dir"
