"""`rnnsearch doctor`: what a run would find on this machine, its store and its servers, before it starts."""

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import httpx
import psutil
import torch
from rich.table import Table
from rich.text import Text

from rnnsearch.flows.cluster import Cluster, ClusterError
from rnnsearch.flows.cpus import usable_cpus
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.places import check_new_folder
from rnnsearch.flows.proxies import LOOPBACK, proxied, proxies
from rnnsearch.flows.sources.secrets import redacted
from rnnsearch.flows.temporary import temporary_fault
from rnnsearch.flows.terminal import counted, emit, output_console
from rnnsearch.model.kernels.bfloat16 import WITHOUT_PRODUCTS, KernelsError, products_on
from rnnsearch.model.kernels.build import BuildError
from rnnsearch.model.kernels.compiled import CompiledKernels
from rnnsearch.storage.errors import StoreError
from rnnsearch.storage.store import Store

_ROOM = 5 * 10**9  # bytes free, below which a demo's run may fail
_ANSWER_SECONDS = 5.0

Verdict = Literal["good", "note", "bad"]
"""`note`: a run works, but slower or not for long; `bad`: a run fails."""

_COLOURS = {"good": "green", "note": "yellow", "bad": "red"}


class Finding(NamedTuple):
    """One thing that was looked at."""

    subject: str
    verdict: Verdict
    found: str
    remedy: str = ""


def examine(location: str) -> Iterator[Finding]:
    """Look at everything that a run with this store would use."""
    yield _machine()
    yield _kernels()
    yield _bfloat16()
    yield _gpu()
    yield from _store(location)
    yield from _proxy()
    yield from _ray(location)
    yield _prefect()


def show_findings(location: str, as_json: bool) -> None:
    """Print each finding as it comes; exit code 1 if a run would fail."""
    findings = list(examine(location))
    if as_json:
        emit([each._asdict() for each in findings])
    else:
        table = Table("", "", "found", "what to do", box=None, pad_edge=False, header_style="bold")
        for each in findings:
            mark = Text(each.verdict, _COLOURS[each.verdict])
            table.add_row(each.subject, mark, *(Text(text, overflow="fold") for text in each[2:]))
        output_console().print(table)
    sys.exit(any(each.verdict == "bad" for each in findings))


def _machine() -> Finding:
    memory = psutil.virtual_memory().total / 2**30
    python = sys.version.partition(" ")[0]
    cpus = usable_cpus()
    limit = f" of {os.cpu_count()} may be used, by {cpus.limit}" if cpus.limit else ""
    return Finding(
        "machine",
        "good",
        f"Python {python}, {counted(cpus.usable, 'CPU')}{limit}, {memory:.0f} GiB of memory",
    )


def _temporary() -> Finding:
    if (fault := temporary_fault()) is not None:
        found, _, remedy = fault.rpartition("; ")
        return Finding("temporary", "bad", found, remedy)
    return Finding("temporary", "good", "Ray can work in the folder for temporary files")


def _kernels() -> Finding:
    try:
        CompiledKernels()
    except BuildError as error:
        return Finding("kernels", "note", f"plain ones, which are slower: {error}")
    except KernelsError as error:
        return Finding("kernels", "bad", str(error))
    return Finding("kernels", "good", "compiled for this processor")


def _bfloat16() -> Finding:
    try:
        native = products_on(torch.device("cpu")) == "native"
    except KernelsError as error:
        return Finding("bfloat16", "bad", str(error))
    return Finding("bfloat16", "good", "the CPU multiplies it" if native else WITHOUT_PRODUCTS)


def _gpu() -> Finding:
    if not torch.cuda.is_available():
        return Finding("GPU", "good", "none: trainings run on processors")
    return Finding("GPU", "good", torch.cuda.get_device_name())


def _store(location: str) -> Iterator[Finding]:
    try:
        store = Store.open(location, create=False)
    except StoreError as error:
        yield _future_store(location, error)
        return
    probe = f"tmp/doctor-{os.getpid()}"
    try:
        store.backend.put(probe, b"writable")
        store.backend.delete(probe)
    except StoreError as error:
        yield Finding("store", "bad", str(error))
        return
    yield Finding("store", "good", f"{store.location} can be read and written")
    if "://" not in store.location:
        yield _room(Path(store.location))


