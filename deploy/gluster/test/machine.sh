# shellcheck shell=bash
# What needs no cluster: units of production, and whom lab.sh trusts. Sourced by test.sh.

# make_units FOLDER FSTAB-LINE: Gluster's own unit with ours, and the mount of a line for /etc/fstab
make_units() {
    local folder=$1
    rm -rf "$folder"
    mkdir -p "$folder/glusterd.service.d"
    sed 's|/usr/bin/pumice|/bin/true|' "$root/deploy/systemd/pumice.service" >"$folder/pumice.service"
    sed 's|/usr/bin/pumice|/bin/true|' "$root/deploy/systemd/pumice-attach.service" >"$folder/pumice-attach.service"
    cp "$glusterd_unit" "$folder"
    cp "$here/systemd/glusterd.conf" "$folder/glusterd.service.d/"
    cp "$here/systemd/pumice-trim@.service" "$folder/pumice-trim@srv-brick1.service"
    cp "$here/systemd/pumice-trim@.timer" "$folder/pumice-trim@srv-brick1.timer"
    echo "$2" >"$folder/fstab"
    SYSTEMD_FSTAB=$folder/fstab "$fstab_generator" "$folder" "$folder" "$folder"
    [ -s "$folder/srv-brick1.mount" ] || fail "the line for /etc/fstab makes no mount: $2"
}
# complaints FOLDER: of systemd about the units of a folder; nothing if they are valid and in an order without cycles
complaints() {
    {
        SYSTEMD_UNIT_PATH=$1: timeout 60 systemd-analyze verify --man=no "$1"/{glusterd.service,srv-brick1.mount,pumice-trim@srv-brick1.{service,timer}} 2>&1 ||
            echo "exit code $?"
    } | grep -v "Unknown key 'SurviveFinalKillSignal' in section" || true # systemd before 255 ignores it
}
# dependencies FOLDER: what systemd makes of glusterd.service: lines such as "Wants: srv-brick1.mount"
dependencies() {
    SYSTEMD_UNIT_PATH=$1: SYSTEMD_LOG_LEVEL=debug timeout 60 systemd-analyze verify --man=no "$1/glusterd.service" 2>&1 |
        sed -n '/-> Unit glusterd.service:/,/Memory/s/^[[:space:]]*\([A-Za-z]*: [^ ]*\) (.*/\1/p'
}

fstab_generator=/lib/systemd/system-generators/systemd-fstab-generator
glusterd_unit=/lib/systemd/system/glusterd.service
# Units of production, with Gluster's own and the line of README.md for /etc/fstab.
step_units() {
    local line said folder=$work/units
    if ! command -v systemd-analyze >/dev/null || [ ! -x "$fstab_generator" ] || [ ! -e "$glusterd_unit" ]; then
        echo "skipped: units: no systemd-analyze, systemd-fstab-generator or glusterd.service"
        return
    fi
    line=$(sed -n 's|^ *UUID=\.\.\. /srv/brick1|UUID=3e6be9de-8139-11d1-9106-a43f08d823a6 /srv/brick1|p' "$here/README.md")
    [ -n "$line" ] || fail "README.md has no line for /etc/fstab"
    make_units "$folder" "$line"
    said=$(complaints "$folder")
    [ -z "$said" ] || fail "systemd-analyze verify: $said"
    said=$(dependencies "$folder")
    grep -qx 'Wants: srv-brick1.mount' <<<"$said" || fail "glusterd does not want its brick: $said"
    grep -qx 'After: srv-brick1.mount' <<<"$said" || fail "glusterd is not ordered behind its brick: $said"
    if grep -E '^(Requires|Requisite|BindsTo|PartOf|ConsistsOf): srv-brick1.mount' <<<"$said"; then fail "a lost brick takes down glusterd, with all other bricks"; fi
    # What is looked for would be seen.
    make_units "$folder" "${line/nofail/nofail,_netdev}"
    grep -q 'ordering cycle' <<<"$(complaints "$folder")" || fail "a cycle is not seen"
    make_units "$folder" "$line"
    printf '[Unit]\nRequiresMountsFor=/srv/brick1\n' >"$folder/glusterd.service.d/glusterd.conf"
    grep -qx 'Requires: srv-brick1.mount' <<<"$(dependencies "$folder")" || fail "a requirement is not seen"
    ok "drives, mount, glusterd and the timer are valid and in order, without a cycle; glusterd starts without a brick that is lost"
}

# refuses WORDS LAB: `lab.sh status` and `down` refuse the directory, with these words, and run nothing of it
refuses() {
    local command said
    for command in status down; do
        if said=$(LAB=$2 "$here/lab.sh" "$command" 2>&1); then fail "$command obeys $2"; fi
        grep -q "$1" <<<"$said" || fail "$command of $2 says: $said"
    done
    [ ! -e "$work/ran" ] || fail "something in $2 was run"
    [ -e "$2/settings" ] || fail "$2 was removed"
}
# Directories of others, in which lab.sh would act as root.
step_trust() {
    local folder=$work/open/lab said
    mkdir -p "$folder"
    chmod 755 "$work/open" "$folder"
    # Nothing in a file of settings is run, whomever it belongs to.
    { cat "$LAB/settings"; echo "SIZE=\$(touch $work/ran)"; echo "touch $work/ran"; } >"$folder/settings"
    chown 65534 "$folder"
    refuses 'belongs to user 65534' "$folder"
    chown 0 "$folder"
    chmod 775 "$folder"
    refuses 'writable by other users' "$folder"
    chmod 755 "$folder"
    chmod 666 "$folder/settings"
    refuses 'writable by other users' "$folder"
    chmod 644 "$folder/settings"
    chown 65534 "$folder/settings"
    refuses 'belongs to user 65534' "$folder"
    chown 0 "$folder/settings"
    ln -s "$folder" "$work/link"
    refuses 'symbolic link' "$work/link"
    chmod 777 "$work/open"
    refuses "$work/open: writable by other users" "$folder"
    if said=$(LAB=$work/open/new "$here/lab.sh" up 2>&1); then
        chmod 755 "$work/open"
        LAB=$work/open/new "$here/lab.sh" down
        fail "up in a directory that others can write"
    fi
    grep -q "$work/open: writable by other users" <<<"$said" || fail "up says: $said"
    [ ! -e "$work/open/new" ] || fail "something was made in a directory that others can write"
    # As in /tmp.
    chmod 1777 "$work/open"
    if said=$(LAB=$folder NODES=1 "$here/lab.sh" up 2>&1); then fail "up takes a directory that exists"; fi
    grep -q 'exists' <<<"$said" || fail "up says: $said"
    (load_elsewhere "$folder") || fail "settings of a directory of root in one like /tmp are refused"
    [ ! -e "$work/ran" ] || fail "a setting was run"
    rm -r "$work/open" "$work/link"
    ok "a lab that is not root's, that others can write, a link to one, or a place that others can change: refused; settings are not run"
}
load_elsewhere() {
    LAB=$1
    check_trusted "$LAB"
    load_settings
    [ "$SIZE" = "\$(touch $work/ran)" ]
}
