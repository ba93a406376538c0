# make demo            write a report: of a fresh recording with a GPU or torch, else of a shipped one
# make test            set everything up and run the tests, but for those marked slow or programs
# make test-slow       the tests marked slow or programs, which .ci/run runs as well
# make test-tritons    the tests of compiled kernels, with every version of Triton that is supported
# make test-install    build the packages, install them in fresh environments, run what was installed
# make fuzz            damage recordings and code by the hundred, with sanitizers: half an hour or more; SEED=1 for others
# make lint, types     ruff; mypy and tsc
# make format          fix what ruff can fix
# make docs            refresh the output that README and docs/ show, and the list of facts
# make site            build the documentation site in build/site/html
# make gallery         build the HTML and JSON reports of the cases in reports/
# make pictures        redraw the pictures of the README; needs Chromium
# make script          bundle the scripts of the pages; needs npm
# make dist            build and check the source distribution and the wheels of all platforms, in dist/
# make benchmark       time the report beside nsys stats, nsys-ai and pandas, into docs/performance.md
# make modules         fetch PTX modules of another compiler, for the slow test that reads them
# make corpus          fetch these and the kernels of public packages, for the slow test of both
# make corpus-seconds  time the first answer to each of these kernels: 12 minutes at most
# make clean           remove environments, caches and builds

PYTHON ?= python3
C_SOURCES := $(shell find traceview -name '*.[ch]')
NSYS_HOME := .cache/nsys
BIN := .venv/bin
# Nobody imports most modules of PyTorch and others: Python compiles those that are imported.
PIP := $(BIN)/python -m pip install --quiet --no-compile -c requirements-ci.txt
# What .venv/all installs; ALSO=release adds what make dist needs.
EXTRAS := $(strip dev dask workloads ptx site mcp sql $(ALSO))
comma := ,
space := $() $()
LIBRARIES := $(PIP) --no-deps einops fla-core liger-kernel || \
	echo "make: without fla-core and liger-kernel their tests skip"
# Hundreds of tests start Python, which would otherwise compile all modules anew each time.
unexport PYTHONDONTWRITEBYTECODE
# Tests that need a tool skip without it; pass e.g. PYTEST="-x -k queue" for a part of them.
PYTEST ?= -q -n auto --dist worksteal

.PHONY: demo dist docs gallery site script page-tools pictures test test-slow fuzz test-install test-tritons modules corpus corpus-seconds benchmark lint types format nsys clean

demo: .venv/core
	@scripts/demo.sh

gallery: .venv/core
	@$(BIN)/python scripts/build_gallery.py

docs: .venv/dev .venv/workloads .venv/ptx
	@$(BIN)/python scripts/list_facts.py
	@$(BIN)/python -m tests.docs.update

site: .venv/dev .venv/site
	@$(BIN)/python scripts/build_site.py

pictures: .venv/core
	@$(BIN)/python scripts/pictures.py

test: .venv/all nsys page-tools
	@$(BIN)/python -m pytest -m "not slow and not programs" $(PYTEST)

test-slow: .venv/all nsys page-tools
	@$(BIN)/python -m pytest -m "slow or programs" $(PYTEST)

# What fails is named by its seed: python -m tests.fuzz KIND --seed N --count 1 --keep FOLDER.
SEED ?= 0
fuzz: .venv/core
	@$(BIN)/python -m tests.fuzz code --asan --count 300 --seed $(SEED)
	@$(BIN)/python -m tests.fuzz json --asan --count 500 --seed $(SEED)
	@$(BIN)/python -m tests.fuzz sqlite --asan --count 1000 --seed $(SEED)

test-tritons: .venv/dev .venv/workloads .venv/ptx
	@PYTEST='$(PYTEST)' scripts/test-tritons.sh $(BIN)/python

# Without its dependencies: only the modules are read.
modules: .venv/dev
	@$(PIP) --no-deps mojolearn-nvidia-ptx

