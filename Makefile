# SPDX-License-Identifier: Apache-2.0
# make demo   set up, record real I/O, convert it, say what to open
# make test   set up, lint, type-check, run all tests

PYTHON ?=
KERNELS ?= 6.1
CASES ?=
PARTS ?=
PURE ?=
FIRST ?=
ARGS ?=
FUZZ_SECONDS ?= 300
MACHINES ?= $(shell uname -m)
PYTHONS ?= 3.11 3.12 3.13 3.14
TARGETS ?=
PYTEST_ARGS ?=
# Live tests wait for devices more than they compute: more of them at once than there are cores.
LIVE_WORKERS ?= 5
BIN := .venv/bin
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
export PYTHON

.PHONY: help setup setup-test packages demo test prove fuzz lint bpf generated pictures bench bench-load bench-convert bench-record bench-offered bench-fleet bench-replay bench-rings bench-equal bench-growth soak wheel wheels recorder-file sdist container test-container test-vm clean distclean
.DEFAULT_GOAL := help

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.ready ## system packages (as root), .venv, the BPF object; quick when done
	@scripts/build-bpf --optional
	@$(BIN)/python scripts/build_compiled.py

setup-test: setup .venv/.ready-test ## setup, and what only the tests need
	@scripts/system-packages test

.venv/.ready: pyproject.toml setup.py scripts/make-venv | packages
	@scripts/make-venv

.venv/.ready-test .venv/.ready-wheels: .venv/.ready-%: .venv/.ready
	@scripts/make-venv $*

packages:
	@scripts/system-packages demo

demo: setup ## record real I/O and make a trace of it
	$(BIN)/biotrail demo

# Tests start the command some thousand times: its modules are compiled once, out of the tree.
test: export PYTHONPYCACHEPREFIX := $(CURDIR)/.pytest_cache/bytecode
test: setup-test lint generated ## lint, types, layers, and every test but the virtual machines
	$(PYTEST) -n $(shell nproc) --ignore=tests/vm --ignore=tests/container --ignore=tests/live $(PYTEST_ARGS)
	$(PYTEST) tests/live -n $(LIVE_WORKERS) --dist loadgroup $(PYTEST_ARGS)

prove: setup-test ## the thorough proof of association: make prove PARTS="histories mutants live btt programs" FIRST=60000
	PROVE_FIRST=$(or $(FIRST),0) $(BIN)/python -m tests.prove.prove $(PARTS)

lint: .venv/.ready-test ## ruff's rules and format, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

generated: .venv/.ready ## what is generated from the schema and the command line is up to date
	$(BIN)/python -m biotrail.recorder.schema.generate --check
	$(BIN)/python scripts/generate_share.py --check

fuzz: .venv/.ready-test ## look for inputs that break a reader: make fuzz FUZZ_SECONDS=600 TARGETS="log"
	@FUZZ_SECONDS="$(FUZZ_SECONDS)" scripts/fuzz $(TARGETS)

bpf: ## compile the BPF programs
	@scripts/build-bpf

pictures: setup-test ## screenshots of the Perfetto UI for docs/perfetto.md: look at them before committing
	$(BIN)/python scripts/pictures.py

bench-load: setup-test ## what Perfetto's engine takes to open a trace of 1 M bios: make bench-load ARGS="--detail bios --sql"
	$(BIN)/python -m benchmarks.perfetto_load $(ARGS)

bench: setup .venv/.ready-test ## speed and size of the conversion, beside blkparse where there is one
	$(BIN)/python -m benchmarks.log_to_perfetto

bench-convert: setup .venv/.ready-test ## conversions of 1 to 100 M events, beside blkparse, btt, perf: make bench-convert ARGS=--quick
	$(BIN)/python -m benchmarks.convert_cost $(ARGS)

bench-record: setup .venv/.ready-test ## what recording costs, beside perf, bpftrace, bcc, ftrace: make bench-record ARGS=--quick
	$(BIN)/python -m benchmarks.record_cost $(ARGS)

bench-fleet: setup .venv/.ready-test ## archives of 200 hosts, by 1 and 2 workers: make bench-fleet ARGS="a.biotrail --archives 200"
	$(BIN)/python -m benchmarks.fleet $(ARGS)

bench-replay: setup .venv/.ready-test ## the recorder's own CPU time per record, step by step: make bench-replay ARGS=a.biotrail
	$(BIN)/python -m benchmarks.recorder_replay $(ARGS)

bench-rings: setup .venv/.ready-test ## what a poll costs on hosts with many CPUs: make bench-rings ARGS="--cpus 64"
	$(BIN)/python -m benchmarks.many_rings $(ARGS)

bench-equal: setup .venv/.ready-test ## whether equal loads and hosts are called that, and changes found: make bench-equal ARGS="--comparisons 20"
	$(BIN)/python -m benchmarks.equal_loads $(ARGS)

bench-growth: setup .venv/.ready-test ## whether conversion stays linear: merge-, split-, flush-heavy logs, each event set
	$(BIN)/python -m benchmarks.growth $(ARGS)

bench-offered: setup .venv/.ready-test ## how many events a second are recorded without loss: make bench-offered ARGS="--rates 5"
	$(BIN)/python -m benchmarks.offered $(ARGS)

soak: setup-test ## an hour of recording with rotation, and of metrics: nothing lost, constant memory
	BIOTRAIL_SOAK_SECONDS=$${BIOTRAIL_SOAK_SECONDS:-3600} $(BIN)/python -m pytest tests/live/test_soak.py $(PYTEST_ARGS)

wheel: .venv/.ready ## a wheel in dist/; with PURE=1 one without compiled modules, for any machine
	rm -rf build # or modules that are gone would get in
	BIOTRAIL_PURE=$(PURE) $(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	$(BIN)/python scripts/check_wheel.py dist

wheels: .venv/.ready-wheels ## wheels for x86-64 and arm64 in dist/, for glibc 2.17 and Python 3.11 and later
	@scripts/build-wheels

recorder-file: wheels ## the recorder as one file for hosts: make recorder-file MACHINES="x86_64 aarch64" PYTHONS=3.12
	@set -e; for machine in $(MACHINES); do for python in $(PYTHONS); do \
		$(BIN)/python scripts/recorder_file.py --machine $$machine --python $$python; \
	done; done

sdist: .venv/.ready-test ## the sources as one archive in dist/, of which pip can build the same wheel
	$(BIN)/python -m build --no-isolation --sdist --outdir dist .

container: wheels ## biotrail as a container image, by podman: docs/containers.md
	podman build -f Containerfile -t biotrail:$$($(BIN)/python -c "import biotrail; print(biotrail.__version__)") dist

test-container: setup .venv/.ready-test .venv/.ready-wheels ## the container image and share/kubernetes, in podman, as root
	@scripts/system-packages container
	@scripts/build-wheels $$(uname -m)
	$(BIN)/python -m pytest tests/container -rA $(PYTEST_ARGS)

test-vm: setup .venv/.ready-test ## other kernels, in virtual machines: make test-vm KERNELS="5.10 6.1 6.12 7.2 arm64-6.1"
	@VMTEST_KERNELS="$(KERNELS)" VMTEST_CASES="$(CASES)" scripts/system-packages vm
	VMTEST_KERNELS="$(KERNELS)" VMTEST_CASES="$(CASES)" VMTEST_MATRIX=$(if $(CASES),,docs/kernels.md) $(BIN)/python -m pytest tests/vm -rA $(PYTEST_ARGS)

clean: ## remove what was built, but for .venv
	rm -rf bpf/*.o build dist *.egg-info demo-output .state
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .fuzz
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf .venv
