"""Files for texts: what runs them, and what they hold beside the graph."""

import functools
import gc
import io
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.export import mediapipe_model
from keras_compembed.export.file_metadata import FileMetadata
from keras_compembed.export.mediapipe_model import MediaPipeModel

pytest.importorskip("tensorflow_text")

WORDS = ["the", "cat", "sat", "mat", "été"]
LABELS = ["calm", "glad", "sad"]
TEXTS = ["The cat sat.", "", "a mat, the mat", "été \U0001f600 \u65e5\u672c"]


def text_model(tokenizer=None, *layers, shape=(), rows=None):
    """From a text to three probabilities."""
    if tokenizer is None:
        tokenizer = kc.text.WordTokenizer(WORDS)
    rows = rows or len(tokenizer.get_vocabulary())
    layers = layers or [keras.layers.GlobalAveragePooling1D()]
    return keras.Sequential(
        [
            keras.Input(shape, dtype="string"),
            tokenizer,
            keras.layers.Embedding(rows, 4, name="words"),
            *layers,
            keras.layers.Dense(3, "softmax", name="moods"),
        ]
    )


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    tokenizer = kc.text.WordTokenizer(WORDS)
    return keras.Sequential(
        [
            keras.Input((), dtype="string"),
            tokenizer,
            kc.QuantizedEmbedding(tokenizer.vocabulary_size, 8, name="words"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3, "softmax", name="moods"),
        ]
    )


@pytest.fixture(scope="module")
def files(model, tmp_path_factory):
    """A file for each runtime, with the `LiteRTExport` of it."""
    pytest.importorskip("mediapipe")
    folder = tmp_path_factory.mktemp("files")
    return {
        runtime: kc.export.export_litert(
            model,
            folder / f"{runtime}.tflite",
            runtime=runtime,
            labels=LABELS,
            metadata=FileMetadata(
                name="Moods",
                description="Tells moods\nof texts.",
                version="1.2",
                author="Ada é",
                license="Apache-2.0",
            ),
            verbose=0,
        )
        for runtime in ("litert", "tf-text", "mediapipe")
    }


def test_files_say_what_they_are(files):
    for runtime, export in files.items():
        assert export.max_error < 1e-5 and export.runtime == runtime
        assert export.labels == {"output_0": tuple(LABELS)}
        file = kc.export.inspect_litert(export.path)
        assert file.labels == export.labels
        assert file.file_metadata.author == "Ada é"
        assert file.to_dict()["file_metadata"]["version"] == "1.2"
        printed = str(file)
        assert "description  Tells moods of texts." in printed
        assert "Labels of output_0 (3):\n  calm, glad, sad\n" in printed
        assert f"{export.text_bytes:,} bytes of " in str(export)
        assert "3 labels" in str(export)
        with zipfile.ZipFile(export.path) as archive:
            assert archive.read("labels.txt") == b"calm\nglad\nsad\n"
            words = ["vocabulary.txt"] if runtime == "litert" else []
            assert archive.namelist() == [*words, "labels.txt"]
    assert "MediaPipe Tasks has these CUSTOM ops" in printed
    tf_text = str(kc.export.inspect_litert(files["tf-text"].path))
    assert "those of tensorflow-text: an app must add them" in tf_text
    with zipfile.ZipFile(files["litert"].path) as archive:
        lines = archive.read("vocabulary.txt").decode().split("\n")
    assert lines == ["", "[UNK]", *WORDS, ""]


