"""Flags of benchmarks."""

import argparse
import dataclasses
import os
import pathlib
import re
import shlex


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag that a plain default does not describe; `read` reads its text."""

    default: object
    help: str = ""
    read: object = None

    @classmethod
    def of(cls, value):
        return value if isinstance(value, Flag) else cls(value)

    def add_to(self, parser, name):
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            default=self.default,
            type=self.read or reader(self.default),
            help=f"{self.help or name.replace('_', ' ')}; default: "
            f"{as_text(self.default)}",
        )


def reader(default):
    """Function that reads text as values of the type of `default`."""
    if isinstance(default, tuple):
        read = reader(default[0])
        return lambda text: tuple(map(read, filter(None, text.split(","))))
    return type(default)


def parse(benchmark, name, arguments=None):
    """Reads the flags of a benchmark."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=benchmark.about(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny models and data, to see that it runs; results are kept "
        "only with --output",
    )
    Flag((0,), "one number a run, with commas").add_to(parser, "seeds")
    parser.add_argument(
        "--rows",
        default=re.compile(""),
        type=expression,
        help="regular expression that names of rows must contain",
    )
    parser.add_argument(
        "--data",
        default=folder_of_data(),
        type=lambda text: pathlib.Path(text) if text else None,
        help="data folder; default: the environment variable COMPEMBED_DATA",
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        help="record, which a run goes on from; default: the one beside the "
        "script",
    )
    for flags in (benchmark.settings, benchmark.choices):
        for flag, value in flags.items():
            Flag.of(value).add_to(parser, flag)
    if parser.parse_known_args(arguments)[0].quick:
        parser.set_defaults(**benchmark.quick)
    args = parser.parse_args(arguments)
    if not args.seeds:
        parser.error("--seeds must be numbers with commas, such as 0,1,2.")
    if args.output is None and not args.quick:
        args.output = benchmark.path(args)
    return args


def command(benchmark, name, args):
    """The command that these flags came from, without folders and files."""
    words = [f"python -m benchmarks {name}"]
    if args.quick:
        words.append("--quick")
    flags = {"seeds": (0,), "rows": re.compile("")}
    flags |= benchmark.settings | benchmark.choices
    if args.quick:
        flags |= benchmark.quick
    for flag, value in flags.items():
        given = getattr(args, flag)
        if isinstance(given, pathlib.Path) or given == Flag.of(value).default:
            continue
        text = shlex.quote(getattr(given, "pattern", as_text(given)))
        words.append(f"--{flag.replace('_', '-')} {text}")
    return " ".join(words)


def expression(text):
    """A regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{error}: {text!r}") from None


def as_text(value):
    """A value as it is written in a command."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def folder_of_data():
    folder = os.environ.get("COMPEMBED_DATA")
    return pathlib.Path(folder) if folder else None


def code_shape(text):
    """Codebooks and codewords each, of `"32x16"`."""
    num_codebooks, codebook_size = text.split("x")
    return int(num_codebooks), int(codebook_size)
