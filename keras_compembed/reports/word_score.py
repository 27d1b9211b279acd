"""What vectors of words reach in a test that people answered."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class WordScore:
    """What vectors of words reach in a test that people answered."""

    name: str
    score: float | None
    num_used: int
    num_all: int