def _future_store(location: str, error: StoreError) -> Finding:
    """A run makes a store where there is none yet, but not where there is something else."""
    folder = Path(location).expanduser().absolute()
    if "://" in location or os.path.lexists(folder):
        return Finding("store", "bad", str(error))
    try:
        check_new_folder(folder)
    except UsageError as fault:
        found, _, remedy = str(fault).rpartition("; ")
        return Finding("store", "bad", found, remedy)
    return Finding("store", "good", f"none yet; a run makes {folder}")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:,.0f} GB free"
    if free < _ROOM:
        return Finding("disk", "note", found, "make room, or `rnnsearch gc` what no kept run needs")
    return Finding("disk", "good", found)


def _ray(location: str) -> Iterator[Finding]:
    cluster = Cluster()
    if cluster.address is None:
        yield _temporary()
        yield Finding("Ray", "good", "RAY_ADDRESS is not set: a run starts one here, and ends it")
        return
    try:
        cluster.connect()
        nodes = counted(cluster.nodes(), "node")
        yield Finding("Ray", "good", f"{cluster.address}: {nodes} with this package and the same versions")
        yield _shared(cluster, location)
    except ClusterError as error:
        yield Finding("Ray", "bad", str(error))
    finally:
        cluster.close()


def _shared(cluster: Cluster, location: str) -> Finding:
    """Whether every node reads what this one wrote: a run's workers share its store."""
    try:
        store = Store.open(location, create=False)
        probe = f"tmp/doctor-{os.getpid()}-shared"
        store.backend.put(probe, b"shared")
    except StoreError as error:
        return Finding("shared store", "note", f"not looked at: {error}")
    place = store.location

    def look() -> bool:
        try:
            return bool(Store.open(place, create=False).backend.read(probe) == b"shared")
        except StoreError:
            return False

    try:
        blind = [address for address, sees in cluster.ask_nodes(look) if not sees]
    finally:
        store.backend.delete(probe)
    if blind:
        remedy = "mount the same folder on every node, or give --store s3://bucket/prefix"
        return Finding("shared store", "bad", f"{place} is not what {', '.join(blind)} sees there", remedy)
    return Finding("shared store", "good", "every node sees it")


def _proxy() -> Iterator[Finding]:
    """Which calls a proxy would get; nothing where none is set."""
    found = ", ".join(f"{name}={redacted(value)}" for name, value in proxies().items())
    if not found:
        return
    if any(map(proxied, LOOPBACK)):
        yield Finding("proxy", "bad", f"{found} gets loopback calls", f"add {','.join(LOOPBACK)} to no_proxy")
        return
    servers = {"PREFECT_API_URL": os.environ.get("PREFECT_API_URL", "")}
    through = [name for name, url in servers.items() if url and proxied(urlsplit(url).hostname or "")]
    if through:
        remedy = "add its host to no_proxy, unless the proxy leads there"
        yield Finding("proxy", "note", f"{found}, also for {', '.join(through)}; never for loopback", remedy)
    else:
        yield Finding("proxy", "good", f"{found} for downloads; never for loopback")


def _prefect() -> Finding:
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return Finding("Prefect", "good", "PREFECT_API_URL is not set: a run starts a server of its own")
    remedy = "start the server, or unset PREFECT_API_URL to run without"
    try:
        answer = httpx.get(f"{url.rstrip('/')}/admin/version", timeout=_ANSWER_SECONDS).raise_for_status()
        there = str(answer.json())
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return Finding("Prefect", "bad", f"no Prefect server answers at {url} ({error})", remedy)
    here = version("prefect")
    if there.split(".")[:2] != here.split(".")[:2]:
        return Finding(
            "Prefect", "note", f"the server is {there}, this machine has {here}", "install the same version"
        )
    return Finding("Prefect", "good", f"{url}, version {there}")
