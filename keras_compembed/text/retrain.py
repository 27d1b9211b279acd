"""A model trained again with a tokenizer that phones run."""

import keras
import numpy as np

from keras_compembed.text.fit_texts import fit_texts
from keras_compembed.text.labelled_texts import check_texts
from keras_compembed.text.labelled_texts import check_tokenizer
from keras_compembed.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_compembed.utils.validation import check_positive_int


def retrain(
    model,
    texts,
    labels,
    tokenizer=None,
    vocabulary_size=8000,
    validation_data=None,
    epochs=10,
    seed=None,
    verbose=1,
    **fit_options,
):
    """A model of the same architecture, trained with another tokenizer.

    For models whose tokenizer no phone runs: a
    `keras.layers.TextVectorization` with `ngrams`, of characters, or with a
    function of its own. Most others, of whole words, are exported as they
    are. The tables of ids are made anew, all other layers go on with the
    weights they have, and all are trained as the model is compiled; see
    `keras_compembed.compression.replace_tokenizer`. Ctrl-C ends it with what
    was learned so far.

    Example:

    >>> texts = ["a red apple", "a green pear", "a red cherry"] * 20
    >>> labels = np.array([1, 0, 1] * 20)
    >>> letters = keras.layers.TextVectorization(split="character")
    >>> letters.adapt(texts)
    >>> model = keras.Sequential(
    ...     [
    ...         keras.Input((), dtype="string"),
    ...         letters,
    ...         keras.layers.Embedding(letters.vocabulary_size(), 8),
    ...         keras.layers.GlobalAveragePooling1D(),
    ...         keras.layers.Dense(2, "softmax"),
    ...     ]
    ... )
    >>> model.compile("adam", "sparse_categorical_crossentropy")
    >>> new = retrain(
    ...     model, texts, labels, vocabulary_size=30, epochs=1, verbose=0
    ... )
    >>> type(new.layers[0]).__name__
    'SentencePieceTokenizer'

    Args:
        model: A compiled, built Sequential or functional `keras.Model` from
            texts.
        texts: List or array of strings.
        labels: What `model.fit` takes for them.
        tokenizer: Optional tokenizer of `keras_compembed.text`. Defaults to
            `None`: a `SentencePieceTokenizer` trained on `texts`.
        vocabulary_size: Integer, its number of pieces at most. Defaults to
            `8000`.
        validation_data: Optional tuple of texts and labels. With it, training
            ends once the loss on it has not fallen for three epochs, and the
            weights of the best epoch are kept.
        epochs: Integer, at most. Defaults to `10`.
        seed: Optional integer, of Keras's random numbers from then on.
        verbose: `0`, `1` or `2`, same as in `fit`. Defaults to `1`.
        **fit_options: Further arguments of `fit`, e.g. `batch_size`.

    Returns:
        A new model, compiled as the one given.

    Raises:
        ValueError: if the model is not compiled, texts and labels do not fit
            together, or for what `replace_tokenizer` refuses.
    """
    # It imports tokenizers, and with them this file.
    from keras_compembed.compression.replace_tokenizer import replace_tokenizer

    texts = check_texts("texts", texts)
    labels = _check_number("labels", labels, texts)
    if validation_data is not None:
        held, held_labels = validation_data
        held = check_texts("validation_data", held)
        held_labels = _check_number("validation_data", held_labels, held)
        validation_data = held, held_labels
    check_positive_int("epochs", epochs)
    check_tokenizer(tokenizer)
    if not isinstance(model, keras.Model) or not model.compiled:
        raise ValueError(
            "`model` must be a compiled `keras.Model`, which says how to "
            f"train it. Received: {getattr(model, 'name', model)!r}, which is "
            "not compiled."
        )
    if tokenizer is None:
        tokenizer = SentencePieceTokenizer.train(texts, vocabulary_size)
    if seed is not None:
        # The new table begins with random numbers.
        keras.utils.set_random_seed(seed)
    new = replace_tokenizer(model, tokenizer)
    fit_texts(
        new,
        texts,
        labels,
        validation_data,
        seed,
        epochs=epochs,
        verbose=verbose,
        **fit_options,
    )
    return new


def _check_number(name, labels, texts):
    """Raises unless labels are arrays of as many as there are texts."""
    parts = keras.tree.flatten(labels)
    if isinstance(labels, list) and not hasattr(parts[0], "shape"):
        # Numbers in a list, of which Keras makes no array.
        labels = np.asarray(labels)
        parts = [labels]
    for part in parts:
        if np.asarray(part).dtype.kind in "USO":
            raise ValueError(
                f"`{name}` must be what `model.fit` takes: numbers, such as "
                "the places of names among the model's outputs. Received: "
                f"{np.ravel(part)[0]!r}."
            )
    lengths = [len(part) if hasattr(part, "shape") else 1 for part in parts]
    if any(length != len(texts) for length in lengths):
        raise ValueError(
            f"`{name}` must hold one label a text. Received: labels of "
            f"lengths {lengths} and {len(texts)} texts."
        )
    return labels
