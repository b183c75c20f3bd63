"""The recipes for clusters as they run: the commands of Slurm and Ray are stand-ins that note how they were called."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from rnnsearch.storage.store import Store

ROOT = Path(__file__).parents[2]
SBATCH = ROOT / "infra" / "slurm.sbatch"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

# A step runs on this machine, and what stays alive on a node ends with the job.
FAKES = {
    "srun": 'echo "srun $*" >>"$CALLS"; while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "scontrol": 'echo "scontrol $*" >>"$CALLS"; if [[ $1 == show ]]; then printf "node1\\nnode2\\nnode3\\n"; fi',
    "hostname": "echo 10.0.0.1 fe80::1",
    "ray": """echo "ray $* cpus=$SRUN_CPUS_PER_TASK tmp=$RAY_TMPDIR token=${#RAY_AUTH_TOKEN}" >>"$CALLS"
case $1 in
  start) exec sleep 600 ;;
  status) printf "Active:\\n 1 node_a\\n 1 node_b\\n 1 node_c\\nRecent failures:\\n (no failures)\\n" ;;
esac""",
    # The store is fresh: real code opens it and stores a blob, as a run does.
    "rnnsearch": f"""echo "rnnsearch $* address=$RAY_ADDRESS" >>"$CALLS"
test ! -e "$RNNSEARCH_STORE" || {{ echo "the store is there before a run makes it"; exit 9; }}
{sys.executable} -c 'import os; from rnnsearch.storage.store import Store
Store.open(os.environ["RNNSEARCH_STORE"]).put_bytes(b"blob")'
if [[ -n $LONG ]]; then
  trap 'echo checkpoint >>"$CALLS"; exit 143' TERM
  echo training >>"$CALLS"
  for _ in $(seq 600); do sleep 0.1; done
fi""",
}


@pytest.fixture
def job(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a job of three nodes in a fresh folder."""
    commands = tmp_path / "venv" / "bin"
    commands.mkdir(parents=True)
    for name, code in FAKES.items():
        path = commands / name
        path.write_text(f"#!/usr/bin/env bash\n{code}\n", encoding="utf-8")
        path.chmod(0o755)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(tmp_path),
        "VENV": str(tmp_path / "venv"),
        "CALLS": str(tmp_path / "calls"),
        "LONG": "",
        "PROFILE": "demo",
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_CPUS_PER_TASK": "16",
        "SLURM_SUBMIT_DIR": str(tmp_path),
    }


def calls(job: Mapping[str, str]) -> list[str]:
    return Path(job["CALLS"]).read_text(encoding="utf-8").splitlines()


def test_a_job_starts_a_node_on_every_machine_and_the_driver_on_a_fresh_store(
    job: Mapping[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(["bash", SBATCH], env=job, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    told = calls(job)
    (head, others) = [call for call in told if call.startswith("ray start")]
    if "--head" not in head:
        head, others = others, head
    assert "--node-ip-address=10.0.0.1 --port=24711 --num-cpus=16" in head
    assert "--address=10.0.0.1:24711" in others
    assert "cpus=16 tmp=/tmp token=44" in head
    assert any("--nodes=2 --ntasks=2 --overlap --exclude=node1" in call for call in told)
    assert "rnnsearch run --profile demo address=10.0.0.1:24711" in told
    assert not any(call.startswith("scontrol requeue") for call in told)
    store = Store.open(tmp_path / ".rnnsearch", create=False)
    modes = [path.stat().st_mode for path in Path(store.location).rglob("*")]
    assert modes
    assert all(mode & stat.S_IROTH for mode in modes), "colleagues may read it"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".rnnsearch", "calls", "venv"], "no token"


def test_before_the_time_limit_a_training_is_stopped_and_the_job_is_queued_again(
    job: Mapping[str, str],
) -> None:
    with subprocess.Popen(
        ["bash", SBATCH], env={**job, "LONG": "yes"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if Path(job["CALLS"]).exists() and "training" in calls(job):
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)  # as `--signal=B:TERM@120` has it
        assert process.stdout is not None
        said = process.stdout.read().decode()
        code = process.wait(60)
    assert code == 143, said
    assert calls(job)[-2:] == ["checkpoint", "scontrol requeue 4711"]


def test_a_run_that_fails_ends_the_job_with_its_code(job: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / ".rnnsearch").mkdir()
    done = subprocess.run(["bash", SBATCH], env=job, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 9
    assert not any(call.startswith("scontrol requeue") for call in calls(job))


def test_a_job_asks_for_a_signal_and_to_be_queued_again() -> None:
    options = [line for line in SBATCH.read_text(encoding="utf-8").splitlines() if line.startswith("#SBATCH")]
    assert "#SBATCH --requeue" in options
    assert "#SBATCH --signal=B:TERM@120" in options
    assert "#SBATCH --open-mode=append" in options, "the log of the first part is kept"


def test_compose_starts_ray_and_serves_prefect_s_work_on_the_head(
    job: Mapping[str, str], tmp_path: Path
) -> None:
    bin_ = Path(job["VENV"]) / "bin"
    (bin_ / "ray").write_text('#!/bin/sh\necho "ray $*" >>"$CALLS"\n', encoding="utf-8")
    (bin_ / "prefect").write_text('#!/bin/sh\necho "prefect $*" >>"$CALLS"\n', encoding="utf-8")
    (bin_ / "prefect").chmod(0o755)
    services = yaml.safe_load((ROOT / "infra/compose.yaml").read_text(encoding="utf-8"))["services"]
    environment = {**job, "PATH": f"{bin_}:{os.environ['PATH']}"}
    for name in ("head", "worker", "prefect"):
        subprocess.run(services[name]["command"], env=environment, check=True, timeout=60)
    assert [call.split(" --")[0] for call in calls(job)] == [
        "ray start",
        "prefect worker start",
        "ray start",
        "prefect server start",
    ]


def test_the_token_of_compose_is_made_by_the_command_in_its_head(tmp_path: Path) -> None:
    lines = (ROOT / "infra/compose.yaml").read_text(encoding="utf-8").splitlines()
    (command,) = [line.removeprefix("#").strip() for line in lines if "ray_token)" in line]
    (tmp_path / "infra").mkdir()
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    token = tmp_path / "infra/ray_token"
    assert len(token.read_text(encoding="utf-8").strip()) == 44
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
