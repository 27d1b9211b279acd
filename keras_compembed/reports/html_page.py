"""The page of `html_report`, from plain data."""

import math

from keras_compembed.reports.charts import ChartPoint
from keras_compembed.reports.charts import balance_chart
from keras_compembed.reports.charts import size_chart
from keras_compembed.reports.charts import stacked_bar
from keras_compembed.reports.markup import Markup
from keras_compembed.reports.markup import element
from keras_compembed.reports.markup import join
from keras_compembed.reports.markup import shown_word
from keras_compembed.reports.page_style import PART_CLASSES
from keras_compembed.reports.page_style import STYLE
from keras_compembed.reports.size_parts import REST
from keras_compembed.reports.size_parts import TOKENIZER
from keras_compembed.reports.size_parts import SizeParts
from keras_compembed.reports.size_parts import layer_parts
from keras_compembed.reports.size_parts import model_parts
from keras_compembed.utils.sizes import format_bytes

# Of many layers or points, the ones that take most or matter most.
_MOST_ROWS = 12
_CHARTS = (("wide", 920, 340), ("narrow", 360, 300))
# Nothing may be fetched, and nothing run.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(figures):
    """A page that needs nothing else, as a string."""
    title = f"{figures.name}: compressed embeddings"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element(
            "meta",
            name="viewport",
            content="width=device-width, initial-scale=1",
        ),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    sections = [
        _summary(figures),
        _sizes(figures),
        _frontier(figures),
        _left(figures),
        _fidelity(figures),
        *(_layer(layer) for layer in figures.layers),
        _layers_not_shown(figures),
    ]
    body = element("body", sections)
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _section(title, *children):
    return element("section", element("h2", title), *children)


def _summary(figures):
    sizes, original = figures.sizes, figures.original_sizes
    cards = []

    def add(value, label):
        cards.append(
            element(
                "div",
                element("b", value),
                element("span", label),
                class_="card",
            )
        )

    if sizes.total_bytes is not None:
        add(format_bytes(sizes.total_bytes), "the model as stored")
    if original is not None and original.total_bytes and sizes.total_bytes:
        ratio = original.total_bytes / sizes.total_bytes
        add(
            f"{ratio:.1f}×",
            f"smaller than the original, {format_bytes(original.total_bytes)}",
        )
    if sizes.embeddings:
        add(
            f"{sizes.ratio:.1f}×",
            f"smaller embeddings than {format_bytes(sizes.table_bytes)} of "
            "float32",
        )
    for name, (value, before) in figures.scores.items():
        if value is None:
            continue
        was = "" if before is None else f", {_number(before)} in the original"
        add(_number(value), f"{name}{was}")
    return [
        element("h1", figures.name),
        element("p", _sentence(figures), class_="soft"),
        element("div", cards, class_="cards"),
    ]


def _sentence(figures):
    number = len(figures.sizes.embeddings)
    if not number:
        return "The model has no embedding layers."
    compressed = figures.num_compressed
    if number == compressed == 1:
        return "One embedding layer, which is compressed."
    return f"{_count(number, 'embedding layer')}, {compressed:,} compressed."


def _sizes(figures):
    rows = [layer_parts(size) for size in figures.sizes.embeddings]
    rows.sort(key=lambda row: -row.total)
    wholes = [model_parts("this model", figures.sizes)]
    if figures.original_sizes is not None:
        wholes.insert(0, model_parts("original", figures.original_sizes))
    if not any(row.total for row in wholes):
        return _section("Sizes", element("p", "The model has no weights yet."))
    names = {part: None for row in wholes for part in row.parts}
    legend = element(
        "div",
        [
            element("span", element("i", class_=PART_CLASSES[name]), name)
            for name in PART_CLASSES
            if name in names
        ],
        class_="legend",
    )
    largest = max(row.total for row in wholes)
    content = [_size(row, largest) for row in wholes]
    content.append(legend)
    if rows:
        shown = list(rows[:_MOST_ROWS])
        if len(rows) > _MOST_ROWS:
            shown.append(_smaller(rows[_MOST_ROWS:]))
        for part in (TOKENIZER, REST):
            size = wholes[-1].parts.get(part)
            if size:
                shown.append(SizeParts(part, {part: size}))
        largest = max(row.total for row in shown)
        content.append(element("h3", "Layer by layer"))
        content += [_size(row, largest, with_parts=True) for row in shown]
    content.append(
        element(
            "p",
            "As stored in a .keras file; a KB has 1,024 bytes. LiteRT files "
            "can hold codebooks and other weights in less.",
            class_="note",
        )
    )
    if figures.sizes.other_bytes is None:
        content.append(
            element(
                "p",
                "The model is not built: its other weights are not counted.",
                class_="note",
            )
        )
    return _section("Where the bytes are", content)


