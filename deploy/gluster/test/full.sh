# shellcheck shell=bash
# Drives whose physical space is used up, while their file systems show space. Sourced by test.sh.

available() { drive_status "$LAB/node$1/drive1" .physical_available_bytes; }
# fill NODE MIB: other data on a node's brick, so that its drives have so much left
fill() {
    local left=$(($(available "$1") * DRIVES >> 20))
    [ "$left" -gt $(($2 + 50)) ] || fail "the drives of node $1 are nearly full before they are filled: $left MiB are left"
    random $((left - $2)) | dd of="$LAB/node$1/fs/filler" bs=1M iflag=fullblock conv=fsync status=none
}
is_full() {
    local drive
    for drive in $(drives_of "$1"); do
        if [ "$(drive_status "$drive" .out_of_space)" = true ]; then return; fi
    done
    return 1
}
# refusals NODE: requests that its drives have refused for lack of physical space
refusals() { local drive sum=0; for drive in $(drives_of "$1"); do sum=$((sum + $(drive_status "$drive" .server.requests.no_space_count))); done; echo $sum; }
# grow NODE SIZE: physical space for its drives
grow() {
    local drive
    for drive in $(drives_of "$1"); do
        pumice set-size "$drive" "$(numfmt --from=iec "$2" | awk -v now="$(drive_status "$drive" .physical_size_bytes)" '{ printf "%.0f", now + $1 }')" >>"$LAB/log" 2>&1 ||
            fail "$drive does not grow"
    done
}
sfx_number() { pumice sfx-status "$LAB/node$1/drive1" | sed -n 's/^SFX card: .dev.sfdv\([0-9]*\)n1$/\1/p'; }
# space_flag NODE: as the document reads it, of its first drive
space_flag() { cat "$LAB/run-sfx/sfdv$(sfx_number "$1")n1/sfx_smart_features/space_flag"; }
space_flag_is() { [ "$(space_flag "$1")" = "$2" ]; }
capacity_flag() { pumice capacity "$LAB/node$1/drive1" | tail -n 1 | awk '{ print $NF }'; }
warned() { grep -q '^Critical Warning: .*out-of-space' <<<"$(pumice sfx-status "$LAB/node$1/drive1")"; }
# percent_of_df NODE
percent_of_df() { df --output=pcent "$LAB/node$1/fs" | tail -n 1 | tr -d ' %'; }
# has_logical_space NODE: what fails then fails for physical space
has_logical_space() { [ "$(percent_of_df "$1")" -lt 95 ] || fail "df of node $1 shows $(percent_of_df "$1") %: the file system is full, and not the drive"; }
# brick_state NODE: whether its file system still takes writes
brick_state() {
    local node=$1
    if [[ ,$(findmnt -n -o OPTIONS "$LAB/node$node/fs"), == *,ro,* ]]; then echo "read-only"
    elif ! stat "$LAB/node$node/fs/." >/dev/null 2>&1; then echo "shut down"
    else echo "writable"; fi
}

# All physical drives are full. It is healed by deleting and trimming.
step_all_full() {
    local node shown written errors mark state refused=()
    for ((node = 1; node <= NODES; node++)); do
        refused[node]=$(refusals "$node")
        fill "$node" 24
    done
    written=$(number_of replica)
    mark=$(stat -c %s "$LAB/log")
    if write_files replica all-full 32 4 random; then fail "the client saw no error"; fi
    errors=$(tail -c +$((mark + 1)) "$LAB/log" | grep '^dd: ' | sed 's/.*: //' | sort -u | paste -sd, || true)
    written=$(($(number_of replica) - written))
    [ -n "$errors" ] || fail "the client failed without an error: $(tail -n 5 "$LAB/log")"
    for ((node = 1; node <= NODES; node++)); do
        [ "$(refusals "$node")" -gt "${refused[node]}" ] || fail "the drives of node $node have refused nothing"
        has_logical_space "$node"
    done
    shown=$(percent_of_df 1)
    state=$(brick_state 1)
    verify_client replica
    for ((node = 1; node <= NODES; node++)); do give_space_back "$node"; done
    heal || fail "not healed: $(unhealed replica)"
    write_files replica after 4 4 || fail "writes do not go on"
    verify_everywhere
    ok "drives of all nodes full, df shows $shown %, brick of node 1 $state: after $written files the client got \"$errors\"; deleted, trimmed: all $(number_of replica) files on all bricks, writes go on"
}
# give_space_back NODE: deletes the filler and trims, with the bricks of the node ended
give_space_back() {
    end_bricks "$1"
    rm "$LAB/node$1/fs/filler"
    trim_brick "$1"
    remount_brick "$1"
    start_bricks
}

# One physical drive is full, that of its replica is not. It is healed by growing the drive.
step_one_full() {
    local behind shown state
    [ "$(capacity_flag 2)" = 0 ] && space_flag_is 2 0 && ! warned 2 || fail "the drive of node 2 counts as full before it is"
    fill 2 24
    write_files replica one-full 16 4 random || fail "the client saw an error though one brick has space"
    is_full 2 || fail "the drive of node 2 is not full"
    has_logical_space 2
    shown=$(percent_of_df 2)
    state=$(brick_state 2)
    # The drive of node 2 is read as the document does.
    if [ "$DRIVES" = 1 ]; then
        [ "$(capacity_flag 2)" = 1 ] || fail "space_flag is not 1"
        wait_until 10 space_flag_is 2 1 || fail "space_flag of sfx is not 1"
        warned 2 || fail "sfx-status shows no warning"
    fi
    behind=$(unhealed replica) || fail "a brick does not answer"
    [ "$behind" -gt 0 ] || fail "the brick of node 2 took everything: this tests nothing"
    verify_client replica
    regain_brick 2
    heal || fail "not healed: $(unhealed replica)"
    # What the page cache has is not what the drive has.
    end_bricks 2
    remount_brick 2
    start_bricks
    verify_everywhere
    ok "drive of node 2 full, df shows $shown %, its brick $state: no client error, $behind entries to heal; set-size +512M: all $(number_of replica) files on all bricks"
}
# regain_brick NODE: the file system must forget what its drive refused before it is written again (README.md)
regain_brick() {
    end_bricks "$1"
    if [ "$FS" = ext4 ]; then
        wait_until 15 umount "$LAB/node$1/fs" 2>>"$LAB/log" || fail "$LAB/node$1/fs cannot be unmounted"
        grow "$1" 512M
        mount_brick "$1" || fail "node $1: not mounted"
    else
        grow "$1" 512M
    fi
    start_bricks
}
