"""Search for the best copy of a model within a limit."""

import math
import warnings

import keras
import numpy as np

from keras_compembed.compression.budget import Budget
from keras_compembed.compression.budget import TunedCopies
from keras_compembed.compression.budget import check_budget
from keras_compembed.compression.budget import count_file
from keras_compembed.compression.distill import DistilledCopies
from keras_compembed.compression.frontier import Frontier
from keras_compembed.compression.prune_vocabulary import drop_unread_rows
from keras_compembed.compression.row_counts import batches_of
from keras_compembed.compression.row_counts import weights_by_counts
from keras_compembed.compression.size_search import SizeSearch
from keras_compembed.compression.size_search import StopRequest
from keras_compembed.compression.size_search import TablePoints
from keras_compembed.compression.size_search import without_advice
from keras_compembed.compression.strip import strip
from keras_compembed.compression.tables import ReplacedTable
from keras_compembed.compression.tables import check_model
from keras_compembed.compression.tables import choose_tables
from keras_compembed.compression.tables import copy_with_tables
from keras_compembed.compression.tables import find_layers
from keras_compembed.compression.tables import find_table_poolings
from keras_compembed.compression.tables import read_tables
from keras_compembed.compression.tables import reason_against
from keras_compembed.exchange.copy_with import compile_like
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.methods.settings import exact_methods
from keras_compembed.methods.settings import settings_by_default
from keras_compembed.methods.settings import settings_of
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.files import describe_bytes
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import check_table

# Files of larger originals are not measured.
_LARGEST_ORIGINAL = 1 << 30
# Ratio of limits: of a frontier, and at the end of a search for a loss.
_STEP, _LAST_STEP = 2.0, 1.15


def find_frontier(
    model: keras.Model,
    budget: Budget | None = None,
    layers: list | None = None,
    seed: int | None = None,
    sample_inputs: object = None,
    verbose: int = 1,
) -> Frontier:
    """Returns the file sizes that a model can reach, and the error at each.

    It uses estimates and short fits to samples of rows, without training. A
    `compress_model` with a budget begins with the same search.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((20,), dtype="int32"),
    ...     keras.layers.Embedding(500, 32, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ... ])
    >>> methods = [kc.methods.Quantized(2), kc.methods.Quantized(4)]
    >>> budget = kc.Budget(methods=methods, quantize="int8")
    >>> found = find_frontier(model, budget, ["words"], verbose=0)
    >>> [point.name for point in found.best]
    ['int2', 'int4']

    Args:
        model: A built `keras.Model`.
        budget: Optional `keras_compembed.Budget`, with or without a limit. Its
            data are used only to count ids. Defaults to `None`.
        layers, seed, sample_inputs, verbose: Same as in `compress_model`.

    Returns:
        A `Frontier`.

    Raises:
        ValueError: If `model` has no tables, or an argument is invalid.
    """
    check_model(model)
    budget = check_budget(budget)
    sample_inputs = with_text_tensors(sample_inputs)
    if not budget.sample_weight:
        model = drop_unread_rows(model, sample_inputs, verbose)
    options = layers, seed, sample_inputs, verbose
    search = FindSize(model, budget, *options, tunes=False)
    found = search.frontier()
    if verbose:
        print(f"\n{found}")
    return found


def find_searched_tables(model, budget, layers, seed, sample_inputs, verbose):
    """The `TablePoints` of a model's tables."""
    given = find_layers(model, "sample_weight", budget.sample_weight)
    data = budget.data and budget.data.train
    if budget.inputs is not None:
        sample_inputs = budget.inputs
    batches = batches_of(data, sample_inputs)

    def searched(name, layer):
        if id(layer) in given:
            weight = budget.sample_weight[given[id(layer)]]
        else:
            weight = weights_by_counts(model, layer, batches)
        tables = read_tables(layer)
        for table in tables:
            check_table(table, f"embeddings of {name}")
        if budget.methods is not None:
            settings = settings_of(budget.methods)
        else:
            settings = settings_of(exact_methods(tables[0]))
            settings += settings_by_default(tables[0], weight)
        settings = [
            x for x in settings if reason_against(layer, x.method) is None
        ]
        if not settings:
            return "no method can replace it"

        def bytes_of(method, width=None):
            size = method.litert_bytes(
                layer.input_dim, width or layer.output_dim, budget.quantize
            )
            return len(tables) * size

        points = TablePoints(tables, settings, bytes_of, weight, seed)
        points.name, points.layer = name, layer
        return points

    wanted = find_layers(model, "layers", layers)
    return choose_tables(model, wanted, "layers", searched, verbose)


