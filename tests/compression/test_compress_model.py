import functools

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.utils.sizes import format_bytes

layers = keras.layers


class MaskedEmbedding(layers.Embedding):
    """Adds masking and nothing else."""

    def compute_mask(self, inputs, mask=None):
        return keras.ops.not_equal(inputs, 0)


class MasksLastId(layers.Embedding):
    def compute_mask(self, inputs, mask=None):
        return keras.ops.not_equal(inputs, self.input_dim - 1)


class ScaledEmbedding(layers.Embedding):
    def call(self, inputs):
        return 2.0 * super().call(inputs)


class Holder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Embedding(40, 8, name="inner")

    def build(self, input_shape):
        self.inner.build()

    def call(self, inputs):
        return self.inner(inputs)


def compress(model, **kwargs):
    settings = {
        "num_codebooks": 4,
        "codebook_size": 8,
        "min_bytes": 1000,
        "seed": 0,
        "verbose": 0,
    }
    return kc.compression.compress_model(model, **{**settings, **kwargs})


def sequential(rows=60, **kwargs):
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(rows, 8, name="words", **kwargs),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3),
        ]
    )


def swap_in_numpy(model, small, ids, names):
    """The original's output with the tables of the small model put in it."""
    tables = {}
    for name, layer in names.items():
        tables[name] = layer.get_weights()
        layer.set_weights([find(small, name).embeddings])
    outputs = np.asarray(model(ids))
    for name, layer in names.items():
        layer.set_weights(tables[name])
    return outputs


def find(model, name):
    (layer,) = (x for x in model._flatten_layers() if x.name == name)
    return layer


def test_sequential():
    model = sequential(mask_zero=True)
    ids = np.array([[1, 2, 0], [59, 3, 4]])
    before = np.asarray(model(ids))
    weights = model.get_weights()
    small = compress(model)

    layer = small.get_layer("words")
    assert isinstance(layer, kc.CodeEmbedding)
    assert layer.mask_zero
    assert [x.name for x in small.layers] == [x.name for x in model.layers]
    expected = swap_in_numpy(
        model, small, ids, {"words": model.get_layer("words")}
    )
    np.testing.assert_allclose(small(ids), expected, atol=1e-6)

    small.compile("sgd", "mse")
    small.fit(ids, np.ones((2, 3)), verbose=0)
    np.testing.assert_array_equal(np.asarray(model(ids)), before)
    for weight, same in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, same)


def test_codes_follow_the_table():
    model = sequential(embeddings_initializer="zeros")
    table = np.repeat(np.eye(8), 8, axis=0)[:60]
    model.get_layer("words").set_weights([table])
    small = compress(model, codebook_size=8)
    error = small.get_layer("words").embeddings - table
    assert np.sum(error**2) < 0.05 * np.sum(table**2)


def test_functional_with_shared_layers_and_several_inputs():
    left = keras.Input((4,), dtype="int32", name="left")
    right = keras.Input((4,), dtype="int32", name="right")
    shared = layers.Embedding(50, 8, name="shared")
    other = layers.Embedding(70, 8, name="other")
    merged = layers.Concatenate()([shared(left), shared(right), other(left)])
    outputs = layers.Dense(2)(layers.Flatten()(merged))
    model = keras.Model({"left": left, "right": right}, outputs)
    small = compress(model)
    assert sum(isinstance(x, kc.CodeEmbedding) for x in small.layers) == 2
    ids = {
        "left": np.array([[1, 2, 3, 49]]),
        "right": np.array([[0, 7, 7, 9]]),
    }
    expected = swap_in_numpy(
        model, small, ids, {"shared": shared, "other": other}
    )
    np.testing.assert_allclose(small(ids), expected, atol=1e-6)


