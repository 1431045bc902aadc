# shellcheck shell=bash
# What there is of a lab on this machine outside its directory. Sourced after cluster.sh.

# traces: sockets of this lab in /run/gluster, and its links in /dev, whether or not they are there still
traces() {
    local folder
    if [ -s "$LAB/sockets" ]; then sort -u "$LAB/sockets"; fi
    gluster_sockets
    for folder in "$LAB"/run-sfx/sfdv*; do [ ! -d "$folder" ] || echo "/dev/${folder##*/}"; done
}
# remains: a line "KIND WHAT" for each process, mount, block device, volume, socket and link of this lab; nothing once it has ended.
# TRACES: a file with what `traces` printed, for a lab whose directory is gone.
remains() {
    local file
    lab_processes | cut -d' ' -f1,3- | sed 's/^/process /'
    # In any mount namespace.
    awk -v lab="$LAB/" 'index($5, lab) == 1 && !seen[$5]++ { print "mount", $5 }' /proc/[0-9]*/mountinfo 2>/dev/null || true
    losetup --list --noheadings --output NAME,BACK-FILE | awk -v lab="$LAB/" 'index($2, lab) == 1 { print "device", $1, $2 }'
    for file in "$LAB"/run-attach/*/attachment.json; do
        [ ! -e "$file" ] || jq -r '"attachment \(.node) of \(.path)"' "$file"
    done
    for file in "/dev/mapper/$(volume_group '')"*; do [ ! -e "$file" ] || echo "volume $file"; done
    if [ -n "${TRACES:-}" ]; then cat "$TRACES"; else traces; fi | sort -u | while read -r file; do
        if [ -S "$file" ]; then echo "socket $file"; fi
        # That of another lab leads to a device.
        if [ -L "$file" ] && [ ! -e "$file" ]; then echo "link $file"; fi
    done
}
