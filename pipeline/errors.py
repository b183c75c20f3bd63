"""Input that a stage refuses. Each error says what was found, what was expected, and what to do."""


class TextError(ValueError):
    """Text, or a table of pairs, that a stage cannot take as it is."""


class FormatError(TextError):
    """A file that is not what its format says."""


class LeakageError(TextError):
    """Dev or test sentences stand in the training data, and the configuration says to stop."""
