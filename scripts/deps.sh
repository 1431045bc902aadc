#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks: Debian packages, and Rust. Lists it before it installs
# anything; does nothing, and quickly, where everything is there. Tests whose tools are missing skip themselves, so only
# what is needed to build is an error here.
#
# scripts/deps.sh [--list] [demo|dist|kernel|clusters|coverage|kills]
#   --list  only print what is missing
#   demo    only what the demonstration needs
#   dist    only what packages are made with: a C library for static programs (musl), and programs that check and list
#           the libraries, which are built from source: some minutes of a processor, once
#   kernel  only what the kernel of `make test-kernel` is built and run with; LAB_KERNEL chooses it (kernel-lab/default.sh)
#   coverage  only what `make coverage` needs beside that: cargo-llvm-cov and LLVM's tools
#   kills   only what `make kills` runs: PostgreSQL, fio, file systems
#   clusters  only what `make test-clusters` runs: Ceph, an S3 client, GlusterFS, fio
set -euo pipefail
cd "$(dirname "$0")/.."

list= only=
for argument in "$@"; do
    case $argument in
        --list) list=yes ;;
        demo | dist | kernel | clusters | coverage | kills) only=$argument ;;
        *) echo "deps: unknown argument $argument: expected --list, demo, dist, kernel, clusters, coverage or kills" >&2; exit 2 ;;
    esac
done

# A program (or file) that shows a package is there, and the package.
needed=(
    "cc build-essential"
    "curl curl"
    "jq jq"
)
wanted_by_demo=(
    "nbdcopy libnbd-bin"
    "mkfs.ext4 e2fsprogs"
    "losetup mount"
)
wanted=(
    "${wanted_by_demo[@]}"
    "fio fio"
    "/usr/lib/python3/dist-packages/nbd.py python3-libnbd"
    "nbdfuse nbdfuse"
    "fusermount3 fuse3"
    "nbdkit nbdkit"
    "qemu-img qemu-utils"
    "qemu-storage-daemon qemu-system-common"
    "mkfs.xfs xfsprogs"
    "mkfs.btrfs btrfs-progs"
    "fstrim util-linux"
    "openssl openssl"
    "codespell codespell"
    "systemd-analyze systemd"
    "man man-db"
    "groff groff-base"
    "zsh zsh"
    "fish fish"
    "x264 x264"
)

# Programs built by cargo, of crates of the same name.
wanted_crates=()
case $only in
    demo) wanted=("${wanted_by_demo[@]}") ;;
    kernel)
        . scripts/kernel-lab/default.sh
        wanted=(
            "mmdebstrap mmdebstrap"
            "patchelf patchelf"
            "flex flex"
            "bison bison"
            "bc bc"
            "xz xz-utils"
            "depmod kmod"
        )
        [ "$LAB_KERNEL" != qemu ] || wanted=(
            "mmdebstrap mmdebstrap"
            "qemu-system-x86_64 qemu-system-x86"
            "cpio cpio"
            "mke2fs e2fsprogs"
            "xz xz-utils"
            "depmod kmod"
        )
        ;;
    clusters)
        wanted=(
            "fio fio"
            "jq jq"
            "curl curl"
            "losetup mount"
            "ceph-mon ceph-mon"
            "ceph-mgr ceph-mgr"
            "ceph-osd ceph-osd"
            "ceph ceph-common"
            "monmaptool ceph-base"
            "radosgw radosgw"
            "/usr/lib/python3/dist-packages/boto3 python3-boto3"
            "glusterd glusterfs-server"
            "glusterfs glusterfs-client"
            "mkfs.xfs xfsprogs"
        )
        ;;
    kills)
        wanted=(
            "/usr/lib/postgresql postgresql"
            "fio fio"
            "mkfs.ext4 e2fsprogs"
            "mkfs.xfs xfsprogs"
            "losetup mount"
            "flock util-linux"
        )
        ;;
    dist)
        wanted=("musl-gcc musl-tools")
        wanted_crates=(cargo-cyclonedx cargo-deny)
        ;;
    coverage)
        wanted=()
        wanted_crates=(cargo-llvm-cov)
        ;;
esac

