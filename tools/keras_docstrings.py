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
    """Lets functions be found that a namespace imports from its files.

    A function may have the name of its file. Python finds the function, for
    which the namespace is asked; what reads the folder finds the file.
    """
    files = {
        name: member
        for name, member in module.members.items()
        if not member.is_alias and member.is_module
    }
    for file in files.values():
        uncover(file)
    for name in set(files).intersection(module.exports or ()):
        for public in module.exports:
            member = files[name].members.get(public)
            # A file in a namespace may have the name of another namespace.
            if member and not member.is_alias and not member.is_module:
                module.set_member(public, member)
