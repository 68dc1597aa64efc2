# Two commands matter: `make book` and `make test`. Both set up .venv first, pinned by constraints.txt.
# PYTHON=python3.12 and TORCH=cpu choose what is set up. They are remembered; another choice sets up anew.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PACKAGES := -c constraints.txt -e '.[book,sweep,test]'
EXTRAS := --extra book --extra sweep --extra test
STAMP := $(VENV)/.installed
# An empty stamp is of the time before the choices: that set-up is updated in place.
DONE := $(shell test -f $(STAMP) && { grep . $(STAMP) || echo python3; })
PYTHON ?= $(or $(word 1,$(DONE)),python3)
TORCH ?= $(word 2,$(DONE))
ifneq ($(strip $(PYTHON) $(TORCH)),$(strip $(DONE)))
.PHONY: $(STAMP)
CLEAR := --clear
endif
WORKERS ?= 3
POINTS := tests/test_sweep_points.py

.DEFAULT_GOAL := help
.PHONY: help book editions test mutants twice processors points lint lab execute seeds groups bench gpu resolve constraints clean

help:  ## say what can be made
	@echo "Symmetry, Measured. Targets:"
	@sed -n 's/^\([a-z]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'
	@echo "PYTHON=python3.12 chooses the interpreter (3.11 or newer), TORCH=cpu the PyTorch without GPU libraries."

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(CLEAR) $(VENV)
	@# uv is the faster one. Where pip is told its own places to install from, pip stays: uv would not know them.
	@UV=$$(command -v uv) || { [ -z "$(TORCH)" ] && $(PIP) config list | grep -E 'index|find-links' >/dev/null; } \
	  || { $(PIP) install -c constraints.txt uv && UV=$(BIN)/uv; } || echo "uv cannot be installed here."; \
	echo "Installing what constraints.txt pins: some minutes, of which the last, for bytecode, shows nothing new."; \
	if [ "$$UV" ]; then "$$UV" pip install --python $(BIN)/python --compile-bytecode $(TORCH:%=--torch-backend=%) $(PACKAGES); \
	else [ -z "$(TORCH)" ] && $(PIP) install $(PACKAGES); fi || { \
	  echo "The packages are not installed; the reason stands above. The same command tries again." >&2; \
	  [ -z "$(TORCH)" ] || echo "TORCH=$(TORCH) needs uv and PyTorch's own index. To do without: make TORCH= $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	@echo $(PYTHON) $(TORCH) > $@

book: $(STAMP)  ## build the book as HTML, warnings being errors
	PYTHONPATH=. $(BIN)/jupyter-book build book -W --keep-going -n --all
	@echo
	@echo "The book is in book/_build/html. To read it, with search and without a network:"
	@echo "    $(BIN)/python -m http.server --directory book/_build/html 8000"
	@echo "and open http://127.0.0.1:8000 in a browser."

editions: $(STAMP)  ## make a PDF and a zip of the built book in editions/, some minutes (the PDF needs Chromium)
	$(BIN)/python -m lib.page.editions

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@for room in symmetry transport images augmentation ensembles implicit_bias gans mean_field sweep page; do \
	  [ ! -d lib/$$room ] || echo "lib/$$room: $$(cat lib/$$room/*.py | wc -l) lines"; done
	@echo "lib: $$(find lib -name '*.py' -exec cat {} + | wc -l) lines"

test: lint  ## check the style, run all tests, every notebook and the rendered book in a browser
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25 --durations-min 5 -m "not slow" \
	  --ignore $(POINTS) \
	  --nbval --nbval-current-env --nbval-cell-timeout 300 tests book

mutants: $(STAMP)  ## run every wrong implementation that the checks have to notice, also the slow ones, some minutes
	$(BIN)/pytest -n $(WORKERS) --dist load --durations 25 --durations-min 5 tests/test_mutants.py

twice: $(STAMP)  ## run every chapter twice in one kernel with two groups, and compare with fresh kernels, for releases
	$(BIN)/pytest -n $(WORKERS) tests/test_twice.py

processors: $(STAMP)  ## compare every notebook as on other processors: other instructions, two threads, for releases
	@for processor in "as stored" "as it comes" "without vectors" "two threads"; do echo "$$processor"; \
	  PROCESSOR="$$processor" $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --nbval \
	  --nbval-current-env --nbval-cell-timeout 300 book || exit 1; done

points: $(STAMP)  ## run the smallest point of every sweep's notebook, some minutes more (ONLY=runs, as in CI: no chapters)
	$(BIN)/pytest -n $(WORKERS) $(POINTS) -k "$(ONLY)"

lab: $(STAMP)  ## open the chapters in JupyterLab, on a page with their order (OPTIONS="--no-browser" for jupyter lab)
	$(BIN)/python book/_ext/lab.py $(OPTIONS)

execute: $(STAMP)  ## run the notebooks and refresh their stored outputs (NAMES="haar_projections" for some)
	$(BIN)/python -m lib.page.notebooks execute $(NAMES)

groups seeds: NAMES ?= $(basename $(notdir $(wildcard sweeps/seeds/*.yml)))
groups: $(STAMP)  ## run the chapters with every group at fifteen new seeds and store it, hours (NAMES="ensembles" for some)
seeds: $(STAMP)  ## run the chapters at ten other seeds, store how their claims fared and show it (NAMES="ensembles" for some)
groups seeds:
	@for name in $(NAMES); do \
	  $(BIN)/python -m lib.sweep run sweeps/$@/$$name.yml -o sweep-results/$@/$$name && \
	  $(BIN)/python -m lib.sweep store sweeps/$@/$$name.yml -o sweep-results/$@/$$name \
	    --to data/results/$$name/$@.parquet || exit 1; done
	[ $@ = groups ] || $(BIN)/python -m lib.page.notebooks execute $(NAMES)

bench: $(STAMP)  ## run the side-by-side timings anew and store them for the page on performance
	rm -rf sweep-results/timings
	$(BIN)/python -m lib.sweep run sweeps/timings.yml --workers 1 -o sweep-results/timings
	$(BIN)/python -m lib.sweep store sweeps/timings.yml -o sweep-results/timings --to data/results/performance/timings.parquet

gpu: $(STAMP)  ## run what waits for a GPU, in pieces of eight minutes (PIECES="tests chapters", OPTIONS=--small for any machine)
	$(BIN)/python -m benchmarks.gpu $(OPTIONS) $(PIECES)

# The first release of each Python, and Debian 12's. PyTorch's packages need macOS 14.
resolve: $(STAMP)  ## check that the pins have ready-made packages for every Python and system
	@for python in 3.11.0 3.11.2 3.12.0 3.13.0; do for system in linux macos windows; do \
	  echo "Python $$python on $$system"; \
	  MACOSX_DEPLOYMENT_TARGET=14.0 $(BIN)/uv pip compile -q --python-version $$python --python-platform $$system \
	    --only-binary :all: -c constraints.txt $(EXTRAS) pyproject.toml >/dev/null || exit 1; done; done

constraints: $(STAMP)  ## pin anew after a change of pyproject.toml, for every Python from 3.11.0 on; pins that fit stay
	$(BIN)/uv pip compile -q --universal --python-version 3.11.0 --no-annotate --custom-compile-command "make constraints" \
	  $(EXTRAS) pyproject.toml -o constraints.txt

clean:  ## remove the environment, the built book, its editions and caches
	rm -rf $(VENV) book/_build editions .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
