"""Sources against a real server on loopback that breaks, lies and changes its mind; and pip, offline."""

import base64
import hashlib
import io
import os
import signal
import ssl
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path

import pytest
from corpus_server import BODY, Site, handler
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from rnnsearch.flows.sources import checks, http
from rnnsearch.flows.sources import fetch as fetching
from rnnsearch.flows.sources.checks import SourceError
from rnnsearch.flows.sources.config import SourceConfig
from rnnsearch.flows.sources.fetch import Fetched, fetch
from rnnsearch.flows.sources.http import Patience

SHORT = Patience(attempts=3, pause=0.01, longest_pause=0.02, connect=5, read=5)
OTHER = BODY[::-1]


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.fixture
def tls_address(serve: Callable[..., Site], tmp_path: Path) -> Iterator[str]:
    """A server whose certificate no authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime(2020, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + certificate.public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(Site()))
    server.handle_error = lambda request, address: None  # type: ignore[method-assign]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def bring(source: SourceConfig, folder: Path) -> Fetched:
    return fetch(source, folder, lambda done, total: None, SHORT)


def pinned(site: Site, body: bytes = BODY, **more: object) -> SourceConfig:
    return SourceConfig(url=site.url(), sha256=digest(body), **more)  # type: ignore[arg-type]


def test_a_file_arrives_whole_with_its_digest_and_its_progress(serve, tmp_path: Path) -> None:
    site, steps = serve(), []
    found = fetch(pinned(site, size=len(BODY)), tmp_path, lambda *step: steps.append(step), SHORT)
    assert found.path.read_bytes() == BODY
    assert found[1:] == (digest(BODY), len(BODY), site.url())
    assert steps[0] == (0, len(BODY))
    assert steps[-1] == (len(BODY), len(BODY))
    assert steps == sorted(steps)


def test_an_unpinned_digest_is_learned(serve, tmp_path: Path) -> None:
    site = serve()
    assert bring(SourceConfig(url=site.url()), tmp_path).sha256 == digest(BODY)


def test_a_broken_line_is_continued_from_the_last_byte(serve, tmp_path: Path) -> None:
    site = serve(drops=[300_000, 500_000])
    assert bring(SourceConfig(url=site.url()), tmp_path).path.read_bytes() == BODY
    assert site.seen == [None, "bytes=300000-", "bytes=800000-"]
    assert site.sent == len(BODY)


def test_a_file_that_changed_between_two_attempts_is_never_mixed(serve, tmp_path: Path) -> None:
    site = serve(drops=[300_000])

    def change(done: int, total: int | None) -> None:
        if done == 300_000:
            site.body, site.etag = OTHER, '"two"'

    assert fetch(SourceConfig(url=site.url()), tmp_path, change, SHORT).path.read_bytes() == OTHER
    assert site.seen == [None, "bytes=300000-"]


def test_a_server_that_ignores_if_range_is_found_out_by_its_etag(serve, tmp_path: Path) -> None:
    site = serve(drops=[300_000], honours_if_range=False)

    def change(done: int, total: int | None) -> None:
        if done == 300_000:
            site.body, site.etag = OTHER, '"two"'

    assert fetch(SourceConfig(url=site.url()), tmp_path, change, SHORT).path.read_bytes() == OTHER
    assert site.seen == [None, "bytes=300000-", None]


def test_without_a_validator_only_a_pinned_file_is_continued(serve, tmp_path: Path) -> None:
    loose, firm = serve(etag=None, drops=[300_000]), serve(etag=None, drops=[300_000])
    assert bring(SourceConfig(url=loose.url()), tmp_path / "loose").path.read_bytes() == BODY
    assert bring(pinned(firm), tmp_path / "firm").path.read_bytes() == BODY
    assert loose.seen == [None, None]
    assert firm.seen == [None, "bytes=300000-"]


def test_a_weak_etag_does_not_count_as_a_validator(serve, tmp_path: Path) -> None:
    site = serve(etag='W/"one"', drops=[300_000])
    assert bring(SourceConfig(url=site.url()), tmp_path).path.read_bytes() == BODY
    assert site.seen == [None, None]


def test_a_mixture_that_only_the_digest_finds_is_fetched_again_from_the_start(serve, tmp_path: Path) -> None:
    site = serve(etag=None, drops=[300_000])

    def change(done: int, total: int | None) -> None:
        if done == 300_000:
            site.body = OTHER

    assert fetch(pinned(site, OTHER), tmp_path, change, SHORT).path.read_bytes() == OTHER
    assert site.seen == [None, "bytes=300000-", None]


def test_an_answer_without_a_length_is_held_to_the_declared_size(serve, tmp_path: Path) -> None:
    site = serve(lengthless=True, drops=[300_000])
    assert bring(SourceConfig(url=site.url(), size=len(BODY)), tmp_path).path.read_bytes() == BODY


def test_a_server_without_ranges_starts_again(serve, tmp_path: Path) -> None:
    site = serve(ranges=False, drops=[300_000])
    assert bring(pinned(site), tmp_path).path.read_bytes() == BODY


def test_a_second_call_takes_the_whole_file_without_a_request(serve, tmp_path: Path) -> None:
    site = serve()
    first = bring(SourceConfig(url=site.url()), tmp_path)
    assert bring(SourceConfig(url=site.url()), tmp_path) == first
    assert len(site.seen) == 1


def test_a_file_damaged_after_its_fetch_is_fetched_again(serve, tmp_path: Path) -> None:
    site = serve()
    first = bring(SourceConfig(url=site.url()), tmp_path)
    first.path.write_bytes(BODY[:-1] + b"?")
    assert bring(SourceConfig(url=site.url()), tmp_path).path.read_bytes() == BODY
    assert len(site.seen) == 2


def test_a_kill_between_the_last_byte_and_the_renaming_costs_no_second_download(
    serve, tmp_path: Path
) -> None:
    site = serve()

    def stop(done: int, total: int | None) -> None:
        if done == len(BODY):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(SourceConfig(url=site.url()), tmp_path, stop, SHORT)
    assert bring(SourceConfig(url=site.url()), tmp_path).path.read_bytes() == BODY
    assert site.sent == len(BODY)


def test_a_killed_fetch_is_continued_by_the_next(serve, tmp_path: Path) -> None:
    site = serve(slow=0.1)
    program = (
        "import sys; from pathlib import Path; from rnnsearch.flows.sources.config import SourceConfig; "
        "from rnnsearch.flows.sources.fetch import fetch; "
        "fetch(SourceConfig(url=sys.argv[1]), Path(sys.argv[2]), lambda done, total: None)"
    )
    child = subprocess.Popen([sys.executable, "-c", program, site.url(), str(tmp_path)])
    part = tmp_path / "fetched" / "corpus.tgz.part"
    deadline = time.monotonic() + 60
    while not part.exists() or part.stat().st_size < 200_000:
        assert child.poll() is None, "the fetch ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    site.slow = 0.0
    kept = part.stat().st_size
    assert 200_000 <= kept < len(BODY)
    assert bring(SourceConfig(url=site.url()), tmp_path).path.read_bytes() == BODY
    assert site.seen == [None, f"bytes={kept}-"]


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_passing_fault_is_tried_again(serve, tmp_path: Path, status: int) -> None:
    site = serve(statuses=[status, status])
    assert bring(pinned(site), tmp_path).path.read_bytes() == BODY
    assert len(site.seen) == 3


def test_a_missing_file_is_not_asked_for_twice(serve, tmp_path: Path) -> None:
    site = serve(statuses=[404] * 9)
    with pytest.raises(SourceError, match="404 Not Found"):
        bring(pinned(site), tmp_path)
    assert len(site.seen) == 1


def test_patience_ends_where_nothing_new_arrives(serve, tmp_path: Path) -> None:
    site = serve(statuses=[500] * 9)
    with pytest.raises(SourceError, match="500 Internal Server Error, 3 times in a row"):
        bring(pinned(site), tmp_path)
    assert len(site.seen) == 3


def test_attempts_that_bring_bytes_do_not_use_up_patience(serve, tmp_path: Path) -> None:
    site = serve(drops=[100_000] * 8)
    assert bring(pinned(site), tmp_path).path.read_bytes() == BODY


def test_mirrors_are_tried_in_turn_and_continue_each_others_part(serve, tmp_path: Path) -> None:
    first, second = serve(drops=[400_000] + [0] * 9), serve(etag='"elsewhere"')
    source = pinned(first, mirrors=(second.url(),))
    found = bring(source, tmp_path)
    assert found.path.read_bytes() == BODY
    assert found.origin == second.url()
    assert second.seen == ["bytes=400000-"]


def test_an_unpinned_part_is_not_continued_at_another_mirror(serve, tmp_path: Path) -> None:
    first, second = serve(drops=[400_000] + [0] * 9), serve(body=OTHER)
    source = SourceConfig(url=first.url(), mirrors=(second.url(),))
    assert bring(source, tmp_path).path.read_bytes() == OTHER


def test_every_origin_s_fault_is_told(serve, tmp_path: Path) -> None:
    first, second = serve(statuses=[404]), serve(body=OTHER)
    with pytest.raises(SourceError) as caught:
        bring(pinned(first, mirrors=(second.url(),)), tmp_path)
    assert f"{first.url()}: answers 404 Not Found" in str(caught.value)
    assert f"SHA-256 of corpus.tgz is {digest(OTHER)}, not {digest(BODY)}" in str(caught.value)
    assert not (tmp_path / "fetched" / "corpus.tgz").exists()


def test_a_longer_declared_size_than_was_sent_is_a_broken_line(serve, tmp_path: Path) -> None:
    site = serve(declared=len(BODY) + 1, ranges=False)
    with pytest.raises(SourceError, match="times in a row"):
        bring(SourceConfig(url=site.url()), tmp_path)


def test_a_shorter_declared_size_is_caught_by_the_digest(serve, tmp_path: Path) -> None:
    site = serve(declared=len(BODY) - 5)
    with pytest.raises(SourceError, match="SHA-256"):
        bring(pinned(site), tmp_path)


def test_another_size_than_declared_is_refused_before_the_body(serve, tmp_path: Path) -> None:
    site = serve()
    with pytest.raises(SourceError, match=r"1,280,000 bytes, not the declared 5: the file changed"):
        bring(pinned(site, size=5), tmp_path)
    assert not (tmp_path / "fetched" / "corpus.tgz.part").exists()


def test_a_part_longer_than_the_file_is_dropped(serve, tmp_path: Path) -> None:
    site = serve(drops=[300_000])

    def shrink(done: int, total: int | None) -> None:
        if done == 300_000:
            site.body, site.honours_if_range = BODY[:200_000], False

    assert fetch(SourceConfig(url=site.url()), tmp_path, shrink, SHORT).size == 200_000


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>try again", "a web page"),
        (b"\xef\xbb\xbf\r\n <!DOCTYPE HTML PUBLIC", "a web page"),
        (b"<?xml version='1.0'?>\n<Error><Code>AccessDenied", "a server's error message"),
        (b'{"message": "Bad credentials"}', "a server's error message"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"),
        (b"no such file", "text, not a .tgz file"),
    ],
)
def test_what_the_first_bytes_show_is_no_corpus_is_refused_whatever_the_header_says(
    serve, tmp_path: Path, body: bytes, kind: str
) -> None:
    site = serve(body=body, content_type="text/plain")
    with pytest.raises(SourceError) as caught:
        bring(SourceConfig(url=site.url()), tmp_path)
    said = str(caught.value)
    assert kind in said
    assert f"{site.url()}: text/plain, {len(body)} bytes, which begin '" in said
    assert f'sha256 = "{digest(body)}"' in said
    assert not list((tmp_path / "fetched").glob("*.tgz*"))


def test_a_message_shows_no_control_characters_of_a_server(serve, tmp_path: Path) -> None:
    site = serve(body=b"<html>\x1b[31m\x07")
    with pytest.raises(SourceError, match=r"begin '<html>\\x1b\[31m\\x07'"):
        bring(SourceConfig(url=site.url()), tmp_path)


def test_right_bytes_pass_whatever_the_header_says(serve, tmp_path: Path) -> None:
    page = serve(content_type="text/html; charset=utf-8")
    assert bring(SourceConfig(url=page.url()), tmp_path / "loose").path.read_bytes() == BODY
    wanted = b"<html>a corpus of web pages"
    site = serve(body=wanted, content_type="text/html")
    assert bring(pinned(site, wanted), tmp_path / "firm").path.read_bytes() == wanted
    assert bring(SourceConfig(url=site.url("page.html")), tmp_path / "page").path.read_bytes() == wanted


def test_wrong_bytes_of_a_pinned_file_are_described(serve, tmp_path: Path) -> None:
    site = serve(body=b"<html>log in", content_type="text/html")
    with pytest.raises(SourceError, match=r"SHA-256 .*text/html, 12 bytes, which begin '<html>log in'"):
        bring(pinned(site), tmp_path)


@pytest.mark.parametrize(
    "answer", ["416", "bytes 1500-3999/*", "bytes 0-3999/4000", "bytes */4000", "bytes 1500-\u00b2/\u00b2"]
)
def test_a_server_that_never_gets_beyond_the_same_byte_is_given_up(
    serve, tmp_path: Path, answer: str
) -> None:
    site = serve(body=BODY[:4_000], cut=1_500, range_answer=answer)
    with pytest.raises(SourceError, match="3 times in a row"):
        bring(SourceConfig(url=site.url()), tmp_path)
    assert len(site.seen) <= 8


def test_a_piece_of_a_file_whose_size_the_server_leaves_open_is_continued(serve, tmp_path: Path) -> None:
    site = serve(drops=[1_500], range_answer="bytes 1500-3999/*")
    site.body = BODY[:4_000]

    def rest(done: int, total: int | None) -> None:
        if done == 1_500:
            site.body = BODY[1_500:4_000]

    found = fetch(SourceConfig(url=site.url()), tmp_path, rest, SHORT)
    assert found.path.read_bytes() == BODY[:4_000]
    assert site.seen == [None, "bytes=1500-"]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        (
            {"Retry-After": "Tue, 01 Dec 2026 10:00:30 GMT", "Date": "Tue, 01 Dec 2026 10:00:00 GMT"},
            30.0,
        ),
        (
            {"Retry-After": "Tue, 01 Dec 2026 09:00:00 GMT", "Date": "Tue, 01 Dec 2026 10:00:00 GMT"},
            SHORT.pause,
        ),
        ({"Retry-After": "soon"}, SHORT.pause),
        ({"Retry-After": "\u00b2"}, SHORT.pause),
    ],
)
def test_a_server_is_asked_again_when_it_says(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], seconds: float
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(http.time, "sleep", waits.append)
    site = serve(statuses=[429], headers=headers)
    assert bring(SourceConfig(url=site.url()), tmp_path).size == len(BODY)
    assert [wait for wait in waits if wait] == [seconds]


def test_a_server_that_asks_for_hours_is_not_waited_for(serve, tmp_path: Path) -> None:
    site = serve(statuses=[503] * 9, headers={"Retry-After": "7200"})
    with pytest.raises(SourceError, match=r"503 .* asks to wait 7,200 s; try again then"):
        bring(SourceConfig(url=site.url()), tmp_path)
    assert len(site.seen) == 1


def test_a_request_says_who_asks(serve, tmp_path: Path) -> None:
    site = serve()
    bring(pinned(site), tmp_path)
    assert site.agents == [f"rnnsearch/{version('rnnsearch')}"]


@pytest.mark.parametrize(
    ("status", "said"), [(401, "login for the host"), (403, "fetch the file by hand"), (404, "mirror")]
)
def test_a_refusal_says_what_helps(serve, tmp_path: Path, status: int, said: str) -> None:
    site = serve(statuses=[status])
    with pytest.raises(SourceError, match=rf"answers {status} .*{said}"):
        bring(pinned(site), tmp_path)


@pytest.mark.parametrize(
    "netrc",
    [
        'machine 127.0.0.1 login me password "a \\"b\\" c"\n',
        "machine other login x method oauth password y\nmachine 127.0.0.1\n  login me\n  password a\n",
        "macdef init\ncd /pub\nmachine 127.0.0.1 login evil password evil\n\n"
        "machine 127.0.0.1 login me password a\n",
        "# machine 127.0.0.1 login x password y\ndefault login me password a\nmacdef last\nopen x",
        "machine 127.0.0.1 method basic login me account of password a port 21",
    ],
    ids=["quoted", "method", "macdef", "default", "unknown"],
)
def test_an_entry_of_netrc_that_cannot_be_read_hinders_no_other_host(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, netrc: str
) -> None:
    (tmp_path / "netrc").write_text(netrc)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    site = serve()
    bring(pinned(site), tmp_path / "work")
    password = 'a "b" c' if '"' in netrc else "a"
    assert site.logins == [f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"]


# Secrets


def test_a_secret_of_a_query_is_known_to_the_server_alone(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    site = serve(drops=[300_000])
    source = SourceConfig(url=site.url("corpus.tgz?v=1&token=${CORPUS_TOKEN}"))
    monkeypatch.setenv("CORPUS_TOKEN", "s3cr+t/%2F")
    told: list[str] = []

    def look(done: int, total: int | None) -> None:
        told.extend(path.read_text() for path in tmp_path.rglob("*.json"))

    found = fetch(source, tmp_path, look, SHORT)
    assert set(site.paths) == {"/corpus.tgz?v=1&token=s3cr%2Bt%2F%2F"}
    assert found.origin == site.url("corpus.tgz?v=1&token=${CORPUS_TOKEN}")
    assert told
    assert "s3cr" not in "".join(told) + caplog.text
    assert "GET http" in caplog.text, "the log of requests is still there"


def test_a_secret_that_is_not_set_is_named_when_the_file_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CORPUS_TOKEN", raising=False)
    source = SourceConfig(url="https://host.invalid/a?token=${CORPUS_TOKEN}")
    with pytest.raises(SourceError, match="environment variable CORPUS_TOKEN, which is not set"):
        bring(source, tmp_path)


def test_a_whole_query_may_be_a_secret(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    monkeypatch.setenv("SIGNED", "X-Amz-Date=1&X-Amz-Signature=2%2F")
    bring(SourceConfig(url=site.url("a.tgz?${SIGNED}")), tmp_path)
    assert site.paths == ["/a.tgz?X-Amz-Date=1&X-Amz-Signature=2%2F"]


@pytest.mark.parametrize(
    "name",
    [
        "token", "access_token", "Signature", "sig", "key", "api-key", "X-Amz-Signature", "X-Amz-Credential",
        "X-Goog-Date", "AWSAccessKeyId", "password", "auth", "X%2DAmz%2DSignature",
    ],
)  # fmt: skip
def test_a_literal_secret_in_a_query_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ValueError, match=r"looks like a secret.*=\$\{") as caught:
        SourceConfig(url=f"https://host/a?x=1&{name}=hunter2")
    assert "hunter2" not in str(caught.value)


def test_other_values_of_a_query_are_nobodys_secret() -> None:
    for query in ("download=1", "monkey=3&keys=1", "file=a.tgz&version=2", "id=0B7XkCwpI5KDYNlNUTTlSS21pQmM"):
        assert SourceConfig(url=f"https://host/a?{query}").url.endswith(query)


@pytest.mark.parametrize(
    "url", ["https://${HOST}/a", "https://host/${A}/b", "https://host/a?b=${", "https://h/?${1}"]
)
def test_a_placeholder_stands_for_a_value_of_the_query_only(url: str) -> None:
    with pytest.raises(ValueError, match=r"\$\{"):
        SourceConfig(url=url)


def test_redirects_are_followed_and_the_name_stays(serve, tmp_path: Path) -> None:
    site = serve(statuses=[302])
    assert bring(pinned(site), tmp_path).path.name == "corpus.tgz"


def test_a_full_disk_is_told_before_the_body(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    free = len(BODY) + checks.RESERVE - 1
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(SourceError, match="1,280,000 are needed"):
        bring(pinned(site), tmp_path)
    assert not (tmp_path / "fetched" / "corpus.tgz.part").exists()


def test_an_untrusted_certificate_is_refused_at_once(tmp_path: Path, tls_address: str) -> None:
    source = SourceConfig(url=f"{tls_address}/corpus.tgz", sha256=digest(BODY))
    with pytest.raises(SourceError, match="certificate is not trusted"):
        bring(source, tmp_path)


def test_a_second_process_in_the_folder_waits_and_then_says_so(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_LOCK_WAIT", 0.1)
    with (
        fetching._alone(tmp_path / "lock"),
        pytest.raises(SourceError, match="another process"),
        fetching._alone(tmp_path / "lock"),
    ):
        pass


def test_md5_is_checked_where_it_is_all_there_is(serve, tmp_path: Path) -> None:
    site = serve()
    right = hashlib.md5(BODY).hexdigest()
    assert bring(SourceConfig(url=site.url(), md5=right), tmp_path / "right").size == len(BODY)
    with pytest.raises(SourceError, match="MD5"):
        bring(SourceConfig(url=site.url(), md5="0" * 32), tmp_path / "wrong")


# Local files


def test_a_local_file_is_read_anew_each_time(tmp_path: Path) -> None:
    origin = tmp_path / "my corpus.txt"
    source = SourceConfig(url="my corpus.txt").resolved(tmp_path)
    assert source.url.startswith("file:///")
    for text in (b"one\n", b"two\n"):
        origin.write_bytes(text)
        assert bring(source, tmp_path / "work").path.read_bytes() == text


def test_a_missing_local_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.txt is not there"):
        bring(SourceConfig(url="absent.txt").resolved(tmp_path), tmp_path / "work")
    with pytest.raises(SourceError, match="is a folder"):
        bring(SourceConfig(url=tmp_path.as_uri()), tmp_path / "work")


# Archives


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return out.getvalue()


def tarred(members: dict[str, bytes], mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, body in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return out.getvalue()


def local(archive: bytes, folder: Path, member: str, **more: object) -> SourceConfig:
    (folder / "archive").write_bytes(archive)
    return SourceConfig(url=(folder / "archive").as_uri(), member=member, **more)  # type: ignore[arg-type]


MEMBERS = {"training/a.en": b"one\n", "./training/a.fr": b"un\n", "../../evil": b"out\n"}


@pytest.mark.parametrize(
    "archive",
    [zipped(MEMBERS), *(tarred(MEMBERS, f"w:{kind}") for kind in ("", "gz", "bz2", "xz"))],
    ids=["zip", "tar", "gz", "bz2", "xz"],
)
def test_only_the_named_member_leaves_an_archive(archive: bytes, tmp_path: Path) -> None:
    work = tmp_path / "work"
    found = bring(local(archive, tmp_path, "training/a.fr"), work)
    assert found.path.read_bytes() == b"un\n"
    assert found.sha256 == digest(archive)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {
        "archive", "archive.json", "a.fr", "lock",
    }  # fmt: skip


def test_a_missing_member_is_told_with_its_neighbours(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"no member training/a\.de among its 3; near it are \['training/a\.en'"
    ):
        bring(local(zipped(MEMBERS), tmp_path, "training/a.de"), tmp_path / "work")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_no_file_is_refused(kind: bytes, tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo("a.en")
        entry.type, entry.linkname = kind, "/etc/hostname"
        archive.addfile(entry)
    with pytest.raises(SourceError, match="a folder, a link or a device"):
        bring(local(out.getvalue(), tmp_path, "a.en"), tmp_path / "work")


def test_a_zipped_link_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        entry = zipfile.ZipInfo("a.en")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/hostname")
    with pytest.raises(SourceError, match="a folder, a link or a device"):
        bring(local(out.getvalue(), tmp_path, "a.en"), tmp_path / "work")


@pytest.mark.parametrize("pack", [zipped, lambda members: tarred(members, "w:gz")], ids=["zip", "tar"])
def test_a_member_above_the_limit_is_refused_before_it_is_unpacked(pack, tmp_path: Path) -> None:
    source = local(pack({"big": b"\0" * 10_000_000}), tmp_path, "big", member_limit=1_000_000)
    with pytest.raises(SourceError, match="10,000,000 bytes, above the limit of 1,000,000"):
        bring(source, tmp_path / "work")
    assert not list((tmp_path / "work" / "member").iterdir())


@pytest.mark.parametrize("pack", [zipped, lambda members: tarred(members, "w:gz")], ids=["zip", "tar"])
def test_a_cut_off_archive_is_an_error_and_leaves_nothing(pack, tmp_path: Path) -> None:
    whole = pack({"a.en": BODY})
    with pytest.raises(SourceError, match=r"cannot be unpacked"):
        bring(local(whole[: len(whole) // 2], tmp_path, "a.en"), tmp_path / "work")
    assert not list((tmp_path / "work" / "member").iterdir())


def test_a_flipped_byte_in_a_zip_is_found(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.en", b"a corpus")
    with pytest.raises(SourceError, match="cannot be unpacked"):
        bring(local(out.getvalue().replace(b"a corpus", b"a torpus"), tmp_path, "a.en"), tmp_path / "work")


# The package index


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Set pip up for a folder of wheels, without a network; return the wheel in it."""
    wheel = zipped(
        {
            "verses/data/bible.db": BODY,
            "verses-1.2.dist-info/METADATA": b"Metadata-Version: 2.1\nName: verses\n"
            b"Version: 1.2\nRequires-Dist: absent\n",
            "verses-1.2.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "verses-1.2.dist-info/RECORD": b"",
        }
    )
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "verses-1.2-py3-none-any.whl").write_bytes(wheel)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return wheel


