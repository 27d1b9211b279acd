"""Models of all kinds: compressed, saved, reloaded, trained and exported."""

import copy as copying
import importlib.util
import pickle
import re
import warnings

import keras
import model_zoo
import numpy as np
import pytest
import tensorflow as tf
from children import run_python
from model_zoo import CASES
from model_zoo import SIZE
from model_zoo import from_ids

import keras_compembed as kc
from benchmarks.common import models

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
# The longest, and those of other libraries.
LONG = {models.wide_and_deep, *models.HUB, *models.RS}
# Files of these are made in ways of their own.
EXPORTS = {
    model_zoo.bidirectional,
    model_zoo.in_collections,
    model_zoo.pooled_tables,
    model_zoo.quantized,
    model_zoo.reversible_untied,
    model_zoo.string_lookup,
    model_zoo.tied_dense,
    model_zoo.time_distributed,
}
# Files of these are made in the ways of those above.
SAME_EXPORTS = {
    model_zoo.called_twice,
    model_zoo.given_to_layer,
    model_zoo.in_layer,
    model_zoo.in_layer_without_config,
    model_zoo.named_as_tensorflow_names,
    model_zoo.own_call,
    model_zoo.quantized_table,
    model_zoo.shared_by_two_layers,
    model_zoo.shared_by_two_layers_alone,
    model_zoo.with_lora,
    models.token_and_position,
    models.wide_and_deep,
}


def parametrize(is_slow, cases=CASES):
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(
                case,
                id=case.name,
                marks=[pytest.mark.slow] if is_slow(case.make) else [],
            )
            for case in cases
        ],
    )


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
        keras.utils.set_random_seed(0)
        self.model, self.inputs = case.make(SIZE)
        self.expected = run(self.model, self.inputs)
        self._remember()
        self.refusal = None
        try:
            self.copy = compress(self.model, self.inputs)
        except (TypeError, ValueError) as error:
            if case.remedy is None:
                raise
            self.refusal = error
            self.model = case.remedy(self.model)
            self._remember()
            self.copy = compress(self.model, self.inputs)
        self.given = run(self.copy, self.inputs)
        self.path = folder / f"{case.name}.keras"
        self.copy.save(self.path)
        self.path.with_suffix(".inputs").write_bytes(pickle.dumps(self.inputs))

    def _remember(self):
        self.weights = self.model.get_weights()
        self.layers = list(self.model._flatten_layers())


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


@parametrize(lambda kind: kind in LONG)
def test_copy_is_smaller_and_goes_on(case, make, tmp_path):
    made = make(case)
    if case.refused:
        assert re.search(case.refused, str(made.refusal)), made.refusal
    assert isinstance(made.copy, type(made.model))
    assert len(code_layers(made.copy)) == case.codes
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
    before = [layer.codebooks.numpy() for layer in code_layers(copy)]
    assert len(before) == case.codes
    targets = keras.tree.map_structure(
        lambda output: np.ones(output.shape, "float32"),
        copy(made.inputs, training=False),
    )
    # Keras takes strings as tensors only.
    inputs = keras.tree.map_structure(tf.constant, made.inputs)
    fitted = copy.fit(inputs, targets, shuffle=False, verbose=0)
    assert np.isfinite(fitted.history["loss"]).all()
    for layer, old in zip(code_layers(copy), before, strict=True):
        assert not np.array_equal(layer.codebooks.numpy(), old)
    copy.save(tmp_path / "again.keras")
    again = keras.saving.load_model(tmp_path / "again.keras")
    check_same(run(again, made.inputs), run(copy, made.inputs))


@pytest.mark.slow
def test_new_process_reads_the_files(make):
    found = {}
    for case in CASES:
        needs = case.needs
        if needs is None or importlib.util.find_spec(needs) is not None:
            found[case.name] = case, make(case)
    folder = make(CASES[0]).path.parent
    child = run_python("import read_models", folder)
    assert child.returncode == 0, child.stderr
    for case, made in found.values():
        read = pickle.loads(made.path.with_suffix(".outputs").read_bytes())
        assert not isinstance(read, str), (case.name, read)
        classes, codes, outputs = read
        assert type(made.model).__name__ in classes
        assert codes == case.codes, case.name
        check_same(outputs, made.given)


