# Everything from nothing: each target makes what it needs. See README.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST := .cache/host/.installed
PROPERTIES := tests/core/memory/test_document.py tests/core/memory/test_edit_any.py \
  tests/core/memory/test_reply.py

.PHONY: demo test lint types bench torture docs clean
.DEFAULT_GOAL := test

# ── for everybody ────────────────────────────────────────────────────────────

demo: $(VENV)/.installed  ## a recorded session goes through the real parts: no account, no network
	@$(BIN)/memoryctl demo

test: lint $(VENV)/.tools $(HOST)  ## everything that CI runs
	$(BIN)/python -m pytest -q
	MEMORYD_TEST_PROFILE=ci $(BIN)/python -m pytest -q $(PROPERTIES)

lint: $(VENV)/.tools  ## style, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.tools  ## the figures of docs/reference/performance.md, each beside its reference; make bench BENCH="--only P1,P6"
	@cd tests && ../$(BIN)/python -m bench.all $(BENCH)

docs: $(VENV)/.installed  ## the reference pages, made from the code
	$(BIN)/python -m docs.generate

torture: $(VENV)/.tools $(HOST)  ## the same tests with many more examples: hours
	MEMORYD_TEST_PROFILE=torture $(BIN)/python -m pytest -q --randomly-seed=$$(date +%s)

clean:
	rm -rf $(VENV) .cache build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache

# ── what they need ───────────────────────────────────────────────────────────

$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { echo "memoryd needs Python 3.11 or newer with venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "memoryd needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "this Python has no venv; on Debian: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.tools: $(VENV)/.installed
	$(BIN)/python -m pip install -q --group test
	@touch $@

$(HOST): tests/e2e/install_host.py
	@command -v npm >/dev/null || \
	  { echo "the tests with the real client need node and npm (Node 20 or newer)"; exit 1; }
	$(BIN)/python tests/e2e/install_host.py
	@touch $@
