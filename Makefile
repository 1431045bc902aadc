# What a developer types. `make test` is what continuous integration runs.

CARGO ?= cargo
# Where rustup puts it.
export PATH := $(HOME)/.cargo/bin:$(PATH)
# Seeds of the simulator in `make test`; `make soak` goes on until something fails, or until CUTS power cuts.
SIM_SEEDS ?= 100

.PHONY: build static install uninstall dist demo test test-long test-kernel test-clusters models coverage bench lint planted \
	soak soak-fio power-cuts kills deps dist-deps

# Of `make install`. DESTDIR goes in front of all places, for packages.
PREFIX ?= /usr/local
PROGRAM ?= $(or $(CARGO_TARGET_DIR),target)/release/pumice
place = $(DESTDIR)$(PREFIX)

build:
	$(CARGO) build --release -p pumice

# The program with a C library (musl) inside, which runs on every Linux of this architecture, without --offload.
STATIC_TARGET = $(shell uname -m)-unknown-linux-musl
static:
	$(CARGO) build --release -p pumice --locked --target $(STATIC_TARGET)

# Program, manual pages, completions, units for systemd, rules for udev, documents, files for Ceph, Gluster, Prometheus, Grafana. Builds
# nothing, so that root need not: `make build` first.
install:
	@test -x $(PROGRAM) || { echo "$(PROGRAM) is not there: make build first" >&2; exit 1; }
	install -D -m 755 $(PROGRAM) $(place)/bin/pumice
	umask 022; $(PROGRAM) man $(place)/share/man/man1 >/dev/null
	umask 022; mkdir -p $(place)/share/man/man5; mv $(place)/share/man/man1/*.5 $(place)/share/man/man5/
	umask 022; mkdir -p $(place)/share/bash-completion/completions $(place)/share/zsh/site-functions
	umask 022; mkdir -p $(place)/share/fish/vendor_completions.d $(place)/lib/systemd/system
	umask 022; $(PROGRAM) completions bash >$(place)/share/bash-completion/completions/pumice
	umask 022; $(PROGRAM) completions zsh >$(place)/share/zsh/site-functions/_pumice
	umask 022; $(PROGRAM) completions fish >$(place)/share/fish/vendor_completions.d/pumice.fish
	umask 022; sed 's|/usr/bin/pumice|$(PREFIX)/bin/pumice|' deploy/systemd/pumice.service >$(place)/lib/systemd/system/pumice.service
	umask 022; sed 's|/usr/bin/pumice|$(PREFIX)/bin/pumice|' deploy/systemd/pumice-attach@.service >$(place)/lib/systemd/system/pumice-attach@.service
	umask 022; sed 's|/usr/bin/pumice|$(PREFIX)/bin/pumice|' deploy/systemd/pumice-attach.service >$(place)/lib/systemd/system/pumice-attach.service
	install -m 644 deploy/systemd/pumice.socket $(place)/lib/systemd/system/
	umask 022; mkdir -p $(place)/lib/udev/rules.d
	umask 022; sed 's|/usr/bin/pumice|$(PREFIX)/bin/pumice|' deploy/udev/61-pumice.rules >$(place)/lib/udev/rules.d/61-pumice.rules
	install -D -m 644 deploy/systemd/pumice.sysusers.conf $(place)/lib/sysusers.d/pumice.conf
	scripts/install-shared.sh $(place)/share

# Takes away what `make install` put there; configuration and drives stay.
uninstall:
	rm -f $(place)/bin/pumice $(place)/share/man/man1/pumice.1 $(place)/share/man/man1/pumice-*.1 $(place)/share/man/man5/pumice.toml.5
	rm -f $(place)/share/bash-completion/completions/pumice $(place)/share/zsh/site-functions/_pumice
	rm -f $(place)/share/fish/vendor_completions.d/pumice.fish
	rm -f $(place)/lib/systemd/system/pumice.service $(place)/lib/systemd/system/pumice.socket
	rm -f $(place)/lib/systemd/system/pumice-attach.service $(place)/lib/systemd/system/pumice-attach@.service
	rm -f $(place)/lib/sysusers.d/pumice.conf $(place)/lib/udev/rules.d/61-pumice.rules
	rm -rf $(place)/share/doc/pumice $(place)/share/pumice

# A tarball with the static program, a Debian package, a list of libraries, in target/dist. Programs are optimised across
# libraries (LTO), which takes longer than `make build`.
dist: export CARGO_PROFILE_RELEASE_LTO = thin
dist: dist-deps build static
	scripts/dist.sh

dist-deps:
	scripts/deps.sh dist

# All of it in a minute, on a temporary drive. Needs fewer packages than the tests do.
demo:
	scripts/deps.sh demo
	$(MAKE) build
	$(CARGO) run --release -q -p pumice -- demo

# Everything that must hold: unit tests, properties, fuzz inputs, real clients, the simulator.
test: deps
	SIM_SEEDS=$(SIM_SEEDS) KERNEL_LAB=$(KERNEL_LAB) scripts/test.sh

# What takes long and finds little: after changes to the simulator.
test-long: deps
	$(CARGO) test -p sim --test toy --locked -- --ignored

# `pumice attach` by ublk, nbd and loop, and the systemd units, under a kernel of its own that runs as a program: built once, in two
# minutes, from Debian packages into KERNEL_LAB. Skipped where it cannot be built. `make test` then runs a smoke of it. With
# LAB_KERNEL=qemu, and where that kernel does not start (processors with AMX), under Debian's own kernel on an emulated machine of
# two processors, which takes several times as long.
KERNEL_LAB ?= $(or $(CARGO_TARGET_DIR),target)/kernel-lab
test-kernel: build
	scripts/deps.sh kernel
	KERNEL_LAB=$(KERNEL_LAB) scripts/kernel-lab/test.sh $(PROGRAM)

# Ceph and GlusterFS on Pumice drives, whole clusters on this machine: full drives, kills, lost drives, flipped bits
# (deploy/ceph/README.md, deploy/gluster/README.md). Needs root. Skipped where packages are missing.
test-clusters: build
	scripts/deps.sh clusters
	deploy/ceph/test.sh $(PROGRAM)
	PUMICE=$(abspath $(PROGRAM)) deploy/gluster/test.sh

# What threads share outside the drive's lock, in more orders of their steps than `make test` tries.
PREEMPTIONS ?= 4
models: deps
	PUMICE_PREEMPTIONS=$(PREEMPTIONS) scripts/models.sh --show-output

# The lines that the tests run, in programs that they start too. PAGES=--html writes pages as well.
coverage: deps
	scripts/deps.sh coverage
	scripts/coverage.sh $(PAGES)

# Codec and engine against the bare codec; then the drive over NBD against nbdkit (see lab/README.md).
bench: deps
	$(CARGO) bench -p codec -p drive
	scripts/bench.sh nbd

lint: deps
	scripts/lint.sh

# The simulator, until something fails or somebody stops it, or for so many power cuts: make soak CUTS=1000000.
soak:
	$(CARGO) run --profile soak -p sim -- --soak $(if $(filter command line environment,$(origin CUTS)),--cuts $(CUTS))

# Every planted mistake, until the simulator finds it: at most 1000 seeds each.
planted:
	$(CARGO) run --release -p sim --features planted-bugs -- --bug all --seeds 1000

# fio with verification on a drive that cleans all the time, for ten minutes (see lab/README.md).
soak-fio: deps build
	scripts/soak-fio.sh

# Power cuts under the released program: make power-cuts CUTS=500 MODES=direct,cache (see docs/explanation/power-cuts.md).
CUTS ?= 500
MODES ?= direct,cache,fsyncgate,stale-disk,kills,attached,parity
power-cuts: deps
	scripts/power-cuts.sh --cuts $(CUTS) --modes $(MODES)

# kill -9 of the server under PostgreSQL, ext4 and XFS, fifty times each (see docs/explanation/power-cuts.md).
KILLS ?= 50
kills: build
	scripts/deps.sh kills
	PUMICE=$(PROGRAM) scripts/kills.sh --kills $(KILLS)

# What the above need on a Debian or Ubuntu machine. Quick when everything is there.
deps:
	scripts/deps.sh
