#!/usr/bin/env bash
# Builds a Linux with nbd, ublk, dm-vdo and NVMe/TCP that needs no machine of its own, from Debian packages, into a directory:
#
#   LAB_KERNEL=uml|qemu scripts/kernel-lab/build.sh [--built] DIRECTORY
#
#   --built             do nothing; exit code 77 if it is not built
#
#   DIRECTORY/root      the root directory: Debian 13 with fio, file systems, systemd
#   DIRECTORY/log       output of the steps
#
# LAB_KERNEL=uml, the default where it starts (default.sh): the kernel runs as a program (User-Mode Linux), on one processor.
#
#   DIRECTORY/linux     the kernel
#
# LAB_KERNEL=qemu: Debian 13's own kernel with its own modules, for an emulated machine (QEMU without KVM).
#
#   DIRECTORY/vmlinuz, DIRECTORY/initramfs      the kernel
#   DIRECTORY/image                             the root directory as a disk
#
# Takes about two minutes and 2.6 GB, and does nothing where it was built before. The second kernel beside the first takes half a
# minute and 1.5 GB more. Nothing is installed on the machine. Exit code 77: it cannot be built here, with the reason in one line.
set -euo pipefail

skip() { echo "skipped: kernel lab: $*"; exit 77; }

here=$(cd "$(dirname "$0")" && pwd)
. "$here/default.sh"
case $LAB_KERNEL in
    uml) steps="apt_own root kernel modules" tools="patchelf gcc make flex bison bc" ;;
    qemu) steps="apt_own root stock image" tools="qemu-system-x86_64 cpio mke2fs" ;;
    *) echo "build.sh: unknown LAB_KERNEL '$LAB_KERNEL': expected uml or qemu" >&2; exit 2 ;;
esac
# Counts changes of what is built.
version=3
is_built() { local step; for step in $steps; do [ "$(cat "$1/.done-$step" 2>/dev/null)" = $version ] || return; done; }

[ "$(id -u)" = 0 ] || skip "it needs root"
if [ "$LAB_KERNEL" = uml ] && has_amx; then
    skip "User-Mode Linux of Debian 13 does not start on processors with AMX; LAB_KERNEL=qemu does"
fi
if [ "${1:-}" = --built ]; then
    is_built "$2" || skip "not built: LAB_KERNEL=$LAB_KERNEL make test-kernel builds it, in two minutes, into $2 (KERNEL_LAB)"
    [ "$LAB_KERNEL" != qemu ] || command -v qemu-system-x86_64 >/dev/null ||
        skip "qemu-system-x86_64 is not installed (LAB_KERNEL=qemu scripts/deps.sh kernel)"
    exit 0
fi
[ $# = 1 ] || { echo "usage: build.sh [--built] DIRECTORY" >&2; exit 2; }
[ "$(uname -m)" = x86_64 ] || skip "it is for x86_64"
[ -e /etc/debian_version ] || skip "it is built from Debian packages"
for tool in mmdebstrap $tools xz depmod apt-get; do
    command -v "$tool" >/dev/null || skip "$tool is not installed (LAB_KERNEL=$LAB_KERNEL scripts/deps.sh kernel)"
done
mkdir -p "$1/log" "$1/packages"
lab=$(cd "$1" && pwd -P)
case $lab in *[!A-Za-z0-9/._+-]*) skip "a kernel cannot be built in a path like '$lab'" ;; esac
exec 9>"$lab/lock"
flock 9

release=trixie
programs=fio,e2fsprogs,xfsprogs,kmod,udev,util-linux,procps,coreutils,systemd-sysv
# For nvme.sh.
programs+=,nvme-cli,iproute2
# For bench-kernel.sh.
programs+=,btrfs-progs,btrfs-compsize,dmsetup,vdo
# For xfstests.
programs+=,acl,attr,bc,gawk,hostname,libaio1t64,perl,psmisc,quota,xfsdump

