"""Places for results are checked before work begins, and hold something whole or nothing."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rnnsearch.flows import places
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.places import check_file, check_folder, check_new_folder, new_folder
from rnnsearch.storage.store import Store

KILLED = """
import os, signal, sys
from pathlib import Path
from rnnsearch.flows.places import new_folder
from rnnsearch.storage.store import Store
store = Store.open(Path(sys.argv[1]) / "store")
with new_folder(Path(sys.argv[1]) / "user" / "m", store.backend) as building:
    (building / "half").write_text("half", encoding="utf-8")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_appears_whole_and_only_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "a/b/m"
    backend = Store.open(tmp_path / "store").backend
    with new_folder(folder, backend) as building:
        (building / "part").mkdir()
        (building / "part/file").write_text("whole", encoding="utf-8")
        assert not (tmp_path / "a").exists()
    assert (folder / "part/file").read_text(encoding="utf-8") == "whole"
    assert list((backend.cache / "tmp").iterdir()) == []


def test_a_process_that_is_killed_leaves_nothing_beside_the_folder_and_its_rest_is_removed(
    tmp_path: Path,
) -> None:
    (tmp_path / "user").mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list((tmp_path / "user").iterdir()) == []
    (cache,) = (tmp_path / "store/local").iterdir()
    assert len(list((cache / "tmp").iterdir())) == 1
    Store.open(tmp_path / "store")  # as the next command does
    assert list((cache / "tmp").iterdir()) == []


def test_on_another_disk_the_folder_is_copied_whole_and_a_half_copy_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = tmp_path / "user"
    dead = subprocess.run(
        [
            sys.executable,
            "-c",
            "from rnnsearch.storage.processes import *; print(current_process().token())",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (user / f"{places._UNFINISHED}{dead}").mkdir(parents=True)
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if target.is_relative_to(user) and path.parent != target.parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with new_folder(user / "m", Store.open(tmp_path / "store").backend) as building:
        (building / "file").write_text("whole", encoding="utf-8")
    assert [path.name for path in user.iterdir()] == ["m"]
    assert (user / "m/file").read_text(encoding="utf-8") == "whole"


@pytest.mark.parametrize("place", ["there", "file", "file/below", "/proc/self/below", "null\0byte"])
def test_a_folder_that_cannot_be_made_is_refused_before_work_begins(tmp_path: Path, place: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"is there already|cannot be written|cannot be used"):
        check_new_folder(tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("place", ["there", "absent/a.html", "file/a.html", "/proc/self/a.html"])
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"is a folder|cannot be written"):
        check_file(tmp_path / place)


def test_what_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("old", encoding="utf-8")
    check_file(tmp_path / "a.html")
    check_file(tmp_path / "b.html")
    check_folder(tmp_path)
    check_folder(tmp_path / "new/folder")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == "old"
