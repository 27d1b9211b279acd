"""Models of all kinds: compressed, saved, reloaded, trained and exported."""

import importlib.util
import os
import pathlib
import pickle
import re
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_zoo import CASES
from model_zoo import SIZE
from model_zoo import from_ids
from model_zoo import functional_subclass
from model_zoo import in_collections

import keras_compembed as kc
from benchmarks.common import models
from keras_compembed.compression.layer_places import KEPT_LAYERS

SUPPORT = pathlib.Path(__file__).parents[1] / "support"
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
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class Made:
    """A model of the zoo, its copy, and what both give.

    Args:
        case: A `Case`.
        folder: Path of the folder that the copy is saved in.

    Attributes:
        model: The model; where it is refused, that of the case's remedy.
        copy: The copy.
        refusal: The error of `compress_model`, if it refused the model.
    """

    def __init__(self, case, folder):
        self.case = case
        keras.utils.set_random_seed(0)
        self.model, self.inputs = case.make(SIZE)
        self.expected = run(self.model, self.inputs)
        self.weights = self.model.get_weights()
        self.layers = list(self.model._flatten_layers())
        self.refusal = None
        try:
            self.copy = compress(self.model, self.inputs)
        except (TypeError, ValueError) as error:
            if case.remedy is None:
                raise
            self.refusal = error
            self.model = case.remedy(self.model)
            self.weights = self.model.get_weights()
            self.layers = list(self.model._flatten_layers())
            if isinstance(self.inputs, dict):
                (self.inputs,) = self.inputs.values()
            self.copy = compress(self.model, self.inputs)
        self.given = run(self.copy, self.inputs)
        self.path = folder / f"{case.name}.keras"
        self.copy.save(self.path)
        self.path.with_suffix(".inputs").write_bytes(pickle.dumps(self.inputs))

    @property
    def reloaded(self):
        """Names of classes, layers with codes, and outputs of the file."""
        found = pickle.loads(self.path.with_suffix(".outputs").read_bytes())
        assert not isinstance(found, str), found
        return found


def compress(model, inputs, **kwargs):
    return kc.compression.compress_model(
        model,
        num_codebooks=4,
        codebook_size=8,
        learner=kc.learners.RandomCodeLearner,
        min_bytes=MIN_BYTES,
        sample_inputs=inputs,
        verbose=0,
        **kwargs,
    )


def run(model, inputs):
    """List of the outputs, arrays."""
    outputs = keras.tree.flatten(model(inputs, training=False))
    return [keras.ops.convert_to_numpy(output) for output in outputs]


def code_layers(model):
    layers = model._flatten_layers()
    return [layer for layer in layers if isinstance(layer, kc.CodeEmbedding)]


def check_same(got, expected):
    """The same ops on the same numbers; threads may add in another order."""
    assert len(got) == len(expected)
    for array, wanted in zip(got, expected, strict=True):
        scale = np.max(np.abs(wanted))
        np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-5 * scale)


