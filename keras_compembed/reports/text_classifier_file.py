"""Which files MediaPipe's `TextClassifier` opens."""

import os

import numpy as np

from keras_compembed.export import flatbuffer
from keras_compembed.export.inspect_litert import inspect_litert

# Custom ops of `@mediapipe/tasks-text` 1.0.
_CUSTOM_OPS = {
    "CUSTOM KmeansEmbeddingLookup",
    "CUSTOM NGramHash",
    "CUSTOM RaggedTensorToTensor",
    "CUSTOM TFSentencepieceTokenizeOp",
}
# What ends in one of these, or has labels, answers with probabilities.
_PROBABILITIES = {"LOGISTIC", "SOFTMAX"}
_SAME_NUMBERS = {"DEQUANTIZE", "QUANTIZE", "RESHAPE", "SQUEEZE"}
_WAY_OUT = (
    "Begin the model with a tokenizer of `keras_compembed.text` and call "
    "`kc.export.export_litert(model, path, runtime='mediapipe', labels=...)`."
)


def read_text_classifier(path, name="path"):
    """What is in a file, if MediaPipe's `TextClassifier` opens it."""
    path = os.fspath(path)
    file = inspect_litert(path)
    signature, *others = file.signatures
    model = flatbuffer.read_model(np.memmap(path, mode="r"))
    received = None
    if [tensor.dtype for tensor in signature.inputs] != ["string"]:
        inputs = ", ".join(
            f"{tensor.dtype} {tensor.shape}" for tensor in signature.inputs
        )
        received = f"one that takes {inputs or 'nothing'}"
    missing = set(flatbuffer.list_ops(model)) - _CUSTOM_OPS
    missing = sorted(op for op in missing if op.startswith("CUSTOM"))
    if received is None and missing:
        ops = ", ".join(op.removeprefix("CUSTOM ") for op in missing)
        received = f"one of ops that MediaPipe lacks ({ops})"
    if received is None and (others or len(model.subgraphs) > 1):
        received = f"one of {max(len(model.subgraphs), 1 + len(others))} graphs"
    if received is not None:
        raise ValueError(
            f"`{name}` must be a file that takes one text and that MediaPipe's "
            f"TextClassifier opens. Received {received}: {path!r}. {_WAY_OUT}"
        )
    dtypes = [tensor.dtype for tensor in signature.outputs]
    if dtypes not in (["float32"], ["uint8"]):
        raise ValueError(
            f"`{name}` must be a file that answers with one array of "
            "probabilities. Received one that answers with "
            f"{', '.join(dtypes)}: {path!r}."
        )
    (output,) = signature.outputs
    labels = file.labels.get(output.name)
    if labels is None and not _is_softmax(model):
        raise ValueError(
            f"`{name}` must be a classifier. Received a file without labels "
            "that ends in no softmax or sigmoid, as sentence vectors do, which "
            f"are for MediaPipe's TextEmbedder: {path!r}. If it is a "
            "classifier, export it with `labels`."
        )
    if labels is not None and len(labels) != output.shape[-1]:
        raise ValueError(
            f"`{name}` must have a label for each class. Received a file with "
            f"{len(labels)} labels of {output.shape[-1]} classes: {path!r}."
        )
    return file


def _is_softmax(model):
    """Whether the only output of a model is one of a softmax or a sigmoid."""
    (graph,) = model.subgraphs
    (index,) = graph.outputs
    makers = {
        output: operator
        for operator in graph.operators
        for output in operator.outputs
    }
    while index in makers:
        name = flatbuffer.name_op(model, makers[index])
        if name not in _SAME_NUMBERS:
            return name in _PROBABILITIES
        index = makers[index].inputs[0]
    return False
