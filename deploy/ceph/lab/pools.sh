# Sourced by lab.sh: pools r1, r2, r3 (1, 2, 3 copies) and ec42 (erasure coding 4+2), as far as there are OSDs; an RBD image in each.

# The commands that make them, one a line.
pool_commands() {
    local copies pool
    for copies in 1 2 3; do
        [ "$osds" -ge "$copies" ] || continue
        pool=r$copies
        echo "osd pool create $pool 8"
        # One copy is for comparisons only, and has to be confirmed.
        echo "osd pool set $pool size $copies --yes-i-really-mean-it"
        # With one copy of three left nothing is written that could be lost with it.
        echo "osd pool set $pool min_size $((copies > 2 ? 2 : 1))"
        echo "osd pool application enable $pool rbd"
    done
    [ "$osds" -ge 6 ] || return 0
    echo "osd erasure-code-profile set ec42 k=4 m=2 crush-failure-domain=osd"
    echo "osd pool create ec42 8 8 erasure ec42"
    echo "osd pool set ec42 allow_ec_overwrites true"
    echo "osd pool application enable ec42 rbd"
}

# `rbd rm` moves an image to the trash of its pool first. Where an OSD is full the trash cannot be made any more, and nothing be removed.
make_trash() {
    rbd create "$1/removed" --size 1M --image-feature layering
    rbd trash mv "$1/removed"
    rbd trash purge "$1" --no-progress
}

make_pools() {
    local pool
    # In one session: each start of `ceph` takes half a second.
    pool_commands | ceph >"$lab/log/pools.log" 2>&1
    for pool in $(pool_commands | sed -n 's/^osd pool create \([a-z0-9]*\) .*/\1/p'); do
        ceph osd pool get "$pool" size >/dev/null || die "no pool $pool: $(tail -n 3 "$lab/log/pools.log")"
        [ "$image" != 0 ] || continue
        case $pool in
            # RBD keeps the names of an image in a pool with copies.
            ec42) rbd create r3/image-ec42 --size "$image" --data-pool ec42 --image-feature layering ;;
            *)
                rbd create "$pool/image" --size "$image" --image-feature layering
                make_trash "$pool"
                ;;
        esac
    done
    touch "$lab/pools"
}

# All placement groups are active and clean.
all_clean() {
    ceph pg stat -f json | jq -e '[.pg_summary.num_pg_by_state[] | select(.name | test("^active\\+clean") | not) | .num] | add // 0 == 0'
}
