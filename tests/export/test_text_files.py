"""Files for texts: what runs them, and what they hold beside the graph."""

import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from export_models import write

import keras_compembed as kc
from keras_compembed.export import LiteRTModel
from keras_compembed.export import MediaPipeModel
from keras_compembed.export import inspect_litert

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")

WORDS = ["the", "cat", "sat", "mat", "été"]
LABELS = ["calm", "glad", "sad"]
TEXTS = ["The cat sat.", "", "a mat, the mat", "été \U0001f600 \u65e5\u672c"]
RUNTIMES = "litert", "tf-text", "mediapipe"


def word_tokenizer(**kwargs):
    return kc.text.WordTokenizer(WORDS, **kwargs)


def vectorization(**kwargs):
    return keras.layers.TextVectorization(vocabulary=WORDS, **kwargs)


def text_model(tokenizer=None, *layers, embedding=None):
    """From a text to three probabilities."""
    tokenizer = tokenizer or word_tokenizer()
    return keras.Sequential(
        [
            keras.Input((), dtype="string"),
            tokenizer,
            embedding or keras.layers.Embedding(7, 4, name="words"),
            *(layers or [keras.layers.GlobalAveragePooling1D()]),
            keras.layers.Dense(3, "softmax", name="moods"),
        ]
    )


def of_texts(model, texts=TEXTS):
    """What a model gives for texts one by one, without padding."""
    return np.concatenate([model(tf.constant([text])) for text in texts])


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return text_model(embedding=kc.QuantizedEmbedding(7, 8, name="words"))


@pytest.fixture(scope="module")
def files(model, tmp_path_factory):
    """A file for each runtime, with the `LiteRTExport` of it."""
    folder = tmp_path_factory.mktemp("files")
    metadata = dict(
        name="Moods",
        description="Tells moods\nof texts.",
        version="1.2",
        author="Ada é",
        license="Apache-2.0",
    )
    return {
        runtime: write(
            model,
            folder / f"{runtime}.tflite",
            runtime=runtime,
            labels=LABELS,
            metadata=metadata,
        )
        for runtime in RUNTIMES
    }


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_files_say_what_they_are(runtime, files):
    made = files[runtime]
    assert made.max_error < 1e-5 and made.runtime == runtime
    assert made.labels == {"output_0": tuple(LABELS)}
    file = inspect_litert(made.path)
    assert file.labels == made.labels
    assert file.file_metadata.author == "Ada é"
    assert file.to_dict()["file_metadata"]["version"] == "1.2"
    printed = str(file)
    assert "description  Tells moods of texts." in printed
    assert "Labels of output_0 (3):\n  calm, glad, sad\n" in printed
    said = {"tf-text": "in tensorflow-text", "mediapipe": "MediaPipe Tasks has"}
    assert said.get(runtime, "") in printed
    with zipfile.ZipFile(made.path) as archive:
        assert archive.read("labels.txt") == b"calm\nglad\nsad\n"
        words = ["vocabulary.txt"] if runtime == "litert" else []
        assert archive.namelist() == [*words, "labels.txt"]
        if words:
            lines = archive.read("vocabulary.txt").decode().split("\n")
            assert lines == ["", "[UNK]", *WORDS, ""]


def test_files_answer_as_keras(model, files):
    outside = of_texts(model)
    run = LiteRTModel(files["tf-text"].path)
    with MediaPipeModel(files["mediapipe"].path) as moods:
        for predict in (run.predict, moods.predict):
            for texts in (TEXTS, tf.constant(TEXTS)):
                np.testing.assert_allclose(predict(texts), outside, atol=1e-6)
        assert moods.labels == {"output_0": tuple(LABELS)}
        np.testing.assert_allclose(moods(TEXTS[0]), outside[0], atol=1e-6)
    # Bytes need not be UTF-8, and a NUL ends no text.
    odd = [b"\xff\xfe the", b"the\0cat", b"\xe2\x82"]
    got = run.predict(odd)
    np.testing.assert_allclose(got, of_texts(model, odd), atol=1e-6)
    np.testing.assert_allclose(run("the cat"), of_texts(model, ["the cat"]))


def test_an_unmodified_classifier_names_categories(files):
    text = pytest.importorskip("mediapipe.tasks.python.text")
    path = files["mediapipe"].path
    with text.TextClassifier.create_from_model_path(path) as classifier:
        (head,) = classifier.classify("The cat sat.").classifications
    assert {each.category_name for each in head.categories} == set(LABELS)
    assert head.head_name == "output_0"


def test_what_is_no_text(files):
    with MediaPipeModel(files["mediapipe"].path) as moods:
        for text, said in {
            3: "must be a string",
            "a\0b": "NUL",
            b"\xff": "UTF-8",
        }.items():
            with pytest.raises(ValueError, match=said):
                moods(text)
    with pytest.raises(ValueError, match="must be open"):
        moods("the cat")
    run = LiteRTModel(files["tf-text"].path)
    for inputs, said in (
        (["a", "b"], r"shape \(1,\)"),
        ([None], "strings.*NoneType"),
        ([3], "strings.*numbers"),
        (np.zeros((0,), object), "no empty axis"),
        (["\ud800"], "UTF-8"),
    ):
        with pytest.raises(ValueError, match=said):
            run(inputs)
    # Files opened by the wrong object.
    with pytest.raises(ValueError, match="runtime='tf-text'"):
        LiteRTModel(files["mediapipe"].path)
    with pytest.raises(ValueError, match="runtime='mediapipe'"):
        MediaPipeModel(files["tf-text"].path)


