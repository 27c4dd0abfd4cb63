"""Which platform this process runs on."""

import functools
from importlib.metadata import EntryPoint, entry_points

from vllm_ir.frontends.entry_points import load, origin_of
from vllm_ir.frontends.platforms.known import KNOWN
from vllm_ir.frontends.platforms.platform import Platform

GROUP = "vllm_ir.platforms"
"""The entry point group of other distributions' platforms: subclasses of `Platform`."""


@functools.cache
def detect() -> Platform:
    """The platform of this process: one that another distribution brings along and that is available, else ours.

    Raises:
        RuntimeError: two of other distributions are available, or one cannot be loaded or is no `Platform`.
    """
    brought = [(point, platform) for point in entry_points(group=GROUP) if (platform := _loaded(point)).is_available()]
    if len(brought) > 1:
        names = ", ".join(f"{point.name!r} ({point.value})" for point, _ in brought)
        raise RuntimeError(f"{len(brought)} platforms are available at once: {names}; uninstall all but one")
    if brought:
        return brought[0][1]()
    return next(platform for platform in KNOWN if platform.is_available())()


def _loaded(point: EntryPoint) -> type[Platform]:
    found = load(point)
    if not (isinstance(found, type) and issubclass(found, Platform)):
        raise RuntimeError(f"{origin_of(point)} must be a subclass of vllm_ir.Platform, is {found!r}")
    return found
