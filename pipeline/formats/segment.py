"""The text of one segment of an XML file, while its events go by."""

import re
from collections.abc import Container

from rnnsearch.pipeline.formats.xml import END, START, TEXT, Event

_BREAKS = re.compile(r"[ \t]*[\r\n]+[ \t]*")


class Segment:
    """Collects the text inside an element; text inside the elements `skipped` is markup and is left out."""

    def __init__(self, skipped: Container[str], longest: int) -> None:
        """Begin after the start of the element. Above `longest` characters nothing more is collected."""
        self._skipped, self._longest = skipped, longest
        self._parts: list[str] = []
        self._length = 0
        self._depth = 0  # of elements inside
        self._markup = 0  # depth at which markup began, 0 outside

    def take(self, event: Event) -> bool:
        """Take the next event; return whether the segment's element has ended."""
        if event.kind == TEXT:
            if not self._markup and self._length <= self._longest:
                self._parts.append(event.name)
                self._length += len(event.name)
            return False
        if event.kind == START:
            self._depth += 1
            if not self._markup and event.name in self._skipped:
                self._markup = self._depth
            return False
        if event.kind == END and not self._depth:
            return True
        if self._markup == self._depth:
            self._markup = 0
        self._depth -= 1
        return False

    @property
    def text(self) -> str:
        """The text so far; line breaks inside it are spaces."""
        return _BREAKS.sub(" ", "".join(self._parts)).strip(" \t")
