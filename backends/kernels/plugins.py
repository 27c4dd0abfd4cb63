"""Providers that other distributions bring along."""

from importlib.metadata import entry_points

GROUP = "vllm_ir.kernels"


def load_plugins() -> None:
    """Import what the entry points of the group name; modules register their implementations when they are imported.

    Raises:
        RuntimeError: an import failed; the message names the entry point and its distribution, the cause is chained.
    """
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            origin = f"distribution {point.dist.name!r}" if point.dist is not None else "an unknown distribution"
            raise RuntimeError(
                f"kernels of {origin} cannot be loaded: entry point {point.name!r} of group {GROUP!r} ({point.value}) "
                f"raised {type(error).__name__}: {error}; repair or uninstall it"
            ) from error
