# Sets up, runs and tests the project; needs only python3 >= 3.11 and make.
#
# uv is taken from PATH, or installed into .cache/uv. Packages are installed into .venv exactly as
# locked in uv.lock, and the native kernels are compiled where there is a C++20 compiler. The name of
# the stamp file is a checksum of uv.lock, pyproject.toml, the kernels' sources, the names of the
# modules and the Python version, so setup runs again only when one of them changes.

SHELL := /bin/sh
UV_VERSION := 0.13.8

# The last working wheel of dgl, which some tests use as a reference, is for Python 3.11.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo .cache/uv/bin/uv)
BIN := .venv/bin
NATIVE := worker/CMakeLists.txt worker/kernel_cache.cmake worker/embertide/kernels/native/*.[ch]pp
# An installed package knows its modules by their files: where one becomes a package, it is installed again.
MODULES := find worker/embertide operator/embertide_operator -name '*.py' | sort
KEY := $(shell { cat uv.lock pyproject.toml $(NATIVE); $(MODULES); $(PYTHON) -V; } 2>/dev/null | cksum | cut -d' ' -f1)
STAMP := .venv/.ready-$(KEY)
STAMP_ALL := .venv/.ready-all-$(KEY)
STAMP_RELEASE := .venv/.ready-release-$(KEY)

# Kernels that were compiled once, by this compiler from these sources, are taken from here.
export EMBERTIDE_KERNEL_CACHE ?= $(HOME)/.cache/embertide/kernels

# Bytecode is written as packages are imported first, also where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

# Arguments for pytest: make test ARGS="tests/unit -k csr"
ARGS ?=
# Test files run in parallel, one process per core, in the order of tests/conftest.py; JOBS= runs them
# sequentially.
JOBS ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup setup-all demo demo-hetero test test-all test-rest test-exhaustive lint format lock docs clean cluster cluster-packages sanitize sanitize-anew release release-try release-check

help:
	@echo "make demo     set up, run the example job on Debian's package graph, show the results"
	@echo "make demo-hetero  the same with packages, maintainers and sections as node types"
	@echo "make test     set up, run the tests that every change needs: minutes (ARGS='tests/unit -k csr' runs some)"
	@echo "make test-all that, then with more packages all others, with an S3 server and a Kubernetes node"
	@echo "make test-rest  what make test-all runs after make test"
	@echo "make test-exhaustive  every model on every grid in every mode: hours (ROOM=program: of one package)"
	@echo "make cluster  set up, start a Kubernetes node with the operator installed, until Ctrl-C"
	@echo "make cluster-packages  install by apt what that node needs"
	@echo "make lint     set up, check format, style, types, imports and Dockerfiles"
	@echo "make format   set up, format the code"
	@echo "make docs     set up, build the site of docs/ into .cache/site"
	@echo "make sanitize set up, test the native kernels under AddressSanitizer and UBSan"
	@echo "make release-check  set up, build a whole release (dist/, images), install and run it; nothing is published"
	@echo "make release  build its packages alone (TAG=v0.1.0 demands that version)"
	@echo "make release-try  install and run what make release built"
	@echo "make setup    install uv if needed, then .venv from uv.lock"
	@echo "make setup-all  the same with all that make test-all and make lint need"
	@echo "make lock     resolve pyproject.toml into uv.lock again"
	@echo "make clean    remove .venv, .cache and the tools' caches"
	@echo
	@echo "PYTHON=python3.13 make ... selects another interpreter (3.11 or later)."

setup: $(STAMP)
	@echo "[setup] .venv matches uv.lock"

setup-all: $(STAMP_ALL)
	@echo "[setup] .venv matches uv.lock, with all packages"

.cache/uv/bin/uv:
	@echo "[setup] no uv on PATH: installing uv $(UV_VERSION) into .cache/uv"
	@$(PYTHON) -m venv .cache/uv
	@.cache/uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(STAMP): $(filter .cache/%,$(UV))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "[setup] Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
	       "select another: make PYTHON=python3.12 ..."; exit 1; }
	@echo "[setup] .venv for $$($(PYTHON) -V) from uv.lock (PyTorch is large: the first download takes a while)"
	@$(SYNC) test
	@$(BIN)/python -c 'from embertide.kernels import native; print("[setup] kernels:", native.describe())'
	@$(BIN)/python -m tests.support.first_imports
	@rm -f .venv/.ready-* && touch $@

# Packages that are there stay: what `make test-all` has installed, `make test` leaves.
SYNC = $(UV) sync --locked --inexact --reinstall-package embertide \
  --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" --extra

$(STAMP_ALL): $(STAMP)
	@echo "[setup] packages of make test-all and make lint"
	@$(SYNC) dev
	@$(BIN)/python -c 'import importlib.util as u; u.find_spec("dgl") or print("[setup] dgl", \
	  "has no wheel for this Python and machine (it needs 3.11 on x86-64): everything else works,", \
	  "tests against dgl are skipped")'
	@$(BIN)/python -m tests.support.first_imports
	@touch $@

demo: $(STAMP)
	@$(BIN)/python examples/debian/demo.py

demo-hetero: $(STAMP)
	@$(BIN)/python examples/debian-hetero/demo.py

# Hundreds of processes import these.
COMPILE = $(BIN)/python -m compileall -q operator worker tests tools
test: $(STAMP)
	@$(COMPILE)
	@echo "[test] pytest --durations=10 $(JOBS) $(ARGS)"
	@$(BIN)/python -m pytest --durations=10 $(JOBS) $(ARGS)

# Tests that are named by ARGS run once, whatever their tier.
test-all: $(if $(ARGS),,test) test-rest

# The tests on the cluster mostly wait for it; all others run beside them, with the time they leave.
TIERS = --tier=2 --from-tier=$(if $(ARGS),1,2)
ON_CLUSTER := .cache/tests-on-the-cluster.log
test-rest: $(STAMP_ALL)
	@$(COMPILE)
	@mkdir -p .cache; echo "[test] pytest $(TIERS) --cluster=without $(JOBS) $(ARGS)"; \
	echo "[test] beside it, shown at the end: pytest $(TIERS) --cluster=only --durations=20 $(ARGS)"; \
	$(BIN)/python -m pytest $(TIERS) --cluster=only --durations=20 $(ARGS) >$(ON_CLUSTER) 2>&1 & cluster=$$!; \
	trap 'kill $$cluster 2>/dev/null' INT TERM; \
	nice -n 10 $(BIN)/python -m pytest $(TIERS) --cluster=without --durations=20 $(JOBS) $(ARGS); others=$$?; \
	wait $$cluster; cluster=$$?; cat $(ON_CLUSTER); \
	case $$others in 0|5) ;; *) exit $$others; esac; \
	[ $$cluster -ne 5 ] || exit $$others; exit $$cluster  # 5: no test selected

# Of one package of the worker or the operator: make test-exhaustive ROOM=program. The tiers before it
# run too, since many of their tests try more in this one.
ROOM ?=
test-exhaustive: $(STAMP_ALL)
	@$(COMPILE)
	@$(BIN)/python -m pytest --tier=3 --cluster=without $(if $(ROOM),--room=$(ROOM)) $(JOBS) $(ARGS)

cluster: $(STAMP_ALL)
	@$(BIN)/python -m tests.support.cluster up

docs: $(STAMP_ALL)
	@$(BIN)/mkdocs build --strict --quiet --site-dir .cache/site

# Debian packages that the test cluster needs, and a browser; Go comes from https://go.dev/dl.
cluster-packages:
	@packages="$$($(PYTHON) -m tests.support.cluster packages)" || exit 1; \
	if dpkg --status $$packages >/dev/null 2>&1; then echo "[cluster] all packages are installed"; \
	else apt-get update && DEBIAN_FRONTEND=noninteractive \
	  apt-get install --yes --no-install-recommends $$packages; fi

lint: $(STAMP_ALL)
	@echo "[lint] ruff format --check"
	@$(BIN)/ruff format --check
	@echo "[lint] ruff check"
	@$(BIN)/ruff check
	@echo "[lint] mypy"
	@$(BIN)/mypy
	@echo "[lint] lint-imports"
	@$(BIN)/lint-imports --no-logo
	@echo "[lint] hadolint docker/*.Dockerfile"
	@$(BIN)/hadolint docker/*.Dockerfile
	@echo "[lint] lines of Python, by room"
	@for room in worker/embertide/*/ operator/*/ tests/*/ benchmarks/ tools/; do \
	  printf '%7d %s\n' "$$(find $$room -name '*.py' -exec cat {} + | wc -l)" "$$room"; \
	done | grep -v __pycache__ | sort -rn