def test_metadata_is_what_mediapipe_reads(files):
    schema = pytest.importorskip(
        "mediapipe.tasks.metadata.metadata_schema_py_generated"
    )
    from keras_compembed.export import flatbuffer

    for runtime, export in files.items():
        with open(export.path, "rb") as file:
            model = flatbuffer.read_model(file.read())
        (content,) = (
            bytes(model.buffers[entry.buffer].data)
            for entry in model.metadata
            if entry.name == b"TFLITE_METADATA"
        )
        assert schema.ModelMetadata.ModelMetadataBufferHasIdentifier(content, 0)
        found = schema.ModelMetadataT.InitFromObj(
            schema.ModelMetadata.GetRootAs(content, 0)
        )
        assert found.name == b"Moods" and found.license == b"Apache-2.0"
        (graph,) = found.subgraphMetadata
        (tensor,) = graph.inputTensorMetadata
        (output,) = graph.outputTensorMetadata
        (labels,) = output.associatedFiles
        assert output.name == b"output_0" and labels.name == b"labels.txt"
        assert labels.type == schema.AssociatedFileType.TENSOR_AXIS_LABELS
        parser = b"1.0.0"
        if runtime == "litert":
            parser = b"1.0.1"
            (words,) = tensor.associatedFiles
            assert words.type == schema.AssociatedFileType.VOCABULARY
        assert found.minParserVersion == parser


def test_files_answer_as_keras(model, files):
    expected = model.predict(tf.constant(TEXTS), verbose=0)
    outside = np.concatenate([model(tf.constant([text])) for text in TEXTS])
    np.testing.assert_allclose(expected, outside, atol=0.2)
    run = kc.export.LiteRTModel(files["tf-text"].path)
    with kc.export.MediaPipeModel(files["mediapipe"].path) as moods:
        for predict in (run.predict, moods.predict):
            for texts in (TEXTS, np.array(TEXTS), tf.constant(TEXTS)):
                np.testing.assert_allclose(predict(texts), outside, atol=1e-6)
        assert moods.labels == {"output_0": tuple(LABELS)}
        np.testing.assert_allclose(moods(TEXTS[0]), outside[0], atol=1e-6)
    # Bytes need not be UTF-8, and a NUL ends no text.
    odd = [b"\xff\xfe the", b"the\0cat", b"\xe2\x82"]
    np.testing.assert_allclose(
        run.predict(odd),
        np.concatenate([model(tf.constant([text])) for text in odd]),
        atol=1e-6,
    )
    np.testing.assert_allclose(run("the cat"), model(tf.constant(["the cat"])))


def test_an_unmodified_classifier_names_categories(files):
    text = pytest.importorskip("mediapipe.tasks.python.text")
    path = files["mediapipe"].path
    with text.TextClassifier.create_from_model_path(path) as classifier:
        (head,) = classifier.classify("The cat sat.").classifications
    assert {each.category_name for each in head.categories} == set(LABELS)
    assert head.head_name == "output_0"


@pytest.mark.parametrize(
    "text, message",
    [
        (3, "must be a string. Received: .* int"),
        ("a\0b", "must hold no NUL"),
        (b"\xff", "must be valid UTF-8"),
        ("\ud800", "must be text that UTF-8 can hold"),
    ],
)
def test_what_mediapipe_takes_for_no_text(text, message, files):
    with MediaPipeModel(files["mediapipe"].path) as moods:
        with pytest.raises(ValueError, match=message):
            moods(text)
    with pytest.raises(ValueError, match="Received: a closed one"):
        moods("the cat")


def test_an_object_that_cannot_be_closed_is_not_deleted():
    deleted = []

    class Task:
        def close(self):
            raise RuntimeError("cannot schedule new futures after shutdown")

        def __del__(self):
            deleted.append(self)

    mediapipe_model._close(Task())
    gc.collect()
    assert not deleted


def test_files_opened_by_the_wrong_object(files):
    with pytest.raises(ValueError, match="export with runtime='tf-text'"):
        kc.export.LiteRTModel(files["mediapipe"].path)
    with pytest.raises(ValueError, match="export with runtime='mediapipe'"):
        kc.export.MediaPipeModel(files["tf-text"].path)


@pytest.mark.parametrize(
    "inputs, message",
    [
        (["a", "b"], r"must have shape \(1,\)"),
        ([3], "must hold strings. Received: numbers"),
        ([None], "must hold strings. Received: NoneType"),
        (["\ud800"], "must hold text that UTF-8 can hold"),
        (np.zeros((0,), object), "no empty axis"),
    ],
)
def test_what_a_file_takes_for_no_text(inputs, message, files):
    run = kc.export.LiteRTModel(files["tf-text"].path)
    with pytest.raises(ValueError, match=message):
        run(inputs)


