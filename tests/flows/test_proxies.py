"""Proxies: they never get what this machine says to itself."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rnnsearch.flows import command_doctor
from rnnsearch.flows.proxies import LOOPBACK, proxied, spare_loopback

if TYPE_CHECKING:
    from conftest import Command, PrefectServer

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"no_proxy": "a"}, {"no_proxy": "a"}),
        ({"http_proxy": NOBODY}, {"no_proxy": "localhost,127.0.0.1,::1"}),
        (
            {"HTTPS_PROXY": NOBODY, "NO_PROXY": "a.org, localhost"},
            {"NO_PROXY": "a.org,localhost,127.0.0.1,::1"},
        ),
        ({"all_proxy": NOBODY, "no_proxy": "*"}, {"no_proxy": "*"}),
        ({"http_proxy": NOBODY, "no_grpc_proxy": "b"}, {"no_grpc_proxy": "b,localhost,127.0.0.1,::1"}),
    ],
)
def test_loopback_is_added_to_the_exceptions_where_a_proxy_is_set(
    given: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    environment = dict(given)
    spare_loopback(environment)
    assert {name: environment[name] for name in expected} == expected
    assert {name: environment[name] for name in given if "no_" not in name.lower()} == {
        name: value for name, value in given.items() if "no_" not in name.lower()
    }
    assert not any(proxied(host, environment) for host in LOOPBACK)
    once = dict(environment)
    spare_loopback(environment)
    assert environment == once


def test_other_hosts_still_go_through_the_proxy() -> None:
    environment = {"http_proxy": NOBODY, "no_proxy": "inside.org"}
    spare_loopback(environment)
    assert [proxied(host, environment) for host in ("host.org", "inside.org")] == [True, False]


@pytest.mark.flow
@pytest.mark.slow
def test_the_command_line_reaches_a_server_on_loopback_past_a_proxy_that_is_not_there(
    prefect_server: "PrefectServer", clean_environment: Mapping[str, str], tmp_path: Path
) -> None:
    environment = {
        **clean_environment,
        **prefect_server.environment,
        "http_proxy": NOBODY,
        "HTTP_PROXY": NOBODY,
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("rnnsearch"), "doctor", "--store", tmp_path / "store"],
        env=environment, capture_output=True, encoding="utf-8", timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{prefect_server.url}, version" in done.stdout
    assert "never for loopback" in done.stdout


def test_doctor_tells_which_calls_a_proxy_gets_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert list(command_doctor._proxy()) == []
    monkeypatch.setenv("http_proxy", "http://me:hunter2@proxy.org:3128")
    (finding,) = command_doctor._proxy()
    assert (finding.verdict, "add localhost,127.0.0.1,::1" in finding.remedy) == ("bad", True)
    assert "hunter2" not in finding.found
    monkeypatch.setenv("no_proxy", ",".join(LOOPBACK))
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.org/api")
    (finding,) = command_doctor._proxy()
    assert finding.verdict == "note"
    assert "PREFECT_API_URL" in finding.found


def test_a_run_whose_prefect_server_cannot_be_reached_ends_in_one_message(
    rnnsearch: "Command", tmp_path: Path
) -> None:
    done = rnnsearch(
        "run", "--profile", "smoke", "--store", tmp_path / "store", PREFECT_API_URL=f"{NOBODY}/api"
    )
    assert done.returncode == 2
    assert f"no Prefect server answers at {NOBODY}/api" in done.stderr
    assert "Traceback" not in done.stderr


DYING_SERVER = """
import sys
import httpx
from rnnsearch.flows import cli, command_run

class Flow:
    def with_options(self, **options):
        def call(**parameters):
            raise httpx.ConnectError("Connection refused")
        return call

command_run.reproduce = Flow()
sys.argv = ["rnnsearch", "run", "--profile", "smoke", "--store", sys.argv[1]]
cli.main()
"""


def test_a_prefect_server_that_dies_during_a_run_is_told_in_one_message(
    clean_environment: Mapping[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(  # a process of its own: the guard of a run ends all that its process started
        [sys.executable, "-c", DYING_SERVER, str(tmp_path / "store")],
        env=dict(clean_environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert re.search(r"stopped answering during the run \(Connection refused\).*is kept", done.stderr), (
        done.stderr
    )
    assert "Traceback" not in done.stderr
