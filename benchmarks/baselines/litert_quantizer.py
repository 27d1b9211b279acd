"""Rows of a table as LiteRT Quantizer rounds them in a file."""

import dataclasses
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from litert_quantizer import Quantizer
from litert_quantizer import qtyping
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from benchmarks.common.litert import File

_LOOKUP = schema.BuiltinOperator.EMBEDDING_LOOKUP


@dataclasses.dataclass(frozen=True)
class LiteRTQuantizer:
    """Rows as integers, with a float scale for a row or a block of one.

    It quantizes tables of EMBEDDING_LOOKUP only. Converters of Keras write
    GATHER, which it leaves in float32: its file has that op replaced.
    """

    bits: int
    block_size: int | None = None

    @property
    def name(self):
        blocks = f", blocks of {self.block_size}" if self.block_size else ""
        return f"LiteRT Quantizer int{self.bits}{blocks}"

    def reason_against(self, input_dim, output_dim):
        if output_dim % (self.block_size or 1):
            return "its rows have no whole number of blocks"
        return None

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        # A float32 scale and an int64 zero of a row; float16 of a block.
        scales = 12
        if self.block_size:
            scales = 2 * output_dim // self.block_size
        return input_dim * (output_dim * self.bits // 8 + scales)

    def rows(self, table):
        """The table as the file has it, float32."""
        granularity = "CHANNELWISE"
        if self.block_size:
            granularity = f"BLOCKWISE_{self.block_size}"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "table.tflite")
            _write_lookup(table, path)
            quantizer = Quantizer(str(path))
            quantizer.add_dynamic_config(
                ".*",
                qtyping.TFLOperationName.EMBEDDING_LOOKUP,
                self.bits,
                qtyping.QuantGranularity[granularity],
            )
            contents = bytes(quantizer.quantize().quantized_model)
        file = File(contents, {None: (len(table),)})
        file.run(np.arange(len(table), dtype="int32"))
        (rows,) = file.outputs().values()
        return rows


def _write_lookup(table, path):
    """Writes a file with one op, which looks up rows of a table."""
    parts = tf.Module()
    parts.table = tf.Variable(table)
    parts.read = tf.function(
        lambda ids: tf.gather(parts.table, ids),
        input_signature=[tf.TensorSpec((None,), "int32", name="ids")],
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [parts.read.get_concrete_function()], parts
    )
    model = flatbuffer_utils.convert_bytearray_to_object(converter.convert())
    ((op,),) = (graph.operators for graph in model.subgraphs)
    op.inputs = op.inputs[::-1]
    op.builtinOptionsType, op.builtinOptions = 0, None
    (code,) = model.operatorCodes
    code.builtinCode = code.deprecatedBuiltinCode = _LOOKUP
    code.version = 1
    flatbuffer_utils.write_model(model, str(path))
