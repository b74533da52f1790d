# Each target sets up its own virtual environment when there is none.
PYTHON ?= python3
BIN := .venv/bin
INSTALL = $(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --constraint constraints.txt
# a file is the unit of work; the long ones begin first (tests/conftest.py)
PARALLEL = --numprocesses auto --dist loadfile --no-loadscope-reorder
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.PHONY: browser demo test quick fuzz check bench report docs dist format clean

demo: .venv/demo-ready  ## train a small model here and now, no data needed
	$(BIN)/python -m toeplix demo

test: .venv/ready browser  ## run all tests, a process for each core
	$(BIN)/python -m pytest $(PARALLEL)

quick: .venv/ready  ## the tests that take little time: for the working loop, not before a merge
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

browser:  ## for the tests of the explorer's page: Debian's chromium, installed where that is allowed
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { timeout 150 apt-get install -qq --yes --no-install-recommends chromium || \
	    { timeout 60 apt-get update -qq && \
	      timeout 150 apt-get install -qq --yes --no-install-recommends chromium; }; } >/dev/null 2>&1; \
	fi; \
	command -v chromium >/dev/null || echo "no chromium: the tests of the explorer's page will be skipped"

MINUTES ?= 5
SEED ?= 0
fuzz: .venv/ready  ## damaged files, hostile command lines and requests: make fuzz MINUTES=5 SEED=0
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED)

check: .venv/ready  ## format, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(SITE)

bench: .venv/ready  ## the operator beside its alternatives, as ratios
	$(BIN)/python -m toeplix bench ops

report: .venv/ready  ## figures/ and docs/experiments.md from the rows in results/, and a page
	$(BIN)/python -m toeplix experiment report --out docs/experiments.md --figures figures --html runs/experiments.html

docs: .venv/ready  ## the documentation site in build/site; warnings are errors
	$(SITE)

dist: .venv/release-ready  ## the release in dist/, checked, and its wheel tried in an environment of its own
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv --clear build/wheel
	build/wheel/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	build/wheel/bin/python -I tests/wheel_smoke.py
	build/wheel/bin/pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[serve]"
	build/wheel/bin/python -I tests/wheel_smoke.py serve

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/ready: pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	touch $@ .venv/demo-ready

# only what the demo imports: files are compiled when they are
.venv/demo-ready: pyproject.toml constraints.txt
	$(INSTALL) --no-compile --editable '.[demo]'
	touch $@

.venv/release-ready: constraints.txt
	$(INSTALL) build twine
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
