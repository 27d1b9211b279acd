import concurrent.futures
import dataclasses
import errno
import importlib
import itertools
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors

from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.compositions.lstm_composition import LSTMComposition
from keras_compembed.export import check
from keras_compembed.export import conversion
from keras_compembed.export import runtimes
from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.flatbuffer import schema
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.tracing import get_signature
from keras_compembed.layers.code_embed_reduce import CodeEmbedReduce
from keras_compembed.layers.code_embedding import CodeEmbedding

# Its name in the package is that of the function.
module = importlib.import_module(export_litert.__module__)
SIZES = (2, 3, 4, 5, 8, 16, 17, 32, 64, 256, 257, 1000)
# Sums of up to 13 float32 codewords, in whatever order.
ROUNDING = dict(rtol=0, atol=13 * 2**-23)


@pytest.fixture
def path(tmp_path):
    return os.fspath(tmp_path / "model.tflite")


def mean_model(**kwargs):
    return keras.Sequential(
        [
            ids_input(),
            code_embedding(**kwargs),
            keras.layers.GlobalAveragePooling1D(),
        ]
    )


def many_layers_model():
    """Every kind of code, with 1 to 13 codebooks, all on the same ids."""
    ids = ids_input()
    outputs = {}
    counts = itertools.cycle((1, 2, 3, 4, 7, 13, 8))
    for codebook_size, num_codebooks in zip(SIZES * 2, counts, strict=False):
        layer = code_embedding(num_codebooks, codebook_size)
        outputs[f"M{num_codebooks}_K{codebook_size}"] = layer(ids)
    return keras.Model(ids, outputs)


def code_layers(model):
    return [x for x in model.layers if isinstance(x, CodeEmbedding)]


@pytest.mark.parametrize("min_runtime", [None, "2.12"])
def test_every_code_gives_what_keras_gives(path, min_runtime):
    model = many_layers_model()
    export = export_litert(model, path, min_runtime=min_runtime, verbose=0)
    ids = np.arange(ROWS)[None]
    expected = model(ids)
    got = LiteRTModel(path)(ids)
    assert set(got) == set(expected)
    for name, vectors in expected.items():
        np.testing.assert_allclose(got[name], vectors, **ROUNDING, err_msg=name)

    assert "EMBEDDING_LOOKUP" not in export.ops
    tensors = read_tensors(path)
    for layer in code_layers(model):
        packed = layer.packed_codes.numpy()
        found = [t for t in tensors if t[2] == packed.tobytes()]
        assert len(found) == 1
        kind, shape, content = found[0]
        assert kind == "UINT8"
        assert shape[0] == ROWS
        assert len(content) == ROWS * bytes_per_row(
            layer.num_codebooks, layer.codebook_size
        )


def test_file_is_as_small_as_its_codes_and_codebooks(path):
    model = keras.Sequential([ids_input(), CodeEmbedding(100_000, 300, 32, 16)])
    export = export_litert(model, path, verbose=0)
    bits = 100_000 * 32 * 4 + 32 * 16 * 300 * 32
    assert export.file_bytes == os.path.getsize(path)
    assert export.file_bytes <= 1.02 * bits / 8


def test_ops_are_built_in(path):
    export = export_litert(mean_model(), path, verbose=0)
    assert set(export.ops) <= set(vars(schema.BuiltinOperator)) - {"CUSTOM"}
    assert "FLOOR_MOD" not in export.ops


@pytest.mark.parametrize(
    ("quantize", "weight_type", "ratio"),
    [("float16", "FLOAT16", 2), ("int8", "INT8", 4)],
)
def test_quantize_shrinks_codebooks_and_leaves_codes(
    path, quantize, weight_type, ratio
):
    ids = ids_input()
    layers = [
        code_embedding(8, codebook_size, width=64)
        for codebook_size in (4, 8, 16, 32, 64)
    ]
    model = keras.Model(ids, [layer(ids) for layer in layers])
    export = export_litert(model, path, quantize=quantize, verbose=0)
    assert 0 < export.max_error < {"float16": 1e-3, "int8": 0.02}[quantize]
    tensors = read_tensors(path)
    contents = [content for *_, content in tensors]
    for layer in layers:
        packed = layer.packed_codes.numpy()
        assert packed.tobytes() in contents
    # All codewords have 64 numbers, one-hot rows fewer.
    weights = [
        len(c)
        for kind, shape, c in tensors
        if kind == weight_type and 64 in shape[-2:]
    ]
    floats = sum(layer.codebooks.numpy().nbytes for layer in layers)
    assert sum(weights) == floats // ratio
    assert not any(k == "FLOAT32" and len(c) > 1024 for k, _, c in tensors)


