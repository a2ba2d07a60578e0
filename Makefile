# Every target installs what it needs first; a second run starts at once.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
UV_VERSION := 0.13.7

# Python packages only, or Java as well.
PACKAGES = @command -v python3 >/dev/null || { echo "Python 3.11 or newer is needed and there is no python3" >&2; exit 1; }; \
	python3 deploy/local/bootstrap.py
SETUP = $(PACKAGES) --java

SEEDS ?= 5
FUZZ_SEED ?= $(shell date +%s)

ROUNDS ?= 20
STEPS ?= 2000
MAJOR ?= 18
OPTIONS ?=
SEED ?= $(shell date +%s)
WORKLOAD ?= small
MINUTES ?= 30

# Tests that run at the same time, each lane on its own servers; 0 runs them one after the other, which external servers need.
LANES ?= $(if $(filter external,$(STACK)),0,2)

.PHONY: help demo test test-long fuzz fuzz-ddl corpus chaos soak check architecture up down psql bench docs lock

help: ## show this list
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | sed 's/%/<name>/' | \
	while IFS='	' read -r target text; do printf '  make %-13s %s\n' "$$target" "$$text"; done

demo: ## see it work: a small shop, three stream tables, a minute of changes, compared with PostgreSQL
	$(SETUP)
	@$(BIN)/python -m deploy.demo

test: ## see it proven: the static checks of `make check`, then all tests
	$(SETUP)
	@$(BIN)/pg-trickle-applier prepare 2>/dev/null & prepared=$$!; \
	$(MAKE) --no-print-directory check; checked=$$?; \
	wait $$prepared || echo "Spark's classes are not archived: starts are slower" >&2; \
	exit $$checked
	@$(BIN)/python -m pytest -n $(LANES)

test-long: ## see more proven: runs of up to hours, one after the other (ONLY=corpus for one); `test` shows the last results
	$(SETUP)
	@$(BIN)/python -m tests.long $(ONLY)

fuzz: ## compare every function with PostgreSQL for longer, with new random values (FUZZ_SEED repeats a run)
	$(SETUP)
	@echo "FUZZ_SEED=$(FUZZ_SEED)"
	@FUZZ_SEED=$(FUZZ_SEED) FUZZ_ROWS=3000 FUZZ_RAISING=6 FUZZ_TIMEOUT=7200 \
	  $(BIN)/python -m pytest -q tests/applier/functions

fuzz-ddl: ## STEPS random changes of tables, partitions, views, types and rows on PostgreSQL MAJOR: each stream table equals its query or says why not (SEED repeats a run, OPTIONS=--no-event-triggers)
	$(SETUP)
	@$(BIN)/python -m tests.life.ddl_fuzz --seed $(SEED) --steps $(STEPS) --major $(MAJOR) $(OPTIONS)

corpus: ## compare every accepted query of the corpus with PostgreSQL 16 and 18 on SEEDS data sets
	$(SETUP)
	@for major in 16 18; do echo "PostgreSQL $$major"; PG_MAJOR=$$major CORPUS_SEEDS=$(SEEDS) CORPUS_TIMEOUT=7200 \
	  $(BIN)/python -m pytest -q tests/corpus/test_corpus.py || exit 1; done

chaos: ## inject ROUNDS faults while WORKLOAD runs, compare everything with PostgreSQL (SEED repeats a run)
	$(SETUP)
	@$(BIN)/python -m tests.chaos --rounds $(ROUNDS) --seed $(SEED) --workload $(WORKLOAD) --record

soak: ## a mixed load for MINUTES; memory, open files, lag and history may grow by no more than their limits
	$(SETUP)
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) --record

up: ## start PostgreSQL, Kafka and both programs in the background; addresses are in .stack/env
	$(SETUP)
	@$(BIN)/python -m deploy.local up

down: ## stop the stack in order; its data stay
	$(PACKAGES)
	@$(BIN)/python -m deploy.local down

psql: ## open psql on the running stack
	$(PACKAGES)
	@$(BIN)/python -m deploy.local psql

bench: ## run every benchmark in its short form
	$(SETUP)
	@$(BIN)/python -m tests.benchmarks.harness --short

bench-%: ## run one benchmark in full
	$(SETUP)
	@$(BIN)/python -m tests.benchmarks.bench_$*

architecture: ## print the sizes of folders, files, classes and functions
	$(PACKAGES)
	@$(BIN)/python -m tests.architecture

check: ## run the static checks: formatting, lint, types, layers, installed packages
	$(PACKAGES)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m deploy.audit

docs: ## write the generated pages: settings, SQL, functions and reliability
	$(PACKAGES)
	@$(BIN)/python -m deploy.pages
	@$(BIN)/python -m tests.chaos.report

lock: ## write the lock files: Python packages and jars
	$(SETUP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --generate-hashes --no-emit-index-url --no-header -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra dev -c requirements.lock --quiet --universal --generate-hashes --no-emit-index-url --no-header -o requirements-dev.lock
	@$(BIN)/python -m deploy.local.lock_jars
