"""Tables of records, as Markdown."""

import statistics


def markdown(head, lines):
    """A table of strings."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def of_columns(columns, rows):
    """A table of rows, without columns that are empty in all of them."""
    cells = {
        head: [str(cell(row)) for row in rows] for head, cell in columns.items()
    }
    cells = {head: column for head, column in cells.items() if any(column)}
    return markdown(list(cells), zip(*cells.values(), strict=True))


def of_rows(rows):
    """A table of all numbers of rows: what they are, and means over seeds."""
    found = [plain_cells(row) for row in rows]
    heads = dict.fromkeys(head for cells in found for head in cells)
    lines = [[cells.get(head, "") for head in heads] for cells in found]
    return markdown(list(heads), lines)


def plain_cells(row):
    cells = {"": row["name"]}
    for name, value in row["row"].items():
        if isinstance(value, dict):
            value = value.get("name")
        if value is not None and not isinstance(value, list):
            cells[name] = f"{value:,}" if type(value) is int else str(value)
    keys = dict.fromkeys(
        key for run in row["runs"] for key in number_keys(run["figures"])
    )
    for key in keys:
        values = set(figures(row, key))
        is_whole = len(values) == 1 and float(*values).is_integer()
        cells[key] = figure(key, "{:,.0f}" if is_whole else "{:.4g}")(row)
    return cells | {"seeds": seeds(row)}


def number_keys(values, before=""):
    """Keys with dots of the numbers in nested dicts."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from number_keys(value, f"{before}{name}.")
        elif isinstance(value, int | float):
            yield before + name


def look_up(values, key, default=None):
    """What stands in nested dicts at a key with dots, `"test.accuracy"`."""
    for part in key.split("."):
        if not isinstance(values, dict) or part not in values:
            return default
        values = values[part]
    return values


def figures(row, key):
    """The figures of a row, one a seed that has it."""
    found = (look_up(run["figures"], key) for run in row["runs"])
    return [value for value in found if value is not None]


def mean(row, key):
    """Mean over seeds, or None."""
    values = figures(row, key)
    return statistics.fmean(values) if values else None


def figure(key, form="{:.1f}", scale=1, unit="", empty=""):
    """A cell: the mean over seeds and, if they differ, their deviation."""

    def cell(row):
        values = [scale * value for value in figures(row, key)]
        if not values:
            return empty
        text = form.format(statistics.fmean(values))
        if len(set(values)) > 1:
            form_of_size = form.replace("+", "")
            text += " ± " + form_of_size.format(statistics.stdev(values))
        return text + unit

    return cell


def seeds(row):
    """A cell: how many seeds a row has."""
    return str(len(row["runs"]))
