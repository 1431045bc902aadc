# shellcheck shell=bash
# Data of the tests: files whose hashes are kept once fsync acknowledged them, and looked for on clients and bricks. Sourced.
# LAB/VOLUME.sha256 lists what a volume must hold.

random() { head -c $(($1 << 20)) /dev/urandom; }
# Hexadecimal digits: about 2.5:1.
compressible() { head -c $(($1 << 20)) < <(head -c $((($1 << 20) * 16 / 48)) /dev/urandom | od -An -v -tx1); }

# write_file VOLUME NAME MIB random|compressible: writes a file by the client; lists it if the write and its fsync succeeded
write_file() {
    local path=$LAB/client/$1/$2
    if ! "$4" "$3" | dd of="$path" bs=128k iflag=fullblock conv=fsync status=none 2>>"$LAB/log"; then
        rm -f "$path" 2>>"$LAB/log" || true
        return 1
    fi
    (cd "$LAB/client/$1" && sha256sum "$2") >>"$LAB/$1.sha256"
}
# write_files VOLUME PREFIX COUNT MIB [KIND]: every second file is compressible if no kind is given
write_files() {
    local n kind
    for ((n = 1; n <= $3; n++)); do
        kind=${5:-$([ $((n % 2)) = 0 ] && echo random || echo compressible)}
        write_file "$1" "$2-$n" "$4" "$kind" || return 1
    done
}
# forget VOLUME PREFIX: removes files and their lines
forget() {
    rm -f "$LAB/client/$1/$2"-*
    sed -i "/  $2-/d" "$LAB/$1.sha256"
}
number_of() { wc -l <"$LAB/$1.sha256"; }

remount() {
    umount "$LAB/client/$1"
    mount_volume "$1"
}
# verify_client VOLUME: reads all files by a client that has cached nothing
verify_client() {
    remount "$1"
    [ -s "$LAB/$1.sha256" ] || return 0
    (cd "$LAB/client/$1" && sha256sum --quiet -c "$LAB/$1.sha256") >>"$LAB/log" 2>&1 || fail "$step: volume $1 lost something: $LAB/log"
}
# verify_brick NODE: reads all files of the replica from a node's brick
verify_brick() {
    (cd "$LAB/node$1/fs/replica" && sha256sum --quiet -c "$LAB/replica.sha256") >>"$LAB/log" 2>&1 ||
        fail "$step: the brick of node $1 lacks something: $LAB/log"
}
verify_brick_quietly() { (verify_brick "$1") 2>/dev/null; }
# files_left VOLUME: how many of its files a client can read as they were written
files_left() {
    remount "$1"
    (cd "$LAB/client/$1" && sha256sum -c "$LAB/$1.sha256" 2>>"$LAB/log" | grep -c ': OK$') || true
}
verify_everywhere() {
    local node
    verify_client replica
    verify_client distributed
    for ((node = 1; node <= NODES; node++)); do verify_brick "$node"; done
}

# fio_on VOLUME ARGUMENTS...: fio by the FUSE client
fio_on() {
    local volume=$1
    shift
    fio --directory="$LAB/client/$volume" --aux-path="$LAB" --refill_buffers --buffer_compress_percentage=60 \
        --buffer_compress_chunk=4096 --verify_fatal=1 --verify_state_save=0 "$@" >"$LAB/fio.out" 2>&1 || { tail -n 20 "$LAB/fio.out" >&2; return 1; }
}
# fio_gfapi VOLUME ARGUMENTS...: fio as a client of its own, without FUSE
fio_gfapi() {
    local volume=$1
    shift
    (cd "$LAB" && fio --ioengine=gfapi_async --volume="$volume" --brick="$(host 1)" --refill_buffers --buffer_compress_percentage=60 \
        --buffer_compress_chunk=4096 --verify_fatal=1 --verify_state_save=0 "$@" >"$LAB/fio.out" 2>&1) || { tail -n 20 "$LAB/fio.out" >&2; return 1; }
}