@parametrize(
    lambda kind: kind not in EXPORTS,
    [case for case in CASES if case.make not in SAME_EXPORTS],
)
def test_export(case, make, tmp_path):
    made = make(case)
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
    is_graph = type(model) is keras.Sequential or hasattr(model, "operations")
    if length or not is_graph:
        signature = keras.tree.map_structure(
            lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype),
            inputs,
        )
    return kc.export.export_litert(
        model, path, input_signature=signature, sample_inputs=inputs, verbose=0
    )


def has_lookup(model):
    return any(hasattr(layer, "get_vocabulary") for layer in model.layers)


@parametrize(
    lambda kind: False,
    [
        case
        for case in CASES
        if case.make
        in (
            model_zoo.in_collections,
            model_zoo.makes_all,
            model_zoo.task,
        )
    ],
)
def test_copies_of_copies(case, make):
    made = make(case)
    for again in (
        pickle.loads(pickle.dumps(made.copy)),
        copying.deepcopy(made.copy),
    ):
        assert type(again) is type(made.copy)
        assert len(code_layers(again)) == case.codes
        check_same(run(again, made.inputs), made.given)


def test_methods_and_parts_of_the_class():
    backbone, ids = model_zoo.functional_subclass(SIZE)
    copy = compress(backbone, ids)
    assert copy.words is copy.layers[1]
    logits = copy.logits(copy(ids))
    table = copy.words(np.arange(SIZE.rows))
    np.testing.assert_allclose(
        logits, keras.ops.matmul(copy(ids), table.numpy().T), rtol=1e-4
    )
    part = keras.Model(copy.input, copy.layers[1].output)
    np.testing.assert_array_equal(part(ids), copy.words(ids))
    cloned = keras.Model.from_config(part.get_config())
    assert [x.name for x in cloned.layers] == [x.name for x in part.layers]
    copy = compress(*model_zoo.task(SIZE))
    backbone = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(copy.backbone)
    )
    assert isinstance(backbone.words, kc.CodeEmbedding)
    assert type(backbone) is type(copy.backbone)


def test_checkpoints_of_tensorflow_hold_codes(tmp_path):
    model, ids = model_zoo.in_collections(SIZE)
    copy = compress(model, ids)
    # Then, they hold all that is trained.
    copy.compile("sgd", "mse", run_eagerly=True)
    copy.fit(ids, np.ones((len(ids), 3)), verbose=0)
    path = tf.train.Checkpoint(model=copy).save(tmp_path / "checkpoint")
    shapes = [shape for _, shape in tf.train.list_variables(path)]
    assert shapes.count([4, 8, SIZE.width]) == 8
    assert [SIZE.rows, SIZE.width] not in shapes


def test_class_that_is_defined_twice(tmp_path):
    # As where a cell of a notebook is run again.
    for _ in range(2):

        @keras.saving.register_keras_serializable(package="tests")
        class Again(model_zoo.LateHost):
            pass

        model, ids = model_zoo.pooled(Again(SIZE.rows, SIZE.width))
        small = compress(model, ids)
        small.save(tmp_path / "small.keras")
        loaded = keras.saving.load_model(tmp_path / "small.keras")
        assert isinstance(loaded.layers[1], Again)
        check_same(run(loaded, ids), run(small, ids))


# Of keras-hub.


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_backbone_with_lora(tmp_path):
    pytest.importorskip("keras_hub")
    model, inputs = models.gemma_causal_lm(SIZE)
    model.backbone.enable_lora(2)
    with pytest.raises(ValueError, match="LoRA"):
        compress(model, inputs)
    model.save(tmp_path / "merged.keras")
    compress(keras.saving.load_model(tmp_path / "merged.keras"), inputs)
