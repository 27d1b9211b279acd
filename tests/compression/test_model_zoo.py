"""Models of all kinds: compressed, saved, reloaded, trained and exported."""

import copy as copying
import importlib.util
import pickle
import warnings

import keras
import model_zoo
import numpy as np
import pytest
import tensorflow as tf
from children import run_python
from compressing import check_same
from compressing import compress
from compressing import layers_of
from compressing import run
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
# Files of these are made in ways of their own.
EXPORTS = (
    "bidirectional in_collections reversible_untied string_lookup tied_dense"
).split()
# Files of these are made in the ways of those above.
SAME_EXPORTS = ("shared_by_two_layers_alone shared_with_the_table_last").split()


def is_long(case):
    return case.needs == "keras_hub" or case.name == "dlrm"


def parametrize(is_slow, cases=CASES):
    slow = pytest.mark.slow
    params = [
        pytest.param(case, id=case.name, marks=[slow] if is_slow(case) else [])
        for case in cases
    ]
    return pytest.mark.parametrize("case", params)


# What a new process does.
READ = """
import importlib, pathlib, pickle, sys, keras, model_zoo
from compressing import layers_of, run

for package in "keras_hub", "keras_rs":
    if importlib.util.find_spec(package):
        importlib.import_module(package)
for path in pathlib.Path(sys.argv[1]).glob("*.keras"):
    print(path, file=sys.stderr)
    model = keras.saving.load_model(path)
    inputs = pickle.loads(path.with_suffix(".inputs").read_bytes())
    classes = [cls.__name__ for cls in type(model).__mro__]
    found = classes, len(layers_of(model)), run(model, inputs)
    path.with_suffix(".outputs").write_bytes(pickle.dumps(found))
"""


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
        self.path.with_suffix(".inputs").write_bytes(pickle.dumps(self.inputs))


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


@pytest.mark.slow
def test_new_process_reads_the_files(make):
    made = {
        case: make(case)
        for case in CASES
        if case.needs is None or importlib.util.find_spec(case.needs)
    }
    child = run_python(READ, make(CASES[0]).path.parent)
    assert child.returncode == 0, child.stderr
    for case, each in made.items():
        read = each.path.with_suffix(".outputs").read_bytes()
        classes, codes, outputs = pickle.loads(read)
        assert type(each.model).__name__ in classes
        assert codes == case.codes, case.name
        check_same(outputs, each.given)


@parametrize(
    lambda case: case.name not in EXPORTS,
    [case for case in CASES if case.name not in SAME_EXPORTS],
)
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
        model, path, input_signature=signature, sample_inputs=inputs, verbose=0
    )


@parametrize(
    lambda case: False,
    [x for x in CASES if x.name in ("in_collections", "makes_all", "task")],
)
def test_copies_of_copies(case, make):
    made = make(case)
    for again in (
        pickle.loads(pickle.dumps(made.copy)),
        copying.deepcopy(made.copy),
    ):
        assert type(again) is type(made.copy)
        assert len(layers_of(again)) == case.codes
        check_same(run(again, made.inputs), made.given)


def test_methods_and_parts_of_the_class():
    backbone, ids = model_zoo.make("functional_subclass")
    copy = smaller(backbone, ids)
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
    copy = smaller(*model_zoo.make("task"))
    backbone = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(copy.backbone)
    )
    assert isinstance(backbone.words, kc.CodeEmbedding)
    assert type(backbone) is type(copy.backbone)


def test_tables_are_compressed_one_after_another(tmp_path):
    model, ids = model_zoo.make("in_collections")
    once = compress(model, layers=["first", "eighth"])
    assert len(layers_of(once)) == 2
    twice = smaller(once, ids)
    assert len(layers_of(twice)) == 8
    twice.save(tmp_path / "twice.keras")
    loaded = keras.saving.load_model(tmp_path / "twice.keras")
    check_same(run(loaded, ids), run(twice, ids))


def test_checkpoints_of_tensorflow_hold_codes(tmp_path):
    model, ids = model_zoo.make("in_collections")
    copy = smaller(model, ids)
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

        model, ids = model_zoo.pooled(Again())
        small = smaller(model, ids)
        small.save(tmp_path / "small.keras")
        loaded = keras.saving.load_model(tmp_path / "small.keras")
        assert isinstance(loaded.layers[1], Again)
        check_same(run(loaded, ids), run(small, ids))


# Of keras-hub.


@pytest.mark.slow
def test_text_goes_on_from_a_compressed_language_model():
    pytest.importorskip("keras_hub")
    model, inputs = models.gpt2_causal_lm(SIZE)
    copy = smaller(model, inputs)
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
    copy = smaller(model, inputs)
    assert keras.config.dtype_policy().name == "float32"
    copy.save(tmp_path / "small.keras")
    again = keras.saving.load_model(tmp_path / "small.keras")
    check_same(run(again, inputs), run(copy, inputs))


@pytest.mark.slow
def test_backbone_with_lora():
    """Updates are merged, as in files."""
    pytest.importorskip("keras_hub")
    model, inputs = models.gemma_causal_lm(SIZE)
    model.backbone.enable_lora(2)
    copy = smaller(model, inputs)
    assert not any(
        getattr(x, "lora_enabled", False) for x in copy._flatten_layers()
    )
