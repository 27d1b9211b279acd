"""Names of classes, and the files that hold them."""

from keras_compembed.export import model_metadata
from keras_compembed.export.file_metadata import check_text
from keras_compembed.export.model_metadata import AttachedFile


def check_labels(labels, sizes):
    """Labels by output, or an error."""
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        if len(sizes) != 1:
            raise ValueError(
                "`labels` must be a dict from names of outputs to lists of "
                f"strings where a model has {len(sizes)} outputs, {list(sizes)}"
                f". Received: an object of type {type(labels).__name__}."
            )
        labels = dict.fromkeys(sizes, labels)
    unknown = [name for name in labels if name not in sizes]
    if unknown:
        raise ValueError(
            f"`labels` must name outputs of the model, {list(sizes)}. "
            f"Received: labels of {unknown}."
        )
    return {
        name: _check_list(labels[name], name, sizes[name])
        for name in sizes
        if name in labels
    }


def _check_list(labels, output, size):
    # Sets have no order.
    if isinstance(labels, (str, bytes, set, frozenset)) or not hasattr(
        labels, "__iter__"
    ):
        raise ValueError(
            "`labels` must be a list of strings. Received: an object of type "
            f"{type(labels).__name__} for the output {output!r}."
        )
    labels = list(labels)
    places = {}
    for place, label in enumerate(labels):
        if not isinstance(label, str) or not label.strip():
            raise ValueError(
                "`labels` must be strings that are not empty. "
                f"Received: {label!r} at place {place}."
            )
        check_text("labels", label)
        if any(character in label for character in "\n\r\0"):
            raise ValueError(
                "`labels` are lines of a file in the model, and must hold no "
                f"line ends. Received: {label!r} at place {place}."
            )
        if label in places:
            raise ValueError(
                "`labels` must differ from each other. "
                f"Received: {label!r} at places {places[label]} and {place}."
            )
        places[label] = place
    if len(labels) != size:
        advice = ""
        if size == 1:
            advice = (
                " One number is the probability of one class: pass its name, "
                "e.g. labels=['spam'], or give the model an output for each "
                "class."
            )
        raise ValueError(
            "`labels` must name each class of an output once, in the order of "
            f"its numbers. Received: {len(labels)} labels for the {size} "
            f"classes of the output {output!r}.{advice}"
        )
    return tuple(str(label) for label in labels)


def label_files(labels, kinds):
    """Dict from names of outputs to lists of `AttachedFile`."""
    files = {name: [] for name in kinds}
    for name, lines in labels.items():
        file_name = "labels.txt" if len(kinds) == 1 else f"{name}_labels.txt"
        content = "".join(f"{line}\n" for line in lines).encode()
        files[name].append(AttachedFile(file_name, content, kinds[name]))
    return files


def is_labels(kind):
    return kind in (model_metadata.AXIS_LABELS, model_metadata.VALUE_LABELS)
