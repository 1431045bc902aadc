#!/usr/bin/env bash
# Builds a Linux with nbd, ublk, dm-vdo and NVMe/TCP that needs no machine of its own, from Debian packages, into a directory:
#
#   LAB_KERNEL=uml|qemu LAB_ZFS=yes scripts/kernel-lab/build.sh [--built] DIRECTORY
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
# LAB_ZFS=yes: also ZFS, its modules built from Debian's package of their source (contrib). Where that fails all else is built, and
# one line says why.
#
# Takes about two minutes and 2.6 GB, and does nothing where it was built before. The second kernel beside the first takes half a
# minute and 1.5 GB more; ZFS is minutes more. Nothing is installed on the machine. Exit code 77: it cannot be built here, with the reason in one line.
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
version=4
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
# For scripts/bench.sh kernel.
programs+=,btrfs-progs,btrfs-compsize,dmsetup,lvm2,vdo,qemu-utils,libssl3t64
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
    echo "deb [signed-by=$key] $mirror $release main contrib" >"$lab/apt/sources"
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
    rm -rf "$lab/uml" "$lab/source" "$lab/build"
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

# The kernel's packaged source, configured for what is built beside the kernel.
source_tree() {
    local version=$1 file name
    [ ! -e "$lab/build/.ready" ] || return 0
    name=linux-source-${version%.*}
    file=$(package "$name" "$(source_for "$name" "$version")")
    rm -rf "$lab/source" "$lab/build"
    mkdir -p "$lab/source" "$lab/build"
    dpkg --fsys-tarfile "$file" | tar -xO "./usr/src/$name.tar.xz" | tar -xJ --strip-components=1 -C "$lab/source"
    cd "$lab/source"
    # The source may be of another stable release than the kernel, which asks for its own name.
    sed -i "s/^SUBLEVEL = .*/SUBLEVEL = ${version##*.}/" Makefile
    zcat "$lab"/uml/usr/share/doc/user-mode-linux/config.gz >"$lab/build/.config"
    scripts/config --file "$lab/build/.config" -m BLK_DEV_UBLK -m DM_VDO -m NVME_CORE -e NVME_MULTIPATH -m NVME_FABRICS -m NVME_TCP \
        -m NVME_TARGET -m NVME_TARGET_TCP -d GCC_PLUGINS -d DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT -e DEBUG_INFO_NONE
    make ARCH=um O="$lab/build" olddefconfig
    make ARCH=um O="$lab/build" -j"$(nproc)" modules_prepare
    touch "$lab/build/.ready"
}

# The modules that the packaged User-Mode Linux lacks, from the kernel's packaged source.
modules() {
    local version
    version=$(ls "$lab/uml/usr/lib/uml/modules")
    source_tree "$version"
    cd "$lab/source"
    rm -rf "$lab/extra"
    mkdir -p "$lab/extra/block" "$lab/extra/md"
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
    rm -rf "$lab/extra"
}

# The programs and libraries of ZFS, into the root directory, and nothing that systemd would start. The source of its modules, into a
# new directory.
zfs_packages() {        # zfs_packages DIRECTORY
    local file name
    file=$(package zfsutils-linux)
    dpkg --fsys-tarfile "$file" | tar -x -C "$lab/root" ./usr/sbin/zfs ./usr/sbin/zpool
    for name in libzfs6linux libzpool6linux libnvpair3linux libuutil3linux; do
        file=$(package "$name")
        dpkg --fsys-tarfile "$file" | tar -x -C "$lab/root" ./usr/lib/x86_64-linux-gnu
    done
    chroot "$lab/root" ldconfig
    if chroot "$lab/root" ldd /usr/sbin/zfs /usr/sbin/zpool | grep 'not found'; then return 1; fi
    file=$(package zfs-dkms)
    rm -rf "$lab/zfs"
    mkdir -p "$lab/zfs"
    dpkg -x "$file" "$lab/zfs"
    rm -rf "$1"
    mv "$lab"/zfs/usr/src/zfs-* "$1"
    rm -rf "$lab/zfs"
}
zfs_install() {         # zfs_install SOURCE KERNEL
    install -D -m 644 -t "$lab/root/usr/lib/modules/$2/extra" "$1"/module/{spl,zfs}.ko
    chroot "$lab/root" depmod "$2"
    chroot "$lab/root" modinfo -k "$2" zfs
}

