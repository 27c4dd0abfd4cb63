"""Registration of ops and implementations, and every message it can refuse them with."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import IrOp, IrOpImpl, IrOpInplaceOverload, get_op, ops, register_op, unregister


@register_op(allow_inplace=True)
def registry_scale(x: Tensor, x1: Tensor, x_list: list[Tensor], extra: Tensor | None, by: float = 2.0) -> Tensor:
    return x * by


@register_op(name="registry_pair", activations=["second", "first"], allow_inplace=True)
def written_otherwise(first: Tensor, scale: int, second: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return first * scale, first


@register_op
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
        assert isinstance(op.maybe_inplace, IrOpInplaceOverload)
        assert op.maybe_inplace.op is op
        assert op.maybe_inplace.torch_op is packet.maybe_inplace
        assert str(op.torch_op._schema) == str(op.schema)
        arguments = op.maybe_inplace.torch_op._schema.arguments
        assert tuple(argument.name for argument in arguments) == op.parameters
        assert tuple(argument.name for argument in arguments if argument.is_write) == op.activations


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


def variadic(x: Tensor, *more: Tensor) -> Tensor:
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
        (keyword_only, "parameter 'scale' is one of the keyword-only arguments"),
        (variadic, "parameter 'more' must be an ordinary positional one"),
        (number_result, "results must be a Tensor or a tuple of Tensors, got .* -> float"),
        (list_result, "results must be a Tensor or a tuple of Tensors"),
        (no_result, "results must be a Tensor or a tuple of Tensors"),
        (torch.relu, "expected a Python function with annotations"),
    ],
)
def test_signatures_that_are_no_op(native, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
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
    with pytest.raises(ValueError, match="activations must be a list of parameter names, got the string 'values'"):
        register_op(name="registry_refused", activations="values")(fine)
    with pytest.raises(ValueError, match="allow_inplace needs activations"):
        register_op(name="registry_refused", allow_inplace=True)(fine)
    for name in ("no-name", "Upper", "1st", ""):
        with pytest.raises(ValueError, match=r"op name '.*' \(.*\) is invalid: it must match"):
            register_op(name=name)(fine)
    assert "registry_refused" not in ops


def test_implementation_signature_must_be_the_ops() -> None:
    with pytest.raises(
        ValueError, match=r"'other' \(.*py:\d+\) has the schema \(Tensor x, .*does not match native schema \(Tensor x"
    ):

        @registry_functional_only.register_impl("other")
        def _(x: Tensor, more: int) -> Tensor:
            return x

    with pytest.raises(ValueError, match=r"provider 'other'.*Parameter x must have a type annotation"):
        registry_functional_only.register_impl("other")(missing_annotation)
    with pytest.raises(ValueError, match=r"provider name 'Other-1' \(.*\) is invalid: it must match"):
        registry_functional_only.register_impl("Other-1")(same)
    assert list(registry_functional_only.impls) == ["native"]


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (True, "supports_args must be a callable, got True"),
        (lambda first, scale: True, "the number of parameters is 2, the native definition has 3"),
        (lambda first, *, scale, second: True, r"keyword-only parameters \['scale', 'second'\]"),
        (lambda first, size, second: True, "parameter 1 is 'size', which does not match native parameter 'scale'"),
        (lambda first, scale, second=1: True, "default of 'second' is 1, which does not match native default None"),
        (lambda first, scale=2, second=None: True, r"default of 'scale' is 2, which does not match native default \(n"),
    ],
)
def test_predicates_take_the_ops_parameters(predicate, message: str) -> None:
    def implementation(first: Tensor, scale: int, second: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return first, first

    with pytest.raises(ValueError, match=message):
        written_otherwise.register_impl("other", supports_args=predicate)(implementation)
    assert list(written_otherwise.impls) == ["native"]


def test_predicates_may_leave_out_defaults_and_mark_what_they_do_not_use() -> None:
    def implementation(first: Tensor, scale: int, second: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return first * 2, first

    accepting = [lambda first, _scale, _second=None: True, lambda first, scale, second: True, lambda *_: True]
    for number, predicate in enumerate(accepting):
        impl = written_otherwise.register_impl(f"fine_{number}", supports_args=predicate)(implementation)
        assert impl.supports_args(torch.ones(1), 2)
        written_otherwise.remove_impl(f"fine_{number}")


def same(x: Tensor) -> Tensor:
    return x + 1


def test_a_provider_registered_twice_names_both_places() -> None:
    def implementation(x: Tensor) -> Tensor:
        return x + 1

    returned = registry_functional_only.register_impl("twice")(implementation)
    assert isinstance(returned, IrOpImpl)
    assert returned is registry_functional_only.impls["twice"]
    assert (returned.op, returned.provider) == (registry_functional_only, "twice")
    assert torch.equal(returned(torch.ones(2)), implementation(torch.ones(2)))
    assert returned.registration_stack[-1].filename == __file__
    with pytest.raises(
        ValueError, match=r"registry_functional_only: provider 'twice' is registered twice: at .*py:\d+"
    ):
        registry_functional_only.register_impl("twice")(implementation)
    for provider in ("native", "unfused"):
        with pytest.raises(ValueError, match=f"provider '{provider}' .* is reserved; use another name"):
            registry_functional_only.register_impl(provider)(implementation)


def test_in_place_needs_an_activation() -> None:
    with pytest.raises(ValueError, match="provider 'p' cannot be in place: the op has no activations"):
        registry_no_activation.register_impl("p", inplace=True)
    with pytest.raises(ValueError, match="cannot be in place: the op was registered without allow_inplace=True"):
        registry_functional_only.register_impl("p", inplace=True)
    with pytest.raises(ValueError, match=r"inplace \['scale'\] are not activations; those are \['first', 'second'\]"):
        written_otherwise.register_impl("p", inplace=["scale"])


def test_only_what_an_implementation_writes_is_copied() -> None:
    seen: list[tuple[int, int]] = []

    def implementation(first: Tensor, scale: int, second: Tensor | None = None) -> tuple[Tensor, Tensor]:
        seen.append((first.data_ptr(), second.data_ptr()))
        second.add_(first)
        return second, first + 1

    impl = written_otherwise.register_impl("half", inplace=["second"])(implementation)
    assert (impl.written, impl.written_indices, impl.inplace) == (("second",), (2,), True)
    first, second = torch.ones(3), torch.ones(3)
    with written_otherwise.set_priority(["half"]):
        written_otherwise(first, 1, second)
        got, _ = written_otherwise.maybe_inplace(first, scale=1, second=second)
    written_otherwise.remove_impl("half")
    assert [a == first.data_ptr() for a, _ in seen] == [True, True]
    assert [b == second.data_ptr() for _, b in seen] == [False, True]
    assert got.data_ptr() == second.data_ptr()
    assert torch.equal(second, torch.full((3,), 2.0))


def test_which_result_may_reuse_which_activation() -> None:
    assert ops.fused_add_rms_norm.reuses == ("x", "x_residual")
    assert ops.silu_and_mul.reuses == ("x",)

    def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x + y

    assert IrOp("registry_direct_one", two).reuses == ("x", None)
    assert IrOp("registry_direct_two", two, reuses=[None, "x"]).reuses == (None, "x")
    for reuses, message in ((["x"], "with an entry for each of 2 results"), ([None, "y"], r"\['y'\] are not activ")):
        with pytest.raises(ValueError, match=f"registry_refused: reuses .*{message}"):
            register_op(name="registry_refused", reuses=reuses)(two)


def test_direct_construction_and_unregister() -> None:
    direct = IrOp("registry_direct", same)
    assert "registry_direct" not in IrOp.registry
    assert "registry_direct" not in ops
    assert torch.equal(direct(torch.ones(1)), torch.full((1,), 2.0))
    direct.undefine()
    for _ in range(2):
        op = register_op(name="registry_passing")(same)
        assert IrOp.registry["registry_passing"] is ops.registry_passing is op
        assert get_op(op.torch_op) is op
        unregister(op)
        assert "registry_passing" not in ops
        assert get_op(op.torch_op) is None
        assert not hasattr(torch.ops.vllm_ir, "registry_passing")
        with pytest.raises(ValueError, match="registry_passing is not registered"):
            unregister(op)


def test_an_op_in_words() -> None:
    assert repr(ops.rms_norm) == "IrOp('rms_norm')"
    assert str(ops.rms_norm) == "IrOp('rms_norm'): `x / sqrt(mean(x**2) + epsilon) * weight` over the last dimension."
    assert str(registry_functional_only) == repr(registry_functional_only) == "IrOp('registry_functional_only')"
    assert registry_functional_only.registration_stack[-1].filename == __file__


def test_keyword_calls() -> None:
    x = torch.ones(2)
    for call in (written_otherwise, written_otherwise.maybe_inplace, written_otherwise.torch_op):
        assert torch.equal(call(scale=2, first=x)[0], x * 2)
    assert written_otherwise.apply_arg_defaults(x, scale=2) == ((x, 2, None), {})
    for args, kwargs, message in (
        ((x,), {"size": 2}, "argument 'size' is unknown; there are"),
        ((x,), {"first": x}, "argument 'first' is given twice"),
        ((), {"first": x}, "missing argument 'scale'"),
    ):
        with pytest.raises(TypeError, match=message):
            written_otherwise(*args, **kwargs)


def test_a_fake_of_its_own() -> None:
    @register_op
    def registry_faked(x: Tensor) -> Tensor:
        return x.nonzero().double() * 2

    @registry_faked.register_fake
    def fake(x: Tensor) -> Tensor:
        return x.new_empty((7, x.dim()), dtype=torch.float64)

    assert registry_faked(torch.ones(3, device="meta")).shape == (7, 1)
    assert registry_faked(torch.ones(3)).shape == (3, 1)


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


def test_ops_are_what_they_are_when_models_are_copied_or_pickled() -> None:
    for op in (ops.rms_norm, ops.fused_add_rms_norm.maybe_inplace):
        assert copy.deepcopy([op])[0] is op
        assert pickle.loads(pickle.dumps(op)) is op