def test_nested_models():
    tower = sequential()
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, layers.Dense(2)(tower(inputs)))
    outer = keras.Sequential([keras.Input((None,), dtype="int32"), model])
    small = compress(outer)
    ids = np.array([[1, 2, 3]])
    expected = swap_in_numpy(
        outer, small, ids, {"words": tower.get_layer("words")}
    )
    np.testing.assert_allclose(small(ids), expected, atol=1e-6)
    assert isinstance(tower.get_layer("words"), layers.Embedding)


def test_state_of_other_layers_is_copied():
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(60, 8),
            layers.BatchNormalization(),
            layers.Dropout(0.5, seed=1),
            layers.Bidirectional(layers.LSTM(3)),
        ]
    )
    model.compile("sgd", "mse")
    ids = np.arange(60).reshape(12, 5)
    model.fit(ids, np.ones((12, 6)), verbose=0)
    small = compress(model)
    for layer, same in zip(model.layers[1:], small.layers[1:], strict=True):
        for weight, copy in zip(layer.variables, same.variables, strict=True):
            np.testing.assert_array_equal(weight.numpy(), copy.numpy())


def test_vocabulary_is_copied():
    lookup = layers.StringLookup()
    lookup.adapt(np.array(["a", "b", "b", "c"] * 3))
    words = keras.Input((None,), dtype="string")
    outputs = layers.Embedding(60, 8)(lookup(words))
    small = compress(keras.Model(words, outputs))
    (copy,) = (x for x in small.layers if isinstance(x, layers.StringLookup))
    assert copy.get_vocabulary() == lookup.get_vocabulary()


def test_trainability():
    model = sequential()
    model.get_layer("words").trainable = False
    small = compress(model)
    assert not small.get_layer("words").trainable_weights
    assert len(small.trainable_weights) == 2
    model = sequential()
    model.trainable = False
    small = compress(model)
    assert not small.trainable
    assert not small.trainable_weights


def test_compile_state():
    model = sequential()
    assert not compress(model).compiled
    model.compile(
        keras.optimizers.Adam(0.123), "mse", metrics=["mae"], jit_compile=False
    )
    small = compress(model)
    assert small.compiled
    assert float(small.optimizer.learning_rate) == pytest.approx(0.123)
    assert small.loss == "mse"
    assert small.jit_compile is False
    small.fit(np.array([[1]]), np.ones((1, 3)), verbose=0)


def unregistered_loss(y_true, y_pred):
    return keras.ops.mean(y_pred - y_true, axis=-1)


@pytest.mark.parametrize("loss", [unregistered_loss, lambda y, z: z - y])
def test_compile_state_in_memory(loss):
    model = sequential()
    model.compile("sgd", loss=loss)
    small = compress(model)
    assert small.loss is loss
    small.fit(np.array([[1]]), np.ones((1, 3)), verbose=0)


class LearnsNothing(kc.learners.AdditiveQuantizer):
    def train(self, table, sample_weight=None):
        raise AssertionError("codes are learned before all is checked")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"sample_inputs": np.array([[60]])}, "`sample_inputs` must be inputs"),
        ({"composition": "concat"}, "`composition` must be that of the `lear"),
        (
            {"layer_settings": {"words": {"sample_weight": [1.0]}}},
            "`sample_weight` must hold one number",
        ),
    ],
)
def test_errors_come_before_codes_are_learned(arguments, message):
    model = sequential()
    with pytest.raises(ValueError, match=message):
        compress(model, learner=LearnsNothing, **arguments)


def test_tables_must_be_finite():
    model = sequential()
    table = np.ones((60, 8))
    table[3] = np.nan
    model.get_layer("words").set_weights([table])
    message = "embeddings of words` must be finite.*row 3"
    with pytest.raises(ValueError, match=message):
        compress(model, learner=LearnsNothing)


