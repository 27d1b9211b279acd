"""What goes into a file beside its graph: labels, words, and who made it."""

import io
import zipfile

from keras_compembed.export.model_metadata import AXIS_LABELS
from keras_compembed.export.model_metadata import VALUE_LABELS
from keras_compembed.export.model_metadata import AttachedFile
from keras_compembed.export.model_metadata import add_metadata
from keras_compembed.export.target import FileMetadata
from keras_compembed.litert.flatbuffer import write_model
from keras_compembed.utils.validation import check_text
from keras_compembed.utils.validation import require


class FileContents:
    """Labels, vocabulary and metadata on their way into a file."""

    def __init__(self, labels, metadata, task):
        require(
            labels is None or task != "embedder",
            "`labels` must be None with task='embedder': vectors of texts "
            "have no classes.",
            labels=type(labels),
        )
        self._given = labels
        self._metadata = metadata
        self._needs_labels = task == "classifier"

    def check(self, outputs, class_sizes):
        self._kinds = {
            name: AXIS_LABELS if array.dtype.kind == "f" else VALUE_LABELS
            for name, array in outputs.items()
        }
        # Of the best classes ids are named, and not their probabilities.
        best = {
            name.removesuffix("ids") + part
            for name in class_sizes
            for part in ("probabilities", "scores")
        }
        sizes = class_sizes | {
            name: array.shape[-1]
            for name, array in outputs.items()
            if array.dtype.kind == "f" and array.ndim > 1 and name not in best
        }
        of_one = class_sizes and not isinstance(self._given, dict)
        self.labels = _check_labels(
            self._given, class_sizes if of_one else sizes
        )
        missing = [name for name in sizes if name not in self.labels]
        if self._needs_labels and missing:
            raise ValueError(
                "`labels` must name the classes for MediaPipe's TextClassifier."
                f" Received: no labels for the {sizes[missing[0]]} classes of "
                f"the output {missing[0]!r}. For vectors of texts, pass "
                "Target('mediapipe', task='embedder')."
            )

    def add_to(self, content, model, vocabulary):
        """Bytes of a file with all that belongs to it."""
        outputs = {name: [] for name in self._kinds}
        for name, lines in self.labels.items():
            prefix = "" if len(outputs) == 1 else f"{name}_"
            text = "".join(f"{line}\n" for line in lines).encode()
            outputs[name].append(
                AttachedFile(f"{prefix}labels.txt", text, self._kinds[name])
            )
        files = sum(outputs.values(), [*vocabulary])
        if not files and self._metadata is None:
            return content
        (signature,) = model.signatureDefs
        inputs = {entry.name.decode(): vocabulary for entry in signature.inputs}
        add_metadata(model, self._metadata or FileMetadata(), inputs, outputs)
        content = write_model(model)
        if not files:
            return content
        whole = io.BytesIO(content)
        # MediaPipe reads files in place, hence uncompressed.
        with zipfile.ZipFile(whole, "a", zipfile.ZIP_STORED) as archive:
            for file in files:
                # With the date that it has by default, equal exports are equal.
                archive.writestr(zipfile.ZipInfo(file.name), file.content)
        return whole.getvalue()


def _check_labels(labels, sizes):
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        require(
            len(sizes) == 1,
            "`labels` must be a dict from names of outputs to lists of strings "
            f"where a model has several outputs, {list(sizes)}.",
            labels=type(labels),
        )
        labels = dict.fromkeys(sizes, labels)
    require(
        labels.keys() <= sizes.keys(),
        f"`labels` must name outputs of the model, {list(sizes)}.",
        labels=list(labels),
    )
    return {
        name: _check_list(labels[name], name, size)
        for name, size in sizes.items()
        if name in labels
    }


def _check_list(labels, output, size):
    require(
        # Sets have no order.
        not isinstance(labels, (str, bytes, set, frozenset))
        and hasattr(labels, "__iter__"),
        "`labels` must be a list of strings.",
        labels=type(labels),
        output=output,
    )
    labels, known = list(labels), set()
    for place, label in enumerate(labels):
        rule = "differ from each other"
        if not isinstance(label, str) or not label.strip():
            rule = "be strings that are not empty"
        elif set(label) & set("\n\r\0"):
            rule = "hold no line ends: they are lines of a file in the model"
        elif label not in known:
            rule = None
        require(not rule, f"`labels` must {rule}.", label=label, place=place)
        check_text("labels", label)
        known.add(label)
    advice = ""
    if size == 1:
        advice = (
            " One number is the probability of one class: pass its name, e.g. "
            "labels=['spam'], or give the model an output for each class."
        )
    require(
        len(labels) == size,
        f"`labels` must name each of the {size} classes of the output "
        f"{output!r} once, in the order of its numbers.{advice}",
        number=len(labels),
    )
    return tuple(str(label) for label in labels)
