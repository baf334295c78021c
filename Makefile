# The whole project in a few words: setup, audit, opacus, field, test, test-full, bench, papers, notebooks, lint, docs, wheel.
# Many tests start processes, which would compile our sources again and again where no bytecode may be written.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIBRARIES := $(VENV)/.libraries
DOCS := $(VENV)/.docs
EXTRAS := accountants,dev

.PHONY: setup libraries audit opacus field test test-full bench papers notebooks lint style imports types docs wheel clean

setup: $(STAMP)

# uv sets up in seconds; plain pip does the same in a minute or two.
# editable_mode=compat: the root on the path, so that `import audit` finds the package inside tests/ too, not tests/audit.
$(STAMP): pyproject.toml
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv -q --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install -q --python $(BIN)/python --config-settings editable_mode=compat -e '.[$(EXTRAS)]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install -q --config-settings editable_mode=compat -e '.[$(EXTRAS)]'; \
	fi
	@$(BIN)/python -m compileall -q -j 0 audit distinguishers dpsgd_audit guarantees mechanisms
	@touch $@

# PyTorch and Opacus, for the tests that audit them: tried once, skipped where they take too long.
$(LIBRARIES): $(STAMP) tools/install_libraries.py
	$(BIN)/python tools/install_libraries.py
	@touch $@

libraries: $(LIBRARIES)

audit: setup
	$(BIN)/dpsgd-audit run

opacus: $(LIBRARIES)
	$(BIN)/dpsgd-audit run suites/opacus.toml --out opacus-report

# Other people's libraries, each in an environment of its own (about 11 GB in the user's cache), and the tables of docs/field.md.
field: setup
	$(BIN)/dpsgd-audit run suites/field.toml --allow-install --keep-going --out field-report
	$(BIN)/python examples/field/table.py field-report/records.json --write docs/field.md

test: $(LIBRARIES)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long" --durations 25

# Every test, the long ones too; interrupted, the next call goes on where it stopped. SHARD=3/14: the third of fourteen parts.
test-full: $(LIBRARIES)
	$(BIN)/python tools/full_tests.py $(if $(SHARD),--shard $(SHARD))

# One table beside the peers, as Markdown and JSON, and the growth plot: about five minutes on two idle cores.
bench: setup
	$(BIN)/python benchmarks/bench.py

# The five papers, number by number, beside ours.
papers: setup
	$(BIN)/python -m papers

# Runs all notebooks and keeps what they show.
notebooks: $(LIBRARIES)
	$(BIN)/python tools/run_notebooks.py

lint: style imports types

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

imports: setup
	$(BIN)/lint-imports --no-cache

types: setup
	$(BIN)/basedpyright

$(DOCS): $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install -q --python $(BIN)/python --config-settings editable_mode=compat -e '.[$(EXTRAS),docs]'; \
	else \
	  $(BIN)/python -m pip install -q --config-settings editable_mode=compat -e '.[$(EXTRAS),docs]'; \
	fi
	@touch $@

# Pages that open from the folder; a link that leads nowhere is an error.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "Open site/index.html"

# From a clean copy of the last commit, dated by it: one commit and one setuptools make the same bytes everywhere.
wheel: setup
	$(BIN)/python tools/build_wheel.py dist

clean:
	rm -rf $(VENV) audit-report opacus-report field-report bench-report reproduction .pytest_cache .ruff_cache .hypothesis *.egg-info build dist site
