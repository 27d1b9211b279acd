"""Sizes and errors of the ways to store a model's tables."""

import dataclasses
import json

from keras_compembed.reports.plots import plot_frontier
from keras_compembed.utils.files import replacing

_MAX_METHODS = 60


@dataclasses.dataclass(frozen=True)
class FrontierPoint:
    """One way to store the tables of a model."""

    # Method names by layer name.
    methods: dict
    file_bytes: int
    # Squared error of rows over their squared distance from the mean.
    error: float | None = None
    # Validation metric after tuning.
    score: float | None = None
    # Whether `file_bytes` was measured, not estimated.
    is_exported: bool = False
    is_chosen: bool = False

    @property
    def name(self):
        """String: the methods, with layer names if there are several."""
        if len(self.methods) == 1:
            return next(iter(self.methods.values()))
        return ", ".join(f"{key}: {x}" for key, x in self.methods.items())


@dataclasses.dataclass(frozen=True)
class Frontier:
    """The ways to store tables that a search tried."""

    points: tuple
    limit_bytes: int | None = None
    quantize: str | None = None
    min_runtime: str | None = None
    original_bytes: int | None = None
    original_score: float | None = None
    metric: str | None = None

    def __post_init__(self):
        points = sorted(self.points, key=lambda point: point.file_bytes)
        object.__setattr__(self, "points", tuple(points))

    def __iter__(self):
        return iter(self.points)

    def __len__(self):
        return len(self.points)

    @property
    def chosen(self):
        """The point that the search chose, or None."""
        return next((point for point in self.points if point.is_chosen), None)

    @property
    def best(self):
        """Tuple of points with a lower error than all smaller ones."""
        found, lowest = [], float("inf")
        for point in self.points:
            if point.error is not None and point.error < lowest:
                lowest = point.error
                found.append(point)
        return tuple(found)

    def to_dict(self):
        """Returns all values as a dict for `json`."""
        return dataclasses.asdict(self)

    def save(self, path, overwrite=False):
        """Writes a JSON file."""
        with replacing(path, overwrite) as temporary:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(self.to_dict(), file, indent=2)
                file.write("\n")

    @classmethod
    def load(cls, path):
        """Reads a file written by `save`."""
        with open(path, encoding="utf-8") as file:
            try:
                content = json.load(file)
                points = [FrontierPoint(**x) for x in content["points"]]
                return cls(**{**content, "points": points})
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    "`path` must be a file that `Frontier.save` wrote. "
                    f"Received: path={path!r}."
                ) from error

    def plot(self, path, overwrite=False):
        """Writes a plot; needs the extra `plots`."""
        plot_frontier(self, path, overwrite=overwrite)

    def __str__(self):
        header = ["file bytes", "smaller", "error", self.metric or "score"]
        rows = [[*header, "", "stored as"]]
        for point in self.points:
            size, name, smaller = point.file_bytes, point.name, "-"
            if self.original_bytes:
                smaller = f"{self.original_bytes / size:.1f}x"
            if len(name) > _MAX_METHODS:
                name = name[: _MAX_METHODS - 3] + "..."
            mark = "=" if point.is_exported else "~"
            error, score = _number(point.error), _number(point.score)
            chosen = "->" if point.is_chosen else ""
            row = [f"{mark} {size:,}", smaller, error, score, chosen, name]
            rows.append(row)
        if self.original_bytes:
            size, score = f"{self.original_bytes:,}", self.original_score
            rows.append([size, "1.0x", "0", _number(score), "", "original"])
        # Leaves out empty columns.
        columns = [
            column
            for column in zip(*rows, strict=True)
            if any(cell not in ("", "-") for cell in column[1:])
        ]
        widths = [max(map(len, column)) for column in columns]
        lines = []
        for cells in zip(*columns, strict=True):
            *figures, name = zip(cells, widths, strict=True)
            parts = [cell.rjust(width) for cell, width in figures]
            lines.append("  ".join([*parts, name[0]]).rstrip())
        lines.insert(1, "-" * max(map(len, lines)))
        if any(point.is_exported for point in self.points):
            lines.append("= size of a real file; ~ estimated size.")
        if self.limit_bytes is not None:
            lines.append(f"Size limit: {self.limit_bytes:,} bytes.")
        return "\n".join(lines)


def _number(value):
    return "-" if value is None else f"{value:.4f}"
