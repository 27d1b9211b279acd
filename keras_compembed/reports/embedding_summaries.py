"""A callback that writes figures of embeddings for TensorBoard."""

import os
import warnings

import keras
import tensorflow as tf

from keras_compembed.layers.class_head import ClassHead
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.metrics.coverage import Coverage
from keras_compembed.reports.layer_summary import LayerSummary
from keras_compembed.reports.originals import find_originals
from keras_compembed.utils.layer_names import named_layers
from keras_compembed.utils.validation import check_positive_int

# A run of its own: TensorBoard reads one file of a folder at a time.
_RUN = "embeddings"
# What `tf.summary.scalar` writes, which needs the package tensorboard.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data={"plugin_name": "scalars"}, data_class="DATA_CLASS_SCALAR"
)


class EmbeddingSummaries(keras.callbacks.Callback):
    """Writes figures of compressed embeddings for TensorBoard.

    For each `CodeEmbedding`, `ANTEmbedding`, `QuantizedEmbedding` or other
    layer of compressed rows, under its name:

    - `bytes`: what is stored, without what only learning needs.
    - `relative_error`, where there is a `reference`: squared error of rows
      over the squares of the reference's.
    - `codes_changed`, `code_perplexity`, `unused_codewords`, of layers that
      learn codes: the share of ids with another code than last time; how many
      equally used codewords would be as varied, in the mean of codebooks; and
      how many no id uses.
    - `rows_changed`, of layers that learn rounded rows: the share of ids with
      another row than last time.
    - `nonzeros` and `density` of the transform of an `ANTEmbedding`.

    Under the name of the metric also what `keras_compembed.Coverage` gives, in
    models compiled with it.

    Use it beside `keras.callbacks.TensorBoard`, with the same `log_dir`: it
    writes a run of its own there, `embeddings`. The package tensorboard is
    needed to look, not to write. Figures are flushed each time, so that
    nothing is lost if training is stopped. Steps are epochs, or with a number
    as `update_freq` steps of the optimizer, so that training that is resumed
    goes on where it was.

    Example:

    >>> layer = kc.CodeEmbedding(100, 8, 4, 16, learn_codes="softmax")
    >>> model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(
    ...     np.zeros((64, 3)), np.zeros((64, 3, 8)), verbose=0,
    ...     callbacks=[EmbeddingSummaries("logs")],
    ... )

    Args:
        log_dir: String or path-like, the folder that TensorBoard is given.
        update_freq: `"epoch"`, `"batch"`, or an integer: write after each
            epoch, each batch, or each so many batches, as in
            `keras.callbacks.TensorBoard`; with `steps_per_execution`, after
            the steps done together. Each time reads all codes or rounded rows
            that are learned, and up to 10,000 rows where there is a
            `reference`: for a table of 16,000 x 256 under 0.1 seconds, and
            0.3 with a reference, on two cores; for 200,000 x 128 up to 2.
            Defaults to `"epoch"`.
        reference: Optional original, same as in `size_report`. Defaults to
            `None`.

    Raises:
        ValueError: if an argument is out of range, or when training begins if
            the model has no such layer or metric, or `reference` has no table
            of the same name and shape.
    """

    def __init__(self, log_dir, update_freq="epoch", reference=None):
        super().__init__()
        self.log_dir = _check_folder(log_dir)
        if update_freq == "batch":
            update_freq = 1
        if update_freq != "epoch":
            update_freq = check_positive_int("update_freq", update_freq)
        self.update_freq = update_freq
        self.reference = reference
        self._writer = None

    def on_train_begin(self, logs=None):
        layers = named_layers(self.model, LookupLayer)
        if not layers and not named_layers(self.model, ClassHead):
            raise ValueError(
                "The model must have a compressed embedding, such as a "
                "CodeEmbedding, or a layer of classes and the metric Coverage. "
                f"Received: the model {self.model.name!r}, which has none."
            )
        self._layers, self._originals = layers, {}
        if self.reference is not None:
            self._originals = find_originals(layers, self.reference)
        self._summaries = self._step = None
        self._close()
        # Of several workers, the first one writes.
        if tf.distribute.get_strategy().extended.should_save_summary:
            self._writer = tf.summary.create_file_writer(
                os.path.join(self.log_dir, _RUN)
            )

    def on_epoch_begin(self, epoch, logs=None):
        # Not when training begins: other callbacks may load weights then.
        if self._summaries is None:
            self._summaries = {
                name: LayerSummary(layer, self._originals.get(name))
                for name, layer in self._layers.items()
            }
            self._step = self._count_steps()

    def on_train_batch_end(self, batch, logs=None):
        if self.update_freq == "epoch":
            return
        # Several steps at once with `steps_per_execution`.
        before, self._step = self._step, self._count_steps()
        if self._step // self.update_freq > before // self.update_freq:
            self._write(self._step, logs)

    def on_epoch_end(self, epoch, logs=None):
        if self.update_freq == "epoch":
            self._write(epoch, logs)

    def on_train_end(self, logs=None):
        self._close()

    def _write(self, step, logs):
        if self._writer is None:
            return
        with self._writer.as_default(step):
            for name, summary in self._summaries.items():
                for figure, value in summary.read().items():
                    _write_scalar(f"{name}/{figure}", value)
            for key, value in self._coverages(logs or {}).items():
                _write_scalar(key, value)
        self._writer.flush()

    def _coverages(self, logs):
        """Those of the figures in `logs` that are of `Coverage`."""
        # Keras makes the list of metrics while it trains.
        names = [
            metric.name
            for group in self.model.metrics
            for metric in getattr(group, "metrics", [group])
            if isinstance(metric, Coverage)
        ]
        # The key of one of several outputs begins with its name.
        found = {
            key: value
            for key, value in logs.items()
            if not key.startswith("val_")
            and any(key == x or key.endswith(f"_{x}") for x in names)
        }
        if not found and not self._summaries:
            warnings.warn(
                "`EmbeddingSummaries` writes nothing: the model has no "
                "compressed embedding, and is compiled without the metric "
                "`keras_compembed.Coverage`.",
                stacklevel=2,
            )
        return found

    def _close(self):
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _count_steps(self):
        # Under a strategy, a value on each device.
        return int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))


def _write_scalar(tag, value):
    tf.summary.write(tag, tf.constant(value, "float32"), metadata=_SCALAR)


def _check_folder(path):
    try:
        path = os.fspath(path)
    except TypeError as error:
        raise ValueError(
            "`log_dir` must be a string or path-like. Received: "
            f"log_dir={path!r}."
        ) from error
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(
            f"`log_dir` must be a folder. Received: the file {path!r}."
        )
    return path
