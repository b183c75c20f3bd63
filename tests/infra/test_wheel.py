"""The wheel, built through the sdist as CI and users build it, holds what the folders hold.

Each trap of the links (architecture 3) ends with status 0 and a wheel that lacks something.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ISLANDS = ("flows", "pipeline", "model", "storage")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out


@pytest.fixture(scope="module")
def members(built: Path) -> set[str]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def sources() -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for island in ISLANDS
        for path in (ROOT / island).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_file_of_the_four_folders_is_in_the_wheel(members: set[str]) -> None:
    assert {f"rnnsearch/{name}" for name in sources()} == {
        name for name in members if name.startswith(tuple(f"rnnsearch/{island}/" for island in ISLANDS))
    }


def test_files_that_are_not_python_are_in_the_wheel(members: set[str]) -> None:
    assert "rnnsearch/py.typed" in members
    assert {"rnnsearch/flows/profiles/smoke.toml", "rnnsearch/flows/profiles/smoke.en"} <= members
    assert [name for name in members if name.startswith("rnnsearch/flows/report/templates/")]


def test_the_wheel_installs_only_our_own_package(members: set[str]) -> None:
    tops = {name.split("/")[0] for name in members}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rnnsearch"}


def test_the_wheel_brings_the_command_and_the_licence(built: Path, members: set[str]) -> None:
    (wheel,) = built.glob("*.whl")
    (points,) = [name for name in members if name.endswith(".dist-info/entry_points.txt")]
    with zipfile.ZipFile(wheel) as archive:
        assert "rnnsearch = rnnsearch.flows.cli:main" in archive.read(points).decode()
    assert [name for name in members if name.endswith(".dist-info/licenses/LICENSE")]


def test_the_sdist_holds_the_tests(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert [name for name in names if name.endswith("/tests/infra/test_wheel.py")]
    assert not [name for name in names if ".venv" in name or "/.git/" in name]
