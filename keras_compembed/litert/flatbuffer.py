"""LiteRT files as objects: reads, writes, packs tables to int4 or int2."""

import collections
import copy
import dataclasses
import hashlib

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

IDENTIFIER = b"TFL3"
# The runtime reads tables in place and needs them aligned.
_ALIGNMENT = 16
_MIN_RUNTIME = b"min_runtime_version"
_CONVERSION = b"CONVERSION_METADATA"
# The first runtime that unpacks int4 once, when it loads a file.
UNPACK_RUNTIME = (2, 18, 0)
# Versions of ops, and the first runtimes with them, from LiteRT's
# runtime_version.cc; older ones are left out.
_RUNTIMES_OF_OPS = {
    ("CAST", 6): (2, 15),
    ("CAST", 7): (2, 17),
    ("CONV_2D", 8): (2, 15),
    ("DYNAMIC_UPDATE_SLICE", 2): (2, 17),
    ("FULLY_CONNECTED", 11): (2, 15),
    ("FULLY_CONNECTED", 12): (2, 17),
    ("FULLY_CONNECTED", 13): (2, 18),
    ("GATHER", 7): (2, 15),
    ("GATHER_ND", 5): (2, 16),
    ("TRANSPOSE_CONV", 5): (2, 15),
}
_PRODUCT_RUNTIME, _GATHER_RUNTIME = (2, 17, 0), (1, 14, 0)
# Versions of DEQUANTIZE by dtype; every runtime has the one of int16.
_INT4_DEQUANTIZE, _INT8_DEQUANTIZE, _INT16_DEQUANTIZE = 6, 2, 3
_INT8_GATHER, _INT8_PRODUCT = 2, 12
# Names of smaller constants are dropped.
_NAMED_BYTES = 64
_OP_NAMES = {
    code: name
    for name, code in vars(schema.BuiltinOperator).items()
    if isinstance(code, int)
}
# TensorFlow before 2.21 lacks the name INT2.
_TYPE_NAMES = {19: "int2"} | {
    code: name.lower()
    for name, code in vars(schema.TensorType).items()
    if isinstance(code, int)
}


@dataclasses.dataclass(frozen=True, eq=False)
class StoredTable:
    """Integers of one layer to store in a file."""

    name: str
    content: np.ndarray
    unit: np.float32 | None = None


def read_model(content):
    """The object from a file's bytes."""
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))


def write_model(model):
    """The bytes of an object from `read_model`."""
    model = copy.copy(model)
    model.buffers = [_AlignedBuffer(each) for each in model.buffers]
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return builder.Output()


class _AlignedBuffer(schema.BufferT):
    def __init__(self, buffer):
        vars(self).update(vars(buffer))

    def Pack(self, builder):
        data = None
        # Absent and empty vectors differ: keep both as they are.
        if self.data is not None:
            content = np.asarray(self.data, dtype="uint8").tobytes()
            builder.StartVector(1, len(content), _ALIGNMENT)
            builder.head -= len(content)
            end = builder.head + len(content)
            builder.Bytes[builder.head : end] = content
            data = builder.EndVector()
        schema.BufferStart(builder)
        if data is not None:
            schema.BufferAddData(builder, data)
        schema.BufferAddOffset(builder, self.offset)
        schema.BufferAddSize(builder, self.size)
        return schema.BufferEnd(builder)


def count_ops(model):
    """Count of ops by name."""
    names = collections.Counter(
        name_op(model, operator)
        for graph in model.subgraphs
        for operator in graph.operators or ()
    )
    return dict(sorted(names.items()))


def name_op(model, operator):
    """Name of an op; custom ones begin with `"CUSTOM "`."""
    return _name_code(model.operatorCodes[operator.opcodeIndex])


def _name_code(code):
    # Old files only have an 8-bit code.
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    if number == schema.BuiltinOperator.CUSTOM:
        return f"CUSTOM {code.customCode.decode()}"
    return _OP_NAMES.get(number, f"BUILTIN {number}")


def name_type(number):
    """Name of a tensor's type, e.g. `"int8"`."""
    return _TYPE_NAMES.get(number, f"type {number}")


