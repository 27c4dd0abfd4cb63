"""The first wrong rewrite of a pipeline, for faults that are put into passes at run time."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
from torch import Tensor
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

import vllm_ir as ir
from vllm_ir.conversions.eliminate_clones import conflicts
from vllm_ir.conversions.functionalize import views
from vllm_ir.conversions.lower import _Lowering
from vllm_ir.conversions.rewrites import LimitedPass
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.tools.bisect import BisectResult, bisect, same_signature
from vllm_ir.tools.operators.observation import observe
from vllm_ir.tools.pipelines import build_passes
from vllm_ir.tools.text import text_context
from vllm_ir.tools.vllm_ir_opt import main

Inputs = Callable[[], Sequence[object]]


def checker(make: Inputs) -> Callable[[ModuleOp, ModuleOp], bool]:
    """Compares what two modules compute and leave in memory."""

    def run(module: ModuleOp) -> object:
        seen = observe(lambda *arguments: ir.interpret(module, *arguments), make())
        return [value[-1] for value in seen.results], seen.memory

    return lambda before, after: run(before) == run(after)


def tensors() -> Sequence[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(4, 8), torch.randn(8)]


def program(x: Tensor, weight: Tensor) -> object:
    row = x[0]
    row.add_(weight)
    x.t()[2].mul_(3)
    y = ir.ops.rms_norm(x, weight, 1e-5)
    y = ir.ops.rms_norm(y + 1, weight, 1e-5)
    z = ir.ops.silu_and_mul(y)
    x[1:3].copy_(y[:2])
    return z, x[2] * 2


LINE = program.__code__.co_firstlineno
SPEC = "functionalize,lower,eliminate-clones"


def search(tmp_path: Path, spec: str = SPEC, **options: object) -> BisectResult:
    module = ir.import_callable(program, *tensors())
    text = str(module)
    result = bisect(module, spec, checker(tensors), output=tmp_path / "before.mlir", **options)
    assert str(module) == text
    return result


def confirm(result: BisectResult, make: Inputs = tensors) -> None:
    """The rewrite that was found makes the difference, in the file that was written too."""
    assert result.before is not None
    assert result.rewrite
    path = Path(shlex.split(result.command)[1])
    written = ir.parse(path.read_text())
    assert str(written) == str(result.before)
    check = checker(make)
    for limit, right in ((result.rewrite - 1, True), (result.rewrite, False)):
        (entry,) = build_passes(result.spec.replace(f"limit={result.rewrite}", f"limit={limit}"))
        after = written.clone()
        entry.apply(text_context(), after)
        assert check(written, after) == right


def test_nothing_is_wrong(tmp_path: Path) -> None:
    result = search(tmp_path)
    assert result.is_right
    assert str(result) == "no pass is wrong"
    assert not (tmp_path / "before.mlir").exists()


def test_a_wrong_inverse_of_a_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(views._RULES, torch.ops.aten.t, views.Rule(lambda piece: piece.value))
    # The value of the wrong layout is refused by the verifier: the matrix is not square.
    result = search(tmp_path)
    assert (result.position, result.rewrite) == (0, 2)
    assert result.spec == "functionalize{limit=2}"
    assert result.site is not None
    assert result.site.location == f"{__file__}:{LINE + 3}"
    assert "@aten.mul_.Tensor" in result.site.operation
    assert "has shape" in str(result.verdict)


def test_a_write_to_the_wrong_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = views._RULES[torch.ops.aten.slice]

    def moved(piece: views.Piece) -> object:
        arguments = piece.codec.arguments()
        arguments[1:3] = [0, 2]
        return piece.call(torch.ops.aten.slice_scatter.default, views.needed(piece.base), piece.value, *arguments)

    monkeypatch.setitem(views._RULES, torch.ops.aten.slice, views.Rule(moved, right.read, needs_base=True))
    runs: list[str] = []
    result = search(tmp_path, report=runs.append)
    assert result.site is not None
    assert (result.position, result.site.location) == (0, f"{__file__}:{LINE + 7}")
    assert result.verdict is False
    assert runs[0] == "functionalize: wrong"
    assert f"{result.spec}: wrong" in runs
    assert str(result).startswith(f"pass 1, {result.spec}, is wrong: False\nrewrite {result.rewrite} of ")
    confirm(result)


def test_a_wrong_implementation_of_one_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = _Lowering._lower

    def wrong(self: _Lowering, op: object) -> None:
        second = op.name == "vllm_ir.rms_norm" and not isinstance(op.operands[0].owner, FuncOp)
        second = second and getattr(op.operands[0].owner, "target", "") == "aten.add.Tensor"
        if second and "wrong" not in op.attributes:
            uses = [use for use in op.operands[0].owner.results[0].uses if use.operation is op]
            for use in uses:
                op.operands[use.index] = op.operands[0].owner.operands[0]
        lower(self, op)

    monkeypatch.setattr(_Lowering, "_lower", wrong)
    result = search(tmp_path, options=["--ir-op-priority.rms_norm=native"])
    assert (result.position, result.rewrite, result.rewrites, result.spec) == (1, 2, 3, "lower{limit=2}")
    assert result.site is not None
    assert result.site.location == f"{__file__}:{LINE + 5}"
    assert result.command == (
        f"vllm-ir-opt {tmp_path / 'before.mlir'} -p 'lower{{limit=2}}' --validate --ir-op-priority.rms_norm=native"
    )
    confirm(result)


def test_a_conflict_that_is_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrites(x: Tensor, weight: Tensor) -> object:
        x[0].add_(weight)
        old = x * 2
        x[1].zero_()
        piece = x[2:].clone()
        x[2].add_(weight)
        return old, piece

    monkeypatch.setattr(conflicts.Conflicts, "of", lambda *_: iter(()))
    module = ir.import_callable(overwrites, *tensors())
    result = bisect(module, SPEC, checker(tensors), output=tmp_path / "before.mlir")
    assert result.position == 2
    assert result.site is not None
    # The copy that had to stay, since the row is written behind it.
    assert result.site.location == f"{__file__}:{overwrites.__code__.co_firstlineno + 4}"
    assert result.site.what == "is dropped"
    confirm(result)


def test_a_pass_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = _Lowering._lower

    def wrong(self: _Lowering, op: object) -> None:
        if op.name == "vllm_ir.silu_and_mul":
            raise KeyError("silu")
        lower(self, op)

    monkeypatch.setattr(_Lowering, "_lower", wrong)
    result = search(tmp_path)
    assert (result.position, result.rewrite, result.rewrites) == (1, 3, 3)
    assert isinstance(result.verdict, KeyError)


def test_a_pass_that_is_wrong_without_rewrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = LimitedPass.start

    def wrong(self: LimitedPass) -> object:
        if self.name == "lower":
            raise ValueError("no")
        return start(self)

    monkeypatch.setattr(LimitedPass, "start", wrong)
    result = search(tmp_path)
    assert (result.position, result.rewrite, result.spec) == (1, 0, "lower{limit=0}")
    assert result.note == "the pass is wrong without any rewrite"


def test_a_pass_that_is_right_with_any_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _Lowering.run

    def wrong(self: _Lowering) -> None:
        run(self)
        if self.rewrites.limit is None:
            _change_a_number(self.module)

    monkeypatch.setattr(_Lowering, "run", wrong)
    result = search(tmp_path)
    assert (result.position, result.rewrite, result.spec) == (1, None, "lower")
    assert result.note == "with limit=3, all of its rewrites, the pass is right"


def _change_a_number(module: ModuleOp) -> None:
    call = next(op for op in module.walk() if isinstance(op, CallOp) and op.target == "aten.mul.Tensor")
    trees = [IntegerAttr(7, i64) if isinstance(tree, IntegerAttr) else tree for tree in call.args.data]
    call.properties["args"] = type(call.args)(trees)


def test_a_pass_without_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xdsl.transforms.canonicalize import CanonicalizePass

    monkeypatch.setattr(CanonicalizePass, "apply", lambda self, ctx, op: _change_a_number(op))
    result = search(tmp_path, "functionalize,canonicalize")
    assert (result.position, result.rewrite, result.spec) == (1, None, "canonicalize")
    assert result.note == "pass 'canonicalize' has no limit of rewrites"
    assert result.command.endswith("-p canonicalize --validate")


def test_signatures_that_change() -> None:
    module = ir.import_callable(program, *tensors())
    functional = ir.run_passes(module.clone(), "functionalize")
    pure = ir.run_passes(module.clone(), "alias-outputs,functionalize")
    assert same_signature(module, functional)
    assert not same_signature(module, pure)


def test_the_option_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "before.mlir"
    path.write_text(str(ir.import_callable(program, *tensors())))
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        assert main([str(path), "-p", "functionalize{limit=2},functionalize"]) == 0
        assert main([str(path), "-p", "functionalize{limit=-2}"]) == 1
    assert "vllm_ir.func functional" in output.getvalue()
    assert "pass 'functionalize': option limit is -2, it takes a number of rewrites: 0 or more" in errors.getvalue()
