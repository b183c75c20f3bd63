"""Deployments on a real Prefect server, and a worker that runs one."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.settings import PREFECT_API_URL, temporary_settings

from rnnsearch.flows.deploy import deploy_profile
from rnnsearch.flows.errors import UsageError
from rnnsearch.storage.store import Store

if TYPE_CHECKING:
    from conftest import Command, PrefectServer, Smoke

pytestmark = [pytest.mark.flow, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def work(
    prefect_server: "PrefectServer", clean_environment: Mapping[str, str], tmp_path: Path
) -> Callable[[str], None]:
    """A worker that takes what its pool has to do, once."""

    def work(pool: str) -> None:
        arguments = ["worker", "start", "--pool", pool, "--run-once", "--install-policy", "never"]
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments],
            env={**clean_environment, **prefect_server.environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return work


@pytest.fixture
def client(prefect_server: "PrefectServer") -> Iterator[SyncPrefectClient]:
    with (
        temporary_settings({PREFECT_API_URL: prefect_server.url}),
        get_client(sync_client=True) as client,
    ):
        yield client


def test_a_profile_becomes_a_scheduled_deployment_and_is_replaced_when_it_is_deployed_again(
    rnnsearch: "Command", prefect_server: "PrefectServer", client: SyncPrefectClient, tmp_path: Path
) -> None:
    done = rnnsearch(
        "deploy", "-p", "smoke", "--cron", "0 2 * * *", "--timezone", "Europe/Paris", "--set", "search.beam=2",
        "--store", "/somewhere/shared", "--name", "nightly", **prefect_server.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "reproduce/nightly\n"
    assert "prefect worker start --pool rnnsearch" in done.stderr
    found = client.read_deployment_by_name("reproduce/nightly")
    assert found.entrypoint == "rnnsearch.flows.reproduce.reproduce", "a module's, not a path"
    assert found.parameters == {
        "profile": "smoke",
        "overrides": ["search.beam=2"],
        "store": "/somewhere/shared",
    }
    (schedule,) = found.schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 2 * * *", "Europe/Paris")
    assert client.read_work_pool("rnnsearch").type == "process"

    again = ("deploy", "-p", "smoke", "--cron", "30 4 * * 1", "--name", "nightly", "--pool", "nights")
    done = rnnsearch(*again, cwd=tmp_path, **prefect_server.environment)
    assert done.returncode == 0, done.stderr
    found = client.read_deployment_by_name("reproduce/nightly")
    assert [each.schedule.cron for each in found.schedules] == ["30 4 * * 1"]
    assert found.parameters["overrides"] == []
    assert found.parameters["store"] == str(tmp_path / ".rnnsearch"), "a worker has another working folder"
    assert found.work_pool_name == "nights"


def test_a_profile_of_ones_own_is_deployed_by_its_whole_path_and_under_its_name(
    rnnsearch: "Command", prefect_server: "PrefectServer", client: SyncPrefectClient, own_profile: Path
) -> None:
    path = own_profile.rename(own_profile.with_name("mine.toml"))
    done = rnnsearch("deploy", "-p", "mine.toml", cwd=path.parent, **prefect_server.environment)
    assert done.stdout == "reproduce/mine\n", done.stderr
    found = client.read_deployment_by_name("reproduce/mine")
    assert found.parameters["profile"] == str(path)
    assert found.schedules == []


def test_a_worker_runs_a_deployment_and_its_stages_show_as_cached(
    rnnsearch: "Command",
    prefect_server: "PrefectServer",
    client: SyncPrefectClient,
    smoke: "Smoke",
    work: Callable[[str], None],
) -> None:
    assert smoke.done.returncode == 0, smoke.done.stderr
    deploy = ("deploy", "-p", "smoke", "--store", smoke.store, "--name", "once", "--pool", "once")
    assert rnnsearch(*deploy, **prefect_server.environment).returncode == 0
    deployment = client.read_deployment_by_name("reproduce/once")
    asked = client.create_flow_run_from_deployment(deployment.id)
    work("once")
    run = client.read_flow_run(asked.id)
    assert run.state is not None
    assert run.state.is_completed(), run.state
    tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[asked.id])))
    stages = Store.open(smoke.store).ledger.stages()
    assert {task.name: task.state_name for task in tasks} == dict.fromkeys(stages, "Cached")
    recorded = Store.open(smoke.store).runs.list()[-1]
    assert recorded.state == "finished"
    assert all(use.hit for use in recorded.uses)


@pytest.mark.parametrize(
    ("cron", "timezone", "said"),
    [
        ("61 2 * * *", "UTC", r"the schedule '.*' \(UTC\) is not one"),
        ("0 2 * *", "UTC", r"the schedule '.*' \(UTC\) is not one"),
        ("", "UTC", r"the schedule '.*' \(UTC\) is not one"),
        ("0 2 * * *", "Mars/Olympus", "'Mars/Olympus' is not a time zone, such as Europe/Paris"),
    ],
)
def test_a_schedule_or_a_time_zone_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, cron: str, timezone: str, said: str
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(UsageError, match=said):
        deploy_profile("smoke", [], "store", cron=cron or " ", timezone=timezone, name=None, pool="nights")


def test_without_a_server_it_is_said_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(UsageError, match=r"`prefect server start` and set PREFECT_API_URL to its address"):
        deploy_profile("smoke", [], "store", cron=None, timezone="UTC", name=None, pool="nights")


def test_a_profile_that_cannot_be_used_is_refused_before_a_server_is_asked(rnnsearch: "Command") -> None:
    done = rnnsearch(
        "deploy", "-p", "smoke", "--set", "search.beem=1", PREFECT_API_URL="http://127.0.0.1:9/api"
    )
    assert done.returncode == 2
    assert "did you mean 'beam'" in done.stderr


def test_a_server_that_does_not_answer_is_one_message(rnnsearch: "Command") -> None:
    done = rnnsearch("deploy", "-p", "smoke", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert done.returncode == 2
    assert "no Prefect server answers at http://127.0.0.1:9/api" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_deployment_file_of_the_recipes_names_the_same_flow() -> None:
    text = (Path(__file__).parents[2] / "infra" / "prefect.yaml").read_text()
    (entrypoint,) = set(re.findall(r"entrypoint: *(\S+)", text))
    assert entrypoint == "rnnsearch.flows.reproduce.reproduce"
