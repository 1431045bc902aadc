#!/usr/bin/env bash
# A Ceph cluster of one machine on Pumice drives, without systemd: a monitor, a manager with the module `pumice`, OSDs
# (BlueStore) each on a drive of its own, pools, RBD images, an S3 gateway. Everything is in one directory and on 127.0.0.1.
# Needs root and the packages of `scripts/deps.sh clusters`.
#
#   lab.sh up [OPTIONS]            start it; the cluster of DIR again if there is one. If that fails, nothing of a new one is left
#   lab.sh down [--keep]           stop it and remove all of it; --keep: leave DIR, for another `up`
#   lab.sh status                  cluster, drives, processes
#   lab.sh run COMMAND...          a command on this cluster: lab.sh run rbd ls r3, lab.sh run pumice status
#   lab.sh osd start|stop|kill|destroy N     stop: SIGTERM; kill: SIGKILL; destroy: the drive too
#   lab.sh osd create              another OSD on a new drive
#   lab.sh mgr start               the manager, after it was killed
#   lab.sh drive kill N            SIGKILL to the server of a drive; its bridge starts another one
#
#   --dir DIR         directory of the cluster [/var/tmp/pumice-ceph, or LAB_DIR]; only root may be able to change it
#   --osds N          [3]; 6 for the pool with erasure coding
#   --size SIZE       physical size of each drive [1G]
#   --capacity SIZE   logical capacity of each drive [3G]
#   --codec CODEC     of each drive [auto]
#   --by WAY          how drives are attached [auto]
#   --raw             OSDs on plain files instead of drives, for comparison
#   --defaults        BlueStore's own defaults where README.md recommends others for drives
#   --image SIZE      RBD image in each pool [256M]; 0: none
#   --no-rgw          no S3 gateway
#   --serve ARGS      more arguments for `pumice serve`
#   --set 'KEY = VALUE'   a line for ceph.conf; may be repeated
#
# Environment: PUMICE, the program [target/release/pumice, else the one in PATH].
set -euo pipefail
shopt -s inherit_errexit
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lab/common.sh"
. "$here/lab/drives.sh"
. "$here/lab/daemons.sh"
. "$here/lab/pools.sh"

