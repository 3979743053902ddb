# The targets of this project. Each target sets up what it needs. Run `make` to list them.
#
# Only `format`, `constraints` and the option --update-docs change files that git tracks.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first Python in PATH that is new enough. To use a different one: `make PYTHON=/path/to/python venv`.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.10,\
	$(shell $(name) -c 'import sys; print("$(name)" * (sys.version_info >= (3, 10)))' 2>/dev/null)))
VENV ?= .venv
AIRFLOW ?= 3.3
PINS := constraints/airflow-$(AIRFLOW).txt
# The metadata of an installed distribution has the version with which it was installed.
VERSIONS := airflow_provider_loanauth/__init__.py sandbox/loanauth_sandbox/__init__.py
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# uv must use an installed Python.
export UV_PYTHON_DOWNLOADS := never
# If the caller has set these variables, they would change which packages Python imports, or compile them each time.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9%-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(READY) ## Set up .venv for the other targets; does nothing if it is up to date
	@:

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "This project needs Python 3.10 or newer, which was not found. Install it," \
		"or give its path: make PYTHON=/path/to/python3.12 venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) does not run, or is older than" \
		"Python 3.10. Give the path of another: make PYTHON=/path/to/python3.12 venv" >&2; exit 1; }
	@echo "Setting up $(VENV) with `$(PYTHON) --version` and the pins of $(PINS)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot create virtual environments: its venv module is missing" \
		"(on Debian and Ubuntu: the package python3-venv)" >&2; rm -rf $(VENV); exit 1; }

$(READY): pyproject.toml sandbox/pyproject.toml $(VERSIONS) $(PINS) $(PINS:.txt=.in) | $(BIN)/python
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c $(PINS) uv \
		|| echo "uv cannot be installed; using pip, which takes longer" >&2
	@if test -x $(BIN)/uv; \
		then $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c $(PINS) -r $(PINS:.txt=.in) -e '.[dev]' -e ./sandbox; \
		else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -r $(PINS:.txt=.in) -e '.[dev]' -e ./sandbox; fi
	@# jsonschema, which Airflow loads, compiles the grammars of this optional library at each start: two seconds.
	@$(BIN)/python -m pip uninstall -qq --yes --disable-pip-version-check rfc3987-syntax
	@touch $@

.PHONY: demo
demo: $(READY) ## Run an example DAG for each method against the sandbox, and show the results
	@$(BIN)/python -u -m scripts.demo

.PHONY: test
test: $(READY) ## Run the quick tests, or some (ARGS="tests/hooks -x"), or all with coverage (ARGS="-n auto --cov")
	@$(BIN)/python -m pytest $(or $(ARGS),-q -n auto -m "not processes and not slow" --hypothesis-profile=fast)

.PHONY: bench
bench: $(READY) ## Compare LoanAuth with other providers (ARGS="--update-docs" updates the docs)
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .bench
	@$(BIN)/uv pip install --quiet --compile-bytecode --python .bench/bin/python -e '.[sandbox]' -e ./sandbox \
		`grep '^apache-airflow==' $(PINS)` -r benchmarks/requirements.txt
	@.bench/bin/python -m compileall -q airflow_provider_loanauth
	@.bench/bin/python -m benchmarks.bench $(ARGS)

.PHONY: test-all
test-all: $(READY) ## Run the tests on every Airflow and Python, or on some (ARGS="--one-python --only 3.0")
	@$(BIN)/python -m scripts.matrix $(ARGS)

.PHONY: test-next
test-next: $(READY) ## Run the quick tests on the newest pre-releases of Airflow and of its libraries
	@$(BIN)/python -m scripts.matrix --next $(ARGS) -- -m "not processes" --hypothesis-profile=fast

.PHONY: e2e
e2e: $(READY) ## Run the end-to-end tests on real Airflow installations (ARGS="--update-docs" updates the docs)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c $(PINS) -e '.[e2e]' -e ./sandbox
	@$(BIN)/python -m e2e.run $(ARGS)

e2e-%: $(READY) ## Count the logins of many tasks with one executor: e2e-local, e2e-celery, e2e-kubernetes (ARGS="3.3")
	@$(if $(filter kubernetes,$*),$(BIN)/uv pip install --quiet --python $(BIN)/python -c $(PINS) kubernetes)
	@$(BIN)/python -m e2e.count_logins $* $(ARGS)

.PHONY: docs-site
docs-site: $(READY) ## Build the site with all docs and the API reference in build/docs/
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c $(PINS) --group docs
	@AIRFLOW_HOME=$(CURDIR)/build/docs-airflow AIRFLOW__LOGGING__LOGGING_LEVEL=WARNING \
		$(BIN)/python -m sphinx --quiet --fail-on-warning -c docs -d build/docs-cache . build/docs
	@cp build/docs/README.html build/docs/index.html

.PHONY: lint
lint: $(READY) ## Check style, format, types and import layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/lint-imports --no-cache --config sandbox/pyproject.toml

.PHONY: format
format: $(READY) ## Format the code, and apply automatic fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: constraints
constraints: $(READY) ## Regenerate constraints/*.txt from constraints/*.in and both pyproject.toml
	@for input in constraints/*.in; do \
		day=`sed -n 's/^# as of //p' $$input`; \
		$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --exclude-newer $$day --extra e2e --extra e2e-executors \
			--no-emit-package loanauth-sandbox \
			`test $${input%.in}.txt != $(PINS) || echo --group docs` pyproject.toml $$input -o $${input%.in}.txt || exit 1; \
		echo "$${input%.in}.txt, as of $$day"; \
	done

.PHONY: release
release: $(READY) ## Build the files of a release from HEAD twice, and check them; without a tag: ARGS="--rehearsal"
	@$(BIN)/python -m scripts.release --constraints $(PINS) $(ARGS)

.PHONY: clean
clean: ## Remove all files that the other targets create, including .venv
	@rm -rf $(VENV) .venv-*-* .matrix .demo .bench build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
