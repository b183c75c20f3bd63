"""Ray: a cluster of our own and one at an address, with the same code; what cannot be used is said in seconds."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import rnnsearch
from rnnsearch.flows.cluster import Cluster, ClusterError, Installed, installed
from rnnsearch.pipeline.errors import TextError
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Command, Ran

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

TOKEN = "5ca1ab1e" * 8
PATIENCE = 400  # seconds for a driver, on a machine that is busy

Driver = Callable[..., dict[str, Any]]


class Head(NamedTuple):
    """A cluster that was started by itself."""

    address: str
    environment: Mapping[str, str]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return kept | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN} | more


@contextmanager
def _node(
    *arguments: str, python: Path | None = None, within: Sequence[str] = (), **environment: str
) -> Iterator[Path]:
    """A node of a Ray cluster in the foreground of a process, which `within` may start in surroundings of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    own = ["--num-cpus", "2", "--object-store-memory", str(80 * 1024**2), "--block", "--disable-usage-stats"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*within, str(python or sys.executable), "-m", "ray.scripts.scripts", "start", *arguments, *own],
            env=_environment(**environment),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield folder
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _head(python: Path | None = None, **environment: str) -> Iterator[Head]:
    """A cluster of one node, which answers."""
    port, client = _free_port(), _free_port()
    with ExitStack() as stack:
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp"))
        folder = stack.enter_context(
            _node(
                *("--head", "--port", str(port), "--ray-client-server-port", str(client)),
                *("--temp-dir", sockets, "--include-dashboard", "false"),
                python=python,
                **environment,
            )
        )
        deadline = time.monotonic() + PATIENCE
        while "Ray runtime started" not in (folder / "log").read_text():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.2)
        yield Head(f"127.0.0.1:{port}", _environment(RAY_ADDRESS=f"127.0.0.1:{port}"))


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with _head() as head:
        yield head


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """Runs the body of a function in a process of its own, which may connect to Ray; it fills `seen`."""

    def run(code: str, environment: Mapping[str, str]) -> dict[str, Any]:
        path = tmp_path / "seen.json"
        lines = [
            "import json, sys, time",
            "from pathlib import Path",
            "from rnnsearch.flows import cluster",
            "from rnnsearch.flows.cluster import Cluster, ClusterError",
            "seen = {}",
            textwrap.dedent(code),
            f"Path({str(path)!r}).write_text(json.dumps(seen))",
        ]
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(lines)],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(path.read_text()))

    return run


REFUSAL = """
began = time.monotonic()
try:
    Cluster().connect()
except ClusterError as error:
    seen["error"] = str(error)
seen["seconds"] = time.monotonic() - began
"""


def test_the_same_code_runs_on_the_cluster_that_ray_address_names(head: Head, driver: Driver) -> None:
    seen = driver(
        """
        import os, ray
        ours = Cluster()
        results = list(ours.map(lambda task: (task * 2, os.getppid()), list(range(40))))
        seen["address"], seen["nodes"] = ours.address, ours.nodes()
        seen["positions"] = sorted(position for position, _ in results)
        seen["right"] = all(result[0] == 2 * position for position, result in results)
        seen["here"] = any(result[1] == os.getpid() for _, result in results)
        seen["gcs"] = ray.get_runtime_context().gcs_address
        ours.close()
        seen["left"] = not ray.is_initialized()
        """,
        head.environment,
    )
    assert seen["address"] == head.address
    assert seen["gcs"].rpartition(":")[2] == head.address.rpartition(":")[2]
    assert (seen["nodes"], seen["positions"], seen["right"]) == (1, list(range(40)), True)
    assert seen["left"]
    assert not seen["here"]


def test_stages_make_the_same_digests_on_another_cluster(
    head: Head, driver: Driver, made: tuple[Path, "Ran"], tmp_path: Path
) -> None:
    seen = driver(
        f"""
        import io
        from rnnsearch.flows.console import RunConsole
        from rnnsearch.flows.dag import build
        from rnnsearch.flows.settings import PlacementConfig, load_settings
        from rnnsearch.flows.stage import Session, run_stage
        from rnnsearch.storage.store import Store
        store = Store.open({str(tmp_path / "store")!r})
        session = Session(store=store, run=store.runs.start({{}}).id, cluster=Cluster(),
                          placement=PlacementConfig(), console=RunConsole(io.StringIO()))
        for stage in build(load_settings("smoke")):
            seen[stage.name] = dict(run_stage(stage, session, seen)[0])
            if stage.name == "tokenize/dev":
                break
        seen["executor"] = store.ledger.history("gate")[-1].placement["executor"]
        session.cluster.close()
        """,
        head.environment,
    )
    assert seen.pop("executor") == head.address
    assert len(seen) > 10
    assert seen == {stage: made[1].outputs[stage] for stage in seen}


