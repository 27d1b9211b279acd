package com.example.answers

import android.content.Context
import java.io.FileInputStream
import java.nio.channels.FileChannel.MapMode
import org.tensorflow.lite.Interpreter

/** Names the best classes for ids, by a file with the outputs "ids" and "probabilities". */
class TopIds(context: Context, file: String) : AutoCloseable {
    private val interpreter = context.assets.openFd(file).use { asset ->
        FileInputStream(asset.fileDescriptor).use { stream ->
            Interpreter(
                stream.channel.map(
                    MapMode.READ_ONLY, asset.startOffset, asset.declaredLength
                ),
                Interpreter.Options().setNumThreads(2),
            )
        }
    }
    private val key = interpreter.signatureKeys.single()
    private val input = interpreter.getSignatureInputs(key).first()

    // How many ids the file takes; -1 is any number.
    private val length =
        interpreter.getInputTensorFromSignature(input, key).shapeSignature().last()
    private val count =
        interpreter.getOutputTensorFromSignature("ids", key).shapeSignature().last()

    /** Ids and probabilities, the best first. Missing ids are 0. */
    fun of(ids: IntArray): List<Pair<Int, Float>> {
        val given = if (length < 0) ids else ids.copyOf(length)
        val best = arrayOf(IntArray(count))
        val probabilities = arrayOf(FloatArray(count))
        interpreter.runSignature(
            mapOf(input to arrayOf(given)),
            mapOf("ids" to best, "probabilities" to probabilities),
            key,
        )
        return best[0].zip(probabilities[0].asIterable())
    }

    override fun close() = interpreter.close()
}
