"""What goes into a file beside its graph: labels, words, and who made it."""

from keras_compembed.export import model_metadata
from keras_compembed.export.attached_files import attach
from keras_compembed.export.file_metadata import FileMetadata
from keras_compembed.export.flatbuffer import write_model
from keras_compembed.export.labels import check_labels
from keras_compembed.export.labels import label_files
from keras_compembed.export.model_metadata import add_metadata
from keras_compembed.layers.top_classes import count_classes


class FileContents:
    """Labels, vocabulary and metadata on their way into a file.

    Args:
        labels: Same as in `export_litert`.
        metadata: Same as in `export_litert`.
        target: `Runtime`.
    """

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
        self._value_sizes = {}
        self.labels = {}

    def note_heads(self, model):
        """Notes how many classes a model has that `top_k_model` will name."""
        self._value_sizes = count_classes(model)

    def check(self, outputs):
        """Raises if labels do not fit.

        Args:
            outputs: Dict from names of outputs to arrays that Keras gave.
        """
        self._kinds = {
            name: (
                model_metadata.VALUE_LABELS
                if name in self._value_sizes
                else model_metadata.AXIS_LABELS
            )
            for name in outputs
        }
        sizes = self._value_sizes or {
            name: array.shape[-1]
            for name, array in outputs.items()
            if array.dtype.kind == "f" and array.ndim > 1
        }
        self.labels = check_labels(self._given, sizes)
        missing = [name for name in sizes if name not in self.labels]
        if self._needs_labels and missing:
            raise ValueError(
                "`labels` must name the classes for MediaPipe's "
                f"TextClassifier. Received: no labels for the "
                f"{sizes[missing[0]]} classes of the output {missing[0]!r}. "
                "For vectors of texts, pass task='embedder'."
            )

    def add_to(self, content, model, vocabulary):
        """Bytes of a file with all that belongs to it.

        Args:
            content: Bytes of the file.
            model: Object from `read_model` of them.
            vocabulary: List of `AttachedFile`, what an app turns texts into
                ids by.
        """
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