def get_min_runtime(model):
    """Oldest runtime of a model as a tuple of integers, `()` if unknown."""
    text = get_min_runtime_text(model)
    return tuple(map(int, text.split("."))) if text else ()


def get_min_runtime_text(model):
    """Oldest runtime of a model as text, or None if unknown."""
    buffer = _min_runtime_buffer(model)
    if buffer is None or buffer.data is None:
        return None
    return bytes(buffer.data).rstrip(b"\0").decode() or None


def ops_of_runtime(model, version):
    """Names of the ops of a model that need a runtime version, if known."""
    codes = [(_name_code(code), code.version) for code in model.operatorCodes]
    return [x for x, y in codes if _RUNTIMES_OF_OPS.get((x, y)) == version[:2]]


def raise_min_runtime(model, version):
    """Raises the minimum runtime in the model to `version`."""
    buffer = _min_runtime_buffer(model)
    if buffer is not None and get_min_runtime(model) < version:
        text = ".".join(map(str, version)).encode()
        buffer.data = np.frombuffer(text.ljust(16, b"\0"), dtype="uint8")


def _min_runtime_buffer(model):
    for entry in model.metadata or ():
        if entry.name == _MIN_RUNTIME:
            return model.buffers[entry.buffer]
    return None


def order_ends(model, inputs, outputs):
    """Sorts inputs and outputs, which the converter may reorder."""
    (signature,) = model.signatureDefs
    graph = model.subgraphs[signature.subgraphIndex]
    for side, names in (("inputs", inputs), ("outputs", outputs)):
        entries = sorted(
            getattr(signature, side),
            key=lambda entry: names.index(entry.name.decode()),
        )
        setattr(signature, side, entries)
        order = [entry.tensorIndex for entry in entries]
        places = sorted(getattr(graph, side), key=order.index)
        setattr(graph, side, np.array(places, dtype="int32"))


def constants_of(model, graphs):
    """Size in bytes of each constant of subgraphs, by digest."""
    places = {tensor.buffer for graph in graphs for tensor in graph.tensors}
    found = {}
    for place in places:
        data = model.buffers[place].data
        if data is not None:
            content = np.asarray(data, "uint8").tobytes()
            found[hashlib.sha256(content).digest()] = len(content)
    return found


def pack(model, options, is_whole=True):
    """Packs tables and matrices of a converted file, in place."""
    pack_tables(model, options.tables, is_whole)
    quantize_matrices(model, options.matrices)
    unpack_once(model, options.unpacked)
    merge_buffers(model)
    drop_unused(model)
    shorten(model)


def pack_tables(model, tables, is_whole=True):
    """Packs tables as they are stored, in place."""
    buffers = {}
    arrays = [table.content for table in tables]
    for graph, index, place in find_constants(model, arrays):
        table = tables[place]
        # The runtime refuses other scales.
        if table.unit is not None and table.unit >= np.finfo("float32").tiny:
            _keep_unit(model, graph, index, table.unit)
        tensor = graph.tensors[index]
        tensor.name = table.name.encode()
        # One new buffer for all tensors of the table. Tensors with equal bytes
        # may share the converter's buffer.
        if place not in buffers:
            content = table.content.view("uint8").reshape(-1)
            buffers[place] = add_buffer(model, content)
        tensor.buffer = buffers[place]
    drop_unused(model)
    for place, table in enumerate(tables):
        if is_whole and place not in buffers:
            _refuse_unpacked(model, table, set(buffers.values()))


def find_constants(model, arrays):
    """A list of graphs, tensors equal to an array, and the array."""
    # Find all first: tensors of several subgraphs may share a buffer.
    return [
        (graph, index, place)
        for graph in model.subgraphs
        for index, tensor in enumerate(graph.tensors)
        if (place := _find_array(model, tensor, arrays)) is not None
    ]


def _find_array(model, tensor, arrays):
    data = model.buffers[tensor.buffer].data
    if data is None or tensor.shape is None:
        return None
    for place, array in enumerate(arrays):
        if (
            name_type(tensor.type) == array.dtype.name
            and tuple(tensor.shape) == array.shape
            and np.array_equal(data, array.view("uint8").reshape(-1))
        ):
            return place
    return None