def two_outputs():
    text = keras.Input((1,), dtype="string", name="review")
    ids = kc.text.WordTokenizer(WORDS)(text)
    mean = keras.layers.GlobalAveragePooling1D()(
        keras.layers.Embedding(7, 4, mask_zero=True)(ids)
    )
    return keras.Model(
        text,
        {
            "stars": keras.layers.Dense(2, "softmax")(mean),
            "mood": keras.layers.Dense(3, "softmax")(mean),
        },
    )


def nested():
    inner = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            keras.layers.TextVectorization(vocabulary=WORDS),
        ]
    )
    return text_model(inner, rows=7)


def with_a_subclass():
    class Rest(keras.Model):
        def __init__(self):
            super().__init__()
            self.embed = keras.layers.Embedding(7, 4)
            self.dense = keras.layers.Dense(3)

        def call(self, ids):
            return keras.ops.softmax(
                self.dense(keras.ops.mean(self.embed(ids), axis=1))
            )

    text = keras.Input((), dtype="string")
    return keras.Model(text, Rest()(kc.text.WordTokenizer(WORDS)(text)))


def unrolled():
    return text_model(
        kc.text.WordTokenizer(WORDS, sequence_length=6),
        keras.layers.LSTM(3, unroll=True),
    )


class TenPositions(keras.layers.Layer):
    def call(self, vectors):
        length = keras.ops.shape(vectors)[1]
        if isinstance(length, int) and length > 10:
            raise ValueError("only ten positions")
        return vectors


@pytest.mark.parametrize(
    "make",
    [
        two_outputs,
        nested,
        with_a_subclass,
        unrolled,
        # By itself Keras makes no id of an empty text, and NaN of its mean.
        lambda: text_model(keras.layers.TextVectorization(vocabulary=WORDS)),
        lambda: text_model(
            keras.layers.TextVectorization(
                vocabulary=WORDS, output_sequence_length=5
            ),
            shape=(1,),
        ),
        lambda: text_model(
            None, TenPositions(), keras.layers.GlobalMaxPooling1D()
        ),
    ],
    ids=[
        "two outputs",
        "nested",
        "subclass",
        "unrolled",
        "vectorization",
        "fixed length",
        "short texts only",
    ],
)
def test_models_of_all_kinds(make, tmp_path):
    pytest.importorskip("mediapipe")
    model = make()
    labels = LABELS
    if make is two_outputs:
        labels = {"mood": LABELS, "stars": ["few", "many"]}
    path = tmp_path / "m.tflite"
    export = kc.export.export_litert(
        model, path, runtime="mediapipe", labels=labels, verbose=0
    )
    assert export.max_error < 1e-5
    answer = kc.export.MediaPipeModel(path)("the cat")
    expected = model(tf.constant([["the cat"]]))
    if make is two_outputs:
        assert list(export.labels) == list(answer) == ["mood", "stars"]
        for name in answer:
            np.testing.assert_allclose(
                answer[name], expected[name][0], atol=1e-6
            )
        names = zipfile.ZipFile(path).namelist()
        assert names == ["mood_labels.txt", "stars_labels.txt"]
    else:
        np.testing.assert_allclose(answer, expected[0], atol=1e-6)


def test_ids_of_a_vectorization_are_int32_in_a_file(tmp_path):
    model = text_model(keras.layers.TextVectorization(vocabulary=WORDS))
    path = tmp_path / "m.tflite"
    kc.export.export_litert(
        model, path, sample_inputs=["the cat", "mat"], verbose=0
    )
    file = kc.export.inspect_litert(path)
    assert file.inputs[0].dtype == "int32" and "CAST" not in file.ops
    ids = model.layers[0](["the cat"])
    np.testing.assert_allclose(
        kc.export.LiteRTModel(path)(ids),
        model(tf.constant(["the cat"])),
        atol=1e-6,
    )
    assert model.layers[0].output.dtype == "int64"


