# Each target sets up its own virtual environment when there is none.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench format clean

demo: .venv/ready  ## train a small model here and now, no data needed
	$(BIN)/python -m toeplix demo

test: .venv/ready  ## run all tests, a process for each core
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

check: .venv/ready  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/ready  ## the operator beside its alternatives, as ratios
	$(BIN)/python -m toeplix bench ops

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
