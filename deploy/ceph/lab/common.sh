# Sourced by lab.sh and test.sh: what all parts use. `lab` is the directory of the cluster.

die() { echo "lab.sh: $*" >&2; exit 1; }

# Commands of Ceph wait for ever for a monitor that is not there.
ceph() { timeout "${CEPH_SECONDS:-60}" /usr/bin/ceph --connect-timeout 20 "$@" 2> >(grep -v 'WARNING: all dangerous' >&2); }

# These wait for placement groups, too.
rbd() { timeout "${RBD_SECONDS:-300}" /usr/bin/rbd "$@"; }
rados() { timeout "${RBD_SECONDS:-300}" /usr/bin/rados "$@"; }

# Only root may change it: no link, nobody else's, not writable by others. What is in it is run as root.
is_private() { [ ! -L "$1" ] && [ -n "$(find "$1" -maxdepth 0 -user 0 ! -perm /002 '(' ! -perm /020 -o -group 0 ')' 2>/dev/null)" ]; }
# Nor may others put something else in its place: each directory above is root's, and those that all may write to are sticky.
is_out_of_reach() {
    local above=$1
    while [ "$above" != / ]; do
        above=$(dirname "$above")
        [ -n "$(find "$above" -maxdepth 0 -user 0 '(' -perm -1000 -o ! -perm /002 '(' ! -perm /020 -o -group 0 ')' ')' 2>/dev/null)" ] ||
            return 1
    done
}
require_private() {
    is_private "$lab" && is_out_of_reach "$lab" || die "$lab: somebody else than root may change it or put another in its place; it is not used"
    [ ! -e "$lab/settings" ] && [ ! -L "$lab/settings" ] || is_private "$lab/settings" ||
        die "$lab/settings: somebody else than root may change it; it is not used"
}
# Whether there is a cluster in the directory; then its settings are read.
read_settings() {
    [ -e "$lab/settings" ] || return 1
    require_private
    . "$lab/settings"
}

pumice=${PUMICE:-}
if [ -z "$pumice" ]; then
    pumice=$here/../../target/release/pumice
    [ -x "$pumice" ] || pumice=$(command -v pumice || true)
fi

# await SECONDS COMMAND...: until it succeeds
await() {
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.2
    done
}

missing_tools() {
    local tool
    for tool in ceph-mon ceph-mgr ceph-osd ceph rbd radosgw radosgw-admin monmaptool jq python3 losetup; do
        command -v "$tool" >/dev/null || echo "$tool"
    done
}

require_tools() {
    local missing
    [ "$(id -u)" = 0 ] || die "needs root"
    missing=$(missing_tools | paste -sd' ')
    [ -z "$missing" ] || die "not installed: $missing (scripts/deps.sh clusters)"
    [ -n "$raw" ] || [ -x "$pumice" ] || die "no program: make build, or PUMICE=PATH"
}

# COUNT TCP ports of 127.0.0.1 that nobody listens at, and that no outgoing connection gets: a server has to find its port free again.
free_ports() {
    "$python" -c 'import random, socket, sys
lowest = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
ports, sockets = list(range(10000, max(lowest, 20000))), []
random.shuffle(ports)
while len(sockets) < int(sys.argv[1]):
    try:
        sockets.append(socket.create_server(("127.0.0.1", ports.pop())))
    except OSError:
        pass
print(*(s.getsockname()[1] for s in sockets))' "$1"
}
# Ceph's own; a shim in front of it costs a second a call on a busy machine.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

s3_access_key=lab s3_secret_key=lab-secret

# What later calls for the same directory need.
save_settings() {
    local name
    read -r mon_port mon_port_1 rgw_port < <(free_ports 3)
    pumice=$(command -v "$pumice" || true)
    pumice=${pumice:+$(realpath "$pumice")}
    for name in osds size capacity codec by raw defaults image rgw serve_arguments mon_port mon_port_1 rgw_port pumice; do
        printf '%s=%q\n' "$name" "${!name}"
    done >"$lab/settings"
}

# The numbers of the OSDs that have a directory.
osd_ids() { ls "$lab/osd" | sort -n; }
