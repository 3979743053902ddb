# The verbs of this project. Each sets up what it needs; `make` alone lists them.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first Python here that is new enough. Name another by `make PYTHON=/path/to/python venv`.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.10,\
	$(shell $(name) -c 'import sys; print("$(name)" * (sys.version_info >= (3, 10)))' 2>/dev/null)))
VENV ?= .venv
AIRFLOW ?= 3.3
PINS := constraints/airflow-$(AIRFLOW).txt
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# uv takes the Python that is there.
export UV_PYTHON_DOWNLOADS := never
# Of whoever calls make: none of these may decide what is imported here.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(READY) ## Set up .venv with everything that the other verbs need; cheap when it is there
	@:

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "This project needs Python 3.10 or newer, and no python3 here is. Install one," \
		"or name it: make PYTHON=/path/to/python3.12 venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) does not run, or is older than" \
		"Python 3.10. Name another: make PYTHON=/path/to/python3.12 venv" >&2; exit 1; }
	@echo "Setting up $(VENV) with `$(PYTHON) --version` and the pins of $(PINS)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make virtual environments: its venv module is missing" \
		"(Debian and Ubuntu: the package python3-venv)" >&2; rm -rf $(VENV); exit 1; }

$(READY): pyproject.toml sandbox/pyproject.toml $(PINS) | $(BIN)/python
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c $(PINS) uv \
		|| echo "uv cannot be installed here: going on with pip, which takes longer" >&2
	@if test -x $(BIN)/uv; \
		then $(BIN)/uv pip install --quiet --python $(BIN)/python -c $(PINS) -e '.[dev]' -e ./sandbox; \
		else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -e '.[dev]' -e ./sandbox; fi
	@touch $@

.PHONY: demo
demo: $(READY) ## Run the three example DAGs against the sandbox and show the result
	@$(BIN)/python -m scripts.demo

.PHONY: test
test: $(READY) ## Run the tests; all of them with coverage, or some: make test ARGS="tests/hooks -x"
	@$(BIN)/python -m pytest $(or $(ARGS),-n auto --cov --cov-report=term --cov-fail-under=95)

.PHONY: test-triggerer
test-triggerer: $(READY) ## Run 50 deferred sensors in a whole Airflow, with a scheduler and a triggerer; takes minutes
	@LOANAUTH_SLOW=1 $(BIN)/python -m pytest tests/test_triggerer.py

.PHONY: bench
bench: $(READY) ## Measure LoanAuth beside other providers, in an environment of its own; writes benchmarks/RESULTS.md
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .bench
	@$(BIN)/uv pip install --quiet --python .bench/bin/python -e '.[sandbox]' -e ./sandbox `grep '^apache-airflow==' $(PINS)` \
		-r benchmarks/requirements.txt
	@.bench/bin/python -m benchmarks.bench $(ARGS)

.PHONY: bench-wait
bench-wait: $(READY) ## Measure what waiting costs, beside the HTTP provider; writes benchmarks/WAIT.md
	@$(BIN)/python -m benchmarks.wait

.PHONY: test-all
test-all: $(READY) ## Run the tests on every Airflow and Python; fewer: make test-all ARGS="--one-python --only 3.0"
	@$(BIN)/python -m scripts.matrix $(ARGS)

.PHONY: e2e
e2e: $(READY) ## Go the whole way on whole Airflows, with Chromium, and search everything for secrets
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c $(PINS) -e '.[e2e]' -e ./sandbox
	@$(BIN)/python -m e2e.run $(ARGS)

.PHONY: lint
lint: $(READY) ## Check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

.PHONY: format
format: $(READY) ## Format, and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: constraints
constraints: $(READY) ## Make constraints/*.txt anew from pyproject.toml and constraints/*.in
	@for wanted in constraints/*.in; do \
		day=`sed -n 's/^# as of //p' $$wanted`; \
		$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --exclude-newer $$day --extra e2e \
			--no-emit-package loanauth-sandbox \
			pyproject.toml $$wanted -o $${wanted%.in}.txt || exit 1; \
		echo "$${wanted%.in}.txt, as of $$day"; \
	done

.PHONY: build
build: $(READY) ## Build wheels and sdists of both distributions into dist/, and check them in clean environments
	@rm -rf dist build/dist && mkdir -p build/dist
	@for project in . sandbox; do \
		$(BIN)/python -m build --no-isolation --outdir dist $$project >> build/dist/log 2>&1 \
			|| { cat build/dist/log >&2; exit 1; }; \
	done
	@$(BIN)/python -m scripts.check_dist --constraints $(PINS) dist build/dist

.PHONY: clean
clean: ## Remove everything that these verbs have made, also .venv
	@rm -rf $(VENV) .venv-*-* .matrix .e2e .demo .bench build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
