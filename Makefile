# The front door. `make` alone lists the commands; each sets up what it needs and says so.
# TABHERD_STATE and TABHERD_SERVER__PORT choose another state directory and port.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Tests and benchmarks start hundreds of servers. Where nothing compiled may be kept, each would compile everything anew,
# which takes longer than all the rest of its start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PYTHON := $(VENV)/bin/python
# Tests that run side by side; each may have a Chromium of its own.
WORKERS ?= 4
# Simulated histories: `make sim SEEDS=n` runs n of them, `make sim SEED=k` replays one; CLUSTER=1 is several nodes.
SEEDS ?= 2000
.PHONY: help up down test check release sim soak parity bench docs screenshots clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## set up, start tabherd in the background, print where it is
	@tools/setup run
	@$(VENV)/bin/tabherd up --detach

down: ## stop it
	@if [ -x $(VENV)/bin/tabherd ]; then $(VENV)/bin/tabherd down; else echo "Nothing is set up here, so nothing runs."; fi

test: ## set up and run the tests: eight minutes on two cores
	@tools/setup dev
	@$(PYTHON) -m tests.run -n $(WORKERS) --dist worksteal

check: ## format, lint, types, imports, the tests that need no browser: a minute
	@tools/setup dev
	@tools/check

release: ## what proves the tooling: wheel, deploy files, site, screenshots, peers
	@tools/setup bench
	@$(PYTHON) -m tests.run -n $(WORKERS) --dist worksteal -m release

sim: ## simulated histories: SEEDS=n runs n, SEED=k replays one, CLUSTER=1 of several nodes
	@tools/setup dev
	@$(PYTHON) -m tests.$(if $(CLUSTER),sim_cluster,sim) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

soak: ## explore with fresh seeds: histories, inputs, kills, a crowd; hours, or SOAK=10m; DOCS=1 notes the figures
	@tools/setup dev
	@$(PYTHON) -m tests.soak $(if $(SOAK),--for $(SOAK)) $(if $(DOCS),--docs)

parity: ## the engine beside Playwright, each situation TIMES times; NAME=situation for one
	@tools/setup dev
	@$(PYTHON) -m tests.parity --times $(or $(TIMES),1) $(if $(NAME),--only $(NAME))

bench: ## measure; NAME=name for one, QUICK=1 for the short ones, DOCS=1 to write docs/benchmarks.md
	@tools/setup bench
	@$(PYTHON) -m bench $(NAME) $(if $(QUICK),--quick) $(if $(DOCS),--docs)

docs: ## write the reference, its diagrams and the synchronous client from the code; build the site
	@tools/setup dev
	@$(PYTHON) tools/twin.py
	@$(PYTHON) tools/docs.py
	@$(PYTHON) tools/site.py

screenshots: ## take the pictures of the documentation from a real run; NAME=name for one
	@tools/setup dev
	@$(PYTHON) tools/screenshots.py $(NAME)

clean: ## remove the environment, stamps and caches; state and running servers stay
	@rm -rf $(VENV) .setup .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .schemathesis build dist
	@find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@echo "Clean. 'make up' or 'make test' sets up again."
