"""Links of a folder of HTML pages, and which of them lead nowhere."""

import html.parser
import os.path
import pathlib
import urllib.parse


class Page(html.parser.HTMLParser):
    """Tags of a page, their ids, and what links and pictures refer to."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.tags = set()
        self.anchors = set()
        self.links = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.add(tag)
        self.anchors.add(attributes.get("id"))
        target = attributes.get({"a": "href", "img": "src"}.get(tag))
        if target:
            self.links.append(target)


def read_pages(folder):
    """Dict of all `Page`s in a folder, by their absolute paths."""
    paths = sorted(pathlib.Path(folder).resolve().rglob("*.html"))
    return {str(path): Page(path) for path in paths}


def broken_links(pages):
    """Links between pages, and to pictures, that lead nowhere."""
    folders = map(os.path.dirname, pages)
    root = pathlib.Path(os.path.commonpath([*pages, *folders]))
    return [
        f"{page.path.relative_to(root).as_posix()}: {link}"
        for page in pages.values()
        # Its links are made for the root of a server.
        if page.path.name != "404.html"
        for link in page.links
        if not _leads_somewhere(page, link, pages)
    ]


def _leads_somewhere(page, link, pages):
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    path = page.path
    if parts.path:
        path = path.parent / urllib.parse.unquote(parts.path)
        path = pathlib.Path(os.path.normpath(path))
    if path.is_dir():
        path /= "index.html"
    if str(path) in pages:
        anchor = urllib.parse.unquote(parts.fragment)
        return not anchor or anchor in pages[str(path)].anchors
    return path.exists()