def _smaller(rows):
    parts = {}
    for row in rows:
        for name, count in row.parts.items():
            parts[name] = parts.get(name, 0) + count
    return SizeParts(f"{len(rows):,} smaller layers", parts)


def _size(row, largest, with_parts=False):
    said = [format_bytes(row.total)]
    if row.shape:
        table = 4 * row.shape[0] * row.shape[1]
        if row.total and table > 1.05 * row.total:
            said.append(f"{table / row.total:.1f}× smaller")
    about = ""
    if row.shape:
        about = f" {row.shape[0]:,} × {row.shape[1]:,}, {row.kind}"
    parts = None
    if with_parts and len(row.parts) > 1:
        parts = element(
            "div",
            ", ".join(
                f"{name} {format_bytes(count)}"
                for name, count in row.parts.items()
            ),
            class_="note",
        )
    return element(
        "div",
        element(
            "div",
            element(
                "span",
                element("b", shown_word(row.name)),
                element("span", about, class_="soft"),
            ),
            element("span", ", ".join(said)),
            class_="head",
        ),
        stacked_bar(row.parts, largest, PART_CLASSES),
        parts,
        class_="size",
    )


def _frontier(figures):
    frontier, place = figures.frontier, figures.place
    if frontier is None:
        return None
    content = []
    for label, figure in (
        ("error of rows", "error"),
        (frontier.metric or "score", "score"),
    ):
        points = _chart_points(frontier, place, figure)
        if len(points) < 2:
            continue
        alone = None
        if place is not None and getattr(place, figure) is None:
            alone = place.file_bytes
        for name, width, height in _CHARTS:
            chart = size_chart(
                points,
                label,
                width,
                height,
                sizes=[point.file_bytes for point in frontier],
                limit=frontier.limit_bytes,
                model_bytes=alone,
                from_zero=figure == "error",
            )
            content.append(_with_class(chart, name))
    content.append(
        element("p", _about_frontier(frontier, place), class_="note")
    )
    content.append(_frontier_table(frontier, place))
    return _section("Sizes that could be had", content)


def _with_class(chart, name):
    return Markup(chart.replace('class="chart"', f'class="chart {name}"', 1))


def _chart_points(frontier, place, figure):
    best = {id(point) for point in frontier.best}
    points = []
    for point in frontier:
        value = getattr(point, figure)
        if value is None or not math.isfinite(value):
            continue
        kind = "best" if id(point) in best and figure == "error" else "other"
        kind = "chosen" if point.is_chosen else kind
        points.append(_chart_point(point, value, kind, point.name))
    value = place and getattr(place, figure)
    if value is not None:
        points.append(_chart_point(place, value, "model", "this model"))
    return points


def _chart_point(point, value, kind, name):
    title = f"{name}: {format_bytes(point.file_bytes)}, {value:.4g}"
    return ChartPoint(point.file_bytes, value, kind, title)


def _about_frontier(frontier, place):
    said = [
        "Each dot is a way to store the tables; those on the line lose least."
    ]
    if frontier.chosen is not None:
        said.append("The ring is what the search chose.")
    if place is not None:
        counted = "counted" if place.is_exported else "its weights in float32"
        said.append(
            f"This model: {format_bytes(place.file_bytes)} ({counted})."
        )
        if place.error is not None:
            said.append(
                "Its error counts all rows alike; training after compression "
                "moves rows further from the original, and makes up for "
                "accuracy."
            )
    if frontier.quantize:
        said.append(f"Files with quantize={frontier.quantize!r}.")
    return " ".join(said)


