"""Replaces ops that LiteRT lacks by others with equal results."""

import os

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def rewrite_ops(folder):
    """Replaces ops in the functions of a SavedModel, in place."""
    path = os.path.join(folder, "saved_model.pb")
    saved = saved_model_pb2.SavedModel()
    with open(path, "rb") as file:
        saved.ParseFromString(file.read())
    library = saved.meta_graphs[0].graph_def.library
    added = [new for function in library.function for new in _rewrite(function)]
    if added:
        library.function.extend(added)
        with open(path, "wb") as file:
            file.write(saved.SerializeToString())


def _rewrite(function):
    """Replaces ops of a `FunctionDef` by calls; yields the called functions."""
    nodes = {f"{node.name}:output:0": node for node in function.node_def}
    renamed = {}
    for node in function.node_def:
        if node.op not in _REWRITES:
            continue
        output, types, rewrite = _REWRITES[node.op]
        compute = rewrite(node, [_values(nodes.get(x)) for x in node.input])
        if compute is None:
            continue
        graph = _graph(compute, [node.attr[name].type for name in types])
        yield from graph.library.function
        (call,) = (each for each in graph.node if each.input)
        node.op = call.op
        # Keep shapes.
        for name in [x for x in node.attr if not x.startswith("_")]:
            del node.attr[name]
        node.MergeFrom(type(node)(attr=call.attr))
        renamed[f"{node.name}:{output}:0"] = f"{node.name}:output:0"
    for node in function.node_def if renamed else ():
        node.input[:] = [renamed.get(x, x) for x in node.input]
    for name, tensor in list(function.ret.items()):
        function.ret[name] = renamed.get(tensor, tensor)


def _graph(compute, dtypes):
    graph = tf.Graph()
    with graph.as_default():
        inputs = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
        tf.function(compute, autograph=False)(*inputs)
    return graph.as_graph_def()


def _values(node):
    """Values of a constant; Nones for a packed vector."""
    if node is not None and node.op == "Const":
        return tf.make_ndarray(node.attr["value"].tensor)
    if node is not None and node.op == "Pack":
        return [None] * node.attr["N"].i
    return None


def _new_axes(node, values):
    """Splits a slice that adds axes into a plain slice and EXPAND_DIMS."""
    # Files leave out masks of 0.
    masks = {
        name: node.attr[f"{name}_mask"].i
        for name in _MASKS
        if f"{name}_mask" in node.attr
    }
    steps = values[3]
    if "new_axis" not in masks or steps is None:
        return None
    entries = [
        {name for name, mask in masks.items() if mask >> place & 1}
        for place in range(len(steps))
    ]
    kept = [i for i, entry in enumerate(entries) if not _is_new(entry)]
    is_whole = all(
        "ellipsis" in entries[i]
        or (entries[i] == {"begin", "end"} and steps[i] == 1)
        for i in kept
    )
    others = {
        f"{name}_mask": sum(
            1 << new for new, old in enumerate(kept) if name in entries[old]
        )
        for name in masks
    }

    def compute(tensor, *bounds):
        if not is_whole:
            bounds = [tf.gather(each, kept) for each in bounds]
            tensor = tf.strided_slice(tensor, *bounds, **others)
        for axis in _axes_to_add(entries):
            tensor = tf.expand_dims(tensor, axis)
        return tensor

    return compute


def _is_new(entry):
    return "new_axis" in entry and "ellipsis" not in entry


def _axes_to_add(entries):
    """Axes in order; axes after an ellipsis are counted from the end."""
    middle = len(entries)
    for place, entry in enumerate(entries):
        if "ellipsis" in entry:
            middle = place
    ahead, behind = entries[:middle], entries[:middle:-1]
    for part, is_ahead in ((ahead, True), (behind, False)):
        axes = [x for x in part if _is_new(x) or "shrink_axis" not in x]
        for place, entry in enumerate(axes):
            if _is_new(entry):
                yield place if is_ahead else -1 - place


def _of_integers(compute):
    """Replaces an op for integers; LiteRT has it for floats only."""

    def rewrite(node, values):
        # Biases of the last axis only: files leave out the default format.
        is_usual = tf.as_dtype(node.attr["T"].type).is_integer
        is_usual = is_usual and "data_format" not in node.attr
        return compute if is_usual else None

    return rewrite


def _sign_bit(node, values):
    """The sign bit, which `keras.ops.argmax` and `argmin` of floats read."""
    if node.attr["T"].type != tf.int32 or values[1] != tf.int32.min:
        return None
    return lambda numbers, bit: tf.where(numbers < 0, bit, 0)


def _counts(node, values):
    """Counts of ids, or flags, in `CategoryEncoding`."""
    is_weighted = values[2] is None or len(values[2])
    is_binary = node.attr["binary_output"].b

    def compute(ids, size, weights):
        found = tf.one_hot(ids, tf.cast(size, tf.int32), dtype=weights.dtype)
        if is_binary:
            return tf.reduce_max(found, axis=-2)
        if is_weighted:
            found *= tf.expand_dims(weights, -1)
        return tf.reduce_sum(found, axis=-2)

    return compute


def _product(node, values):
    """An einsum without sums; the converter gives it a wrong shape."""
    terms, _, result = node.attr["equation"].s.decode().partition("->")
    terms = terms.split(",")
    if len(terms) != 2 or any(
        len(set(term)) < len(term) or not set(term) <= set(result)
        for term in (*terms, result)
    ):
        return None

    def spread(tensor, term):
        order = sorted(term, key=result.index)
        tensor = tf.transpose(tensor, [term.index(x) for x in order])
        for place, index in enumerate(result):
            if index not in term:
                tensor = tf.expand_dims(tensor, place)
        return tensor

    return lambda x, y: spread(x, terms[0]) * spread(y, terms[1])


# For each op: its output, attributes with the dtypes of its inputs, and a
# function from op and constants to the function that replaces it, or None.
_REWRITES = {
    "Abs": ("y", ["T"], _of_integers(lambda x: tf.maximum(x, -x))),
    # Keras turns ids plus column offsets into a bias.
    "BiasAdd": ("output", ["T", "T"], _of_integers(lambda x, y: x + y)),
    "BitwiseAnd": ("z", ["T", "T"], _sign_bit),
    "DenseBincount": ("output", ["Tidx", "Tidx", "T"], _counts),
    "Einsum": ("output", ["T", "T"], _product),
    "Sign": ("y", ["T"], _of_integers(lambda x: tf.clip_by_value(x, -1, 1))),
    "StridedSlice": ("output", ["T", "Index", "Index", "Index"], _new_axes),
}
