"""Which fusions there are: ours, those of other distributions, and those that a block of code adds.

Nothing is registered for the whole process: a fusion that a program adds holds for its own compilations.
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import entry_points
from typing import cast

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.entry_points import load, origin_of

GROUP = "vllm_ir.fusions"
"""Entry points that name a `Fusion` or a sequence of them."""

_added: ContextVar[tuple[Fusion, ...]] = ContextVar("fusions", default=())


@contextmanager
def using_fusions(*fusions: Fusion) -> Generator[None]:
    """Fusions beside those that are always there, in this block and context.

    Raises:
        ValueError: there is another fusion of that name.
    """
    token = _added.set((*_added.get(), *fusions))
    try:
        if fusions:  # to look for those of others takes time, which compilations without fusions do not have
            _by_name(fusions_in_scope())
        yield
    finally:
        _added.reset(token)


def fusions_in_scope() -> tuple[Fusion, ...]:
    """All fusions that a compilation may use, in no particular order.

    Raises:
        RuntimeError: what another distribution brings along is faulty.
    """
    return (*_own(), *_of_others(), *_added.get())


def fusions_named(names: Sequence[str]) -> tuple[Fusion, ...]:
    """The fusions in scope of these names; without names all that are supported here.

    Raises:
        ValueError: there is none of that name, or it is not supported here.
    """
    known = _by_name(fusions_in_scope())
    if not names:
        return tuple(fusion for fusion in known.values() if fusion.is_supported)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ";"
            raise ValueError(f"unknown fusion {name!r}{hint} fusions are {', '.join(sorted(known))}")
        if not known[name].is_supported:
            raise ValueError(f"fusion {name!r} is not supported in this process; leave it out")
    return tuple(known[name] for name in dict.fromkeys(names))


def _by_name(fusions: Iterable[Fusion]) -> dict[str, Fusion]:
    known: dict[str, Fusion] = {}
    for fusion in fusions:
        if known.setdefault(fusion.name, fusion) is not fusion:
            raise ValueError(f"there are two fusions {fusion.name!r}; rename one of them")
    return known


@cache
def _own() -> tuple[Fusion, ...]:
    from vllm_ir.conversions.fusion.catalog import FUSIONS  # they name ops, whose definitions this loads

    return FUSIONS


@cache
def _of_others() -> tuple[Fusion, ...]:
    found: list[Fusion] = []
    for point in entry_points(group=GROUP):
        loaded = load(point)
        items = list(cast("Sequence[object]", loaded)) if isinstance(loaded, tuple | list) else [loaded]
        for item in items:
            if not isinstance(item, Fusion):
                raise RuntimeError(f"{origin_of(point)} is {type(item).__name__}, not a Fusion or a sequence of them")
            found.append(item)
    return tuple(found)
