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
# verify FOLDER VOLUME: reads all files of a volume there. A list without files would verify nothing.
verify() {
    [ -s "$LAB/$2.sha256" ] || return 1
    (cd "$1" && sha256sum --quiet -c "$LAB/$2.sha256") >>"$LAB/log" 2>&1
}
# verify_client VOLUME: by a client that has cached nothing
verify_client() {
    remount "$1"
    verify "$LAB/client/$1" "$1" || fail "$step: volume $1 lost something: $(tail -n 3 "$LAB/log")"
}
# brick_is_complete NODE: all files of the replica are on a node's brick
brick_is_complete() { verify "$LAB/node$1/fs/replica" replica; }
# files_left FOLDER VOLUME: how many of its files can be read there as they were written
files_left() { (cd "$1" && sha256sum -c "$LAB/$2.sha256" 2>>"$LAB/log" | grep -c ': OK$') || true; }
verify_everywhere() {
    local node
    verify_client replica
    verify_client distributed
    for ((node = 1; node <= NODES; node++)); do
        brick_is_complete "$node" || fail "$step: the brick of node $node lacks something: $(tail -n 3 "$LAB/log")"
    done
}

# fio_on VOLUME ARGUMENTS...: fio by the FUSE client
fio_on() { run_fio --directory="$LAB/client/$1" --aux-path="$LAB" "${@:2}"; }
# fio_gfapi VOLUME ARGUMENTS...: fio as a client of its own, without FUSE
fio_gfapi() { run_fio --ioengine=gfapi_async --volume="$1" --brick="$(host 1)" "${@:2}"; }
run_fio() {
    (cd "$LAB" && fio --refill_buffers --buffer_compress_percentage=60 --buffer_compress_chunk=4096 --verify_fatal=1 --verify_state_save=0 \
        "$@" >"$LAB/fio.out" 2>&1) || { tail -n 20 "$LAB/fio.out" >&2; return 1; }
}
