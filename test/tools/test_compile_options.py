"""`mode` and `options` of the backends."""

import pytest

from vllm_ir.frontends.ops import IrOpPriorityConfig, ops
from vllm_ir.tools.options import DEFAULT_PASSES, parse_options


def test_without_options_everything_is_default():
    options = parse_options(None, None)
    assert options.passes == DEFAULT_PASSES
    assert options.inductor == {}
    assert options.priorities == IrOpPriorityConfig()


def test_modes_and_options_reach_inductor_as_torch_compile_resolves_them():
    options = parse_options("max-autotune-no-cudagraphs", {"max-fusion-size": 3, "passes": "functionalize"})
    assert options.passes == "functionalize"
    assert options.inductor == {"max_autotune": True, "coordinate_descent_tuning": True, "max_fusion_size": 3}


@pytest.mark.parametrize(
    ("mode", "options", "error", "message"),
    [
        (
            None,
            {"max_autotun": True},
            ValueError,
            "unknown option 'max_autotun'; known options: ir_op_priority .*passes",
        ),
        (None, {"a": 1, "b": 2}, ValueError, "unknown options 'a', 'b'; .* every option of Inductor"),
        (None, {"max_autotune": "yes"}, RuntimeError, "max_autotune, got str should be bool"),
        (None, {"freezing": True}, ValueError, "option 'freezing' is not supported: parameters stay arguments"),
        ("fastest", None, RuntimeError, "mode=fastest"),
        (None, {"passes": 3}, TypeError, "option passes must be a pass pipeline as text.*, got 3"),
        (None, {"passes": "functionalise"}, ValueError, "unknown pass 'functionalise'"),
        (None, {"ir_op_priority": "native"}, TypeError, "option ir_op_priority must be .*, got 'native'"),
        (None, {"ir_op_priority": {"rms_norm": "native"}}, TypeError, "got the string 'native'"),
        (None, {"ir_op_priority": {"rms_norm": ["a", "a"]}}, ValueError, "'a' more than once"),
    ],
)
def test_wrong_options_are_refused(mode: str | None, options: dict[str, object], error: type, message: str):
    with pytest.raises(error, match=message):
        parse_options(mode, options)


@pytest.mark.parametrize(
    ("priority", "message"),
    [({"rms_nrom": ["native"]}, "no op 'rms_nrom'; known ops: .*rms_norm"), ({"rms_norm": ["x"]}, "known providers")],
)
def test_ops_and_providers_are_looked_up_when_priorities_are_applied(priority: dict[str, list[str]], message: str):
    options = parse_options(None, {"ir_op_priority": priority})
    with pytest.raises(ValueError, match=message), options.apply_priorities():
        pass


def test_resolved_options_keep_the_priorities_of_the_moment():
    with ops.rms_norm.set_priority(["native"]):
        before = parse_options(None, None).resolved()
    with before.apply_priorities():
        assert ops.rms_norm.get_priority() == ["native"]
    assert ("rms_norm", ("native",)) in before.priorities.priorities