export PATH="$HOME/.cargo/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# Prints the packages of a list that are missing.
missing() {
    local pair
    for pair in "$@"; do
        local probe=${pair% *} package=${pair#* }
        case $probe in
            /*) [ -e "$probe" ] || echo "$package" ;;
            *) command -v "$probe" >/dev/null || echo "$package" ;;
        esac
    done
}

as_root=()
if [ "$(id -u)" != 0 ]; then
    as_root=(sudo -n)
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@" >/dev/null
}

updated=
install() {
    command -v apt-get >/dev/null || return 1
    echo "deps: installing $*"
    if [ -z "$updated" ]; then
        apt update || return 1
        updated=yes
    fi
    apt install -y --no-install-recommends "$@"
}

# Rust, at least as new as the workspace asks for.
rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
rust_found=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
newest() { printf '%s\n' "$@" | sort -V | tail -n 1; }
rust_missing=
if [ -z "$rust_found" ] || [ "$(newest "$rust_found" "$rust_wanted")" != "$rust_found" ]; then
    rust_missing=yes
fi
promtool_missing=
if [ -z "$only" ] && ! command -v promtool >/dev/null; then
    promtool_missing=yes
fi

# The standard library for static programs. Unknown until there is Rust at all.
static_target=$(uname -m)-unknown-linux-musl
target_missing=
if [ "$only" = dist ] && ! [ -d "$(rustc --print sysroot 2>/dev/null)/lib/rustlib/$static_target/lib" ]; then
    target_missing=yes
fi
crates_missing=()
for crate in "${wanted_crates[@]}"; do
    command -v "$crate" >/dev/null || crates_missing+=("$crate")
done

# All of it, before anything is done.
mapfile -t packages < <(missing "${needed[@]}" "${wanted[@]}")
all=("${packages[@]}" ${promtool_missing:+"promtool (in /usr/local/bin)"} ${rust_missing:+"Rust (rustup, in $HOME)"}
    ${target_missing:+"Rust's library for $static_target"} "${crates_missing[@]/%/ (cargo, in $HOME)}")
if [ "${#all[@]}" -gt 0 ]; then
    with_commas=$(printf ', %s' "${all[@]}")
    [ -n "$list" ] && does="missing" || does="missing, installed now${as_root[*]:+ by sudo}"
    echo "deps: $does: ${with_commas#, }"
fi
if [ -n "$list" ]; then
    [ "${#all[@]}" -gt 0 ] || echo "deps: nothing is missing"
    exit 0
fi

mapfile -t packages < <(missing "${needed[@]}")
if [ "${#packages[@]}" -gt 0 ] && ! install "${packages[@]}"; then
    echo "deps: cannot install ${packages[*]}, needed to build; install them by hand and try again" >&2
    exit 1
fi

mapfile -t packages < <(missing "${wanted[@]}")
if [ "${#packages[@]}" -gt 0 ] && ! install "${packages[@]}"; then
    # One that this release does not know must not keep the others away.
    for package in "${packages[@]}"; do
        install "$package" || echo "deps: cannot install $package; tests that use it will be skipped"
    done
fi

# Of Prometheus only promtool is wanted, which checks metrics and alert rules: the whole package would run a server on this
# machine. So the package is fetched, not installed, and the one program taken out of it.
if [ -n "$promtool_missing" ]; then
    echo "deps: taking promtool out of the package prometheus, to /usr/local/bin (the package itself is not installed)"
    (
        folder=$(mktemp -d)
        trap 'rm -rf "$folder"' EXIT
        command -v apt-get >/dev/null &&
            { [ -n "$updated" ] || apt update; } &&
            cd "$folder" &&
            apt-get -qq download prometheus >/dev/null 2>&1 &&
            dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool &&
            # Not this script's own `install`.
            "${as_root[@]}" env install -m 755 usr/bin/promtool /usr/local/bin/promtool
    ) || echo "deps: cannot get promtool; tests that use it will be skipped"
fi

if [ -n "$rust_missing" ]; then
    echo "deps: installing Rust ($rust_wanted or newer is needed, ${rust_found:-none} found)"
    if command -v rustup >/dev/null; then
        rustup --quiet toolchain install stable --profile minimal -c rustfmt -c clippy && rustup default stable
    else
        installer=$(mktemp)
        curl --proto '=https' --tlsv1.2 -sSf --max-time 60 https://sh.rustup.rs -o "$installer" &&
            sh "$installer" -y --quiet --profile minimal -c rustfmt -c clippy
        rm -f "$installer"
    fi || {
        echo "deps: cannot install Rust; install cargo $rust_wanted or newer by hand and try again" >&2
        exit 1
    }
fi

if [ -n "$target_missing" ]; then
    echo "deps: installing Rust's library for $static_target"
    rustup --quiet target add "$static_target" || {
        echo "deps: cannot install it; without it no static program can be built" >&2
        exit 1
    }
fi

if [ "$only" = coverage ]; then
    { command -v rustup >/dev/null && rustup --quiet component add llvm-tools; } ||
        echo "deps: cannot install LLVM's tools by rustup; coverage cannot be reported without them"
fi

# The libraries of these programs are those that they were released with.
for crate in "${crates_missing[@]}"; do
    echo "deps: building $crate"
    cargo install --quiet --locked "$crate" || echo "deps: cannot build $crate; what it does is left out"
done