def add_buffer(model, data=None):
    """Place of a new buffer of a model."""
    buffer = schema.BufferT()
    buffer.data = data
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def set_integers(tensor, kind, scales):
    """Makes a tensor quantized: integers with scales."""
    tensor.type = kind
    quantization = schema.QuantizationParametersT()
    quantization.scale = scales
    quantization.zeroPoint = np.zeros(len(scales), dtype="int64")
    tensor.quantization = quantization


def make_dequantize(model, version, source, target):
    """A DEQUANTIZE op from integers to floats."""
    op = schema.OperatorT()
    kind = schema.BuiltinOperator.DEQUANTIZE
    op.opcodeIndex = find_opcode(model, kind, version)
    op.inputs = np.array([source], dtype="int32")
    op.outputs = np.array([target], dtype="int32")
    op.builtinOptionsType = schema.BuiltinOptions.DequantizeOptions
    op.builtinOptions = schema.DequantizeOptionsT()
    return op


def gathers_of_floats(model, graph, index):
    """Gathers of a table of integers, without the casts after them."""
    gathers = list_readers(graph, index)
    for gather in gathers:
        numbers = gather.outputs[0]
        casts = list_readers(graph, numbers)
        kinds = [name_op(model, op) for op in (gather, *casts)]
        if (
            kinds != ["GATHER", *("CAST" for _ in casts)]
            or gather.inputs[0] != index
            or numbers in graph.outputs
        ):
            raise RuntimeError(
                f"A table cannot be packed: the converter reads it by {kinds} "
                "instead of GATHER and CAST. Pass Target(min_runtime='2.17'), "
                "which stores it without packing."
            )
        graph.tensors[numbers].type = schema.TensorType.FLOAT32
        for cast in casts:
            replace_tensor(model, graph, cast.outputs[0], numbers)
            graph.operators.remove(cast)
    return gathers


def _keep_unit(model, graph, index, unit):
    """Moves the float32 unit of a table into its tensor."""
    chains = [
        (gather, cast, product)
        for gather in list_readers(graph, index)
        for cast in list_readers(graph, gather.outputs[0])
        for product in list_readers(graph, cast.outputs[0])
    ]
    for gather, cast, product in chains:
        kinds = [name_op(model, op) for op in (gather, cast, product)]
        if kinds != ["GATHER", "CAST", "MUL"]:
            continue
        source, target = gather.outputs[0], product.outputs[0]
        (operand,) = {*product.inputs} - {*cast.outputs}
        # The converter may have stored it as float16, cast to float32.
        makers = [op for op in graph.operators if operand in op.outputs]
        stored = graph.tensors[makers[0].inputs[0] if makers else operand]
        data = model.buffers[stored.buffer].data
        data = b"" if data is None else bytes(data)
        is_half = name_type(stored.type) == "float16" and len(data) == 2
        if not is_half and data != unit.tobytes():
            continue
        for place in (index, source):
            kind = graph.tensors[place].type
            set_integers(graph.tensors[place], kind, np.array([unit]))
        dequantize = make_dequantize(model, _INT16_DEQUANTIZE, source, target)
        graph.operators[graph.operators.index(product)] = dequantize
        for op in (cast, *makers):
            if not list_readers(graph, op.outputs[0]):
                graph.operators.remove(op)


def list_readers(graph, index):
    """Operators of a subgraph that read a tensor."""
    return [op for op in graph.operators if index in op.inputs]


def replace_tensor(model, graph, old, new):
    """Makes all readers of a tensor in a subgraph read another one."""

    def replaced(indices):
        return np.where(np.equal(indices, old), new, indices).astype("int32")

    for operator in graph.operators:
        operator.inputs = replaced(operator.inputs)
    graph.outputs = replaced(graph.outputs)
    for entry in _named_tensors(model, graph):
        if entry.tensorIndex == old:
            entry.tensorIndex = new


def _named_tensors(model, graph):
    """Signature entries of a subgraph's inputs and outputs."""
    return [
        entry
        for signature in model.signatureDefs or ()
        if model.subgraphs[signature.subgraphIndex] is graph
        for entry in (*(signature.inputs or ()), *(signature.outputs or ()))
    ]


