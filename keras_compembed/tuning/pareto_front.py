"""Scores and sizes of the trials of a search."""

import dataclasses
import json

from keras_compembed.reports.plots import plot_pareto_front
from keras_compembed.tuning.objective_check import objective_names
from keras_compembed.tuning.search_space import method_name
from keras_compembed.tuning.tuned_trial import BYTES
from keras_compembed.tuning.tuned_trial import TunedTrial
from keras_compembed.utils.files import replacing


@dataclasses.dataclass(frozen=True)
class ParetoFront:
    """What a search found: scores against bytes of LiteRT files.

    `print` it, take its `to_dict()`, `save` it as JSON, or `plot` it.

    Example:

    >>> front = ParetoFront(
    ...     [
    ...         kc.tuning.TunedTrial("0", "int4", 150_000, 0.9, {}),
    ...         kc.tuning.TunedTrial("1", "codes 16x16", 50_000, 0.88, {}),
    ...         kc.tuning.TunedTrial("2", "codes 64x4", 60_000, 0.85, {}),
    ...     ],
    ...     metric="val_accuracy",
    ...     direction="max",
    ... )
    >>> [trial.method for trial in front.best]
    ['codes 16x16', 'int4']
    >>> front.best_under(100_000).method
    'codes 16x16'

    Args:
        trials: Sequence of `TunedTrial`; kept smallest file first.
        metric: String, the name of the metric.
        direction: `"max"` or `"min"`, which scores are better.
        original_bytes: Optional integer, bytes of the LiteRT file of the model
            as it was.
    """

    trials: tuple
    metric: str
    direction: str
    original_bytes: int | None = None

    def __post_init__(self):
        trials = sorted(
            self.trials, key=lambda x: (x.litert_bytes, -self._good(x))
        )
        object.__setattr__(self, "trials", tuple(trials))

    def _good(self, trial):
        return trial.score if self.direction == "max" else -trial.score

    @property
    def best(self):
        """Tuple of the trials that beat every smaller or equal file."""
        found = []
        for trial in self.trials:
            if not found or self._good(trial) > self._good(found[-1]):
                found.append(trial)
        return tuple(found)

    def best_under(self, max_bytes=None):
        """The best trial whose file is small enough.

        Args:
            max_bytes: Optional integer. Defaults to `None`: any size.

        Returns:
            A `TunedTrial`.

        Raises:
            ValueError: if there is none.
        """
        small = [
            trial
            for trial in self.best
            if max_bytes is None or trial.litert_bytes <= max_bytes
        ]
        if not small:
            raise ValueError(
                "`max_bytes` must be at least that of the smallest trial, "
                f"{self.trials[0].litert_bytes:,} with "
                f"{self.trials[0].method!r}. Received: max_bytes={max_bytes}."
            )
        return small[-1]

    def to_dict(self):
        """All figures as a dict that `json` can write."""
        best = {trial.trial_id for trial in self.best}
        trials = [
            {**dataclasses.asdict(x), "is_best": x.trial_id in best}
            for x in self.trials
        ]
        return {
            "metric": self.metric,
            "direction": self.direction,
            "original_bytes": self.original_bytes,
            "trials": trials,
        }

    def save(self, path, overwrite=False):
        """Writes it as JSON.

        Args:
            path: String or path-like, the file to write.
            overwrite: Boolean, whether it may exist. Defaults to `False`.

        Raises:
            FileExistsError: if `path` exists and `overwrite` is False.
        """
        with replacing(path, overwrite) as temporary:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(self.to_dict(), file, indent=2)
                file.write("\n")

    def plot(self, path, overwrite=False):
        """Draws scores against bytes; needs the extra `plots`.

        Args:
            path: String or path-like, the picture to write; the suffix says
                the format (`.png`, `.svg`, `.pdf`).
            overwrite: Boolean, whether it may exist. Defaults to `False`.

        Raises:
            FileExistsError: if `path` exists and `overwrite` is False.
            ImportError: if matplotlib is not installed.
        """
        plot_pareto_front(self, path, overwrite)

    def __str__(self):
        rows = [["file bytes", "smaller", self.metric, "", "stored as"]]
        best = set(map(id, self.best))
        for trial in self.trials:
            smaller = "-"
            if self.original_bytes:
                smaller = f"{self.original_bytes / trial.litert_bytes:.1f}x"
            mark = "*" if id(trial) in best else ""
            score = f"{trial.score:.4f}"
            size = f"{trial.litert_bytes:,}"
            rows.append([size, smaller, score, mark, trial.method])
        widths = [max(map(len, x)) for x in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = zip(row[:-1], widths, strict=False)
            cells = [cell.rjust(width) for cell, width in cells]
            lines.append("  ".join([*cells, row[-1]]))
        lines.insert(1, "-" * max(map(len, lines)))
        lines.append("* no smaller file is as good.")
        return "\n".join(lines)


def pareto_front(tuner, metric=None):
    """Scores against bytes of all trials that a tuner has finished.

    Example: see `CompressedHyperModel`.

    Args:
        tuner: A tuner of keras-tuner whose hypermodel is a
            `CompressedHyperModel`.
        metric: Optional string, a metric that trials reported. Defaults to
            `None`: the tuner's objective, of several the first that is not
            the bytes.

    Returns:
        A `ParetoFront`.

    Raises:
        ValueError: if no trial is finished, or none reported the metric.
    """
    done = [
        trial
        for trial in tuner.oracle.trials.values()
        if trial.status == "COMPLETED"
    ]
    if not done:
        raise ValueError(
            "`tuner` must have finished a trial. Received: a tuner with "
            f"{len(tuner.oracle.trials)} trials, none of them completed."
        )
    objective = tuner.oracle.objective
    if metric is None:
        names = [x for x in objective_names(objective) if x != BYTES]
        metric = names[0] if names else BYTES
    for name in (metric, BYTES):
        if not all(trial.metrics.exists(name) for trial in done):
            raise ValueError(
                "`metric` must be one that trials reported, with "
                "`litert_bytes`, as those of a `CompressedHyperModel` do. "
                f"Received: {name!r}, and the metrics "
                f"{sorted(done[0].metrics.metrics)}."
            )
    return ParetoFront(
        tuple(
            TunedTrial(
                trial.trial_id,
                method_name(trial.hyperparameters.values),
                round(trial.metrics.get_last_value(BYTES)),
                float(trial.metrics.get_last_value(metric)),
                dict(trial.hyperparameters.values),
            )
            for trial in done
        ),
        metric,
        done[0].metrics.get_direction(metric),
        getattr(tuner.hypermodel, "original_bytes", None),
    )
