"""`rnnsearch translate --serve`: the page. Apart, since only it needs a web server."""

from rnnsearch.flows.command_translate import Wish, load
from rnnsearch.flows.serve import listening, serve


def serve_page(wish: Wish, port: int) -> None:
    """Serve a page that translates, on this machine, until it is interrupted."""
    with listening(port) as listener:  # a port in use is said before a model is loaded
        translator, search = load(wish)
        serve(translator, search, listener)
