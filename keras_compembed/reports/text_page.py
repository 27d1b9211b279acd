"""A page on which a text classifier is tried in a browser."""

import html
import importlib.resources
import json
import os
import shutil
import string

from keras_compembed.reports.markup import element
from keras_compembed.reports.markup import join
from keras_compembed.reports.text_classifier_file import read_text_classifier
from keras_compembed.utils import tasks_text as package
from keras_compembed.utils.files import check_output_folder
from keras_compembed.utils.files import replacing_folder
from keras_compembed.version import __version__

_MODEL, _BESIDE, _PACKAGE = "model.tflite", "beside.tflite", "tasks-text"
_TEMPLATE = "index.html"
_COPIED = ("page.css", "page.js")
PAGE_NAMES = (_TEMPLATE, *_COPIED, _MODEL, _BESIDE, _PACKAGE)


def text_page(
    path,
    folder,
    beside=None,
    title=None,
    examples=(),
    tasks_text=None,
    overwrite=False,
):
    """Writes a page on which a text classifier is tried in a browser.

    One types a text and sees the labels as bars, the size of the file, and the
    time of an answer; those of another file beside it, if there is one; and
    what the file's metadata says of it. An unmodified MediaPipe runs the
    files. All is in one folder: served by any web server, the page fetches
    nothing from elsewhere, and sends nothing. `?text=...` behind its address
    types a text.

    Served, because browsers run no modules from files: `python -m http.server`
    in the folder will do.

    npm fetches MediaPipe's package `@mediapipe/tasks-text` when the folder is
    made, 7 MB. A browser loads the half of it that it can run.

    Example:

    >>> export = kc.export.export_litert(
    ...     model, "intents.tflite", runtime="mediapipe", labels=labels
    ... )
    >>> text_page("intents.tflite", "page", examples=["what is my balance"])

    Args:
        path: String or path-like, a `.tflite` file that MediaPipe's
            `TextClassifier` opens: one text in, one array of probabilities
            out. The page shows its labels, or the numbers of classes if it
            has none.
        folder: String or path-like, the folder to make.
        beside: Optional string or path-like, another such file of the same
            classes, such as that of the float32 model. Defaults to `None`.
        title: Optional string, the page's title. Defaults to `None`: the name
            in the file's metadata, or that of the file.
        examples: List of strings, texts to click on. Defaults to none.
        tasks_text: Optional string or path-like, a folder with MediaPipe's
            package, such as `tasks-text` in a folder that was made before.
            Defaults to `None`: npm fetches it.
        overwrite: Boolean, whether `folder` may be one that was made before.
            Defaults to `False`.

    Raises:
        ValueError: if a file is no such file, e.g. one that takes ids, or an
            argument is none of these.
        FileExistsError: if `folder` exists and `overwrite` is False, or it
            holds anything else than such a page.
        FileNotFoundError: if a file, or npm, is missing.
        RuntimeError: if npm cannot fetch the package.
    """
    files = {_MODEL: os.fspath(path)}
    file = read_text_classifier(path)
    if beside is not None:
        files[_BESIDE] = os.fspath(beside)
        _check_beside(file, read_text_classifier(beside, "beside"))
    about = file.file_metadata
    title = _check_title(title, about.name, path)
    examples = _check_examples(examples)
    room = package.ROOM + sum(map(os.path.getsize, files.values()))
    check_output_folder(folder, PAGE_NAMES, overwrite, room)
    package.check_tasks_text(tasks_text)
    with replacing_folder(folder, PAGE_NAMES, overwrite, room) as new:
        package.copy_tasks_text(os.path.join(new, _PACKAGE), tasks_text)
        for name, source in files.items():
            shutil.copyfile(source, os.path.join(new, name))
        names = _shown_names(files.values())
        settings = {
            "files": [
                {"name": shown, "url": name}
                for name, shown in zip(files, names, strict=True)
            ],
            "examples": examples,
        }
        _write_templates(new, title, _about(about), settings)


def _write_templates(folder, title, about, settings):
    templates = importlib.resources.files(__package__) / "page_files"
    for name in _COPIED:
        content = (templates / name).read_bytes()
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    page = string.Template((templates / _TEMPLATE).read_text("utf-8"))
    # ASCII: lone surrogates too. A `<` could end the element.
    encoded = json.dumps(settings, indent=1).replace("<", "\\u003c")
    path = os.path.join(folder, _TEMPLATE)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(
            page.substitute(
                title=html.escape(title),
                about=about,
                settings=encoded,
                version=__version__,
            )
        )


def _check_beside(file, beside):
    if os.path.samefile(file.path, beside.path):
        raise ValueError(
            "`beside` must be another file than `path`. "
            f"Received: {file.path!r} and {beside.path!r}."
        )
    sizes = [each.outputs[0].shape[-1] for each in (file, beside)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            "`beside` must have the classes of `path`. "
            f"Received: {sizes[0]} and {sizes[1]} classes."
        )
    labels = [next(iter(each.labels.values()), ()) for each in (file, beside)]
    for place, (one, other) in enumerate(zip(*labels, strict=False)):
        if one != other:
            raise ValueError(
                "`beside` must have the classes of `path`, in its order. "
                f"Received: {one!r} and {other!r} for class {place}."
            )


def _shown_names(paths):
    """Names of files, with their folders where they have the same name."""
    names = [os.path.basename(path) for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def _about(metadata):
    """What a file says of itself, as paragraphs."""
    rest = [
        f"{name}: {getattr(metadata, name.lower())}"
        for name in ("Author", "License", "Version")
        if getattr(metadata, name.lower())
    ]
    return join(
        element("p", text, class_=kind)
        for text, kind in (
            (metadata.description, None),
            (" \u00b7 ".join(rest), "soft"),
        )
        if text
    )


def _check_title(title, name, path):
    if title is None and name is not None:
        return name
    if title is None:
        title = os.path.splitext(os.path.basename(path))[0]
        # Names of files may hold bytes that are no text.
        return title.encode("utf-8", "replace").decode()
    if not isinstance(title, str) or not title.strip():
        raise ValueError(f"`title` must be a text. Received: title={title!r}.")
    return title


def _check_examples(examples):
    examples = [examples] if isinstance(examples, str) else list(examples)
    for text in examples:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                "`examples` must be a list of texts. "
                f"Received one that is {text!r}."
            )
    return examples
