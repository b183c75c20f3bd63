"""How many CPUs a process may use, on machines of every kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rnnsearch.flows.cpus import Cpus, usable_cpus
from rnnsearch.flows.settings import PlacementConfig

MACHINE = 64


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: MACHINE)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(MACHINE)), raising=False)


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


CGROUP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("texts", "usable"),
    [
        pytest.param({}, MACHINE, id="no control groups"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "max 100000\n"}, MACHINE, id="no quota"
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "400000 100000\n"}, 4, id="container, v2"
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/job/step\n", f"{CGROUP}/job/cpu.max": "300000 100000\n"},
            3,
            id="a group around, v2",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/job/step\n",
                f"{CGROUP}/job/cpu.max": "300000 100000\n",
                f"{CGROUP}/job/step/cpu.max": "800000 100000\n",
            },
            3,
            id="the least of nested ones",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "150000 100000\n"}, 1, id="one and a half"
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "50000 100000\n"}, 1, id="half a CPU is one"
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/docker/af\n",
                f"{CGROUP}/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
                f"{CGROUP}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            2,
            id="container, v1",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:cpu:/slurm/job\n0::/\n",
                f"{CGROUP}/cpu/slurm/job/cpu.cfs_quota_us": "700000\n",
                f"{CGROUP}/cpu/slurm/job/cpu.cfs_period_us": "100000\n",
            },
            7,
            id="job, v1",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:cpu:/\n",
                f"{CGROUP}/cpu/cpu.cfs_quota_us": "-1\n",
                f"{CGROUP}/cpu/cpu.cfs_period_us": "100000\n",
            },
            MACHINE,
            id="no quota, v1",
        ),
        pytest.param({"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "?\n"}, MACHINE, id="unreadable"),
    ],
)
def test_the_quota_of_every_control_group_around_a_process_counts(
    tmp_path: Path, texts: dict[str, str], usable: int
) -> None:
    found = usable_cpus(files(tmp_path, texts), {})
    assert found == Cpus(usable, "a control group's quota" if usable < MACHINE else "")


@pytest.mark.parametrize(
    ("said", "expected"),
    [("6", Cpus(6, "SLURM_CPUS_PER_TASK")), ("", Cpus(MACHINE, "")), ("many", Cpus(MACHINE, ""))],
)
def test_what_slurm_gives_to_a_task_counts(tmp_path: Path, said: str, expected: Cpus) -> None:
    assert usable_cpus(tmp_path, {"SLURM_CPUS_PER_TASK": said}) == expected


def test_the_least_of_all_limits_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, {"proc/self/cgroup": "0::/\n", f"{CGROUP}/cpu.max": "400000 100000\n"})
    assert usable_cpus(tmp_path, {"SLURM_CPUS_PER_TASK": "8"}).usable == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    assert usable_cpus(tmp_path, {"SLURM_CPUS_PER_TASK": "8"}) == Cpus(1, "CPU affinity")


def test_workers_of_a_training_share_the_cpus_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    assert PlacementConfig(train_workers=1).threads() == 1
    assert PlacementConfig(threads_per_worker=3).threads() == 3


@pytest.mark.skipif(sys.platform != "linux", reason="CPU affinity is Linux's")
def test_a_process_that_is_bound_to_one_cpu_uses_one() -> None:
    code = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
        "from rnnsearch.flows.settings import PlacementConfig; print(PlacementConfig().threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
