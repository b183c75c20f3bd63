"""The errors that are told in one message, without a traceback: a user's mistake, or a store that is hurt."""

from rnnsearch.flows.settings import SettingsError
from rnnsearch.flows.sources.checks import SourceError
from rnnsearch.pipeline.errors import TextError
from rnnsearch.storage.errors import StoreError


class UsageError(ValueError):
    """A command that cannot be done as it was asked for; the message says what would."""


USER_ERRORS = (UsageError, SettingsError, SourceError, TextError, StoreError)
