package com.example.answers

/** Ids of a text, as a `WordTokenizer` with its default `standardize` gives them. */
class Words(lines: List<String>, private val length: Int? = null) {
    // Line 0 is padding, line 1 an unknown word.
    private val known = lines.withIndex().drop(2).associate { it.value to it.index }

    fun ids(text: String): IntArray {
        val clean = text.filter { it !in PUNCTUATION }
            .map { if (it in 'A'..'Z') it + 32 else it }
            .joinToString("")
        val found = clean.split(' ', '\t', '\n', '\r', '\u000B', '\u000C')
            .filter { it.isNotEmpty() }
            .map { known[it] ?: 1 }
            .ifEmpty { listOf(1) } // 0 for a TextVectorization in Keras.
        return found.toIntArray().let { if (length == null) it else it.copyOf(length) }
    }

    private companion object {
        const val PUNCTUATION = "!\"#\$%&()*+,-./:;<=>?@[\\]^_`{|}~'"
    }
}
