# `make demo` and `make test` do all the set-up themselves; a second run starts at once.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
TESTS := $(PY) -m pytest -n 2 --dist loadgroup

.PHONY: help install java browser demo test check lint soak crash bench docs size compat newcomer clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt tools/make-venv
	@tools/make-venv $(VENV)
	@echo "Installing Strandline into $(VENV) ..."
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(BENCH_READY): $(READY)
	@$(PIP) install --constraint constraints.txt --editable '.[dev,bench]'
	@touch $@

install: $(READY) ## the set-up alone, into .venv

java:
	@tools/ensure-java

browser:
	@tools/ensure-browser

demo: $(READY) java ## the whole pipeline on Spark, in about two minutes
	@$(VENV)/bin/strandline demo

test: $(READY) java browser ## all tests
	@TMPDIR=$$(tools/test-folder) $(TESTS)

lint: $(READY)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

check: lint test ## what has to pass: ruff, mypy, import-linter, tests

soak: $(READY) java browser ## the property tests with many more cases
	@STRANDLINE_EXAMPLES=2000 $(TESTS)

crash: $(READY) ## three hundred processes interrupted, forked and killed under load, and what they left
	@STRANDLINE_TRIALS=300 $(PY) -m pytest -q -s tests/pages/test_large.py tests/tables/test_killed.py -k killed

SIZE := quick
bench: $(BENCH_READY) java ## the goals, measured here into docs/benchmarks.md (SIZE=full: as large as they say)
	@$(PY) -m benchmarks.goals --size $(SIZE) --out docs
	@$(PY) -m benchmarks.growth --out docs

DOCS_READY := $(VENV)/.docs-ready

$(DOCS_READY): $(READY)
	@$(PIP) install --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

docs: $(DOCS_READY) ## the documentation as a site in build/site, its links and anchors checked
	@$(VENV)/bin/mkdocs build --quiet && echo "build/site/index.html"

size: $(READY) ## the wheel in empty environments: megabytes, packages, time to the first answer
	@$(PY) tools/install_size.py

compat: $(READY) java ## a quick part of the tests with the lowest and the newest versions, on each Python that is here
	@$(PY) tools/compat.py $(TRIALS)

newcomer: ## a clone in an empty folder: the demo, the tests, every block of README and guide
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && git clone --quiet . "$$folder/strandline" \
	  && cd "$$folder/strandline" && $(MAKE) demo && $(MAKE) test \
	  && $(PY) -m pytest -q tests/test_docs.py -k "README or guide" && echo "A newcomer's path works."

clean: ## removes the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build src/*.egg-info
