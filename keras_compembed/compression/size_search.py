"""The search for methods whose file is within a number of bytes."""

import time

import numpy as np

from keras_compembed.compression.allocation import allocate
from keras_compembed.compression.file_bytes import FileBytes
from keras_compembed.compression.file_bytes import count_file
from keras_compembed.compression.frontier import FrontierPoint
from keras_compembed.compression.replaceable_layers import find_table_poolings
from keras_compembed.compression.table_choice import keep_shared_poolings
from keras_compembed.compression.table_copies import copy_with_tables
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
    """Looks for the methods that lose least in files of so many bytes."""

    def __init__(self, model, tables, budget, sample_inputs, stop, verbose):
        self.model = model
        self.tables = tables
        self.files = FileBytes(tables, budget.quantize)
        self._budget = budget
        self._poolings = find_table_poolings(model)
        self._sample_inputs = sample_inputs
        self._stop = stop
        self._verbose = verbose
        self._deadline = float("inf")
        if budget.max_time is not None:
            self._deadline = time.monotonic() + budget.max_time
        self._is_checked = False
        self._scores = {}
        self._seen = {}
        self.smallest = [
            min(table.choices, key=lambda choice: self.files.size(i, choice))
            for i, table in enumerate(tables)
        ]
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
        keep_shared_poolings(replaced, self._poolings)
        small = copy_with_tables(
            self.model,
            replaced,
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
        if small is not None or not self.files.is_exact(choices):
            with self._stop.waiting():
                small = self.copy(choices) if small is None else small
                export = count_file(small, self._budget, self._budget.quantize)
            self.files.learn(choices, self.model, export)
        self._note(choices)
        return self.files.of(choices)

    @property
    def largest_bytes(self):
        """Bytes of the largest file that is of use, about."""
        sizes = []
        for number, table in enumerate(self.tables):
            # Nothing is gained beyond eight bits a number.
            most = table.layer.input_dim * table.layer.output_dim
            of_table = [self.files.size(number, x) for x in table.choices]
            within = [size for size in of_table if size <= 1.2 * most]
            sizes.append(max(within, default=min(of_table)))
        smallest = [self.files.size(*each) for each in enumerate(self.smallest)]
        return self.files.of(self.smallest) + sum(sizes) - sum(smallest)

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
            firsts.setdefault(choice.kind, choice)
        for choice in list(firsts.values())[:_KINDS]:
            self.count([choice])
        self.smallest = [
            min(firsts.values(), key=lambda choice: self.files.of([choice]))
        ]
        return self.count(self.smallest)

    def measured_error(self, choices):
        """The weighted mean of the tables' quick errors."""
        for table, choice in zip(self.tables, choices, strict=True):
            if table.errors.known(choice) is None:
                table.errors.quick(choice)
        return self.error(choices)

    def find(self, limit, number=1, is_quick=False):
        """The best choices whose file is within a limit."""
        self._room = limit
        tried = set()
        try:
            self._measure_kinds(limit)
            for _ in range(_MEASURED):
                choices = self._pick(limit)
                if self.is_over or len(tried) > _COUNTED:
                    break
                if self._measure_new(choices):
                    continue
                if _key(choices) in tried:
                    break
                tried.add(_key(choices))
                self._room -= max(0, self.count(choices) - limit)
        except KeyboardInterrupt:
            # What learns ends by itself; all else ends here.
            self._stop.set()
        if self._stop.is_set:
            self.say("Interrupted: the best found so far is taken.")
        if is_quick:
            return self._candidates(limit, number)[:number]
        return self._finish(limit, number)

    def _measure_kinds(self, limit):
        """Quick errors of the most promising of each kind that may fit."""
        choices = self._pick(limit)
        for number, table in enumerate(self.tables):
            room = limit - self.files.of(choices)
            room += self.files.size(number, choices[number])
            best = {}
            for choice in table.choices:
                guessed = not self.files.knows(number, choice.kind)
                size = self.files.size(number, choice)
                if size > room + guessed * _GUESSED:
                    continue
                error = table.errors.expected(choice)
                kind = choice.kind
                if kind not in best or error < best[kind][0]:
                    best[kind] = error, choice
            lowest = min((error for error, _ in best.values()), default=0)
            for error, choice in sorted(best.values(), key=lambda x: x[0]):
                if error > _TIMES * lowest + _MORE or self.is_over:
                    continue
                self._measure(number, choice)
                if len(self.tables) == 1:
                    self.count([choice])

    def _pick(self, limit):
        """The best choices by what is known."""
        curves = []
        for number, table in enumerate(self.tables):
            sizes = [self.files.size(number, x) for x in table.choices]
            errors = np.array([*map(table.errors.expected, table.choices)])
            curves.append((sizes, table.errors.energy * errors))
        room = self.files.limit_for_tables(min(limit, self._room))
        if len(self.tables) == 1:
            sizes = [
                self.files.of([x]) - self.files.of(self.smallest)
                for x in self.tables[0].choices
            ]
            room = limit - self.files.of(self.smallest)
            curves = [(sizes, curves[0][1])]
        places = allocate(curves, room)
        if places is None:
            # Its file was counted: sums of estimates may be above it.
            return list(self.smallest)
        return [
            table.choices[place]
            for table, place in zip(self.tables, places, strict=True)
        ]

    def _measure_new(self, choices):
        """Measures what is only estimated; whether there was any."""
        new = [
            (number, choice)
            for number, choice in enumerate(choices)
            if self.tables[number].errors.known(choice) is None
        ]
        for number, choice in new:
            self._measure(number, choice)
        return bool(new)

    def _measure(self, number, choice):
        table = self.tables[number]
        if table.errors.known(choice) is not None:
            return
        error = table.errors.quick(choice)
        size = format_bytes(self.files.size(number, choice))
        self.say(f"{table.name}: {choice.name}, {size}, error {error:.4f}")
        if len(self.tables) == 1:
            self._note([choice])

    def _finish(self, limit, number):
        """The best by quick errors, fit with care, best first."""
        found = self._fit(self._candidates(limit, number), limit, number)
        # Nothing that fits was measured in time: what is estimated to be best
        # is taken, or what is known to fit.
        for choices in (self._pick(limit), self.smallest):
            if not found:
                self.measured_error(choices)
                found = self._fit([choices], limit, number)
        return sorted(found, key=self.loss)[:number]

    def _fit(self, candidates, limit, number):
        """Those of lists of choices that are worth it, fit with care."""
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
                before = table.errors.known(choice)
                error = self._error_with_care(table, choice)
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

    def _error_with_care(self, table, choice):
        """The error of a whole fit, which a first Ctrl-C may only shorten."""
        is_first = not self._stop.is_set
        try:
            return table.error(choice)
        except KeyboardInterrupt:
            # What is fit by arithmetic has nothing to show before its end.
            if not is_first:
                raise
            self._stop.set()
            return table.error(choice)

    def _candidates(self, limit, number):
        """Lists of choices within a limit whose errors are known."""
        if len(self.tables) > 1:
            best = self._best_counted(limit)
            return [] if best is None else self._variants(best, limit)
        (table,) = self.tables
        known = [
            [choice]
            for choice in table.choices
            if table.errors.known(choice) is not None
            and self.files.of([choice]) <= limit
        ]
        known.sort(key=self.loss)
        if number == 1:
            return known
        firsts, kinds = [], set()
        for choices in known:
            kind = choices[0].kind.partition(" of ")[0]
            if kind not in kinds:
                kinds.add(kind)
                firsts.append(choices)
        return firsts + [choices for choices in known if choices not in firsts]

    def _variants(self, best, limit):
        """Choices, and those that differ in the method of one table."""
        found = []
        for number, table in enumerate(self.tables):
            kind = best[number].kind
            for choice in table.choices:
                if choice.kind == kind or table.errors.known(choice) is None:
                    continue
                other = [*best[:number], choice, *best[number + 1 :]]
                if self.files.of(other) <= limit:
                    found.append(other)
        return [best, *sorted(found, key=self.loss)]

    def _best_counted(self, limit):
        """The best whose file was counted to be within a limit, or None."""
        known = [
            choices
            for choices in self._seen.values()
            if self.files.is_exact(choices)
            and self.files.of(choices) <= limit
            and self._is_known(choices)
        ]
        return min(known, key=self.loss, default=None)

    def _is_known(self, choices):
        return all(
            table.errors.known(choice) is not None
            for table, choice in zip(self.tables, choices, strict=True)
        )

    def loss(self, choices):
        """The sum of the errors known, weighted."""
        return sum(
            table.errors.energy * table.errors.known(choice)
            for table, choice in zip(self.tables, choices, strict=True)
        )

    def error(self, choices):
        """The mean of the errors known, weighted, or None."""
        if not self._is_known(choices):
            return None
        total = sum(table.errors.energy for table in self.tables)
        return self.loss(choices) / total if total else 0.0

    def _note(self, choices):
        self._seen[_key(choices)] = list(choices)

    def set_score(self, choices, score):
        """Takes note of a metric after tuning."""
        self._note(choices)
        self._scores[_key(choices)] = score

    def points(self, chosen=None):
        """`FrontierPoint`s of all that was measured or counted."""
        return [
            FrontierPoint(
                self.names(choices),
                int(self.files.of(choices)),
                self.error(choices),
                self._scores.get(key),
                is_exported=self.files.is_exact(choices),
                is_chosen=chosen is not None and key == _key(chosen),
            )
            for key, choices in self._seen.items()
        ]

    def names(self, choices):
        """Dict from names of layers to names of methods."""
        return {
            table.name: choice.name
            for table, choice in zip(self.tables, choices, strict=True)
        }

    def describe(self, choices):
        """The choices in words."""
        return FrontierPoint(self.names(choices), 0).name


def _key(choices):
    return tuple(choice.name for choice in choices)


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
