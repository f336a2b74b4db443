# make         prepare this checkout (virtual environment, packages, compiled modules, Java)
# make demo    the whole of it in a minute: broker, Spark, fraud pipeline, live panel, console
# make test    lint, types and every test
# make conformance  other people's test suites against our broker; AGAINST=kafka: against Apache Kafka; minutes
# make installs  `pip install` in fresh environments: with a compiler, and with each extra; minutes
# make campaign  an hour of everything at once under faults, every record accounted for; ARGS="--seed 7 --minutes 10"
# make topologies  random pipelines against a model in plain Python; ARGS="--engine spark --seed 7 --minutes 30"
# make bench   against Apache Kafka; QUICK=1 for two minutes
# make docs    the reference, from the code, and the documentation as a site in build/site
VENV := .venv
READY := $(VENV)/.ready
PY := $(VENV)/bin/python

.PHONY: all demo test lint classes conformance installs campaign topologies bench docs lock clean
all: $(READY)

$(READY): pyproject.toml requirements.lock setup.py tools/setup $(wildcard src/millstream/records/*.pyx src/millstream/records/*.pxd src/millstream/records/*/*.pyx)
	@tools/setup

demo: $(READY)
	@$(VENV)/bin/millstream demo $(ARGS)

test: $(READY)
	@tools/test-packages
	@$(MAKE) --no-print-directory -j2 lint classes
	$(PY) -m pytest -n 4 --dist loadgroup --no-loadscope-reorder $(ARGS)

lint: $(READY)
	$(VENV)/bin/ruff check src tests bench tools
	$(VENV)/bin/ruff format --check src tests bench tools
	$(VENV)/bin/mypy

# So that the JVMs that tests start need not read theirs; half a minute, once a checkout.
classes: $(READY)
	@$(PY) -m tests.support.archive_classes

conformance: $(READY)
	$(PY) -m tests.conformance $(if $(AGAINST),--against $(AGAINST)) $(ARGS)

installs: $(READY)
	MILLSTREAM_INSTALLS=1 $(PY) -m pytest tests/install $(ARGS)

campaign: $(READY)
	$(PY) -m tests.campaign $(ARGS)

topologies: $(READY)
	$(PY) -m tests.random_topologies $(ARGS)

bench: $(READY)
	$(PY) -m bench $(if $(QUICK),--quick) $(ARGS)

docs: $(READY)
	$(PY) -m tools.reference docs/reference
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

# After a change of dependencies in pyproject.toml.
lock: $(READY)
	$(PY) -m uv pip compile -q --universal --python-version 3.11 --extra dev --generate-hashes \
	    --no-emit-index-url --custom-compile-command "make lock" pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) build dist
