#!/usr/bin/env bash
# Packs built programs for other machines. Each package holds what `make install` installs, and nothing else.
#
# - A tarball of the static program, which needs nothing of a machine but Linux. Without a static program, a tarball of
#   the other one.
# - Where dpkg-deb is there, a Debian package of the program that uses the C library of the machine.
# - Where cargo-cyclonedx is there, the list of the libraries they are built from (SBOM, CycloneDX).
#
# The same programs packed twice give the same bytes.
#
# scripts/dist.sh [DIRECTORY]     default: target/dist
# PROGRAM is the program to pack, as for `make install`; STATIC the static one (empty: none).
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
machine=$(uname -m)
out=${1:-$target/dist}
program=${PROGRAM:-$target/release/pumice}
static=${STATIC-$target/$machine-unknown-linux-musl/release/pumice}
test -x "$program" || { echo "dist: $program is not there: make build first" >&2; exit 1; }
version=$("$program" --version | cut -d' ' -f2)
# Times of files: that of the last commit, or of the program outside a checkout.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y "$program")}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# Programs without what only a debugger reads.
strip --strip-debug -o "$work/pumice" "$program"
for_tarball=$work/pumice
if [ -n "$static" ] && [ -x "$static" ]; then
    for_tarball=$work/pumice-static
    strip --strip-debug -o "$for_tarball" "$static"
    found=$("$for_tarball" --version | cut -d' ' -f2)
    test "$found" = "$version" || { echo "dist: $static is version $found, $program $version: make dist" >&2; exit 1; }
fi
# A program that asks for a loader is not static.
if readelf -lW "$for_tarball" | grep INTERP >/dev/null; then
    kind=gnu
    echo "dist: no static program: the tarball needs the C library of the machine (make static makes one)" >&2
else
    kind=static
fi

# Installs a program below a directory.
install_below() {
    make -s install PROGRAM="$1" DESTDIR="$2" PREFIX="$3"
    find "$2" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

base=pumice-$version-$machine-linux
name=$base-$kind
# To be unpacked over /usr/local.
install_below "$for_tarball" "$work/local" /usr/local
mv "$work/local/usr/local" "$work/$name"
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$work/$name/"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" |
    gzip -n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"

# cargo-cyclonedx writes beside every manifest, and names places of this machine: let it have a copy, and take them out.
sbom() {
    mkdir "$work/source"
    cp -r Cargo.toml Cargo.lock crates "$work/source/"
    (cd "$work/source" && cargo cyclonedx -q --format json --spec-version 1.5 --override-filename sbom \
        --manifest-path crates/pumice/Cargo.toml) || return
    sed "s|file://$work/source/|file:///pumice/|g" "$work/source/crates/pumice/sbom.json" >"$out/$base.cdx.json"
    echo "$out/$base.cdx.json"
}
if command -v cargo-cyclonedx >/dev/null; then
    sbom
else
    echo "dist: no list of libraries (SBOM): cargo-cyclonedx is not installed" >&2
fi

if ! command -v dpkg-deb >/dev/null; then
    echo "dist: no Debian package: dpkg-deb is not installed" >&2
    exit 0
fi
root=$work/deb
install_below "$work/pumice" "$root" /usr
architecture=$(dpkg --print-architecture)
# The newest version of the C library that the program asks for a symbol of.
libc=$(objdump -T "$work/pumice" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -1)
documents=$root/usr/share/doc/pumice
gzip -n9 <CHANGELOG.md >"$documents/changelog.gz"
{
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo
    echo "Files: *"
    echo "Copyright: the authors of Pumice"
    echo "License: MIT or Apache-2.0"
    sed 's/^$/./; s/^/ /' LICENSE-MIT
} >"$documents/copyright"
find "$root/usr/share/man" -name '*.[15]' -exec gzip -n9 {} +
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<EOF
Package: pumice
Version: $version
Architecture: $architecture
Maintainer: Pumice developers <pumice@localhost>
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Depends: libc6 (>= $libc), libgcc-s1
Recommends: libnbd-bin, nbd-client
Suggests: qemu-system-common, smartmontools
Section: admin
Priority: optional
Description: transparently compressing block device
 Pumice serves a file, partition or disk as a block device over NBD that
 compresses what is written to it: more capacity than the backing has, less
 written to flash, TRIM, atomic writes and monitoring of physical space.
 Tools measure how compressible data is and plan capacity before.
 .
 Documentation begins at /usr/share/doc/pumice/docs/README.md. Files for Ceph,
 Gluster, Prometheus and Grafana are in /usr/share/pumice/deploy.
EOF
# The unit runs as a user of its own.
cat >"$root/DEBIAN/postinst" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if command -v systemd-sysusers >/dev/null; then systemd-sysusers pumice.conf || true; fi
    if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
fi
EOF
# Drives are detached and closed before the program is removed: devices first, then their servers.
cat >"$root/DEBIAN/prerm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop 'pumice-attach@*.service' pumice-attach.service || true
    systemctl stop pumice.socket pumice.service || true
fi
EOF
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zgzip -b "$root" "$out/pumice_${version}_$architecture.deb" >/dev/null
echo "$out/pumice_${version}_$architecture.deb"