# A test of these kernels takes some ten minutes, so CI leaves them out.
corpus: modules
	@$(BIN)/python scripts/fetch_corpus.py

# Times mean something only on a machine that does nothing else.
corpus-seconds: .venv/dev .venv/workloads .venv/ptx
	@$(BIN)/python -m tests.headless.corpus.seconds

# nsys-ai, which wants packages of its own, is compared where it is on the PATH; its DuckDB must be able
# to load sqlite_scanner (on PyPI: duckdb-extension-sqlite-scanner).
# BENCHMARK="--kernels 1000 100000 --runs 3" asks for other lengths; those of ten million kernels need 5 GB
# of disk.
benchmark: .venv/dev nsys
	@mkdir -p .cache
	@PATH="$$PATH:$(NSYS_HOME)/bin" $(BIN)/python -m benchmarks.report.tool_comparison \
		--json .cache/benchmark.json --chart docs/performance.svg $(BENCHMARK)
	@$(BIN)/python -m benchmarks.report.result_tables .cache/benchmark.json --into docs/performance.md

dist: .venv/release
	@rm -rf dist
	@$(BIN)/python scripts/build_packages.py

test-install: dist .venv/dev
	@TRACEVIEW_TEST_DIST=dist $(BIN)/python -m pytest -q tests/install

lint: .venv/dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: .venv/dev page-tools
	@$(BIN)/mypy
	@if [ -x node_modules/.bin/tsc ]; then node_modules/.bin/tsc -p .; \
		else echo "make: without npm the script of the page is not type-checked"; fi

script: page-tools
	@scripts/bundle.sh main.js traceview/render/templates/report.js
	@scripts/bundle.sh timeline.js traceview/render/templates/timeline.js
	@scripts/bundle.sh ranks.js traceview/render/templates/ranks.js

# esbuild, tsc and axe, in the versions of package.json. Only changing or testing the page's script
# needs them: without npm its tests skip.
page-tools: node_modules/.installed

node_modules/.installed: package.json
	@if command -v npm > /dev/null && npm install --silent; then touch $@; \
		else echo "make: no npm, or no network: what needs the tools of package.json skips"; fi

format: .venv/dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than 3.11; try make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv .venv

.venv/core: pyproject.toml requirements-ci.txt setup.py $(C_SOURCES) | .venv/bin/python
	@$(PIP) -e .
	@touch $@

.venv/dev: .venv/core
	@$(PIP) -e '.[dev]'
	@touch $@

.venv/workloads: .venv/core
	@$(PIP) -e '.[workloads]'
	@touch $@

.venv/site: .venv/core
	@$(PIP) -e '.[site]'
	@touch $@

.venv/ptx: .venv/core
	@$(PIP) -e '.[ptx]'
	@$(LIBRARIES)
	@touch $@

.venv/release: .venv/core
	@$(PIP) -e '.[release]'
	@touch $@

# All extras at once: every call of pip builds the project again.
.venv/all: pyproject.toml requirements-ci.txt setup.py $(C_SOURCES) | .venv/bin/python
	@$(PIP) -e '.[$(subst $(space),$(comma),$(EXTRAS))]'
	@$(LIBRARIES)
	@touch .venv/core $(EXTRAS:%=.venv/%) $@

# A failed attempt is remembered, so that it costs its time once: rm -r .cache/nsys tries again.
nsys:
	@if [ ! -e $(NSYS_HOME) ] && ! command -v nsys > /dev/null; then \
		mkdir -p .cache; scripts/install-nsys.sh $(NSYS_HOME) > .cache/install-nsys.log 2>&1 || mkdir -p $(NSYS_HOME); \
	fi
	@[ -x $(NSYS_HOME)/bin/nsys ] || command -v nsys > /dev/null || \
		echo "make: no nsys on this machine (see .cache/install-nsys.log): the tests that need it skip"

clean:
	rm -rf .venv .cache node_modules build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
