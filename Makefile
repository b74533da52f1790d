# Each target sets up its own virtual environment when there is none.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: browser demo test quick fuzz check bench report format clean

demo: .venv/ready  ## train a small model here and now, no data needed
	$(BIN)/python -m toeplix demo

test: .venv/ready browser  ## run all tests, a process for each core
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

quick: .venv/ready  ## the tests that take little time: for the working loop, not before a merge
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow"

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

bench: .venv/ready  ## the operator beside its alternatives, as ratios
	$(BIN)/python -m toeplix bench ops

report: .venv/ready  ## figures/ and docs/experiments.md from the rows in results/, and a page
	$(BIN)/python -m toeplix experiment report --out docs/experiments.md --figures figures --html runs/experiments.html

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
