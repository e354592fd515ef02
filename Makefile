# Makefile: thin names for the ordinary commands. `make demo` and `make test` need nothing prepared. `make demo` installs only what it
# needs; other targets install what the tests, the documentation and the benchmarks need besides.
PYTHON ?= python3
USUAL_TORCH := torch==2.13.0
USUAL_TORCHVISION := torchvision==0.28.0
TORCH ?= $(USUAL_TORCH)
TORCHVISION ?= $(USUAL_TORCHVISION)
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(shell find csrc kernels cmake -type f) CMakeLists.txt pyproject.toml
# The folder in which the extension and the C++ tests are built. CI turns warnings into errors: make test WERROR=ON.
# Without it, a build keeps the last setting, since another one compiles everything again.
BUILD := build/make
WERROR ?= $(or $(shell sed -n 's/^OCL_WERROR:[A-Z]*=//p' $(BUILD)/CMakeCache.txt 2>/dev/null),OFF)
# More options of pytest: make test OPTIONS=--until=TIME.
OPTIONS ?=

# RECORD=FILE adds the result of a long run to FILE (tests/long_runs.json), for the table in docs/testing.md.
RECORD ?=
RECORDED = $(if $(RECORD),--record $(RECORD))

.PHONY: demo test wheel try-wheel sweep conformance clients sanitize windows arm stress process_ends torch_distributed fuzz fresh oclgrind offline docs lint bench clean
.PHONY: setup build tests_setup

demo: build
	$(BIN)/python examples/demo.py

test: tests_setup build $(VENV)/.cpp_tests
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/ctest --test-dir $(BUILD) --output-on-failure -j 2
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(OPTIONS) tests

# Every case on every device; `make test` takes samples on all but the first.
sweep: tests_setup build
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --sweep tests

