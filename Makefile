# Everything lives in .venv; a fresh machine needs only python3, pip and make.
PYTHON ?= python3
BIN := .venv/bin
# Two test processes share the cores, and threads of a matrix library that wait for each other would take most of them.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
STAMP := .venv/.installed
RAY_STAMP := .venv/.installed-ray

PEERS := .venv-peers/bin
PEERS_STAMP := .venv-peers/.installed

MUTANTS := .venv-mutants/bin
MUTANTS_STAMP := .venv-mutants/.installed

DOCS_STAMP := .venv/.installed-docs
DIST := .venv-dist

.PHONY: help setup demo test slow ray bench bench-practical peers mutants docs notebooks dist clean

help:
	@echo "make demo   set up, learn CartPole and an exact problem, write a report of each (a minute)"
	@echo "make test   set up, then ruff, mypy and pytest (with doctests)"
	@echo "make slow   statistical tests, and tests that kill workers and drivers"
	@echo "make ray    the same for a Ray cluster (installs Ray, 260 MB; some minutes)"
	@echo "make docs   the documentation as a site, in out/docs (installs Sphinx)"
	@echo "make notebooks  run the notebooks of the documentation anew"
	@echo "make dist   wheel and source archive in dist, tried in an empty environment (.venv-dist)"
	@echo "make bench  benchmark tables (some minutes)"
	@echo "make peers  tests against Stable-Baselines3 and environments of others (.venv-peers, some GB); other packages on the chain and on classic control, in throw-away environments (an hour)"
	@echo "make mutants  mutation testing of the core, in an environment of its own (.venv-mutants; tens of minutes, resumable)"
	@echo "make bench-practical  the preset practical on all problems, against baselines, on classic control, and its sensitivity (some hours)"

setup: $(STAMP)

# The pip that venv seeds may be too old to know --group, so it is upgraded first.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/s4q demo

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow" -n 2

slow: $(STAMP)
	$(BIN)/pytest -m slow -n 2

# Ray is large (260 MB), so only its own tests install it. One at a time: each starts a cluster.
$(RAY_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --group ray
	@touch $(RAY_STAMP)

ray: $(RAY_STAMP)
	$(BIN)/pytest -m slow tests/running/test_ray.py

# Sphinx is needed for the site alone, so nothing else installs it.
$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --group docs
	@touch $(DOCS_STAMP)

docs: $(DOCS_STAMP)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs out/docs
	@echo "out/docs/index.html"

# Runs the notebooks anew and writes them with their outputs.
notebooks: $(DOCS_STAMP)
	$(BIN)/python docs/notebooks/build.py

# The wheel is tried where nothing but its own requirements is installed.
dist: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --group dist
	rm -rf dist $(DIST)
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd $(DIST) && bin/python -I ../tests/smoke_test_of_the_wheel.py
	@ls -l dist

bench: $(STAMP)
	$(BIN)/python -m benchmarks

bench-practical: $(STAMP)
	$(BIN)/python -m benchmarks.practical
	$(BIN)/python -m benchmarks.tabular_baselines
	$(BIN)/python -m benchmarks.control
	$(BIN)/python -m benchmarks.agents
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.control_memory
	$(BIN)/python -m benchmarks.learn_cpu
	$(BIN)/python -m benchmarks.resident
	$(BIN)/python -m benchmarks.sensitivity

# Other libraries are large, so nothing else needs this environment.
$(PEERS_STAMP): peers/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-peers
	$(PEERS)/pip install --quiet --disable-pip-version-check --editable . --requirement peers/requirements.txt
	@touch $(PEERS_STAMP)

# The studies make an environment for each package and throw it away. What they measure goes to out/peers.
peers: $(PEERS_STAMP) $(STAMP)
	$(PEERS)/pytest peers/test_*.py
	$(BIN)/python peers/chain_growth.py --results out/peers/chain_growth.json
	$(BIN)/python peers/control_study.py --results out/peers/control_study.json
	$(BIN)/python peers/control_figures.py --results out/peers/control_study.json --folder out/peers

# The tool that makes the mutants has needs of its own, so nothing else needs this environment.
$(MUTANTS_STAMP): mutants/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-mutants
	$(MUTANTS)/pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(MUTANTS)/pip install --quiet --disable-pip-version-check --editable . --group dev
	$(MUTANTS)/pip install --quiet --disable-pip-version-check --requirement mutants/requirements.txt
	@touch $(MUTANTS_STAMP)

mutants: $(MUTANTS_STAMP)
	$(MUTANTS)/python -m mutants

clean:
	rm -rf .venv .venv-peers .venv-mutants .venv-dist .mutants dist out/docs .mypy_cache .ruff_cache .pytest_cache .hypothesis
