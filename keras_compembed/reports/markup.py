"""HTML and SVG as strings in which nothing is left unescaped by mistake."""

import html
import unicodedata

# Control characters, lone surrogates and line separators, which pages do not
# show or cannot hold. Not the joiners that emoji and scripts need.
_INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}
_VOID = {"meta", "br"}


class Markup(str):
    """A string that is HTML."""

    __slots__ = ()


def element(tag, *children, **attributes):
    """An element with what is in it."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{said}>")
    return Markup(f"<{tag}{said}>{join(children)}</{tag}>")


def join(children, separator=""):
    """Markup of children in a row; see `element`."""
    return Markup(separator.join(map(_render, children)))


def shown_word(word, longest=60):
    """A word of a vocabulary, isolated so that it turns no other text round."""
    text = str(word)
    if not text.strip():
        text = "(empty)" if not text else repr(text)
        return element("i", text)
    if len(text) > longest:
        return element("bdi", text[:longest] + "…", title=text[: 10 * longest])
    return element("bdi", text)


def _render(child):
    if isinstance(child, Markup):
        return child
    if child is None:
        return ""
    if isinstance(child, list | tuple):
        return join(child)
    return _escape(child)


def _escape(value):
    return html.escape("".join(map(_visible, str(value))))


def _visible(character):
    if unicodedata.category(character) in _INVISIBLE:
        return character.encode("unicode_escape").decode()
    return character