# PyTorch's op_db and module_db on each device of DEVICES, compared with what is expected; writes docs/conformance.md
# and docs/supported.md.
DEVICES ?= $(shell $(BIN)/python -c "import torch, torch_ocl_compile; print(*(f'ocl:{i}' for i in range(torch.ocl.device_count())))")
JOBS ?= $(shell nproc)
conformance: tests_setup build
	for device in $(DEVICES); do $(BIN)/python -m tests.conformance run --device $$device --jobs $(JOBS) \
	  --out build/conformance/$$(echo $$device | tr : _).json $(RECORDED) || exit 1; done
	$(BIN)/python -m tests.conformance keep build/conformance/*.json
	$(BIN)/python -m tests.conformance table
	$(BIN)/python -m tests.conformance check build/conformance/*.json
	$(BIN)/python -m tests.conformance supported

# Programs of other libraries on DEVICE against the CPU, in an environment of their own; writes their table in docs/libraries.md. PART
# chooses programs whose names contain it.
LIBRARIES := build/libraries
PART ?=
clients: tests_setup build
	scripts/libraries.sh $(VENV) $(LIBRARIES)
	$(LIBRARIES)/bin/python -m tests.libraries run $(PART) --device $(DEVICE); status=$$?; \
	  $(LIBRARIES)/bin/python -m tests.libraries table; exit $$status

# The core, the extension and part of the device tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer.
sanitizer = PYTHON=$(abspath $(BIN))/python $(if $(RECORD),$(BIN)/python -m tests.long_runs run --what "$(1)" $(RECORDED) --)
sanitize: tests_setup $(if $(RECORD),build)
	$(call sanitizer,AddressSanitizer and UndefinedBehaviorSanitizer) scripts/sanitize.sh address,undefined
	$(call sanitizer,ThreadSanitizer) scripts/sanitize.sh thread

# The C++ core for Windows, built with mingw-w64, and its tests in Wine. Debian: g++-mingw-w64-x86-64-posix, wine, wine64, tcl, dpkg-dev.
windows: tests_setup
	PATH=$(abspath $(BIN)):$$PATH VIRTUAL_ENV=$(abspath $(VENV)) WERROR=$(WERROR) scripts/windows.sh

# The C++ core for 64-bit Arm, and its tests in QEMU with PoCL for Arm. Debian: g++-aarch64-linux-gnu, qemu-user.
arm: tests_setup
	PATH=$(abspath $(BIN)):$$PATH WERROR=$(WERROR) scripts/arm.sh

# Random plans, eager ops, copies and frees over streams, threads and devices; results are compared with a sequential
# run.
MINUTES ?= 60
stress: tests_setup build
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.stress --minutes $(MINUTES) $(RECORDED)

# COUNT processes (300) that work on DEVICE and end in different ways: by signals, exceptions, forks, while kernels run.
process_ends: COUNT = 300
process_ends: tests_setup build
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.process_ends --count $(COUNT) --device $(DEVICE) $(RECORDED)

# PyTorch's own tests of NCCL's process group, run with the process group ocl. Needs two devices; takes ten minutes.
torch_distributed: tests_setup build
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torch_distributed --jobs $(JOBS)

# Random programs on DEVICE against PyTorch on the CPU (docs/testing.md): COUNT of them, made from SEED; failures as scripts in build/fuzz.
COUNT ?= 20000
SEED ?= $(shell date +%Y%m%d)
DEVICE ?= ocl:0
fuzz: tests_setup build
	$(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED) --device $(DEVICE) --jobs $(JOBS) --out build/fuzz $(RECORDED)

# 300 random programs, as CI runs them. The seed is that of the committed tree (1 where there is no git), so that other trees
# have other programs and a run can be repeated (docs/testing.md).
fresh: SEED = $(or $(shell git rev-parse --short=12 'HEAD^{tree}' 2>/dev/null),1)
fresh: tests_setup build
	$(BIN)/python -m tests.fuzz --count 300 --seed $(SEED) --device $(DEVICE) --jobs $(JOBS) --minutes 4 --shrink 3 --shrink-seconds 20 \
	  --out build/fuzz

# Runs every portable kernel template under Oclgrind, which reports data races, accesses out of bounds and uninitialised
# reads.
oclgrind: tests_setup build
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.oclgrind $(RECORDED)

# Compiles the kernels for GPUs of Intel and AMD, which need not be there, compares registers and spills with
# tests/offline/allowed.csv, and writes docs/offline.md. A second run compiles only what changed.
offline: tests_setup build
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.offline run --jobs $(JOBS)
	$(BIN)/python -m tests.offline table

# A wheel for the Python and the torch of $(VENV), in dist/. Installing it needs no compiler, no headers and no system
# packages.
wheel: setup
	scripts/wheel/build.sh $(VENV) dist

# Installs the wheel in a new Debian system that has Python and nothing else, and runs the README's example. Needs root
# and debootstrap.
try-wheel: wheel
	TORCH="$(TORCH)" scripts/wheel/try.sh dist/*.whl docs/first_run.md

# The documentation site, in build/site. A broken link is an error, and so is a page that mkdocs.yml does not list.
docs: tests_setup build
	$(BIN)/python -m mkdocs build --strict

# The versions are those of pyproject.toml: another version formats otherwise.
LINTERS := $(shell grep -oE '"(ruff|mypy|clang-format)==[^"]+"' pyproject.toml)
# mypy reads the types of the extension from what is built.
lint: tests_setup build
	$(BIN)/pip install -q --disable-pip-version-check $(LINTERS)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/python scripts/stubs.py && $(BIN)/mypy
	find csrc tests kernels -name '*.h' -o -name '*.cpp' -o -path 'kernels/*.cl' | xargs -P 2 -n 40 $(BIN)/clang-format --dry-run -Werror
	$(BIN)/python scripts/rooms.py

bench: tests_setup build
	$(BIN)/python -m benchmarks models --models alexnet,resnet18 --compile-times

setup: $(VENV)/.setup
build: $(VENV)/.build
tests_setup: $(VENV)/.tests_setup

# .setup holds the versions that are installed; an empty one stands for the usual ones. Another TORCH installs anew.
VERSIONS := $(TORCH) $(TORCHVISION)
INSTALLED := $(shell cat $(VENV)/.setup 2>/dev/null)
ifneq ($(VERSIONS),$(or $(INSTALLED),$(USUAL_TORCH) $(USUAL_TORCHVISION)))
$(VENV)/.setup: other_versions
endif
.PHONY: other_versions
other_versions:

$(VENV)/.setup: scripts/install_system.sh scripts/install_python.sh
	scripts/install_system.sh
	PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/install_python.sh $(VENV)
	echo "$(VERSIONS)" > $@

$(VENV)/.tests_setup: $(VENV)/.setup scripts/offline_compilers.sh
	scripts/install_system.sh tests
	TORCHVISION="$(TORCHVISION)" scripts/install_python.sh $(VENV) tests
	scripts/offline_compilers.sh || echo "their tests skip"
	touch $@

$(VENV)/.build: $(VENV)/.setup $(SOURCES)
	$(BIN)/pip install -q --no-build-isolation --no-deps \
	  --config-settings=build-dir=$(BUILD) --config-settings=cmake.define.OCL_WERROR=$(WERROR) -e .
	touch $@

$(VENV)/.cpp_tests: $(VENV)/.build $(VENV)/.tests_setup $(wildcard tests/cpp/*)
	$(BIN)/cmake -S . -B $(BUILD) -DOCL_TESTS=ON
	$(BIN)/cmake --build $(BUILD) --target cpp_tests
	touch $@

clean:
	rm -rf build $(VENV)
