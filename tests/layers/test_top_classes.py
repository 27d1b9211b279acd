import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import cane
from class_models import randomize
from errors import refused
from layer_checks import check_config

import keras_compembed as kc
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree

CLASSES, WIDTH = 30, 5


def make_head(num_classes=CLASSES, **kwargs):
    tree = ClassTree.random(num_classes, branching=4, seed=0)
    numbers = {"num_candidates": 4, "num_noises": 4, "name": "classes"}
    return cane(num_classes, selector=BeamTree(tree), **{**numbers, **kwargs})


def nested():
    inputs = keras.Input((3,))
    vectors = keras.layers.Dense(WIDTH)(inputs)
    inner = keras.Sequential([keras.Input((WIDTH,)), make_head()])
    outer = keras.Sequential([keras.Input((WIDTH,)), inner])
    return randomize(keras.Model(inputs, outer(vectors)))


def language_model():
    ids = keras.Input((None,), dtype="int32")
    vectors = keras.layers.Embedding(9, WIDTH, mask_zero=True)(ids)
    return randomize(keras.Model(ids, make_head()(vectors)))


def inputs_of(model, rows=6):
    rng = np.random.default_rng(1)
    if model.inputs[0].dtype == "int32":
        return rng.integers(1, 9, size=(rows, 7))
    return rng.normal(size=(rows, 3)).astype("float32")


def head_of(model):
    """The only layer of classes in a model."""
    while not isinstance(model, kc.CANESoftmax):
        model = model.layers[-1]
    return model


def best_classes(head, features, k):
    """The best classes by the scores of all."""
    features = features.astype("float64")
    ids = np.arange(head.num_classes)
    scores = features @ head.scores.class_vectors(ids).numpy().T
    scores += head.scores.class_biases(ids).numpy()
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    best = np.argsort(-scores, axis=-1)[..., :k]
    return best, np.take_along_axis(shares, best, axis=-1)


@pytest.mark.parametrize("k", [4, None])
@pytest.mark.parametrize("make", [nested, language_model])
def test_models(make, k, tmp_path):
    """Probabilities of all classes are exact, where a search finds some."""
    model = make()
    inputs = inputs_of(model)
    predictor = kc.top_k_model(model, k=k)
    for output in predictor.output.values():
        assert output.shape == (*model.output_shape[:-1], k or CLASSES)
    answer = predictor(inputs)
    assert list(answer) == ["ids", "probabilities"][k is None :]
    assert answer["probabilities"].dtype == "float32"
    number = k or CLASSES
    ids, shares = best_classes(head_of(model), model(inputs).numpy(), number)
    got = answer["probabilities"].numpy()
    if k is None:
        got = np.take_along_axis(got, ids, axis=-1)
    else:
        assert answer["ids"].dtype == "int32"
        np.testing.assert_array_equal(answer["ids"], ids)
    np.testing.assert_allclose(got, shares, rtol=1e-4, atol=1e-7)
    predictor.save(tmp_path / "predictor.keras")
    again = keras.saving.load_model(tmp_path / "predictor.keras")
    assert len(again.weights) == len(predictor.weights) == len(model.weights)
    for name, values in again(inputs).items():
        np.testing.assert_array_equal(values, answer[name])


def test_layer():
    layer = kc.TopClasses(k=3, name="best")
    check_config(layer)
    again = kc.TopClasses.from_config(layer.get_config())
    assert again.k == 3 and again.name == "best"
    symbolic = layer(keras.KerasTensor((None, 4, WIDTH)))
    assert symbolic["ids"].shape == (None, 4, 3)
    assert symbolic["ids"].dtype == "int32"
    with refused("TopClasses"):
        kc.TopClasses()(np.zeros((2, WIDTH), "float32"))


def test_several_outputs():
    """What is no output of classes stays as it is."""
    inputs = keras.Input((3,))
    vectors = keras.layers.Dense(WIDTH)(inputs)
    words = make_head(name="words")(vectors)
    mood = keras.layers.Dense(2, name="mood")(vectors)
    tags = make_head(12, name="tags")(vectors)
    outputs = {"one": words, "more": {"x": mood, "y": tags}}
    model = randomize(keras.Model(inputs, outputs))
    predictor = kc.top_k_model(model, k=4)
    inputs = inputs_of(model)
    answer = predictor(inputs)
    classes = {
        f"{name}_{what}"
        for name in ("one", "y")
        for what in ("ids", "probabilities")
    }
    assert set(answer) == {"x", *classes}
    np.testing.assert_array_equal(answer["x"], model(inputs)["more"]["x"])
    features = model.get_layer("words").input
    features = keras.Model(model.inputs[0], features)(inputs).numpy()
    for name, layer in (("one", "words"), ("y", "tags")):
        ids, shares = best_classes(model.get_layer(layer), features, 4)
        np.testing.assert_array_equal(answer[f"{name}_ids"], ids)
        np.testing.assert_allclose(
            answer[f"{name}_probabilities"], shares, rtol=1e-4
        )
    with refused("k", 13):
        kc.top_k_model(model, 13)


