"""Arguments that commands share, and what numbers may be."""

import argparse

from keras_compembed.utils import byte_counts


def add_overwrite(command):
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="replace outputs that exist (default: refuse)",
    )


def add_seed(command):
    command.add_argument(
        "--seed",
        type=whole_number,
        metavar="N",
        help="makes the result repeatable (default: a random seed)",
    )


def add_imports(command):
    command.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this module first, from the current folder or what is "
        "installed: for layers, losses and functions of your own in the "
        "model; may be given several times",
    )


def whole_number(text):
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}")
    return int(text)


def positive_whole_number(text):
    number = whole_number(text)
    if not number:
        raise argparse.ArgumentTypeError(f"not a positive number: {text!r}")
    return number


def positive_number(text):
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"not a positive number: {text!r}")
    return number


def number_of_bytes(text):
    """`"500k"` as `500000`."""
    try:
        return byte_counts.number_of_bytes("text", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"not a number of bytes, such as 500000, 500k or 2MB: {text!r}"
        ) from error
