import html.parser
import importlib

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.compression import Frontier
from keras_compembed.compression import FrontierPoint
from keras_compembed.reports.html_page import html_page
from keras_compembed.reports.html_report import html_report
from keras_compembed.reports.html_report import model_figures

# Its name in the package is that of the function.
module = importlib.import_module(html_report.__module__)

ROWS = 40
VOID = {"meta"}


class Checker(html.parser.HTMLParser):
    """Raises unless all elements are closed; keeps names and text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.text = [], set(), []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, _ in attributes:
            assert name not in ("src", "href", "onload", "onclick")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def check(page):
    """The text of a page that is whole and fetches nothing."""
    checker = Checker(page)
    assert not {"script", "link", "img", "iframe"} & checker.tags
    assert "url(" not in page and "http://" not in page
    return " ".join("".join(checker.text).split())


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


def words():
    strange = ["", "<script>alert(1)</script>", "\ud83d\0", "x" * 500, "مرحبا"]
    return [*strange, *(f"word{x}" for x in range(ROWS - len(strange)))]


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


def test_page_of_all_there_is(model, original, tmp_path):
    rng = np.random.default_rng(0)
    data = rng.integers(ROWS, size=(20, 5)), rng.integers(3, size=20)
    path = tmp_path / "model.html"
    pairs = [(*words()[row : row + 2], row) for row in range(20, ROWS - 1)]
    html_report(
        model,
        path,
        original,
        words(),
        data,
        frontier(),
        word_tests=[kc.reports.WordPairs(pairs, "<b>pairs")],
    )
    page = path.read_text(encoding="utf-8")
    text = check(page)
    for said in (
        "classifier",
        "One embedding layer, which is compressed.",
        f"words {ROWS} × 8, codes 2 × 4",
        "accuracy, 0.",
        "Nearest neighbours",
        "How evenly codes are used",
        "the largest groups:",
        "codes 2x4 (chosen)",
        "int4 <b>",
        "about the mean",
        "How well vectors agree with people",
        "<b>pairs",
        "<script>alert(1)</script>",
    ):
        assert said in text, said
    assert "<mark><bdi>" in page
    assert "Tables left" not in text
    with pytest.raises(FileExistsError, match="overwrite"):
        html_report(model, path)
    html_report(model, path, overwrite=True)
    assert "(counted)" in text and path.read_text() != page


def test_figures_are_those_of_other_reports(model, original):
    figures = model_figures(model, original, words())
    (row,) = figures.sizes.embeddings
    assert (
        row.fidelity
        == kc.reports.size_report(model, original).embeddings[0].fidelity
    )
    (layer,) = figures.layers
    groups = kc.reports.words_sharing_codes(model.get_layer("words"), words())
    assert layer.codes.num_groups == len(groups)
    assert layer.codes.groups[0][1] == tuple(groups[0][1])
    assert layer.codes.num_sharing == sum(len(own) for _, own in groups)
    assert figures.original_sizes.total_bytes > figures.sizes.total_bytes


def test_place_is_that_of_the_weights_without_a_file(model, original):
    figures = model_figures(model, original, frontier=frontier())
    row = figures.sizes.embeddings[0]
    # One table: its own error.
    error = row.fidelity.centred_relative_squared_error
    np.testing.assert_allclose(figures.place.error, error)
    assert figures.place.is_exported
    layer = model.get_layer("words")
    figures = model_figures(layer, frontier=frontier(metric="accuracy"))
    assert figures.place.file_bytes == row.stored_bytes
    assert figures.place.error is None and not figures.place.is_exported
    assert "its weights in float32" in check(html_page(figures))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed", dtype="mixed_bfloat16")
        options = {"dtype": "mixed_bfloat16"}
        self.towers = {
            "codes": kc.ReversibleCodeEmbedding(
                ROWS, 8, 2, 4, tie_weights=False, name="codes", **options
            ),
            "pooled": kc.CodeEmbedReduce(ROWS, 8, 2, 4, name="pooled"),
            "anchors": kc.ANTEmbedding(ROWS, 8, 4, name="anchors", **options),
            "rounded": kc.QuantizedEmbedding(ROWS, 8, 4, name="rounded"),
            "plain": keras.layers.Embedding(ROWS, 8, name="plain", **options),
        }

    def call(self, ids):
        return [keras.ops.cast(x(ids), "float32") for x in self.towers.values()]


def test_every_layer_has_a_place():
    model = Subclassed()
    model(np.zeros((2, 3), "int32"))
    own = {"rounded": words(), "plain": words()}
    figures = model_figures(model, words=own)
    names = {layer.name: layer.has_words for layer in figures.layers}
    assert names.keys() >= {"codes", "pooled", "anchors", "rounded", "plain"}
    assert names["rounded"] and not names["codes"]
    text = check(html_page(figures))
    assert "4 anchors" in text and "non-zeros" in text
    assert "Tables left as they are" in text
    assert "is below `min_bytes`" in text
    assert "rounded rows" in text and "scales" in text


def test_no_embedding_and_not_built():
    inputs = keras.Input((3,))
    dense = keras.Model(
        inputs, keras.layers.Dense(2)(inputs), name="<title><b>"
    )
    assert "<title><b>The model has" in check(html_page(model_figures(dense)))
    assert "no embedding layers" in check(html_page(model_figures(dense)))
    empty = keras.Sequential([keras.layers.Dense(2)])
    assert "no weights yet" in check(html_page(model_figures(empty)))


def test_many_layers_are_summed_up():
    ids = keras.Input((2,), dtype="int32")
    layers = [
        kc.CodeEmbedding(8 + x, 4, 2, 4, seed=0, name=f"table_{x}")
        for x in range(40)
    ]
    model = keras.Model(ids, [layer(ids) for layer in layers])
    page = html_page(model_figures(model))
    text = check(page)
    assert "40 embedding layers, 40 compressed." in text
    assert "28 smaller layers" in text
    assert "Words of 32 smaller layers are not shown." in text
    assert len(page) < 300_000


def test_bad_input_is_named_before_work(model, original, tmp_path, monkeypatch):
    path = tmp_path / "a.html"

    def fail(*args, **kwargs):
        raise AssertionError("Work was done.")

    monkeypatch.setattr(module, "size_report", fail)
    other = classifier(keras.layers.Embedding(ROWS + 1, 8, name="words"))
    ids, labels = np.zeros((4, 3), "int32"), np.zeros(4, "int32")
    cases = {
        r"must end in '\.html'": dict(path=tmp_path / "a.htm"),
        "`model` must be a Keras": dict(model="model.keras"),
        r"word for each row of a layer, which are \{'words': 40\}. "
        "Received: 3 words": dict(words=["a", "b", "c"]),
        "40 of 'words'. Received: 1 words": dict(words={"words": ["a"]}),
        r"which are \['words'\]. Received: 'x'": dict(words={"x": words()}),
        "`words` must be a list": dict(words="vocabulary.txt"),
        "order of the rows": dict(words=set(words())),
        "`original` must hold a table": dict(original=other),
        r"tuple \(inputs, labels\)": dict(data=ids),
        "must hold arrays": dict(data=([[1, 2]], labels)),
        r"as many labels.*\[4, 3\]": dict(data=(ids, labels[:3])),
        "unless labels are integers": dict(data=(ids, labels + 0.5)),
        "Keras says": dict(data=(ids.astype("str"), labels)),
        "`frontier` must be": dict(frontier=[1, 2]),
    }
    for message, wrong in cases.items():
        arguments = {"model": model, "path": path, **wrong}
        with pytest.raises(ValueError, match=message):
            html_report(**arguments)
    layer = model.get_layer("words")
    with pytest.raises(ValueError, match="must be a Keras model where `data`"):
        html_report(layer, path, data=(ids, labels))
    assert not list(tmp_path.iterdir())


def test_scores_are_those_of_evaluate(model, original):
    rng = np.random.default_rng(0)
    data = rng.integers(ROWS, size=(20, 5)), rng.integers(3, size=(20, 1))
    plain = model_figures(model, original, data=data).scores
    for x in (model, original):
        x.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    found = model_figures(model, original, data=data).scores
    assert found["accuracy"] == pytest.approx(plain["accuracy"])
    assert found["loss"][0] == pytest.approx(
        model.evaluate(*data, verbose=0)[0]
    )
    alone = model_figures(model, data=data).scores
    assert alone["accuracy"] == (found["accuracy"][0], None)


def test_layers_of_classes_must_be_compiled():
    model = keras.Sequential([keras.Input((3,)), kc.CANESoftmax(50)])
    data = np.zeros((4, 3), "float32"), np.zeros(4, "int32")
    with pytest.raises(ValueError, match="outputs are features"):
        model_figures(model, data=data)
