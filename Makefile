# Everything a developer types. `make` alone says what there is; each target does its own set-up.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# One recipe at a time: the parallelism is inside pytest, and two pips in one environment break each other.
.NOTPARALLEL:

# Tests start hundreds of processes: where the environment forbids bytecode, each compiles the package again (0.8 s of CPU).
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
STAMP := .venv/.set-up
CODE := $(wildcard src experiments tests benchmarks tools examples docs/conf.py docs/_ext)
# pytest processes, one more than cores: some tests wait for databases, browsers and attacks; a serial run is `make unit JOBS=0`.
JOBS ?= 3
# Left out of `make test`, and run by `make test-apart`.
APART := tests/experiments experiments/src tests/docs/test_pages.py tests/docs/test_site.py

.PHONY: help
help: ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- to use and to see -----------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(STAMP) ## the widest job there is, from nothing, into demo-output/
	$(BIN)/hushquery demo --out demo-output

.PHONY: docs
docs: $(STAMP) ## build the documentation; warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going -n -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# ---- set-up ----------------------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(STAMP) ## make .venv with the pinned versions (again only when the pins or a pyproject.toml changed)

$(STAMP): pyproject.toml experiments/pyproject.toml constraints.txt tools/setup.sh tools/find_python.sh
	@tools/setup.sh
	@touch $@

.PHONY: system
system: ## install the PostgreSQL server, the Chromium and the Java that tests start, where there are none
	@tools/system.sh

.PHONY: constraints
constraints: ## renew the pins in constraints.txt
	"$$(tools/find_python.sh)" tools/constraints.py

# ---- checks ----------------------------------------------------------------------------------------------------------

.PHONY: test
test: setup system lint types contracts client unit ## every check that fits CI: lint, types, contracts, JavaScript, tests, doctests, README, docs

.PHONY: client
client: $(STAMP) system ## the browser client: types, tests, size, Chromium, the extension
	@tools/client.sh

.PHONY: lint
lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

.PHONY: types
types: $(STAMP) ## mypy --strict
	$(BIN)/mypy
	$(BIN)/mypy tools/*.py
	$(BIN)/mypy -p tools.coverage
	$(BIN)/mypy docs/conf.py docs/_ext/*.py

.PHONY: contracts
contracts: $(STAMP) ## import-linter: which way code may look
	$(BIN)/lint-imports --no-logo

.PHONY: unit
unit: $(STAMP) system ## pytest: tests, doctests, README commands (ARGS="-k ledger" for a part; ARGS="-p cpu" for what each costs)
	$(BIN)/pytest -n $(JOBS) --dist loadgroup tests src $(APART:%=--ignore %) $(ARGS)

.PHONY: test-apart
test-apart: $(STAMP) system ## pytest: what CI runs as a job of its own: the experiments, every tutorial and howto, the docs site
	$(BIN)/pytest -n $(JOBS) --dist loadgroup $(APART) $(ARGS)

.PHONY: smoke
smoke: $(STAMP) ## the built wheel on Python 3.12 and 3.13
	@tools/smoke.sh

.PHONY: prove
prove: $(STAMP) system ## the acceptance sizes (long; ARGS="mutants" for some); writes docs/proved.md
	$(BIN)/python tools/prove.py $(ARGS)

.PHONY: mutants
mutants: $(STAMP) ## put each known mistake into a copy of the code and see a check fail (ARGS="krr ledger" for some); writes docs/mutants.md
	@tools/client.sh install
	PYTHONPATH=tests $(BIN)/python -m mutants $(ARGS)

.PHONY: coverage
coverage: $(STAMP) ## measure the coverage of every interval shown (long); writes docs/coverage.md
	$(BIN)/python -m tools.coverage

.PHONY: bench
bench: $(STAMP) ## every benchmark, with peers, and docs/benchmarks.md (QUICK=1: minutes, no page; BENCH_ROUNDS=3)
	@tools/client.sh install
	$(BIN)/python benchmarks/run_all.py $(if $(QUICK),--quick)

.PHONY: schemas
schemas: $(STAMP) ## write the JSON Schemas of files and wire into the package
	$(BIN)/python tools/schemas.py

.PHONY: docs-tables
docs-tables: $(STAMP) ## make the tables of the docs anew
	$(BIN)/python tools/tables.py

.PHONY: reference
reference: $(STAMP) ## write docs/reference anew: commands from their help, a page per package
	$(BIN)/python tools/reference.py

.PHONY: pictures
pictures: $(STAMP) system ## run the tutorials and make their pictures anew (with Chromium)
	$(BIN)/python tools/pictures.py

.PHONY: figures
figures: $(STAMP) ## run every experiment, write its page and pictures into docs/ (about half an hour), and docs/papers.md
	@for experiment in korolova2009 local epochs blender; do $(BIN)/python tools/experiments.py $$experiment; done
	$(BIN)/python tools/papers.py

.PHONY: clean
clean: ## remove what make made: environment, caches, outputs
	rm -rf .venv benchmarks/.cache docs/_build demo-output experiment-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src experiments tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
