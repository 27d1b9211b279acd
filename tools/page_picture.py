"""Takes the picture of README: a page of `python -m examples.web_page`.

Run it as

    python tools/page_picture.py page docs/page.png "can i get my money back"

where `page` is the folder that the command wrote. It needs Chromium.
"""

import argparse
import pathlib
import sys
import threading
import urllib.parse

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(1, str(ROOT))

import browser  # noqa: E402

from examples.web_page import page_server  # noqa: E402

IS_DONE = "!document.querySelector('main').hasAttribute('aria-busy')"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", help="what the command wrote")
    parser.add_argument("output", help="the .png file to write")
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
        height = page.run("document.querySelector('main').offsetHeight")
        resize(page, arguments.width, height)
        pathlib.Path(arguments.output).write_bytes(page.picture())
        server.shutdown()


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
