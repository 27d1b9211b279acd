"""A small classifier from nothing but texts and labels."""

import keras
import numpy as np

from keras_compembed.text.fit_texts import fit_texts
from keras_compembed.text.labelled_texts import check_labels
from keras_compembed.text.labelled_texts import check_texts
from keras_compembed.text.labelled_texts import check_tokenizer
from keras_compembed.text.labelled_texts import find_classes
from keras_compembed.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int

# The share of texts held out where none are given.
_HELD_OUT = 0.1
_LEARNING_RATE = 1e-2


def train_classifier(
    texts,
    labels,
    tokenizer=None,
    vocabulary_size=4000,
    output_dim=64,
    validation_data=None,
    class_weight=None,
    epochs=30,
    batch_size=64,
    seed=None,
    verbose=1,
):
    """Trains a small classifier of texts, ready for phones.

    The mean of the vectors of a text's pieces, and a softmax: the kind of
    model that becomes smallest, since its vectors are added up as codes. All
    of it, tokenizer included, is one Keras model from strings to
    probabilities. Ctrl-C ends the training with what was learned so far.

    Example:

    >>> texts = ["a red apple", "green pears", "a red cherry", "green"] * 20
    >>> labels = ["red", "green", "red", "green"] * 20
    >>> model, names = train_classifier(
    ...     texts, labels, epochs=3, batch_size=8, seed=0, verbose=0
    ... )
    >>> names
    ['green', 'red']
    >>> names[np.argmax(model(tf.constant(["red red"]))[0])]
    'red'

    Args:
        texts: List or array of strings.
        labels: List or array of strings or integers, one a text.
        tokenizer: Optional tokenizer of `keras_compembed.text`. Defaults to
            `None`: a `SentencePieceTokenizer` trained on `texts`.
        vocabulary_size: Integer, its number of pieces at most. Defaults to
            `4000`.
        output_dim: Integer, width of the vectors. Defaults to `64`.
        validation_data: Optional tuple of texts and labels: the best epoch
            on them counts. Defaults to `None`: a tenth of the texts, which is
            not trained on.
        class_weight: `None` or `"balanced"`, where each class counts the
            same, however rare. Defaults to `None`: each text does.
        epochs: Integer, at most: training ends once the loss on validation
            data has not fallen for three epochs. Defaults to `30`.
        batch_size: Integer. Defaults to `64`.
        seed: Optional integer, of Keras's random numbers from then on.
        verbose: `0`, `1` or `2`, same as in `fit`. Defaults to `1`.

    Returns:
        Tuple of the model, compiled, and the list of the names of its
        classes: what `labels` of `keras_compembed.export.export_litert` is.

    Raises:
        ValueError: if `texts` holds other than strings, `labels` are not as
            many or all of one kind, or an argument is out of range.
    """
    texts = check_texts("texts", texts)
    classes, labels = find_classes(
        "labels", check_labels("labels", labels, len(texts))
    )
    check_tokenizer(tokenizer)
    if tokenizer is not None and tokenizer.pad_id != 0:
        raise ValueError(
            "`tokenizer` must have the padding 0, which is left out of means. "
            f"Received: pad_id={tokenizer.pad_id}."
        )
    check_positive_int("output_dim", output_dim)
    check_positive_int("epochs", epochs)
    check_positive_int("batch_size", batch_size)
    check_choice("class_weight", class_weight, (None, "balanced"))
    if seed is not None:
        keras.utils.set_random_seed(seed)
    if validation_data is None:
        texts, labels, *validation_data = _split(texts, labels, seed)
    else:
        validation_data = _as_places(validation_data, classes)
    if tokenizer is None:
        tokenizer = SentencePieceTokenizer.train(
            # The same name each time, as files hold it.
            texts,
            vocabulary_size,
            name="tokenizer",
        )
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokenizer,
            keras.layers.Embedding(
                tokenizer.vocabulary_size,
                output_dim,
                mask_zero=True,
                name="pieces",
            ),
            keras.layers.GlobalAveragePooling1D(name="mean"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(len(classes), "softmax", name="classes"),
        ],
        name="text_classifier",
    )
    model.compile(
        keras.optimizers.Adam(_LEARNING_RATE),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    weights = None
    if class_weight == "balanced":
        counts = np.bincount(labels, minlength=len(classes))
        weights = len(labels) / (len(classes) * np.maximum(counts, 1))
        weights = dict(enumerate(weights.tolist()))
    fit_texts(
        model,
        texts,
        labels,
        validation_data,
        seed,
        epochs=epochs,
        batch_size=batch_size,
        class_weight=weights,
        verbose=verbose,
    )
    return model, classes


def _split(texts, labels, seed):
    """Texts and labels to train on, and texts and labels held out."""
    order = np.random.default_rng(seed).permutation(len(texts))
    number = max(1, round(_HELD_OUT * len(texts)))
    parts = []
    for places in (order[number:], order[:number]):
        parts += [[texts[place] for place in places], labels[places]]
    return parts


def _as_places(validation_data, classes):
    texts, labels = validation_data
    texts = check_texts("validation_data", texts)
    labels = check_labels("validation_data", labels, len(texts))
    unknown = sorted({str(label) for label in labels}.difference(classes))
    if unknown:
        raise ValueError(
            "`validation_data` must have labels that `labels` has. Received: "
            f"{unknown[0]!r} besides."
        )
    places = {each: place for place, each in enumerate(classes)}
    return texts, np.array([places[str(x)] for x in labels], "int32")