# An apt of its own, with the mirror of this machine and the packages of that release.
apt_own() {
    local mirror key code
    code=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mirror=${MIRROR:-$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(SITE)' |
        awk -v code="$code" '$1 == code && $2 == "main" && !seen++ { print $3 }')}
    [ -n "$mirror" ] || { echo "no mirror in the apt sources; set MIRROR"; return 1; }
    key=$(find /usr/share/keyrings -name 'debian-archive-keyring.*' | head -n 1)
    mkdir -p "$lab"/apt/lists/partial "$lab"/apt/cache/archives/partial
    : >"$lab/apt/status"
    echo "deb [signed-by=$key] $mirror $release main" >"$lab/apt/sources"
    apt-config dump | grep -iE '^Acquire::https?::.*Proxy' >"$lab/apt/proxy" || true
    {
        cat "$lab/apt/proxy"
        printf '%s "%s";\n' Dir::Etc::SourceList "$lab/apt/sources" Dir::Etc::SourceParts /dev/null \
            Dir::Etc::Preferences /dev/null Dir::Etc::PreferencesParts /dev/null Dir::State::Lists "$lab/apt/lists" \
            Dir::State::Status "$lab/apt/status" Dir::Cache "$lab/apt/cache" Acquire::Languages none APT::Sandbox::User root
    } >"$lab/apt/conf"
    APT_CONFIG=$lab/apt/conf apt-get update
}

package() {     # package NAME [VERSION]: downloads it, prints its file
    # The lists may be from long ago, when a first kernel was built here.
    (cd "$lab/packages" && rm -f "$1"_*.deb && export APT_CONFIG=$lab/apt/conf &&
        { apt-get -q download "$1${2:+=$2}" || { apt-get -q update && apt-get -q download "$1${2:+=$2}"; }; } >&2 && ls "$PWD/$1"_*.deb)
}

root() {
    rm -rf --one-file-system "$lab/root"
    mmdebstrap --mode=root --variant=minbase --aptopt='APT::Install-Recommends "false"' --aptopt="$lab/apt/proxy" \
        --include="$programs" "$release" "$lab/root" "$lab/apt/sources"
    # As programs built for earlier releases know it.
    ln -s libaio.so.1t64 "$lab/root/usr/lib/x86_64-linux-gnu/libaio.so.1"
    mkdir -p "$lab/root/share"
    cp "$here/init" "$lab/root/lab-init"
    chmod 755 "$lab/root/lab-init"
}

