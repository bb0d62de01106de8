# make demo   the whole pipeline on real data, through a real server
# make test   lint, types, import rules and tests
# make page   the page anew, after a change in service/page
PYTHON ?= python3
# What pip is told of torch. From PyPI, Linux builds for x86-64 bring gigabytes of CUDA; without a GPU:
#   make demo TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
# To change it later, `make clean` first.
TORCH  ?= torch==2.13.0
VENV   ?= .venv
GRAPH  ?=
LABEL  ?=

BIN    := $(VENV)/bin
PAGE   := $(shell find service/page -name node_modules -prune -o -type f -not -name schema.d.ts -print) docs/openapi.json

.PHONY: demo test check install page clean

demo: $(VENV)/.run
	$(BIN)/rgrl demo $(if $(GRAPH),--graph "$(GRAPH)") $(if $(LABEL),--label "$(LABEL)")

test: check
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 20

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(VENV)/.run
	@echo "rgrl is installed: $(BIN)/rgrl"

page: $(VENV)/.dev
	$(BIN)/python service/page/page_build.py

# An installation builds the page, where that is not of the present sources.
$(VENV)/.run: pyproject.toml $(PAGE)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rgrl needs Python 3.11 or newer; name one with PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

# The demo's server and its embeddings go too.
clean:
	rm -rf $(VENV) demo build dist *.egg-info service/api/page service/page/node_modules
