import keras
import numpy as np
import pytest

import keras_compembed as kc

layers = keras.layers
# `pytest.warns` gives again what Keras warns of, as if it came from here.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")


class Shift(layers.Layer):
    """Keras makes up a config for it, without its name."""

    def __init__(self, **options):
        super().__init__(**options)

    def build(self, input_shape):
        self.shift = self.add_weight(shape=(8,), name="shift")

    def call(self, inputs):
        return keras.ops.sin(inputs + self.shift)


class ShiftWithoutOptions(Shift):
    """Its config has arguments that it does not take."""

    def __init__(self):
        super().__init__()


class TiedLogits(layers.Layer):
    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding
        # Held twice.
        self.also = embedding

    def call(self, inputs):
        table = keras.ops.convert_to_tensor(self.embedding.embeddings)
        return keras.ops.matmul(inputs, keras.ops.transpose(table))

    def get_config(self):
        embedding = keras.saving.serialize_keras_object(self.embedding)
        return {**super().get_config(), "embedding": embedding}

    @classmethod
    def from_config(cls, config):
        config["embedding"] = keras.saving.deserialize_keras_object(
            config["embedding"]
        )
        return cls(**config)


class HoldsVariable(layers.Layer):
    """Reads the table of a layer that it does not hold."""

    table = None

    def build(self, input_shape):
        self.kernel = self.table
        if self.table is None:
            self.kernel = self.add_weight(shape=(60, 8))

    def call(self, inputs):
        kernel = keras.ops.convert_to_tensor(self.kernel)
        return keras.ops.matmul(inputs, keras.ops.transpose(kernel))


class FirstRowsAsCodewords(kc.learners.CodeLearner):
    num_codebooks, codebook_size = 1, 50

    def train(self, table, sample_weight=None):
        codes = np.minimum(np.arange(len(table)), 49)
        self.codes = codes[:, None].astype("uint8")
        self.codebooks = np.asarray(table, "float32")[None, :50]
        return self

    def encode(self, table):
        raise NotImplementedError


class NeverTrained(kc.learners.AdditiveQuantizer):
    """A learner that no error may come after."""

    def train(self, table, sample_weight=None):
        raise AssertionError("codes are learned before all is checked")


def compress(model, **kwargs):
    settings = {
        "num_codebooks": 4,
        "codebook_size": 8,
        "min_bytes": 1000,
        "seed": 0,
        "verbose": 0,
    }
    return kc.compression.compress_model(model, **{**settings, **kwargs})


def words_model(*parts, rows=60, **kwargs):
    """A functional model of an Embedding and one layer after another."""
    inputs = x = keras.Input((5,), dtype="int32")
    for part in (layers.Embedding(rows, 8, name="words"), *parts):
        x = part(x)
    return keras.Model(inputs, x, **kwargs)


def outputs_with_codes(model, small, ids):
    """What the model gives with the copy's rows in its table."""
    words = model.get_layer("words")
    table = words.get_weights()
    words.set_weights([small.get_layer("words").embeddings])
    outputs = np.asarray(model(ids))
    words.set_weights(table)
    return outputs


def check_same_function(model, small):
    ids = np.arange(10).reshape(2, 5)
    expected = outputs_with_codes(model, small, ids)
    np.testing.assert_allclose(small(ids), expected, atol=1e-6)


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("cls", [Shift, ShiftWithoutOptions])
def test_layers_whose_config_has_no_name(cls, clear):
    keras.utils.clear_session()
    # Made in another order than they are called in.
    first, second, third = cls(), cls(), cls()
    model = words_model(third, first, second)
    for number, layer in enumerate((first, second, third)):
        layer.set_weights([np.full(8, 0.3 + number)])
    if clear:
        keras.utils.clear_session()
    small = compress(model)
    assert [x.name for x in small.layers] == [x.name for x in model.layers]
    for layer, same in zip(model.layers[2:], small.layers[2:], strict=True):
        np.testing.assert_array_equal(
            layer.get_weights()[0], same.get_weights()[0]
        )
    check_same_function(model, small)


