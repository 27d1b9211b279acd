"""Copies of a model within a number of bytes, or within a loss."""

import math
import warnings

from keras_compembed.compression.budget import check_budget
from keras_compembed.compression.compile_like import compile_like
from keras_compembed.compression.file_bytes import count_file
from keras_compembed.compression.frontier import Frontier
from keras_compembed.compression.searched_tables import find_searched_tables
from keras_compembed.compression.size_search import SizeSearch
from keras_compembed.compression.stop_request import StopRequest
from keras_compembed.compression.strip import strip
from keras_compembed.compression.table_choice import check_model
from keras_compembed.compression.tuned_copies import TunedCopies
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.sizes import format_bytes

# Files of larger models are not made to be counted.
_LARGEST_ORIGINAL = 1 << 30
# Sizes of a frontier are so many times apart, those of a search for a loss at
# its end.
_STEP, _LAST_STEP = 2.0, 1.15


def find_frontier(
    model, budget=None, layers=None, seed=None, sample_inputs=None, verbose=1
):
    """The sizes that a model can have, and what its tables lose at each.

    By arithmetic and short fits to samples of rows, without training: what
    `compress_model` with a budget looks at first, from the smallest file up.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((20,), dtype="int32"),
    ...     keras.layers.Embedding(500, 32, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ... ])
    >>> methods = [kc.methods.Rounded(2), kc.methods.Rounded(4)]
    >>> budget = kc.Budget(methods=methods, quantize="int8")
    >>> found = find_frontier(model, budget, ["words"], verbose=0)
    >>> [point.name for point in found.best]
    ['int2', 'int4']

    Args:
        model: A built `keras.Model`.
        budget: Optional `keras_compembed.Budget`, which needs no limit. Its
            data is used only to count how often ids occur.
        layers, seed, sample_inputs, verbose: Same as in `compress_model`.

    Returns:
        A `Frontier`.
    """
    check_model(model)
    options = layers, seed, sample_inputs, verbose
    search = FindSize(model, check_budget(budget), *options, tunes=False)
    found = search.frontier()
    if verbose:
        print(f"\n{found}")
    return found


