# `make run` and `make test` need nothing but Python 3.11+, pip and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: run test test-medium test-all coverage check format size docs bench clean

run: $(READY)
	$(BIN)/slm-lab run

test: $(READY)
	$(BIN)/pytest -n 2 -m "not medium and not slow" --timeout 300

test-medium: $(READY)
	$(BIN)/pytest -n 2 -m "not slow" --timeout 300

test-all: $(READY)
	$(BIN)/pytest -n 2

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
	$(BIN)/pip install --quiet -c constraints.txt -e ".[bench]"
	$(BIN)/python -m bench.speed ppo_cartpole

# The virtual environment is made again when what it should contain changes.
$(READY): pyproject.toml constraints.txt
	@echo "installing torch and the lab into $(VENV): some minutes, without output"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