# `pytest.warns` gives again what Keras warns of, as if it came from here.
@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
def test_a_warning_of_compile_comes_before_codes_are_learned():
    class NoConfig(keras.optimizers.SGD):
        def get_config(self):
            raise NotImplementedError

    model = sequential()
    model.compile(NoConfig(), "mse")
    with pytest.warns(UserWarning, match="Call `compile` on the copy"):
        with pytest.raises(AssertionError):
            compress(model, learner=LearnsNothing)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_dtype_policy(policy):
    small = compress(sequential(dtype=policy), min_bytes=0)
    layer = small.get_layer("words")
    assert layer.dtype_policy == keras.DTypePolicy(policy)
    assert layer.compute_dtype == keras.DTypePolicy(policy).compute_dtype


def test_masking_subclass_is_replaced():
    model = keras.Sequential(
        [keras.Input((None,), dtype="int32"), MaskedEmbedding(60, 8)]
    )
    assert compress(model).layers[0].mask_zero


@pytest.mark.parametrize("cls", [MasksLastId, ScaledEmbedding])
def test_other_subclasses_are_left(cls, capsys):
    inputs = keras.Input((None,), dtype="int32")
    special = cls(60, 8, name="special")(inputs)
    plain = layers.Embedding(60, 8, name="plain")(inputs)
    model = keras.Model(inputs, layers.Add()([special, plain]))
    small = compress(model, verbose=1)
    assert type(small.get_layer("special")) is cls
    assert isinstance(small.get_layer("plain"), kc.CodeEmbedding)
    assert f"its class {cls.__name__} does more" in capsys.readouterr().out


def test_what_is_done_and_skipped_is_said(capsys):
    inputs = keras.Input((None,), dtype="int32")
    parts = [
        layers.Embedding(60, 8, name="large")(inputs),
        layers.Embedding(60, 8, name="unnamed")(inputs),
        layers.Embedding(20, 8, name="tiny")(inputs),
        Holder(name="holder")(inputs),
    ]
    model = keras.Model(inputs, layers.Concatenate()(parts))
    small = compress(model, min_bytes=1500, verbose=1)
    said = capsys.readouterr().out
    assert "tiny: left as it is, 640 B is below `min_bytes`" in said
    assert "inner: left as it is, 1.25 KB is below `min_bytes`" in said
    assert "large: 60 x 8 table, 1.88 KB -> 1.12 KB" in said
    assert isinstance(small.get_layer("holder"), Holder)
    compress(model, layers=["large"], num_codebooks=2, verbose=1)
    said = capsys.readouterr().out
    assert "unnamed: left as it is, not named in `layers`" in said


def two_towers():
    """Two models with an Embedding of one name, and another."""
    inputs = keras.Input((5,), dtype="int32")
    parts = [
        keras.Sequential(
            [layers.Embedding(rows, 8, name="words"), layers.Dense(8)],
            name=name,
        )
        for name, rows in (("tower_a", 60), ("tower_b", 70))
    ]
    parts.append(layers.Embedding(80, 8, name="kinds"))
    outputs = layers.Add()([part(inputs) for part in parts])
    return keras.Model(inputs, outputs)


def test_layers_of_one_name(capsys):
    small = compress(
        two_towers(),
        layers=["tower_b/words", "kinds"],
        layer_settings={"tower_b/words": {"num_codebooks": 2}},
        verbose=1,
    )
    words = [
        small.get_layer(name).get_layer("words")
        for name in ("tower_a", "tower_b")
    ]
    assert isinstance(words[0], layers.Embedding)
    assert words[1].codes.shape == (70, 2)
    said = capsys.readouterr().out
    assert "tower_a/words: left as it is" in said
    assert "tower_b/words: 70 x 8 table" in said
    assert "\nkinds: 80 x 8 table" in said


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"layers": ["words"]},
            r"the name of \['tower_a/words', 'tower_b/words'\]",
        ),
        (
            {"layer_settings": {"words": {"num_codebooks": 2}}},
            "`layer_settings` must name layers by path",
        ),
        (
            {
                "layer_settings": {
                    "kinds": {
                        "method": kc.methods.Rounded(4),
                        "num_codebooks": 8,
                    }
                }
            },
            "a `method` and num_codebooks",
        ),
        (
            {"method": kc.methods.Codes(4, 16), "num_codebooks": 32},
            "`method` must not be given with num_codebooks",
        ),
        ({"layers": ["tower_c/words"]}, r"are \['kinds', 'words'\]"),
        (
            {"layers": ["kinds"], "codebook_size": 256},
            "'kinds', but codes 4x256",
        ),
    ],
)
def test_names_that_are_no_layer(arguments, message):
    with pytest.raises(ValueError, match=message):
        compress(two_towers(), **arguments)


