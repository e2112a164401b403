# `make help` lists the targets. Everything else that can be set is in docs/configuration.md.

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
APPS := keys billing gateway
PAGES := $(shell find templates gateway -name '*.html' 2>/dev/null)
# Each process has a database of its own, and Valkey has 16; files go out in their order.
PARALLEL := -n auto --maxprocesses 8 --dist loadgroup --no-loadscope-reorder
# A Python that can make environments; the one in .venv is as good as any, if it still works.
PYTHONS := $(BIN)/python python3.11 python3.12 python3.13 python3.14 python3 python
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# $(call install,FILES): .venv holds what FILES pin.
define install
@for python in $(PYTHON) $(PYTHONS); do \
    if "$$python" -c '$(USABLE)' >/dev/null 2>&1; then \
        exec "$$python" -I gateway/supervisor/install.py $(VENV) $(1); \
    fi; \
done; \
echo 'Farthing needs Python 3.11 or newer with its venv module, and found none on PATH' \
     '(Debian and Ubuntu: apt-get install python3 python3-venv); or name one: make $@ PYTHON=/path/to/python3.' >&2; \
exit 1
endef

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name words; do \
	    printf '  %-12s %s\n' "$$name" "$$words"; done

.PHONY: run
run: ## Start everything on this machine (PORT=8000 WORKERS=1 VAR=var CATALOG=)
	$(call install,requirements.txt)
	@exec $(BIN)/python -m gateway.supervisor

.PHONY: environment
environment:
	$(call install,requirements.txt requirements-dev.txt)

.PHONY: clients
clients: environment
	@mkdir -p var
	@$(BIN)/python -I gateway/supervisor/install.py var/clients tests/clients/requirements-clients.txt

.PHONY: test
test: clients ## Run the tests (REQUIRE="browser node proxies" fails where their programs are missing)
	@missing=$$($(BIN)/python -m tests.programs $(REQUIRE)) || exit 1; \
	$(BIN)/python -m pytest $(PARALLEL) -m "not long$$missing"; code=$$?; \
	[ -z "$$missing" ] || echo "*** LEFT OUT OF THIS RUN, SEE ABOVE:$$missing ***" >&2; \
	exit $$code

.PHONY: test-mlx
test-mlx: environment ## Test against stock mlx_lm.server, in an environment of its own under var/
	@mkdir -p var
	@$(BIN)/python -I gateway/supervisor/install.py var/mlx tests/vendors/requirements-mlx.txt
	@exec $(BIN)/python -m pytest -m long tests/vendors/test_mlx.py

.PHONY: chaos
chaos: environment ## Kill everything at random under traffic, then reckon the books (SECONDS=600 SEED=)
	@exec $(BIN)/python -m tests.chaos

.PHONY: check
check: environment ## All checks that need no running server: format, lint, types, layers, migrations
	@echo 'format' && $(BIN)/ruff format --check --quiet .
	@$(if $(PAGES),$(BIN)/djade --check $(PAGES),:)
	@$(MAKE) lint types layers migrations

.PHONY: lint
lint: environment ## ruff, every rule that is not argued away in pyproject.toml
	@echo 'lint' && $(BIN)/ruff check --quiet .

.PHONY: types
types: environment ## mypy, strict
	@echo 'types' && $(BIN)/mypy $(APPS) manage.py

.PHONY: layers
layers: environment ## import-linter: gateway knows billing knows keys
	@echo 'layers' && $(BIN)/lint-imports --no-logo

.PHONY: migrations
migrations: environment ## Does a model have a change without a migration?
	@echo 'migrations' && $(BIN)/python manage.py makemigrations --check --dry-run

.PHONY: fmt
fmt: environment ## Format Python and templates
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet . || true
	@$(if $(PAGES),$(BIN)/djade $(PAGES) || true,:)

.PHONY: lock
lock: ## Pin requirements*.in into requirements*.txt with hashes (needs uv)
	@command -v uv >/dev/null || { echo 'make lock needs uv on PATH.' >&2; exit 1; }
	@for name in requirements requirements-dev tests/clients/requirements-clients; do \
	    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	        --no-header --no-annotate $$name.in -o $$name.txt || exit 1; done

.PHONY: bench
bench: environment ## The benchmark: ours beside its peers, everything it needs started by itself
	@exec $(BIN)/python -m bench

.PHONY: bench-quick
bench-quick: environment ## The same in under two minutes, ours alone
	@exec $(BIN)/python -m bench --quick

.PHONY: clean
clean: ## Remove .venv and caches; the data under var/ stays
	@rm -rf $(VENV) tests/clients/node/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find $(APPS) tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
