"""What the tests of the bridge share: stages on a real Ray, the command line, a Prefect server."""

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `--import-mode=importlib` leaves it out

from corpus_server import Site, handler

from rnnsearch.flows.console import RunConsole
from rnnsearch.flows.dag import build
from rnnsearch.flows.recipe import Outputs
from rnnsearch.flows.settings import PROFILES, PlacementConfig, load_settings
from rnnsearch.flows.shapes import Stage
from rnnsearch.storage.runs import StageUse
from rnnsearch.storage.store import Store

if TYPE_CHECKING:  # Ray and Prefect are slow to import, and most tests here need neither
    from rnnsearch.flows.cluster import Cluster
    from rnnsearch.flows.stage import Session

PROGRAM = Path(sys.executable).with_name("rnnsearch")

Command = Callable[..., subprocess.CompletedProcess[str]]


class Ran(NamedTuple):
    """What became of stages that were run one after another."""

    outputs: Mapping[str, Outputs]
    uses: Mapping[str, StageUse]

    @property
    def computed(self) -> set[str]:
        """The stages that were no hits."""
        return {name for name, use in self.uses.items() if not use.hit}

    def shards(self, stage: str) -> tuple[int | None, int | None]:
        """How many shards of a stage were computed, and of how many."""
        return self.uses[stage].shards_computed, self.uses[stage].shards_total


class Lab:
    """Runs stages in this process, on the tests' Ray, without Prefect."""

    def session(self, store: Store, cluster: "Cluster | None" = None) -> "Session":
        """A run of its own."""
        from rnnsearch.flows.cluster import Cluster
        from rnnsearch.flows.stage import Session

        run = store.runs.start({"profile": "test"})
        return Session(
            store=store,
            run=run.id,
            cluster=cluster or Cluster(),
            placement=PlacementConfig(),
            console=RunConsole(io.StringIO()),
        )

    def run(
        self,
        store: Store,
        *overrides: str,
        profile: str = "smoke",
        session: "Session | None" = None,
        until: str = "order/20",
    ) -> Ran:
        """Run the stages of a profile up to one of them, each with what those before it made."""
        from rnnsearch.flows.stage import run_stage

        session = session or self.session(store)
        outputs: dict[str, Outputs] = {}
        for stage in self.stages(*overrides, profile=profile, until=until):
            outputs[stage.name], _ = run_stage(stage, session, outputs)
        uses = {use.stage: use for use in store.runs.get(session.run).uses}
        return Ran(outputs, uses)

    def stages(self, *overrides: str, profile: str = "smoke", until: str = "order/20") -> Sequence[Stage]:
        """The stages of a profile up to one of them."""
        stages = build(load_settings(profile, overrides))
        names = [stage.name for stage in stages]
        return stages[: names.index(until) + 1]


@pytest.fixture(scope="session")
def lab(ray_cluster: None) -> Lab:
    return Lab()


@pytest.fixture(scope="session")
def made(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """A store in which the data stages of the smoke profile have run; not to be changed."""
    folder = tmp_path_factory.mktemp("made") / "store"
    return folder, lab.run(Store.open(folder))


@pytest.fixture
def store(made: tuple[Path, Ran], tmp_path: Path) -> Store:
    """A copy of that store."""
    return Store.open(shutil.copytree(made[0], tmp_path / "store"))


@pytest.fixture
def own_profile(tmp_path: Path) -> Path:
    """The smoke profile with its texts, in a folder of its own: they may be changed."""
    folder = tmp_path / "profile"
    folder.mkdir()
    for path in PROFILES.glob("smoke*"):
        shutil.copy(path, folder)
    return folder / "smoke.toml"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Site]]:
    """Start servers on loopback; proxies of the machine must not stand between."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", os.devnull)
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(**behaviour: object) -> Site:
        site = Site(**behaviour)  # type: ignore[arg-type]
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler(site))
        server.daemon_threads = True
        site.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        servers.append((server, thread))
        return site

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="session")
def rnnsearch() -> Command:
    """The command line, in a process of its own."""

    def call(
        *arguments: str | Path,
        timeout: float = 600,
        given: str | bytes = "",
        cwd: Path | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(PROGRAM), *map(str, arguments)],
            input=given.encode() if isinstance(given, str) else given,
            capture_output=True,
            timeout=timeout,
            cwd=cwd,
            env=_clean_environment() | environment,
            check=False,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return call


def _clean_environment() -> dict[str, str]:
    """This process's, without what says where Prefect, Ray and the store are."""
    where = re.compile(r"PREFECT_|RNNSEARCH_|RAY_A")  # RAY_ADDRESS, RAY_AUTH…
    return {name: value for name, value in os.environ.items() if not where.match(name)}


@pytest.fixture(scope="session")
def clean_environment() -> Mapping[str, str]:
    """For processes that know of no Prefect, no Ray and no store elsewhere."""
    return _clean_environment()


class Smoke(NamedTuple):
    """A run of the smoke profile that finished, and its store."""

    done: subprocess.CompletedProcess[str]
    store: Path


@pytest.fixture(scope="session")
def smoke(rnnsearch: Command, tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    store = tmp_path_factory.mktemp("smoke") / "store"
    return Smoke(rnnsearch("run", "--profile", "smoke", "--store", store, timeout=1700), store)


class PrefectServer(NamedTuple):
    """A server of its own."""

    url: str  # of its API
    environment: Mapping[str, str]  # what leads a client to it


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """A real Prefect server on a free port of the loopback."""
    folder = tmp_path_factory.mktemp("prefect")
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    environment = {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)],
            env=_clean_environment() | environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait_for(f"{url}/health", server, folder / "server.log")
            yield PrefectServer(url, {**environment, "PREFECT_API_URL": url})
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def free_port() -> int:
    """A port of the loopback that nobody listens at now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.25)
    raise RuntimeError(f"no Prefect server came up:\n{log.read_text(encoding='utf-8')[-4000:]}")