def find_opcode(model, wanted, version):
    """Index of an op code of a model; adds it if missing."""
    for index, code in enumerate(model.operatorCodes):
        if code.builtinCode == wanted and code.version == version:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode = wanted
    # An 8-bit field, up to 127.
    code.deprecatedBuiltinCode = min(wanted, 127)
    code.version = version
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def merge_buffers(model):
    """Makes tensors with equal bytes share a buffer, in place."""
    known, places = {}, {}
    for index, buffer in enumerate(model.buffers):
        if buffer.data is not None and len(buffer.data):
            content = np.asarray(buffer.data, "uint8").tobytes()
            digest = hashlib.sha256(content).digest()
            places[index] = known.setdefault(digest, index)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.buffer = places.get(tensor.buffer, tensor.buffer)


def drop_unused(model):
    """Removes unused op codes, tensors and buffers."""
    operators = [op for graph in model.subgraphs for op in graph.operators]
    used = sorted({op.opcodeIndex for op in operators})
    for op in operators:
        op.opcodeIndex = used.index(op.opcodeIndex)
    model.operatorCodes = [model.operatorCodes[index] for index in used]
    places = [_drop_unused_tensors(model, graph) for graph in model.subgraphs]
    named = {t.buffer for graph in model.subgraphs for t in graph.tensors}
    named.update(entry.buffer for entry in model.metadata or ())
    for index, buffer in enumerate(model.buffers):
        if index not in named:
            buffer.data = None
    return places


def shorten(model):
    """Drops what runtimes do not read: long names and empty buffers."""
    for graph in model.subgraphs:
        ends = {*graph.inputs, *graph.outputs}
        for index, tensor in enumerate(graph.tensors):
            data = model.buffers[tensor.buffer].data
            if data is None:
                tensor.buffer = 0
            if index not in ends and (data is None or len(data) < _NAMED_BYTES):
                # Tools need a name of each tensor.
                tensor.name = f"{index:x}".encode()
            if not _has_scales(tensor):
                tensor.quantization = None
    model.metadata = [
        entry for entry in model.metadata or () if entry.name != _CONVERSION
    ]
    owners = [t for graph in model.subgraphs for t in graph.tensors]
    owners += model.metadata
    used = sorted({0, *(owner.buffer for owner in owners)})
    model.buffers = [model.buffers[place] for place in used]
    for owner in owners:
        owner.buffer = used.index(owner.buffer)


def _drop_unused_tensors(model, graph):
    owners, entries = [graph, *graph.operators], _named_tensors(model, graph)
    used = {int(x) for _, _, each in _lists(owners) for x in each} - {-1}
    used.update(entry.tensorIndex for entry in entries)
    places = {old: new for new, old in enumerate(sorted(used))}
    graph.tensors = [graph.tensors[index] for index in places]
    places[-1] = -1
    move_tensors(owners, places)
    for entry in entries:
        entry.tensorIndex = places[entry.tensorIndex]
    return places


def move_tensors(owners, places):
    """Updates tensor indices in subgraphs and ops."""
    for owner, side, indices in _lists(owners):
        moved = [places[int(index)] for index in indices]
        setattr(owner, side, np.array(moved, "int32"))


def _lists(owners):
    """Owners and names of tensor lists in subgraphs and ops."""
    return [
        (owner, side, indices)
        for owner in owners
        for side in ("inputs", "outputs", "intermediates")
        if (indices := getattr(owner, side, None)) is not None
    ]


def _refuse_unpacked(model, table, known):
    """Raises if the file still has an unpacked copy of a table."""
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            data = model.buffers[tensor.buffer].data
            if (
                data is not None
                and tensor.shape is not None
                and tensor.buffer not in known
                and "float" not in name_type(tensor.type)
                and not _has_scales(tensor)
                and len(data) >= max(table.content.nbytes, 64)
                and table.content.shape[0] in tensor.shape
            ):
                raise RuntimeError(
                    f"The table {table.name!r} cannot be packed: the converter "
                    "changed its shape to "
                    f"{tuple(map(int, tensor.shape))}. Please report "
                    "this with the model."
                )


