"""Finds hard English: `python -m tools.check_english [FILE ...]`.

Words that readers of this field do not search for, and habits that make a
sentence be read twice, in pages, docstrings, messages and comments. Pages have
a limit of words as well.
"""

import ast
import io
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHERS = [
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "keras_compembed_command.py",
    *sorted((ROOT / "keras_compembed").rglob("*.py")),
]
# The papers' tables are as long as the papers need, and do not count.
LONG = ("papers.md",)
WORDS_OF_A_PAGE = 1_200
WORDS_OF_ALL_PAGES = 18_500
WORDS_OF_A_SENTENCE = 30
FIGURES_OF_A_SENTENCE = 3

# What is banned, and what to write.
BANNED = {
    r"narrow(er|est|ly)?": "low-rank, small",
    r"rivals?": "baseline",
    r"rounded (rows?|tables?|embeddings?|vectors?)": "quantized",
    r"noises(?! Estimation)": "noise samples, noise classes",
    r"from nothing": "from scratch",
    r"(fewer|less) numbers": "fewer parameters",
    r"(a|the) numbers? of bytes": "a size limit",
    r"look-ups?": "lookup",
    r"never seen": "unknown",
    r"faithful(ly)?|faithfulness": "accurate, close to",
    r"processor (time|seconds?|milliseconds?)": "CPU time",
    r"(goes|go|going|went|gone) on": "continue, resume",
    r"level with": "tied with, no significant difference",
    r"anew": "again",
    r"besides": "also",
    r"as of": "same as, see",
    r"as ever": "as usual",
    r"at hand": "available",
    r"so many": "the number",
    r"(of|by|from|to|on|with|for|at) (which|whom)": "two sentences",
    r"whose": "with, its",
    r"of (its|their|one's|your|ours?|her|his) own": "its own",
    r"told|tells?": "say, pass, give",
    r"held to|holds? (it|them|this|that|files?) to": "compare with",
    r"is worth|are worth": "gains, pays",
    r"owes?|owed|wants": "a verb for things",
    r"stands?|stood": "is",
    r"lies|lie|lay": "is",
    r"but for|save for": "except",
    r"merely": "only",
    r"lest|shall|ought|nought|thereof|therein|whereof|herewith": "plain words",
    r"what (learns|is|are|was|were|makes|reads|holds|takes|gives|needs|trains"
    r"|has|can|must|cannot|follows|comes|remains)": "a noun",
    r"(files?|rows?|tables?|layers?|heads?) (answers?|knows?|asks?)": "return",
    r"(so|too|also)[.;]|, too\b": "drop it, or put it before the verb",
    r"(?<![\w,;:] )(?<!\w)(Of|Who|Whoever|One who|Nor)(?= )": "subject first",
}
FINDERS = [
    (re.compile(rf"(?<![\w`/.-])({rule})(?![\w`])", flags), advice)
    for rule, advice in BANNED.items()
    for flags in [0 if "Whoever" in rule else re.IGNORECASE]
]


def find_banned(text):
    """Yields the offset of each banned word, the word and the advice."""
    for finder, advice in FINDERS:
        for found in finder.finditer(text):
            yield found.start(), found[0], advice


def without_code(page):
    """A page's text with blanks in place of code, links and comments."""

    def blank(found):
        return re.sub(r"[^\n]", " ", found[0])

    for rule in (
        r"(?s)^```.*?^```",
        r"(?s)<!--.*?-->",
        r"(?s)<svg.*?</svg>",
        r"`[^`\n]*(\n[^`\n]+)?`",
        r"\]\([^)]*\)",
        r"https?://\S+",
    ):
        page = re.sub(rule, blank, page, flags=re.M)
    return page


def sentences(text):
    """Yields the offset and text of each sentence outside of tables."""
    text = re.sub(r"^[|#].*$", lambda x: " " * len(x[0]), text, flags=re.M)
    for part in re.finditer(
        r"(?s)\S.*?(?=\n\s*\n|\n\s*(?:[-*]|\d+\.) |\Z)", text
    ):
        start = part.start()
        for found in re.finditer(r"(?s)\S.*?(?:[.!?:;](?=\s|\Z)|\Z)", part[0]):
            yield start + found.start(), found[0]


def check_page(text, is_long=False):
    """Yields the offset and message of each fault of a page."""
    text = without_code(text)
    for offset, word, advice in find_banned(text):
        yield offset, f"{word!r}: {advice}"
    if is_long:
        return
    for offset, sentence in sentences(text):
        words = len(re.findall(r"[^\W\d_]+", sentence))
        figures = len(re.findall(r"(?<![\w.,])\d[\d.,]*", sentence))
        if words > WORDS_OF_A_SENTENCE:
            yield offset, f"a sentence of {words} words: split it"
        if figures > FIGURES_OF_A_SENTENCE:
            yield offset, f"{figures} figures in a sentence: make a table"


def check_code(text):
    """Yields the line and message of each fault in strings and comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = re.sub(
                r"`[^`]*`|^ +\w+:|>>> .*|https?://\S+",
                lambda x: " " * len(x[0]),
                node.value,
                flags=re.M,
            )
            if " " in words.strip():
                for offset, word, advice in find_banned(words):
                    line = node.lineno + words.count("\n", 0, offset)
                    yield line, f"{word!r}: {advice}"
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = re.sub(r"`[^`]*`", "", token.string)
            for _, word, advice in find_banned(words):
                yield token.start[0], f"{word!r}: {advice}"


def check_file(path):
    """Yields a line for each fault of a page or module."""
    text = path.read_text()
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if path.suffix == ".py":
        faults = check_code(text)
    else:
        faults = (
            (1 + text.count("\n", 0, offset), message)
            for offset, message in check_page(text, path.name in LONG)
        )
    for line, message in sorted(faults):
        yield f"{name}:{line}: {message}"


def check_sizes():
    """Yields a line for each page that is too long, and for all of them."""
    counts = {}
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        if path.name in LONG:
            text = re.sub(r"(?m)^\|.*$", "", text)
        counts[path] = len(text.split())
    for path, count in counts.items():
        if count > WORDS_OF_A_PAGE and path.name not in LONG:
            yield f"{path.name}: {count} words of {WORDS_OF_A_PAGE}"
    if sum(counts.values()) > WORDS_OF_ALL_PAGES:
        yield f"all: {sum(counts.values())} words of {WORDS_OF_ALL_PAGES}"


def main(names):
    paths = [pathlib.Path(name).resolve() for name in names]
    faults = [x for p in paths or [*PAGES, *OTHERS] for x in check_file(p)]
    if not paths:
        faults += check_sizes()
    print("\n".join(faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