# The kernels' tests with a build that stops at the first access out of bounds or undefined step.
# Python's output alone is captured: a sanitizer's message would be lost as it ends the process.
# Python itself is not instrumented, so the sanitizers' runtime is loaded before it.
SANITIZED := .cache/sanitized
# The code of each instruction set is tested; one that the processor lacks is replaced by a lesser.
ISAS ?= avx512 avx2 baseline
# What passed once with the same sources, tests, packages, compiler and options is not run again.
PASSED := $(HOME)/.cache/embertide/sanitized
SANITIZED_KEY = $(shell { cat uv.lock Makefile worker/CMakeLists.txt worker/embertide/kernels/*.py \
  worker/embertide/kernels/native/*.* tests/unit/test_native*.py tests/conftest.py \
  tests/unit/conftest.py; $(CXX) --version; \
  $(PYTHON) -V; echo $(ISAS) $(ARGS); grep -m1 '^flags' /proc/cpuinfo; } 2>/dev/null | sha256sum | cut -c1-16)
sanitize: $(STAMP_ALL) $(filter .cache/%,$(UV))
	@if [ -e $(PASSED)/$(SANITIZED_KEY) ]; then \
	  echo "[sanitize] these kernels have passed these tests before: $(PASSED)/$(SANITIZED_KEY)"; \
	else $(MAKE) --no-print-directory sanitize-anew && mkdir -p $(PASSED) && touch $(PASSED)/$(SANITIZED_KEY); fi

sanitize-anew:
	@echo "[sanitize] building the kernels with ASan and UBSan"
	@$(UV) build --quiet --wheel --python $(BIN)/python --out-dir $(SANITIZED) \
	  --config-setting build-dir=$(SANITIZED)/build \
	  --config-setting cmake.define.EMBERTIDE_SANITIZE=ON
	@cd $(SANITIZED) && rm -f _native*.so && $(CURDIR)/$(BIN)/python -m zipfile -e embertide-*.whl wheel \
	  && mv wheel/embertide/kernels/native/_native*.so . && rm -rf wheel
	@for isa in $(ISAS); do \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  EMBERTIDE_NATIVE="$$(ls $(SANITIZED)/_native*.so)" EMBERTIDE_ISA=$$isa \
	  $(BIN)/python -m pytest -q -p no:cacheprovider --capture=sys $(JOBS) -k "not fallback" \
	  tests/unit/test_native*.py $(ARGS) || exit; done

# A release in dist/: packages, chart, list of components, sums, notes; and its images, in a registry that
# ends with the command. Nothing is published. TAG=v0.1.0 demands that it is the version that is released.
# Two runs differ in minutes: kernels are kept. TORCH_INDEX and SOURCE: docker/build-arguments.
TAG ?=
RELEASE = $(BIN)/python -m tools.release
$(STAMP_RELEASE): $(STAMP_ALL) $(filter .cache/%,$(UV))
	@$(UV) sync --quiet --locked --inexact --no-install-project --python $(BIN)/python --extra release
	@touch $@

release: $(STAMP_RELEASE)
	@$(RELEASE) build $(if $(TAG),--tag $(TAG))

release-try: $(STAMP_RELEASE)
	@$(RELEASE) try

release-check: $(STAMP_RELEASE)
	@$(RELEASE) build try images $(if $(TAG),--tag $(TAG))

format: $(STAMP_ALL)
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

lock: $(filter .cache/%,$(UV))
	@echo "[lock] resolving pyproject.toml into uv.lock"
	@$(UV) lock --default-index https://pypi.org/simple

clean:
	@echo "[clean] removing .venv, .cache and the tools' caches; keeping ~/.cache/embertide"
	@rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