@pytest.mark.parametrize(
    "composition, codebook_sizes",
    [
        ("concat", (2, 4, 16, 20)),
        ("linear", (4, 20)),
        ("lstm", (2, 16)),
        (LinearComposition(code_dim=2), (2, 16)),
        (LSTMComposition(code_dim=3), (4, 20)),
    ],
    ids=["concat", "linear", "lstm", "narrow linear", "narrow lstm"],
)
def test_compositions(path, composition, codebook_sizes):
    ids = ids_input()
    model = keras.Model(
        ids,
        {
            str(size): code_embedding(5, size, composition=composition)(ids)
            for size in codebook_sizes
        },
    )
    export_litert(model, path, verbose=0)
    ids = random_ids(3, 7)
    got, expected = LiteRTModel(path)(ids), model(ids)
    assert set(got) == set(expected)
    for size, vectors in expected.items():
        # Batch and length of its own; some tens of float32 operations.
        np.testing.assert_allclose(got[size], vectors, atol=1e-5, err_msg=size)


@pytest.mark.parametrize(
    "composition, values",
    [
        # Side by side: 16 codewords of 96 columns in parts.
        ("concat", 16 * 96),
        # Folded into a plain sum, or not, whichever is smaller.
        ("linear", 12 * 16 * 96),
        (LinearComposition(code_dim=8), 12 * 16 * 8 + 8 * 96),
        ("lstm", 12 * 16 * 96 + 8 * 96 * 96 + 4 * 96),
    ],
    ids=["concat", "linear", "narrow", "lstm"],
)
def test_files_of_compositions_are_as_small_as_can_be(
    path, composition, values
):
    model = keras.Sequential(
        [
            ids_input(),
            code_embedding(
                12, 16, 96, composition=composition, input_dim=50_000
            ),
        ]
    )
    export = export_litert(model, path, verbose=0)
    exact = 50_000 * 6 + 4 * values
    # The ops of an LSTM come once for each of 12 codewords.
    ops = 48_000 if composition == "lstm" else 12_000
    assert exact < export.file_bytes < exact + ops


@pytest.mark.filterwarnings("ignore:The file takes ids as floats")
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_dtypes_of_ids(path, dtype):
    model = keras.Sequential([ids_input(4, dtype), code_embedding()])
    export_litert(model, path, verbose=0)
    litert_model = LiteRTModel(path)
    ids = random_ids(2, 4)
    np.testing.assert_allclose(litert_model(ids), model(ids), **ROUNDING)


def test_several_inputs_and_shared_and_nested_layers(path):
    embed = code_embedding()
    inner = keras.Sequential(
        [ids_input(), embed, keras.layers.GlobalMaxPooling1D()], name="inner"
    )
    left, right = ids_input(name="left"), ids_input(name="right")
    features = keras.Input((3,), name="features")
    model = keras.Model(
        {"left": left, "right": right, "features": features},
        {
            "score": keras.layers.Concatenate()(
                [inner(left), inner(right), features]
            ),
            "vectors": embed(left),
        },
    )
    export_litert(model, path, verbose=0)
    litert_model = LiteRTModel(path)
    assert set(litert_model.input_names) == {"left", "right", "features"}
    inputs = {
        "left": random_ids(2, 5),
        "right": random_ids(2, 8),
        "features": np.ones((2, 3), "float32"),
    }
    got, expected = litert_model(inputs), model(inputs)
    for name in ("score", "vectors"):
        np.testing.assert_allclose(got[name], expected[name], **ROUNDING)
    kinds = [kind for kind, *_ in read_tensors(path)]
    # Codes, and the digits of bytes.
    assert kinds.count("UINT8") <= 2


@pytest.mark.parametrize("codebook_size", [16, 64])
def test_codebooks_are_stored_once(path, codebook_size):
    embed = code_embedding(8, codebook_size, width=100)
    left, right = ids_input(name="a"), ids_input(name="b")
    model = keras.Model([left, right], [embed(left), embed(right)])
    export = export_litert(model, path, verbose=0)
    codebooks = embed.codebooks.numpy().nbytes
    assert codebooks < export.file_bytes < 1.5 * codebooks


