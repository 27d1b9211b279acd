"""Models that translate, and greedy search: LSTMs with attention, transformers.

The encoder gives a list: vectors of all places, then states. The decoder takes
ids of the translation so far and this list. No layer needs a mask: sources of a
batch have one length, and what follows a place does not change it.
"""

import keras
from keras import ops

from benchmarks.data.sentence_pairs import END
from benchmarks.data.sentence_pairs import PAD
from benchmarks.data.sentence_pairs import START

PARTS = ("encoder", "decoder", "scores")


def build(kind, tables, args):
    """Scores of the next tokens, by an encoder, a decoder and a last layer."""
    encode, decode = _KINDS[kind]
    source, target = (keras.Input((None,), dtype="int32") for _ in tables)
    drop = keras.layers.Dropout(args.dropout)
    scale = args.width**0.5
    encoder = keras.Model(
        source,
        encode(drop(scale * tables[0](source)), args),
        name="encoder",
    )
    encoded = [keras.Input(x.shape[1:]) for x in encoder.outputs]
    hidden = decode(drop(scale * tables[1](target)), *encoded, args=args)
    hidden = drop(keras.layers.Dense(args.units, "tanh")(hidden))
    decoder = keras.Model([target, *encoded], hidden, name="decoder")
    scores = keras.layers.Dense(tables[1].input_dim, name="scores")
    hidden = decoder([target, *keras.tree.flatten(encoder(source))])
    return keras.Model([source, target], scores(hidden))


def encode_by_lstm(vectors, args):
    """Vectors of all places, and the state that the decoder begins with."""
    half = keras.layers.LSTM(
        args.units, return_sequences=True, return_state=True
    )
    hidden, *states = keras.layers.Bidirectional(half)(vectors)
    # With the words' own vectors, attention finds words sooner.
    hidden = keras.layers.Concatenate()([hidden, vectors])
    return [keras.layers.Dropout(args.dropout)(hidden), *states[2:]]


def decode_by_lstm(vectors, encoded, *states, args):
    hidden = keras.layers.LSTM(args.units, return_sequences=True)(
        vectors, initial_state=states
    )
    hidden = keras.layers.Dropout(args.dropout)(hidden)
    keys = keras.layers.Dense(args.units)(encoded)
    context = keras.layers.Attention()([hidden, encoded, keys])
    return keras.layers.Concatenate()([hidden, context])


def encode_by_transformer(vectors, args):
    from keras_hub.layers import TransformerEncoder

    hidden = with_places(vectors)
    for _ in range(args.layers):
        hidden = TransformerEncoder(**transformer_options(args))(hidden)
    return [keras.layers.LayerNormalization()(hidden)]


def decode_by_transformer(vectors, encoded, *, args):
    from keras_hub.layers import TransformerDecoder

    hidden = with_places(vectors)
    for _ in range(args.layers):
        layer = TransformerDecoder(**transformer_options(args))
        hidden = layer(hidden, encoded)
    return keras.layers.LayerNormalization()(hidden)


def transformer_options(args):
    return {
        "intermediate_dim": 2 * args.width,
        "num_heads": 4,
        "dropout": args.dropout,
        "normalize_first": True,
    }


def with_places(vectors):
    """Vectors, and sines and cosines of their places."""
    from keras_hub.layers import SinePositionEncoding

    return SinePositionEncoding()(vectors) + vectors


_KINDS = {
    "LSTM": (encode_by_lstm, decode_by_lstm),
    "transformer": (encode_by_transformer, decode_by_transformer),
}


@keras.saving.register_keras_serializable(package="benchmarks")
class GreedySearch(keras.layers.Layer):
    """Ids of the best next tokens, one after the other."""

    def __init__(self, encoder, decoder, scores, more=10, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder
        self.scores, self.more = scores, more

    def build(self, input_shape):
        self.built = True

    def call(self, source):
        encoded = keras.tree.flatten(self.encoder(source))
        batch, length = ops.shape(source)[0], ops.shape(source)[1] + self.more
        places = ops.arange(length)[None]

        def goes_on(place, target):
            open_ends = ops.all(target != END, axis=1)
            return ops.logical_and(place < length - 1, ops.any(open_ends))

        def find(place, target):
            hidden = self.decoder([target, *encoded])
            scores = self.scores(ops.take(hidden, place, axis=1))
            best = ops.cast(ops.argmax(scores, axis=-1), "int32")[:, None]
            return place + 1, ops.where(places == place + 1, best, target)

        first = ops.where(places == 0, START, PAD)
        target = ops.cast(ops.repeat(first, batch, axis=0), "int32")
        return ops.while_loop(goes_on, find, (0, target))[1][:, 1:]

    def compute_output_spec(self, source):
        return keras.KerasTensor((source.shape[0], None), "int32")

    def get_config(self):
        parts = {
            name: keras.saving.serialize_keras_object(getattr(self, name))
            for name in PARTS
        }
        return {**super().get_config(), **parts, "more": self.more}

    @classmethod
    def from_config(cls, config):
        load = keras.saving.deserialize_keras_object
        return cls(**config | {name: load(config[name]) for name in PARTS})


def with_search(model):
    """A model from source ids to ids of the translation."""
    ids = keras.Input((None,), dtype="int32")
    return keras.Model(ids, GreedySearch(*map(model.get_layer, PARTS))(ids))
