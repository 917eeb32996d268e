# Every target works on a fresh machine: `.venv` is made when it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
DATA ?= ./goqueue-data

.DEFAULT_GOAL := help
.PHONY: help demo run test test-cli test-spark check format docs disk-sites site site-serve dashboards proto bench bench-growth bench-peers crash simulate clean

help: ## Show what can be made
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "GoQueue needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@echo "Making $(VENV) (once; takes a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY) ## Take the tour: a minute in a shop, from orders over a crash to Spark, all of it checked
	@$(BIN)/python -m examples.tour

run: $(READY) ## Run a broker on ./goqueue-data (DATA=… for another folder)
	@$(BIN)/goqueue serve --data $(DATA)

# Hundreds of tests start a process: without compiled modules each would compile all of them again.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tools.run_tests --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: $(READY) ## The broker and its clients, kills and power cuts included; test-cli and test-spark are the rest (ten minutes)
	@$(PYTEST) --ignore=tests/cli --ignore=tests/documentation --ignore=tests/spark

test-spark: $(READY) ## The pipeline on Spark; a query, its broker and its driver are killed (four minutes)
	@$(PYTEST) tests/spark

test-cli: $(READY) ## The command line; every example, the site, the tour, the README in a fresh copy (six minutes)
	@$(PYTEST) tests/documentation tests/cli

check: $(READY) ## Format, lint, types, layers, generated files, places of fsync
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/make_settings_pages.py --check
	@$(BIN)/python tools/make_reference.py --check
	@$(BIN)/python tools/generate_proto.py --check
	@$(BIN)/python tools/make_dashboards.py --check
	@$(BIN)/python tools/disk_sites.py --check

format: $(READY) ## Put the code into its format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY) ## Write the generated pages
	@$(BIN)/python tools/make_settings_pages.py
	@$(BIN)/python tools/make_reference.py

# The theme would tell of its successor at every build.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

site: $(READY) ## Build the documentation as a site in site/; a broken link is an error
	@$(MKDOCS) build --strict
	@echo "Open site/index.html"

site-serve: $(READY) ## Show that site at http://127.0.0.1:8000, and follow what is written
	@$(MKDOCS) serve --dev-addr 127.0.0.1:8000

disk-sites: $(READY) ## Write the list of places that bring something to the disk or wait for it
	@$(BIN)/python tools/disk_sites.py

dashboards: $(READY) ## Write the Grafana dashboards
	@$(BIN)/python tools/make_dashboards.py

proto: $(READY) ## Write the gRPC stubs from goqueue.proto
	@$(BIN)/python tools/generate_proto.py

bench: $(READY) ## Run every benchmark (one: .venv/bin/python -m bench NAME)
	@$(BIN)/python -m bench

bench-growth: $(READY) ## How cost grows with messages, partitions, groups and sizes; writes docs/benchmarks (minutes)
	@$(BIN)/python -m bench.growth $(BENCH_GROWTH)

# Clients of the other systems. Nothing else needs them.
$(PEERS): $(READY)
	@echo "Adding the clients of other systems to $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[peers]'
	@touch $@

bench-peers: $(PEERS) ## Measure GoQueue beside Kafka, NATS, RabbitMQ and Redis; writes docs/benchmarks (half an hour)
	@$(BIN)/python -m bench.peers $(BENCH_PEERS)

crash: $(READY) ## Every crash and fuzz test in its long form (minutes; KILLS=… for how many kills)
	@GOQUEUE_THOROUGH=1 GOQUEUE_KILLS=$(or $(KILLS),60) GOQUEUE_FUZZ=$(or $(FUZZ),2000) \
		GOQUEUE_SPARK_KILLS=$(or $(SPARK_KILLS),8) \
		$(BIN)/python -m pytest tests/crash tests/fuzz tests/spark/test_spark_kills.py -o timeout=3600

simulate: $(READY) ## Simulated schedules of operations and faults (SCHEDULES=20000 SEED=1 LEDGER=file; REPLAY=seed shows one)
	@$(BIN)/python tools/simulate.py --schedules $(or $(SCHEDULES),500) --seed $(or $(SEED),1) \
		$(if $(LEDGER),--ledger $(LEDGER)) $(if $(REPLAY),--replay $(REPLAY))

clean: ## Remove what was made here (not your data)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist site