@pytest.mark.parametrize(
    "policy, composition",
    [("float32", "sum"), ("float16", "sum"), ("float32", "lstm")],
)
def test_bytes_said_are_those_of_the_copy(policy, composition, capsys):
    model = sequential(rows=3000, dtype=policy)
    learner = kc.learners.AdditiveQuantizer
    if composition == "lstm":

        def learner(*shape):
            return kc.learners.KDCodeLearner(
                *shape,
                "lstm",
                training=kc.learners.Training(iterations=3),
                seed=0,
                verbose=0,
            )

    small = compress(model, learner=learner, verbose=1)
    said = capsys.readouterr().out
    layer = find(small, "words")
    held = sum(w.numpy().nbytes for w in layer.weights)
    table = 3000 * 8 * layer.codebooks.numpy().itemsize
    sizes = f"{format_bytes(table)} -> {format_bytes(held)}"
    assert f"words: 3000 x 8 table, {sizes}" in said
    sizes = [
        format_bytes(sum(w.numpy().nbytes for w in x.weights))
        for x in (model, small)
    ]
    assert f"{model.name}: {sizes[0]} -> {sizes[1]} in all" in said


def codes_with(learner, **kwargs):
    model = sequential()
    model.set_weights(
        [np.random.default_rng(0).normal(size=w.shape) for w in model.weights]
    )
    small = compress(model, learner=learner, **kwargs)
    return find(small, "words").codes


@pytest.mark.parametrize(
    "learner",
    [
        kc.learners.RandomCodeLearner,
        functools.partial(
            kc.learners.GumbelCodeLearner,
            training=kc.learners.Training(iterations=3),
            verbose=0,
        ),
    ],
)
def test_seed_of_given_learners(learner):
    codes = codes_with(learner, seed=3)
    np.testing.assert_array_equal(codes, codes_with(learner, seed=3))
    assert np.any(codes != codes_with(learner, seed=4))
    # Its own comes first.
    own = functools.partial(learner, seed=3)
    np.testing.assert_array_equal(codes, codes_with(own, seed=4))


@pytest.mark.parametrize("verbose", [0, 1])
def test_given_learners_are_as_silent(verbose, capsys):
    codes_with(kc.learners.AdditiveQuantizer, verbose=verbose)
    assert ("step" in capsys.readouterr().out) == bool(verbose)


def test_learners_that_take_no_seed():
    def unseeded(*shape):
        return kc.learners.RandomCodeLearner(*shape)

    with pytest.raises(ValueError, match="`seed` must be None with a `learn"):
        codes_with(unseeded, seed=0)
    assert codes_with(unseeded, seed=None).shape == (60, 4)


def test_what_would_be_no_smaller_with_the_composition_of_its_learner():
    # The weights of an LSTM, which the default composition has not.
    with pytest.raises(ValueError, match="would be no smaller"):
        compress(
            sequential(),
            codebook_size=2,
            learner=functools.partial(
                kc.learners.KDCodeLearner, composition="lstm"
            ),
        )


def test_latent_vectors_are_said_apart(capsys):
    small = compress(sequential(), recode_every=5, verbose=1)
    said = capsys.readouterr().out
    assert "1.88 KB -> 1.12 KB" in said
    assert "besides, 1.88 KB of latent vectors until `freeze_codes`" in said
    layer = find(small, "words")
    layer.freeze_codes()
    assert sum(w.numpy().nbytes for w in layer.weights) == 2 * 60 + 1024