def test_warnings(tmp_path):
    pytest.importorskip("mediapipe")
    model = text_model()
    model.layers[-1].activation = keras.activations.linear
    with pytest.warns(UserWarning, match=r"below 0.*\['output_0'\]. End the"):
        kc.export.export_litert(
            model,
            tmp_path / "m.tflite",
            runtime="mediapipe",
            labels=LABELS,
            verbose=0,
        )
    lines = keras.layers.TextVectorization(vocabulary=["a\nb"], split=None)
    with pytest.warns(UserWarning, match="holds no vocabulary: tokens of"):
        export = kc.export.export_litert(
            text_model(lines), tmp_path / "n.tflite", verbose=0
        )
    assert export.text_bytes == 0 and not zipfile.is_zipfile(export.path)


def test_answers_that_are_no_numbers(tmp_path):
    mean = keras.layers.GlobalAveragePooling1D()
    words = keras.layers.TextVectorization(vocabulary=WORDS)
    model = text_model(words, mean)
    model.get_layer("words").mask_zero = True
    model = keras.models.clone_model(model)
    path = tmp_path / "m.tflite"
    export = functools.partial(
        kc.export.export_litert, runtime="tf-text", verbose=0, overwrite=True
    )
    with pytest.warns(UserWarning, match="NaN for 2 of .* texts.* such as ''"):
        export(model, path)
    # What the message says.
    layers = [keras.Input((), dtype="string"), kc.text.WordTokenizer(WORDS)]
    export(keras.Sequential([*layers, *model.layers[1:]]), path)
    table = model.get_layer("words").embeddings
    table.assign(table * np.nan)
    with pytest.warns(UserWarning, match="NaN for all inputs tried"):
        export(model, path)


@pytest.mark.parametrize(
    "module, extra, runtime",
    [
        ("tensorflow_text", "text", "tf-text"),
        ("mediapipe", "mediapipe", "mediapipe"),
    ],
)
def test_extras_are_named(module, extra, runtime, tmp_path, monkeypatch):
    model = text_model(keras.layers.TextVectorization(vocabulary=WORDS))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"keras-compembed\[{extra}\]"):
        kc.export.export_litert(
            model, tmp_path / "m.tflite", runtime=runtime, labels=LABELS
        )


def test_models_stay_as_they_are(model, tmp_path):
    path = tmp_path / "m.tflite"
    kc.export.export_litert(model, path, sample_inputs=TEXTS, verbose=0)
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    texts = tf.constant(TEXTS)
    np.testing.assert_array_equal(again(texts), model(texts))
    again = keras.models.clone_model(model)
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(texts), model(texts))


def test_vectors_for_the_embedder(tmp_path):
    pytest.importorskip("mediapipe")
    text = keras.Input((), dtype="string")
    ids = kc.text.WordTokenizer(WORDS)(text)
    vectors = keras.layers.GlobalAveragePooling1D()(
        keras.layers.Embedding(7, 4)(ids)
    )
    model = keras.Model(text, vectors)
    path = tmp_path / "vectors.tflite"
    options = {"runtime": "mediapipe", "task": "embedder", "verbose": 0}
    with pytest.raises(ValueError, match="`labels` must be None with task"):
        kc.export.export_litert(model, path, labels=["a"], **options)
    kc.export.export_litert(model, path, **options)
    with MediaPipeModel(path) as run:
        np.testing.assert_allclose(
            run.predict(TEXTS),
            np.concatenate([model(tf.constant([text])) for text in TEXTS]),
            atol=1e-6,
        )
    assert not zipfile.is_zipfile(path)


