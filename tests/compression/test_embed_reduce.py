"""Tables of keras-rs, which pool by themselves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc

keras_rs = pytest.importorskip("keras_rs")
EmbedReduce = keras_rs.layers.EmbedReduce
ROWS, WIDTH = 60, 8
IDS = np.array([[1, 2, 0], [59, 0, 0]])
WEIGHTS = np.array([[1.0, 0.5, 2.0], [0.0, 3.0, 1.0]], "float32")
COMBINERS = ("mean", "sum", "sqrtn")
every_combiner = pytest.mark.parametrize("combiner", COMBINERS)


def compress(model, **kwargs):
    settings = {
        "num_codebooks": 4,
        "codebook_size": 8,
        "min_bytes": 1000,
        "learner": kc.learners.RandomCodeLearner,
        "verbose": 0,
    }
    return kc.compression.compress_model(model, **{**settings, **kwargs})


def functional(combiner="mean", ids=None, weights=None, **kwargs):
    layer = EmbedReduce(ROWS, WIDTH, combiner=combiner, name="bag", **kwargs)
    ids = keras.Input((None,), dtype="int32") if ids is None else ids
    inputs = ids if weights is None else [ids, weights]
    return keras.Model(inputs, layer(ids, weights))


def check(model, small, inputs):
    """The copy gives what the model gives with the copy's vectors."""
    (copy,) = (x for x in small._flatten_layers() if x.name == "bag")
    assert type(copy) is kc.CodeEmbedReduce
    (layer,) = (x for x in model._flatten_layers() if x.name == "bag")
    layer.set_weights([copy.embeddings])
    expected = keras.ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(small(inputs), expected, atol=1e-6)


@every_combiner
# The original reads id 0 as any other, whatever it masks.
@pytest.mark.parametrize("mask_zero", [False, True])
def test_dense_ids(combiner, mask_zero):
    model = functional(combiner, mask_zero=mask_zero)
    small = compress(model)
    check(model, small, IDS)
    assert not small.get_layer("bag").mask_zero


@every_combiner
def test_weights(combiner):
    ids = keras.Input((3,), dtype="int32", name="ids")
    model = functional(combiner, ids, keras.Input((3,), name="weights"))
    small = compress(model)
    check(model, small, [IDS, WEIGHTS])


def test_half_precision():
    ids = keras.Input((3,), dtype="int32", name="ids")
    weights = keras.Input((3,), name="weights")
    # With float32 weights, it gives float32 all the same.
    reduced = functional("mean", ids, weights, dtype="mixed_float16").output
    model = keras.Model([ids, weights], keras.layers.Dense(2)(reduced))
    small = compress(model, sample_inputs=[IDS, WEIGHTS])
    assert small.get_layer("bag").compute_dtype == "float16"
    small([IDS, WEIGHTS])


@every_combiner
def test_sparse_ids(combiner):
    ids = keras.Input((3,), dtype="int32", sparse=True)
    model = functional(combiner, ids)
    sparse = tf.sparse.from_dense(IDS)
    small = compress(model, sample_inputs=sparse)
    check(model, small, sparse)


def test_ragged_ids():
    model = keras.Sequential([EmbedReduce(ROWS, WIDTH, name="bag")])
    ragged = tf.ragged.constant([[1, 2, 3], [], [59]], tf.int32)
    model(ragged)
    small = compress(model, sample_inputs=ragged)
    check(model, small, ragged)


def test_ids_that_are_not_reduced():
    model = functional(ids=keras.Input((), dtype="int32"))
    check(model, compress(model), IDS[:, 0])


@keras.saving.register_keras_serializable(package="test_embed_reduce")
class Bags(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.bags = {"bag": EmbedReduce(ROWS, WIDTH, name="bag")}

    def call(self, ids):
        return self.bags["bag"](ids)


def test_in_a_subclassed_model(tmp_path):
    model = Bags()
    model(IDS)
    small = compress(model)
    check(model, small, IDS)
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    np.testing.assert_array_equal(loaded(IDS), small(IDS))


def test_fit_and_codes_that_follow():
    model = functional()
    model.compile("sgd", "mse")
    small = compress(model, recode_every=1)
    recode = kc.compression.RecodeEmbeddings()
    small.fit(IDS, np.ones((2, WIDTH)), callbacks=[recode], verbose=0)
    check(model, small, IDS)


class MethodsOnly(EmbedReduce):
    def norms(self):
        return keras.ops.norm(self.embeddings, axis=-1)


class Doubled(EmbedReduce):
    def call(self, inputs, weights=None):
        return 2 * super().call(inputs, weights)


def test_subclasses(capsys):
    ids = keras.Input((None,), dtype="int32")
    parts = [
        cls(ROWS, WIDTH, name=cls.__name__)(ids)
        for cls in (MethodsOnly, Doubled)
    ]
    model = keras.Model(ids, keras.layers.Add()(parts))
    small = compress(model, verbose=1)
    assert type(small.get_layer("MethodsOnly")) is kc.CodeEmbedReduce
    assert type(small.get_layer("Doubled")) is Doubled
    said = capsys.readouterr().out
    assert "MethodsOnly: a CodeEmbedReduce without `norms`" in said
    assert "Doubled does more than an EmbedReduce, by `call`" in said


def test_lora():
    model = functional()
    layer = model.get_layer("bag")
    layer.enable_lora(2)
    layer.lora_embeddings_b.assign(np.ones((2, WIDTH)))
    assert type(compress(model).get_layer("bag")) is kc.CodeEmbedReduce


def test_it_pools_by_itself():
    with pytest.raises(ValueError, match="for a layer that pools by itself"):
        compress(functional(), layer_settings={"bag": {"pooled": False}})
    compress(functional(), layer_settings={"bag": {"pooled": True}})
