"""Takes pictures of README: a page of `python -m examples.web_page`.

Run it as

    python tools/page_picture.py page docs/page.png "can you book a flight"
    python tools/page_picture.py page docs/page.gif "can you book a flight"

where `page` is the folder that the command wrote. A .gif or .webp file types
the text letter by letter. It needs Chromium, and Pillow for those two.
"""

import argparse
import io
import json
import pathlib
import sys
import threading
import urllib.parse

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(1, str(ROOT))

import browser  # noqa: E402

from examples.web_page import page_server  # noqa: E402

IS_DONE = "!document.querySelector('main').hasAttribute('aria-busy')"
ANIMATED = (".gif", ".webp")
# Milliseconds for which a letter and the end are shown.
LETTER, END = 110, 3500
# Rows keep their places while the text is typed.
FIX = """
const sheet = new CSSStyleSheet();
sheet.replaceSync(`
  #examples, #labels-note, #files-note, .soft, #labels li:nth-child(n + 6) {
    display: none;
  }
  #labels .bar i { transition: none; }
`);
document.adoptedStyleSheets = [sheet];
const labels = document.getElementById("labels");
labels.style.height = `${labels.offsetHeight}px`;
const field = document.getElementById("text");
field.rows = 1;
field.focus();
"""
TYPE = """
field.value = %s;
field.dispatchEvent(new Event("input"));
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", help="what the command wrote")
    parser.add_argument("output", help="the .png, .gif or .webp file")
    parser.add_argument("text", help="what stands on the page")
    parser.add_argument("--width", type=int, default=720, help="pixels")
    parser.add_argument("--dark", action="store_true")
    take(parser.parse_args())


def take(arguments):
    query = urllib.parse.urlencode({"text": arguments.text})
    mode = "dark" if arguments.dark else "light"
    with (
        page_server(arguments.folder, 0) as server,
        browser.Browser(browser.find_chromium()) as page,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        feature = {"name": "prefers-color-scheme", "value": mode}
        page.send("Emulation.setEmulatedMedia", features=[feature])
        resize(page, arguments.width, 600)
        port = server.server_address[1]
        page.open(f"http://localhost:{port}/?{query}", IS_DONE)
        output = pathlib.Path(arguments.output)
        if output.suffix in ANIMATED:
            page.run(FIX)
        height = page.run("document.querySelector('main').offsetHeight")
        resize(page, arguments.width, height)
        if output.suffix in ANIMATED:
            write_frames(typed(page, arguments.text), output)
        else:
            output.write_bytes(page.picture())
        server.shutdown()


def typed(page, text):
    """Pictures of the page: empty, and after each letter."""
    pictures = []
    for stop in range(len(text) + 1):
        page.run(TYPE % json.dumps(text[:stop]))
        if not text[:stop] or text[stop : stop + 1] in ("", " "):
            # After a word the page has time to answer.
            page.wait(IS_DONE)
        pictures.append(page.picture())
    return pictures


def write_frames(pictures, path):
    """Writes an animated picture, in few colours as .gif."""
    from PIL import Image

    frames = [Image.open(io.BytesIO(each)).convert("RGB") for each in pictures]
    if path.suffix == ".gif":
        # The last picture has all colours.
        palette = frames[-1].quantize(64, dither=Image.Dither.NONE)
        frames = [
            frame.quantize(palette=palette, dither=Image.Dither.NONE)
            for frame in frames
        ]
    first, *others = frames
    first.save(
        path,
        save_all=True,
        append_images=others,
        duration=[10 * LETTER, *[LETTER] * (len(frames) - 2), END],
        loop=0,
        lossless=True,
    )


def resize(page, width, height):
    page.send(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1.25,
        mobile=True,
    )


if __name__ == "__main__":
    main()
