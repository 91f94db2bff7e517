# `make demo` and `make test` need Python 3.10 or later and make, and nothing else.
#   PYTHON     interpreter that makes the environment:  make test PYTHON=python3.12
#   VENV       where the environment lies
#   PIP_FLAGS  more flags for pip install
PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=

BIN := $(VENV)/bin
# Python compiles a module when it is first imported; to compile all of them takes longer than to install them. A person
# sees what pip does; the log of continuous integration is for what fails.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile $(if $(CI),--quiet) $(PIP_FLAGS) -c constraints.txt

.PHONY: help demo test test-slow test-all check docs bench soak clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   install, load a sample base into the collection demo, link mentions"
	@echo "make test   install what the tests need (torch among it) and run them"
	@echo "make test-slow  the tests that make test leaves out: several seconds each"
	@echo "make test-all   both in one run, as continuous integration does"
	@echo "make check  ruff and mypy"
	@echo "make docs   the documentation site, into site/"
	@echo "make bench  the benchmarks of benchmarks/"
	@echo "make soak   100 loads killed at random, resumed and compared; up to 20 minutes on two cores (Linux)"
	@echo "make clean  remove the environment and all caches"

demo: $(VENV)/.installed
	$(BIN)/pearl-qdrant demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-slow: $(VENV)/.installed-dev
	PEARL_QDRANT_TESTS=thorough $(BIN)/python -m pytest -n 4 --dist load -m "(slow or hypothesis) and not server" --timeout 3600 $(PYTEST_ARGS)

# All in one run: tests are collected once, property tests draw all of their examples once, and waiting overlaps.
test-all: $(VENV)/.installed-dev
	PEARL_QDRANT_TESTS=thorough $(BIN)/python -m pytest -n 4 --dist worksteal -m "not server" --timeout 3600 $(PYTEST_ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

soak: $(VENV)/.installed-dev
	SOAK_CHAINS=100 SOAK_SEED=$$$$ $(BIN)/python -m pytest -n 2 -m slow -k at_random tests/loads/test_kill_resume.py $(SOAK_ARGS)

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find pearl_qdrant ingest training tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian splits ensurepip off into python3-venv; without it `venv` leaves half an environment behind.
$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "'$(PYTHON)' is not there. Name a Python 3.10 or later: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "pearl-qdrant needs Python 3.10 or later, but '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1)." \
		"Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: sudo apt install python3-venv" >&2; \
		exit 1; }
	"$(PYTHON)" -m venv "$(VENV)"

# An environment for the tests serves the demo too, so the smaller one is only ever installed first.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing pearl-qdrant into $(VENV) (without torch) ..."
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing pearl-qdrant into $(VENV) with torch and the development tools; this takes a few minutes ..."
	@$(INSTALL) -e '.[dev]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what the documentation site is built with into $(VENV) ..."
	@$(INSTALL) -e '.[docs]'
	@touch $(VENV)/.installed $@
