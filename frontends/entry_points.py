"""Loading what the entry points of other distributions name."""

from importlib.metadata import EntryPoint


def origin_of(point: EntryPoint) -> str:
    """The entry point, as messages name it."""
    return f"entry point {point.name!r} of group {point.group!r} ({point.value})"


def load(point: EntryPoint) -> object:
    """What an entry point names.

    Raises:
        RuntimeError: it cannot be imported; the cause is chained.
    """
    try:
        return point.load()
    except Exception as error:  # the code of others, which may raise anything
        raise RuntimeError(
            f"{origin_of(point)} raised {type(error).__name__}: {error}; repair or uninstall its package"
        ) from error
