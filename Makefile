# Two commands are all a newcomer needs: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE # else every program that a test starts compiles all modules again

# browsers, servers and Spark share the machine: what fails is run once more, and listed as RERUN
AGAIN := --reruns 1 --reruns-delay 5 -rR

.DEFAULT_GOAL := help
.PHONY: help setup demo check test lint types structure bench slow mutants docs docs-outputs frontier wheels clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/.ready ## create .venv with everything pinned

.venv/.ready: requirements.lock pyproject.toml scripts/setup
	PYTHON=$(PYTHON) scripts/setup
	@touch $@

demo: setup ## release two bundled tables under epsilon 1, a million children and a census, and write reports
	sfumato demo --out out/demo

check: setup ## linters, types and the tests of what changed since main, or of PACKAGE=query
	scripts/check $(PACKAGE)

test: setup ## linters, types, contracts and the tests, one of which measures the structure
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint
	pytest -n 2 --dist loadgroup -m "not slow" $(AGAIN)

lint: setup ## ruff and the import contracts
	ruff check .
	ruff format --check .
	lint-imports

types: setup ## mypy, strict
	mypy

structure: setup ## sizes, names and imports of the packages, and the way of one query through them
	scripts/structure

slow: setup ## statistical runs, long kill loops and audits that take minutes
	pytest -n 2 --dist loadgroup -m slow $(AGAIN)

mutants: setup ## plant wrong changes one by one, and run the tests that must catch them
	scripts/mutants

bench: setup ## measure against peers side by side and write docs/benchmarks
	$(BIN)/python -m benchmarks

docs: setup ## build the documentation into site/
	mkdocs build --strict

docs-outputs: setup ## run the examples of the documentation and store what they print, of PAGE=sql.md
	REFRESH_OUTPUTS=1 pytest -q tests/test_docs.py tests/test_notebooks.py tests/clients/test_readmes.py -k "every_command and $(or $(PAGE),md)"

frontier: setup ## draw the utility-risk frontier of the bundled census, or of TABLE= with DOMAIN=
	mkdir -p out
	sfumato data census --out out --overwrite >/dev/null
	sfumato frontier $(or $(TABLE),out/census.parquet) --domain $(or $(DOMAIN),out/census.yaml) \
	  --cache out/frontier --out out/frontier.html --overwrite

wheels: setup ## build sfumato, sfumato-client and sfumato-local into dist/
	scripts/wheels dist

clean: ## remove what the other targets made
	rm -rf .venv .venv-bootstrap .bench out site build dist