def test_nested_models(path):
    # By itself Keras makes no id of an empty text, and NaN of its mean.
    inner = keras.Sequential([keras.Input((), dtype="string"), vectorization()])
    model = text_model(inner)
    made = write(model, path, runtime="mediapipe", labels=LABELS)
    assert made.max_error < 1e-5
    answer = MediaPipeModel(path)("the cat")
    expected = model(tf.constant([["the cat"]]))
    np.testing.assert_allclose(answer, expected[0], atol=1e-6)


def test_ids_of_a_vectorization_are_int32_in_a_file(path):
    model = text_model(vectorization())
    write(model, path, sample_inputs=["the cat", "mat"])
    file = inspect_litert(path)
    assert file.inputs[0].dtype == "int32" and "CAST" not in file.ops
    got = LiteRTModel(path)(model.layers[0](["the cat"]))
    np.testing.assert_allclose(got, of_texts(model, ["the cat"]), atol=1e-6)
    assert model.layers[0].output.dtype == "int64"


def test_warnings(path):
    model = text_model()
    model.layers[-1].activation = keras.activations.linear
    with pytest.warns(UserWarning, match="below 0.*'output_0'"):
        write(model, path, runtime="mediapipe", labels=LABELS)
    lines = keras.layers.TextVectorization(vocabulary=["a\nb"], split=None)
    with pytest.warns(UserWarning, match="vocabulary"):
        made = write(text_model(lines), path)
    assert made.text_bytes == 0 and not zipfile.is_zipfile(path)
    masked = keras.layers.Embedding(7, 4, mask_zero=True)
    model = text_model(vectorization(), embedding=masked)
    with pytest.warns(UserWarning, match="NaN for 2 of .* such as ''"):
        write(model, path, runtime="tf-text")
    # What the message says.
    remedied = text_model(None, *model.layers[2:-1], embedding=masked)
    write(remedied, path, runtime="tf-text")
    masked.embeddings.assign(masked.embeddings * np.nan)
    with pytest.warns(UserWarning, match="NaN for all"):
        write(model, path, runtime="tf-text")


@pytest.mark.parametrize(
    ("module", "extra"), [("tensorflow_text", "text"), ("mediapipe",) * 2]
)
def test_extras_are_named(module, extra, path, monkeypatch):
    model = text_model(vectorization())
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"\[{extra}\]"):
        write(model, path, runtime="mediapipe", labels=LABELS)


def test_classes_of_a_layer_of_classes(path):
    """Probabilities for the classifier, features for the embedder."""
    body = text_model().layers[:-1]
    model, many = (
        keras.Sequential(
            [keras.Input((), dtype="string"), *body, kc.CANESoftmax(size)]
        )
        for size in (3, 2001)
    )
    options = {"runtime": "mediapipe"}
    made = write(model, path, labels=LABELS, **options)
    assert made.labels == {"probabilities": tuple(LABELS)}
    predictor = kc.top_k_model(model, None)
    expected = [predictor(tf.constant([x]))["probabilities"] for x in TEXTS]
    with MediaPipeModel(path) as run:
        got = run.predict(TEXTS)
    np.testing.assert_allclose(got, np.concatenate(expected), atol=1e-6)
    made = write(model, path, task="embedder", **options)
    assert list(made.answers.values()) == ["features, not classes"]
    with MediaPipeModel(path) as run:
        got = run.predict(TEXTS)
    np.testing.assert_allclose(got, of_texts(model), atol=1e-6)
    with pytest.raises(ValueError, match="output='ids', dtype='int32'"):
        write(many, path, labels=LABELS, **options)


def test_labels_of_models_that_take_numbers(path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    plain = write(model, path)
    assert plain.labels == {} and not zipfile.is_zipfile(path)
    made = write(model, path, labels=("no", "yes"))
    assert inspect_litert(path).labels == {"output_0": ("no", "yes")}
    assert made.text_bytes == 0 and zipfile.is_zipfile(path)
    # The file runs with the archive behind it.
    assert LiteRTModel(path)(np.ones((1, 4))).shape == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": None}, "no labels for the 3 classes.*'output_0'"),
        ({"labels": ["a"]}, "the 3 classes.*number=1"),
        ({"labels": "abc"}, "list of strings.*'str'"),
        ({"labels": [*"abcd"]}, "the 3 classes.*number=4"),
        ({"labels": ["a", 2, "c"]}, "label=2"),
        ({"labels": [*"aba"]}, "label='a', place=2"),
        ({"labels": ["a", "b", "c\n"]}, r"'c\\n'"),
        ({"labels": ["a", "", "c"]}, "label=''"),
        ({"labels": {"x": LABELS}}, r"'output_0'.*'x'"),
        ({"task": "embedder"}, "`labels`"),
        ({"runtime": "tf-text", "task": "embedder"}, "`task`"),
        ({"input_signature": tf.TensorSpec((1, 9), "int32")}, "one text"),
        ({"sample_inputs": [[1, 2]]}, "texts"),
        ({"sample_inputs": ["a\0b"]}, "NUL"),
        ({"min_runtime": "2.1"}, "`min_runtime`"),
    ],
)
def test_what_is_refused(options, message, model, path):
    options = {"runtime": "mediapipe", "labels": LABELS, **options}
    with pytest.raises(ValueError, match=message):
        write(model, path, **options)
    assert not list(path.parent.iterdir())


