"""What goes into a file beside its graph: labels, words, and who made it."""

from keras_compembed.export import model_metadata
from keras_compembed.export.attached_files import attach
from keras_compembed.export.file_metadata import FileMetadata
from keras_compembed.export.flatbuffer import write_model
from keras_compembed.export.labels import check_labels
from keras_compembed.export.labels import label_files
from keras_compembed.export.model_metadata import add_metadata


class FileContents:
    """Labels, vocabulary and metadata on their way into a file."""

    def __init__(self, labels, metadata, target):
        if metadata is not None and not isinstance(metadata, FileMetadata):
            raise ValueError(
                "`metadata` must be a `keras_compembed.export.FileMetadata`. "
                f"Received: an object of type {type(metadata).__name__}."
            )
        if labels is not None and target.task == "embedder":
            raise ValueError(
                "`labels` must be None with task='embedder': vectors of texts "
                "have no classes. Received: an object of type "
                f"{type(labels).__name__}."
            )
        self._given = labels
        self._metadata = metadata
        self._needs_labels = target.task == "classifier"
        self.labels = {}

    def check(self, outputs, class_sizes):
        """Raises if labels do not fit."""
        self._kinds = {
            name: (
                model_metadata.AXIS_LABELS
                if array.dtype.kind == "f"
                else model_metadata.VALUE_LABELS
            )
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
        self.labels = check_labels(
            self._given, class_sizes if of_one else sizes
        )
        missing = [name for name in sizes if name not in self.labels]
        if self._needs_labels and missing:
            raise ValueError(
                "`labels` must name the classes for MediaPipe's "
                f"TextClassifier. Received: no labels for the "
                f"{sizes[missing[0]]} classes of the output {missing[0]!r}. "
                "For vectors of texts, pass task='embedder'."
            )

    def add_to(self, content, model, vocabulary):
        """Bytes of a file with all that belongs to it."""
        outputs = label_files(self.labels, self._kinds)
        files = [*vocabulary]
        for each in outputs.values():
            files += each
        if not files and self._metadata is None:
            return content
        (signature,) = model.signatureDefs
        inputs = {entry.name.decode(): vocabulary for entry in signature.inputs}
        add_metadata(model, self._metadata or FileMetadata(), inputs, outputs)
        return attach(
            write_model(model), {file.name: file.content for file in files}
        )
