"""Which providers are asked first, for each op.

In order: an *override* is in force inside a `with` block, and only in the context (`contextvars`) that entered it:
other threads and asyncio tasks keep their own. A thread started inside the block starts without it, unless it runs in a
copy of the context. A *default* belongs to the process and is set once, by an application. The environment variable
`VLLM_IR_OP_PRIORITY`, read when it is first needed, stands for both where neither is set, and the platform's own order
where there is none of these. What configurations, options and the environment name is put before the platform's order.

Priorities are read when an op runs in eager mode, and when a graph is lowered; a compiled graph keeps the providers
that were chosen for it.
"""

import difflib
import functools
import logging
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple

from vllm_ir.frontends.ops.impl import NATIVE, IrOpImpl
from vllm_ir.frontends.ops.size_ranges import Priority, SizeRanges
from vllm_ir.frontends.platforms import detect

VARIABLE = "VLLM_IR_OP_PRIORITY"
"""The environment variable: `op=provider,provider;op=provider`."""


class Settings(NamedTuple):
    """What the `with` blocks of a context have set; equal settings choose alike, as long as registrations stay."""

    overrides: Mapping[str, Priority] = MappingProxyType({})
    using_inductor: bool = False
    batch_invariant: bool | None = None
    """None: as the environment says."""


_NONE_SET = Settings()
# One variable for all, because every call of an op asks for it.
_SETTINGS: ContextVar[Settings] = ContextVar("vllm_ir_settings", default=_NONE_SET)
settings = _SETTINGS.get
"""The settings of this context."""
BATCH_VARIABLE = "VLLM_BATCH_INVARIANT"
"""The environment variable that asks for `only_batch_invariant` in the whole process, by 1."""
_logger = logging.getLogger("vllm_ir.ops")


def overridden(op_name: str) -> Priority | None:
    """The priority list that an enclosing `with` block of this context gives to an op, if one does."""
    return settings().overrides.get(op_name)


@contextmanager
def override(priorities: Mapping[str, Priority]) -> Generator[None]:
    """Put priority lists, already checked, in force inside a `with` block; ops that are not named keep theirs."""
    before = settings().overrides
    _SETTINGS.set(settings()._replace(overrides=MappingProxyType({**before, **priorities})))
    try:
        yield
    finally:
        _SETTINGS.set(settings()._replace(overrides=before))


@contextmanager
def using_inductor(used: bool) -> Generator[None]:
    """Inside the `with` block, ops are lowered into graphs that Inductor compiles, or not."""
    before = settings().using_inductor
    _SETTINGS.set(settings()._replace(using_inductor=used))
    try:
        yield
    finally:
        _SETTINGS.set(settings()._replace(using_inductor=before))


@contextmanager
def only_batch_invariant(only: bool = True) -> Generator[None]:
    """Inside the `with` block, only implementations that are declared batch-invariant are chosen, or any."""
    before = settings().batch_invariant
    _SETTINGS.set(settings()._replace(batch_invariant=only))
    try:
        yield
    finally:
        _SETTINGS.set(settings()._replace(batch_invariant=before))


def wants_batch_invariance() -> bool:
    """Whether only batch-invariant implementations may be chosen now."""
    here = settings().batch_invariant
    return _environment_wants_batch_invariance() if here is None else here


@functools.cache
def _environment_wants_batch_invariance() -> bool:
    return os.environ.get(BATCH_VARIABLE, "0").strip().lower() in ("1", "true", "yes", "on")


def of_platform(op_name: str, impls: Mapping[str, IrOpImpl]) -> tuple[str, ...]:
    """The platform's order for an op, of the providers that there are; empty where only the native definition is."""
    named = detect().get_default_ir_op_priority(op_name, using_inductor=settings().using_inductor)
    known = tuple(name for name in named if name in impls)
    return () if known == (NATIVE,) else known


def of_environment(op_name: str) -> tuple[str, ...] | None:
    """The priority list that the environment gives to an op, if it does; ValueError if the variable is malformed."""
    return environment().get(op_name)


