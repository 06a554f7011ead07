"""The one error that bad input raises."""


class InputError(ValueError):
    """Input that cannot be used: the message says what was got, what is expected and how to mend it."""
