"""Serves a folder to browsers on this machine."""

import functools
import http.server


def page_server(folder, port):
    """A server at `http://localhost:PORT`, by its `serve_forever`."""
    handler = functools.partial(_Handler, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def check_port(port):
    """Raises if no server can be at a port."""
    try:
        page_server(".", port).server_close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            "--serve must be a port that is free. "
            f"Received: --serve {port} ({error})."
        ) from error


class _Handler(http.server.SimpleHTTPRequestHandler):
    # Python asks Windows, which may take modules for plain text; browsers run
    # none of those.
    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".css": "text/css",
        ".html": "text/html",
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_):
        pass
