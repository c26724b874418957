# Every target that needs Python makes the virtual environment first, and the tests find or install
# Postgres and RabbitMQ by themselves: `make test` is all a fresh Debian machine needs.

.DEFAULT_GOAL := help
.PHONY: help test matrix e2e cluster lint format crds docs chart lock images demo bench venv clean
.DELETE_ON_ERROR:

# Another Python than the one that is there, fetched where it is missing: make test PYTHON=3.14
PYTHON :=
VENV := .venv$(addprefix -,$(PYTHON))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Passed on to the target's command: make test ARGS="tests/unit -x"
ARGS ?=
# The RabbitMQ and Postgres of tests and measurements, such as 4.3,18; without it those of the machine.
ENGINES ?=
ON_ENGINES = path="$(if $(ENGINES),$$($(BIN)/python -m tests.engines $(ENGINES)):,)$$PATH" && PATH="$$path"
# The Kubernetes of the end-to-end tests: one that is there, or one of our own.
CLUSTER ?= auto

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# A file stays with one worker, so that what its tests share is started once; in the order of
# pyproject.toml, where what takes longest comes first, so that both have work until the end.
test: $(STAMP)  ## Run the tests on a private Postgres and RabbitMQ (ARGS="tests/unit -k name" ENGINES=4.3,18 PYTHON=3.14)
	@$(ON_ENGINES) $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

matrix: $(STAMP)  ## Run the tests on every supported RabbitMQ and Postgres (over an hour)
	$(BIN)/python -m tests.engines.matrix $(ARGS)

e2e: $(STAMP)  ## Run the tests that need images and a cluster (CLUSTER=auto|local|kind|KUBECONFIG)
	$(BIN)/pytest tests/e2e -n 2 --dist loadfile --no-loadscope-reorder --cluster=$(CLUSTER) $(ARGS)

cluster: $(STAMP)  ## Start a Kubernetes cluster that stays (CLUSTER=local|kind)
	$(BIN)/python -m tests.cluster up --cluster=$(CLUSTER)

lint: $(STAMP)  ## Check style, types and the layers between the packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

crds: $(STAMP)  ## Write the CustomResourceDefinitions from their types
	$(BIN)/python -m outbox_operator.crds $(ARGS)

docs: $(STAMP)  ## Write the reference of the resources from their types
	$(BIN)/python -m outbox_operator.reference $(ARGS)

chart: $(STAMP)  ## Write what of the Helm chart is made from the code
	$(BIN)/python -m outbox_operator.chart $(ARGS)

lock: $(STAMP)  ## Write the locks of the images from pyproject.toml (ARGS=--upgrade)
	$(BIN)/python images/lock.py $(ARGS)

images: $(STAMP)  ## Build the images and print their sizes
	$(BIN)/python -m tests.images $(ARGS)

demo: $(STAMP)  ## See half a minute of a small shop, and an account of its messages that adds up
	$(BIN)/outbox demo $(ARGS)

bench: $(STAMP)  ## Measure throughput and latency (ARGS=relay ENGINES=4.3,18)
	@$(ON_ENGINES) $(BIN)/python -m bench $(ARGS)

venv: $(STAMP)  ## Make the virtual environment

clean:  ## Remove the virtual environments, caches and build results
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml tools/venv.sh tools/python.sh
	@tools/venv.sh $(VENV) $(PYTHON)
	@touch $@