def test_settings_of_one_layer():
    inputs = keras.Input((None,), dtype="int32")
    parts = [
        layers.Embedding(60, 8, name=name)(inputs) for name in ("first", "last")
    ]
    model = keras.Model(inputs, layers.Add()(parts))
    small = compress(
        model,
        layer_settings={
            "last": {
                "num_codebooks": 3,
                "codebook_size": 5,
                "sample_weight": np.arange(60),
                "learner": lambda m, k: kc.learners.AdditiveQuantizer(
                    m, k, seed=3, verbose=0
                ),
            }
        },
    )
    assert small.get_layer("first").codebooks.shape == (4, 8, 8)
    assert small.get_layer("last").codebooks.shape == (3, 5, 8)


@pytest.mark.parametrize("composition", ["concat", "linear", "lstm"])
def test_compositions(composition):
    small = compress(
        sequential(rows=200),
        composition=composition,
        learner=lambda *shape: kc.learners.KDCodeLearner(
            *shape,
            composition,
            training=kc.learners.Training(iterations=5),
            seed=0,
            verbose=0,
        ),
    )
    layer = find(small, "words")
    kind = type(layer.composition.unscaled()).__name__.lower()
    assert kind == f"{composition}composition"
    small(np.array([[1, 2, 3]]))


def test_settings_of_one_layer_name_its_composition(capsys):
    small = compress(
        sequential(),
        composition="lstm",
        layer_settings={"words": {"composition": "sum"}},
    )
    assert isinstance(
        find(small, "words").composition, kc.compositions.SumComposition
    )
    with pytest.raises(ValueError, match="narrower than `num_codebooks`"):
        compress(sequential(), num_codebooks=9, composition="concat")
    with pytest.raises(ValueError, match="`composition` must be 'sum'"):
        compress(sequential(), composition="mean")


def test_saved_and_loaded(tmp_path):
    small = compress(sequential())
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    ids = np.array([[1, 2, 3]])
    np.testing.assert_array_equal(loaded(ids), small(ids))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_codebooks": 0}, "`num_codebooks` must be a positive integer"),
        ({"codebook_size": 1}, "`codebook_size` must be an integer from 2"),
        ({"min_bytes": -1}, "`min_bytes` must be an integer of at least 0"),
        ({"min_bytes": 10**6}, "words: left as it is, 1.88 KB is below"),
        ({"layers": ["word"]}, r"which are \['words'\]. Received: 'word'"),
        ({"layers": "words"}, "`layers` must be a list of names"),
        ({"layers": []}, "not named in `layers`"),
        ({"layer_settings": {"word": {}}}, "`layer_settings` must name"),
        ({"layer_settings": {"words": {"m": 4}}}, "`layer_settings` may set"),
        (
            {"layer_settings": {"words": {"codebook_size": 1}}},
            "`codebook_size` must be an integer from 2",
        ),
        (
            {"layer_settings": {"words": {"sample_weight": [1.0]}}},
            "`sample_weight` must hold one number",
        ),
        ({"codebook_size": 64}, "would be no smaller than it is"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        compress(sequential(), **arguments)


def test_bad_models():
    class Subclassed(keras.Model):
        pass

    with pytest.raises(ValueError, match="`model` must be built"):
        compress(Subclassed())
    with pytest.raises(TypeError, match="`model` must be a `keras.Model`"):
        compress("model.keras")
    with pytest.raises(ValueError, match="`model` must be built"):
        compress(keras.Sequential([layers.Embedding(60, 8)]))
    dense = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    with pytest.raises(ValueError, match="it has no Embedding layers.$"):
        compress(dense)
    small = compress(sequential(600))
    for limit in ({}, {"max_bytes": 50_000}):
        with pytest.raises(ValueError, match="is compressed already: words"):
            kc.compression.compress_model(small, **limit)