def _frontier_table(frontier, place):
    shown = list(frontier.best) or list(frontier)
    shown += [
        point
        for point in frontier
        if (point.is_chosen or point.score is not None) and point not in shown
    ]
    shown.sort(key=lambda point: point.file_bytes)
    has_score = any(point.score is not None for point in shown)
    has_score = has_score or frontier.original_score is not None
    names = ["file", "smaller", "error"]
    if has_score:
        names.append(frontier.metric or "score")
    head = [
        element("th", "stored as", class_="wide"),
        *(element("th", name) for name in names),
    ]
    rows = []
    for point in _spread(shown, 2 * _MOST_ROWS):
        rows.append(
            _frontier_row(
                point.file_bytes,
                frontier.original_bytes,
                point.error,
                has_score,
                point.score,
                f"{point.name} (chosen)" if point.is_chosen else point.name,
                "chosen" if point.is_chosen else None,
            )
        )
    if frontier.original_bytes:
        size = frontier.original_bytes
        score = frontier.original_score
        rows.append(
            _frontier_row(size, size, 0, has_score, score, "as it is", None)
        )
    return _table(head, rows)


def _frontier_row(size, original, error, has_score, score, name, kind):
    cells = [
        format_bytes(size),
        f"{original / size:.1f}×" if original else "–",
        _number(error),
    ]
    if has_score:
        cells.append(_number(score))
    return element(
        "tr",
        element("td", name, class_="wide"),
        [element("td", cell) for cell in cells],
        class_=kind,
    )


def _spread(rows, most):
    """So many of many rows, evenly, and all that are chosen."""
    if len(rows) <= most:
        return rows
    kept = {round(x * (len(rows) - 1) / (most - 1)) for x in range(most)}
    return [
        row for place, row in enumerate(rows) if place in kept or row.is_chosen
    ]


def _left(figures):
    if not figures.left:
        return None
    largest = sorted(figures.left, key=lambda table: -table.stored_bytes)
    rows = [
        element(
            "tr",
            element("td", shown_word(table.name), class_="wide"),
            element("td", f"{table.input_dim:,} × {table.output_dim:,}"),
            element("td", format_bytes(table.stored_bytes)),
            element(
                "td",
                table.reason or "nothing: compress_model would replace it",
                class_="wide",
            ),
        )
        for table in largest[:_MOST_ROWS]
    ]
    more = len(largest) - len(rows)
    head = [
        element("th", "layer", class_="wide"),
        element("th", "table"),
        element("th", "stored"),
        element("th", "what speaks against it", class_="wide"),
    ]
    return _section(
        "Tables left as they are",
        _table(head, rows),
        more
        and element("p", f"And {more:,} smaller ones.", class_="note")
        or None,
    )


def _fidelity(figures):
    rows = [row for row in figures.sizes.embeddings if row.fidelity]
    if not rows:
        return None
    rows.sort(key=lambda row: -row.table_bytes)
    body = [
        element(
            "tr",
            element("td", shown_word(row.name), class_="wide"),
            [
                element("td", _number(value))
                for value in (
                    row.fidelity.relative_squared_error,
                    row.fidelity.centred_relative_squared_error,
                    row.fidelity.mean_cosine,
                    row.fidelity.neighbor_overlap,
                )
            ],
        )
        for row in rows[:_MOST_ROWS]
    ]
    head = [element("th", "layer", class_="wide")]
    for name in ("error", "about the mean", "cosine", "neighbours kept"):
        head.append(element("th", name))
    number = rows[0].fidelity.num_neighbors
    return _section(
        "How near rows are to the original",
        _table(head, body),
        element(
            "p",
            "error: squared error over the squares of the table; about the "
            "mean: over its squared distances from the mean row. neighbours "
            f"kept: share of the {number} nearest rows.",
            class_="note",
        ),
        *_word_scores(rows[:_MOST_ROWS]),
    )


