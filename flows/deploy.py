"""`rnnsearch deploy`: a profile as a deployment of the flow, on a Prefect server, with a schedule."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.schedules import Cron, Schedule
from prefect.types.entrypoint import EntrypointType

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.reproduce import reproduce
from rnnsearch.flows.settings import find_profile, load_settings
from rnnsearch.flows.terminal import emit


def deploy_profile(
    profile: str,
    overrides: Sequence[str],
    store: str,
    *,
    cron: str | None,
    timezone: str,
    name: str | None,
    pool: str,
    as_json: bool = False,
) -> None:
    """Register the deployment `reproduce/NAME`; say how to serve it. Raises UsageError without a server."""
    load_settings(profile, overrides)
    _check_timezone(timezone)
    schedules = [] if cron is None else [_schedule(cron, timezone)]
    server = os.environ.get("PREFECT_API_URL")
    if not server:
        raise UsageError(
            "no Prefect server: a deployment lives on one. Start it with `prefect server start` and set "
            "PREFECT_API_URL to its address (http://127.0.0.1:4200/api)"
        )
    path = find_profile(profile)
    label = name or path.stem
    shipped = profile == path.stem
    deployment = RunnerDeployment.from_flow(
        reproduce,
        name=label,
        schedules=schedules,
        parameters={
            "profile": profile if shipped else str(path),
            "overrides": list(overrides),
            "store": store if "://" in store else str(Path(store).resolve()),
        },
        work_pool_name=pool,
        entrypoint_type=EntrypointType.MODULE_PATH,  # by path, Prefect would load a second copy of the module
        concurrency_limit=1,
        tags=["rnnsearch"],
        description=f"rnnsearch run --profile {profile}",
    )
    try:
        _make_pool(pool)
        deployment.apply()
    except (OSError, httpx.HTTPError) as error:
        raise UsageError(f"no Prefect server answers at {server} ({error})") from error
    sys.stderr.write(
        f"deployment reproduce/{label} is on {server}{f', schedule {cron} ({timezone})' if cron else ''}\n"
        f"serve it where the store is: prefect worker start --pool {pool}\n"
        f"run it now: prefect deployment run reproduce/{label}\n"
    )
    if as_json:
        emit({"deployment": f"reproduce/{label}", "server": server, "pool": pool})
    else:
        sys.stdout.write(f"reproduce/{label}\n")


def _schedule(cron: str, timezone: str) -> Schedule:
    try:
        return Cron(cron, timezone=timezone)
    except ValueError as error:
        raise UsageError(f"the schedule {cron!r} ({timezone}) is not one: {error}") from error


def _check_timezone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise UsageError(f"{name!r} is not a time zone, such as Europe/Paris: {error}") from error


def _make_pool(name: str) -> None:
    """Make sure that a work pool of processes is there."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=name, type="process"))