@pytest.fixture(scope="module")
def zoo(request, tmp_path_factory):
    """Dict from the name of each case asked for to a `Made` or its error."""
    folder = tmp_path_factory.mktemp("zoo")
    asked = {
        item.callspec.params["case"]
        for item in request.session.items
        if item.path == request.path and "case" in item.fixturenames
    }
    made = {}
    for case in CASES:
        if case not in asked or not is_there(case.needs):
            continue
        try:
            made[case.name] = Made(case, folder)
        except Exception as error:
            made[case.name] = error
    path = os.pathsep.join([str(SUPPORT), *map(str, sys.path)])
    subprocess.run(
        [sys.executable, SUPPORT / "read_models.py", folder],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    return made


def is_there(package):
    return package is None or importlib.util.find_spec(package) is not None


def find(zoo, case):
    if case.needs is not None:
        pytest.importorskip(case.needs)
    made = zoo[case.name]
    if isinstance(made, Exception):
        raise made
    return made


@every_case
def test_copy(case, zoo):
    made = find(zoo, case)
    assert isinstance(made.copy, type(made.model))
    assert len(code_layers(made.copy)) == case.codes
    assert not any(
        isinstance(layer, keras.layers.Embedding)
        and layer.input_dim * layer.output_dim * 4 >= MIN_BYTES
        for layer in made.copy._flatten_layers()
    )
    size = sum(
        variable.value.numpy().nbytes for variable in made.copy.variables
    )
    assert size < sum(array.nbytes for array in made.weights)
    for array, wanted in zip(made.given, made.expected, strict=True):
        assert array.shape == wanted.shape and array.dtype == wanted.dtype
        assert np.isfinite(array).all()


@every_case
def test_model_is_left_as_it_is(case, zoo):
    made = find(zoo, case)
    assert list(made.model._flatten_layers()) == made.layers
    assert all(map(np.array_equal, made.model.get_weights(), made.weights))
    check_same(run(made.model, made.inputs), made.expected)
    ours = {id(layer) for layer in made.copy._flatten_layers()}
    assert not ours & {id(layer) for layer in made.layers}


@every_case
def test_new_process_reads_the_file(case, zoo):
    made = find(zoo, case)
    classes, codes, outputs = made.reloaded
    assert type(made.model).__name__ in classes
    assert codes == case.codes
    check_same(outputs, made.given)


@every_case
def test_fit_goes_on(case, zoo, tmp_path):
    made = find(zoo, case)
    copy = keras.saving.load_model(made.path)
    # keras-hub's tasks have metrics of their own, for other losses.
    is_task = case.name.endswith(("_lm", "_classifier"))
    own = {"metrics": [], "weighted_metrics": []} if is_task else {}
    copy.compile("sgd", "mse", run_eagerly=True, **own)
    before = [layer.codebooks.numpy() for layer in code_layers(copy)]
    targets = keras.tree.map_structure(
        lambda output: np.ones(output.shape, "float32"),
        copy(made.inputs, training=False),
    )
    # Keras takes strings as tensors only.
    inputs = keras.tree.map_structure(tf.constant, made.inputs)
    fitted = copy.fit(inputs, targets, shuffle=False, verbose=0)
    history = fitted.history
    assert np.isfinite(history["loss"]).all()
    for layer, old in zip(code_layers(copy), before, strict=True):
        assert not np.array_equal(layer.codebooks.numpy(), old)
    path = tmp_path / "again.keras"
    copy.save(path)
    again = keras.saving.load_model(path)
    check_same(run(again, made.inputs), run(copy, made.inputs))


@every_case
def test_export(case, zoo, tmp_path):
    made = find(zoo, case)
    copy, inputs = made.copy, made.inputs
    path = tmp_path / "small.tflite"
    if case.not_exported:
        with pytest.raises(ValueError, match=case.not_exported):
            export(copy, inputs, path)
        assert not path.exists()
    if not case.open_length:
        export(copy, inputs, path, length=True)
    elif has_lookup(copy):
        copy, lookup = from_ids(copy)
        inputs = lookup(inputs).numpy().astype("int32")
        export(copy, inputs, path)
    elif case.not_exported:
        return
    else:
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


def export(model, inputs, path, length=False):
    """Exports a model, with open axes wherever it has them."""
    signature = None
    if (
        length
        or type(model) is not keras.Sequential
        and not hasattr(model, "operations")
    ):
        signature = keras.tree.map_structure(
            lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype),
            inputs,
        )
    return kc.export.export_litert(
        model, path, input_signature=signature, sample_inputs=inputs, verbose=0
    )


def has_lookup(model):
    return any(hasattr(layer, "get_vocabulary") for layer in model.layers)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.refused],
    ids=lambda case: case.name,
)
def test_refused(case, zoo):
    made = find(zoo, case)
    assert re.search(case.refused, str(made.refusal)), made.refusal


def test_methods_of_the_class():
    backbone, ids = functional_subclass(SIZE)
    copy = compress(backbone, ids)
    assert copy.words is copy.layers[1]
    logits = copy.logits(copy(ids))
    table = copy.words(np.arange(SIZE.rows))
    np.testing.assert_allclose(
        logits, keras.ops.matmul(copy(ids), table.numpy().T), rtol=1e-4
    )


def test_files_have_what_nested_collections_hold():
    # Keras before 3.15 leaves it out of files, without a word.
    copy = compress(*in_collections(SIZE))
    host = copy.layers[1]
    assert host.nested["deep"][0] in vars(host)[KEPT_LAYERS]


def test_text_goes_on_from_a_compressed_language_model():
    pytest.importorskip("keras_hub")
    model, inputs = models.gpt2_causal_lm(SIZE)
    copy = compress(model, inputs)
    table = copy.backbone.token_embedding
    assert isinstance(table, kc.CodeEmbedding)
    # Four ids of each text are given, and four are wanted.
    inputs["padding_mask"][:, 4:] = 0
    copy.compile(sampler="greedy", run_eagerly=True)
    ids = copy.generate(inputs, stop_token_ids=None)["token_ids"]
    assert (ids[:, :4] == inputs["token_ids"][:, :4]).all()
    logits = copy(
        {"token_ids": ids, "padding_mask": np.ones_like(ids)}, training=False
    )
    assert (ids[:, 4:] == np.argmax(logits, axis=-1)[:, 3:-1]).all()


def test_quantized_backbone(tmp_path):
    """Keras-hub gives policies by path, in one map for all layers."""
    pytest.importorskip("keras_hub")
    model, inputs = models.gpt2_backbone(SIZE)
    with warnings.catch_warnings():
        # Of what has nothing to quantize.
        warnings.simplefilter("ignore")
        model.quantize("int8")
    copy = compress(model, inputs)
    assert keras.config.dtype_policy().name == "float32"
    copy.save(tmp_path / "small.keras")
    again = keras.saving.load_model(tmp_path / "small.keras")
    check_same(run(again, inputs), run(copy, inputs))


def test_backbone_with_lora(tmp_path):
    pytest.importorskip("keras_hub")
    model, inputs = models.gemma_causal_lm(SIZE)
    model.backbone.enable_lora(2)
    with pytest.raises(ValueError, match="LoRA are merged when .* is saved"):
        compress(model, inputs)
    model.save(tmp_path / "merged.keras")
    compress(keras.saving.load_model(tmp_path / "merged.keras"), inputs)
