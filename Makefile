PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint docs clean

demo: $(STAMP)
	$(BIN)/python -m examples.compress_text_classifier --output build/demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The site, in build/site. Fails on a broken link or an undocumented name.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	$(BIN)/zensical build --strict --clean
	COMPEMBED_SITE=build/site $(BIN)/python -m pytest -q tests/test_docs.py -k site

$(STAMP): setup.cfg setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[all,dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build
