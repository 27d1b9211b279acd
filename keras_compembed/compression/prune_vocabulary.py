"""Smaller vocabularies for models that take texts."""

from collections.abc import Iterable

import keras
import numpy as np

from keras_compembed.compression.tables import check_model
from keras_compembed.compression.tables import copy_checked
from keras_compembed.exchange.copy_with import compile_like
from keras_compembed.exchange.copy_with import copy_with
from keras_compembed.export.text_front import find_own_readers
from keras_compembed.export.text_front import find_readers
from keras_compembed.export.text_front import split_model
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.validation import require


def prune_vocabulary(
    model: keras.Model,
    texts: Iterable,
    min_count: int = 1,
    vocabulary_size: int | None = None,
) -> keras.Model:
    """Returns a copy of a model with only those tokens that occur in texts.

    The vocabulary is most of a small model's file: the tokenizer's words or
    pieces, and an embedding for each. The copy has a smaller tokenizer and
    fewer embeddings. With `min_count=1` and no `vocabulary_size`, outputs for
    the given texts do not change. Dropped tokens are split into smaller pieces,
    or become unknown (OOV). Prune the vocabulary before you compress.

    Example:

    >>> tokenizer = kc.text.WordTokenizer(["a", "red", "green", "pear"])
    >>> model = keras.Sequential([
    ...     keras.Input((), dtype="string"),
    ...     tokenizer,
    ...     keras.layers.Embedding(tokenizer.vocabulary_size, 8),
    ...     keras.layers.GlobalAveragePooling1D(),
    ... ])
    >>> small = prune_vocabulary(model, ["a red pear"])
    >>> small.layers[0].get_vocabulary()
    ['', '[UNK]', 'a', 'red', 'pear']

    Args:
        model: A `keras.Model` with one text input and a tokenizer of
            `keras_compembed.text`, or a `keras.layers.TextVectorization`, which
            is replaced by a tokenizer.
        texts: Iterable or `tf.data.Dataset` of strings, e.g. training texts.
        min_count: Positive integer. Tokens that occur less often are dropped.
            Defaults to `1`.
        vocabulary_size: Optional integer. Keeps at most this number of ids, the
            most frequent. Defaults to `None`: no limit.

    Returns:
        A new `keras.Model`, compiled like the model.

    Raises:
        ValueError: If the model does not take one text, or layers other than
            `keras.layers.Embedding` read its ids.
    """
    check_model(model)
    split = split_model(model)
    if split is None:
        raise ValueError(
            "`model` must take texts. Received: a model of numbers, "
            f"model={model.name!r}."
        )
    tokenizer = split.as_tokenizer()
    (ids,) = split.model.inputs
    tables = find_readers(split.model, ids)
    for table in tables:
        _check_table(table, tokenizer)
    own = find_own_readers(split.model, ids)
    require(
        len(own) == len(tables),
        "A table to prune must be used by the token ids only, and not be "
        "shared with another layer.",
        tables=[x.name for x in tables if x not in own],
    )
    kept = tokenizer.find_ids(texts, min_count, vocabulary_size)
    exchanges = [(table, _cut(table, kept)) for table in tables]
    exchanges.append((split.layer, tokenizer.select(kept)))
    small = copy_with(model, exchanges)
    compile_like(small, model)
    return small


def drop_unread_rows(model, sample_inputs=None, verbose=1):
    """A model without table rows beyond its vocabulary."""
    try:
        split = split_model(model)
    except ValueError:
        return model
    if split is None or not is_open(model):
        return model
    number, exchanges = len(split.vocabulary), []
    for table in find_own_readers(split.model, split.model.inputs[0]):
        if type(table) is not keras.layers.Embedding or (
            table.input_dim <= number or len(table.weights) != 1
        ):
            continue
        cut = _cut(table, np.arange(number))
        cut.dropped_rows = table.input_dim - number
        exchanges.append((table, cut))
    if not exchanges:
        return model
    small = copy_checked(model, exchanges, sample_inputs)
    compile_like(small, model)
    for table, cut in exchanges if verbose else ():
        print(
            f"{table.name}: {cut.dropped_rows:,} of {table.input_dim:,} rows "
            f"dropped: {split.layer.name!r} has no tokens for them"
        )
    return small


def _check_table(layer, tokenizer):
    if type(layer) is not keras.layers.Embedding or len(layer.weights) != 1:
        raise ValueError(
            "Token ids must go to `keras.layers.Embedding` layers only. "
            "Received: ids that go to "
            f"{layer.name!r} ({type(layer).__name__})."
        )
    if layer.input_dim < tokenizer.vocabulary_size:
        raise ValueError(
            "The table must have a row for each id of the tokenizer. Received: "
            f"{layer.name!r} with {layer.input_dim} rows, and a tokenizer with "
            f"{tokenizer.vocabulary_size} ids."
        )


def _cut(layer, ids):
    """An Embedding with some rows of another."""
    config = {**layer.get_config(), "input_dim": len(ids)}
    new = type(layer).from_config(config)
    new.build()
    new.embeddings.assign(keras.ops.take(layer.embeddings, ids, axis=0))
    return new
