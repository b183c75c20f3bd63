"""What `doctor` finds on this machine and at a Prefect server; the cluster's part is in `test_cluster`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rnnsearch.flows import command_doctor
from rnnsearch.flows.command_doctor import Finding, examine
from rnnsearch.model.kernels import bfloat16
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Command, PrefectServer


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)


def found(location: Path | str) -> dict[str, Finding]:
    return {each.subject: each for each in examine(str(location))}


def test_a_machine_without_store_and_servers_is_fit_and_nothing_is_made(tmp_path: Path) -> None:
    seen = found(tmp_path / "new" / "store")
    assert "bad" not in {each.verdict for each in seen.values()}
    assert seen["store"].found == f"none yet; a run makes {tmp_path / 'new' / 'store'}"
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_written_to_and_left_as_it_was(tmp_path: Path) -> None:
    Store.open(tmp_path / "store")
    before = sorted(tmp_path.rglob("*"))
    seen = found(tmp_path / "store")
    assert seen["store"] == Finding("store", "good", f"{tmp_path / 'store'} can be read and written")
    assert "GB free" in seen["disk"].found
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert (found(tmp_path / "file")["store"].verdict, found("/proc/store")["store"].verdict) == (
        "bad",
        "bad",
    )
    assert "is a file; a store is a folder" in found(tmp_path / "file")["store"].found
    assert "holds file and has no" in found(tmp_path)["store"].found


def test_little_room_is_noted_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path)
    monkeypatch.setattr(command_doctor, "_ROOM", 10**20)
    seen = found(tmp_path)["disk"]
    assert seen.verdict == "note"
    assert "rnnsearch gc" in seen.remedy


def test_a_machine_without_a_compiler_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    seen = found(tmp_path / "store")["kernels"]
    assert seen.verdict == "note"
    assert "install g++ or set CXX to one" in seen.found


@pytest.mark.parametrize(
    ("how", "verdict", "said"),
    [
        ("native", "good", "the CPU multiplies it"),
        ("rounded", "good", "float32 ones of rounded operands"),
        ("fast", "bad", "native or rounded"),
    ],
)
def test_how_bfloat16_is_multiplied_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, verdict: str, said: str
) -> None:
    monkeypatch.setenv(bfloat16.VARIABLE, how)
    bfloat16._on_cpu.cache_clear()
    seen = found(tmp_path / "store")["bfloat16"]
    bfloat16._on_cpu.cache_clear()
    assert (seen.verdict, said in seen.found) == (verdict, True)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/api", "nonsense", "http://[/api"])
def test_a_prefect_server_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", url)
    seen = found(tmp_path / "store")["Prefect"]
    assert seen.verdict == "bad"
    assert seen.found.startswith(f"no Prefect server answers at {url} (")
    assert "unset PREFECT_API_URL" in seen.remedy


@pytest.mark.flow
@pytest.mark.slow
def test_a_prefect_server_is_asked_for_its_version(
    rnnsearch: "Command", prefect_server: "PrefectServer", tmp_path: Path
) -> None:
    done = rnnsearch("doctor", "--json", "--store", tmp_path / "store", **prefect_server.environment)
    seen = {each["subject"]: each for each in json.loads(done.stdout)}
    assert (done.returncode, seen["Prefect"]["verdict"]) == (0, "good")
    assert seen["Prefect"]["found"].startswith(f"{prefect_server.url}, version 3.")
    plain = rnnsearch("doctor", "--store", tmp_path / "file", PREFECT_API_URL="http://127.0.0.1:1/api")
    assert plain.returncode == 1
    assert "no Prefect server answers" in plain.stdout
