# The same words in the README, here and in continuous integration. `make help` lists them.
# On Windows, where make is rare, the README gives the lines to type instead.

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?=
TEST_ARGS ?= -n 2 --dist loadfile
LAB_ARGS ?=
WHERE ?=
CHROMIUM ?= chromium

bin := $(VENV)/bin
python := $(bin)/python
comma := ,
empty :=
space := $(empty) $(empty)

# $(call ready,EXTRAS) is the stamp file of an environment with these extras in it.
ready = $(VENV)/.ready$(addprefix -,$(subst $(space),+,$(call choose,$(sort $(subst $(comma), ,$1)))))
choose = $(if $(filter all,$1),all,$(strip $1))

# As root (a container) Jupyter wants to be told; BROWSER=none means: print the address only.
lab_flags := $(if $(filter 0,$(shell id -u)),--allow-root) $(if $(filter none,$(BROWSER)),--no-browser)
# Terminals and `!` lines in JupyterLab find the environment's commands first, and so does
# nbgrader, which starts alembic by its bare name to make a new gradebook.
on_path = PATH="$$(cd $(bin) && pwd):$$PATH"
start_lab = $(on_path) $(python) -m jupyterlab $(lab_flags) $(LAB_ARGS)

# uv does in a minute what takes pip several. Where it cannot be had, pip does it all the same.
pip = $(python) -m pip install --quiet
install = echo 'Installing what is missing ...'; \
  { $(pip) 'uv>=0.9,<1' && $(python) -m uv pip install --quiet -c constraints.txt -e '$1'; } \
  || $(pip) -c constraints.txt -e '$1'

.DEFAULT_GOAL := help
.PHONY: help lab instructor test selftest lint build book release hub pyodide constraints clean
.DELETE_ON_ERROR:

help: ## list these words
	@echo 'make WORD, where WORD is one of:'
	@sed -n 's/^\([a-z]*\):.*## /\1: /p' $(firstword $(MAKEFILE_LIST)) | awk -F': ' '{printf "  %-12s %s\n", $$1, $$2}'
	@echo 'Settings: PYTHON=python3.13  VENV=folder  EXTRAS=all  TEST_ARGS="-k tokens"  LAB_ARGS="--port 9999"  WHERE=workbook'

lab: $(call ready,$(EXTRAS)) ## set up, lay lessons and labs in workbook/, open JupyterLab on your next day
	@$(python) -m grader lab -- $(LAB_ARGS)

instructor: $(call ready,$(EXTRAS)) ## set up with a gradebook, open JupyterLab with nbgrader's instructor tools
	@mkdir -p grader/classroom
	@$(on_path) $(python) -m nbgrader db assignment list
	@$(start_lab)

test: $(call ready,test $(EXTRAS)) ## run the fifteen checks, then the whole test suite
	@$(python) -m grader selftest
	$(python) -m pytest $(TEST_ARGS)

selftest: $(call ready,$(EXTRAS)) ## run the fifteen checks on the solutions, or on WHERE=workbook
	@$(python) -m grader selftest $(WHERE)

lint: $(call ready,test $(EXTRAS)) ## check style (ruff), types (mypy) and the direction of imports (import-linter)
	$(python) -m ruff check .
	$(python) -m ruff check --isolated --select F821 labs
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(bin)/lint-imports

build: $(call ready,test $(EXTRAS)) ## make the labs again from solutions/ and the library
	$(python) -m grader build

book: $(call ready,book $(EXTRAS)) ## make the web book in build/: pages, a zip of them, and a PDF of each lesson
	$(python) -m sphinx -q -W --keep-going -j 2 -c course/book . build/book
	cd build && $(abspath $(python)) -m zipfile -c book.zip book/
	@command -v $(CHROMIUM) >/dev/null || { echo 'No PDFs: there is no $(CHROMIUM) here.'; exit 0; }; \
	mkdir -p build/pdf; for page in build/book/course/day*.html; do \
	  $(CHROMIUM) --headless --no-sandbox --disable-gpu --no-pdf-header-footer \
	    --print-to-pdf="build/pdf/$$(basename "$$page" .html).pdf" "file://$$PWD/$$page" 2>/dev/null; done
	@echo 'The first page is build/book/course/book/index.html.'

release: $(call ready,$(EXTRAS)) ## pack the labs into a zip archive for people without git
	$(python) -m grader release

hub: $(call ready,hub $(EXTRAS)) $(bin)/configurable-http-proxy ## add JupyterHub and its proxy (needs npm)

constraints: $(python) ## choose and write down a current version of everything (needs network)
	$(pip) 'uv>=0.9,<1'
	$(python) -m uv pip compile --quiet --universal --all-extras --upgrade --no-annotate \
	  --custom-compile-command 'make constraints' --output-file constraints.txt pyproject.toml

clean: ## remove the environment and caches; your workbook and a class's grades stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find course grader tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(python):
	@command -v $(PYTHON) >/dev/null || \
	  { echo 'There is no $(PYTHON) here. Install Python 3.11 or newer, or name yours: make lab PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit("$(PYTHON) is Python %d.%d; the course needs 3.11 or newer. Name another one: make lab PYTHON=python3.12" % v if v < (3, 11) else 0)'
	@echo 'Setting up the environment in $(VENV). The first time this takes a few minutes.'
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.ready: $(python) pyproject.toml constraints.txt
	@$(call install,.)
	@touch $@

$(VENV)/.ready-%: $(python) pyproject.toml constraints.txt
	@$(call install,.[$(subst +,$(comma),$*)])
	@touch $@

pyodide: $(VENV)/lib/node_modules/pyodide ## add Python in WebAssembly, for one test (needs npm)

npm_install = command -v npm >/dev/null || \
  { echo 'This comes with npm: install Node.js 20 or newer first.' >&2; exit 1; }; \
  npm install --silent --global --prefix $(VENV) $1

$(bin)/configurable-http-proxy: $(python)
	@$(call npm_install,configurable-http-proxy@5)
	@touch $@

$(VENV)/lib/node_modules/pyodide: $(python)
	@$(call npm_install,pyodide@314.0.8)
	@touch $@