zfs_uml() {
    local version
    version=$(ls "$lab/uml/usr/lib/uml/modules")
    source_tree "$version"
    cd "$lab/source"
    # ZFS's configure asks which functions modules may call, and the package has no list of them. Those of the source; each has one line.
    grep -rhoE '^EXPORT_SYMBOL(_GPL)?\(\w+\)' arch/um arch/x86/um block crypto drivers/base drivers/char fs init ipc kernel lib mm \
        net/core security |
        awk -F '[()]' '!seen[$2]++ { printf "0x00000000\t%s\tvmlinux\t%s\t\n", $2, $1 }' >"$lab/build/Module.symvers"
    zfs_packages "$lab/zfs-source"
    cd "$lab/zfs-source"
    export ARCH=um KBUILD_MODPOST_WARN=1
    ./configure --with-config=kernel --with-linux="$lab/source" --with-linux-obj="$lab/build" --disable-dependency-tracking
    make -j"$(nproc)" -C module
    zfs_install "$lab/zfs-source" "$version"
    rm -rf "$lab/zfs-source"
}

# With the compiler that the kernel was built by, in a root directory of its own.
zfs_qemu() {
    local version builder=$lab/builder
    version=$(cat "$lab/stock-version")
    rm -rf --one-file-system "$builder"
    mmdebstrap --mode=root --variant=minbase --aptopt='APT::Install-Recommends "false"' --aptopt="$lab/apt/proxy" \
        --include="gcc,libc6-dev,make,file,gawk,linux-headers-$version" "$release" "$builder" "$lab/apt/sources"
    zfs_packages "$builder/zfs"
    chroot "$builder" sh -ec "cd /zfs
        ./configure --with-config=kernel --with-linux=/usr/src/linux-headers-${version%-amd64}-common \
            --with-linux-obj=/usr/src/linux-headers-$version --disable-dependency-tracking
        make -j$(nproc) -C module
        strip --strip-debug module/spl.ko module/zfs.ko"
    zfs_install "$builder/zfs" "$version"
    rm -rf --one-file-system "$builder"
    rm -f "$lab/.done-image"
}

# The kernel that Debian signs, its modules, and what mounts the root directory.
stock() {
    local version file name modules module number=10
    version=$(APT_CONFIG=$lab/apt/conf apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: linux-image-//p')
    file=$(package "linux-image-$version")
    echo "$version" >"$lab/stock-version"
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

# run STEP: unless it was done before, by this version. `code` is 0, or its exit code.
run() {
    local done=$lab/.done-$1
    code=0
    [ "$(cat "$done" 2>/dev/null)" != "$version" ] || return 0
    # Not in a condition, where `set -e` has no effect.
    set +e
    (set -e; "$1") >"$lab/log/$1" 2>&1 9>&- </dev/null
    code=$?
    set -e
    [ "$code" != 0 ] || echo "$version" >"$done"
}
zfs() {         # zfs KERNEL: for who asks for it. Without it the lab is the lab all the same
    [ "${LAB_ZFS:-}" = yes ] || return 0
    run "zfs_$1"
    [ "$code" = 0 ] || {
        rm -rf --one-file-system "$lab/builder"
        echo "skipped: ZFS in the kernel lab: $(why "zfs_$1")"
    }
}
why() { echo "step $1 failed: $(tail -n 1 "$lab/log/$1") (all of it: $lab/log/$1)"; }
for step in $steps; do
    # The disk is made of a root directory that has it.
    [ "$step" != image ] || zfs qemu
    run "$step"
    [ "$code" = 0 ] || skip "$(why "$step")"
done
[ "$LAB_KERNEL" != uml ] || zfs uml
rm -rf "$lab/source" "$lab/build"
# Part of the scripts, and newer perhaps than the root directory. In the emulated machine run.sh sees to it.
install -m 755 "$here/init" "$lab/root/lab-init"
