"""The Prefect server that a run would report to."""

import os

import httpx

from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.sources.secrets import redacted

_ANSWER_SECONDS = 10.0


def require_prefect() -> None:
    """Raise UsageError where PREFECT_API_URL names a server that cannot be reached."""
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return
    try:
        httpx.get(f"{url.rstrip('/')}/admin/version", timeout=_ANSWER_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UsageError(
            redacted(
                f"no Prefect server answers at {url} ({error}); start it, add its host to no_proxy if a proxy is in "
                "between, or unset PREFECT_API_URL to run without"
            )
        ) from error
