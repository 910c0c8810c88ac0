# Everything a person needs, on a machine with Python 3.11+ and make. Paths are relative, so a space in the folder's name is fine.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)
PY := .venv/bin/python
# Two processes, the long ones first; tests/conftest.py says what stays together.
ORDER := tests/elastic tests/e2e tests/browser tests/crash tests/claims tests/api tests/contract tests/migrations tests/deploy tests/unit tests/architecture
SPREAD := --numprocesses 2 --dist loadscope --no-loadscope-reorder
SUITES := $(ORDER) $(filter-out $(ORDER) tests/fakes tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))
BENCHMARKS := engines checkpoints
DASHBOARD := $(shell find api/dashboard -type f -not -path '*/node_modules/*' -not -path '*/dist/*' 2>/dev/null)
export OMP_NUM_THREADS ?= 1

# A copied or moved folder has scripts that point elsewhere: the stamp holds the path it was made for.
ifneq "$(wildcard .venv/.installed)" ""
ifneq "$(shell cat .venv/.installed)" "$(CURDIR)"
$(shell rm -rf .venv)
endif
endif

.PHONY: help install demo serve test soak check bench peers dashboard format
.PHONY: check-format check-lint check-types check-imports check-tests

help:
	@echo "make demo     train a small GPT, resize it 2 -> 3 -> 2 while it trains (KEEP=1 leaves the service running)"
	@echo "make serve    the service on 127.0.0.1:8000"
	@echo "make test     the whole test suite"
	@echo "make soak     random faults and resizes for hours (MINUTES=60 SEED=1)"
	@echo "make check    format, lint, types, import contracts, unit tests (under a minute)"
	@echo "make peers    install the peers that \`make bench\` can compare with (DeepSpeed), in an environment of their own"
	@echo "make bench    the benchmarks, side by side with the peers they name"

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Elastane needs Python 3.11 or newer with its venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt .ci/install | .venv/bin/python
	@.ci/install workers
	@printf '%s' "$(CURDIR)" > $@

.venv/.installed-dev: pyproject.toml constraints.txt .ci/install .venv/.installed
	@.ci/install dev
	@touch $@

install: .venv/.installed

# The page is worth having and never a condition: without Node the service says so on `/` and works.
.venv/.dashboard: $(DASHBOARD) .ci/npm | .venv/.installed
	@if test -f api/dashboard/package.json && .ci/npm ci && .ci/npm run build; then touch $@; \
	else echo "No dashboard built (no Node to be had, or its build failed): the service runs without it."; fi

dashboard: .venv/.dashboard

demo: .venv/.installed .venv/.dashboard
	@$(PY) -m examples.demo $(if $(KEEP),--keep)

serve: .venv/.installed .venv/.dashboard
	@exec $(PY) -m api.cli.main serve

check: .venv/.installed-dev
	@$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync=target check-types check-format check-lint check-imports check-tests

check-format:
	@$(PY) -m ruff format --check --quiet . || { echo "run: make format" >&2; exit 1; }

check-lint:
	@$(PY) -m ruff check --quiet .

check-types:
	@$(PY) -m mypy

check-imports:
	@$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' > .venv/imports.log || { cat .venv/imports.log; exit 1; }

check-tests:
	@$(PY) -m pytest tests/architecture tests/unit

format: .venv/.installed-dev
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix --quiet .

# The dashboard's tests first: the summary of pytest closes the output.
test: .venv/.installed-dev .venv/.dashboard
	@status=0; \
	if test -f .venv/.dashboard; then .ci/npm run check && .ci/npm test; else echo "The dashboard's tests need Node: not run."; fi || status=1; \
	$(PY) -m pytest $(SPREAD) $(SUITES) || status=1; exit $$status

soak: .venv/.installed-dev
	@$(PY) -m tests.elastic.soak --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1)

# DeepSpeed, for the comparison alone, in an environment of its own on top of ours: nothing of ours may depend on it.
peers: .venv/.installed-dev
	@$(PY) -m venv --without-pip benchmarks/.venv
	@$(PY) -c 'import site; print(site.getsitepackages()[0])' > "$$(echo benchmarks/.venv/lib/python3*/site-packages)/ours.pth"
	@DS_BUILD_OPS=0 $(PY) -m pip --python benchmarks/.venv/bin/python install -q -c constraints.txt 'deepspeed>=0.19,<0.20'

bench: .venv/.installed-dev
	@for name in $(BENCHMARKS); do $(PY) -m "benchmarks.$$name" || exit 1; done