def test_best_classes_with_names(tmp_path):
    names = [f"class {number}" for number in range(20)]
    tokenizer = kc.text.WordTokenizer(WORDS)
    text = keras.Input((), dtype="string")
    items = kc.QuantizedEmbedding(20, 4)
    vectors = keras.layers.GlobalAveragePooling1D()(
        keras.layers.Embedding(7, 4)(tokenizer(text))
    )
    model = keras.Model(text, items(vectors, reverse=True))
    path = tmp_path / "m.tflite"
    options = {"top_k": 3, "verbose": 0, "runtime": "tf-text"}
    with pytest.raises(ValueError, match="3 labels for the 20 classes of"):
        kc.export.export_litert(model, path, labels=LABELS, **options)
    export = kc.export.export_litert(model, path, labels=names, **options)
    assert export.labels == {"ids": tuple(names)}
    assert kc.export.inspect_litert(path).labels == export.labels
    options |= {"runtime": "mediapipe", "overwrite": True}
    with pytest.raises(ValueError, match="'ids' of dtype int32 and shape"):
        kc.export.export_litert(model, path, labels=names, **options)


def test_labels_of_models_that_take_numbers(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    path = tmp_path / "m.tflite"
    plain = kc.export.export_litert(model, path, verbose=0)
    assert plain.labels == {} and not zipfile.is_zipfile(path)
    export = kc.export.export_litert(
        model, path, labels=("no", "yes"), overwrite=True, verbose=0
    )
    assert kc.export.inspect_litert(path).labels == {"output_0": ("no", "yes")}
    assert export.text_bytes == 0
    # The file runs with the archive behind it, and is the same if made again.
    assert kc.export.LiteRTModel(path)(np.ones((1, 4))).shape == (1, 2)
    content = path.read_bytes()
    assert zipfile.is_zipfile(io.BytesIO(content))
    kc.export.export_litert(
        model, path, labels=("no", "yes"), overwrite=True, verbose=0
    )
    assert len(path.read_bytes()) == len(content)


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "Received: no labels for the 3 classes of the output 'output_0'"),
        ({"labels": ["a"]}, "Received: 1 labels for the 3 classes"),
        ({"labels": [*"abcd"]}, "Received: 4 labels for the 3 classes"),
        ({"labels": "abc"}, "must be a list of strings. Received: .* type str"),
        ({"labels": {*"abc"}}, "must be a list of strings. Received: .* set"),
        ({"labels": [*"aba"]}, "Received: 'a' at places 0 and 2"),
        (
            {"labels": ["a", "b", "c\n"]},
            r"line ends. Received: 'c\\n' at",
        ),
        ({"labels": ["a", "", "c"]}, "that are not empty. Received: '' at"),
        ({"labels": ["a", 2, "c"]}, "that are not empty. Received: 2 at"),
        ({"labels": ["a", "\ud800", "c"]}, "text that UTF-8 can hold"),
        ({"labels": {"x": LABELS}}, r"\['output_0'\]. Received: .* \['x'\]"),
        ({"labels": LABELS, "metadata": {"name": "x"}}, "must be a .*FileMeta"),
        ({"labels": LABELS, "task": "tagger"}, "`task` must be one of"),
        ({"labels": LABELS, "runtime": "flex"}, "`runtime` must be one of"),
        ({"runtime": "tf-text", "task": "embedder"}, "None for other runtimes"),
        (
            {
                "labels": LABELS,
                "input_signature": tf.TensorSpec((1, 9), "int32"),
            },
            "makes files that take one text",
        ),
        ({"labels": LABELS, "sample_inputs": [[1, 2]]}, "must be texts for a"),
        ({"labels": LABELS, "sample_inputs": []}, "must hold a text"),
        ({"labels": LABELS, "sample_inputs": ["a\0b"]}, "must hold no NUL"),
        ({"labels": LABELS, "min_runtime": "2.1"}, "must run on `min_runtime`"),
    ],
)
def test_what_is_refused(options, message, model, tmp_path):
    pytest.importorskip("mediapipe")
    options = {"runtime": "mediapipe", "verbose": 0, **options}
    with pytest.raises(ValueError, match=message):
        kc.export.export_litert(model, tmp_path / "m.tflite", **options)
    assert not list(tmp_path.iterdir())