def test_refused():
    inputs = keras.Input((WIDTH,))
    outputs = make_head()(inputs)
    dense = keras.layers.Dense(3, name="logits")(outputs)
    for argument, received, model, k in (
        ("k", 0, nested(), 0),
        ("model", None, keras.Sequential([make_head()]), 5),
        ("model", "'logits'", keras.Model(inputs, dense), 5),
    ):
        with refused(argument, received):
            kc.top_k_model(model, k)
    with refused("k", CLASSES + 1):
        features = np.zeros((2, WIDTH), "float32")
        kc.TopClasses(CLASSES + 1)(make_head()(features))
    other = keras.layers.Dense(2, name="words_ids")(inputs)
    same = [make_head(name="words")(inputs), other]
    with pytest.raises(ValueError, match="two would be called 'words_ids'"):
        kc.top_k_model(keras.Model(inputs, same))


def test_a_layer_of_two_outputs():
    head, inputs = make_head(name="words"), keras.Input((WIDTH,))
    model = keras.Model(inputs, [head(inputs), head(2 * inputs)])
    features = np.random.default_rng(3).normal(size=(2, WIDTH))
    answer = kc.top_k_model(model, 4)(features)
    for name, scale in (("words", 1), ("words_1", 2)):
        ids, _ = best_classes(head, scale * features, 4)
        np.testing.assert_array_equal(answer[f"{name}_ids"], ids)


TABLES = {
    "codes": lambda: kc.CodeEmbedding(40, WIDTH, 4, 16),
    "untied": lambda: kc.CodeEmbedding(
        40, WIDTH, 4, 16, reverse=kc.Reverse(False, logit_soft_cap=1.0)
    ),
}


def tied(table):
    """A model of words whose last layer is its first."""
    ids = keras.Input((None,), dtype="int32")
    vectors = keras.layers.Dense(WIDTH)(table(ids))
    return keras.Model(ids, table(vectors, reverse=True))


@pytest.mark.parametrize("name", TABLES)
def test_best_ids_of_logits(name, tmp_path):
    model = tied(TABLES[name]())
    inputs = np.random.default_rng(2).integers(40, size=(3, 5))
    logits = model(inputs).numpy()
    predictor = kc.top_k_model(model, 4)
    predictor.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    nested = keras.Input((5,), dtype="int32")
    nested = kc.top_k_model(keras.Model(nested, model(nested)), 4)
    for each in (predictor, loaded, nested):
        answer = each(inputs)
        best = np.argsort(-logits, axis=-1, kind="stable")[..., :4]
        np.testing.assert_array_equal(answer["ids"], best)
        np.testing.assert_allclose(
            answer["scores"], np.take_along_axis(logits, best, -1), atol=1e-6
        )


def test_what_follows_logits_is_refused():
    table = TABLES["codes"]()
    vectors = keras.Input((WIDTH,))
    softmax = keras.layers.Softmax(name="shares")
    model = keras.Model(vectors, softmax(table(vectors, reverse=True)))
    with pytest.raises(ValueError, match="softmax: .*'shares'"):
        kc.top_k_model(model)
    with pytest.raises(ValueError, match="last_layers=.'looked_up'"):
        ids = keras.Input((2,), dtype="int32")
        looked_up = kc.CodeEmbedding(9, 2, 2, name="looked_up")
        kc.top_k_model(keras.Model(ids, looked_up(ids)))
    with refused("k", 41):
        kc.top_k_model(keras.Model(vectors, table(vectors, reverse=True)), 41)


def test_a_sequential_that_ends_in_classes_converts(tmp_path):
    """With built-in ops, by converters that know nothing of the layer."""
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(WIDTH), kc.CANESoftmax(CLASSES)]
    )
    expected = kc.top_k_model(model, 3)(inputs_of(model))
    model.add(kc.TopClasses(3))
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    path = tmp_path / "model.tflite"
    path.write_bytes(converter.convert())
    file = kc.export.LiteRTModel(path)(inputs_of(model))
    for got in (file, model.predict(inputs_of(model), verbose=0)):
        assert set(got) == set(expected)
        for name, values in expected.items():
            np.testing.assert_allclose(got[name], values, rtol=1e-4)
