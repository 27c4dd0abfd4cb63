"""Registration of ops and implementations, and every message it can refuse them with."""

import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import IrOp, get_op, ops, register_op


@register_op
def registry_scale(x: Tensor, x1: Tensor, x_list: list[Tensor], extra: Tensor | None, by: float = 2.0) -> Tensor:
    return x * by


@register_op(name="registry_pair", activations=["second", "first"])
def written_otherwise(first: Tensor, scale: int, second: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return first * scale, first


@register_op(allow_inplace=False)
def registry_functional_only(x: Tensor) -> Tensor:
    return x + 1


@register_op
def registry_no_activation(values: Tensor) -> Tensor:
    return values + 1


def test_builtin_ops() -> None:
    assert {"rms_norm", "fused_add_rms_norm", "silu_and_mul", "rotary_embedding"} <= set(ops)
    assert "rms_norm" in ops
    assert "rms_norm" in dir(ops)
    assert ops.fused_add_rms_norm.activations == ("x", "x_residual")
    assert ops.fused_add_rms_norm.activation_indices == (0, 1)
    assert ops.rotary_embedding.activation_indices == (1, 2)
    assert ops.rms_norm.activations == ops.silu_and_mul.activations == ("x",)
    assert str(ops.fused_add_rms_norm.schema) == (
        "vllm_ir::fused_add_rms_norm(Tensor x, Tensor x_residual, Tensor? weight, float epsilon, "
        "SymInt? variance_size=None) -> (Tensor, Tensor)"
    )


def test_overloads_are_torch_ops_of_one_schema() -> None:
    for name in ("rms_norm", "fused_add_rms_norm", "silu_and_mul", "rotary_embedding", "registry_pair"):
        op, packet = ops[name], getattr(torch.ops.vllm_ir, name)
        assert isinstance(op, IrOp)
        assert op.name == name
        assert op.torch_op is packet.default
        assert op.maybe_inplace is packet.maybe_inplace
        assert str(op.torch_op._schema) == str(op.schema)
        assert str(op.maybe_inplace._schema) == str(op.schema).replace("(", ".maybe_inplace(", 1)
        assert not op.maybe_inplace._schema.is_mutable


def test_get_op() -> None:
    assert get_op(torch.ops.vllm_ir.rms_norm.default) is ops.rms_norm
    assert get_op(torch.ops.vllm_ir.rms_norm.maybe_inplace) is ops.rms_norm
    assert get_op(torch.ops.aten.add.Tensor) is None
    assert get_op(torch.add) is None
    assert get_op("rms_norm") is None


def test_activations() -> None:
    assert registry_scale.activations == ("x", "x1")
    pair = ops.registry_pair
    assert pair is written_otherwise
    assert (pair.activations, pair.activation_indices) == (("first", "second"), (0, 2))
    assert registry_functional_only.activations == ("x",)
    assert registry_functional_only.maybe_inplace is None
    assert registry_no_activation.maybe_inplace is None
    assert get_op(torch.ops.vllm_ir.registry_functional_only.default) is registry_functional_only


def test_results_are_fresh_even_if_the_native_definition_returns_an_operand() -> None:
    first = torch.ones(3)
    scaled, same = written_otherwise(first, 1)
    assert torch.equal(same, first)
    same.zero_()
    assert torch.equal(first, torch.ones(3))
    assert torch.equal(scaled, torch.ones(3))


def test_unknown_op() -> None:
    with pytest.raises(AttributeError, match=r"vllm_ir has no op 'rms_nrom'; known ops: .*rms_norm"):
        _ = ops.rms_nrom


def test_an_op_registered_twice_names_both_places() -> None:
    def registry_scale(x: Tensor) -> Tensor:
        return x

    with pytest.raises(ValueError, match=r"registry_scale is registered twice: at .*py:\d+ and at .*py:\d+") as caught:
        register_op(registry_scale)
    for fn in (ops.registry_scale.native, registry_scale):
        assert f"test_registry.py:{fn.__code__.co_firstlineno}" in str(caught.value)


def missing_annotation(x) -> Tensor:
    return x


def missing_result(x: Tensor):
    return x


def odd_type(x: Tensor, options: dict) -> Tensor:
    return x


def keyword_only(x: Tensor, *, scale: float) -> Tensor:
    return x


def number_result(x: Tensor) -> float:
    return 1.0


def list_result(x: Tensor) -> list[Tensor]:
    return [x]


def no_result(x: Tensor) -> None:
    return None


@pytest.mark.parametrize(
    ("native", "message"),
    [
        (missing_annotation, "Parameter x must have a type annotation"),
        (missing_result, "No return type annotation"),
        (odd_type, "Parameter options has unsupported type <class 'dict'>"),
        (keyword_only, "every parameter must be an ordinary positional one"),
        (number_result, "results must be a Tensor or a tuple of Tensors, got .* -> float"),
        (list_result, "results must be a Tensor or a tuple of Tensors"),
        (no_result, "results must be a Tensor or a tuple of Tensors"),
        (torch.relu, "expected a Python function with annotations"),
    ],
)
def test_signatures_that_are_no_op(native, message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        register_op(name="registry_refused")(native)
    assert str(caught.value).startswith("vllm_ir.registry_refused")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "registry_refused" not in ops


def fine(values: Tensor) -> Tensor:
    return values + 1


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"activations \['vales'\] are not tensor parameters; those are \['values'\]"):
        register_op(name="registry_refused", activations=["vales"])(fine)
    with pytest.raises(TypeError, match="activations must be a list of parameter names, got the string 'values'"):
        register_op(name="registry_refused", activations="values")(fine)
    with pytest.raises(ValueError, match="allow_inplace needs activations"):
        register_op(name="registry_refused", allow_inplace=True)(fine)
    for name in ("no-name", "_private", ""):
        with pytest.raises(ValueError, match="cannot name an op: it must be a public identifier"):
            register_op(name=name)(fine)
    assert "registry_refused" not in ops


def test_implementation_signature_must_be_the_ops() -> None:
    with pytest.raises(
        TypeError, match=r"'other' \(.*py:\d+\) has the signature \(Tensor x, .*but the op has \(Tensor x"
    ):

        @registry_functional_only.register_impl("other")
        def _(x: Tensor, more: int) -> Tensor:
            return x

    with pytest.raises(TypeError, match=r"provider 'other'.*Parameter x must have a type annotation"):
        registry_functional_only.register_impl("other")(missing_annotation)
    with pytest.raises(TypeError, match=r"supports_args .* must take the op's 1 arguments"):

        @registry_functional_only.register_impl("other", supports_args=lambda x, y: True)
        def _(x: Tensor) -> Tensor:
            return x

    assert list(registry_functional_only.impls) == ["native"]


def test_a_provider_registered_twice_names_both_places() -> None:
    def implementation(x: Tensor) -> Tensor:
        return x + 1

    returned = registry_functional_only.register_impl("twice")(implementation)
    assert returned is implementation
    with pytest.raises(
        ValueError, match=r"registry_functional_only: provider 'twice' is registered twice: at .*py:\d+"
    ):
        registry_functional_only.register_impl("twice")(implementation)
    with pytest.raises(ValueError, match=r"provider 'native' is registered twice: at .*test_registry.py:\d+ and at"):
        registry_functional_only.register_impl("native")(implementation)


def test_in_place_needs_an_activation() -> None:
    with pytest.raises(ValueError, match="provider 'p' cannot be in place: the op has no activations"):
        registry_no_activation.register_impl("p", inplace=True)


def test_wrong_results_of_an_implementation() -> None:
    @register_op
    def registry_results(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x + 2

    @registry_results.register_impl("one")
    def _(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1  # the fault under test

    @registry_results.register_impl("numbers")
    def _(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, 3  # the fault under test

    with (
        registry_results.set_priority(["one"]),
        pytest.raises(TypeError, match=r"provider 'one' \(.*\) must return 2 tensors, got Tensor$"),
    ):
        registry_results(torch.ones(2))
    with (
        registry_results.set_priority(["numbers"]),
        pytest.raises(TypeError, match="must return 2 tensors, got Tensor, int"),
    ):
        registry_results(torch.ones(2))