def test_policy_of_a_class_whose_config_has_none():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = words_model(Shift())
    finally:
        keras.config.set_dtype_policy("float32")
    assert compress(model).layers[-1].compute_dtype == "bfloat16"


def test_tie_to_a_layer_is_kept(tmp_path):
    words = layers.Embedding(60, 8, name="words")
    inputs = keras.Input((5,), dtype="int32")
    other = layers.Embedding(70, 8, name="other")(inputs)
    logits = TiedLogits(words, name="logits")(words(inputs) + other)
    model = keras.Model(inputs, logits)
    small = compress(model)
    copied = small.get_layer("words")
    assert isinstance(copied, kc.CodeEmbedding)
    assert copied is small.get_layer("logits").embedding
    assert copied is small.get_layer("logits").also
    assert small.count_params() == (60 + 70) * 2 + 2 * 4 * 8 * 8
    small.compile("sgd", "mse")
    ids, before = np.ones((2, 5)), np.asarray(copied.embeddings)
    small.fit(ids, np.ones((2, 5, 60)), verbose=0)
    after = np.asarray(copied.embeddings)
    # By the output as well: of the inputs only id 1 has a gradient.
    assert (np.abs(after - before).max(axis=1) > 0).sum() > 10
    small.save(tmp_path / "tied.keras")
    loaded = keras.saving.load_model(
        tmp_path / "tied.keras", custom_objects={"TiedLogits": TiedLogits}
    )
    assert loaded.get_layer("logits").embedding is loaded.get_layer("words")
    np.testing.assert_allclose(loaded(ids), small(ids), rtol=1e-6)


def test_tie_to_a_model_in_a_wrapper_is_kept():
    tower = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(60, 8, name="words"),
            layers.Dense(3),
        ],
        name="tower",
    )
    inputs = keras.Input((5,), dtype="int32")
    many = keras.Input((2, 5), dtype="int32")
    other = layers.Embedding(70, 3, name="other")(inputs)
    each = layers.TimeDistributed(tower, name="each")(many)
    model = keras.Model([inputs, many], [tower(inputs) + other, each])
    small = compress(model, codebook_size=2, min_bytes=100)
    assert isinstance(small.get_layer("other"), kc.CodeEmbedding)
    tower = small.get_layer("tower")
    assert small.get_layer("each").layer is tower
    assert isinstance(tower.get_layer("words"), kc.CodeEmbedding)


def test_tie_that_no_config_tells():
    words = layers.Embedding(60, 8, name="words")
    words.build()
    logits = HoldsVariable(name="logits")
    logits.table = words._embeddings
    inputs = keras.Input((5,), dtype="int32")
    other = layers.Embedding(70, 8, name="other")(inputs)
    model = keras.Model(inputs, logits(words(inputs) + other))
    message = "'words' and 'logits' share the variable '.*embeddings'"
    with pytest.raises(ValueError, match=message):
        compress(model, learner=NeverTrained)


def test_lora_is_merged(capsys):
    model = words_model(layers.Dense(2))
    words = model.get_layer("words")
    words.enable_lora(2)
    rng = np.random.default_rng(0)
    words.lora_embeddings_b.assign(rng.normal(size=(2, 8)))
    small = compress(
        model,
        num_codebooks=1,
        layers=["words"],
        learner=lambda *shape: FirstRowsAsCodewords(),
        codebook_size=50,
        verbose=1,
    )
    said = capsys.readouterr().out
    assert "words: updates of LoRA merged into the table" in said
    np.testing.assert_allclose(
        small.get_layer("words").embeddings[:50],
        np.asarray(words.embeddings)[:50],
        atol=1e-6,
    )
    assert small.get_layer("words").trainable_weights