@functools.cache
def environment() -> Mapping[str, tuple[str, ...]]:
    """The priority lists of `VLLM_IR_OP_PRIORITY`, by op; ValueError if the variable is malformed."""
    text = os.environ.get(VARIABLE, "")
    found: dict[str, tuple[str, ...]] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        op, equals, providers = (part.strip() for part in entry.partition("="))
        names = tuple(name.strip() for name in providers.split(","))
        if not op or not equals or not all(names):
            raise ValueError(f"{VARIABLE}: expected 'op=provider,provider;…', got {entry!r} in {text!r}")
        if op in found:
            raise ValueError(f"{VARIABLE}: op {op!r} is named twice in {text!r}")
        found[op] = provider_list(op, names)
    return MappingProxyType(found)


def priority(op_name: str, providers: Sequence[str] | SizeRanges) -> Priority:
    """A priority list as a tuple, or size ranges, after checking their form; errors as for `provider_list`."""
    if isinstance(providers, SizeRanges):
        return providers.mapped(lambda listed: provider_list(op_name, listed))
    return provider_list(op_name, providers)


def named_in(priority: Priority) -> tuple[str, ...]:
    """All providers that a priority names."""
    return priority.providers if isinstance(priority, SizeRanges) else priority


def provider_list(op_name: str, providers: Sequence[str]) -> tuple[str, ...]:
    """A priority list as a tuple, after checking its form (not whether its providers exist).

    Raises:
        TypeError: it is a single string, or holds something else than strings.
        ValueError: it names a provider twice.
    """
    if isinstance(providers, str):
        raise TypeError(f"vllm_ir.{op_name}: priority must be a list of provider names, got the string {providers!r}")
    for provider in providers:
        _check_name(op_name, provider)
    repeated = sorted({provider for provider in providers if list(providers).count(provider) > 1})
    if repeated:
        raise ValueError(f"vllm_ir.{op_name}: priority names {', '.join(map(repr, repeated))} more than once")
    return tuple(providers)


def _check_name(op_name: str, provider: object) -> None:
    if not isinstance(provider, str):
        raise TypeError(f"vllm_ir.{op_name}: a provider name must be a string, got {provider!r}")


def check_known(op_name: str, providers: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a priority list that names a provider which no implementation of the op has.

    Raises:
        ValueError: naming the unknown providers, those with similar names, and all known ones.
    """
    known = list(known)
    unknown = [provider for provider in providers if provider not in known]
    if unknown:
        near = [match for name in unknown for match in difflib.get_close_matches(name, known)]
        meant = f"; did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?" if near else ""
        raise ValueError(
            f"vllm_ir.{op_name}: no implementation by {', '.join(map(repr, unknown))}; "
            f"known providers: {', '.join(known)}{meant}"
        )


def effective(providers: Iterable[str], impls: Mapping[str, IrOpImpl]) -> list[str]:
    """What remains of a priority list in this process.

    Providers that are not supported fall out, what comes behind one that takes all arguments is never asked, and the
    native definition ends a list in which none does.
    """
    left: list[str] = []
    for provider in providers:
        impl = impls[provider]
        if impl.supported:
            left.append(provider)
            if impl.supports_all_args:
                return left
    return [*left, NATIVE]


def with_native(providers: Sequence[str]) -> list[str]:
    """The list with the native definition at its end, where it always is at the latest."""
    return [*providers] if NATIVE in providers else [*providers, NATIVE]


@functools.cache
def warn_of_fallback(op_name: str, providers: tuple[str, ...]) -> None:
    """Say, once for each list, that the native definition may run though it is not named."""
    _logger.warning(
        "vllm_ir.%s: no implementation in the priority list %s supports all arguments, fallback to native is possible; "
        "add 'native' to the end of the list to say that it is meant",
        op_name,
        list(providers),
    )


@functools.cache
def warn_of_missing_priority(op_name: str) -> None:
    """Say, once for each op, that its implementations are not used."""
    _logger.warning("vllm_ir.%s: priority not set, the native definition is used", op_name)
