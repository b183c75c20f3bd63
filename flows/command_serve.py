"""`rnnsearch translate --serve`: the page. Apart, since only it needs a web server."""

from rnnsearch.flows.command_translate import Wish, load
from rnnsearch.flows.serve import serve


def serve_page(wish: Wish, port: int) -> None:
    """Serve a page that translates, on this machine, until it is interrupted."""
    translator, search = load(wish)
    serve(translator, search, port)
