"""The number of CPUs this process may use, limited by affinity, control groups and Slurm."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class Cpus(NamedTuple):
    """A number of CPUs and the name of the limit; empty if all CPUs of the machine may be used."""

    usable: int
    limit: str


def usable_cpus(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Cpus:
    """The smallest of all limits, at least 1. `root` is the folder that contains `proc` and `sys`.

    A quota of one and a half CPUs counts as one: a thread more would only be throttled.
    """
    limits = [Cpus(os.cpu_count() or 1, "")]
    if sys.platform == "linux":
        limits.append(Cpus(len(os.sched_getaffinity(0)), "CPU affinity"))
        limits += [Cpus(max(1, int(quota)), "a control group's quota") for quota in _quotas(root)]
    with suppress(KeyError, ValueError):
        limits.append(Cpus(max(1, int(environment["SLURM_CPUS_PER_TASK"])), "SLURM_CPUS_PER_TASK"))
    return min(limits, key=lambda limit: limit.usable)


def _quotas(root: Path) -> Iterator[float]:
    """The CPU quota of every control group that this process is in, version 1 or 2, in CPUs."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for folder in (mount, mount / "unified"):
                yield from _of_all(folder, path, _quota_2)
        elif "cpu" in controllers.split(","):
            for folder in {mount / controllers, mount / "cpu"}:
                yield from _of_all(folder, path, _quota_1)


def _quota_1(group: Path) -> float | None:
    quota = int((group / "cpu.cfs_quota_us").read_text(encoding="utf-8"))
    return quota / int((group / "cpu.cfs_period_us").read_text(encoding="utf-8")) if quota > 0 else None


def _quota_2(group: Path) -> float | None:
    quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
    return None if quota == "max" else int(quota) / int(period)


def _of_all(mount: Path, path: str, quota: Callable[[Path], float | None]) -> Iterator[float]:
    """The quotas of a control group and its ancestors. In a container the mount itself may be the group."""
    group = PurePosixPath(path.lstrip("/"))
    for each in (group, *group.parents):
        with suppress(OSError, ValueError, ZeroDivisionError):
            found = quota(mount / each)
            if found is not None:
                yield found
