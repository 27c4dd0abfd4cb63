"""Traces on disk: what is read back is what was traced, and whatever is not certain is traced anew."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from xdsl.context import Context

import vllm_ir as ir
from vllm_ir.conversions.lower import LowerPass
from vllm_ir.conversions.trace_store import TraceStore

_LIBRARY = torch.library.Library("trace_store", "DEF")
_LIBRARY.define("double_(Tensor(a!) x) -> ()")
_LIBRARY.define("copied(Tensor x) -> Tensor")
_LIBRARY.impl("double_", lambda x: (x.mul_(2), None)[1], "CompositeExplicitAutograd")
_LIBRARY.impl("copied", lambda x: x.clone(), "CompositeExplicitAutograd")
torch.library.register_fake("trace_store::double_", lambda x: None, lib=_LIBRARY)
torch.library.register_fake("trace_store::copied", lambda x: torch.empty_like(x), lib=_LIBRARY)

BY = 3.0


def native(x: Tensor, text: str = "a", factor: float = 0.1, offset: float = 1.0) -> Tensor:
    """An op with attributes of several kinds."""
    return x * BY * factor + offset if text else x


def in_place(x: Tensor, text: str = "a", factor: float = 0.1, offset: float = 1.0) -> Tensor:
    torch.ops.trace_store.double_(x)
    return torch.ops.trace_store.copied(x)


def with_constant(x: Tensor, text: str = "a", factor: float = 0.1, offset: float = 1.0) -> Tensor:
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.fixture(scope="module")
def op() -> Iterator[ir.IrOp]:
    made = ir.register_op(name="trace_store_op", allow_inplace=True)(native)
    made.register_impl("in_place", inplace=True)(in_place)
    made.register_impl("constant")(with_constant)
    yield made
    ir.unregister(made)


def lowered(op: ir.IrOp, store: TraceStore, x: Tensor, *arguments: object, provider: str = "native") -> str:
    module = ir.import_callable(lambda x: op(op(x, *arguments), *arguments), x)
    with op.set_priority([*dict.fromkeys((provider, "native"))]), store.in_force():
        LowerPass().apply(Context(), module)
    return str(module)


def counts(op: ir.IrOp, directory: Path, x: Tensor, *arguments: object, provider: str = "native") -> tuple[int, int]:
    store = TraceStore(directory)
    lowered(op, store, x, *arguments, provider=provider)
    return store.traced, store.loaded


@pytest.mark.parametrize("provider", ["native", "in_place"])
def test_a_trace_that_is_read_lowers_to_the_same(op: ir.IrOp, tmp_path: Path, provider: str) -> None:
    texts: list[str] = []
    for expected in ((1, 0), (0, 1)):
        store = TraceStore(tmp_path)
        texts.append(lowered(op, store, torch.ones(4), "ä\n", 0.1, -0.0, provider=provider))
        assert (store.traced, store.loaded) == expected
    assert texts[0] == texts[1]


def test_other_operands_attributes_and_facts_are_other_traces(op: ir.IrOp, tmp_path: Path) -> None:
    x = torch.ones(4, 2)
    assert counts(op, tmp_path, x) == (1, 0)
    for other in (torch.ones(4, 3), x.double(), x.t().contiguous().t()):
        assert counts(op, tmp_path, other) == (1, 0)
    for arguments in (("b",), ("a", 0.2), ("a", 0.1, 0.0), ("a", 0.1, -0.0)):
        assert counts(op, tmp_path, x, *arguments) == (1, 0)
    store = TraceStore(tmp_path, ("another version",))
    lowered(op, store, x)
    assert store.traced == 1
    assert counts(op, tmp_path, x) == (0, 1)


def test_another_implementation_is_another_trace(op: ir.IrOp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts(op, tmp_path, torch.ones(4)) == (1, 0)
    monkeypatch.setitem(globals(), "BY", 5.0)
    assert counts(op, tmp_path, torch.ones(4)) == (1, 0)


def test_an_operator_that_gives_something_else_is_traced_anew(op: ir.IrOp, tmp_path: Path) -> None:
    x = torch.ones(4, 2)
    assert counts(op, tmp_path, x, provider="in_place") == (1, 0)
    assert counts(op, tmp_path, x, provider="in_place") == (0, 1)
    torch.library.register_fake(
        "trace_store::copied", lambda x: x.new_empty(x.shape[::-1]).t(), lib=_LIBRARY, allow_override=True
    )
    try:
        assert counts(op, tmp_path, x, provider="in_place") == (1, 0)
        assert counts(op, tmp_path, x, provider="in_place") == (0, 1)
    finally:
        torch.library.register_fake(
            "trace_store::copied", lambda x: torch.empty_like(x), lib=_LIBRARY, allow_override=True
        )


def test_zeros_of_both_signs_are_two_traces(op: ir.IrOp, tmp_path: Path) -> None:
    module = ir.import_callable(lambda x: (op(x, "a", 0.1, 0.0), op(x, "a", 0.1, -0.0)), torch.ones(4))
    store = TraceStore(tmp_path)
    with op.set_priority(["native"]), store.in_force():
        LowerPass().apply(Context(), module)
    assert store.traced == 2
    x = torch.full((4,), -0.0)
    assert [y.signbit().any().item() for y in ir.export_fx(module)(x)] == [False, True]


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"// 0\n// 1\nvllm_ir.func", None], ids=repr)
def test_files_that_are_damaged_are_written_again(op: ir.IrOp, tmp_path: Path, content: bytes | None) -> None:
    x = torch.ones(4)
    counts(op, tmp_path, x)
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    file.write_bytes(good[:-9] if content is None else content)
    assert counts(op, tmp_path, x) == (1, 0)
    assert file.read_bytes() == good
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


def test_a_file_of_another_function_is_not_believed(op: ir.IrOp, tmp_path: Path) -> None:
    counts(op, tmp_path, torch.ones(4))
    (first,) = tmp_path.iterdir()
    counts(op, tmp_path, torch.ones(5))
    (second,) = (file for file in tmp_path.iterdir() if file != first)
    second.write_bytes(first.read_bytes())
    assert counts(op, tmp_path, torch.ones(5)) == (1, 0)


def test_where_nothing_can_be_written_everything_is_traced(op: ir.IrOp, tmp_path: Path) -> None:
    file = tmp_path / "no_directory"
    file.touch()
    for _ in range(2):
        assert counts(op, file, torch.ones(4)) == (1, 0)
    (tmp_path / "cut").symlink_to(os.devnull)
    assert counts(op, tmp_path / "cut", torch.ones(4)) == (1, 0)


def test_traces_with_constants_are_not_kept(op: ir.IrOp, tmp_path: Path) -> None:
    for _ in range(2):
        assert counts(op, tmp_path, torch.ones(4), provider="constant") == (1, 0)
    assert not list(tmp_path.iterdir())


def test_symbols_of_nobody_are_not_kept(op: ir.IrOp, tmp_path: Path) -> None:
    text = """
    vllm_ir.func functional @main(%x: tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>)
        -> tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>> {
      %y = "vllm_ir.trace_store_op"(%x) <{text = "a", factor = 0.1 : f64, offset = 0.2 : f64}>
        : (tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>
      vllm_ir.return %y : tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>
    }
    """
    for _ in range(2):
        module, store = ir.parse(text), TraceStore(tmp_path)
        with op.set_priority(["native"]), store.in_force():
            LowerPass().apply(Context(), module)
        assert (store.traced, store.loaded) == (1, 0)
