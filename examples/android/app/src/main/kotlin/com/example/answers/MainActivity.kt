package com.example.answers

import android.app.Activity
import android.os.Bundle
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView
import java.util.concurrent.Executors

/** A field for a text, or for ids with spaces between them, and the answers to it. */
class MainActivity : Activity() {
    // Files are opened when they are first asked, and one thread runs them.
    private val worker = Executors.newSingleThreadExecutor()
    private val labels = lazy { TextLabels(this, "fruit.tflite") }
    private val topIds = lazy { TopIds(this, "classes.tflite") }

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val entry = EditText(this).apply { hint = "green apples, or 3 14 15" }
        val answers = TextView(this).apply { textSize = 18f }
        val button = Button(this).apply {
            text = "Answer"
            setOnClickListener {
                val asked = entry.text.toString()
                worker.execute {
                    val lines = runCatching { answer(asked) }
                        .getOrElse { it.toString() }
                    runOnUiThread { answers.text = lines }
                }
            }
        }
        setContentView(
            LinearLayout(this).apply {
                orientation = LinearLayout.VERTICAL
                fitsSystemWindows = true
                listOf(entry, button, answers).forEach(::addView)
            }
        )
    }

    private fun answer(asked: String): String {
        val words = asked.trim().split(Regex("\\s+"))
        val ids = words.mapNotNull { it.toIntOrNull() }
        val pairs =
            if (ids.size == words.size) topIds.value.of(ids.toIntArray())
            else labels.value.of(asked)
        return pairs.joinToString("\n") { (name, score) -> "%.3f  %s".format(score, name) }
    }

    override fun onDestroy() {
        worker.execute {
            if (labels.isInitialized()) labels.value.close()
            if (topIds.isInitialized()) topIds.value.close()
        }
        worker.shutdown()
        super.onDestroy()
    }
}
