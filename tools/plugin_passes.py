"""Passes that other distributions bring along: those in their universes of xDSL."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from xdsl.passes import ModulePass
from xdsl.universe import Universe

from vllm_ir.frontends.entry_points import load, origin_of

GROUP = "xdsl.universe"
"""xDSL's entry point group; `xdsl-opt` reads it as well."""

_NOT_PLUGINS = ("xdsl", "vllm_ir")
"""Packages whose universes bring nothing: our own passes are known, and of xDSL's not all are right on our IR."""


@functools.cache
def plugin_passes() -> Mapping[str, Callable[[], type[ModulePass]]]:
    """Factories of the passes by name.

    Raises:
        RuntimeError: a universe cannot be loaded or is none, a name is taken, or a pass goes by another name.
    """
    found: dict[str, Callable[[], type[ModulePass]]] = {}
    origins: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        if point.module.partition(".")[0] in _NOT_PLUGINS:
            continue
        origin = origin_of(point)
        for name, factory in _loaded(point).all_passes.items():
            if name in origins:
                raise RuntimeError(f"pass {name!r} is there twice: {origins[name]}, {origin}; uninstall one")
            origins[name] = origin
            found[name] = functools.partial(_checked, name, factory, origin)
    return MappingProxyType(found)


def _loaded(point: EntryPoint) -> Universe:
    universe = load(point)
    if not isinstance(universe, Universe):
        raise RuntimeError(f"{origin_of(point)} must be an xdsl.universe.Universe, is {universe!r}")
    return universe


def _checked(name: str, factory: Callable[[], type[ModulePass]], origin: str) -> type[ModulePass]:
    """The class of a pass; what is printed and reported is its own name, so that has to be the one it is called by."""
    found = factory()
    if found.name != name:
        raise RuntimeError(f"pass {name!r} of {origin} goes by the name {found.name!r}; they must be the same")
    return found
