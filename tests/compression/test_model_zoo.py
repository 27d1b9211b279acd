"""Models of all kinds: compressed, saved, reloaded, trained and exported."""

import copy as copying
import pickle

import keras
import model_zoo
import numpy as np
import pytest
import tensorflow as tf
from compressing import check_same
from compressing import compress
from compressing import layers_of
from compressing import run
from model_zoo import CASES
from model_zoo import from_ids

import keras_compembed as kc

# Less than a table in int4.
MIN_BYTES = 3_000
pytestmark = [
    # Of T5's own attention.
    pytest.mark.filterwarnings("ignore:.*destroy the mask"),
    # BertMaskedLM does not pool.
    pytest.mark.filterwarnings("ignore:Gradients do not exist"),
    # keras-hub's tasks have a `compile` that no config tells of.
    pytest.mark.filterwarnings("ignore:The copy is not compiled"),
    pytest.mark.filterwarnings("ignore:`compile\\(\\)` was not called"),
]
# Files of these are made in ways of their own.
EXPORTS = (
    "bidirectional in_collections llama_causal_lm reversible_untied "
    "string_lookup tied_dense"
).split()


def is_long(case):
    return case.needs == "keras_hub" or case.name == "dlrm"


def parametrize(is_slow, cases=CASES):
    slow = pytest.mark.slow
    params = [
        pytest.param(case, id=case.name, marks=[slow] if is_slow(case) else [])
        for case in cases
    ]
    return pytest.mark.parametrize("case", params)


class Made:
    """A model of the zoo, its copy, and what both give."""

    def __init__(self, case, folder):
        keras.utils.set_random_seed(0)
        self.model, self.inputs = case.make()
        self.expected = run(self.model, self.inputs)
        self.weights = self.model.get_weights()
        self.layers = list(self.model._flatten_layers())
        self.copy = smaller(self.model, self.inputs)
        self.given = run(self.copy, self.inputs)
        self.path = folder / f"{case.name}.keras"
        self.copy.save(self.path)


def smaller(model, inputs):
    return compress(model, smallest=MIN_BYTES, sample_inputs=inputs)


@pytest.fixture(scope="module", autouse=True)
def optimizers_that_are_not_built(compiling_as_keras):
    """Tasks of keras-hub compile themselves, before codes are in them."""
    with compiling_as_keras():
        yield


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Function from a case to what was made of it, once."""
    folder = tmp_path_factory.mktemp("zoo")
    made = {}

    def make(case):
        if case.needs is not None:
            pytest.importorskip(case.needs)
        if case.name not in made:
            made[case.name] = Made(case, folder)
        return made[case.name]

    return make


@parametrize(is_long)
def test_copy_is_smaller_and_goes_on(case, make, tmp_path):
    made = make(case)
    assert isinstance(made.copy, type(made.model))
    assert len(layers_of(made.copy)) == case.codes
    assert not any(
        isinstance(layer, keras.layers.Embedding)
        and layer.input_dim * layer.output_dim * 4 >= MIN_BYTES
        for layer in made.copy._flatten_layers()
    )
    size = sum(x.value.numpy().nbytes for x in made.copy.variables)
    assert size < sum(array.nbytes for array in made.weights)
    for array, wanted in zip(made.given, made.expected, strict=True):
        assert array.shape == wanted.shape and array.dtype == wanted.dtype
        assert np.isfinite(array).all()

    # The model is left as it is.
    assert list(made.model._flatten_layers()) == made.layers
    assert all(map(np.array_equal, made.model.get_weights(), made.weights))
    check_same(run(made.model, made.inputs), made.expected)
    ours = {id(layer) for layer in made.copy._flatten_layers()}
    assert not ours & {id(layer) for layer in made.layers}

    # The file of the copy holds it, and it can be trained.
    copy = keras.saving.load_model(made.path)
    check_same(run(copy, made.inputs), made.given)
    # keras-hub's tasks have metrics of their own, for other losses.
    is_task = case.name.endswith(("_lm", "_classifier"))
    own = {"metrics": [], "weighted_metrics": []} if is_task else {}
    copy.compile("sgd", "mse", run_eagerly=True, **own)
    before = [layer.codebooks.numpy() for layer in layers_of(copy)]
    assert len(before) == case.codes
    targets = keras.tree.map_structure(
        lambda output: np.ones(output.shape, "float32"),
        copy(made.inputs, training=False),
    )
    # Keras takes strings as tensors only.
    inputs = keras.tree.map_structure(tf.constant, made.inputs)
    fitted = copy.fit(inputs, targets, shuffle=False, verbose=0)
    assert np.isfinite(fitted.history["loss"]).all()
    for layer, old in zip(layers_of(copy), before, strict=True):
        assert not np.array_equal(layer.codebooks.numpy(), old)
    copy.save(tmp_path / "again.keras")
    again = keras.saving.load_model(tmp_path / "again.keras")
    check_same(run(again, made.inputs), run(copy, made.inputs))


@parametrize(is_long, [case for case in CASES if case.name in EXPORTS])
def test_export(case, make, tmp_path):
    made = make(case)
    copy, inputs = made.copy, made.inputs
    path = tmp_path / "small.tflite"
    if case.not_exported:
        with pytest.raises(ValueError, match=case.not_exported):
            export(copy, inputs, path)
        assert not path.exists()
        copy, lookup = from_ids(copy)
        inputs = lookup(inputs).numpy().astype("int32")
    export(copy, inputs, path)
    litert = kc.export.LiteRTModel(path)
    arrays = keras.tree.flatten(inputs)
    got = litert(
        dict(zip(litert.input_names, arrays, strict=True))
        if len(arrays) > 1
        else arrays[0]
    )
    got = [got] if isinstance(got, np.ndarray) else list(got.values())
    check_same(got, run(copy, inputs))


def export(model, inputs, path):
    """Exports a model, with open axes wherever it has them."""
    signature = None
    is_graph = type(model) is keras.Sequential or hasattr(model, "operations")
    if not is_graph:
        signature = keras.tree.map_structure(
            lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype),
            inputs,
        )
    return kc.export_litert(
        model,
        path,
        input_signature=signature,
        sample_inputs=inputs,
        verbose=0,
        quantize=None,
    )


def test_copies_of_copies():
    model, ids = model_zoo.make("makes_all")
    copy = smaller(model, ids)
    for again in pickle.loads(pickle.dumps(copy)), copying.deepcopy(copy):
        assert type(again) is type(copy) and len(layers_of(again)) == 2
        check_same(run(again, ids), run(copy, ids))


def test_class_that_is_defined_twice(tmp_path):
    # As where a cell of a notebook is run again.
    for _ in range(2):

        @keras.saving.register_keras_serializable(package="tests")
        class Again(model_zoo.LateHost):
            pass

        model, ids = model_zoo.pooled(Again())
        small = smaller(model, ids)
        small.save(tmp_path / "small.keras")
        loaded = keras.saving.load_model(tmp_path / "small.keras")
        assert isinstance(loaded.layers[1], Again)
        check_same(run(loaded, ids), run(small, ids))
