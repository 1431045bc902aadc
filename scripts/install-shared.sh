#!/usr/bin/env bash
# Installs what is neither program nor unit, for `make install`:
#
# - documents in SHARE/doc/pumice: the README, docs/ and lab/;
# - what other programs use in SHARE/pumice/deploy: Ceph's manager module, Gluster's lab and units, Prometheus' alerts,
#   Grafana's dashboard. Not their tests.
#
# Both keep the paths of the source tree, and symbolic links join them (deploy in the one, documents in the other), so
# that links between documents lead somewhere. Links to what is in the source tree only become plain text.
#
# scripts/install-shared.sh SHARE
set -euo pipefail
share=$(realpath -m "${1:?install-shared: give it the directory, such as /usr/share}")
cd "$(dirname "$0")/.."
umask 022

documents=$share/doc/pumice
used=$share/pumice

# install_into DIRECTORY: the files named on standard input, with their paths; what can be executed stays so
install_into() {
    local file mode
    while read -r file; do
        mode=644
        [ ! -x "$file" ] || mode=755
        install -D -m "$mode" "$file" "$1/$file"
    done
}

find README.md SECURITY.md docs lab -type f '(' -name '*.md' -o -name '*.json' ')' | install_into "$documents"
source_only='CONTRIBUTING\.md|CHANGELOG\.md|LICENSE-|fuzz/|crates/|deploy/container/'
find "$documents" -name '*.md' -exec sed -Ei "s@\[([^]]*)\]\((\.\./)*($source_only)[^)]*\)@\1@g" {} +
find deploy -type f ! -name '*.pyc' ! -path 'deploy/systemd/*' ! -path 'deploy/udev/*' ! -path 'deploy/container/*' \
    ! -path 'deploy/*/test*' ! -name 'stripe*' | install_into "$used"

# The units and rules as they are installed.
mkdir -p "$used"/deploy/{systemd,udev}
for unit in deploy/systemd/*.service deploy/systemd/*.socket; do
    ln -sfn "../../../../lib/systemd/system/${unit##*/}" "$used/$unit"
done
for rules in deploy/udev/*.rules; do ln -sfn "../../../../lib/udev/rules.d/${rules##*/}" "$used/$rules"; done
mkdir -p "$documents/examples"
ln -sfn ../../../pumice/deploy/pumice.toml "$documents/examples/pumice.toml"
ln -sfn ../../pumice/deploy "$documents/deploy"
for name in README.md SECURITY.md docs lab; do ln -sfn "../doc/pumice/$name" "$used/$name"; done