usage() { sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//;p}' "$0"; exit "${1:-2}"; }

up() {
    local id
    is_new=
    # Whatever ends it: `exit` in `die`, a command that fails, a signal.
    trap failed_up EXIT
    # Without this one bash forgets a SIGINT that its child outlives.
    trap 'exit 130' INT
    if ! read_settings; then
        # A directory that holds other things would be removed by `down`.
        [ ! -e "$lab" ] || [ -z "$(ls -A "$lab")" ] || die "$lab: not empty, and no cluster of this script"
        [ -e "$lab" ] || mkdir "$lab"
        require_private
        is_new=yes
        mkdir "$lab"/{mon,mgr,run,log,rgw,osd,drives,pumice}
        save_settings
        write_configuration
    fi
    [ -e "$lab/mon/store.db" ] || make_monitor
    start_monitor
    start_manager
    if ls "$lab"/osd/* >/dev/null 2>&1; then
        for id in $(osd_ids); do start_osd "$id"; done
    else
        create_osds "$osds" >/dev/null
    fi
    await 240 osds_are_up "$(osd_ids | wc -l)" || die "OSDs are not up: $(ceph osd stat)"
    [ -e "$lab/pools" ] || make_pools
    await 240 manager_is_active || die "the manager is not active"
    tell_module
    await 300 all_clean || die "placement groups are not clean: $(ceph pg stat)"
    [ -z "$rgw" ] || start_gateway
    trap - EXIT INT
}
# Leaves nothing of a cluster that is new; one that was there before is stopped, and its directory stays.
failed_up() {
    local code=$?
    trap - EXIT
    # Another signal must not end this half-way.
    trap '' HUP INT TERM
    set +e
    # OSDs that are being made.
    wait
    [ ! -d "$lab/log" ] || find "$lab/log" '(' -name '*.start' -o -name attach.log ')' -size +0 -exec tail -n 3 -v {} + >&2
    if [ -n "$is_new" ]; then
        echo "lab.sh: up failed; what it made is removed" >&2
        remove_all
    elif [ -e "$lab/settings" ] && is_private "$lab"; then
        echo "lab.sh: up failed; the cluster is stopped, $lab stays" >&2
        keep=yes
        remove_all
    fi
    exit "$((code ? code : 1))"
}

down() {
    read_settings || { echo "nothing in $lab"; return; }
    remove_all
}
remove_all() {
    stop_daemons
    local drive failed=
    for drive in "$lab"/drives/*; do
        [ -e "$drive" ] || continue
        detach_drive "$drive" || failed=yes
    done
    # The files of a drive that is still served must not go away under it.
    [ -z "$failed" ] || die "drives are still attached; $lab stays"
    [ -n "${keep:-}" ] || rm -rf --one-file-system "$lab"
}

status() {
    read_settings || { echo "no cluster in $lab"; return 1; }
    ceph -s || true
    ceph osd df tree || true
    [ -n "$raw" ] || "$pumice" list
    echo "configuration: CEPH_CONF=$lab/ceph.conf PUMICE_RUNTIME_DIR=$lab/pumice"
    [ -z "$rgw" ] || echo "S3: http://127.0.0.1:$rgw_port, access key $s3_access_key, secret key $s3_secret_key"
}

command=${1:-}
[ $# = 0 ] || shift
case $command in
    up | down | status | osd | mgr | drive | run) ;;
    -h | --help | help) usage 0 ;;
    *) usage ;;
esac
lab=${LAB_DIR:-/var/tmp/pumice-ceph}
osds=3 size=1G capacity=3G codec=auto by=auto raw= defaults= image=256M rgw=yes serve_arguments= keep=
more_configuration=()
words=()
while [ $# -gt 0 ]; do
    case $1 in
        --dir) lab=$2; shift ;;
        --osds) osds=$2; shift ;;
        --size) size=$2; shift ;;
        --capacity) capacity=$2; shift ;;
        --codec) codec=$2; shift ;;
        --by) by=$2; shift ;;
        --raw) raw=yes ;;
        --defaults) defaults=yes ;;
        --image) image=$2; shift ;;
        --no-rgw) rgw= ;;
        --serve) serve_arguments=$2; shift ;;
        --set) more_configuration+=("$2"); shift ;;
        --keep) keep=yes ;;
        -*) usage ;;
        *)
            # All of the rest belongs to the command.
            if [ "$command" = run ]; then
                words=("$@")
                break
            fi
            words+=("$1")
            ;;
    esac
    shift
done
case $lab in *[[:space:]]*) die "$lab: no blanks in the directory, please" ;; esac
mkdir -p "$(dirname "$lab")"
lab=$(cd "$(dirname "$lab")" && pwd -P)/$(basename "$lab")
# What `pumice` keeps of running servers and attached drives is in the directory of the cluster, too.
export CEPH_CONF=$lab/ceph.conf PUMICE_RUNTIME_DIR=$lab/pumice

if [ "$command" = up ]; then
    [ ! -e "$lab" ] || require_private
    require_tools
elif [ "$command" != down ] && [ "$command" != status ]; then
    read_settings || die "no cluster in $lab"
fi
case "$command ${words[0]:-}" in
    "up ") up ;;
    "down ") down ;;
    "status ") status ;;
    "run pumice") "$pumice" "${words[@]:1}" ;;
    "run "?*) "${words[@]}" ;;
    "osd start") start_osd "${words[1]:?number of an OSD}" ;;
    "osd stop") stop_daemon "osd.${words[1]:?number of an OSD}" ;;
    "osd kill") kill_daemon "osd.${words[1]:?number of an OSD}" ;;
    "osd destroy") destroy_osd "${words[1]:?number of an OSD}" ;;
    "osd create") create_osds 1; tell_module ;;
    "mgr start") start_manager ;;
    "drive kill") kill_server "$lab/drives/osd.${words[1]:?number of an OSD}" ;;
    *) usage ;;
esac
