"""What a kind of file is, and what a reading was asked for."""

import collections
import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of file that holds words and vectors."""

    name: str
    looks_like: Callable
    read: Callable
    takes: tuple = ()
    is_folder: bool = False


@dataclasses.dataclass(frozen=True)
class Request:
    """What is read, same as the arguments of `read_vectors`."""

    words: object = None
    tensor: str | None = None
    limit: int | None = None
    encoding: str = "utf-8"
    unicode_errors: str = "strict"
    verbose: int = 0
    subwords: int | bool = False

    def rows_of(self, count):
        """How many of `count` rows are read."""
        return count if self.limit is None else min(count, self.limit)

    def wants_all(self, count):
        """Whether nothing may stand behind `count` rows."""
        return self.limit is None or self.limit > count

    def decode(self, word):
        return word.decode(self.encoding, self.unicode_errors)

    def most_subwords(self, num_words):
        """How many vectors of groups of letters are read at most."""
        return num_words if self.subwords is True else self.subwords


# Words, a float32 row for each, what was left out, a string, and `Subwords`
# if they were asked for.
Rows = collections.namedtuple(
    "Rows", ["words", "vectors", "remark", "subwords"], defaults=[None]
)
