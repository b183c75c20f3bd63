"""A folder for temporary files that Ray cannot use is told of before anything starts."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ray._private.utils import validate_socket_filepath

from rnnsearch.flows import temporary
from rnnsearch.flows.command_doctor import examine
from rnnsearch.flows.temporary import temporary_fault

if TYPE_CHECKING:
    from conftest import Command


def long_folder(base: Path, length: int = 120) -> Path:
    folder = base / ("x" * (length - len(str(base)) - 1))
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_a_path_that_is_too_long_for_a_socket_names_the_variable(tmp_path: Path, name: str) -> None:
    folder = long_folder(tmp_path)
    fault = temporary_fault({name: str(folder)})
    assert fault is not None
    assert fault.startswith(f"{name} is {folder}: ")
    assert f"set {name} to a folder of yours with a short path" in fault
    assert "188 bytes, and Unix allows 107" in fault


def test_the_bound_is_the_one_that_ray_checks() -> None:
    room = 107 - len(temporary._SOCKET)
    for length in (room, room + 1):
        folder = "/" + "é" * ((length - 1) // 2) + "x" * ((length - 1) % 2)
        try:
            validate_socket_filepath(folder + temporary._SOCKET)
            fits = True
        except OSError:
            fits = False
        fault = temporary_fault({"TMPDIR": folder})
        assert fits == (fault is None or "bytes" not in fault) == (length == room)


def test_ray_s_own_variable_goes_before_the_system_s(tmp_path: Path) -> None:
    assert temporary_fault({"TMPDIR": str(long_folder(tmp_path)), "RAY_TMPDIR": "/tmp"}) is None
    assert temporary_fault({}) is None


def test_a_place_that_cannot_be_written_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert "this user cannot write to /" in str(temporary_fault({"TMPDIR": "/sealed"}))


def test_doctor_looks_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("TMPDIR", str(long_folder(tmp_path)))
    seen = {each.subject: each for each in examine(str(tmp_path / "store"))}["temporary"]
    assert seen.verdict == "bad"
    assert seen.remedy.startswith("set TMPDIR to")


def test_a_run_ends_in_one_message_before_anything_starts(rnnsearch: "Command", tmp_path: Path) -> None:
    done = rnnsearch(
        *("run", "--profile", "smoke", "--store", tmp_path / "store"), TMPDIR=str(long_folder(tmp_path))
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rnnsearch: TMPDIR is ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "store").exists()
