"""Lets mkdocstrings read this package, whose docstrings are Keras's style."""

import re

import griffe

# Indented parts of a docstring that are prose, not lists of arguments.
_PROSE = ("Input shape", "Output shape", "References", "Returns", "Yields")


class KerasDocstrings(griffe.Extension):
    """Makes examples code, and further parts of a docstring paragraphs.

    Examples of Keras are lines after `>>> `, without a fence, which Markdown
    takes for quotations.
    """

    def on_object(self, *, obj, **kwargs):
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)

    def on_package(self, *, pkg, **kwargs):
        uncover(pkg)


def to_markdown(text):
    """A docstring whose examples are fenced and whose prose has titles."""
    text = re.sub(
        r"^>>> .*\n?(?:.+\n?)*",
        lambda match: f"```pycon\n{match[0].rstrip()}\n```\n",
        text,
        flags=re.M,
    )
    for title in _PROSE:
        text = re.sub(
            rf"^{title}:\n((?:    .*\n?|\n)+)",
            lambda match, title=title: f"**{title}:**\n\n{_dedent(match[1])}\n",
            text,
            flags=re.M,
        )
    text = re.sub(
        r"^(Call arguments:)$", r"Other Parameters: \1", text, flags=re.M
    )
    return re.sub(r"^(Examples?:)$", r"**\1**", text, flags=re.M)


def _dedent(text):
    return re.sub(r"^    ", "", text, flags=re.M)


def uncover(module):
    """Lets a function be found that has the name of its file.

    Python finds the function in the namespace, which imports it; what reads
    the folder finds the file.
    """
    for name, member in list(module.members.items()):
        if member.is_alias or not member.is_module:
            continue
        uncover(member)
        if name in (module.exports or ()) and name in member.members:
            module.set_member(name, member.members[name])
