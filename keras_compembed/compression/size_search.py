"""The search for methods whose file is within a number of bytes."""

import math
import time

import numpy as np

from keras_compembed.compression.allocation import allocate
from keras_compembed.compression.file_bytes import FileBytes
from keras_compembed.compression.file_bytes import count_file
from keras_compembed.compression.frontier import FrontierPoint
from keras_compembed.compression.replaced_table import copy_with_tables
from keras_compembed.compression.table_choice import find_table_poolings
from keras_compembed.utils.sizes import format_bytes

# Kinds whose best setting is estimated to lose more than so many times what
# the best of all does, and so much besides, are not tried.
_TIMES, _MORE = 2.0, 0.05
# Measurements and counted files of one limit at most.
_MEASURED, _COUNTED = 40, 12
# Bytes by which a file of a kind that was never counted may be smaller.
_GUESSED = 16_384
# Kinds tried where even the smallest file is too large.
_KINDS = 6
# Errors of quick fits so near to the best may change places.
_CLOSE = 1.25


class SizeSearch:
    """Looks for the methods that lose least in files of so many bytes.

    `choices` are tuples of a `MethodChoice` for each table.
    """

    def __init__(self, model, tables, budget, sample_inputs, stop, verbose):
        self.model = model
        self.tables = tables
        self.files = FileBytes(tables, budget.quantize)
        # Metrics after tuning, or None, of all that was looked at.
        self.scores = {}
        self._budget = budget
        self._poolings = find_table_poolings(model)
        self._sample_inputs = sample_inputs
        self._stop = stop
        self._verbose = verbose
        self._deadline = math.inf
        if budget.max_time is not None:
            self._deadline = time.monotonic() + budget.max_time
        self._is_checked = False
        self.smallest = tuple(
            min(table.choices, key=lambda choice: self.files.size(i, choice))
            for i, table in enumerate(tables)
        )
        self.count(self.smallest)

    @property
    def is_over(self):
        """Whether the time is up, or Ctrl-C was pressed."""
        return self._stop.is_set or time.monotonic() > self._deadline

    def say(self, text):
        if self._verbose:
            print(text, flush=True)

    def copy(self, choices, is_filled=False, tunes=False):
        """A copy of the model with the layers of these choices."""
        replaced = [
            table.replaced(
                choice.method.tuned() if tunes else choice.method,
                self._poolings,
            )
            for table, choice in zip(self.tables, choices, strict=True)
        ]
        small = copy_with_tables(
            self.model,
            replaced,
            self._poolings,
            self._sample_inputs,
            # One tells as much as all.
            is_checked=not self._is_checked,
        )
        self._is_checked = True
        if is_filled:
            for table, each, choice in zip(
                self.tables, replaced, choices, strict=True
            ):
                table.fill(each, choice)
        else:
            _tell_apart(
                part for each in replaced for part in each.small_parts()
            )
        return small

    def count(self, choices, small=None):
        """Bytes of the file of these choices."""
        if small is not None or choices not in self.files.exact:
            with self._stop.waiting():
                small = self.copy(choices) if small is None else small
                export = count_file(small, self._budget, self._budget.quantize)
            self.files.learn(choices, self.model, export)
        self.scores.setdefault(choices)
        return self.files.of(choices)

    def largest_bytes(self):
        """Bytes of the largest file that is of use, about."""
        largest = self.files.of(self.smallest)
        for number, table in enumerate(self.tables):
            # Nothing is gained beyond eight bits a number.
            most = table.layer.input_dim * table.layer.output_dim
            sizes = [self.files.size(number, x) for x in table.choices]
            within = [size for size in sizes if size <= 1.2 * most]
            largest += max(within, default=min(sizes))
            largest -= self.files.size(number, self.smallest[number])
        return largest

    def count_smallest(self, limit):
        """Bytes of the smallest file, in earnest if it is above a limit."""
        size = self.count(self.smallest)
        if size <= limit or len(self.tables) > 1:
            return size
        # Other kinds may take fewer bytes besides.
        firsts = {}
        for choice in sorted(
            self.tables[0].choices, key=lambda x: self.files.size(0, x)
        ):
            firsts.setdefault(choice.kind, (choice,))
        for choices in list(firsts.values())[:_KINDS]:
            self.count(choices)
        self.smallest = min(firsts.values(), key=self.files.of)
        return self.count(self.smallest)

    def measured_error(self, choices):
        """The weighted mean of the tables' quick errors."""
        for table, choice in zip(self.tables, choices, strict=True):
            if choice not in table.errors.known:
                table.errors.quick(choice)
        return self.error(choices)

    def find(self, limit, number=1):
        """The best choices whose file is within a limit, fit with care."""
        self.look(limit)
        found = self._fit(self._candidates(limit, number), limit, number)
        # Nothing that fits was measured in time: what is estimated to be best
        # is taken, or what is known to fit.
        for choices in (self._pick(limit), self.smallest):
            if not found:
                self.measured_error(choices)
                found = self._fit([choices], limit, number)
        return sorted(found, key=self.loss)[:number]

    def look(self, limit):
        """Measures and counts what may be best within a limit."""
        self._room = limit
        tried = set()
        try:
            self._measure_kinds(limit)
            for _ in range(_MEASURED):
                choices = self._pick(limit)
                if self.is_over or len(tried) > _COUNTED:
                    break
                if any([self._measure(*each) for each in enumerate(choices)]):
                    continue
                if choices in tried:
                    break
                tried.add(choices)
                self._room -= max(0, self.count(choices) - limit)
        except KeyboardInterrupt:
            # What learns ends by itself; all else ends here.
            self._stop.is_set = True
        if self._stop.is_set:
            self.say("Interrupted: the best found so far is taken.")

    def _measure_kinds(self, limit):
        """Quick errors of the most promising of each kind that may fit."""
        choices = self._pick(limit)
        for number, table in enumerate(self.tables):
            room = limit - self.files.of(choices)
            room += self.files.size(number, choices[number])
            best = {}
            for choice in table.choices:
                guessed = choice.kind not in self.files.kinds[number]
                size = self.files.size(number, choice)
                if size > room + guessed * _GUESSED:
                    continue
                error = table.errors.expected(choice)
                if error < best.get(choice.kind, (math.inf,))[0]:
                    best[choice.kind] = error, choice
            ordered = sorted(best.values(), key=lambda x: x[0])
            for error, choice in ordered:
                if error > _TIMES * ordered[0][0] + _MORE or self.is_over:
                    break
                self._measure(number, choice)
                if len(self.tables) == 1:
                    self.count((choice,))

    def _pick(self, limit):
        """The best choices by what is known."""
        curves = []
        for number, table in enumerate(self.tables):
            sizes = [self.files.size(number, x) for x in table.choices]
            errors = np.array([*map(table.errors.expected, table.choices)])
            curves.append((sizes, table.errors.energy * errors))
        room = min(limit, self._room) - self.files.fixed
        if len(self.tables) == 1:
            least = self.files.of(self.smallest)
            sizes = [self.files.of((x,)) - least for x in table.choices]
            room, curves = limit - least, [(sizes, curves[0][1])]
        places = allocate(curves, room)
        if places is None:
            # Its file was counted: sums of estimates may be above it.
            return self.smallest
        return tuple(
            table.choices[place]
            for table, place in zip(self.tables, places, strict=True)
        )

    def _measure(self, number, choice):
        """Measures what is only estimated; whether it was."""
        table = self.tables[number]
        if choice in table.errors.known:
            return False
        error = table.errors.quick(choice)
        size = format_bytes(self.files.size(number, choice))
        self.say(f"{table.name}: {choice.name}, {size}, error {error:.4f}")
        if len(self.tables) == 1:
            self.scores.setdefault((choice,))
        return True

    def _fit(self, candidates, limit, number):
        """Those of some choices that are worth it, fit with care."""
        found, lowest = [], None
        for choices in candidates:
            loss = self.loss(choices)
            lowest = loss if lowest is None else lowest
            # Beyond what was asked for, only what may be as good.
            if len(found) >= number and loss > _CLOSE * lowest:
                break
            if len(found) >= max(number, 3) or (found and self.is_over):
                break
            if self.count(choices) > limit:
                continue
            for table, choice in zip(self.tables, choices, strict=True):
                before = table.errors.known[choice]
                self._fit_with_care(table, choice)
                error = table.errors.known[choice]
                self.say(
                    f"{table.name}: {choice.name} fit with care, error "
                    f"{before:.4f} -> {error:.4f}"
                )
            # What was learned may take other bytes.
            with self._stop.waiting():
                small = self.copy(choices, is_filled=True)
            if self.count(choices, small) <= limit:
                found.append(choices)
        return found

    def _fit_with_care(self, table, choice):
        """A whole fit, which a first Ctrl-C may only shorten."""
        is_first = not self._stop.is_set
        try:
            table.fit_with_care(choice)
        except KeyboardInterrupt:
            # What is fit by arithmetic has nothing to show before its end.
            if not is_first:
                raise
            self._stop.is_set = True
            table.fit_with_care(choice)

    def _candidates(self, limit, number):
        """Choices within a limit whose errors are known, best first."""
        if len(self.tables) > 1:
            return self._variants(limit)
        (table,) = self.tables
        known = [(x,) for x in table.choices if x in table.errors.known]
        known = [x for x in known if self.files.of(x) <= limit]
        known.sort(key=self.loss)
        if number == 1:
            return known
        firsts = {}
        for choices in known:
            kind = choices[0].kind.partition(" of ")[0]
            firsts.setdefault(kind, choices)
        return list(dict.fromkeys([*firsts.values(), *known]))

    def _variants(self, limit):
        """The best counted, and those that differ in one table's method."""
        counted = [
            choices
            for choices in self.scores
            if choices in self.files.exact
            and self.files.of(choices) <= limit
            and self.error(choices) is not None
        ]
        if not counted:
            return []
        best = min(counted, key=self.loss)
        found = []
        for number, table in enumerate(self.tables):
            for choice in table.choices:
                if choice.kind == best[number].kind:
                    continue
                other = (*best[:number], choice, *best[number + 1 :])
                if choice in table.errors.known:
                    if self.files.of(other) <= limit:
                        found.append(other)
        return [best, *sorted(found, key=self.loss)]

    def loss(self, choices):
        """The sum of the errors known, weighted."""
        return sum(
            table.errors.energy * table.errors.known[choice]
            for table, choice in zip(self.tables, choices, strict=True)
        )

    def error(self, choices):
        """The mean of the errors known, weighted, or None."""
        pairs = zip(self.tables, choices, strict=True)
        if not all(choice in table.errors.known for table, choice in pairs):
            return None
        total = sum(table.errors.energy for table in self.tables)
        return self.loss(choices) / total if total else 0.0

    def points(self, chosen=None):
        """`FrontierPoint`s of all that was measured or counted."""
        return [
            FrontierPoint(
                self._names(choices),
                int(self.files.of(choices)),
                self.error(choices),
                score,
                is_exported=choices in self.files.exact,
                is_chosen=choices == chosen,
            )
            for choices, score in self.scores.items()
        ]

    def describe(self, choices):
        """The choices in words."""
        return FrontierPoint(self._names(choices), 0).name

    def _names(self, choices):
        pairs = zip(self.tables, choices, strict=True)
        return {table.name: choice.name for table, choice in pairs}


def _tell_apart(layers):
    """Makes integers of layers differ, which learned nothing yet."""
    number = 0
    for layer in layers:
        for weight in layer.store.integer_weights:
            values = np.asarray(weight).copy()
            # Codes, rows and scales may all be 1.
            values.flat[number % values.size] = 1
            weight.assign(values)
            number += 1
