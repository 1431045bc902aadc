# What a developer types. `make test` is what continuous integration runs.

CARGO ?= cargo
# Where rustup puts it.
export PATH := $(HOME)/.cargo/bin:$(PATH)
# Seeds of the simulator in `make test`; `make soak` goes on until something fails.
SIM_SEEDS ?= 500

.PHONY: build demo test bench lint soak deps

build:
	$(CARGO) build --release -p pumice

# All of it in a minute, on a temporary drive.
demo: deps build
	$(CARGO) run --release -q -p pumice -- demo

# Everything that must hold: unit tests, properties, fuzz inputs, real clients, the simulator.
test: deps
	SIM_SEEDS=$(SIM_SEEDS) scripts/test.sh

# Codec and engine against the bare codec; then the drive over NBD against nbdkit (see docs/performance.md).
bench: deps
	$(CARGO) bench -p codec -p drive
	scripts/bench-nbd.sh

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The simulator, until something fails or somebody stops it.
soak:
	$(CARGO) run --release -p sim -- --soak

# What the above need on a Debian or Ubuntu machine. Quick when everything is there.
deps:
	scripts/deps.sh
