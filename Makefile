# Needs python3 (3.11 or newer), pip and make. Everything is installed into .venv; nothing outside this folder is touched.
.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
BIN    := $(VENV)/bin
# Where torch comes from is pip's own configuration; a CPU-only index can be named here: make setup TORCH_PIP="--index-url ..."
TORCH_PIP ?=
DEMO_ARGS ?=

INSTALL := $(BIN)/python requirements/install.py
HAVE    := $(VENV)/.have
UV      := $(VENV)-lock/bin/uv
UV_VERSION := 0.13.9

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- installation: one stamp per part, inside the environment, so that `rm -r .venv` forgets them too ---------------------

$(HAVE)/venv:
	@echo "flightwatch: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit("flightwatch needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(HAVE) && touch $@

$(HAVE)/server: requirements/build.txt requirements/server.txt | $(HAVE)/venv
	@$(INSTALL) "server packages" --require-hashes -r requirements/build.txt -r requirements/server.txt
	@touch $@

$(HAVE)/flightwatch: agent/pyproject.toml pyproject.toml $(HAVE)/server
	@$(INSTALL) "flightwatch" --no-deps --no-build-isolation -e ./agent -e .
	@touch $@

$(HAVE)/torch: requirements/torch.txt $(HAVE)/server
	@$(INSTALL) "torch" $(TORCH_PIP) -r requirements/torch.txt
	@touch $@

$(HAVE)/dev: requirements/dev.txt $(HAVE)/server
	@$(INSTALL) "development tools" --require-hashes -r requirements/dev.txt
	@touch $@

.PHONY: setup
setup: $(HAVE)/flightwatch $(HAVE)/torch $(HAVE)/dev  ## install everything for development into .venv
	@echo "flightwatch: ready; \`make demo\`, \`make test\`, or \`. $(BIN)/activate\` and \`flightwatch --help\`"

.PHONY: demo
demo: $(HAVE)/flightwatch  ## show a simulated 1,024-rank job with a slow node (no torch needed)
	@$(BIN)/flightwatch demo $(DEMO_ARGS)

# --- checks ---------------------------------------------------------------------------------------------------------------

.PHONY: test
test: setup  ## run the tests (minutes): unit and integration side by side, end to end one by one
	$(BIN)/pytest -q -m "not slow and not browser" -n $(JOBS) --dist loadfile --ignore tests/end_to_end
	$(BIN)/pytest -q -m "not slow and not browser" tests/end_to_end

.PHONY: browser
browser: setup  ## run the tests that drive a real Chromium (Debian's package chromium, or CHROMIUM=path)
	$(BIN)/pytest -q -m browser

.PHONY: soak
soak: setup  ## run the slow tests, all of them, one by one
	$(BIN)/pytest -v -m slow

.PHONY: bench
bench: setup  ## run the benchmarks and print their tables
	@for file in benchmarks/[a-z]*.py; do \
		name=$$(basename "$$file" .py); echo "== $$name"; $(BIN)/python -m "benchmarks.$$name" || exit 1; \
	done

.PHONY: lint
lint: setup  ## check format, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(HAVE)/dev  ## format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# --- upkeep ---------------------------------------------------------------------------------------------------------------

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-emit-find-links --no-annotate \
	--custom-compile-command "make lock" --upgrade
LOCAL   = --no-emit-package flightwatch --no-emit-package flightwatch-server

$(UV):
	@$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv==$(UV_VERSION)

.PHONY: lock
lock: $(UV)  ## pin the newest packages that fit, with their hashes
	$(COMPILE) --generate-hashes $(LOCAL) pyproject.toml agent/pyproject.toml -o requirements/server.txt
	$(COMPILE) --generate-hashes requirements/build.in -c requirements/server.txt -o requirements/build.txt
	$(COMPILE) --generate-hashes requirements/dev.in -c requirements/server.txt -c requirements/build.txt -o requirements/dev.txt

PROTOC_TOOLS := grpcio-tools==1.76.0

.PHONY: stubs
stubs:  ## generate the wire's stubs again, with the oldest grpcio-tools that the agent supports
	@$(PYTHON) -m venv $(VENV)-stubs && $(VENV)-stubs/bin/pip install --quiet $(PROTOC_TOOLS)
	$(VENV)-stubs/bin/python -m grpc_tools.protoc -I agent --python_out=agent --pyi_out=agent --grpc_python_out=agent \
		agent/flightwatch/wire/flightwatch.proto

.PHONY: clean
clean:  ## remove the environments, caches and build outputs
	rm -rf $(VENV) $(VENV)-lock $(VENV)-stubs build dist agent/dist test-results
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
