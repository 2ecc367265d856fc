# `make` alone lists the targets. Each one sets up what it needs, once.

.DEFAULT_GOAL := help
.PHONY: help setup run check lint test test-long bench bench-peers fuzz lock clean
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

# A path without a leading slash, so that a clone may live anywhere, also where the path has a space.
python := .venv/bin/python
# The Python that .venv is made with, when it is not python3.
PYTHON ?=
export PYTHON
# Processes that run tests at once. Many tests wait for a timer or for another process, so one more than two cores.
JOBS ?= 3
# More arguments for pytest: make test ARGS='tests/storage -k recovery'
ARGS ?=

help: ## List the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv, install the locked packages, build the kernel, see to Java and Maven
	@sh scripts/setup.sh dev
	@sh scripts/peers.sh

run: ## A broker, a shop's orders and a pipeline on Spark, live; RUN_SECONDS=60 ends by itself
	@sh scripts/setup.sh run
	@sh scripts/peers.sh java
	@$(python) -m examples.orders.main $(ARGS)

check: lint ## Format, lint, types, import contracts, tidiness, fast tests; before each commit
	@$(python) -m pytest -q -m "not slow and not peers" -n $(JOBS) --dist worksteal $(ARGS)

lint: ## The part of it that runs no test
	@sh scripts/setup.sh dev
	@$(python) -m ruff format --check --quiet . && echo "format: fine"
	@$(python) -m ruff check --quiet . && echo "lint: fine"
	@$(python) -m mypy
	@.venv/bin/lint-imports --no-logo

test: ## Every test, at counts that take minutes (peers: skipped when missing)
	@sh scripts/setup.sh dev
	@sh scripts/peers.sh
	@$(python) -m tests.peers.bring
	@$(python) -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

test-long: ## Every test at full counts; writes docs/test-long.md
	@sh scripts/setup.sh dev
	@sh scripts/peers.sh
	@$(python) -m tests.peers.bring
	@$(python) scripts/test_long.py -n $(JOBS) --dist worksteal $(ARGS)

bench: ## Ratios against other programs, in one run (ARGS=--write stores them in docs/benchmarks)
	@sh scripts/setup.sh dev
	@$(python) -m bench $(ARGS)

bench-peers: ## Beside Apache Kafka and others, in turns, several hours (ARGS=--quick, ARGS='--only raw --write')
	@sh scripts/setup.sh dev
	@sh scripts/peers.sh
	@$(python) -m bench.peers $(ARGS)

fuzz: ## Coverage-guided fuzzing of the decoders, RUNS cases each (default 200000)
	@sh scripts/setup.sh fuzz
	@for target in tests/fuzz/fuzz_*.py; do \
		echo "$$target"; PYTHONPATH=. $(python) "$$target" -runs=$(or $(RUNS),200000) -verbosity=0 || exit 1; \
	done

lock: ## Write requirements/*.txt anew from pyproject.toml
	@sh scripts/lock.sh

clean: ## Remove what the targets made (.venv and the fetched peers too)
	@rm -rf .venv .cache build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@rm -rf src/*.egg-info src/ottla/records/_kernel.c src/ottla/records/_kernel*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
