package com.example.answers

import android.content.Context
import com.google.mediapipe.tasks.core.BaseOptions
import com.google.mediapipe.tasks.text.textclassifier.TextClassifier

/** Names the labels of a text, by a file that was exported for MediaPipe. */
class TextLabels(context: Context, file: String) : AutoCloseable {
    private val classifier = TextClassifier.createFromOptions(
        context,
        TextClassifier.TextClassifierOptions.builder()
            .setBaseOptions(BaseOptions.builder().setModelAssetPath(file).build())
            .setMaxResults(3)
            .build(),
    )

    /** Labels and scores, the best first. */
    fun of(text: String): List<Pair<String, Float>> =
        classifier.classify(text)
            .classificationResult()
            .classifications()
            .first() // One entry for each output of the model.
            .categories()
            .map { it.categoryName() to it.score() }

    override fun close() = classifier.close()
}
