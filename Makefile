# make demo   the whole pipeline on real data, through a real server
# make test   lint, types, import rules and tests
PYTHON ?= python3
# A bare `torch` brings gigabytes of CUDA. On a GPU machine: make demo TORCH=torch
TORCH  ?= torch==2.13.0
VENV   ?= .venv
GRAPH  ?=

BIN    := $(VENV)/bin
export NUMBA_CACHE_DIR ?= $(CURDIR)/$(VENV)/numba-cache

.PHONY: demo test check install clean

demo: $(VENV)/.run
	$(BIN)/rgrl demo $(if $(GRAPH),--graph "$(GRAPH)")

test: check
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(VENV)/.run

$(VENV)/.run: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rgrl needs Python 3.11 or newer; name one with PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo build dist *.egg-info