def test_a_worker_that_dies_is_replaced_and_its_task_done_again(
    head: Head, driver: Driver, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    seen = driver(
        f"""
        import os, signal
        def work(task):
            mark = Path({str(marks)!r}) / str(task)
            if task == 3 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return task
        seen["done"] = sorted(result for _, result in Cluster().map(work, list(range(6))))
        """,
        head.environment,
    )
    assert seen["done"] == list(range(6))
    assert (marks / "3").exists()


def test_an_error_of_the_function_is_raised_as_itself_and_the_cluster_goes_on(
    head: Head, driver: Driver
) -> None:
    seen = driver(
        """
        from rnnsearch.pipeline.errors import TextError
        def work(task):
            if task == 2:
                raise TextError(f"line {task} is crooked")
            return task
        ours = Cluster()
        try:
            list(ours.map(work, list(range(8))))
        except TextError as error:
            seen["error"], seen["type"] = str(error), type(error).__name__
        seen["after"] = ours.run(work, 5)
        """,
        head.environment,
    )
    assert seen == {"error": "line 2 is crooked", "type": "TextError", "after": 5}


def test_a_driver_with_another_token_is_told_so(head: Head, driver: Driver) -> None:
    impatient = f"cluster._CONNECT_SECONDS = 3.0\n{REFUSAL}"
    seen = driver(impatient, {**head.environment, "RAY_AUTH_TOKEN": "0" * 64})
    assert f"the Ray cluster at {head.address} cannot be joined" in seen["error"]
    assert "with the same RAY_AUTH_TOKEN" in seen["error"]


def test_a_node_with_other_code_under_the_same_version_is_found_beside_a_good_one(
    head: Head, driver: Driver, tmp_path: Path
) -> None:
    package = shutil.copytree(rnnsearch.__path__[0], tmp_path / "other" / "rnnsearch")
    with (package / "pipeline" / "clean.py").open("a") as file:
        file.write("\n# changed\n")
    wait = """
    import ray
    ray.init(address="auto", log_to_driver=False)
    deadline = time.monotonic() + 120
    while len([node for node in ray.nodes() if node["Alive"]]) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    ray.shutdown()
    """
    with _node("--address", head.address, PYTHONPATH=str(package.parent)):
        seen = driver(f"{textwrap.dedent(wait)}\n{REFUSAL}", head.environment)
    assert "has other code under the name of rnnsearch" in seen["error"]
    assert "install the same package" in seen["error"]


def test_workers_that_cannot_import_the_package_are_an_error_in_seconds_and_no_hang(
    driver: Driver, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    here = next(path for path in map(Path, sys.path) if (path / "ray").is_dir())
    (site / "others.pth").write_text(f"{here}\n")  # Ray and all others; links of links are not followed
    python = tmp_path / "venv" / "bin" / "python"
    can_import = [
        str(python),
        "-c",
        "import ray, importlib.metadata as m; m.version('rnnsearch'); import rnnsearch",
    ]
    lacking = subprocess.run(can_import, capture_output=True, text=True, check=False)
    assert "No module named 'rnnsearch'" in lacking.stderr, "it is there by its metadata only"
    with _head(python) as poor:
        seen = driver(REFUSAL, poor.environment)
    assert "cannot import rnnsearch" in seen["error"]
    assert "install the same package, with the same constraints, on every node" in seen["error"]
    assert seen["seconds"] < 60


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:6379", "nonsense"])
def test_no_cluster_at_the_address_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, address: str
) -> None:
    seen = driver(REFUSAL, _environment(RAY_ADDRESS=address))
    assert f"cluster answers at {address}" in seen["error"] or f"cluster at {address} cannot" in seen["error"]
    assert "unset RAY_ADDRESS to run here" in seen["error"]
    assert seen["seconds"] < 15


def test_something_else_that_listens_at_the_address_is_given_up_and_not_tried_again(driver: Driver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        seen = driver(
            """
            cluster._CONNECT_SECONDS = 3.0
            ours = Cluster()
            for attempt in ("first", "second"):
                began = time.monotonic()
                try:
                    ours.connect()
                except ClusterError as error:
                    seen[attempt] = str(error)
                seen[f"{attempt} seconds"] = time.monotonic() - began
            """,
            _environment(RAY_ADDRESS=address),
        )
    assert f"the Ray cluster at {address} cannot be joined" in seen["first"]
    assert "nothing that speaks Ray's protocol within 3 s" in seen["first"]
    assert seen["second"] == seen["first"]
    assert seen["second seconds"] < 1


MOUNTED = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')  # and a folder

JOINED = """
import ray
deadline = time.monotonic() + 120
ray.init(address="auto", log_to_driver=False)
while len([node for node in ray.nodes() if node["Alive"]]) < 2 and time.monotonic() < deadline:
    time.sleep(0.2)
ray.shutdown()
"""


def test_doctor_finds_the_nodes_that_do_not_see_the_store(
    rnnsearch: "Command", driver: Driver, tmp_path: Path
) -> None:
    """The second node has a folder of its own where the store is."""
    store = tmp_path / "store"
    Store.open(store)
    tried = subprocess.run([*MOUNTED, str(store), "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("this user may not mount")

    def findings(head: Head) -> dict[str, dict[str, str]]:
        done = rnnsearch("doctor", "--json", "--store", store, **head.environment)
        found = {each["subject"]: each for each in json.loads(done.stdout)}
        assert done.returncode == any(each["verdict"] == "bad" for each in found.values()), done.stderr
        return found

    with _head() as head:
        alone = findings(head)
        assert alone["Ray"]["found"] == f"{head.address}: 1 node with this package and the same versions"
        assert (alone["shared store"]["verdict"], alone["shared store"]["found"]) == (
            "good",
            "every node sees it",
        )
        with _node("--address", head.address, within=(*MOUNTED, str(store))):
            driver(JOINED, head.environment)
            blind = findings(head)
    assert blind["Ray"]["verdict"] == "good"
    assert blind["shared store"]["verdict"] == "bad"
    assert f"{store} is not what" in blind["shared store"]["found"]
    assert "mount the same folder on every node" in blind["shared store"]["remedy"]
    assert not list((store / "tmp").iterdir()), "what was written to look is removed"


# In this process, on the tests' own Ray.


def _positive(number: int) -> int:
    return abs(number)


@pytest.mark.usefixtures("ray_cluster")
def test_a_process_that_is_connected_keeps_its_connection_when_the_cluster_is_closed() -> None:
    import ray

    ours = Cluster()
    assert ours.run(_positive, -3) == 3
    ours.close()
    assert ray.is_initialized()
    assert Cluster().run(_positive, -4) == 4


@pytest.mark.usefixtures("ray_cluster")
def test_a_closed_cluster_is_not_opened_again() -> None:
    ours = Cluster()
    ours.close()
    with pytest.raises(ClusterError, match="the run is ending"):
        ours.run(_positive, -3)


@pytest.mark.usefixtures("ray_cluster")
def test_stages_side_by_side_share_one_connection() -> None:
    ours, results = Cluster(), dict[int, int]()

    def stage(number: int) -> None:
        results[number] = ours.run(_positive, -number)

    threads = [threading.Thread(target=stage, args=(number,)) for number in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: number for number in range(1, 6)}


@pytest.mark.usefixtures("ray_cluster")
def test_tasks_are_handed_out_a_few_at_a_time_and_what_is_waiting_is_dropped_at_an_error() -> None:
    import ray

    marks = _Marks.remote()

    def work(task: int) -> int:
        ray.get(marks.note.remote(task))
        if task == 0:
            raise TextError("at the first")
        return task

    with pytest.raises(TextError, match="at the first"):
        list(Cluster().map(work, range(1_000)))
    assert len(ray.get(marks.all.remote())) < 100


def _actor() -> Any:
    import ray

    class Marks:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def note(self, task: int) -> None:
            self.seen.append(task)

        def all(self) -> list[int]:
            return self.seen

    return ray.remote(num_cpus=0)(Marks)


_Marks = _actor()


def test_what_is_installed_names_python_versions_and_the_bytes_of_the_code() -> None:
    found = installed()
    assert found.python == "{}.{}".format(*sys.version_info)
    assert {"pyarrow", "numpy", "torch", "sacremoses", "ray"} <= set(found.libraries)
    assert not {"pytest", "ruff"} & set(found.libraries), "what only developers need may differ"
    assert found == Installed(*found) == installed()
    assert len(found.code) == 64
