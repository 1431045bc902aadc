# Sourced by lab.sh: drives and their block devices. A drive is a file; its server answers HTTP at a port that is recorded beside
# it in FILE.port.

create_drive() {
    local drive=$1
    if [ -n "$raw" ]; then
        truncate -s "$capacity" "$drive"
    else
        "$pumice" create "$drive" --size "$size" --capacity "$capacity" --codec "${codec:-auto}" --sector 4096 >/dev/null
        free_ports 1 >"$drive.port"
    fi
}

# attach_drive FILE: attaches it if it is not attached; prints the node
attach_drive() {
    local drive=$1
    if [ -n "$raw" ]; then
        echo "$drive"
        return
    fi
    local node
    node=$(node_of "$drive")
    if [ -z "$node" ]; then
        # shellcheck disable=SC2086  # words on purpose
        node=$("$pumice" attach "$drive" --by "$by" -- --http "127.0.0.1:$(<"$drive.port")" $serve_arguments \
            2>>"$lab/log/attach.log") || die "$drive: not attached: $(tail -n 1 "$lab/log/attach.log")"
    fi
    echo "$node"
}

attachment_of() {
    local file
    for file in "$PUMICE_RUNTIME_DIR"-attach/*/attachment.json; do
        [ -e "$file" ] && jq -e --arg path "$1" 'select(.path == $path)' "$file" 2>/dev/null && return
    done
    return 0
}
node_of() { attachment_of "$1" | jq -r '.node // empty'; }
bridge_of() { attachment_of "$1" | jq -r '.bridge_pid // empty'; }
server_of() { attachment_of "$1" | jq -r '.server_pid // empty'; }

detach_drive() {
    case $1 in *.port) return 0 ;; esac
    [ -n "$(attachment_of "$1")" ] || return 0
    timeout 180 "$pumice" detach "$1" >/dev/null || timeout 180 "$pumice" detach --force "$1"
}

# kill_server FILE: the server of a drive, as a crash would end it
kill_server() {
    local pid
    pid=$(server_of "$1")
    [ -n "$pid" ] && [ "$(tr '\0' ' ' <"/proc/$pid/cmdline" | grep -cF " $1 ")" = 1 ] || die "$1: no server"
    kill -9 "$pid"
}

# The drives' addresses, as the module's option `drives` takes them.
drive_addresses() {
    local id
    for id in $(osd_ids); do
        [ ! -e "$lab/drives/osd.$id.port" ] || printf '%s=127.0.0.1:%s ' "$id" "$(<"$lab/drives/osd.$id.port")"
    done
}
