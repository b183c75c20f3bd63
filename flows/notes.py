"""Warnings about a valid profile that `plan` and `run` print before work starts. Imports stay light."""

from rnnsearch.flows.settings import Settings
from rnnsearch.pipeline.config import TokenizeConfig
from rnnsearch.pipeline.languages import tokenizer_note


def profile_notes(settings: Settings) -> tuple[str, ...]:
    """Notes on the settings, each a sentence; none where there is nothing to say."""
    return language_notes(settings.tokenize)


def language_notes(config: TokenizeConfig) -> tuple[str, ...]:
    """The languages for which the tokeniser has no rules of their own."""
    if config.pretokenized:
        return ()
    notes = (tokenizer_note(code) for code in (config.source_language, config.target_language))
    return tuple(note for note in notes if note)
