"""Deployments on a real Prefect server."""

from typing import TYPE_CHECKING

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

if TYPE_CHECKING:
    from conftest import Command, PrefectServer

pytestmark = [pytest.mark.flow, pytest.mark.slow]


def test_a_profile_becomes_a_scheduled_deployment_that_names_the_flow_by_its_module(
    rnnsearch: "Command", prefect_server: "PrefectServer"
) -> None:
    done = rnnsearch(
        "deploy", "-p", "smoke", "--cron", "0 2 * * *", "--timezone", "Europe/Paris", "--set", "search.beam=2",
        "--store", "/somewhere/shared", "--name", "nightly", **prefect_server.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "reproduce/nightly\n"
    assert "prefect worker start --pool rnnsearch" in done.stderr
    with (
        temporary_settings({PREFECT_API_URL: prefect_server.url}),
        get_client(sync_client=True) as client,
    ):
        found = client.read_deployment_by_name("reproduce/nightly")
        pool = client.read_work_pool("rnnsearch")
    assert found.entrypoint == "rnnsearch.flows.reproduce.reproduce"
    assert found.parameters == {
        "profile": "smoke",
        "overrides": ["search.beam=2"],
        "store": "/somewhere/shared",
    }
    (schedule,) = found.schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 2 * * *", "Europe/Paris")
    assert pool.type == "process"


def test_a_bad_schedule_is_refused(rnnsearch: "Command", prefect_server: "PrefectServer") -> None:
    done = rnnsearch("deploy", "-p", "smoke", "--cron", "every night", **prefect_server.environment)
    assert done.returncode == 2
    assert "every night" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_does_not_answer_is_one_message(rnnsearch: "Command") -> None:
    done = rnnsearch("deploy", "-p", "smoke", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert done.returncode == 2
    assert "no Prefect server answers at http://127.0.0.1:9/api" in done.stderr
    assert "Traceback" not in done.stderr
