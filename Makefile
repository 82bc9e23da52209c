# Two commands are all that a new user needs: `make repro` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
# LOCKED=1 takes only files whose checksums are those of constraints-hashed.txt.
STAMP := $(VENV)/.installed$(if $(LOCKED),-locked)
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
DOCS := $(VENV)/.installed-docs
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# No usage data is sent.
export DVC_NO_ANALYTICS := 1

.DEFAULT_GOAL := help
.PHONY: help setup repro test check lint params bench mutants docs site clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml constraints.txt $(if $(LOCKED),constraints-hashed.txt)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "dacr needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(PIP) --require-hashes -r constraints-hashed.txt
	$(PIP) --no-deps --no-build-isolation -e .
else
	$(PIP) -c constraints.txt -e '.[dev]'
endif
	@touch $@ $(VENV)/.installed

setup: $(STAMP) ## create .venv and install the pinned dependencies (LOCKED=1: by checksum)

repro: $(STAMP) ## run the whole pipeline as params.yaml says
	dvc repro
	@echo "The report: reports/index.html"

test: $(STAMP) ## run the tests
	python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

check: lint ## lint, types, the tests of the core and fast ones of what changed: a minute
	python -m pytest --numprocesses 2 $$(python -m tests.quick)

lint: $(STAMP) ## ruff, mypy and the direction of imports
	ruff check .
	ruff format --check .
	mypy
	lint-imports

params: $(STAMP) ## recompose params.yaml: make params ARGS="split=ncd method=der"
	@python -m stages.params $(ARGS)

bench: $(STAMP) ## measure the training loop beside its peers, the mixture and the build
	python -m benchmarks

mutants: $(STAMP) ## does a test fail on every small mistake in the core? make mutants ARGS="losses heads"
	python -m benchmarks.mutants $(ARGS)

$(DOCS): $(STAMP)
	$(PIP) -c constraints.txt -e '.[dev,docs]'
	@touch $@

docs: $(DOCS) ## serve the documentation as a site, at http://127.0.0.1:8000
	mkdocs serve

site: $(DOCS) ## build it into build/site, strictly, with the tour run anew
	DACR_RUN_TOUR=true mkdocs build --strict

clean: ## remove everything that can be made again, the DVC cache and .venv stay
	rm -rf data/raw data/benchmark data/split runs .dacr reports/index.html reports/provenance.js reports/paper/*.html
	rm -rf build/site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
