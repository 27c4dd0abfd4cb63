"""Which implementation runs: priority lists, rejections, contexts, configs."""

import contextvars
import threading

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.frontends.ops import IrOpPriorityConfig, KernelConfig, ops, register_op


@register_op(allow_inplace=True)
def priority_op(x: Tensor, scale: int, weight: Tensor | None = None) -> Tensor:
    return x * scale


def small(x: Tensor, scale: int, weight: Tensor | None) -> bool:
    return x.shape[0] <= 2 and weight is None


@priority_op.register_impl("small", supports_args=small)
def _(x: Tensor, scale: int, weight: Tensor | None = None) -> Tensor:
    return x * scale + 100


@priority_op.register_impl("any")
def _(x: Tensor, scale: int, weight: Tensor | None = None) -> Tensor:
    return x * scale + 200


@priority_op.register_impl("absent", supported=False)
def _(x: Tensor, scale: int, weight: Tensor | None = None) -> Tensor:
    raise AssertionError("must not run")


@priority_op.register_impl("raising", supports_args=lambda x, scale, weight: 1 // 0)
def _(x: Tensor, scale: int, weight: Tensor | None = None) -> Tensor:
    raise AssertionError("must not run")


@priority_op.register_impl("vague", supports_args=lambda x, scale, weight: None)
def _(x: Tensor, scale: int, weight: Tensor | None = None) -> Tensor:
    raise AssertionError("must not run")


ONE, THREE = torch.ones(1), torch.ones(3)


def test_native_is_the_default() -> None:
    assert priority_op.get_priority() == []
    assert priority_op.dispatch(ONE, 2).provider == "native"
    assert priority_op(ONE, 2).item() == 2


def test_providers() -> None:
    assert list(priority_op.impls) == ["native", "small", "any", "absent", "raising", "vague"]
    assert priority_op.supported_providers() == ["native", "small", "any", "raising", "vague"]
    impl = priority_op.impls["small"]
    assert (impl.provider, impl.supported, impl.inplace) == ("small", True, False)
    assert impl.supports_args(ONE, 2)
    assert not impl.supports_args(THREE, scale=2)
    assert not impl.supports_all_args
    assert priority_op.impls["absent"].rejection([ONE, 2, None]) == "not supported in this process"
    assert priority_op.impls["absent"].supports_all_args


def test_the_first_that_accepts_runs() -> None:
    with priority_op.set_priority(["absent", "small", "any"]):
        assert priority_op.get_priority() == ["small", "any"]
        assert priority_op(ONE, 2).item() == 102
        assert priority_op(ONE, 2, ONE).item() == 202
        assert priority_op(THREE, 2)[0].item() == 202
        assert priority_op.maybe_inplace(THREE, 2)[0].item() == 202
        with priority_op.set_priority(["small"]):
            assert priority_op(THREE, 2)[0].item() == 2
        assert priority_op.get_priority() == ["small", "any"]
    with priority_op.set_priority(["native", "any"]):
        assert priority_op.get_priority() == ["native"]
        assert priority_op(ONE, 2).item() == 2
    with priority_op.set_priority(["small"]):
        assert priority_op.get_priority() == ["small", "native"]
    with priority_op.set_priority([]):
        assert priority_op.get_priority() == []


def test_select_gives_reasons() -> None:
    with priority_op.set_priority(["absent", "small", "any"]):
        impl, rejected = priority_op.select([THREE, 2])
    assert impl.provider == "any"
    assert rejected == [("absent", "not supported in this process"), ("small", "supports_args refused the arguments")]
    impl, rejected = priority_op.select([THREE, 2], ["small"])
    assert (impl.provider, rejected) == ("native", [("small", "supports_args refused the arguments")])


def test_select_on_fake_tensors() -> None:
    with FakeTensorMode() as mode, priority_op.set_priority(["small"]):
        assert priority_op.dispatch(mode.from_tensor(ONE), 2).provider == "small"
        assert priority_op.dispatch(mode.from_tensor(THREE), 2).provider == "native"


def test_faults_of_supports_args_are_errors() -> None:
    with (
        priority_op.set_priority(["raising"]),
        pytest.raises(
            RuntimeError, match=r"priority_op: supports_args of provider 'raising' \(.*\) raised ZeroDiv"
        ) as e,
    ):
        priority_op(ONE, 2)
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    with priority_op.set_priority(["vague"]), pytest.raises(TypeError, match="must return a bool, got NoneType"):
        priority_op(ONE, 2)


def test_refused_lists() -> None:
    known = "known providers: native, small, any, absent, raising, vague; did you mean 'small'?"
    for use in (priority_op.set_priority, priority_op.set_default, lambda names: priority_op.select([ONE, 2], names)):
        with pytest.raises(ValueError, match=f"priority_op: no implementation by 'smal', 'x'; {known}"):
            use(["smal", "any", "x"])
        with pytest.raises(ValueError, match="priority names 'any' more than once"):
            use(["any", "any"])
        with pytest.raises(TypeError, match="priority must be a list of provider names, got the string 'any'"):
            use("any")
        with pytest.raises(TypeError, match="a provider name must be a string, got 3"):
            use([3])
    assert priority_op.get_priority() == []


def test_wrong_number_of_arguments() -> None:
    with pytest.raises(TypeError, match="priority_op: missing argument 'scale'"):
        priority_op.dispatch(ONE)
    with pytest.raises(TypeError, match="priority_op: takes 3 arguments, got 4"):
        priority_op.dispatch(ONE, 2, None, None)


def test_default_belongs_to_the_process_and_override_to_the_context() -> None:
    seen: list[list[str]] = []

    def look() -> None:
        seen.append(priority_op.get_priority())

    priority_op.set_default(["small"])
    try:
        with priority_op.set_priority(["any"]):
            context = contextvars.copy_context()
            for target in (look, lambda: context.run(look)):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join()
        look()
    finally:
        priority_op.clear_default()
    assert seen == [["small", "native"], ["any"], ["small", "native"]]


def test_priority_is_restored_after_an_error() -> None:
    with pytest.raises(KeyError), priority_op.set_priority(["any"]):
        raise KeyError
    assert priority_op.get_priority() == []


def test_config() -> None:
    config = KernelConfig(ir_op_priority={"priority_op": ["any", "native"], "rms_norm": []})
    same = KernelConfig(IrOpPriorityConfig(rms_norm=(), priority_op=("any", "native")))
    assert config == same
    assert hash(config) == hash(same)
    assert repr(same.ir_op_priority) == "IrOpPriorityConfig(priority_op=['any', 'native'], rms_norm=[])"
    with ops.silu_and_mul.set_priority(["native"]), config.apply():
        assert priority_op.get_priority() == ["any"]
        assert priority_op(ONE, 2).item() == 202
        assert ops.silu_and_mul.get_priority() == ["native"]
    assert priority_op.get_priority() == []
    with KernelConfig().apply():
        assert priority_op.get_priority() == []
    with pytest.raises(AttributeError):
        config.ir_op_priority = {}


def test_refused_configs() -> None:
    with pytest.raises(ValueError, match="priority names 'any' more than once"):
        IrOpPriorityConfig(priority_op=["any", "any"])
    with pytest.raises(TypeError, match="got the string 'any'"):
        KernelConfig(ir_op_priority={"priority_op": "any"})
    with pytest.raises(AttributeError, match="vllm_ir has no op 'priority_po'"):
        KernelConfig(ir_op_priority={"priority_po": ["any"]}).apply()
    with pytest.raises(ValueError, match="priority_op: no implementation by 'smal'"):
        IrOpPriorityConfig(priority_op=["smal"]).apply()
