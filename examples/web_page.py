"""Writes a web page to try a text classifier in a browser.

    python -m examples.web_page small.tflite -o page --serve 8000
    python -m examples.web_page small.tflite -o page --beside float32.tflite \
        --examples texts.txt

Type a text to see the labels as bars, the size of the file and the time it
takes. A second file can be shown next to it, with differences marked. Export
the files with `kc.export_litert`, with labels and
`target=kc.export.Target("mediapipe")`. Unmodified MediaPipe runs them in the
browser. The page loads nothing from other servers and sends nothing. Append
`?text=...` to its address to fill in a text.

The page is one folder for any web server. npm downloads MediaPipe's package
`@mediapipe/tasks-text` into it. To skip that, pass `--tasks-text` with a folder
that has it, such as `tasks-text` of an earlier page.
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
# A browser loads one pair in `wasm`; old browsers cannot run the other. The
# first two files have the package's owner, its license and what it sends.
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
    parser.add_argument("--title", help="default: name in or of the file")
    parser.add_argument(
        "--examples", **path, help="texts to click on, one per line"
    )
    parser.add_argument(
        "--tasks-text", **path, help=f"a folder with npm's package {PACKAGE}"
    )
    parser.add_argument(
        "--serve", type=int, metavar="PORT", help="then serve the page here"
    )
    args = parser.parse_args(argv)
    if args.output.exists():
        parser.error(f"--output must be a new folder. Received: {args.output}")
    return args


def read_classifier(path):
    """Contents of a file; exits unless `TextClassifier` can run it."""
    file = kc.export.inspect_litert(path)
    dtypes = [
        [tensor.dtype for tensor in side]
        for side in (file.inputs, file.outputs)
    ]
    if dtypes not in ([["string"], ["float32"]], [["string"], ["uint8"]]):
        raise SystemExit(
            f"{path} must take one text and return one array of "
            f"probabilities. Received: a file from {dtypes[0]} to {dtypes[1]}. "
            "Begin the model with a tokenizer of `kc.text`, and export it with "
            "target=kc.export.Target('mediapipe') and labels."
        )
    return file


def check_beside(file, beside):
    labels = [next(iter(each.labels.values()), ()) for each in (file, beside)]
    shapes = [each.outputs[0].shape[-1] for each in (file, beside)]
    if shapes[0] != shapes[1] or (all(labels) and labels[0] != labels[1]):
        raise SystemExit("--beside must have the classes of FILE, in order")


def copy_package(target, source=None):
    """Writes the files of MediaPipe's package into a folder."""
    (target / "wasm").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        source = source or fetch_package(pathlib.Path(folder))
        for name in PACKAGE_FILES:
            shutil.copyfile(source / name, target / name)


def fetch_package(folder):
    """Downloads the package with npm and unpacks it in `folder`."""
    if shutil.which("npm") is None:
        raise SystemExit(
            f"npm must be installed to download {PACKAGE}. Or, on another "
            f"machine, run `npm pack {PACKAGE}@{VERSION}`, unpack the file, "
            "and pass its folder `package` as --tasks-text"
        )
    command = ["npm", "pack", f"{PACKAGE}@{VERSION}", "--prefer-offline"]
    subprocess.run([shutil.which("npm"), *command[1:]], cwd=folder, check=True)
    (packed,) = folder.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest())
    if digest.decode() != SHA512:
        raise SystemExit(f"npm downloaded no valid {PACKAGE} {VERSION}")
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
    """Metadata of a file as HTML paragraphs."""
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
    # Windows may serve modules as plain text, which browsers refuse.
    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_):
        pass


def page_server(folder, port):
    """A server at `http://localhost:PORT`; call its `serve_forever`."""
    handler = functools.partial(Handler, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def main(argv=None):
    args = parse_arguments(argv)
    write_page(args)
    if not args.serve:
        print(
            f"Run python -m http.server -d {args.output}\n"
            "and open http://localhost:8000"
        )
        return
    with page_server(args.output, args.serve) as server:
        print(f"Open http://localhost:{args.serve} (Ctrl-C to stop).")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