def test_kernel_with_lora_stays_frozen():
    model = words_model(layers.Dense(4, name="dense"))
    model.get_layer("dense").enable_lora(2)
    dense = compress(model).get_layer("dense")
    trained = {variable.name for variable in dense.trainable_variables}
    assert trained == {"bias", "lora_kernel_a", "lora_kernel_b"}


def test_state_that_is_no_variable():
    normalization = layers.Normalization()
    inputs = keras.Input((5,), dtype="int32")
    numbers = keras.Input((8,))
    normalization.adapt(np.random.default_rng(0).normal(3, 2, size=(50, 8)))
    x = layers.Embedding(60, 8, name="words")(inputs)
    x = layers.GlobalAveragePooling1D()(x) + normalization(numbers)
    small = compress(keras.Model([inputs, numbers], x))
    copy = next(x for x in small.layers if isinstance(x, layers.Normalization))
    rows = np.ones((1, 8))
    np.testing.assert_array_equal(copy(rows), normalization(rows))


def test_text_and_inputs_of_other_kinds():
    texts = layers.TextVectorization(output_sequence_length=5)
    texts.adapt(["a few words", "and a few more"])
    sentence = keras.Input((), dtype="string", name="sentence")
    bags = keras.Input((9,), sparse=True, name="bags")
    more = keras.Input((8,), optional=True, name="more")
    x = layers.Embedding(60, 8, name="words")(texts(sentence))
    x = layers.GlobalAveragePooling1D()(x) + layers.Dense(8)(bags) + more
    inputs = {"bags": bags, "more": more, "sentence": sentence}
    small = compress(keras.Model(inputs, x))
    copies = {
        layer.name: layer
        for layer in small.layers
        if isinstance(layer, layers.InputLayer)
    }
    assert copies["bags"].sparse and copies["more"].optional
    copy = next(
        x for x in small.layers if isinstance(x, layers.TextVectorization)
    )
    assert copy.get_vocabulary() == texts.get_vocabulary()


def wave(x):
    return keras.ops.sin(x)


def test_functions_that_are_not_registered():
    model = words_model(
        layers.Lambda(lambda x, factor: factor * x, arguments={"factor": 3.0}),
        layers.Dense(8, activation=wave),
        layers.Dense(8, activation=lambda x: keras.ops.cos(x)),
        layers.Lambda(wave, mask=lambda inputs, mask: None),
    )
    check_same_function(model, compress(model))


class NoConfig(layers.Layer):
    def __init__(self, function):
        super().__init__(name="no_config")
        self.function = function

    def call(self, inputs):
        return self.function(inputs)


class GrowsInConfig(layers.Dense):
    def get_config(self):
        return {**super().get_config(), "units": self.units + 1}


class OwnConstructor(keras.Model):
    def __init__(self, rows):
        inputs = keras.Input((5,), dtype="int32")
        outputs = layers.Embedding(rows, 8, name="words")(inputs)
        super().__init__(inputs, outputs)


def test_layers_that_cannot_be_copied_are_named_first():
    message = r"'no_config' \(NoConfig\) cannot be copied: implement `get_con"
    with pytest.raises(ValueError, match=message):
        compress(words_model(NoConfig(wave)), learner=NeverTrained)
    tower = keras.Sequential([NoConfig(wave)], name="tower")
    with pytest.raises(ValueError, match="'tower/no_config'"):
        compress(words_model(tower), learner=NeverTrained)
    message = r"'more' \(GrowsInConfig\) cannot be copied.*not the same"
    with pytest.raises(ValueError, match=message):
        compress(words_model(GrowsInConfig(4, name="more")))


def test_class_that_no_config_makes_again():
    model = OwnConstructor(60)
    message = r"'own_constructor' .* cannot be copied.*keras.Model\(model.inp"
    with pytest.raises(ValueError, match=message):
        compress(model, learner=NeverTrained)
    plain = keras.Model(model.inputs, model.outputs)
    assert isinstance(compress(plain).get_layer("words"), kc.CodeEmbedding)
