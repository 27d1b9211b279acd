"""Models of the kinds that people compress, with random weights.

Each function takes a `Size` and returns a model, not compiled, and inputs that
it takes. Those whose names are in `HUB` and `RS` need keras-hub and keras-rs.
"""

import dataclasses

import keras
import numpy as np


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a model is."""

    rows: int
    width: int
    length: int = 16
    layers: int = 2
    batch: int = 4

    def ids(self, length=None, seed=0, high=None):
        """Random ids, `(batch, length)`; none of them is padding."""
        shape = self.batch, self.length if length is None else length
        rng = np.random.default_rng(seed)
        return rng.integers(1, high or self.rows, size=shape, dtype="int32")

    def mask(self):
        """Which ids are no padding: all but the last quarter of one text."""
        mask = np.ones((self.batch, self.length), "int32")
        mask[-1, -(self.length // 4) :] = 0
        return mask

    def texts(self, segments=False):
        """Inputs of keras-hub's models."""
        inputs = {"token_ids": self.ids(), "padding_mask": self.mask()}
        if segments:
            inputs["segment_ids"] = 1 - self.mask()
        return inputs


def ids_input(name=None, length=None):
    return keras.Input((length,), dtype="int32", name=name)


class BestItems(keras.layers.Layer):
    """The best of all scores, of tables: codes have `top_k` of their own."""

    def __init__(self, k):
        super().__init__()
        self.k = k

    def call(self, inputs):
        scores, ids = keras.ops.top_k(inputs, self.k)
        return {"ids": ids, "scores": scores}

    def compute_output_spec(self, inputs):
        shape = (*inputs.shape[:-1], self.k)
        return {
            "ids": keras.KerasTensor(shape, dtype="int32"),
            "scores": keras.KerasTensor(shape, dtype="float32"),
        }


def two_tower(size, shared=False):
    """Two towers, each with a table."""
    item_rows = size.rows if shared else size.rows // 2
    items = keras.layers.Embedding(item_rows, size.width, name="items")
    table = items
    if not shared:
        table = keras.layers.Embedding(size.rows, size.width, name="users")
    user, item = ids_input("user", size.length), ids_input("item", 1)
    pooled = keras.layers.GlobalAveragePooling1D()(table(user))
    user_vector = keras.layers.Dense(size.width, name="user_tower")(pooled)
    item_vector = keras.layers.Dense(size.width, name="item_tower")(
        keras.layers.Flatten()(items(item))
    )
    score = keras.layers.Dot(axes=-1)([user_vector, item_vector])
    inputs = {
        "user": size.ids(high=item_rows),
        "item": size.ids(1, seed=1, high=item_rows),
    }
    return keras.Model({"user": user, "item": item}, score), inputs


def two_tower_shared(size):
    """Two towers with one table."""
    return two_tower(size, shared=True)


def _features(size, tables):
    """Inputs, of which the last are numbers, vectors of ids, and arrays."""
    features = [ids_input(f"feature_{i}", 1) for i in range(tables)]
    flatten = keras.layers.Flatten()
    vectors = [
        flatten(
            keras.layers.Embedding(size.rows, size.width, name=f"table_{i}")(x)
        )
        for i, x in enumerate(features)
    ]
    arrays = {x.name: size.ids(1, seed=i) for i, x in enumerate(features)}
    numbers = np.random.default_rng(0).normal(size=(size.batch, 8))
    arrays["numbers"] = numbers.astype("float32")
    features.append(keras.Input((8,), name="numbers"))
    return features, vectors, arrays


def wide_and_deep(size, tables=40):
    """Wide and deep, with 40 tables."""
    features, vectors, inputs = _features(size, tables)
    numbers = features[-1]
    deep = keras.layers.Concatenate()([*vectors, numbers])
    for units in (64, 32):
        deep = keras.layers.Dense(units, activation="relu")(deep)
    wide = keras.layers.Dense(1, use_bias=False, name="wide")(numbers)
    score = keras.layers.Add()([keras.layers.Dense(1)(deep), wide])
    model = keras.Model({x.name: x for x in features}, score)
    return model, inputs


def seq2seq(size):
    """Sequence to sequence, with LSTMs and two tables."""
    source, target = ids_input("source"), ids_input("target")
    _, *states = keras.layers.LSTM(size.width, return_state=True)(
        keras.layers.Embedding(size.rows, size.width, name="source_words")(
            source
        )
    )
    hidden = keras.layers.LSTM(size.width, return_sequences=True)(
        keras.layers.Embedding(size.rows, size.width, name="target_words")(
            target
        ),
        initial_state=states,
    )
    outputs = keras.layers.Dense(64, activation="softmax")(hidden)
    inputs = {"source": size.ids(), "target": size.ids(seed=1)}
    return keras.Model({"source": source, "target": target}, outputs), inputs


