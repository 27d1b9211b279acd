"""What `read_vectors` was asked for."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Options:
    """Arguments of `read_vectors`."""

    words: object = None
    tensor: str | None = None
    limit: int | None = None
    encoding: str = "utf-8"
    unicode_errors: str = "strict"
    subwords: int | bool = False

    def rows_of(self, count):
        return count if self.limit is None else min(count, self.limit)

    def decode(self, word):
        """Text of bytes."""
        try:
            return word.decode(self.encoding, self.unicode_errors)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{word[:40]!r}, which is not in {self.encoding}; `encoding=` "
                "and `unicode_errors=` read others"
            ) from error
