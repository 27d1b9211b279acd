"""What a trial came to."""

import dataclasses

BYTES = "litert_bytes"


@dataclasses.dataclass(frozen=True)
class TunedTrial:
    """A way to store tables that a tuner tried.

    Args:
        trial_id: String, keras-tuner's.
        method: String, the name of the method, e.g. `"codes 16x16"`.
        litert_bytes: Integer, bytes of the LiteRT file.
        score: Number, the metric.
        values: Dict of all hyperparameters.
    """

    trial_id: str
    method: str
    litert_bytes: int
    score: float
    values: dict
