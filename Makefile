# make run: the demo, from nothing to a report.   make test: everything that CI asks.   make help: the rest.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Bytecode is made when a module is first used: half of an installation's time goes into modules that never are.
# It has to be kept then, whatever this variable says, or every process would make it anew.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(PIP) install -q --no-compile -c infra/constraints.txt
GOOD := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	if $$name -c '$(GOOD)' >/dev/null 2>&1; then echo $$name; break; fi; done)

# Tests that start no Ray, no Prefect and no browser, two at a time with one thread each.
UNIT := not flow and not ray and not slow and not bench and not chaos

.PHONY: help run test unit test-processors lint bench chaos chaos-ci clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 18

run: $(VENV)/.installed ## install if needed, run the demo profile, say where its report is
	$(BIN)/rnnsearch run --profile demo

test: lint unit ## linters, types, contracts and all tests but the long sweeps
	$(BIN)/python -m pytest -m "not bench and not chaos and (flow or ray or slow)"

unit: $(VENV)/.installed-dev ## tests that need no Ray, Prefect or browser: about a minute; ISLAND=pipeline for one folder
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "$(UNIT)" tests/$(ISLAND)

# As an old processor computes, and one with AVX2: other kernels, other sums, other numbers of threads.
OLD := RNNSEARCH_KERNELS=plain ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=2
NUMERIC := tests/model tests/flows/test_training.py tests/flows/test_training_dev.py tests/flows/test_translate.py

test-processors: $(VENV)/.installed-dev ## the tests of networks, training and search as two other processors compute
	$(OLD) $(BIN)/python -m pytest -q -m "$(UNIT)" $(NUMERIC)
	$(AVX2) $(BIN)/python -m pytest -q -m "$(UNIT)" $(NUMERIC)

lint: $(VENV)/.installed-dev ## linters, types, contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev ## print measurements
	@for each in tests/bench/*.py; do echo "== $$each"; $(BIN)/python $$each || exit 1; done

chaos: $(VENV)/.installed-dev ## the long sweeps: kill and break things everywhere
	$(BIN)/python -m pytest -m chaos tests/chaos

chaos-ci: $(VENV)/.installed-dev ## a seeded part of the chaos, for CI
	$(BIN)/python -m pytest -m "chaos and sample" tests/chaos

clean: ## remove what is installed and built; the store (.rnnsearch) stays
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# A stamp is newer than what decides the installation, so that a second call installs nothing.
$(VENV)/.installed: pyproject.toml infra/constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python of version 3.11, 3.12 or 3.13 was found; install one, or: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c '$(GOOD)' || { echo "$(PYTHON) is not Python 3.11, 3.12 or 3.13; give one: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "installing into $(VENV): a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what the tests need into $(VENV)"
	@$(INSTALL) -e '.[dev]'
	@touch $@
