"""What is raised for a word without a vector."""

import difflib

# Words that are compared letter by letter, and words named.
_COMPARED, _NAMED = 2000, 3


class UnknownWord(KeyError):
    """Names the word and near spellings, which are looked for if read."""

    def __init__(self, word, words, has_letters=False):
        super().__init__(word)
        self._words = words
        self._has_letters = has_letters

    def __str__(self):
        (word,) = self.args
        near = _near(word, self._words)
        hint = f" Near spellings: {', '.join(near)}." if near else ""
        letters = ", or have letters that do" if self._has_letters else ""
        return (
            f"Words must be among the {len(self._words):,} that have vectors"
            f"{letters}. Received: {word!r}.{hint}"
        )

    def __reduce__(self):
        return type(self), (*self.args, self._words, self._has_letters)


def _near(word, words):
    if not isinstance(word, str) or not word:
        return []
    first, length = word[0].lower(), len(word)
    alike = [
        other
        for other in words
        if other[:1].lower() == first and abs(len(other) - length) <= 2
    ]
    same = [other for other in alike if other.lower() == word.lower()]
    near = difflib.get_close_matches(word, alike[:_COMPARED], _NAMED, 0.75)
    return [repr(other) for other in dict.fromkeys(same + near)][:_NAMED]
