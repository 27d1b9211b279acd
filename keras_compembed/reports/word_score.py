"""What vectors of words reach in a test that people answered."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class WordScore:
    """What vectors of words reach in a test that people answered.

    Args:
        name: String, of the test.
        score: Number: of word pairs the rank correlation with what people
            say, of analogies the share that is right. None if too few words
            are known.
        num_used: Integer, pairs or questions all of whose words are known.
        num_all: Integer, those of the whole test.
    """

    name: str
    score: float | None
    num_used: int
    num_all: int