def _has_scales(tensor):
    """Whether a tensor is quantized, like int8 weights."""
    scale = getattr(tensor.quantization, "scale", None)
    return scale is not None and len(scale) > 0


def quantize_matrices(model, matrices):
    """Makes matrices int8 if their readers support it, in place."""
    wanted = [
        np.ascontiguousarray(form, dtype="float32")
        for matrix in matrices
        for form in (matrix, matrix.T)
    ]
    buffers = {}
    for graph, index, place in find_constants(model, wanted):
        readers = list_readers(graph, index)
        kinds = {
            (name_op(model, op), list(op.inputs).index(index)) for op in readers
        }
        is_product = kinds == {("FULLY_CONNECTED", 1)}
        if not is_product and kinds != {("GATHER", 0)}:
            continue
        tensor = graph.tensors[index]
        # Matrices of different shapes may have equal bytes.
        key = tensor.buffer, tuple(tensor.shape), is_product
        if key not in buffers:
            values, along = wanted[place], 1 if is_product else None
            # Integers up to 127, and their scales.
            scales = np.abs(values).max(axis=along, initial=0.0, keepdims=True)
            scales = np.where(scales > 0, scales, 127) / 127
            scales = scales.astype("float32")
            data = np.clip(np.rint(values / scales), -127, 127)
            data = data.astype("int8").reshape(-1).view("uint8")
            buffers[key] = add_buffer(model, data), scales.reshape(-1)
        tensor.buffer, scales = buffers[key]
        set_integers(tensor, schema.TensorType.INT8, scales)
        for op in readers:
            if is_product:
                op.opcodeIndex = find_opcode(
                    model, schema.BuiltinOperator.FULLY_CONNECTED, _INT8_PRODUCT
                )
                op.builtinOptions.asymmetricQuantizeInputs = True
            else:
                _make_float_again(model, graph, op, scales)
        raise_min_runtime(
            model, _PRODUCT_RUNTIME if is_product else _GATHER_RUNTIME
        )


def _make_float_again(model, graph, gather, scales):
    """Adds a DEQUANTIZE after a GATHER."""
    gather.opcodeIndex = find_opcode(
        model, schema.BuiltinOperator.GATHER, _INT8_GATHER
    )
    (output,) = gather.outputs
    rows = copy.copy(graph.tensors[output])
    rows.name = rows.name + b"_int8"
    set_integers(rows, schema.TensorType.INT8, scales)
    graph.tensors.append(rows)
    source = len(graph.tensors) - 1
    gather.outputs = np.array([source], dtype="int32")
    op = make_dequantize(model, _INT8_DEQUANTIZE, source, output)
    graph.operators.insert(graph.operators.index(gather) + 1, op)


def unpack_once(model, tables):
    """Makes the runtime unpack tables to floats when it loads a file."""
    found, packed = find_constants(model, tables), {}
    for graph, index, _ in found:
        tensor = graph.tensors[index]
        unpacked = schema.TensorT()
        unpacked.type = schema.TensorType.FLOAT32
        unpacked.shape = tensor.shape
        unpacked.shapeSignature = tensor.shapeSignature
        unpacked.buffer = add_buffer(model)
        unpacked.name = b"one_hot_rows_as_floats"
        place = len(graph.tensors)
        graph.tensors.append(unpacked)
        for gather in gathers_of_floats(model, graph, index):
            gather.inputs = np.array([place, gather.inputs[1]], dtype="int32")
        operator = make_dequantize(model, _INT4_DEQUANTIZE, index, place)
        graph.operators.insert(0, operator)
        tensor.name = b"one_hot_rows"
        set_integers(
            tensor, schema.TensorType.INT4, np.ones(1, dtype="float32")
        )
        # Tensors of any type with equal bytes may share the buffer.
        old = tensor.buffer
        if old not in packed:
            numbers = np.asarray(model.buffers[old].data, "uint8")
            numbers = np.pad(numbers, (0, len(numbers) % 2))
            packed[old] = add_buffer(model, numbers[0::2] | numbers[1::2] << 4)
        tensor.buffer = packed[old]
    drop_unused(model)
    if found:
        raise_min_runtime(model, UNPACK_RUNTIME)
