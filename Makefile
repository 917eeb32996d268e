# Every target works on a fresh machine: `.venv` is made when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DATA ?= ./goqueue-data

.DEFAULT_GOAL := help
.PHONY: help demo run test check format docs dashboards proto bench crash clean

help: ## Show what can be made
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "GoQueue needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@echo "Making $(VENV) (once; takes about half a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY) ## See it work in a minute: publish, read, replay, crash, recover
	@$(BIN)/python examples/demo.py

run: $(READY) ## Run a broker on ./goqueue-data (DATA=… for another folder)
	@$(BIN)/goqueue serve --data $(DATA)

test: $(READY) ## Run every test
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

check: $(READY) ## Format, lint, types, layers, generated files
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m goqueue.cli.reference --check
	@$(BIN)/python tools/generate_proto.py --check
	@$(BIN)/python tools/make_dashboards.py --check

format: $(READY) ## Put the code into its format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY) ## Write the generated pages
	@$(BIN)/python -m goqueue.cli.reference

dashboards: $(READY) ## Write the Grafana dashboards
	@$(BIN)/python tools/make_dashboards.py

proto: $(READY) ## Write the gRPC stubs from goqueue.proto
	@$(BIN)/python tools/generate_proto.py

bench: $(READY) ## Run every benchmark (one: .venv/bin/python -m bench NAME)
	@$(BIN)/python -m bench

crash: $(READY) ## Kill a broker under load, many times (minutes; KILLS=… for how many)
	@GOQUEUE_KILLS=$(or $(KILLS),60) $(BIN)/python -m pytest tests/crash -o timeout=3600

clean: ## Remove what was made here (not your data)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
