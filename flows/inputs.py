"""Checks of local input files before a run: they exist and match the declared formats."""

from pathlib import Path

from rnnsearch.flows.dag import by_side
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.settings import Settings
from rnnsearch.pipeline.errors import FormatError
from rnnsearch.pipeline.formats.reader import check_files
from rnnsearch.storage.errors import explained


def check_inputs(settings: Settings) -> None:
    """Raise UsageError for the first corpus whose files do not fit its format.

    A file that is not on this machine, or is a member to be taken out, is judged by its number and name only.
    """
    for name, corpus in settings.corpora.items():
        sources = [(source, settings.sources[source]) for source in by_side(settings, corpus)]
        paths = [
            source.local if source.local and not source.member else Path(f"source {key}")
            for key, source in sources
        ]
        try:
            check_files(paths, corpus.format)
        except FormatError as error:
            raise UsageError(f"corpora.{name}: {error}") from error
        except OSError as error:
            raise explained(error, f"read the files of corpora.{name}") from error
