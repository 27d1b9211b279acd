"""Every layer passes the same checks, each way it can be used."""

import gc
import types
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_cases import BATCH_SIZE
from layer_cases import CASES
from layer_cases import IDS
from layer_cases import Classes
from layer_cases import LookUp
from layer_cases import Pooled
from layer_checks import assert_weights
from layer_checks import check_any_converter
from layer_checks import check_config
from layer_checks import check_file
from layer_checks import check_id_types
from layer_checks import check_policy
from layer_checks import check_ragged_training
from layer_checks import settled_weights

import keras_compembed as kc

LOOK_UPS = [case for case in CASES if type(case.task) is LookUp]


def named(names):
    """A mark for tests of some cases."""
    cases = [case for case in CASES if case.name in names]
    return pytest.mark.parametrize("case", cases, ids=str)


# Other cases, or `distribution/`, have the ways of training of the rest.
OWN = named(
    {
        "codes",
        "codes-digits",
        "codes-digits-rounded",
        "codes-softmax",
        "codes-nearest",
        "codes-follow",
        "rounded-learned",
        "anchors-lazy",
        "anchors-sparse",
        "anchors-trained-places",
        "tiers",
    }
)
# Other cases have what the converter meets in the rest.
CONVERTED = named(
    {
        "codes-concat",
        "codes-hashed",
        "codes-digits-pooled",
        "codes-digits-rounded",
        "codes-pooled",
        "reversible",
        "rounded-narrow",
        "anchors-lazy",
        "anchors-pooled",
        "tiers",
        "classes-tree",
        "classes-subsets",
    }
)
# The rest is exported by `export/`.
EXPORTED = named(
    {
        "codes-digits",
        "codes-nearest",
        "rounded-pooled-learned",
        "anchors-trained-places",
        "vocabulary",
        "tiers-pooled",
        "classes-nearest",
    }
)
POLICIES = "float16", "bfloat16", "float64"
# Models of all layers are kept while the file runs.
pytestmark = pytest.mark.apart
EVERY = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained model of each case, made once for all tests.

    A function from a case to a namespace of `model` and `layer`, trained for
    two epochs; `file`, the model as it was saved after the first; and `start`,
    `middle` and `end`, the weights before, between and after.
    """
    known = {}

    def train(case):
        if case.name not in known:
            model, layer = case.build()
            start = model.get_weights()
            case.train(model)
            file = tmp_path_factory.mktemp(case.name) / "model.keras"
            model.save(file)
            model.save_weights(file.with_name("model.weights.h5"))
            middle = model.get_weights()
            outputs = model(case.task.examples(BATCH_SIZE)[0])
            case.train(model)
            known[case.name] = types.SimpleNamespace(
                model=model,
                layer=layer,
                file=file,
                outputs=np.asarray(outputs),
                start=start,
                middle=middle,
                end=settled_weights(model),
            )
            # Each collection of garbage would go through all that is known;
            # an export has one.
            gc.collect()
            gc.freeze()
        return known[case.name]

    yield train
    known.clear()
    gc.unfreeze()


@EVERY
def test_training_moves_every_weight(case, trained):
    expected = trained(case)
    for weight, old, new in zip(
        expected.model.weights, expected.start, expected.middle, strict=True
    ):
        if weight.trainable:
            assert np.isfinite(new).all() and not np.array_equal(old, new), (
                weight.path
            )


@EVERY
def test_tensorboard_shows_every_weight(case, trained, tmp_path):
    callback = keras.callbacks.TensorBoard(
        tmp_path, histogram_freq=1, write_graph=False, write_images=True
    )
    model = trained(case).model
    callback.set_model(model)
    callback.on_epoch_end(0, {})
    callback.on_train_end()
    # As may other code that takes all weights for numbers.
    assert np.isfinite(
        [keras.ops.sum(weight) for weight in model.weights]
    ).all()


@EVERY
def test_clone(case, trained):
    fresh, _ = case.build()
    copy = keras.models.clone_model(fresh)
    copy.set_weights(fresh.get_weights())
    # Steps that are no graph come to the same weights.
    case.compile(copy, case.find(copy), run_eagerly=True)
    case.train(copy)
    assert_weights(copy, trained(case).middle)


@EVERY
def test_reload(case, trained):
    """Training goes on after a reload as if nothing had been saved."""
    expected = trained(case)
    again = keras.saving.load_model(expected.file)
    assert_weights(again, expected.middle, 0, 0)
    other, _ = case.build()
    other.load_weights(expected.file.with_name("model.weights.h5"))
    inputs, _ = case.task.examples(BATCH_SIZE)
    for each in (again, other):
        np.testing.assert_array_equal(each(inputs), expected.outputs)
    # Tracing the steps would take longer than taking them.
    again.run_eagerly = True
    case.train(again)
    assert_weights(again, expected.end)
    check_config(expected.layer)


@EVERY
def test_checkpoint_of_tensorflow(case, trained, tmp_path):
    expected = trained(case)
    checkpoint = tf.train.Checkpoint(model=expected.model)
    path = checkpoint.save(tmp_path / "checkpoint")
    before = expected.model.get_weights()
    fresh, _ = case.build()
    for weight in fresh.weights:
        other = ~weight.numpy() if weight.dtype == "bool" else weight + 1
        weight.assign(other)
    status = tf.train.Checkpoint(model=fresh).restore(path)
    status.assert_existing_objects_matched()
    for weight, value, same in zip(
        fresh.weights, fresh.get_weights(), before, strict=True
    ):
        np.testing.assert_array_equal(value, same, err_msg=weight.path)


def check_own_training_step(case, expected):
    """Returns a weak reference to a layer that was trained by steps of one's
    own: gradients taken in a function, and applied outside of it.
    """
    model, layer = case.build()
    loss_function = case.task.loss(layer)

    @tf.function
    def gradients(inputs, labels):
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = loss_function(labels, outputs) + sum(model.losses)
        return tape.gradient(loss, model.trainable_variables)

    batches = tf.data.Dataset.from_tensor_slices(case.task.examples())
    for inputs, labels in batches.batch(BATCH_SIZE):
        model.optimizer.apply(
            gradients(inputs, labels), model.trainable_variables
        )
    assert_weights(model, expected)
    return weakref.ref(layer)


@OWN
def test_own_training_step(case, trained):
    layer = check_own_training_step(case, trained(case).middle)
    gc.collect()
    # TensorFlow keeps gradients that it traced, and what they refer to.
    assert layer() is None


@OWN
def test_two_devices_equal_one(case, trained, strategy):
    with strategy.scope():
        model, _ = case.build()
    case.train(model)
    # Sums of gradients in another order; Adam divides them by their size.
    assert_weights(model, trained(case).middle, rtol=1e-4, atol=1e-5)


@OWN
def test_xla_trains_the_same(case, trained):
    model, _ = case.build()
    model.jit_compile = True
    case.train(model)
    assert_weights(model, trained(case).middle, rtol=1e-4, atol=1e-5)


@EVERY
def test_shapes_and_config(case):
    model, layer = case.build()
    check_config(layer)
    inputs, _ = case.task.examples(3)
    outputs = model(inputs)
    assert outputs.shape == (3, *model.output_shape[1:])
    assert outputs.dtype == layer.compute_dtype
    if isinstance(case.task, Classes):
        return
    pooled = isinstance(case.task, Pooled)
    for length in (5, None):
        shape = (None,) if pooled else (None, length)
        shape = *shape, layer.output_dim
        assert layer.compute_output_shape((None, length)) == shape
        symbolic = layer(keras.KerasTensor((None, length), "int32"))
        assert symbolic.shape == shape and symbolic.dtype == "float32"


@OWN
def test_frozen(case, trained):
    """A layer that is not trainable stays as it is, statistics and all."""
    model = keras.saving.load_model(trained(case).file)
    layer = case.find(model)
    layer.trainable = False
    case.compile(model, layer, run_eagerly=True)
    before = [weight.numpy() for weight in layer.weights]
    case.train(model, 2 * BATCH_SIZE)
    for weight, old in zip(layer.weights, before, strict=True):
        # Random noises are drawn all the same.
        if "seed_generator" not in weight.path:
            np.testing.assert_array_equal(weight, old, weight.path)


@EVERY
def test_made_frozen_or_loaded_frozen(case, tmp_path):
    model, _ = case.build(trainable=False)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    for each in (model, loaded):
        trained = {weight.path for weight in each.trainable_variables}
        assert not trained.intersection(
            weight.path for weight in case.find(each).weights
        )


# A policy in turn: each kind of layer has cases enough to see all three.
@pytest.mark.parametrize(
    ("case", "policy"),
    [(case, POLICIES[place % 3]) for place, case in enumerate(CASES)],
    ids=str,
)
def test_dtype_policies(case, policy, tmp_path):
    if isinstance(case.task, LookUp):
        layer = case.make(dtype=policy)
        # Scores of two ids are the same whatever their queries are.
        ids = np.array([[0, 3, 3, 7, 11]], "int32")
        check_policy(layer, ids, tmp_path)
        vectors = np.asarray(layer(np.arange(IDS)), "float64")
        # Vectors of size 1, as they are stored.
        epsilon = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(policy, 1e-6)
        table = np.asarray(layer.embeddings, "float64")
        np.testing.assert_allclose(table, vectors, atol=2 * epsilon)
        return
    model, layer = case.build(run_eagerly=True, dtype=policy)
    case.train(model, BATCH_SIZE)
    for weight in layer.trainable_weights:
        assert np.isfinite(weight.numpy()).all()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_weights(again, model.get_weights(), 0, 0)


@pytest.mark.parametrize(
    "case", [x for x in CASES if not isinstance(x.task, Classes)], ids=str
)
def test_mixed_precision_rounds_what_float32_gives(case):
    exact = case.make()
    ids, _ = case.task.examples(9)
    expected = np.asarray(exact(ids))
    for policy in ("mixed_float16", "mixed_bfloat16"):
        layer = case.make(dtype=policy)
        layer.set_weights(exact.get_weights())
        outputs = layer(ids)
        assert outputs.dtype == layer.compute_dtype
        epsilon = 2.0**-8 if policy == "mixed_bfloat16" else 2.0**-11
        np.testing.assert_allclose(
            np.asarray(outputs, "float32"), expected, 2 * epsilon, 2 * epsilon
        )


@pytest.mark.parametrize("case", LOOK_UPS[::3], ids=str)
def test_types_of_ids(case):
    check_id_types(case.make())
    check_ragged_training(case.make())


@EXPORTED
def test_export(case, trained, tmp_path):
    top_k = 3 if isinstance(case.task, Classes) else None
    export = kc.export_litert(
        trained(case).model,
        tmp_path / "model.tflite",
        top_k=top_k,
        quantize=None,
    )
    assert export.max_error < 1e-4


def answering(case, model, layer):
    """A model to convert, with open axes, and its inputs."""
    inputs, _ = case.task.examples()
    if isinstance(case.task, Classes):
        return kc.top_k_model(model, 3), inputs
    if isinstance(case.task, LookUp):
        ids = keras.Input((None,), dtype="int32")
        model = keras.Model(ids, layer(ids))
    return model, inputs


@CONVERTED
def test_any_converter(case, trained, tmp_path):
    made = trained(case)
    check_any_converter(*answering(case, made.model, made.layer), tmp_path)


@pytest.mark.skipif(
    tuple(map(int, keras.__version__.split(".")[:2])) < (3, 13),
    reason="Keras writes LiteRT files since 3.13.",
)
def test_keras_export_to_litert(trained, tmp_path):
    made = trained(CASES[0])
    model, inputs = answering(CASES[0], made.model, made.layer)
    model.export(tmp_path / "m.tflite", format="litert", verbose=False)
    check_file(tmp_path / "m.tflite", model, inputs)
