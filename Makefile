# One front door: each target does its own set-up and is quick when that is done. `make help` lists them.
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# Development is said here, explicitly; whoever starts the project otherwise gets production's strictness.
DURABLEOPS_ENV ?= development
export DURABLEOPS_ENV
export ONCE CSV

# Relative on purpose: the checkout's own path may hold spaces.
PYTHON_BIN := .venv/bin/python

.PHONY: help demo test drill check bench services stop setup servers migrated browser

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile | expand -t 18

demo: migrated ## the batch import on real data, a worker killed half-way (ONCE=1: exit when done; CSV=path: your file)
	@$(PYTHON_BIN) -m examples.demo

test: servers browser ## the whole test suite, in two processes (ARGS="-k name" narrows it)
	@$(PYTHON_BIN) -m pytest -n 2 -m "not long" $(ARGS)

drill: migrated ## every failure drill, longer, and every way in which one must fail
	@$(PYTHON_BIN) manage.py drill all
	@$(PYTHON_BIN) -m pytest -m long tests/drills

check: servers ## format, lint, types, import contracts, missing migrations
	@$(PYTHON_BIN) -m ruff format --check .
	@$(PYTHON_BIN) -m ruff check .
	@$(PYTHON_BIN) -m mypy
	@$(PYTHON_BIN) -c 'import sys; from importlinter.cli import lint_imports_command; lint_imports_command()'
	@$(PYTHON_BIN) manage.py makemigrations --check --dry-run

bench: migrated ## our benchmarks and the peers' in one run, as a table and JSON (ARGS=--quick: coarse)
	@$(PYTHON_BIN) -m benchmarks $(ARGS)

services: setup ## start or reuse the embedded servers and print their addresses
	@$(PYTHON_BIN) -m durableops.embedded start

stop: ## stop the embedded servers; their data stays
	@if [ -f .venv/durableops-stamp ]; then exec $(PYTHON_BIN) -m durableops.embedded stop; else echo "stopped: nothing was running"; fi

servers: setup
	@$(PYTHON_BIN) -m durableops.embedded start >/dev/null

migrated: servers
	@$(PYTHON_BIN) manage.py migrate --verbosity 0

browser: setup
	@$(PYTHON_BIN) -m tests.browser

# Any Python 3.8 will do to look for a better one; one on PATH may be a version manager's shim that does not run.
setup:
	@for python in "$$PYTHON" python3 python3.14 python3.13 python3.12 /usr/bin/python3 python; do \
		if [ -n "$$python" ] && "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then \
			exec "$$python" deploy/bootstrap.py; \
		fi; \
	done; \
	if command -v uv >/dev/null 2>&1; then exec uv run --quiet --no-project --python 3.13 deploy/bootstrap.py; fi; \
	echo "set-up: no Python was found: install Python 3.12 or newer (or uv, which fetches it), then run make again." >&2; \
	exit 1
