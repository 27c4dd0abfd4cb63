"""Random programs of views, writes and reads on one to three arguments that may share memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.frontends.fx.errors import FxImportError

View = Callable[[Tensor, int, int], Tensor]
Write = Callable[[Tensor, Tensor, int], object]
Step = tuple[str, int, int, int, int]


def _dimension(t: Tensor, a: int) -> int:
    return a % max(t.dim(), 1)


def _slice(t: Tensor, a: int, b: int) -> Tensor:
    d = _dimension(t, a)
    start = b % (t.shape[d] + 1)
    return t.narrow(d, start, t.shape[d] - start)[(slice(None),) * d + (slice(None, None, 1 + b % 3),)]


def _split(t: Tensor, a: int, b: int) -> Tensor:
    pieces = t.split(1 + b % 3, _dimension(t, a))
    return pieces[b % len(pieces)]


def _as_strided(t: Tensor, a: int, b: int) -> Tensor:
    room = t.untyped_storage().nbytes() // t.element_size()
    size, step = 1 + a % 3, 1 + b % 3
    offset = (a * 7 + b) % max(room - (size * step + 2), 1)
    return t.as_strided(
        (size, 2) if b % 2 else (2, size), (step, size * step) if a % 2 else (size * step, step), offset
    )


def _reshaped(t: Tensor, a: int, b: int) -> Tensor:
    if not t.is_contiguous():
        return t.unsqueeze(a % (t.dim() + 1))
    return t.view(-1) if b % 2 or t.numel() % 2 else t.view(2, -1)


def _bits(t: Tensor, a: int, b: int) -> Tensor:
    if t.dtype != torch.float32:
        return t.view(torch.float32) if t.dtype == torch.int32 else t
    narrower = t.dim() > 0 and t.stride(-1) == 1 and a % 2
    return t.view(torch.int16 if narrower else torch.int32)


# What each needs: at least one dimension and no empty one.
VIEWS: dict[str, View] = {
    "select": lambda t, a, b: t.select(_dimension(t, a), b % t.shape[_dimension(t, a)]),
    "slice": _slice,
    "transpose": lambda t, a, b: t.transpose(_dimension(t, a), _dimension(t, b)),
    "permute": lambda t, a, b: t.permute([(d + a) % t.dim() for d in range(t.dim())]),
    "diagonal": lambda t, a, b: t.diagonal(b % 3 - 1, 0, 1) if t.dim() > 1 else t[:],
    "unbind": lambda t, a, b: t.unbind(_dimension(t, a))[b % t.shape[_dimension(t, a)]],
    "split": _split,
    "chunk": lambda t, a, b: t.chunk(2, _dimension(t, a))[0],
    "reshaped": _reshaped,
    "unsqueeze": lambda t, a, b: t.unsqueeze(a % (t.dim() + 1)),
    "squeeze": lambda t, a, b: t.squeeze(),
    "expand": lambda t, a, b: t.expand(1, *t.shape),
    "unfold": lambda t, a, b: t.unfold(_dimension(t, a), 1, 1 + b % 3),
    "as_strided": _as_strided,
    "bits": _bits,
    "detach": lambda t, a, b: t.detach(),
    "alias": lambda t, a, b: torch.ops.aten.alias.default(t),
}

WRITES: dict[str, Write] = {
    "add_": lambda t, s, a: t.add_(s),
    "add_ number": lambda t, s, a: t.add_(a),
    "mul_": lambda t, s, a: t.mul_(2),
    "copy_": lambda t, s, a: t.copy_(s),
    "copy_ cast": lambda t, s, a: t.copy_(s.to(torch.float64)),
    "copy_ sum": lambda t, s, a: t.copy_(s.sum()),
    "fill_": lambda t, s, a: t.fill_(a),
    "zero_": lambda t, s, a: t.zero_(),
    "neg_": lambda t, s, a: t.neg_(),
    "set": lambda t, s, a: t.__setitem__((Ellipsis, slice(0, 1)), a) if t.dim() else t.fill_(a),
    "set all": lambda t, s, a: t.__setitem__(Ellipsis, s),
    "index_put_": lambda t, s, a: t.index_put_((torch.tensor([0]),), s[:1], bool(a % 2)) if t.dim() else t.zero_(),
    "masked_fill_": lambda t, s, a: t.masked_fill_(s > a, 3),
    "index_add_": lambda t, s, a: t.index_add_(0, torch.tensor([0]), s[:1]) if t.dim() else t.zero_(),
    "out=": lambda t, s, a: torch.add(s, a, out=t),
    "list": lambda t, s, a: torch._foreach_add_([t], [s]),
}


def values_like(t: Tensor, number: int) -> Tensor:
    """Values of the shape and dtype of `t`, in memory of their own."""
    return (torch.arange(t.numel()) % 7 + number).to(t.dtype).reshape(t.shape)


def run(steps: Sequence[Step], arguments: Sequence[Tensor]) -> object:
    """Interpret the steps; what they do depends on shapes alone."""
    windows = list(arguments)
    seen: list[Tensor] = []
    for kind, name, which, a, b in steps:
        target = windows[which % len(windows)]
        if target.numel() == 0:
            continue
        if kind == "view" and target.dim() > 0:
            windows.append(list(VIEWS.values())[name % len(VIEWS)](target, a, b))
        elif kind == "new":
            windows.append(target * 2 if a % 2 else target.clone())
        elif kind == "write":
            source = target * 1 if b % 3 == 0 else values_like(target, a)
            list(WRITES.values())[name % len(WRITES)](target, source, a)
        elif kind == "read":
            seen.append(target * 1)
    last = windows[-1]
    return seen, last, [window * 1 for window in windows[: len(arguments)]]


def separate() -> Sequence[Tensor]:
    return [torch.arange(24.0).reshape(4, 6).clone(), torch.arange(8.0).reshape(2, 2, 2).clone()]


def rows_of_one() -> Sequence[Tensor]:
    x = torch.arange(32.0).reshape(8, 4)
    return [x[:5], x[3:]]


def columns_of_one() -> Sequence[Tensor]:
    x = torch.arange(32.0).reshape(4, 8)
    return [x[:, ::2], x[:, 1::2], x[0]]


def whole_and_transposed() -> Sequence[Tensor]:
    x = torch.arange(16.0).reshape(4, 4)
    return [x, x.t()]


def one() -> Sequence[Tensor]:
    return [torch.arange(30.0).reshape(2, 3, 5).permute(2, 0, 1)]


ARGUMENTS = [one, separate, rows_of_one, columns_of_one, whole_and_transposed]

small = st.integers(0, 11)
steps = st.lists(
    st.tuples(
        st.sampled_from(["view", "view", "write", "write", "read", "new"]), st.integers(0, 40), small, small, small
    ),
    min_size=2,
    max_size=14,
)


def compare(program_steps: Sequence[Step], make: Callable[[], Sequence[Tensor]], harness: ModuleType) -> None:
    def program(*arguments: Tensor) -> object:
        return run(program_steps, arguments)

    if refusal(lambda: harness.observe(program, make())):
        # Refused when it is compiled or, where that depends on the size of the caller's memory, when it is run.
        forms = harness.compiled_forms(program, make(), text=False)
        assert refusal(lambda: [harness.observe(compiled, make()) for _, compiled in forms]), "eager mode refuses this"
        return
    message = refusal(lambda: harness.check(program, make))
    # Where elements of what is written share memory, some operators of eager mode write in an undefined order.
    assert message is None or "share memory" in message, message


def refusal(action: Callable[[], object]) -> str | None:
    """The message of the error with which eager mode or the compiler refuses something; None if they do not."""
    try:
        action()
    except (RuntimeError, FxImportError, PassFailedException) as error:
        return str(error)
    return None


@given(program_steps=steps, arguments=st.sampled_from(ARGUMENTS))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_random_programs(
    program_steps: Sequence[Step], arguments: Callable[[], Sequence[Tensor]], harness: ModuleType
) -> None:
    compare(program_steps, arguments, harness)


@pytest.mark.slow
@given(program_steps=steps, arguments=st.sampled_from(ARGUMENTS))
@settings(
    max_examples=2000,
    derandomize=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_many_random_programs(
    program_steps: Sequence[Step], arguments: Callable[[], Sequence[Tensor]], harness: ModuleType
) -> None:
    compare(program_steps, arguments, harness)