class FindSize:
    """Finds the best copy of a model within a limit, or within a loss."""

    def __init__(
        self, model, budget, layers, seed, sample_inputs, verbose, tunes=True
    ):
        self._model = model
        self._budget = budget
        self._verbose = verbose
        self._stop = StopRequest()
        self._original_score = self._tuned = None
        tables = find_searched_tables(model, budget, layers, seed, verbose)
        if tunes and budget.data is not None:
            self._tuned = TunedCopies(model, budget.data, seed)
            self._original_score = self._tuned.score_of_original()
        self._copies = {}
        self._sizes = SizeSearch(
            model, tables, budget, sample_inputs, self._stop, verbose
        )
        self._original_bytes = self._count_original()

    def within_budget(self):
        """The best copy within the bytes, or the smallest within the loss."""
        if self._budget.max_loss is None:
            return self._within(self._budget.max_bytes)
        max_loss = self._budget.max_loss
        with self._stop.watching():
            limits = self._limits()
            low, high, held = -1, len(limits), None
            # What holds the loss is in `held`, at the place `high`.
            while high - low > 1 and not self._is_over(held):
                middle = (low + high) // 2
                found = self._try_loss(limits[middle], max_loss, held)
                if found is None:
                    low = middle
                else:
                    high, held = middle, found
            if held is not None and low >= 0:
                held = self._between(
                    limits[low], self._sizes.files.of(held), held, max_loss
                )
        if held is None:
            self._publish(None)
            scores = (score for _, score in self._copies.values())
            best = min(scores, key=self._tuned.loss)
            raise ValueError(
                f"No way to store the tables was found that holds `max_loss`="
                f"{max_loss}. Received: a model whose "
                f"{self._tuned.metric} is {self._original_score:.4f}, and "
                f"copies of which the best reached {best:.4f}. Pass more "
                "`epochs`, or a larger `max_loss`."
            )
        return self._result(held)

    def frontier(self):
        """The `Frontier` of all sizes, without tuning."""
        with self._stop.watching():
            for limit in self._limits():
                if self._sizes.is_over:
                    break
                self._sizes.look(limit)
        self._publish(None)
        return self._budget.frontier

    def _limits(self):
        """Limits from the smallest file up, each some times the last."""
        smallest = self._sizes.count(self._sizes.smallest)
        largest = self._sizes.largest_bytes()
        number = max(1, math.ceil(math.log(largest / smallest, _STEP)))
        step = (largest / smallest) ** (1 / number)
        return [math.ceil(smallest * step**i) for i in range(number + 1)]

    def _within(self, limit):
        if self._sizes.count_smallest(limit) > limit:
            raise self._refusal(limit)
        number = 1 if self._tuned is None else self._budget.data.num_tuned
        with self._stop.watching():
            found = self._sizes.find(limit, number)
            if not found:
                # What was learned takes more bytes than what was counted.
                raise self._refusal(limit)
            chosen = found[0]
            try:
                if self._tuned is not None:
                    chosen = self._tune(found, limit)
            except KeyboardInterrupt:
                # None was evaluated yet.
                self._stop.is_set = True
        return self._result(chosen)

    def _refusal(self, limit):
        choices = self._sizes.smallest
        smallest = self._sizes.count(choices)
        error = self._sizes.measured_error(choices)
        others = self._sizes.files.besides(choices)
        return ValueError(
            f"`max_bytes` must allow a file of {smallest:,} bytes, the "
            f"smallest that was found, of which {others:,} are not "
            f"embeddings: with {self._sizes.describe(choices)}, which loses "
            f"{error:.0%} of what tells rows apart. Received: "
            f"max_bytes={limit}."
        )

    def _tune(self, found, limit=math.inf):
        """Trains copies of several choices; the best of these."""
        best = None
        for choices in found:
            if best is not None and self._sizes.is_over:
                break
            try:
                score = self._score(choices)
            except KeyboardInterrupt:
                if best is None:
                    raise
                self._stop.is_set = True
                break
            if self._sizes.count(choices) > limit:
                continue
            loss = self._tuned.loss(score)
            if best is None or loss < best[0]:
                best = loss, choices
        if best is None:
            chosen = found[0]
            self._copies.clear()
            self._sizes.scores[chosen] = None
            small = self._sizes.copy(chosen, is_filled=True)
            self._sizes.count(chosen, small)
            return chosen
        return best[1]

    def _score(self, choices):
        """The metric of a copy after tuning; the copy is kept."""
        if choices in self._copies:
            return self._copies[choices][1]
        tunes = self._budget.data.train is not None
        with self._stop.waiting():
            small = self._sizes.copy(choices, is_filled=True, tunes=tunes)
            self._compile(small)
        score, interrupted = self._tuned.tune(small)
        if interrupted:
            self._stop.is_set = True
        # Only training needs more than the rounded rows.
        small = strip(small)
        if tunes:
            # What was trained may take other bytes.
            self._sizes.count(choices, small)
        self._sizes.scores[choices] = score
        self._sizes.say(
            f"{self._sizes.describe(choices)}: {self._tuned.metric} {score:.4f}"
            + (" after tuning" if tunes else "")
            + f", of the model {self._original_score:.4f}"
        )
        # Only the best is used, but which one may be known late.
        self._copies[choices] = small, score
        return score

    def _try_loss(self, limit, max_loss, held):
        """The best choices of a limit, if they hold a loss, or None."""
        self._sizes.say(f"Files of up to {limit:,} bytes:")
        try:
            found = self._sizes.find(limit, self._budget.data.num_tuned)
            # Files of what was trained meanwhile may have grown beyond it.
            if not found:
                return None
            chosen = self._tune(found)
        except KeyboardInterrupt:
            if held is None:
                raise
            self._stop.is_set = True
            return None
        lost = self._tuned.loss(self._score(chosen))
        lost -= self._tuned.loss(self._original_score)
        return chosen if lost <= max_loss else None

    def _between(self, failed, size, held, max_loss):
        """Smaller choices that hold, between two limits."""
        while size / failed > _LAST_STEP and not self._is_over(held):
            limit = math.floor(math.sqrt(size * failed))
            found = self._try_loss(limit, max_loss, held)
            if found is None:
                failed = limit
            else:
                held, size = found, min(limit, self._sizes.files.of(found))
        return held

    def _is_over(self, held):
        return held is not None and self._sizes.is_over

    def _result(self, choices):
        if choices in self._copies:
            small = self._copies[choices][0]
        else:
            small = self._sizes.copy(choices, is_filled=True)
            self._compile(small)
        size = self._sizes.count(choices)
        self._publish(choices)
        if self._verbose:
            print(f"\n{self._budget.frontier}\n")
            name = self._sizes.describe(choices)
            print(f"{self._model.name}: {name}, a file of {format_bytes(size)}")
        self._copies.clear()
        return small

    def _compile(self, small):
        data = self._budget.data
        compile_like(small, self._model, data and data.compile)

    def _publish(self, choices):
        if self._stop.is_set:
            warnings.warn(
                "The search was interrupted: what is returned is the best of "
                "what was found until then.",
                stacklevel=6,
            )
        self._budget.frontier = Frontier(
            self._sizes.points(choices),
            limit_bytes=self._budget.max_bytes,
            quantize=self._budget.quantize,
            min_runtime=self._budget.target.min_runtime,
            original_bytes=self._original_bytes,
            original_score=self._original_score,
            metric=None if self._tuned is None else self._tuned.metric,
        )

    def _count_original(self):
        """Bytes of the float32 file of the model as it is, or None."""
        if count_bytes(self._model.weights) > _LARGEST_ORIGINAL:
            return None
        try:
            return count_file(self._model, self._budget, None).file_bytes
        except (ValueError, RuntimeError):
            # Some layers have no ops in LiteRT but in the form of a copy.
            return None
