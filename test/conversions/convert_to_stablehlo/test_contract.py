"""The signature of converted functions: what aliases what, and how XLA takes it."""

import re

import pytest
import torch
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir


def update(kv: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
    return [kv.select_scatter(x, 0, 1), x * 2, kv.reshape(4, 3) + 1, kv.to(torch.int32)]


def with_aliases(*aliases: int | None) -> ModuleOp:
    """The program above, its results marked as the new contents of these arguments."""
    module = ir.import_callable(update, torch.zeros(3, 4), torch.ones(4))
    ir.run_passes(module, "functionalize")
    main = next(iter(module.body.block.ops))
    entries: list[dict[str, Attribute]] = [
        {} if alias is None else {"vllm_ir.aliases": IntegerAttr(alias, i64)} for alias in aliases
    ]
    main.set_result_attributes(entries)  # pyright: ignore[reportAttributeAccessIssue]  # it is a function
    return module


def converted(module: ModuleOp, options: str = "") -> str:
    return str(ir.run_passes(module, f"convert-to-stablehlo{options}", check=False))


def test_xla_takes_the_aliases(xla) -> None:
    from jaxlib import _jax

    text = xla.verified(converted(with_aliases(0, 1, None, None)))
    assert re.findall(r"tf.aliasing_output = (\d)", text) == ["0", "1"]
    computation = _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=True)
    assert "input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }" in computation.as_hlo_text()


def test_without_aliases(xla) -> None:
    text = xla.verified(converted(with_aliases(0, 1, None, None), "{alias=none}"))
    assert "tf.aliasing_output" not in text


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ((0, 0, None, None), "result 1 (4 f32) aliases argument 0 (3x4 f32), which has another shape or element type"),
        ((None, None, 0, None), "result 2 (4x3 f32) aliases argument 0 (3x4 f32), which has another shape"),
        ((None, None, None, 0), "result 3 (3x4 i32) aliases argument 0 (3x4 f32), which has another shape"),
        ((7, None, None, None), "result 0 aliases argument 7 : i64, there are 2 arguments"),
        ((-1, None, None, None), "result 0 aliases argument -1 : i64, there are 2 arguments"),
    ],
)
def test_wrong_aliases_are_refused(aliases: tuple[int | None, ...], message: str) -> None:
    """XLA compares byte counts only, and some of these crash it."""
    with pytest.raises(PassFailedException, match=re.escape(message)):
        converted(with_aliases(*aliases))


def test_one_argument_is_aliased_once() -> None:
    module = ir.import_callable(lambda x: (x + 1, x * 2), torch.zeros(3))
    ir.run_passes(module, "functionalize")
    main = next(iter(module.body.block.ops))
    alias: dict[str, Attribute] = {"vllm_ir.aliases": IntegerAttr(0, i64)}
    main.set_result_attributes([alias, alias])  # pyright: ignore[reportAttributeAccessIssue]  # it is a function
    with pytest.raises(PassFailedException, match="results 0 and 1 both alias argument 0"):
        converted(module)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="option alias is 'must', it takes may or none"):
        converted(with_aliases(None, None, None, None), "{alias=must}")


def test_equal_operations_are_decomposed_once(xla) -> None:
    """A program of many equal layers traces a definition once."""
    from vllm_ir.conversions.convert_to_stablehlo import decompose

    traced: list[object] = []
    original = decompose.trace_callable

    def counting(*arguments: object, **keywords: object) -> object:
        traced.append(arguments)
        return original(*arguments, **keywords)  # pyright: ignore[reportArgumentType]  # passes on what it gets

    decompose.trace_callable = counting  # pyright: ignore[reportAttributeAccessIssue]
    try:
        xla.converted(lambda x: torch.nn.functional.mish(torch.nn.functional.mish(x)) + 1, torch.ones(3))
    finally:
        decompose.trace_callable = original
    assert len(traced) == 1
