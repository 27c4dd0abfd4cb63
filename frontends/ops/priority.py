"""Which providers are asked first, for each op.

Two layers. A *default* belongs to the process and is set once, by a platform or an application. An *override* is in
force inside a `with` block, and only in the context (`contextvars`) that entered it: other threads and asyncio tasks
keep their own. A thread started inside the block starts from the defaults, unless it runs in a copy of the context.

Priorities are read when an op runs in eager mode, and when a graph is lowered; a compiled graph keeps the providers
that were chosen for it.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from vllm_ir.frontends.ops.impl import NATIVE

_EMPTY: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_OVERRIDES: ContextVar[Mapping[str, tuple[str, ...]]] = ContextVar("vllm_ir_op_priority", default=_EMPTY)


def overridden(op_name: str) -> tuple[str, ...] | None:
    """The priority list that an enclosing `with` block of this context gives to an op, if one does."""
    return _OVERRIDES.get().get(op_name)


@contextmanager
def override(priorities: Mapping[str, tuple[str, ...]]) -> Generator[None]:
    """Put priority lists, already checked, in force inside a `with` block; ops that are not named keep theirs."""
    token = _OVERRIDES.set(MappingProxyType({**_OVERRIDES.get(), **priorities}))
    try:
        yield
    finally:
        _OVERRIDES.reset(token)


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
        ValueError: naming the unknown providers and the known ones.
    """
    known = list(known)
    unknown = [provider for provider in providers if provider not in known]
    if unknown:
        raise ValueError(
            f"vllm_ir.{op_name}: no implementation by {', '.join(map(repr, unknown))}; "
            f"known providers: {', '.join(known)}"
        )


def with_native(providers: tuple[str, ...]) -> list[str]:
    """The list with the native definition at its end, where it always is at the latest."""
    return [*providers] if NATIVE in providers else [*providers, NATIVE]