def pooled_classifier(size, classes=50):
    """Classifier of the mean of words' vectors."""
    ids = ids_input("ids")
    hidden = keras.layers.Embedding(size.rows, size.width, name="words")(ids)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    scores = keras.layers.Dense(classes, activation="softmax")(hidden)
    return keras.Model(ids, scores), size.ids()


@keras.saving.register_keras_serializable(package="zoo")
class Places(keras.layers.Layer):
    """Adds a trained vector for each place of a text."""

    def build(self, input_shape):
        self.vectors = self.add_weight(shape=input_shape[1:])

    def call(self, inputs):
        return inputs + self.vectors


def attention_classifier(size, classes=50, heads=4):
    """Transformer encoder of Keras's own layers, pooled."""
    ids = ids_input("ids", size.length)
    hidden = keras.layers.Embedding(size.rows, size.width, name="words")(ids)
    hidden = Places()(hidden)
    for _ in range(size.layers):
        attended = keras.layers.MultiHeadAttention(heads, size.width // heads)(
            hidden, hidden
        )
        hidden = keras.layers.LayerNormalization()(
            keras.layers.Add()([hidden, attended])
        )
        wide = keras.layers.Dense(4 * size.width, activation="relu")(hidden)
        hidden = keras.layers.LayerNormalization()(
            keras.layers.Add()([hidden, keras.layers.Dense(size.width)(wide)])
        )
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    scores = keras.layers.Dense(classes, activation="softmax")(hidden)
    return keras.Model(ids, scores), size.ids()


def retrieval(size, items=None):
    """Two towers: scores of all items for the words of a query."""
    ids = ids_input("ids")
    hidden = keras.layers.Embedding(size.rows, size.width, name="words")(ids)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    query = keras.layers.Dense(size.width, name="query_tower")(hidden)
    table = keras.layers.ReversibleEmbedding(
        items or size.rows, size.width, name="items"
    )
    return keras.Model(ids, table(query, reverse=True)), size.ids()


def encoder_decoder(size):
    """Encoder and one step of a decoder, GRUs with a table each."""

    def words(name, ids):
        table = keras.layers.Embedding(
            size.rows,
            size.width,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
            name=name,
        )
        return table(ids)

    source = ids_input("source")
    hidden = keras.layers.GRU(size.width)(words("source_words", source))
    encoder = keras.Model(source, hidden)
    token = ids_input("token", 1)
    state = keras.Input((size.width,), name="state")
    hidden = keras.layers.GRU(size.width)(
        words("target_words", token), initial_state=state
    )
    logits = keras.layers.Dense(size.rows, name="logits")(hidden)
    step = keras.Model(
        {"token": token, "state": state}, {"logits": logits, "state": hidden}
    )
    return encoder, step, size.ids()


@keras.saving.register_keras_serializable(package="zoo")
class TextModel(keras.Model):
    """A model in the way of subclasses: layers as attributes, and `call`."""

    def __init__(self, rows, width, classes=3, **kwargs):
        super().__init__(**kwargs)
        self.rows, self.width, self.classes = rows, width, classes
        self.words = keras.layers.Embedding(rows, width)
        self.hidden = keras.layers.Dense(width, activation="relu")
        self.scores = keras.layers.Dense(classes)

    def vectors(self, ids):
        """Means of the vectors of words."""
        return keras.ops.mean(self.words(ids), axis=1)

    def call(self, ids):
        return self.scores(self.hidden(self.vectors(ids)))

    def get_config(self):
        return {
            **super().get_config(),
            "rows": self.rows,
            "width": self.width,
            "classes": self.classes,
        }


def subclassed(size):
    """Subclassed `keras.Model`."""
    return called(TextModel(size.rows, size.width), size.ids())


def called(model, inputs):
    """A model that its first call has built, and its inputs."""
    model(inputs)
    return model, inputs


def tied_language_model(size):
    """Language model, LSTM, with a tied `ReversibleEmbedding`."""
    table = keras.layers.ReversibleEmbedding(
        size.rows, size.width, logit_soft_cap=5.0, name="words"
    )
    ids = ids_input()
    hidden = keras.layers.LSTM(size.width, return_sequences=True)(table(ids))
    return keras.Model(ids, table(hidden, reverse=True)), size.ids()


