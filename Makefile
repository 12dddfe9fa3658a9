# `make run` and `make test` need nothing but Python 3.11+, pip and make.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
# The extra that the tests and the checks need.
EXTRA ?= dev
BIN = $(VENV)/bin
LIGHT = $(VENV)/.ready
READY = $(VENV)/.ready-$(EXTRA)
PINNED = $(VENV)/constraints.txt
# The tests start hundreds of processes. Without bytecode each of them would compile torch anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: run test test-medium test-all test-oldest coverage check format size docs bench clean

run: $(LIGHT)
	$(BIN)/slm-lab run

test: $(READY)
	$(BIN)/pytest -n 2 -m "not medium and not slow" --timeout 300

test-medium: $(READY)
	$(BIN)/pytest -n 2 -m "not slow" --timeout 300

test-all: $(READY)
	$(BIN)/pytest -n 2

# The oldest versions that the lab works with, in an environment of their own.
test-oldest:
	$(MAKE) test-medium VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt EXTRA=tests

coverage: $(READY)
	$(BIN)/pip install --quiet pytest-cov
	$(BIN)/pytest -n 2 -m "not medium and not slow" --timeout 600 --cov --cov-report= -p no:cacheprovider
	$(BIN)/coverage report --skip-covered | tee coverage.txt

check: $(READY)
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/slm-lab spec check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

size: $(READY)
	$(BIN)/python -m bench.size

docs: $(READY)
	$(BIN)/python docs/reference/spec_reference.py > docs/spec_reference.md
	$(BIN)/python docs/reference/python_reference.py > docs/python_reference.md
	$(BIN)/python docs/reference/benchmarks.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/pip install --quiet -c $(PINNED) -e ".[bench]"
	$(BIN)/python -m bench.speed ppo_cartpole

# The lab alone: what trains, draws graphs and makes tables. It is installed again when what it should
# contain changes. A torch that is there already stays: its version takes the place of the pinned one.
$(LIGHT): pyproject.toml $(CONSTRAINTS)
	@echo "installing torch and the lab into $(VENV): a minute or more, without output"
	$(PYTHON) -m venv $(VENV)
	@kept=$$($(BIN)/python -c "from importlib.metadata import version; print(version('torch'))" 2>/dev/null); \
		sed "s/^torch==.*/torch==$${kept:-$$(sed -n 's/^torch==//p' $(CONSTRAINTS))}/" $(CONSTRAINTS) > $(PINNED)
	$(BIN)/pip install --quiet --no-compile -c $(PINNED) -e .
	touch $(LIGHT)

# Beside it the extras and the tools of the tests and the checks.
$(READY): $(LIGHT)
	@echo "installing the extras and the tools of the tests into $(VENV): some minutes, without output"
	$(BIN)/pip install --quiet -c $(PINNED) -e ".[$(EXTRA)]"
	touch $(READY)

clean:
	rm -rf $(VENV) .venv-oldest .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
