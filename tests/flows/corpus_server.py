"""A server on loopback that breaks, lies and changes its mind."""

import hashlib
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

BODY = b"".join(hashlib.sha256(n.to_bytes(4, "big")).digest() for n in range(40_000))  # 1.28 MB


@dataclass
class Site:
    """What the server does; each list is used up, one entry a request."""

    address: str = ""
    body: bytes = BODY
    etag: str | None = '"one"'
    ranges: bool = True
    honours_if_range: bool = True
    statuses: list[int] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)  # bytes of the body after which the line goes dead
    declared: int | None = None  # Content-Length of whole answers, if not the truth
    lengthless: bool = False  # whole answers end where the server closes the connection
    slow: float = 0.0  # seconds between pieces of 64 KiB
    content_type: str = "application/octet-stream"
    bodies: list[bytes] = field(default_factory=list)  # in place of `body`, one a request
    cut: int | None = None  # every body ends after so many bytes
    range_answer: str | None = None  # the Content-Range of every answer to a Range, or "416"
    headers: dict[str, str] = field(default_factory=dict)  # of answers that are not 200 or 206
    seen: list[str | None] = field(default_factory=list)  # the Range of each request
    paths: list[str] = field(default_factory=list)  # with the query
    agents: list[str | None] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    sent: int = 0

    def url(self, path: str = "corpus.tgz") -> str:
        return f"{self.address}/{path}"


def handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def date_time_string(self, timestamp: float | None = None) -> str:
            return site.headers.get("Date") or super().date_time_string(timestamp)

        def do_GET(self) -> None:
            site.seen.append(self.headers.get("Range"))
            site.paths.append(self.path)
            site.agents.append(self.headers.get("User-Agent"))
            site.logins.append(self.headers.get("Authorization"))
            if site.statuses and (status := site.statuses.pop(0)) != 200:
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", site.url("elsewhere.tgz"))
                if "Retry-After" in site.headers:
                    self.send_header("Retry-After", site.headers["Retry-After"])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body, start = site.bodies.pop(0) if site.bodies else site.body, 0
            wanted, condition = self.headers.get("Range"), self.headers.get("If-Range")
            current = condition is None or condition == site.etag or not site.honours_if_range
            if wanted and site.range_answer is not None:
                refused = site.range_answer == "416"
                self.send_response(416 if refused else 206)
                if not refused:
                    self.send_header("Content-Range", site.range_answer)
                self.send_header("Content-Length", "0" if refused else str(len(body)))
                self.end_headers()
                self._send(b"" if refused else body)
                return
            if site.ranges and wanted and current:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(body):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(body)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
                self.send_header("Content-Length", str(len(body) - start))
            else:
                self.send_response(200)
                if site.lengthless:
                    self.close_connection = True
                else:
                    self.send_header("Content-Length", str(site.declared or len(body)))
            if site.etag:
                self.send_header("ETag", site.etag)
            self.send_header("Content-Type", site.content_type)
            self.end_headers()
            self._send(body[start:])

        def _send(self, rest: bytes) -> None:
            limit = site.drops.pop(0) if site.drops else len(rest)
            limit = limit if site.cut is None else min(limit, site.cut)
            for at in range(0, min(limit, len(rest)), 65_536):
                piece = rest[at : min(at + 65_536, limit)]
                try:
                    self.wfile.write(piece)
                except (BrokenPipeError, ConnectionResetError):
                    break
                site.sent += len(piece)
                time.sleep(site.slow)
            if limit < len(rest) or site.declared:
                self.close_connection = True

    return Handler