def test_list_of_inputs(path):
    embed = code_embedding()
    left, right = ids_input(3), ids_input(3)
    model = keras.Model([left, right], embed(left) - embed(right))
    export_litert(model, path, verbose=0)
    ids = random_ids(2, 2, 3)
    got = LiteRTModel(path)({"inputs": ids[0], "inputs_1": ids[1]})
    np.testing.assert_allclose(got, model(list(ids)), **ROUNDING)


def test_models_without_codes(path):
    model = keras.Sequential(
        [
            ids_input(),
            keras.layers.Embedding(ROWS, 6, mask_zero=True),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    export = export_litert(model, path, verbose=0)
    assert export.max_error < 1e-6
    assert "GATHER" in export.ops


def test_ids_known_at_conversion(path):
    """The converter may look up what never changes; codes stay right."""
    ids = ids_input(ROWS)
    tokens = code_embedding()(ids)
    positions = code_embedding(codebook_size=8, name="positions")
    places = keras.layers.Lambda(
        lambda x: x + positions(keras.ops.arange(ROWS))
    )
    model = keras.Model(ids, places(tokens))
    export = export_litert(model, path, verbose=0)
    assert export.max_error < 1e-6


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_is_exported_as_float32(path, policy):
    model = keras.Sequential(
        [
            ids_input(),
            code_embedding(dtype=policy),
            keras.layers.Conv1D(4, 3, dtype=policy),
            keras.layers.GlobalMaxPooling1D(dtype=policy),
        ]
    )
    export = export_litert(model, path, verbose=0)
    assert export.max_error < 1e-6
    assert LiteRTModel(path)(random_ids(2, 5)).dtype == np.float32
    assert all(layer.dtype_policy.name == policy for layer in model.layers)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = code_embedding()

    def call(self, ids):
        return keras.ops.mean(self.embed(ids), axis=1)


def test_subclassed_models_need_a_signature(path):
    with pytest.raises(ValueError, match="`input_signature` must be given"):
        export_litert(Subclassed(), path, verbose=0)
    assert not os.path.exists(path)
    model = Subclassed()
    signature = tf.TensorSpec((None, None), "int32")
    export_litert(model, path, input_signature=signature, verbose=0)
    ids = random_ids(3, 7)
    np.testing.assert_allclose(LiteRTModel(path)(ids), model(ids), **ROUNDING)


def test_bad_signature(path):
    with pytest.raises(ValueError, match="`input_signature` must hold a spec"):
        export_litert(Subclassed(), path, input_signature=(None, 5))
    text = keras.Input((3,), dtype="string")
    model = keras.Model(text, keras.layers.Hashing(7)(text))
    with pytest.raises(ValueError, match="text that goes to 'hashing'"):
        export_litert(model, path)


def test_unbuilt_sequential(path):
    with pytest.raises(ValueError, match="`input_signature` must be given"):
        export_litert(keras.Sequential([code_embedding()]), path)


def test_offending_ops_are_named(path, capfd):
    model = keras.Sequential(
        [
            ids_input(),
            code_embedding(),
            keras.layers.Lambda(
                lambda x: tf.math.betainc(x * 0 + 1.0, 1.0, 0.5)
            ),
            keras.layers.Lambda(lambda x: tf.math.igamma(x, 1.0)),
        ]
    )
    with pytest.raises(ValueError, match="built-in op.*: Betainc, Igamma"):
        export_litert(model, path, verbose=0)
    assert not os.path.exists(path)
    assert all("embed" not in vars(layer) for layer in model.layers)


def test_bad_arguments(path, tmp_path):
    model = mean_model()
    with pytest.raises(ValueError, match="`path` must end in '.tflite'"):
        export_litert(model, tmp_path / "model.keras")
    with pytest.raises(ValueError, match="`quantize` must be one of"):
        export_litert(model, path, quantize="int4")
    for min_runtime in ("new", 2.17, "2"):
        with pytest.raises(ValueError, match="`min_runtime` must be a version"):
            export_litert(model, path, min_runtime=min_runtime)
    with pytest.raises(ValueError, match="`model` must be a `keras.Model`"):
        export_litert(model.layers[0], path)
    with pytest.raises(ValueError, match="`tolerance` must be a positive"):
        export_litert(model, path, tolerance=0)
    with pytest.raises(FileNotFoundError, match="folder"):
        export_litert(model, tmp_path / "missing" / "model.tflite")
    with pytest.raises(ValueError, match="min_runtime='1.2.0'.*need"):
        export_litert(model, path, min_runtime="1.2")
    assert not os.listdir(tmp_path)


def test_existing_file_is_refused_before_any_work(path, monkeypatch):
    def no_work(*args, **kwargs):
        raise AssertionError("work was done")

    monkeypatch.setattr(module, "trace", no_work)
    with open(path, "w") as file:
        file.write("old")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        export_litert(mean_model(), path)
    with open(path) as file:
        assert file.read() == "old"


def test_overwrite(path, capsys):
    with open(path, "w") as file:
        file.write("old")
    export = export_litert(mean_model(), path, overwrite=True)
    assert export.file_bytes == os.path.getsize(path) > 3
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == str(export)
    assert heading.startswith(f"{path}: {export.file_bytes:,} bytes")
    assert lines[:2] == ["Inputs:", "  inputs  int32  (None, None)"]
    assert "Bytes:" in lines
    with pytest.raises(dataclasses.FrozenInstanceError):
        export.path = None


def test_one_number_near_zero_is_no_difference(path):
    """A regression gives one number, which may be as small as rounding."""
    model = keras.Sequential(
        [
            ids_input(8),
            code_embedding(),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    (first, *_), (outputs, *_) = check.run_on_random_inputs(
        model, get_signature(model, None)
    )
    assert len(first) == 1
    model.layers[-1].bias.assign(-next(iter(outputs.values()))[0])
    export = export_litert(model, path, verbose=0)
    assert export.max_error < 1e-6


@pytest.mark.parametrize("rounding", [0.0, 1e-7])
def test_zeros_alone_are_a_size_to_compare_with(rounding):
    samples, outputs = [np.ones(2)], [{"logits": np.zeros((2, 3), "float32")}]

    def run(inputs):
        return outputs[0]["logits"] + np.float32(rounding)

    found = check.compare(run, ["inputs"], samples, outputs)
    assert found == pytest.approx(rounding)


def test_infinities_of_both_are_no_difference(path):
    model = keras.Sequential(
        [ids_input(8), code_embedding(), keras.layers.Rescaling(1e38)]
    )
    model.layers[0].codebooks.assign(100 * model.layers[0].codebooks)
    assert np.isinf(model(random_ids(2, 8))).any()
    export = export_litert(model, path, verbose=0)
    assert export.max_error < 1e-6


def test_other_shapes_and_infinities_are_said_to_be_such(path, monkeypatch):
    class Cut(LiteRTModel):
        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs)[:, :1]

    class Overflow(LiteRTModel):
        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs) / np.float32(0)

    for file, message in (
        (Cut, r"the shapes that Keras gives, \(1, 6\) of .* \(1, 1\)"),
        (Overflow, "difference of inf.*NaN or an infinity where the other"),
    ):
        monkeypatch.setattr(runtimes, "LiteRTModel", file)
        with (
            pytest.raises(RuntimeError, match=message),
            np.errstate(all="ignore"),
        ):
            export_litert(mean_model(), path, verbose=0)
        assert not os.path.exists(path)


def test_wrong_codes_are_caught_and_the_old_file_stays(path, monkeypatch):
    with open(path, "w") as file:
        file.write("old")
    pack_tables = conversion.pack_tables

    def pack_wrongly(model, tables):
        pack_tables(model, tables)
        for buffer in model.buffers:
            if np.array_equal(buffer.data, tables[0].packed.reshape(-1)):
                buffer.data = buffer.data ^ np.uint8(1)

    monkeypatch.setattr(conversion, "pack_tables", pack_wrongly)
    model = mean_model()
    for quantize in (None, "int8"):
        with pytest.raises(RuntimeError, match="what Keras gives"):
            export_litert(
                model, path, quantize=quantize, overwrite=True, verbose=0
            )
    with open(path) as file:
        assert file.read() == "old"
    assert os.listdir(os.path.dirname(path)) == ["model.tflite"]


def test_full_disk_leaves_the_old_file(path, monkeypatch):
    with open(path, "w") as file:
        file.write("old")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "open", full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        export_litert(mean_model(), path, overwrite=True, verbose=0)
    monkeypatch.undo()
    with open(path) as file:
        assert file.read() == "old"
    assert os.listdir(os.path.dirname(path)) == ["model.tflite"]


def test_full_temporary_folder(path, monkeypatch):
    def full(*args, **kwargs):
        text = f"part-0.tempstate1; {os.strerror(errno.EFBIG)} [Op:SaveV2]"
        raise tf.errors.OutOfRangeError(None, None, text)

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(OSError, match="Cannot write the model to the folder"):
        export_litert(mean_model(), path, verbose=0)
    assert not os.path.exists(path)


def test_sample_inputs(path):
    model = mean_model()
    with pytest.raises(ValueError, match="must run on the inputs"):
        export_litert(model, path, sample_inputs=[[ROWS]], verbose=0)
    with pytest.raises(ValueError, match="`sample_inputs` must be what"):
        export_litert(model, path, sample_inputs=[1, 2], verbose=0)
    export = export_litert(
        model, path, sample_inputs=[[ROWS - 1, 0]], verbose=0
    )
    assert export.max_error < 1e-6


def test_ids_out_of_range_are_errors_in_the_runtime(path):
    export_litert(mean_model(), path, verbose=0)
    for ids in ([[ROWS]], [[-1]]):
        with pytest.raises(RuntimeError, match="out of bounds"):
            LiteRTModel(path)(ids)


class Positions(keras.layers.Layer):
    """Adds vectors of its own to sequences of up to 12 vectors."""

    def build(self, input_shape):
        self.positions = self.add_weight(shape=(12, input_shape[-1]))

    def call(self, vectors):
        length = keras.ops.shape(vectors)[1]
        if isinstance(length, int) and length > 12:
            raise ValueError("There are 12 positions.")
        return vectors + self.positions[:length]


def test_random_inputs_are_as_long_as_positions(path):
    model = keras.Sequential([ids_input(), code_embedding(), Positions()])
    export = export_litert(model, path, verbose=0)
    assert export.max_error < 1e-6
    ids = random_ids(2, 12)
    np.testing.assert_allclose(LiteRTModel(path)(ids), model(ids), **ROUNDING)


def test_random_ids_are_those_that_inputs_go_to():
    tokens, segments = ids_input(name="tokens"), ids_input(name="segments")
    vectors = [code_embedding()(tokens), code_embedding(input_dim=2)(segments)]
    model = keras.Model(
        {"tokens": tokens, "segments": segments}, keras.layers.Add()(vectors)
    )
    signature = get_signature(model)
    samples, outputs = check.run_on_random_inputs(model, signature)
    assert len(samples) == len(outputs) == 2
    for sample in samples:
        assert sample["tokens"].max() > 50
        assert sample["segments"].max() == 1


class _Hidden(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = code_embedding()

    def call(self, inputs):
        return self.table(inputs)


def test_a_model_whose_class_is_private(path):
    """Its own name, `__hidden`, cannot be that of an outermost scope."""
    model = _Hidden()
    model(random_ids(2, 3))
    signature = tf.TensorSpec((None, None), "int32")
    export = export_litert(model, path, input_signature=signature, verbose=0)
    assert export.held_layers == (model.table.name,)


def test_weights_that_may_not_be_negative(path):
    inputs = ids_input(9), keras.Input((9,))
    layer = CodeEmbedReduce(ROWS, 6, combiner="sqrtn", name="table")
    model = keras.Model(inputs, layer(inputs[0], weights=inputs[1]))
    export = export_litert(model, path, verbose=0)
    assert export.pooled_layers == ("table",)


def test_threads_that_export_one_model(tmp_path):
    ids = ids_input()
    rows = code_embedding(name="table")(ids)
    model = keras.Model(ids, keras.layers.GlobalAveragePooling1D()(rows))
    before = [set(vars(layer)) for layer in model.layers]
    paths = [tmp_path / f"{number}.tflite" for number in range(3)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        exports = list(
            pool.map(lambda path: export_litert(model, path, verbose=0), paths)
        )
    assert [set(vars(layer)) for layer in model.layers] == before
    assert {export.pooled_layers for export in exports} == {("table",)}
    assert len({path.read_bytes() for path in paths}) == 1
