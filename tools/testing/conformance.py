"""Conformance tests of every implementation that this process knows, for `pytest --pyargs`.

Implementations are those of this project, those that installed distributions plug in, and those that a `conftest.py` or
another plugin of the run registers. `vllm_ir.tools.testing.plugin` adds the options that select among them.
"""

import difflib
from collections.abc import Iterable, Sequence

import pytest

from vllm_ir.tools.providers import IrOp
from vllm_ir.tools.testing import NotCheckable, check_impl
from vllm_ir.tools.testing.plugin import OP, PROVIDER


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each op and provider that the options select; UsageError if they name what there is not."""
    ops = sorted(IrOp.registry)
    providers = list(dict.fromkeys(provider for name in ops for provider in IrOp.registry[name].impls))
    wanted_ops = _selected(metafunc.config, OP, ops)
    wanted_providers = _selected(metafunc.config, PROVIDER, providers)
    pairs = [
        (name, provider)
        for name in ops
        if name in wanted_ops
        for provider in IrOp.registry[name].impls
        if provider in wanted_providers
    ]
    metafunc.parametrize(("op", "provider"), pairs, ids=[f"{name}-{provider}" for name, provider in pairs])


def test_implementation(op: str, provider: str) -> None:
    """The provider's implementation does what the op says; skipped, with the reason, where that cannot be found out."""
    try:
        check_impl(IrOp.registry[op], provider)
    except NotCheckable as error:
        pytest.skip(str(error))


def _selected(config: pytest.Config, option: str, known: Sequence[str]) -> Iterable[str]:
    """What an option names, or all that there is; the option is there only with the plugin."""
    named: list[str] = config.getoption(option, default=None) or []
    unknown = [name for name in named if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known)
        meant = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(known)}"
        raise pytest.UsageError(f"{option} {unknown[0]}: not registered in this process; {meant}")
    return named or known
