"""Tables whose rows only a pooling reads."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc

layers = keras.layers
ROWS, WIDTH = 60, 8
IDS = np.array([[1, 2, 0, 59], [3, 0, 0, 0]])


def compress(model, **kwargs):
    settings = {
        "num_codebooks": 4,
        "codebook_size": 8,
        "min_bytes": 1000,
        "learner": kc.learners.RandomCodeLearner,
        "verbose": 0,
    }
    return kc.compression.compress_model(model, **{**settings, **kwargs})


def ids_input(**kwargs):
    return keras.Input((None,), **{"dtype": "int32", **kwargs})


def table(name=None, **kwargs):
    return layers.Embedding(ROWS, WIDTH, name=name, **kwargs)


def sequential(pool=None, **kwargs):
    pool = pool or layers.GlobalAveragePooling1D(name="pool")
    words = table("words", **kwargs)
    return keras.Sequential([ids_input(), words, pool, layers.Dense(3)])


def with_rows(model, small, ids=IDS):
    """What a model gives with the vectors of its copy in its tables."""
    tables = {}
    for layer in model._flatten_layers():
        same = [x for x in small._flatten_layers() if x.name == layer.name]
        if isinstance(same[0], kc.CodeEmbedding):
            tables[layer] = layer.get_weights()
            layer.set_weights([same[0].embeddings])
    outputs = run(model, ids)
    for layer, weights in tables.items():
        layer.set_weights(weights)
    return outputs


def run(model, ids=IDS):
    outputs = keras.tree.flatten(model(ids, training=False))
    return [keras.ops.convert_to_numpy(output) for output in outputs]


def check_same(got, expected, tolerance=1e-6):
    for array, wanted in zip(got, expected, strict=True):
        assert array.shape == wanted.shape
        np.testing.assert_allclose(array, wanted, atol=tolerance)


def names(model):
    return [layer.name for layer in model.layers]


@pytest.mark.parametrize("mask_zero", [False, True])
@pytest.mark.parametrize("keepdims", [False, True])
def test_global_average_pooling(mask_zero, keepdims, capsys):
    pool = layers.GlobalAveragePooling1D(keepdims=keepdims, name="pool")
    model = sequential(pool, mask_zero=mask_zero)
    small = compress(model, verbose=1)
    layer = small.get_layer("words")
    assert isinstance(layer, kc.CodeEmbedReduce)
    assert layer.mask_zero is mask_zero and layer.combiner == "mean"
    kind = layers.Reshape if keepdims else layers.Identity
    assert type(small.get_layer("pool")) is kind
    assert names(small) == names(model)
    assert small.output_shape == model.output_shape
    # Nothing but padding gives what it gave: no number.
    ids = np.array([*IDS, [0, 0, 0, 0]])
    check_same(run(small, ids), with_rows(model, small, ids))
    assert np.isnan(run(small, ids)[0][-1]).all() == mask_zero
    said = capsys.readouterr().out
    assert "words: pooled by the layer itself, in place of 'pool'" in said


def test_texts_without_ids():
    model = sequential()
    small = compress(model)
    ids = np.zeros((2, 0), "int32")
    assert np.isnan(run(model, ids)[0]).all()
    assert np.isnan(run(small, ids)[0]).all()


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: keras.ops.mean(x, axis=1),
        lambda x: keras.ops.mean(x, axis=[-2], keepdims=True),
        lambda x: keras.ops.sum(x, axis=1),
        lambda x: keras.ops.sum(x, -2, True),
    ],
)
def test_operations(pool, tmp_path):
    inputs = ids_input()
    # These read no masks.
    x = pool(table("words", mask_zero=True)(inputs))
    model = keras.Model(inputs, layers.Dense(3)(x))
    small = compress(model)
    assert isinstance(small.get_layer("words"), kc.CodeEmbedReduce)
    assert names(small) == names(model)
    assert [x.name for x in small.operations] == [
        x.name for x in model.operations
    ]
    check_same(run(small), with_rows(model, small))
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    assert [x.name for x in loaded.operations] == [
        x.name for x in small.operations
    ]
    check_same(run(loaded), run(small), 0)


def test_mean_of_one_and_rows_of_another():
    first, second = ids_input(name="first"), ids_input(name="second")
    pool = layers.GlobalAveragePooling1D(name="pool")
    masked, plain = table("masked", mask_zero=True), table("plain")
    text = layers.LSTM(4)(table("rows")(second))
    # One pooling of two tables.
    x = layers.Concatenate()([pool(masked(first)), pool(plain(second)), text])
    model = keras.Model([first, second], layers.Dense(3)(x))
    small = compress(model)
    assert isinstance(small.get_layer("pool"), layers.Identity)
    kinds = [type(small.get_layer(x)) for x in ("masked", "plain", "rows")]
    assert kinds == 2 * [kc.CodeEmbedReduce] + [kc.CodeEmbedding]
    inputs = [IDS, IDS[:, ::-1]]
    check_same(run(small, inputs), with_rows(model, small, inputs))


def read_twice(inputs):
    x = table("words")(inputs)
    return layers.GlobalAveragePooling1D()(x), layers.GlobalMaxPooling1D()(x)


def rows_as_output(inputs):
    x = table("words")(inputs)
    return layers.GlobalAveragePooling1D()(x), x


def looked_up_twice(inputs):
    words, pool = table("words"), layers.GlobalAveragePooling1D()
    return pool(words(inputs)), pool(words(inputs + 1 - 1))


class Norms(layers.Layer):
    def __init__(self, words, **kwargs):
        super().__init__(**kwargs)
        self.words = words

    def call(self, ids):
        return keras.ops.norm(self.words(ids), axis=-1)

    def get_config(self):
        words = keras.saving.serialize_keras_object(self.words)
        return {**super().get_config(), "words": words}

    @classmethod
    def from_config(cls, config):
        words = keras.saving.deserialize_keras_object(config.pop("words"))
        return cls(words, **config)


def held_by_another(inputs):
    words = table("words")
    rows = words(inputs)
    return layers.GlobalAveragePooling1D()(rows), Norms(words)(inputs)


def pooled_outside(inputs):
    inner = keras.Sequential([ids_input(), table("words")])
    return layers.GlobalAveragePooling1D()(inner(inputs))


def shared_by_models(inputs):
    words = table("words")
    inner = keras.Sequential([ids_input(), words, layers.LSTM(3)])
    return layers.GlobalAveragePooling1D()(words(inputs)), inner(inputs)


def dropout_between(inputs):
    x = layers.Dropout(0.5)(table("words")(inputs))
    return layers.GlobalAveragePooling1D()(x)


def other_mask(inputs):
    x = table("words", mask_zero=True)(inputs)
    return layers.GlobalAveragePooling1D()(x, mask=keras.ops.less(inputs, 9))


def pooling_of_something_else(inputs):
    x = table("words")(inputs)
    pool = layers.GlobalAveragePooling1D()
    return pool(x), pool(layers.Dense(2)(table("more")(inputs)))


def pooled_over_columns(inputs):
    pool = layers.GlobalAveragePooling1D("channels_first")
    return pool(table("words")(inputs))


def mean_over_columns(inputs):
    return keras.ops.mean(table("words")(inputs), axis=2)


def mean_over_all(inputs):
    return keras.ops.mean(table("words")(inputs), axis=(1, 2))


def pooled_in_more_digits(inputs):
    x = table("words", dtype="mixed_bfloat16")(inputs)
    return layers.GlobalAveragePooling1D()(x)


def with_loss_on_rows(inputs):
    x = table("words", activity_regularizer="l2")(inputs)
    return layers.GlobalAveragePooling1D()(x)


def with_loss_on_means(inputs):
    pool = layers.GlobalAveragePooling1D(activity_regularizer="l2")
    return pool(table("words")(inputs))


class OwnPooling(layers.GlobalAveragePooling1D):
    pass


def pooled_by_a_subclass(inputs):
    return OwnPooling()(table("words")(inputs))


@pytest.mark.parametrize(
    "build",
    [
        read_twice,
        rows_as_output,
        looked_up_twice,
        held_by_another,
        pooled_outside,
        shared_by_models,
        dropout_between,
        other_mask,
        pooling_of_something_else,
        pooled_over_columns,
        mean_over_columns,
        mean_over_all,
        pooled_in_more_digits,
        with_loss_on_rows,
        with_loss_on_means,
        pooled_by_a_subclass,
    ],
)
def test_rows_that_are_read_otherwise(build):
    inputs = keras.Input((4,), dtype="int32")
    model = keras.Model(inputs, build(inputs))
    small = compress(model)
    found = [x for x in small._flatten_layers() if x.name == "words"]
    assert [type(x) for x in found] == [kc.CodeEmbedding]
    assert type(found[0]) is not kc.CodeEmbedReduce
    with pytest.raises(ValueError, match="may have pooled=True for layers who"):
        compress(model, layer_settings={found[0].name: {"pooled": True}})


def test_ids_of_other_kinds():
    # Sparse ids, of which those that are missing count as 0.
    inputs = ids_input(sparse=True)
    outputs = layers.GlobalAveragePooling1D()(table("words")(inputs))
    model = keras.Model(inputs, outputs)
    sparse = tf.sparse.from_dense(IDS)
    small = compress(model, sample_inputs=sparse)
    assert type(small.get_layer("words")) is kc.CodeEmbedding
    # Vectors of more axes, of which a mean over axis 1 leaves another.
    inputs = keras.Input((3, 4), dtype="int32")
    outputs = keras.ops.mean(table("words")(inputs), axis=1)
    small = compress(keras.Model(inputs, outputs))
    assert type(small.get_layer("words")) is kc.CodeEmbedding


def test_rows_on_request():
    model = sequential(mask_zero=True)
    small = compress(model, layer_settings={"words": {"pooled": False}})
    assert type(small.get_layer("words")) is kc.CodeEmbedding
    rows = keras.Model(small.inputs[0], small.get_layer("words").output)
    assert rows(IDS).shape == (2, 4, WIDTH)
    check_same(run(small), with_rows(model, small))
    small = compress(model, layer_settings={"words": {"pooled": True}})
    pooled = keras.Model(small.inputs[0], small.get_layer("words").output)
    assert pooled(IDS).shape == (2, WIDTH)
    with pytest.raises(ValueError, match="`pooled` must be True or False"):
        compress(model, layer_settings={"words": {"pooled": "rows"}})


def test_pooling_of_a_table_that_stays():
    inputs = ids_input()
    pool = layers.GlobalAveragePooling1D(name="pool")
    few = layers.Embedding(5, WIDTH, name="few")
    x = pool(table("words")(inputs)) + pool(few(keras.ops.minimum(inputs, 4)))
    model = keras.Model(inputs, x)
    small = compress(model)
    assert type(small.get_layer("pool")) is layers.GlobalAveragePooling1D
    assert type(small.get_layer("words")) is kc.CodeEmbedding
    check_same(run(small), with_rows(model, small))
    with pytest.raises(ValueError, match="'words', whose 'pool' also pools"):
        compress(model, layer_settings={"words": {"pooled": True}})


def test_nested_models():
    tower = sequential()
    inner = keras.Model(tower.inputs, tower.outputs[0], name="inner")
    inputs = ids_input()
    # A tower that is called twice is one graph.
    outputs = layers.Add()([inner(inputs), inner(inputs * 1)])
    model = keras.Sequential([ids_input(), keras.Model(inputs, outputs)])
    small = compress(model)
    (words,) = (x for x in small._flatten_layers() if x.name == "words")
    assert isinstance(words, kc.CodeEmbedReduce)
    check_same(run(small), with_rows(model, small))


def test_models_that_share_an_embedding():
    model = sequential()
    words = model.get_layer("words")
    inputs = ids_input()
    # Of another model, which is not compressed.
    keras.Model(inputs, layers.LSTM(3)(words(inputs)))
    assert isinstance(compress(model).layers[0], kc.CodeEmbedReduce)


def test_sequential_model_without_input():
    model = keras.Sequential(
        [table("words", mask_zero=True), layers.GlobalAveragePooling1D()]
    )
    model(IDS)
    small = compress(model, sample_inputs=IDS)
    assert isinstance(small.layers[0], kc.CodeEmbedReduce)
    check_same(run(small), with_rows(model, small))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_half_precision(policy):
    pool = layers.GlobalAveragePooling1D(dtype=policy, name="pool")
    model = sequential(pool, dtype=policy, mask_zero=True)
    small = compress(model, min_bytes=0)
    words, after = small.layers[:2]
    assert isinstance(words, kc.CodeEmbedReduce)
    for layer in (words, after):
        assert layer.dtype_policy == keras.DTypePolicy(policy)
    half = keras.DTypePolicy(policy).compute_dtype
    assert small.get_layer("pool").output.dtype == half
    check_same(run(small), with_rows(model, small), 1e-3)


def test_other_forms_of_tables():
    model = sequential()
    model.get_layer("words").enable_lora(2)
    model.get_layer("words").lora_embeddings_b.assign(np.ones((2, WIDTH)))
    assert isinstance(compress(model).layers[0], kc.CodeEmbedReduce)
    model = sequential()
    model.get_layer("words").quantize("int8")
    small = compress(model, min_bytes=0, num_codebooks=1)
    assert isinstance(small.layers[0], kc.CodeEmbedReduce)


def test_copy_is_compared(monkeypatch):
    class Wrong(kc.CodeEmbedReduce):
        def call(self, inputs, **kwargs):
            return 1.01 * super().call(inputs, **kwargs)

    monkeypatch.setattr(kc.methods.Codes, "reduce", Wrong)
    with pytest.raises(ValueError, match="first .* is the layer 'pool'"):
        compress(sequential())


def test_trainability_and_compile_state():
    model = sequential()
    model.get_layer("words").trainable = False
    model.get_layer("pool").trainable = False
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    small = compress(model)
    assert small.compiled and len(small.trainable_weights) == 2
    assert not small.get_layer("pool").trainable
    small.get_layer("words").trainable = True
    small.compile("adam", "mse")
    before = small.get_layer("words").codebooks.numpy()
    small.fit(IDS, np.ones((2, 3)), sample_weight=np.ones(2), verbose=0)
    assert np.any(small.get_layer("words").codebooks.numpy() != before)
    check_same(run(small), with_rows(model_with(small, model), small))


def model_with(small, model):
    """A model with the weights behind the table that a copy has."""
    model.layers[-1].set_weights(small.layers[-1].get_weights())
    return model


def test_cloned_and_trained_with_codes_that_follow(tmp_path):
    model = sequential(mask_zero=True)
    small = compress(model, recode_every=1)
    clone = keras.models.clone_model(small)
    clone.set_weights(small.get_weights())
    check_same(run(clone), run(small), 0)
    small.compile("sgd", "mse")
    recode = kc.compression.RecodeEmbeddings()
    small.fit(IDS, np.ones((2, 3)), callbacks=[recode], verbose=0)
    small.get_layer("words").freeze_codes()
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    check_same(run(loaded), run(small), 0)
    check_same(run(small), with_rows(model_with(small, model), small))


def test_two_devices(strategy):
    with strategy.scope():
        model = sequential(mask_zero=True)
        model.compile("sgd", "mse")
        small = compress(model)
    before = small.get_layer("words").codebooks.numpy()
    small.fit(IDS, np.ones((2, 3)), batch_size=2, verbose=0)
    after = small.get_layer("words").codebooks.numpy()
    assert np.isfinite(after).all() and (after != before).any()