def of_ids(number):
    """A model of so many texts."""
    inputs = [keras.Input((), dtype="string") for _ in range(number)]
    tokenizer = word_tokenizer(sequence_length=4)
    ids = sum(tokenizer(text) for text in inputs)
    return keras.Model(inputs, keras.layers.Embedding(14, 3)(ids))


def ids_out():
    text = keras.Input((), dtype="string")
    return keras.Model(text, word_tokenizer()(text))


REFUSED = {
    "numbers": (
        lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]),
        "tf-text",
        "takes numbers",
    ),
    "two texts": (lambda: of_ids(2), "litert", "one input.*Received: inputs="),
    "ids out": (ids_out, "tf-text", "'word_tokenizer"),
    "ngrams": (
        lambda: text_model(vectorization(ngrams=2)),
        "tf-text",
        "ngrams=2.*runtime='litert'",
    ),
    "small table": (
        lambda: text_model(embedding=keras.layers.Embedding(5, 4)),
        "litert",
        "tokens=7, input_dim=5",
    ),
    "loop": (
        lambda: text_model(None, keras.layers.LSTM(3, name="loop")),
        "mediapipe",
        "`sequence_length`.*'loop'",
    ),
    "tokens": (
        lambda: text_model(
            word_tokenizer(sequence_length=4), keras.layers.Dropout(0.1)
        ),
        "mediapipe",
        r"'output_0'.*shape=\(None, 4, 3\)",
    ),
    "word pieces": (
        lambda: text_model(kc.text.WordPieceTokenizer(["[PAD]", "[UNK]", "a"])),
        "mediapipe",
        "`WordPieceTokenizer`.*runtime='tf-text'",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_are_refused(kind, path):
    make, runtime, message = REFUSED[kind]
    labels = LABELS if runtime == "mediapipe" else None
    with pytest.raises(ValueError, match=message):
        write(make(), path, runtime=runtime, labels=labels)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("value", [" ", 3, "\ud800"])
def test_metadata_that_says_nothing(value):
    with refused("license"):
        kc.export.Target(metadata={"license": value})


class OtherwiseInFiles(keras.layers.Layer):
    def call(self, inputs):
        return inputs if tf.executing_eagerly() else -inputs


def test_another_answer_is_caught(path):
    pool = keras.layers.GlobalAveragePooling1D()
    model = text_model(None, pool, OtherwiseInFiles())
    with pytest.raises(RuntimeError, match="equal those of Keras"):
        write(model, path, runtime="tf-text")
    assert not list(path.parent.iterdir())


def test_several_outputs_have_labels_of_their_own(path):
    text = keras.Input((1,), dtype="string", name="review")
    rows = keras.layers.Embedding(7, 4, mask_zero=True)(word_tokenizer()(text))
    mean = keras.layers.GlobalAveragePooling1D()(rows)
    model = keras.Model(
        text,
        {
            "stars": keras.layers.Dense(2, "softmax")(mean),
            "mood": keras.layers.Dense(3, "softmax")(mean),
        },
    )
    labels = {"mood": LABELS, "stars": ["few", "many"]}
    made = write(model, path, runtime="mediapipe", labels=labels)
    answer = MediaPipeModel(path)("the cat")
    expected = model(tf.constant([["the cat"]]))
    assert list(made.labels) == list(answer) == ["mood", "stars"]
    for name in answer:
        np.testing.assert_allclose(answer[name], expected[name][0], atol=1e-6)
    names = zipfile.ZipFile(path).namelist()
    assert names == ["mood_labels.txt", "stars_labels.txt"]


def test_vectors_for_the_embedder(path):
    # As `compress_model` makes them. Codebooks are too large for products.
    mean = kc.Combiner("mean", float("nan"))
    table = kc.CodeEmbedding(7, 4, 1, 257, combiner=mean, mask_zero=True)
    model = text_model(None, keras.layers.Identity(), embedding=table)
    model = keras.Sequential(model.layers[:-1])
    model(tf.constant(["the"]))
    options = {"runtime": "mediapipe", "task": "embedder"}
    options["min_runtime"] = "2.18"
    with refused("labels"):
        write(model, path, labels=["a"], **options)
    write(model, path, **options)
    with MediaPipeModel(path) as run:
        got = run.predict(TEXTS)
    np.testing.assert_allclose(got, of_texts(model), atol=1e-6)
    assert not zipfile.is_zipfile(path)
