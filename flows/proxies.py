"""Network proxies: used for downloads, never for connections to this machine."""

import os
from collections.abc import Mapping, MutableMapping
from urllib import request

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_EXCEPTIONS = ("no_proxy", "NO_PROXY")


def spare_loopback(environment: MutableMapping[str, str] = os.environ) -> None:
    """Exclude loopback addresses from the proxies of this process and its children.

    Prefect's temporary server, Ray and our own pages are there. Nothing changes where no proxy is set.
    """
    if not proxies(environment):
        return
    fallback = next((environment[name] for name in _EXCEPTIONS if environment.get(name)), "")
    grpc = [name for name in ("no_grpc_proxy",) if name in environment]  # for gRPC it replaces no_proxy
    for name in (*_EXCEPTIONS, *grpc):
        listed = [each.strip() for each in (environment.get(name) or fallback).split(",") if each.strip()]
        if "*" not in listed:
            missing = [host for host in LOOPBACK if host not in listed]
            environment[name] = ",".join([*listed, *missing])


def proxies(environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The proxies that are set, by the name of the variable."""
    names = [name for each in _PROXIES for name in (each, each.upper())]
    return {name: environment[name] for name in names if environment.get(name)}


def proxied(host: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether calls to a host go to a proxy."""
    exceptions = next((environment[name] for name in _EXCEPTIONS if environment.get(name)), "")
    bypass = request.proxy_bypass_environment(host, {"no": exceptions})  # type: ignore[attr-defined] # not in the stubs
    return bool(proxies(environment)) and not bypass
