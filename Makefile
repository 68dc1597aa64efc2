# Two commands matter: `make book` and `make test`. Both set up .venv first, pinned by constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help book test lint lab execute seeds bench constraints clean

help:  ## say what can be made
	@echo "Symmetry, Measured. Targets:"
	@sed -n 's/^\([a-z]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'
	@echo "Set PYTHON=python3.12 to choose the interpreter (3.11 or newer)."

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[book,sweep,test]'
	@touch $@

book: $(STAMP)  ## build the book as HTML, warnings being errors
	PYTHONPATH=. $(BIN)/jupyter-book build book -W --keep-going -n --all
	@echo
	@echo "The book is in book/_build/html. To read it, with search and without a network:"
	@echo "    $(BIN)/python -m http.server --directory book/_build/html 8000"
	@echo "and open http://127.0.0.1:8000 in a browser."

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test: lint  ## check the style, run all tests, every notebook and the rendered book in a browser
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --nbval --nbval-current-env --nbval-cell-timeout 300 tests book

lab: $(STAMP)  ## open the book's notebooks in JupyterLab
	$(BIN)/jupyter lab --notebook-dir=book

execute: $(STAMP)  ## run the notebooks and refresh their stored outputs (NAMES="haar_projections" for some)
	$(BIN)/python -m lib.notebooks execute $(NAMES)

seeds: $(STAMP)  ## run the chapters at ten other seeds and store how their claims fared (NAMES="ensembles" for some)
	@for name in $(or $(NAMES),$(basename $(notdir $(wildcard sweeps/seeds/*.yml)))); do \
	  $(BIN)/python -m lib.sweep run sweeps/seeds/$$name.yml -o sweep-results/seeds/$$name && \
	  $(BIN)/python -m lib.sweep store sweeps/seeds/$$name.yml -o sweep-results/seeds/$$name \
	    --to data/results/$$name/seeds.parquet || exit 1; done

bench: $(STAMP)  ## run the side-by-side timings
	$(BIN)/python -m benchmarks

constraints:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[book,sweep,test]'
	head -n 3 constraints.txt > constraints.new
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//; s/+cu[0-9]*$$//' | grep -v ' @ ' >> constraints.new
	mv constraints.new constraints.txt
	touch $(STAMP)

clean:  ## remove the environment, the built book and caches
	rm -rf $(VENV) book/_build .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