def test_pip_brings_a_wheel_without_its_dependencies(
    index: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = SourceConfig(url="pypi:verses==1.2", sha256=digest(index), member="verses/data/bible.db")
    found = bring(source, Path("work"))
    assert found.path.name == "bible.db"
    assert found.path.read_bytes() == BODY
    assert found.sha256 == digest(index)
    assert not list((tmp_path / "work" / "fetched").glob("pip-*"))


def test_a_wheel_with_another_digest_is_refused(index: bytes, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="SHA-256"):
        bring(SourceConfig(url="pypi:verses==1.2", sha256="0" * 64), tmp_path / "work")


def test_pip_s_last_words_are_in_the_error(index: bytes, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No matching distribution found for verses==9"):
        bring(SourceConfig(url="pypi:verses==9"), tmp_path / "work")


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "pypi:verses"}, "pypi:name==version"),
        ({"url": "pypi:verses>=1"}, "pypi:name==version"),
        ({"url": "pypi:--dest==1"}, "pypi:name==version"),
        ({"url": "ftp://host/file"}, "scheme ftp"),
        ({"url": "http:///file"}, "no host"),
        ({"url": "https://me:secret@host/file"}, "netrc"),
        ({"url": "file://host/file"}, "another host"),
        ({"url": ""}, "empty"),
        ({"url": "a", "mirrors": ("ftp://host/file",)}, "scheme ftp"),
        ({"url": "a", "sha256": "12"}, "64 hexadecimal"),
        ({"url": "a", "member": "../a"}, "inside an archive"),
        ({"url": "a", "member": "/a"}, "inside an archive"),
        ({"url": "a", "sha": "12"}, "Extra inputs"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_would_be_right(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SourceConfig(**settings)  # type: ignore[arg-type]


def test_capitals_in_a_digest_are_the_same_digest() -> None:
    assert SourceConfig(url="a", sha256="AB" * 32).sha256 == "ab" * 32
