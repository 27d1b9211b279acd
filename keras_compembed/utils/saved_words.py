"""Vocabularies in `.keras` files that Keras does not read as it wrote them."""

import zipfile


def check_saved_words(path):
    """Raises if Keras reads other words from a file than were saved."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith("vocabulary.txt"):
                continue
            for word in archive.read(name).decode().split("\n"):
                if word and word.splitlines() != [word]:
                    raise ValueError(
                        "Vocabularies that Keras reads from a `.keras` file "
                        "must have no words with line ends in them, such as "
                        "U+0085: ids of other words would be others. "
                        f"Received: the word {word!r}. Save a copy of the "
                        "model as it was trained, by `keras_compembed."
                        "compression.compress_model` or `prune_vocabulary`: "
                        "those keep words in another place."
                    )
