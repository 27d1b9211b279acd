"""The page of `html_report`."""

import html.parser

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.compression.frontier import Frontier
from keras_compembed.compression.frontier import FrontierPoint
from keras_compembed.reports import html_report
from keras_compembed.reports.code_statistics import words_sharing_codes

ROWS = 40
STRANGE = [
    "",
    "<script>alert(1)</script>",
    "\ud83d\0\u2028",
    "x" * 500,
    "مرحبا",
]
WORDS = [*STRANGE, *(f"word{x}" for x in range(ROWS - len(STRANGE)))]


class Checker(html.parser.HTMLParser):
    """Raises unless all elements are closed; keeps them and text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        for name, _ in attributes:
            assert name not in ("src", "href", "onload", "onclick")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    def find(self, tag, **wanted):
        return [
            found
            for name, found in self.elements
            if name == tag and wanted.items() <= found.items()
        ]


@pytest.fixture
def write(tmp_path):
    """Writes a page that is whole and fetches nothing; gives it, and text."""

    def write_page(*args, **options):
        path = tmp_path / "model.html"
        html_report(args[0], path, *args[1:], overwrite=True, **options)
        page = path.read_text(encoding="utf-8")
        checker = Checker(page)
        tags = {tag for tag, _ in checker.elements}
        assert not {"script", "link", "img", "iframe"} & tags
        assert (
            page.count("url(") == page.count("url(#") and "http://" not in page
        )
        return checker, " ".join("".join(checker.text).split())

    return write_page


def classifier(layer, name="classifier"):
    inputs = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.GlobalAveragePooling1D()(layer(inputs))
    outputs = keras.layers.Dense(3, activation="softmax")(x)
    return keras.Model(inputs, outputs, name=name)


@pytest.fixture(scope="module")
def original():
    keras.utils.set_random_seed(0)
    layer = keras.layers.Embedding(ROWS, 8, name="words")
    return classifier(layer, "original")


@pytest.fixture(scope="module")
def model(original):
    table = original.get_layer("words").embeddings.numpy()
    layer = kc.CodeEmbedding.from_table(table, 2, 4, name="words", verbose=0)
    return classifier(layer)


def frontier(**options):
    return Frontier(
        [
            FrontierPoint({"words": "codes 2x4"}, 3000, 0.5, is_chosen=True),
            FrontierPoint({"words": "int4 <b>"}, 5000, 0.1, 0.8),
            FrontierPoint({"words": "int8"}, 8000, 0.2, 0.7),
        ],
        limit_bytes=4000,
        original_bytes=20_000,
        **options,
    )


def test_page_of_all_there_is(model, original, write, tmp_path):
    rng = np.random.default_rng(0)
    data = rng.integers(ROWS, size=(20, 5)), rng.integers(3, size=(20, 1))
    options = {"frontier": frontier()}
    checker, text = write(model, original, WORDS, data, **options)
    accuracies = [
        np.mean(x.predict(data[0], verbose=0).argmax(-1) == data[1][:, 0])
        for x in (model, original)
    ]
    size = kc.size_report(model, original)
    near = size.embeddings[0].fidelity
    layer = model.get_layer("words")
    shared = words_sharing_codes(layer.codes, WORDS, 4)
    for said in (
        "One embedding layer, which is compressed.",
        f"words {ROWS} × 8, codes 2 × 4",
        "{:.3f}accuracy, {:.3f} in the original".format(*accuracies),
        f"{near.relative_squared_error:.3f}",
        f"{sum(len(group) for _, group in shared)}",
        "codes 2x4 (chosen)",
        "int4 <b>",
        "<script>alert(1)</script>",
        "\\ud83d\\x00\\u2028",
        "x…",
    ):
        assert said in text, said
    assert checker.find("mark") and "Tables that are not" not in text
    # Error and score, each in two widths; the limit and the model are shown.
    charts = [x for x in checker.find("svg") if "chart" in x["class"]]
    assert len(charts) == 4
    assert text.count("limit") == text.count("this model") - 1 == 4
    # A share of each subcode, of each codebook.
    assert checker.find("svg", viewbox="0 0 2 4")
    with pytest.raises(FileExistsError, match="overwrite"):
        html_report(model, tmp_path / "model.html")
    # If they are compiled, all figures of `evaluate` are shown.
    for x in (model, original):
        x.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    losses = [x.evaluate(*data, verbose=0)[0] for x in (model, original)]
    _, text = write(model, original, data=data)
    assert "{:.3f}loss, {:.3f} in".format(*losses) in text


def test_every_layer_has_a_place(write):
    ids = keras.Input((3,), dtype="int32")
    layers = [
        kc.CodeEmbedding(ROWS, 8, 2, 4, combiner="mean", name="pooled"),
        kc.ANTEmbedding(ROWS, 8, 4, name="anchors"),
        kc.QuantizedEmbedding(ROWS, 8, 4, name="rounded"),
        keras.layers.Embedding(ROWS, 8, name="plain"),
    ]
    model = keras.Model(ids, [layer(ids) for layer in layers])
    _, text = write(model, words={"rounded": WORDS, "plain": WORDS})
    for said in (
        *(f"Layer “{layer.name}”" for layer in layers),
        "4 anchors",
        "Tables that are not compressed",
        "is below 65.5 kB",
        "quantized rows",
    ):
        assert said in text, said


def test_models_of_no_layers_and_of_many(write):
    inputs = keras.Input((3,))
    dense = keras.layers.Dense(2)(inputs)
    dense = keras.Model(inputs, dense, name="<title><b>")
    _, text = write(dense)
    assert "<title><b> The model has no embedding layers" in text
    _, text = write(keras.Sequential([keras.layers.Dense(2)]))
    assert "no weights yet" in text
    # Many layers are summed up.
    ids = keras.Input((2,), dtype="int32")
    layers = [kc.CodeEmbedding(8 + x, 4, 2, 4) for x in range(40)]
    _, text = write(keras.Model(ids, [layer(ids) for layer in layers]))
    assert "40 embedding layers, 40 compressed." in text
    assert "28 smaller layers" in text
    assert "Words of 32 smaller layers are not shown." in text
    # Weights stand for what has no file.
    _, text = write(layers[0], frontier=frontier(metric="accuracy"))
    assert "its weights in float32" in text


def test_what_is_refused(model, original, tmp_path):
    other = classifier(keras.layers.Embedding(ROWS - 1, 8, name="words"))
    classes = keras.Sequential([keras.Input((3,)), kc.CANESoftmax(50)])
    layer = model.get_layer("words")
    ids, labels = np.zeros((4, 3), "int32"), np.zeros(4, "int32")
    strings = ids.astype("str"), labels
    for argument, received, wrong in (
        ("path", "a.htm", dict(path=tmp_path / "a.htm")),
        ("model", "model.keras", dict(model="model.keras")),
        ("words", "1 words", dict(words={"words": ["a"]})),
        ("words", "x", dict(words={"x": WORDS})),
        ("words", "set", dict(words=set(WORDS))),
        ("original", f"({ROWS - 1}, 8)", dict(original=other)),
        ("data", "ndarray", dict(data=ids)),
        ("data", "3, 4", dict(data=(ids, labels[:3]))),
        ("data", "integer labels", dict(model=other, data=(ids, labels + 0.5))),
        ("data", "with this error", dict(data=strings)),
        ("frontier", "[1, 2]", dict(frontier=[1, 2])),
        ("model", "words", dict(model=layer, data=(ids, labels))),
        ("data", "be compiled", dict(model=classes, data=(ids * 1.0, labels))),
    ):
        arguments = {"model": model, "path": tmp_path / "a.html", **wrong}
        with refused(argument, received):
            html_report(**arguments)
    assert not list(tmp_path.iterdir())
