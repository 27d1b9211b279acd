"""The page of `text_page` in a browser."""

import os
import pathlib
import re
import shutil
import tempfile
import threading
import urllib.parse

import browser
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.cli.page_server import page_server
from keras_compembed.reports import text_page

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not browser.find_chromium() or not shutil.which("npm"),
        reason="needs Chromium and npm",
    ),
]

WORDS = "the a cat dog sat ran on mat under rug".split()
LABELS = [f"{word} & <b>" for word in "ant bee cow doe elk fox gnu".split()]
EXAMPLES = ["The cat sat on the mat.", "a dog"]
IS_DONE = "!document.querySelector('main').hasAttribute('aria-busy')"
# What the page shows: the label and the numbers of each bar.
ROWS = """[...document.querySelectorAll('#labels li')].map(row => [
  row.querySelector('.label').textContent,
  ...[...row.querySelectorAll('data')].map(each => Number(each.value))])"""
SIZES = [
    {"width": 320, "height": 640, "deviceScaleFactor": 2, "mobile": True},
    {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False},
]


def make_model(num_classes, seed):
    keras.utils.set_random_seed(seed)
    tokenizer = kc.text.WordTokenizer(WORDS)
    return keras.Sequential(
        [
            keras.Input((), dtype="string"),
            tokenizer,
            keras.layers.Embedding(
                tokenizer.vocabulary_size, 8, embeddings_initializer="normal"
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(num_classes, "softmax"),
        ]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pages in folders of their own."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def models(folder):
    """Two models, on one page in `both`."""
    models = [make_model(len(LABELS), seed) for seed in (0, 1)]
    for name, model in zip("ab", models, strict=True):
        kc.export.export_litert(
            model,
            folder / f"{name}.tflite",
            runtime="mediapipe",
            labels=LABELS,
            verbose=0,
        )
    try:
        text_page(
            folder / "a.tflite",
            folder / "both",
            beside=folder / "b.tflite",
            examples=EXAMPLES,
        )
    except RuntimeError as error:
        pytest.skip(str(error))
    return models


@pytest.fixture(scope="module")
def site(folder, models):
    """The address of the folder."""
    with page_server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium(site):
    with browser.Browser(browser.find_chromium()) as page:
        yield page


def check_rows(chromium, models, text, labels=LABELS):
    """What the page shows for a text is what Keras gives."""
    scores = [model(tf.constant([text]))[0].numpy() for model in models]
    order = np.argsort(-scores[0])
    best = {place for each in scores for place in np.argsort(-each)[:5]}
    rows = chromium.run(ROWS)
    places = [place for place in order if place in best]
    assert [name for name, *_ in rows] == [labels[place] for place in places]
    for place, (_, *shown) in zip(places, rows, strict=True):
        expected = [each[place] for each in scores]
        np.testing.assert_allclose(shown, expected, atol=1e-5)
    return scores


def fill(chromium, text):
    chromium.run("document.getElementById('text').select()")
    chromium.type(text)
    chromium.wait(IS_DONE)


def read(chromium, id):
    return chromium.run(f"document.getElementById('{id}').innerText")


def test_probabilities_are_those_of_keras(chromium, site, models):
    text = "The DOG ran \U0001f600"
    address = f"{site}/both/?text={urllib.parse.quote(text)}"
    chromium.open(address, IS_DONE)
    check_rows(chromium, models, text)
    for text in ("under", "zebras, cat", " ", "\u65e5\u672c", "dog " * 300):
        fill(chromium, text)
        scores = check_rows(chromium, models, text)
        best = [LABELS[np.argmax(each)] for each in scores]
        said = read(chromium, "answer")
        assert all(name in said for name in best)
        assert ("Both answer" in said) == (best[0] == best[1])
    assert chromium.errors == []


def test_text_that_mediapipe_fails_on(chromium, site, models):
    chromium.open(f"{site}/both/", IS_DONE)
    chromium.run(
        """import("./tasks-text/text_bundle.mjs").then(({TextClassifier}) => {
          const {classify} = TextClassifier.prototype;
          TextClassifier.prototype.classify = () => {
            TextClassifier.prototype.classify = classify;
            throw new Error("INTERNAL");
          };
        })"""
    )
    fill(chromium, "dogs")
    said = "MediaPipe gives no answer to this text of 4 characters."
    assert read(chromium, "problem") == said
    assert chromium.run(ROWS) == []
    # It goes on with the next.
    fill(chromium, "cat")
    check_rows(chromium, models, "cat")
    check_rows(chromium, models, "cat")


def test_sizes_and_times(chromium, site, folder):
    chromium.open(f"{site}/both/?text=cat", IS_DONE)
    rows = chromium.run(
        "[...document.querySelectorAll('#files tbody tr')].map(row => "
        "[...row.cells].map(cell => cell.innerText))"
    )
    for name, (shown, size, time) in zip("ab", rows, strict=True):
        bytes = (folder / f"{name}.tflite").stat().st_size
        assert (shown, size) == (f"{name}.tflite", f"{bytes:,}")
        assert 0 < float(time.removesuffix(" ms")) < 100
    assert "median of repeated calls" in read(chromium, "time-note")


def test_examples_by_keyboard(chromium, site, models):
    chromium.open(f"{site}/both/", IS_DONE)
    assert "choose an example" in read(chromium, "answer")
    assert chromium.run(ROWS) == []
    chromium.press("Tab", 9)
    chromium.type("cat")
    for _ in EXAMPLES:
        chromium.press("Tab", 9)
    focused = chromium.run("document.activeElement.innerText")
    assert focused == EXAMPLES[1]
    chromium.press("Enter", 13, "\r")
    chromium.wait(IS_DONE)
    check_rows(chromium, models, EXAMPLES[1])
    assert chromium.run("document.activeElement.innerText") == focused


@pytest.mark.parametrize("size", SIZES, ids=["phone", "desktop"])
def test_nothing_is_wider_than_the_screen(chromium, site, size):
    chromium.send("Emulation.setDeviceMetricsOverride", **size)
    chromium.open(f"{site}/both/?text={'long' * 60}", IS_DONE)
    width = chromium.run("document.documentElement.scrollWidth")
    assert width <= size["width"]
    chromium.send("Emulation.clearDeviceMetricsOverride")


def test_nothing_is_asked_for_or_sent_elsewhere(chromium, site):
    chromium.open(f"{site}/both/?text=cat", IS_DONE)
    assert all(each.startswith(site) for each in chromium.addresses[1:])
    # MediaPipe would do so each minute.
    refused = chromium.run(
        """new Promise(resolve => {
          addEventListener("securitypolicyviolation",
            event => resolve(event.effectiveDirective));
          fetch("https://example.org/").catch(() => null);
        })"""
    )
    assert refused == "connect-src"


def test_one_file_without_labels(chromium, site, folder, models):
    path = folder / "plain.tflite"
    kc.export.export_litert(
        models[0], path, runtime="mediapipe", task="embedder", verbose=0
    )
    text_page(
        path,
        folder / "one",
        title="Cats & dogs",
        tasks_text=folder / "both" / "tasks-text",
    )
    chromium.open(f"{site}/one/", IS_DONE)
    assert chromium.run("document.title") == "Cats & dogs"
    assert read(chromium, "answer") == "Type a text."
    fill(chromium, "cat")
    numbers = [f"Class {place}" for place in range(len(LABELS))]
    (scores,) = check_rows(chromium, models[:1], "cat", numbers)
    best = np.argmax(scores)
    said = f"Class {best}: {100 * scores[best]:.1f}\u00a0%"
    assert read(chromium, "answer") == said
    assert read(chromium, "labels-note") == "5 of 7 labels."


WASM = "tasks-text/wasm/text_wasm_internal"


@pytest.mark.parametrize(
    "file, content, says",
    [
        ("model.tflite", "not a model", "a.tflite cannot be opened"),
        ("beside.tflite", None, "b.tflite cannot be opened.*404"),
        ("tasks-text/text_bundle.mjs", None, "MediaPipe cannot be loaded"),
        (f"{WASM}.js", None, f"There is no .*{WASM}.js"),
        (f"{WASM}.wasm", "no wasm", "cannot be opened"),
    ],
)
def test_what_is_missing_is_said(
    chromium, site, folder, models, file, content, says
):
    page = pathlib.Path(tempfile.mkdtemp(dir=folder)) / "broken"
    shutil.copytree(folder / "both", page, copy_function=os.link)
    (page / file).unlink()
    if content is not None:
        (page / file).write_text(content)
    chromium.open(f"{site}/{page.relative_to(folder)}/", IS_DONE)
    assert re.search(says, read(chromium, "problem"))


def test_opened_as_a_file(chromium, folder, models):
    address = (folder / "both" / "index.html").as_uri()
    chromium.open(address)
    # Once it is clear that no module runs.
    chromium.wait("document.body.innerText.includes('http.server')")
