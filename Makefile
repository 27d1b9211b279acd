PYTHON ?= python3
# Another Python has its own environment, such as .venv-3.12.1.
ifndef VENV
ifeq ($(PYTHON),python3)
VENV := .venv
else
VENV := .venv-$(shell $(PYTHON) -c "import platform as p; print(p.python_version())")
endif
endif
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Installed without dependencies: it requires absl-py 1, but mediapipe requires 2.
# It runs with absl-py 2. The other packages it needs are in the extra `dev`.
TFMOT := "tensorflow-model-optimization>=0.8.1"
PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# PYTHON if given, else the oldest Python found, from 3.10. pyenv's folders come
# first, because its shims in PATH may not work.
ifeq ($(origin PYTHON),file)
OLDEST = $(shell PATH="$$(printf %s: ~/.pyenv/versions/*/bin)$$PATH"; \
	for minor in 10 11 12 13; do command -v python3.$$minor && exit; done; \
	command -v $(PYTHON))
else
OLDEST = $(PYTHON)
endif

.PHONY: demo test test-slow test-oldest lint docs clean

demo: $(STAMP)
	$(BIN)/python -m examples.compress_text_classifier --output build/demo $(ARGS)

# Tests marked `apart` leave much in memory, so they run in separate workers.
# Exit status 5: ARGS selected none of them.
test: $(STAMP)
	$(BIN)/python $(PYTEST) -m "not slow and not apart" $(ARGS)
	$(BIN)/python $(PYTEST) -m "apart and not slow" $(ARGS) || [ $$? -eq 5 ]

test-slow: $(STAMP)
	$(BIN)/python $(PYTEST) -m slow $(ARGS)

# Tests with the lowest versions in setup.cfg, in a fresh environment.
test-oldest:
	$(OLDEST) -m venv --clear .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet uv
	.venv-oldest/bin/uv pip install --quiet --python .venv-oldest \
		--resolution lowest-direct -e ".[tune,test]"
	.venv-oldest/bin/python $(PYTEST) $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Builds the site in build/site. Fails on broken links and unknown names.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	$(BIN)/zensical build --strict --clean

$(STAMP): setup.cfg setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[all,dev]"
	$(BIN)/python -m pip install --quiet --no-deps $(TFMOT)
	touch $(STAMP)

clean:
	rm -rf $(VENV) .venv-* build
