# make demo    train, build, backfill and serve on this machine (PORT=8000)
# make test    every test
# make check   all that must hold before a change goes in: lint, types, contracts, test
# make bench   measure it beside what one would write in its place (QUICK=1: a short run; ONLY=hit,miss: some of it)
# make docs    write the tables in docs/ anew from the code

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PORT ?= 8000
WORKERS ?= 2
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name))))

.PHONY: help install demo test lint types contracts check docs bench bench-docs clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make/make/p' $(firstword $(MAKEFILE_LIST))

install: $(STAMP)

demo: install
	@$(BIN)/forescore demo --port $(PORT)

test: install
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

lint: install
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: install
	@$(BIN)/mypy

contracts: install
	@$(BIN)/lint-imports

check: lint types contracts test

docs: install
	@$(BIN)/python tests/support/tables.py

bench: install
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

bench-docs: install
	@$(BIN)/python -m benchmarks --json docs/performance.json
	@$(BIN)/python -m benchmarks.page

clean:
	rm -rf $(VENV) .forescore build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	@"$(or $(PYTHON),false)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Forescore needs Python 3.11 or newer. Install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing into $(VENV) (torch is large; this happens once)"
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