def two_texts():
    first, second = (keras.Input((), dtype="string") for _ in range(2))
    tokenizer = kc.text.WordTokenizer(WORDS, sequence_length=4)
    ids = tokenizer(first) + tokenizer(second)
    return keras.Model([first, second], keras.layers.Embedding(14, 3)(ids))


def text_used_twice():
    text = keras.Input((), dtype="string")
    tokenizer = kc.text.WordTokenizer(WORDS, sequence_length=4)
    ids = tokenizer(text) + tokenizer(text)
    return keras.Model(text, keras.layers.Embedding(14, 3)(ids))


def ids_out():
    text = keras.Input((), dtype="string")
    return keras.Model(text, kc.text.WordTokenizer(WORDS)(text))


def numbers_in():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


def one_hot_words():
    return keras.Sequential(
        [
            keras.Input((), dtype="string"),
            keras.layers.TextVectorization(
                vocabulary=WORDS, output_mode="multi_hot"
            ),
            keras.layers.Dense(3),
        ]
    )


@pytest.mark.parametrize(
    "make, runtime, message",
    [
        (
            lambda: keras.Sequential(
                [keras.Input((4,)), keras.layers.Dense(3)]
            ),
            "tf-text",
            "whose input is a text. Received: one that takes numbers",
        ),
        (two_texts, "litert", "must have one input, the text. Received: 2"),
        (text_used_twice, "litert", "called more than once"),
        (ids_out, "tf-text", "returns ids of 'word_tokenizer"),
        (one_hot_words, "litert", "output_mode='int' and ragged=False"),
        (
            lambda: text_model(
                keras.layers.TextVectorization(vocabulary=WORDS, ngrams=2)
            ),
            "tf-text",
            "ngrams=2 in layer .* pass runtime='litert'",
        ),
        (
            lambda: text_model(rows=5),
            "litert",
            "7 tokens of 'word_tokenizer.*input_dim=5",
        ),
        (
            lambda: text_model(None, keras.layers.LSTM(3, name="loop")),
            "mediapipe",
            "loop over time, 'loop'. Give the tokenizer a `sequence_length`",
        ),
        (
            lambda: text_model(
                kc.text.WordTokenizer(WORDS, sequence_length=4),
                keras.layers.Dropout(0.1),
            ),
            "mediapipe",
            r"'output_0' of dtype float32 and shape \(None, 4, 3\)",
        ),
        (
            lambda: text_model(
                kc.text.WordPieceTokenizer(["[PAD]", "[UNK]", "a"])
            ),
            "mediapipe",
            "lacks the ops of `WordPieceTokenizer`.*runtime='tf-text'",
        ),
    ],
    ids=[
        "numbers",
        "two texts",
        "text used twice",
        "ids out",
        "one-hot words",
        "ngrams",
        "small table",
        "loop",
        "tokens",
        "word pieces",
    ],
)
def test_models_that_are_refused(make, runtime, message, tmp_path):
    pytest.importorskip("mediapipe")
    labels = LABELS if runtime == "mediapipe" else None
    with pytest.raises(ValueError, match=message):
        kc.export.export_litert(
            make(), tmp_path / "m.tflite", runtime=runtime, labels=labels
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("field", ["name", "license"])
@pytest.mark.parametrize("value", ["", " ", 3, "\ud800"])
def test_metadata_that_says_nothing(field, value):
    with pytest.raises(ValueError, match=f"`{field}` of `FileMetadata`"):
        FileMetadata(**{field: value})


def test_a_wrong_tokenizer_is_caught(model, tmp_path, monkeypatch):
    from keras_compembed.export import text_front

    other = kc.text.WordTokenizer(WORDS[::-1])
    monkeypatch.setattr(
        text_front.SplitModel, "as_tokenizer", lambda split: other
    )
    with pytest.raises(RuntimeError, match="must give what Keras gives"):
        kc.export.export_litert(
            model, tmp_path / "m.tflite", runtime="tf-text", verbose=0
        )
    assert not list(tmp_path.iterdir())
