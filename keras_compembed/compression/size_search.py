"""Search for the methods with the least error within a size limit."""

import contextlib
import math
import signal
import threading
import time
import warnings

import keras
import numpy as np

from keras_compembed.compression.frontier import FrontierPoint
from keras_compembed.methods.codes import Codes
from keras_compembed.utils.files import format_bytes
from keras_compembed.utils.validation import check_sample_weight

# Short fits: the least rows of a sample, in total and per codeword; the share
# of the time; and the ratio of a whole fit's error to a short fit's.
_SAMPLE_ROWS, _BY_CODEWORD, _QUICK, _WHOLE = 10_240, 4, 0.1, 0.88
# Skips kinds with a best error above `_TIMES` the lowest of all, plus `_MORE`.
_TIMES, _MORE = 2.0, 0.05
# How far below the estimate a file of an unmeasured kind may be.
_GUESSED = 16_384
# At most, for a limit: measured settings and measured files.
_MEASURED, _COUNTED = 30, 8
# Kinds to try if the smallest file is too large.
_KINDS = 6


@contextlib.contextmanager
def without_advice():
    """Ignores advice on scales: errors of coarse ones are compared anyway."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Scales of")
        yield


def lower_hull(sizes, losses):
    """Indices of points on the lower convex hull, smallest first."""
    hull = []
    for place in np.lexsort((losses, sizes)):
        if hull and losses[place] >= losses[hull[-1]]:
            continue
        while len(hull) > 1 and _slope(
            sizes, losses, hull[-2], hull[-1]
        ) >= _slope(sizes, losses, hull[-2], place):
            hull.pop()
        hull.append(place)
    return [int(place) for place in hull]


def _slope(sizes, losses, first, second):
    """The change of loss per byte, below 0."""
    return (losses[second] - losses[first]) / (sizes[second] - sizes[first])


def allocate(curves, limit):
    """Chooses a point of each curve so that their sum is within a limit."""
    curves = [
        (np.asarray(sizes, "int64"), np.asarray(losses, "float64"))
        for sizes, losses in curves
    ]
    hulls = [lower_hull(*curve) for curve in curves]
    places = [hull[0] for hull in hulls]
    left = limit - sum(
        sizes[place] for (sizes, _), place in zip(curves, places, strict=True)
    )
    if left < 0:
        return None
    steps = [
        (_slope(*curve, hull[step], hull[step + 1]), table, step)
        for table, (curve, hull) in enumerate(zip(curves, hulls, strict=True))
        for step in range(len(hull) - 1)
    ]
    # Steps of a convex curve gain less and less: sorting keeps their order.
    for _, table, step in sorted(steps):
        sizes, _ = curves[table]
        first, second = hulls[table][step : step + 2]
        added = sizes[second] - sizes[first]
        # Skips the table's steps after one that does not fit.
        if places[table] == first and added <= left:
            places[table] = second
            left -= added
    while True:
        best = None
        for table, (sizes, losses) in enumerate(curves):
            here = places[table]
            fits = np.flatnonzero(sizes - sizes[here] <= left)
            place = int(fits[np.lexsort((sizes[fits], losses[fits]))[0]])
            gain = losses[here] - losses[place]
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, table, place
        if best is None:
            return places
        _, table, place = best
        left -= curves[table][0][place] - curves[table][0][places[table]]
        places[table] = place


class TablePoints:
    """Bytes and errors of the settings for a table.

    Settings are given by index in `settings`. `bytes_of(method, width)` returns
    the bytes of constants in a file, for rows of `width` if given.
    """

    def __init__(
        self, tables, settings, bytes_of, sample_weight=None, seed=None
    ):
        self.settings = settings
        self.sample_weight = sample_weight
        # Set for tables of a model.
        self.name, self.layer = "vectors", None
        self.num_numbers = tables[0].size
        self._tables = tables
        self._bytes_of = bytes_of
        self._weight = check_sample_weight(sample_weight, len(tables[0]))
        self._seed = seed
        self._means = [np.average(x, 0, self._weight) for x in tables]
        squares = np.square(tables[0] - self._means[0]).sum(axis=1)
        self.energy = float(np.average(squares, weights=self._weight))
        # Measured errors by index.
        self.known = {}
        # Log ratios of measured to estimated errors, by kind.
        self._logs = {}
        # Row width and extra bytes of each kind, from files. The latest is
        # last, and is the guess for other kinds.
        self._of_kinds = {}
        self._constants = {}
        self._sum_bytes()

    @property
    def bytes_by_method(self):
        """Dict from methods to bytes of constants."""
        methods = [setting.method for setting in self.settings]
        return dict(zip(methods, self.constants().tolist(), strict=True))

    def constants(self, width=None):
        """Bytes of the constants of all settings."""
        if width not in self._constants:
            sizes = []
            for setting in self.settings:
                folded = setting.method.folded() if width else None
                # Other rows keep their width.
                pair = (folded, width) if folded else (setting.method, None)
                sizes.append(self._bytes_of(*pair))
            self._constants[width] = np.array(sizes)
        return self._constants[width]

    def of_kind(self, place):
        """The row width of its kind, or None, and the extra bytes."""
        latest = next(reversed(self._of_kinds.values()), (None, 0))
        return self._of_kinds.get(self.settings[place].kind, latest)

    def is_counted(self, place):
        """Whether a file of its kind was measured."""
        return self.settings[place].kind in self._of_kinds

    def learn(self, place, width, extra):
        """Records a file; each kind keeps its smallest."""
        kind = self.settings[place].kind
        found = [(width, extra)]
        if kind in self._of_kinds:
            found.append(self._of_kinds.pop(kind))
        self._of_kinds[kind] = min(
            found, key=lambda x: self.constants(x[0])[place] + x[1]
        )
        self._sum_bytes()

    def _sum_bytes(self):
        places = range(len(self.settings))
        widths, extra = zip(*map(self.of_kind, places), strict=True)
        constants = [self.constants(widths[x])[x] for x in places]
        self.sizes = np.array(constants) + extra
        names = {setting.method.name for setting in self.settings}
        # With a folded layer, some settings equal others.
        self.is_double = np.zeros(len(places), bool)
        for place in places:
            method = self.settings[place].method
            folded = method.folded() if widths[place] else None
            name = method.name if folded is None else folded.name
            self.is_double[place] = name != method.name and name in names

    def errors(self):
        """Errors of all settings: measured, or corrected estimates."""
        scales = {x: np.exp(np.mean(logs)) for x, logs in self._logs.items()}
        # Unmeasured settings count as good as estimated, or as perfect: they
        # are measured before they are chosen.
        found = np.array(
            [(x.estimate or 0) * scales.get(x.kind, 1) for x in self.settings]
        )
        found[list(self.known)] = list(self.known.values())
        return found

    def measure(self, place):
        """The error of a setting, by a short fit to a sample of rows."""
        setting = self.settings[place]
        method = setting.method.quicker(_QUICK)
        rows, num_rows = slice(None), len(self._tables[0])
        is_coded = isinstance(method, Codes) and method.learner is None
        codewords = is_coded and method.num_codebooks * method.codebook_size
        sample = min(num_rows, max(_SAMPLE_ROWS, _BY_CODEWORD * codewords))
        if method.is_by_row and sample < num_rows:
            rng = np.random.default_rng(0)
            rows = np.sort(rng.choice(num_rows, sample, replace=False))
        weight = None if self._weight is None else self._weight[rows]
        fit = method.start(self._seed, 0)
        with without_advice():
            found = [
                fit.from_table(table[rows], sample_weight=weight).embeddings
                for table in self._tables
            ]
        error = self.error_of(found, rows)
        if is_coded:
            # Codewords fit a small sample better than all rows.
            few, many = (max(x - codewords, 1) / x for x in (sample, num_rows))
            error *= _WHOLE * many / few
        self.known[place] = error
        if setting.estimate:
            log = np.log(max(error, 1e-9) / setting.estimate)
            self._logs.setdefault(setting.kind, []).append(log)
        return error

    def error_of(self, found, rows=slice(None)):
        """Squared error of rows over their squared distance from the mean."""
        lost = there = 0.0
        weight = None if self._weight is None else self._weight[rows]
        for rebuilt, table, mean in zip(
            found, self._tables, self._means, strict=True
        ):
            table = table[rows].astype("float32")
            rebuilt = keras.ops.convert_to_numpy(
                keras.ops.cast(rebuilt, "float32")
            )
            squares = np.square(table - rebuilt).sum(axis=1, dtype="float64")
            lost += np.average(squares, weights=weight)
            squares = np.square(table - mean).sum(axis=1, dtype="float64")
            there += np.average(squares, weights=weight)
        return float(lost / there) if there else 0.0


class SizeSearch:
    """Searches for the settings with the least error within a size limit.

    `choices` are tuples with the index of a setting for each table.
    `count(choices)` returns the bytes of their file, and the row width of a
    single table with a folded layer.
    """

    def __init__(self, tables, count, stop, say, max_time=None):
        self.tables = tables
        # Bytes of files that were counted, by choices.
        self.files = {}
        self.say = say
        self._count = count
        self._stop = stop
        self._deadline = time.monotonic() + (max_time or math.inf)
        self.smallest = tuple(int(np.argmin(x.sizes)) for x in tables)
        self.count(self.smallest)

    @property
    def is_over(self):
        """Whether time is up, or Ctrl-C was pressed."""
        return self._stop.is_set or time.monotonic() > self._deadline

    def of(self, choices):
        """Pairs of `TablePoints` and setting index, by table."""
        return list(zip(self.tables, choices, strict=True))

    def count(self, choices):
        """Bytes of the file of these choices, measured once."""
        if choices not in self.files:
            with self._stop.waiting():
                self.learn(choices, *self._count(choices))
        return self.files[choices]

    def learn(self, choices, file_bytes, width=None):
        """Records a file."""
        pairs, rest = self.of(choices), file_bytes
        extra = [points.of_kind(place)[1] for points, place in pairs]
        rest -= sum(extra)
        rest -= sum(int(x.constants(width)[place]) for x, place in pairs)
        for (points, place), own in zip(pairs, extra, strict=True):
            points.learn(place, width, own + rest // len(pairs))
        self.files[choices] = file_bytes

    def bytes_of(self, choices):
        """Bytes of the file of these choices, measured or estimated."""
        if choices in self.files:
            return self.files[choices]
        return sum(int(x.sizes[place]) for x, place in self.of(choices))

    def count_smallest(self, limit):
        """Bytes of the smallest file; tries more kinds above the limit."""
        if self.count(self.smallest) > limit and len(self.tables) == 1:
            # Other kinds may have fewer extra bytes.
            (points,), firsts = self.tables, {}
            for place in map(int, np.argsort(points.sizes, kind="stable")):
                firsts.setdefault(points.settings[place].kind, (place,))
            found = list(firsts.values())[:_KINDS]
            self.smallest = min(found, key=self.count)
        return self.count(self.smallest)

    def limits(self, step):
        """Limits from the smallest file up, each about `step` times the last.

        The largest is where more bytes do not help: eight bits a value.
        """
        smallest = largest = self.count(self.smallest)
        for points, place in self.of(self.smallest):
            within = points.sizes[points.sizes <= 1.2 * points.num_numbers]
            largest += max(within, default=points.sizes[place])
            largest -= points.sizes[place]
        # Other kinds have other extra bytes.
        largest += _GUESSED * (len(self.tables) == 1)
        number = max(1, math.ceil(math.log(largest / smallest, step)))
        step = (largest / smallest) ** (1 / number)
        return [math.ceil(smallest * step**i) for i in range(number + 1)]

    def look(self, limit):
        """Measures the candidates for a limit."""
        room, tried = limit, set()
        try:
            self._measure_kinds(limit)
            for _ in range(_MEASURED):
                choices = self._pick(limit, room)
                if self.is_over or choices in tried or len(tried) >= _COUNTED:
                    break
                if any([self._measure(*pair) for pair in self.of(choices)]):
                    continue
                tried.add(choices)
                over = self.count(choices) - limit
                # The measured size of one table's file is known.
                room -= max(0, over) * (len(self.tables) > 1)
        except KeyboardInterrupt:
            # Learners handle Ctrl-C themselves; all else ends here.
            self._stop.is_set = True
        if self.is_over:
            self._measure_quick(limit)
        if self._stop.is_set:
            self.say("Interrupted: using the best found so far.")

    def _measure_kinds(self, limit):
        """Measures the most promising of each kind that may fit."""
        for points, room in self._rooms(limit):
            if len(self.tables) == 1:
                # Other kinds have other extra bytes.
                for place in self._best_of_kinds(points, limit + _GUESSED):
                    if not (points.is_counted(place) or self.is_over):
                        self.count((place,))
                room = limit
            for place in self._best_of_kinds(points, room):
                if not self.is_over:
                    self._measure(points, place)

    def _rooms(self, limit):
        """Yields each table, and the bytes that others leave it."""
        choices = self._pick(limit, limit)
        for points, chosen in self.of(choices):
            room = limit - self.bytes_of(choices) + points.sizes[chosen]
            yield points, room

    def _measure_quick(self, limit):
        """Measures plain quantized rows where nothing is measured."""
        for points, room in self._rooms(limit):
            places = self._best_of_kinds(points, room, is_quick=True)
            if places and not points.known:
                self._measure(points, places[0])

    def _best_of_kinds(self, points, room, is_quick=False):
        """Indices of the best of each kind that fits, without bad kinds."""
        errors, best = points.errors(), {}
        fits = np.flatnonzero(points.sizes <= room)
        for place in map(int, fits[np.argsort(errors[fits])]):
            setting = points.settings[place]
            is_out = is_quick and not setting.kind.startswith("int")
            if not (points.is_double[place] or is_out):
                best.setdefault(setting.kind, place)
        most = _TIMES * min(errors[list(best.values())], default=0) + _MORE
        return [place for place in best.values() if errors[place] <= most]

    def _measure(self, points, place):
        """Measures a setting once; returns whether it did."""
        if place in points.known:
            return False
        error, size = points.measure(place), format_bytes(points.sizes[place])
        name = points.settings[place].method.name
        self.say(f"{points.name}: {name}, {size}, error {error:.4f}")
        return True

    def _pick(self, limit, room, is_known=False):
        """The best choices by all errors, or by measured errors only."""
        curves = []
        for points in self.tables:
            sizes, is_out = points.sizes.copy(), points.is_double
            if is_known:
                is_out = np.ones(len(sizes), bool)
                is_out[list(points.known)] = False
            sizes[is_out] = limit + 1
            for choices, size in self.files.items():
                if len(choices) == 1:
                    sizes[choices[0]] = size
            curves.append((sizes, points.energy * points.errors()))
        places = allocate(curves, room)
        if places is None:
            return None if is_known else self.smallest
        return tuple(places)

    def ranked(self, limit, families=False):
        """Measured choices within a limit, the best first.

        With `families`, the best of each family come first. The last are
        fallbacks in case nothing was measured in time.
        """
        best, found = self._pick(limit, limit, is_known=True), []
        for number, points in enumerate(self.tables if best else ()):
            for place in points.known:
                other = (*best[:number], place, *best[number + 1 :])
                if other == best or self.bytes_of(other) <= limit:
                    found.append(other)
        found.sort(key=lambda x: (self.loss(x), self.bytes_of(x)))
        if families:
            firsts = {}
            for choices in found:
                pairs = self.of(choices)
                key = tuple(x.settings[place].family for x, place in pairs)
                firsts.setdefault(key, choices)
            found = [*firsts.values(), *found]
        found += [self._pick(limit, limit), self.smallest]
        return list(dict.fromkeys(found))

    def loss(self, choices):
        """The weighted sum of measured errors, or None."""
        pairs = self.of(choices)
        if any(place not in points.known for points, place in pairs):
            return None
        return sum(x.energy * x.known[place] for x, place in pairs)

    def points(self, chosen, scores):
        """`FrontierPoint`s of measured files and settings."""
        total = sum(points.energy for points in self.tables)
        seen = dict.fromkeys(self.files)
        if len(self.tables) == 1:
            seen.update(dict.fromkeys((x,) for x in self.tables[0].known))
        found = []
        for choices in seen:
            loss = self.loss(choices)
            found.append(
                FrontierPoint(
                    {
                        x.name: x.settings[y].method.name
                        for x, y in self.of(choices)
                    },
                    self.bytes_of(choices),
                    loss if loss is None or not total else loss / total,
                    scores.get(choices),
                    is_exported=choices in self.files,
                    is_chosen=choices == chosen,
                )
            )
        return found


class StopRequest:
    """A flag that Ctrl-C sets; running code may handle Ctrl-C first."""

    def __init__(self):
        self.is_set = self._waits = False

    @contextlib.contextmanager
    def waiting(self):
        """Defers a first Ctrl-C during a block of a few seconds."""
        before, self._waits = self._waits, True
        try:
            yield
        finally:
            self._waits = before

    @contextlib.contextmanager
    def watching(self):
        """Sets the flag on Ctrl-C, and calls the previous handler."""
        before = signal.getsignal(signal.SIGINT)
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or not callable(before):
            yield self
            return

        def note(signum, frame):
            is_first, self.is_set = not self.is_set, True
            try:
                before(signum, frame)
            except KeyboardInterrupt:
                if not (is_first and self._waits):
                    raise

        signal.signal(signal.SIGINT, note)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)
