# Two commands for everyone: `make demo` shows the product at work, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types check bench clean

# A second call does nothing: the stamp is as old as the last install and newer than what it installed from.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[server,dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/bird-env demo

test: $(STAMP)
	$(BIN)/python -m pytest -q

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/pyright

check: lint types test

bench: $(STAMP)
	$(BIN)/bird-env bench replicas

clean:
	rm -rf $(VENV)
