# Sourced by lab.sh: pools r1, r2, r3 (1, 2, 3 copies) and ec42 (erasure coding 4+2), as far as there are OSDs; an RBD image in each.

make_pools() {
    local copies pool
    for copies in 1 2 3; do
        [ "$osds" -ge "$copies" ] || continue
        pool=r$copies
        ceph osd pool create "$pool" 8 >/dev/null 2>&1
        # One copy is for comparisons only, and has to be confirmed.
        ceph osd pool set "$pool" size "$copies" --yes-i-really-mean-it >/dev/null 2>&1
        # With one copy left nothing is written that could be lost with it.
        ceph osd pool set "$pool" min_size "$((copies > 2 ? 2 : 1))" >/dev/null 2>&1
        ceph osd pool application enable "$pool" rbd >/dev/null 2>&1
        [ "$image" = 0 ] || rbd create "$pool/image" --size "$image" --image-feature layering
    done
    if [ "$osds" -ge 6 ]; then
        ceph osd erasure-code-profile set ec42 k=4 m=2 crush-failure-domain=osd
        ceph osd pool create ec42 8 8 erasure ec42 >/dev/null 2>&1
        ceph osd pool set ec42 allow_ec_overwrites true >/dev/null 2>&1
        ceph osd pool application enable ec42 rbd >/dev/null 2>&1
        # RBD keeps the names of an image in a pool with copies.
        [ "$image" = 0 ] || rbd create r3/image-ec42 --size "$image" --data-pool ec42 --image-feature layering
    fi
    touch "$lab/pools"
}

# All placement groups are active and clean.
all_clean() {
    ceph pg stat -f json | jq -e '[.pg_summary.num_pg_by_state[] | select(.name | test("^active\\+clean") | not) | .num] | add // 0 == 0'
}
