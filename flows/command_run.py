"""`rnnsearch run`: the flow, with a console in front and the noise of its servers in a file."""

import datetime
import logging
import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from prefect.task_runners import ThreadPoolTaskRunner

from rnnsearch.flows.command_inspect import report_folder
from rnnsearch.flows.console import RunConsole, quiet
from rnnsearch.flows.dag import build
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.guard import Terminated, guarded
from rnnsearch.flows.inputs import check_inputs
from rnnsearch.flows.notes import profile_notes
from rnnsearch.flows.plan import up_to
from rnnsearch.flows.prefect_server import require_prefect
from rnnsearch.flows.report.write import write_report
from rnnsearch.flows.reproduce import Reproduction, ReproductionError, reproduce
from rnnsearch.flows.settings import load_settings
from rnnsearch.flows.terminal import counted, emit
from rnnsearch.storage.store import Store


def run_profile(
    profile: str,
    overrides: Sequence[str],
    location: str,
    *,
    until: str | None = None,
    as_json: bool = False,
) -> int:
    """Run a profile, or up to a stage, say what is going on, and return the exit code: 0, or 1 where a stage failed."""
    settings = load_settings(profile, overrides)  # a mistake in it is said before anything starts
    check_inputs(settings)
    stages = build(settings) if until is None else up_to(build(settings), until)
    require_prefect()
    store = Store.open(location)
    log = store.backend.cache / "logs" / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}.log"
    began = time.monotonic()
    with quiet(log) as stream:
        console = RunConsole(stream, log=sys.stderr)  # that is the log now
        console.say(f"{settings.title}: {len(stages)} stages, store {store.location}")
        if settings.about:
            console.say(settings.about)
        for note in profile_notes(settings):
            console.say(f"note: {note}")
        again = _same_command(profile, overrides, location, until)
        last_words = (
            f"the run is gone; what it had finished is kept, and `{again}` goes on from there. Log: {log}"
        )
        runner: Any = ThreadPoolTaskRunner(max_workers=settings.placement.stages_at_once)
        try:
            with guarded(partial(console.say, important=True), last_words, stream):
                with console.watching():
                    console.say("starting Prefect …")
                    flow = reproduce.with_options(task_runner=runner)
                    try:
                        done = flow(
                            profile=profile,
                            overrides=list(overrides),
                            store=location,
                            console=console,
                            until=until,
                        )
                    except ReproductionError as error:
                        done = error.done
                    except httpx.TransportError as error:
                        raise UsageError(
                            f"the Prefect server stopped answering during the run ({error}); what was finished is "
                            f"kept: start the server again, or unset PREFECT_API_URL, then `{again}` goes on from "
                            f"here. Log: {log}"
                        ) from error
                store.close()  # the workers of a cluster of its own are gone by now
                _tell_end(console, done, log, time.monotonic() - began)
                if done.failed:
                    page = None
                else:
                    page = write_report(store, done.run, report_folder(store, done.run), figures=False)
        except (KeyboardInterrupt, Terminated) as signal:
            console.say(f"stopped; `{again}` goes on from here. Log: {log}")
            return 130 if isinstance(signal, KeyboardInterrupt) else 143
        finally:
            logging.getLogger("prefect").setLevel(logging.CRITICAL)  # its server says good-bye at exit
    if as_json:
        emit({**done._asdict(), "report": page, "log": log, "seconds": round(time.monotonic() - began, 3)})
    elif page is not None:
        sys.stdout.write(f"report: {page}\n")
    return 1 if done.failed else 0


def _same_command(profile: str, overrides: Sequence[str], location: str, until: str | None) -> str:
    changes = [word for override in overrides for word in ("--set", override)]
    changes += [] if until is None else ["--until", until]
    return shlex.join(["rnnsearch", "run", "--profile", profile, *changes, "--store", location])


def _tell_end(console: RunConsole, done: Reproduction, log: Path, seconds: float) -> None:
    minutes = f"{seconds / 60:.1f} minutes" if seconds > 120 else f"{seconds:.0f} s"
    console.say(
        f"run {done.run}: {counted(done.computed, 'stage')} computed, {done.cached} cached, in {minutes}"
    )
    console.say(f"log: {log}")
    for stage, reason in done.failed.items():
        console.say(f"{stage} failed: {reason}", important=True)
    if done.skipped:
        console.say(f"not run, since they depend on it: {', '.join(done.skipped)}", important=True)
    if done.failed:
        console.say("run the same command again to resume", important=True)