class FindSize:
    """Finds the best copy of a model within a size or accuracy limit."""

    def __init__(
        self, model, budget, layers, seed, sample_inputs, verbose, tunes=True
    ):
        self._model = model
        self._budget = budget
        self._seed = seed
        self._sample_inputs = sample_inputs
        self._verbose = verbose
        self._stop = StopRequest()
        self._original_score = self._tuned = None
        self._tables = find_searched_tables(
            model, budget, layers, seed, sample_inputs, verbose
        )
        if tunes and budget.data is not None:
            self._tuned = TunedCopies(model, budget.data, seed)
            self._original_score = self._tuned.score_of_original()
        elif tunes and budget.inputs is not None:
            copies = DistilledCopies(model, budget.inputs, seed, verbose)
            self._tuned, self._original_score = copies, 0.0
        self._poolings = find_table_poolings(model)
        self._is_checked = False
        # Tuned copies and their scores, by choices.
        self._copies = {}
        options = self._count, self._stop, self._say, budget.max_time
        self._search = SizeSearch(self._tables, *options)
        self._original_bytes = self._count_original()

    def within_budget(self):
        """The best copy in `max_bytes`, or the smallest in `max_loss`."""
        search, limit = self._search, self._budget.max_bytes
        if limit is not None and search.count_smallest(limit) > limit:
            raise self._refusal(limit)
        with self._stop.watching():
            if limit is None:
                found = self._within_loss(self._budget.max_loss)
            else:
                found = self._best_within(limit)
        if found is None:
            # Learned tables take more bytes than estimated.
            raise self._refusal(limit)
        chosen, small = found
        for layer in all_layers(small):
            if isinstance(layer, LookupLayer):
                layer.max_file_bytes = limit
        self._publish(chosen)
        if self._verbose:
            print(f"\n{self._budget.frontier}\n")
            size = describe_bytes(search.files[chosen])
            name = self._budget.frontier.chosen.name
            print(f"{self._model.name}: {name}, file of {size}")
        return small

    def frontier(self):
        """The `Frontier` of all sizes, without tuning."""
        with self._stop.watching():
            for limit in self._search.limits(_STEP):
                if self._search.is_over:
                    break
                self._search.look(limit)
        self._publish(None)
        return self._budget.frontier

    def _within_loss(self, max_loss):
        """The smallest copy within `max_loss`, by bisection."""
        files, held = self._search.files, None
        limits = self._search.limits(_STEP)
        failed, size = limits[0] / _STEP, limits[-1]
        while size / failed > _LAST_STEP:
            limit = math.floor(math.sqrt(size * failed))
            if held is None and size / failed <= _STEP:
                limit = size
            elif held and self._search.is_over:
                break
            self._say(f"Files of up to {limit:,} bytes:")
            lost = math.inf
            try:
                # Trained tables may grow beyond the limit.
                found = self._best_within(limit, math.inf)
                if found is not None:
                    if found[0] not in self._copies:
                        raise KeyboardInterrupt
                    lost = self._tuned.loss(self._copies[found[0]][1])
                    lost -= self._tuned.loss(self._original_score)
            except KeyboardInterrupt:
                if held is None:
                    raise
                self._stop.is_set = True
            if lost <= max_loss:
                held, size = found, min(limit, files[found[0]])
            else:
                failed = limit
        if held is None:
            self._publish(None)
            scores = (score for _, score in self._copies.values())
            best = min(scores, key=self._tuned.loss)
            raise ValueError(
                "`max_loss` must be reachable. Pass more `epochs`, or a larger "
                f"`max_loss`. Received: max_loss={max_loss}, and "
                f"{self._tuned.metric} {self._original_score:.4f} of the "
                f"model, {best:.4f} of the best copy."
            )
        return held

    def _best_within(self, limit, most=None):
        """The best choices within a limit and their copy, or None.

        With data or inputs, the best of a few tuned copies.
        """
        search, tuned = self._search, self._tuned
        most = limit if most is None else most
        number = tuned.number if tuned else 1
        search.look(limit)
        found, grown = [], None
        for choices in search.ranked(limit, families=number > 1):
            if len(found) == number or (found and search.is_over):
                break
            if search.count(choices) > limit:
                continue
            is_first = not self._stop.is_set
            try:
                fit = self._tune if tuned else self._fit
                found.append((*fit(choices), choices))
            except KeyboardInterrupt:
                self._stop.is_set = True
                if found:
                    break
                if not is_first:
                    raise
                # Closed-form fits have no result before their end.
                found.append((*self._fit(choices), choices))
            if search.files[choices] > most:
                found.pop()
                grown = grown or choices
        if not found and tuned and grown:
            # Untrained: training made the file larger.
            self._copies.pop(grown, None)
            found = [(*self._fit(grown), grown)]
            if search.files[grown] > most:
                return None
        if not found:
            return None
        _, small, choices = min(found, key=lambda x: x[0])
        return choices, small

    def _fit(self, choices, tunes=False):
        """The error of choices, and a compiled copy with learned tables."""
        with self._stop.waiting():
            small, replaced = self._copy(choices, tunes)
        pairs = self._search.of(choices)
        for (table, place), each in zip(pairs, replaced, strict=True):
            with without_advice():
                each.learn()
            rows = [part.embeddings for part in each.small_parts()]
            error = table.known[place] = table.error_of(rows)
            self._say(
                f"{table.name}: {each.method.name}, all rows, error {error:.4f}"
            )
        with self._stop.waiting():
            data = self._budget.data
            compile_like(small, self._model, data and data.compile)
            if not tunes:
                # Learned tables may differ in bytes.
                self._search.learn(choices, *self._file(small))
        return self._search.loss(choices), small

    def _tune(self, choices):
        """The score of choices as a loss, and the tuned copy."""
        if choices not in self._copies:
            data = self._budget.data
            tunes = data is None or data.train is not None
            _, small = self._fit(choices, tunes)
            score, interrupted = self._tuned.tune(small)
            self._stop.is_set |= interrupted
            if tunes:
                # Drops the float rows, which only training needs.
                small = strip(small)
                with self._stop.waiting():
                    self._search.learn(choices, *self._file(small))
            self._copies[choices] = small, score
            self._say(
                f"{self._name(choices)}: {self._tuned.metric} {score:.4f}"
                + (" after tuning" if tunes else "")
                + f" (original {self._original_score:.4f})"
            )
        small, score = self._copies[choices]
        return self._tuned.loss(score), small

    def _copy(self, choices, tunes=False):
        """A copy of the model, and its tables before learning."""
        replaced, options = [], (self._seed, 0, self._poolings)
        for table, place in zip(self._tables, choices, strict=True):
            method = table.settings[place].method
            method = method.tuned() if tunes else method
            method = method.for_table(table.sample_weight)
            each = ReplacedTable(table.name, table.layer, method, *options)
            replaced.append(each)
        small = copy_with_tables(
            self._model,
            replaced,
            self._poolings,
            self._sample_inputs,
            # One check is enough.
            is_checked=not self._is_checked,
        )
        self._is_checked = True
        return small, replaced

    def _count(self, choices):
        """Bytes and width of a file with tables before learning."""
        small, replaced = self._copy(choices)
        number = 0
        for each in replaced:
            for part in each.small_parts():
                for weight in part.store.integer_weights:
                    # Equal constants would be written once only.
                    values = np.asarray(weight).copy()
                    values.flat[number % values.size] = 1
                    weight.assign(values)
                    number += 1
        return self._file(small)

    def _file(self, small):
        """File bytes, and the width of rows with a folded layer."""
        export = self._count_file(small, self._budget.quantize)
        width = None
        if len(self._tables) == 1 and export.folded_layers:
            name = export.folded_layers[0]
            for path, layer in layer_paths(self._model).items():
                if name in (path, layer.name) and hasattr(layer, "kernel"):
                    *places, _, width = layer.kernel.shape
                    width *= math.prod(places)
        return export.file_bytes, width

    def _count_file(self, model, quantize):
        return count_file(model, self._budget, quantize, self._sample_inputs)

    def _count_original(self):
        """Bytes of the model's float32 file, or None."""
        if count_bytes(self._model.weights) > _LARGEST_ORIGINAL:
            return None
        try:
            return self._count_file(self._model, None).file_bytes
        except (ValueError, RuntimeError):
            # LiteRT lacks ops for some layers, though not for their copies.
            return None

    def _refusal(self, limit):
        search = self._search
        choices = search.smallest
        # Learned tables may differ from the estimate.
        self._fit(choices)
        smallest = besides = search.count(choices)
        for table, place in search.of(choices):
            besides -= int(table.sizes[place]) - table.of_kind(place)[1]
        energy = sum(table.energy for table in self._tables)
        error = search.loss(choices) / energy if energy else 0.0
        return ValueError(
            f"`max_bytes` must be at least {smallest:,}, the smallest file "
            f"found: {self._name(choices)}, relative error {error:.0%}, and "
            f"{besides:,} bytes outside embeddings. Received: "
            f"max_bytes={limit}."
        )

    def _publish(self, chosen):
        if self._stop.is_set:
            warnings.warn(
                "The search was interrupted: the best found so far is used.",
                stacklevel=4,
            )
        scores = {x: score for x, (_, score) in self._copies.items()}
        self._budget.frontier = Frontier(
            self._search.points(chosen, scores),
            limit_bytes=self._budget.max_bytes,
            quantize=self._budget.quantize,
            min_runtime=self._budget.target.min_runtime,
            original_bytes=self._original_bytes,
            original_score=self._original_score,
            metric=None if self._tuned is None else self._tuned.metric,
        )

    def _name(self, choices):
        """The choices as text."""
        points = self._search.points(choices, {})
        return next(x for x in points if x.is_chosen).name

    def _say(self, text):
        if self._verbose:
            print(text, flush=True)