def _hub(name):
    """A layer or model of keras-hub."""
    import keras_hub

    found = getattr(keras_hub.layers, name, None)
    return found or getattr(keras_hub.models, name)


def token_and_position(size):
    """keras-hub `TokenAndPositionEmbedding`, pooled."""
    ids = ids_input(length=size.length)
    hidden = _token_and_position(size)(ids)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(ids, keras.layers.Dense(3)(hidden)), size.ids()


def transformer_classifier(size):
    """keras-hub `TransformerEncoder`, text classifier."""
    ids = ids_input(length=size.length)
    hidden = _token_and_position(size)(ids)
    for _ in range(size.layers):
        hidden = _hub("TransformerEncoder")(2 * size.width, 2)(hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(ids, keras.layers.Dense(3)(hidden)), size.ids()


def _token_and_position(size):
    return _hub("TokenAndPositionEmbedding")(size.rows, size.length, size.width)


def _transformer(size):
    return {
        "vocabulary_size": size.rows,
        "num_layers": size.layers,
        "num_heads": 2,
        "hidden_dim": size.width,
        "intermediate_dim": 4 * size.width,
        "max_sequence_length": max(32, size.length),
    }


def bert_backbone(size):
    """keras-hub `BertBackbone`."""
    backbone = _hub("BertBackbone")(**_transformer(size))
    return backbone, size.texts(segments=True)


def bert_classifier(size):
    """keras-hub `BertTextClassifier`."""
    backbone, inputs = bert_backbone(size)
    return _hub("BertTextClassifier")(backbone, 3), inputs


def bert_masked_lm(size):
    """keras-hub `BertMaskedLM`, tied."""
    backbone, inputs = bert_backbone(size)
    inputs["mask_positions"] = np.array([[1, 3]] * size.batch, "int32")
    return _hub("BertMaskedLM")(backbone), inputs


def gpt2_backbone(size):
    """keras-hub `GPT2Backbone`."""
    return _hub("GPT2Backbone")(**_transformer(size)), size.texts()


def gpt2_causal_lm(size):
    """keras-hub `GPT2CausalLM`, tied."""
    backbone, inputs = gpt2_backbone(size)
    return _hub("GPT2CausalLM")(backbone), inputs


def _decoder(size):
    return {
        "vocabulary_size": size.rows,
        "num_layers": size.layers,
        "num_query_heads": 2,
        "num_key_value_heads": 1,
        "hidden_dim": size.width,
        "intermediate_dim": 2 * size.width,
    }


def llama_causal_lm(size):
    """keras-hub `LlamaCausalLM`, untied: two tables."""
    backbone = _hub("LlamaBackbone")(**_decoder(size))
    return _hub("LlamaCausalLM")(backbone), size.texts()


def gemma_causal_lm(size):
    """keras-hub `GemmaCausalLM`, tied, with a cap on its logits."""
    backbone = _hub("GemmaBackbone")(
        **_decoder(size),
        head_dim=size.width // 2,
        final_logit_soft_cap=30.0,
    )
    return _hub("GemmaCausalLM")(backbone), size.texts()


def t5_backbone(size):
    """keras-hub `T5Backbone`, one table for encoder and decoder."""
    backbone = _hub("T5Backbone")(
        vocabulary_size=size.rows,
        num_layers=size.layers,
        num_heads=2,
        hidden_dim=size.width,
        intermediate_dim=2 * size.width,
    )
    inputs = {
        f"{part}_{name}": array
        for part in ("encoder", "decoder")
        for name, array in size.texts().items()
    }
    return backbone, inputs


def dlrm(size, tables=4):
    """keras-rs `DotInteraction` of four tables."""
    import keras_rs

    features, vectors, inputs = _features(size, tables)
    numbers = features[-1]
    bottom = keras.layers.Dense(size.width, activation="relu")(numbers)
    crossed = keras_rs.layers.DotInteraction()([bottom, *vectors])
    top = keras.layers.Concatenate()([bottom, crossed])
    model = keras.Model(
        {x.name: x for x in features}, keras.layers.Dense(1)(top)
    )
    return model, inputs


PLAIN = (
    two_tower,
    two_tower_shared,
    wide_and_deep,
    seq2seq,
    subclassed,
    tied_language_model,
)
HUB = (
    token_and_position,
    transformer_classifier,
    bert_backbone,
    bert_classifier,
    bert_masked_lm,
    gpt2_backbone,
    gpt2_causal_lm,
    llama_causal_lm,
    gemma_causal_lm,
    t5_backbone,
)
RS = (dlrm,)
