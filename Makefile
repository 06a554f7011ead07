# make demo and make test are all that a newcomer needs; each makes the environment first where it is missing or out of date.
PYTHON_ENV := .venv/bin/python
INSTALLED := .venv/.installed
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
BENCHMARKS := $(filter-out \_%,$(patsubst benchmarks/%.py,%,$(wildcard benchmarks/*.py)))
WORKERS ?= 2

# Compiled programs are kept, so that a second run starts at once.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.jax_cache
unexport PYTHONPATH PYTHONHOME

.PHONY: help setup demo test test-slow bench notebooks lint clean

help:
	@echo "make setup       environment in .venv with the package and the tools for development"
	@echo "make demo        real answers in, a calibrated bank, scores and a report out (report in out/)"
	@echo "make test        fast tests             ARGS='tests/test_curves.py -k beta' narrows them"
	@echo "make test-slow   simulation-based calibration and recovery"
	@echo "make bench       NAME=x runs benchmarks/x.py: $(BENCHMARKS)"
	@echo "make notebooks   executes notebooks/*.ipynb in their quick form (QUICK=0: in full)"
	@echo "make lint        ruff and mypy"
	@echo "make clean       removes caches and outputs; .venv stays"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@$(PYTHON_ENV) -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || { \
	  base=$$(sh scripts/find_python.sh) && echo "making .venv with $$base" && "$$base" -m venv --clear .venv; }
	$(PYTHON_ENV) -m pip install --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: setup
	$(PYTHON_ENV) -m bayes_irsl.demo $(ARGS)

test: setup
	$(PYTHON_ENV) -m pytest -n $(WORKERS) $(ARGS)

test-slow: setup
	$(PYTHON_ENV) -m pytest -m slow -n $(WORKERS) $(ARGS)

bench: setup
	@test -f "benchmarks/$(NAME).py" || { echo "make bench NAME=x, with x one of: $(BENCHMARKS)"; exit 2; }
	$(PYTHON_ENV) benchmarks/$(NAME).py $(ARGS)

QUICK ?= 1
notebooks: setup
	@for notebook in $(NOTEBOOKS); do \
	  echo "$$notebook"; BAYES_IRSL_QUICK=$(QUICK) $(PYTHON_ENV) -m jupyter execute "$$notebook" || exit 1; done

lint: setup
	$(PYTHON_ENV) -m ruff check .
	$(PYTHON_ENV) -m ruff format --check .
	$(PYTHON_ENV) -m mypy

clean:
	rm -rf out build dist .jax_cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
