"""Writes a page on which a text classifier is tried in a browser.

    python -m examples.web_page small.tflite -o page --serve 8000
    python -m examples.web_page small.tflite -o page --beside float32.tflite \
        --examples texts.txt

You type a text and see the labels as bars, the bytes of the file, and the time
of an answer; those of another file beside it, and where they differ. The files
are those that `kc.export_litert` writes with labels for the target
`kc.export.Target("mediapipe")`. An unmodified MediaPipe runs them in the
browser. The page fetches nothing from elsewhere, and sends nothing. `?text=...`
behind its address types a text.

All is in one folder, for any web server. npm fetches MediaPipe's package
`@mediapipe/tasks-text` into it, unless `--tasks-text` names a folder that has
it, such as `tasks-text` in a page made before.
"""

import argparse
import base64
import functools
import hashlib
import html
import http.server
import json
import os
import pathlib
import shutil
import string
import subprocess
import tarfile
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras_compembed as kc

PACKAGE = "@mediapipe/tasks-text"
VERSION = "1.0.1"
SHA512 = (
    "03cqJx+BZ+WpmuDqq+4Z8Bn7BdJyEPxU7Q1iuczjrh3YGiaAD2VMYf5JCLd+vQy7nNrlOOvUQ"
    "lTnX0nYRpAUOA=="
)
# A browser loads one pair in `wasm`; old ones lack the instructions of the
# other. The first two say whose the package is, its licence, what it sends.
PACKAGE_FILES = (
    "package.json",
    "README.md",
    "text_bundle.mjs",
    "wasm/text_wasm_internal.js",
    "wasm/text_wasm_internal.wasm",
    "wasm/text_wasm_nosimd_internal.js",
    "wasm/text_wasm_nosimd_internal.wasm",
)
TEMPLATES = pathlib.Path(__file__).parent / "web_page_files"


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    path = {"type": pathlib.Path, "metavar": "PATH"}
    parser.add_argument("file", **path, help="a .tflite file that takes a text")
    parser.add_argument(
        "-o", "--output", **path, required=True, help="the folder to write"
    )
    parser.add_argument(
        "--beside", **path, help="another file, such as that of float32"
    )
    parser.add_argument("--title", help="default: the name in the file, or its")
    parser.add_argument(
        "--examples", **path, help="texts to click on, one a line"
    )
    parser.add_argument(
        "--tasks-text", **path, help=f"a folder with npm's package {PACKAGE}"
    )
    parser.add_argument(
        "--serve", type=int, metavar="PORT", help="on this machine, then"
    )
    args = parser.parse_args(argv)
    if args.output.exists():
        parser.error(f"--output must be a new folder. Received: {args.output}")
    return args


def read_classifier(path):
    """What is in a file, if MediaPipe's `TextClassifier` takes it."""
    file = kc.export.inspect_litert(path)
    dtypes = [
        [tensor.dtype for tensor in side]
        for side in (file.inputs, file.outputs)
    ]
    if dtypes not in ([["string"], ["float32"]], [["string"], ["uint8"]]):
        raise SystemExit(
            f"{path} must take one text and answer with one array of "
            f"probabilities. Received: one of {dtypes[0]} to {dtypes[1]}. "
            "Begin the model with a tokenizer of `kc.text`, and export it with "
            "target=kc.export.Target('mediapipe') and labels."
        )
    return file


def check_beside(file, beside):
    labels = [next(iter(each.labels.values()), ()) for each in (file, beside)]
    shapes = [each.outputs[0].shape[-1] for each in (file, beside)]
    if shapes[0] != shapes[1] or (all(labels) and labels[0] != labels[1]):
        raise SystemExit("--beside must have the classes of the file, in order")


def copy_package(target, source=None):
    """Writes the files of MediaPipe's package into a folder."""
    (target / "wasm").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        source = source or fetch_package(pathlib.Path(folder))
        for name in PACKAGE_FILES:
            shutil.copyfile(source / name, target / name)


def fetch_package(folder):
    """The package as npm has it, unpacked in `folder`."""
    if shutil.which("npm") is None:
        raise SystemExit(
            f"npm must be installed to fetch {PACKAGE}. Where it is, run `npm "
            f"pack {PACKAGE}@{VERSION}`, unpack the file that it writes, and "
            "pass the folder `package` in it as --tasks-text"
        )
    command = ["npm", "pack", f"{PACKAGE}@{VERSION}", "--prefer-offline"]
    subprocess.run([shutil.which("npm"), *command[1:]], cwd=folder, check=True)
    (packed,) = folder.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest())
    if digest.decode() != SHA512:
        raise SystemExit(f"npm fetched another file than {PACKAGE} {VERSION}")
    with tarfile.open(packed) as archive:
        for name in PACKAGE_FILES:
            path = folder / "package" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.extractfile(f"package/{name}") as file:
                path.write_bytes(file.read())
    return folder / "package"


def write_page(args):
    files = {"model.tflite": args.file}
    file = read_classifier(args.file)
    if args.beside:
        files["beside.tflite"] = args.beside
        check_beside(file, read_classifier(args.beside))
    examples = []
    if args.examples:
        lines = args.examples.read_text("utf-8").split("\n")
        examples = [line for line in map(str.strip, lines) if line]
    with tempfile.TemporaryDirectory(dir=args.output.absolute().parent) as new:
        new = pathlib.Path(new) / "page"
        copy_package(new / "tasks-text", args.tasks_text)
        for name, source in files.items():
            shutil.copyfile(source, new / name)
        for name in ("page.css", "page.js"):
            shutil.copyfile(TEMPLATES / name, new / name)
        shown = [path.name for path in files.values()]
        if len(set(shown)) < len(shown):
            shown = list(map(str, files.values()))
        urls = zip(shown, files, strict=True)
        settings = {
            "files": [{"name": name, "url": url} for name, url in urls],
            "examples": examples,
        }
        template = (TEMPLATES / "index.html").read_text("utf-8")
        about = file.file_metadata
        page = string.Template(template).substitute(
            title=html.escape(args.title or about.name or args.file.stem),
            about=describe(about),
            # ASCII. A `<` could end the element.
            settings=json.dumps(settings, indent=1).replace("<", "\\u003c"),
        )
        (new / "index.html").write_text(page, "utf-8", newline="\n")
        new.rename(args.output)


def describe(about):
    """What a file says of itself, as paragraphs."""
    facts = {
        "Author": about.author,
        "License": about.license,
        "Version": about.version,
    }
    facts = [f"{name}: {value}" for name, value in facts.items() if value]
    texts = {None: about.description, "soft": " \u00b7 ".join(facts)}
    return "".join(
        f"<p{f' class={kind}' if kind else ''}>{html.escape(text)}</p>"
        for kind, text in texts.items()
        if text
    )


class Handler(http.server.SimpleHTTPRequestHandler):
    # Windows may take modules for plain text; browsers run none of those.
    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_):
        pass


def page_server(folder, port):
    """A server at `http://localhost:PORT`, by its `serve_forever`."""
    handler = functools.partial(Handler, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def main(argv=None):
    args = parse_arguments(argv)
    write_page(args)
    if not args.serve:
        print(
            f"Serve it: python -m http.server -d {args.output}\n"
            "and go to http://localhost:8000"
        )
        return
    with page_server(args.output, args.serve) as server:
        print(f"Go to http://localhost:{args.serve}; Ctrl-C ends it.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
