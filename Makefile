# make demo    train, build, backfill and serve on this machine (PORT=8000)
# make test    every test
# make check   all that must hold before a change goes in: lint, types, contracts, test
# make bench   measure it beside what one would write in its place (QUICK=1: a short run; ONLY=hit,miss: some of it)
# make drill   do faults to real processes, and ask whether all is still served (ONLY=store-killed,disk-full: some of them)
# make soak    ten minutes of load, then three times too much of it (MINUTES=1: a shorter run)
# make fuzz    throw much more at it than make test does (FUZZ=25: how many times as much), and tell how much it was
# make alerts  prove the alert rules with promtool (PROMTOOL=promtool: where it is)
# make docs    write the tables in docs/ anew from the code

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PORT ?= 8000
WORKERS ?= 2
MINUTES ?= 10
FUZZ ?= 25
PROMTOOL ?= promtool
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name))))

# Each of the many processes of `make test` and `make demo` would else compile the whole project anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test lint types contracts check fuzz alerts docs bench bench-docs drill drill-docs soak clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make/make/p' $(firstword $(MAKEFILE_LIST))

install: $(STAMP)

demo: install
	@$(BIN)/forescore demo --port $(PORT)

test: install
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: install
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: install
	@$(BIN)/mypy

contracts: install
	@$(BIN)/lint-imports

check: lint types contracts test

fuzz: install
	@FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/fuzz -n $(WORKERS) --timeout 3600 --durations 10 \
		--hypothesis-show-statistics

alerts:
	@command -v "$(PROMTOOL)" >/dev/null || { echo "promtool is not here. Install it (Debian: apt install prometheus)," \
		"or name it: make alerts PROMTOOL=/path/to/promtool" >&2; exit 1; }
	@"$(PROMTOOL)" check config prometheus.yml
	@"$(PROMTOOL)" test rules monitoring/alerts_test.yml

docs: install
	@$(BIN)/python tests/support/tables.py

bench: install
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

bench-docs: install
	@$(BIN)/python -m benchmarks --json docs/performance.json
	@$(BIN)/python -m benchmarks.page

drill: install
	@PYTHONPATH=.:tests $(BIN)/python -m drills $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON))

drill-docs: install
	@PYTHONPATH=.:tests $(BIN)/python -m drills --page docs/drills.md

soak: install
	@PYTHONPATH=.:tests $(BIN)/python -m drills.soak --minutes $(MINUTES) $(if $(JSON),--json $(JSON))

clean:
	rm -rf $(VENV) .forescore build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	@"$(or $(PYTHON),false)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Forescore needs Python 3.11 or newer. Install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing into $(VENV) (torch is large; this happens once)"
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