def _word_scores(rows):
    """What vectors reach in tests of words, beside those of the original."""
    body = [
        element(
            "tr",
            element("td", shown_word(row.name), class_="wide"),
            element("td", shown_word(score.name), class_="wide"),
            element("td", _number(score.score)),
            element("td", _number(before.score)),
            element("td", f"{score.num_used:,} of {score.num_all:,}"),
        )
        for row in rows
        for score, before in zip(
            row.fidelity.word_scores,
            row.fidelity.original_word_scores,
            strict=True,
        )
    ]
    if not body:
        return
    head = [element("th", name, class_="wide") for name in ("layer", "test")]
    for name in ("score", "original", "known"):
        head.append(element("th", name))
    yield element("h3", "How well vectors agree with people")
    yield _table(head, body)
    yield element(
        "p",
        "Of word pairs, the rank correlation of cosines with what people say; "
        "of analogies, the share that is right.",
        class_="note",
    )


def _layer(layer):
    content = []
    if layer.neighbors:
        content += _neighbors(layer)
    if layer.codes is not None:
        content += _codes(layer)
    if not content:
        return None
    return _section(join(["Layer “", shown_word(layer.name), "”"]), content)


def _neighbors(layer):
    has_before = layer.neighbors[0].before is not None
    unit = "word" if layer.has_words else "id"
    names = [unit, "nearest now"]
    if has_before:
        names = [unit, "nearest in the original", "nearest now", "kept"]
    grid = [
        element("div", [element("div", name) for name in names], class_="head")
    ]
    for row in layer.neighbors:
        cells = [element("div", shown_word(row.word), class_="word")]
        shared = set(row.after) & set(row.before or ())
        if has_before:
            cells.append(_words(row.before, shared, "before"))
        cells.append(_words(row.after, shared, "now"))
        if has_before:
            kept = f"{row.num_shared} of {len(row.after)}"
            cells.append(element("div", kept, class_="kept", data_name="kept"))
        grid.append(element("div", cells, class_="row"))
    number = sum(row.is_frequent for row in layer.neighbors)
    kind = "near" if has_before else "near alone"
    yield element("h3", "Nearest neighbours")
    yield element(
        "p",
        f"By cosine, of the first {number} {unit}s with a vector and of "
        f"{len(layer.neighbors) - number} random others."
        + (" Marked: near in both." if has_before else ""),
        class_="note",
    )
    yield element("div", grid, class_=kind)


def _words(words, shared, name):
    items = [
        element("mark", shown_word(word, 30))
        if word in shared
        else shown_word(word, 30)
        for word in words
    ]
    return element("div", join(items, ", "), data_name=name)


def _codes(layer):
    codes = layer.codes
    count, size = codes.balance.shape
    perplexity = codes.usage["perplexity"]
    mean = sum(perplexity) / len(perplexity)
    yield element("h3", "How evenly codes are used")
    yield element(
        "p",
        f"{count} codebooks go across, {size} codewords down; the stronger the "
        "colour, the more rows use it. As varied as "
        f"{mean:.1f} equally used codewords of {size} on average, "
        f"{min(perplexity):.1f} in the least even codebook. "
        f"{_count(codes.usage['num_unused'], 'codeword')} unused.",
        class_="note",
    )
    yield balance_chart(codes.balance)
    unit = "words" if layer.has_words else "ids"
    yield element("h3", f"{unit.capitalize()} that share a code")
    if not codes.groups:
        yield element("p", f"None: all {unit} have a code of their own.")
        return
    yield element(
        "p",
        f"{codes.num_sharing:,} {unit} in {_count(codes.num_groups, 'group')} "
        "have the same vector"
        + ("; the largest groups:" if codes.num_groups > 1 else ":"),
        class_="note",
    )
    for (code, words), number in zip(
        codes.groups, codes.group_sizes, strict=True
    ):
        more = number - len(words)
        yield element(
            "div",
            join([shown_word(word, 30) for word in words], ", "),
            f" and {more:,} more" if more else None,
            class_="group",
            title=f"code {code}",
        )


def _layers_not_shown(figures):
    more = figures.num_compressed - len(figures.layers)
    if more <= 0 or not figures.layers:
        return None
    return element(
        "p",
        f"Words of {_count(more, 'smaller layer')} are not shown.",
        class_="note",
    )


def _table(head, rows):
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", head)),
            element("tbody", rows),
        ),
        class_="scroll",
    )


def _count(number, name):
    return f"{number:,} {name}" + ("" if number == 1 else "s")


def _number(value):
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