kernel() {
    local file
    file=$(package user-mode-linux)
    rm -rf "$lab/uml"
    dpkg -x "$file" "$lab/uml"
    cp "$lab/uml/usr/bin/linux.uml" "$lab/linux"
    # Built for the C library of that release.
    patchelf --set-interpreter "$lab/root/usr/lib64/ld-linux-x86-64.so.2" --set-rpath "$lab/root/usr/lib/x86_64-linux-gnu" \
        "$lab/linux"
    mkdir -p "$lab/root/usr/lib/modules"
    cp -a "$lab"/uml/usr/lib/uml/modules/* "$lab/root/usr/lib/modules/"
}

# source_for PACKAGE KERNEL: the newest version of a source package that is not newer than the kernel; nothing if all are. A
# stable release may add members to structures (6.12.117 to those of sockets): a module built for it then calls the wrong function.
source_for() {
    local version best=
    for version in $(APT_CONFIG=$lab/apt/conf apt-cache madison "$1" | awk '{ print $3 }' | sort -V); do
        [ "$(printf '%s\n' "${version%%-*}" "$2" | sort -V | tail -n 1)" != "$2" ] || best=$version
    done
    echo "$best"
}

# The modules that the packaged User-Mode Linux lacks, from the kernel's packaged source.
modules() {
    local version file name
    version=$(ls "$lab/uml/usr/lib/uml/modules")
    name=linux-source-${version%.*}
    file=$(package "$name" "$(source_for "$name" "$version")")
    rm -rf "$lab/source" "$lab/build" "$lab/extra"
    mkdir -p "$lab/source" "$lab/build" "$lab/extra/block" "$lab/extra/md"
    dpkg --fsys-tarfile "$file" | tar -xO "./usr/src/$name.tar.xz" | tar -xJ --strip-components=1 -C "$lab/source"
    cd "$lab/source"
    # The source may be of another stable release than the kernel, which asks for its own name.
    sed -i "s/^SUBLEVEL = .*/SUBLEVEL = ${version##*.}/" Makefile
    zcat "$lab"/uml/usr/share/doc/user-mode-linux/config.gz >"$lab/build/.config"
    scripts/config --file "$lab/build/.config" -m BLK_DEV_UBLK -m DM_VDO -m NVME_CORE -e NVME_MULTIPATH -m NVME_FABRICS -m NVME_TCP \
        -m NVME_TARGET -m NVME_TARGET_TCP -d GCC_PLUGINS -d DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT -e DEBUG_INFO_NONE
    make ARCH=um O="$lab/build" olddefconfig
    make ARCH=um O="$lab/build" -j"$(nproc)" modules_prepare
    cp drivers/block/ublk_drv.c "$lab/extra/block/"
    echo 'obj-m := ublk_drv.o' >"$lab/extra/block/Makefile"
    cp -r drivers/md/dm-vdo "$lab/extra/md/"
    cp drivers/md/*.h "$lab/extra/md/"
    cp -r drivers/nvme "$lab/extra/"
    echo 'obj-m := block/ md/dm-vdo/ nvme/host/ nvme/target/' >"$lab/extra/Makefile"
    # Symbols have no versions in this configuration.
    : >"$lab/build/Module.symvers"
    make ARCH=um O="$lab/build" -j"$(nproc)" M="$lab/extra" KBUILD_MODPOST_WARN=1 modules
    install -D -m 644 -t "$lab/root/usr/lib/modules/$version/extra" "$lab/extra/block/ublk_drv.ko" \
        "$lab/extra/md/dm-vdo/dm-vdo.ko" "$lab"/extra/nvme/host/nvme-{core,fabrics,tcp}.ko "$lab"/extra/nvme/target/nvmet{,-tcp}.ko
    chroot "$lab/root" depmod "$version"
    rm -rf "$lab/source" "$lab/build" "$lab/extra"
}

# The kernel that Debian signs, its modules, and what mounts the root directory.
stock() {
    local version file name modules module number=10
    version=$(APT_CONFIG=$lab/apt/conf apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: linux-image-//p')
    file=$(package "linux-image-$version")
    rm -rf "$lab/stock" "$lab/early"
    dpkg -x "$file" "$lab/stock"
    cp "$lab/stock/boot/vmlinuz-$version" "$lab/vmlinuz"
    mkdir -p "$lab/root/usr/lib/modules"
    rm -rf "$lab/root/usr/lib/modules/$version"
    cp -a "$lab/stock/usr/lib/modules/$version" "$lab/root/usr/lib/modules/"
    chroot "$lab/root" depmod "$version"

    file=$(package busybox-static)
    mkdir -p "$lab"/early/{bin,dev,proc,sys,new,modules}
    dpkg --fsys-tarfile "$file" | tar -xO ./usr/bin/busybox >"$lab/early/bin/busybox"
    for name in sh mount umount insmod cat switch_root; do ln -s busybox "$lab/early/bin/$name"; done
    chmod 755 "$lab/early/bin/busybox"
    # In the order in which they are loaded.
    modules=$(chroot "$lab/root" modprobe -S "$version" --all --show-depends virtio_blk ext4 9p 9pnet_virtio |
        awk '$1 == "insmod" && !seen[$2]++ { print $2 }')
    for module in $modules; do
        xz -dc "$lab/root$module" >"$lab/early/modules/$number.ko"
        number=$((number + 1))
    done
    install -m 755 "$here/early-init" "$lab/early/init"
    (cd "$lab/early" && find . | cpio --quiet -o -H newc) | gzip -1 >"$lab/initramfs"
    rm -rf "$lab/stock" "$lab/early"
}

image() {
    local size
    size=$(du -sm --one-file-system "$lab/root" | cut -f 1)
    rm -f "$lab/image"
    mke2fs -q -t ext4 -O ^has_journal -m 0 -d "$lab/root" "$lab/image" $((size * 5 / 4 + 64))M
}

for step in $steps; do
    done=$lab/.done-$step
    # What an older script has built is built again.
    [ "$(cat "$done" 2>/dev/null)" != "$version" ] || continue
    # Not in a condition, where `set -e` has no effect.
    set +e
    (set -e; "$step") >"$lab/log/$step" 2>&1 9>&- </dev/null
    code=$?
    set -e
    if [ "$code" != 0 ]; then
        skip "step $step failed: $(tail -n 1 "$lab/log/$step") (all of it: $lab/log/$step)"
    fi
    echo "$version" >"$done"
done
# Part of the scripts, and newer perhaps than the root directory. In the emulated machine run.sh sees to it.
install -m 755 "$here/init" "$lab/root/lab-init"
