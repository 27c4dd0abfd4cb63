"""The engine of fusions: what matches, in which order, what is refused, and that the meaning stays."""

import logging
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.conversions.fusion.commutativity import is_commutative
from vllm_ir.tools.validation.validate import compare


def fused(function, fusions, *inputs, **options):
    """The functional module of a program, and what the pass makes of it."""
    module = ir.run_passes(ir.import_callable(function, *inputs), "functionalize")
    before = module.clone()
    given = " ".join(f"{name}={value}" for name, value in options.items())
    with ir.using_fusions(*fusions):
        ir.run_passes(module, f"fuse{{only={','.join(f.name for f in fusions)} explain=true {given}}}")
    module.verify()
    verdict = compare("fuse", before, module)
    assert verdict.status in ("exact", "rounding"), verdict
    return module


def places(module, name="vllm_ir.fused") -> dict[str, int]:
    found = module.attributes.get(name)
    return {} if found is None else {key: len(value.data) for key, value in found.data.items()}


def reasons(module) -> str:
    return str(module.attributes.get("vllm_ir.unfused", ""))


def fusion(before, after, *examples, **options) -> ir.Fusion:
    return ir.Fusion(options.pop("name", "test"), before, after, lambda: examples, **options)


X, Y, Z = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)


def test_a_tensor_that_nothing_tells_is_no_operand():
    pair = fusion(lambda x, y: torch.sin(x), lambda x, y: torch.sin(x) + y, (X, Y))
    with pytest.raises(ValueError, match="argument 1 is a tensor that no operation of before takes"):
        fused(torch.sin, [pair], X)


def test_several_outputs_that_no_root_reaches():
    """Two norms of one value: the second is found as a user of what both take."""

    def before(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return ir.ops.rms_norm(x, w, 1e-5), ir.ops.rms_norm(x, v, 1e-5)

    def after(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        normed = ir.ops.rms_norm(x, None, 1e-5)
        return normed * w, normed * v

    pair = fusion(before, after, (X, torch.randn(4), torch.randn(4)))
    program = lambda x, w, v: (ir.ops.rms_norm(x, w, 1e-5).sin(), ir.ops.rms_norm(x, v, 1e-5))  # noqa: E731
    assert places(fused(program, [pair], X, torch.randn(4), torch.randn(4))) == {"test": 1}


def test_parameters_may_be_any_number_and_mean_the_same_everywhere():
    clip = fusion(
        lambda x, low: torch.relu(x - low) + low, lambda x, low: torch.clamp(x - low, min=0.0) + low, (X, 0.625)
    )
    assert places(fused(lambda x: torch.relu(x - 0.25) + 0.25, [clip], X)) == {"test": 1}
    other = fused(lambda x: torch.relu(x - 0.25) + 0.5, [clip], X)
    assert places(other) == {}
    assert "@aten.sub.Tensor: argument 1 is 0.25, the pattern has 0.5" in reasons(other)


def test_operands_change_places_only_where_nobody_can_tell():
    minus = fusion(lambda x, y: torch.sin(x) - torch.cos(y), lambda x, y: -(torch.cos(y) - torch.sin(x)), (X, Y))
    assert places(fused(lambda x, y: torch.sin(x) - torch.cos(y), [minus], X, Y)) == {"test": 1}
    assert places(fused(lambda x, y: torch.cos(x) - torch.sin(y), [minus], X, Y)) == {}
    plus = fusion(lambda x, y: torch.sin(x) + torch.cos(y), lambda x, y: torch.cos(y) + torch.sin(x), (X, Y))
    assert places(fused(lambda x, y: torch.cos(x) + torch.sin(y), [plus], X, Y)) == {"test": 1}


@pytest.mark.parametrize(
    ("operator", "answer"),
    [
        ("aten.add.Tensor", True),
        ("aten.mul.Tensor", True),
        ("aten.maximum.default", False),  # of 0.0 and -0.0 it gives the first
        ("aten.bitwise_and.Tensor", True),
        ("aten.sub.Tensor", False),
        ("aten.div.Tensor", False),
        ("aten.pow.Tensor_Tensor", False),
        ("aten.copysign.Tensor", False),
        ("aten.mm.default", False),
        ("aten.relu.default", False),
        ("vllm_ir.rms_norm", False),
    ],
)
def test_commutativity_is_found_out(operator: str, answer: bool):
    assert is_commutative(operator) is answer


def test_one_value_may_be_several_operands():
    square = fusion(lambda x, y: torch.sin(x) * torch.sin(y), lambda x, y: torch.sin(y) * torch.sin(x), (X, Y))
    assert places(fused(lambda x: torch.sin(x) * torch.sin(x), [square], X)) == {"test": 1}
    assert places(fused(lambda x: (y := torch.sin(x)) * y, [square], X)) == {"test": 1}  # one sine for both


def test_a_value_that_others_use_stays():
    twice = fusion(lambda x: torch.sin(torch.cos(x)), lambda x: torch.sin(torch.cos(x) * 1.0), (X,))

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        inner = torch.cos(x)
        return torch.sin(inner), inner + 1

    module = fused(program, [twice], X)
    assert places(module) == {}
    assert "%cos is also used by %add" in reasons(module)


def test_a_miss_in_a_program_that_lacks_an_operator_is_explained():
    """The operator stands in the pattern where the program has another one."""
    pair = fusion(lambda x, y: torch.sigmoid(torch.relu(x) + y), lambda x, y: torch.sigmoid(y + x.relu()), (X, Y))
    module = fused(lambda x, y: torch.sigmoid(torch.tanh(x) + y), [pair], X, Y)
    assert "aten.relu.default is expected here" in reasons(module)
    module = fused(lambda x, y: torch.tanh(x) + y, [pair], X, Y)
    assert reasons(module) == ""
    assert str(module.attributes["vllm_ir.unlike"]) == '{test = ["aten.relu.default", "aten.sigmoid.default"]}'


def test_operands_that_a_pattern_refuses_are_no_errors_in_the_log(request):
    """torch logs a traceback where an operator refuses tensors without data."""
    logged: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = logged.append
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(handler)
    request.addfinalizer(lambda: logger.removeHandler(handler))

    def rows(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.split([1, 2], 0)
        return ir.ops.rms_norm(first, None, 1e-6), ir.ops.rms_norm(second, None, 1e-6)

    def columns(x: Tensor, left: int, right: int) -> tuple[Tensor, Tensor]:
        first, second = x.split([left, right], -1)
        return ir.ops.rms_norm(first, None, 1e-6), ir.ops.rms_norm(second, None, 1e-6)

    module = fused(rows, [fusion(columns, columns, (torch.randn(3, 7), 3, 4))], X)
    assert "Split sizes add up to 3" in reasons(module)
    assert logged == []


def test_the_reason_of_the_variant_that_got_furthest_is_given():
    """Of two variants one has another flag, and the other one fits but for a value that is used elsewhere."""
    pair = fusion(
        lambda x, keep: torch.softmax(x.mean(-1, keepdim=keep), 0),
        lambda x, keep: x.mean(-1, keepdim=keep).softmax(0),
        *((X, keep) for keep in (False, True)),
    )

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean(-1, keepdim=True)
        return torch.softmax(mean, 0), mean.sin()

    assert "is also used by" in reasons(fused(program, [pair], X))


def test_what_a_fusion_makes_feeds_others_but_not_itself():
    one = fusion(
        lambda x: torch.sin(x), lambda x: torch.cos(torch.sin(x).acos()), (X,), name="one", numerics=ir.Numerics.CHANGED
    )
    two = fusion(lambda x: torch.acos(x), lambda x: torch.acos(x * 1.0), (X,), name="two")
    module = ir.run_passes(ir.import_callable(lambda x: torch.sin(x) * 0.5, X), "functionalize")
    with ir.using_fusions(two, one):
        ir.run_passes(module, "fuse{only=two,one}")
    assert places(module) == {"one": 1, "two": 1}


def test_the_larger_pattern_comes_first():
    small = fusion(lambda x: torch.sin(x), lambda x: torch.sin(x * 1.0), (X,), name="small")
    large = fusion(lambda x: torch.cos(torch.sin(x)), lambda x: torch.cos(torch.sin(x) * 1.0), (X,), name="large")
    module = fused(lambda x: torch.cos(torch.sin(x)), [small, large], X)
    assert places(module)["large"] == 1


def test_a_write_is_not_crossed():
    """The operands of the sum are overwritten before the norm: it normalises what they were."""
    add = next(f for f in _catalog() if f.name == "add_rms_norm")

    def program(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        s = x + r
        r.mul_(0.0)
        x.copy_(w.expand_as(x))
        return ir.ops.rms_norm(s, w, 1e-6), (r + s).sum()

    inputs = X.clone(), Y.clone(), torch.randn(4)
    module = ir.run_passes(ir.import_callable(program, *inputs), f"functionalize,fuse{{only={add.name}}}")
    assert places(module) == {"add_rms_norm": 1}
    expected = program(*(mine := [value.clone() for value in inputs]))
    results = ir.interpret(module, *inputs)
    assert all(torch.equal(a, b) for a, b in zip((*results, *inputs), (*expected, *mine), strict=True))


def test_conditions_and_numerics_are_reasons():
    def wide(x: Tensor) -> bool:
        return x.shape[-1] > 100

    exact = fusion(torch.sin, lambda x: torch.sin(x * 1.0), (X,), requires=wide)
    assert "the condition wide does not hold" in reasons(fused(lambda x: torch.sin(x) + 1, [exact], X))
    changed = fusion(torch.sin, lambda x: torch.sin(x * 1.0), (X,), numerics=ir.Numerics.CHANGED)
    assert places(fused(lambda x: torch.sin(x) + 1, [changed], X, numerics="exact")) == {}
    assert places(fused(lambda x: torch.sin(x) + 1, [changed], X)) == {"test": 1}


def test_declarations_that_are_none():
    def writes(x: Tensor) -> Tensor:
        return x.add_(1)

    def examples() -> Iterator[tuple[object, ...]]:
        yield (X,)

    with pytest.raises(ValueError, match="other characters"):
        ir.Fusion("Add", torch.sin, torch.sin, examples)
    for before, message in (
        (writes, "it writes its arguments"),
        (lambda x: x, "it returns an argument as it is"),
        (torch.rand_like, "does more than to compute values"),
    ):
        with pytest.raises(ValueError, match=message):
            fused(torch.sin, [ir.Fusion("test", before, torch.sin, examples)], X)
    with pytest.raises(ValueError, match=r"argument 1 is 3, which no operation of before has"):
        fused(torch.sin, [fusion(lambda x, n: torch.sin(x), lambda x, n: torch.sin(x), (X, 3))], X)
    with (
        pytest.raises(ValueError, match="there are two fusions 'test'"),
        ir.using_fusions(fusion(torch.sin, torch.sin, (X,)), fusion(torch.cos, torch.cos, (X,))),
    ):
        pass
    with pytest.raises(ValueError, match="is not supported in this process"):
        fused(torch.sin, [fusion(torch.sin, torch.sin, (X,), supported=False)], X)


def _catalog() -> tuple[ir.Fusion, ...]:
    from vllm_ir.conversions.fusion.catalog import FUSIONS

    return FUSIONS


def test_results_that_are_views_of_operands():
    """By itself, `before` would say where in its argument's memory the second result is."""

    def before(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.split([1, 3], 1)
        return first.sin(), second

    def after(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.split([1, 3], 1)
        return first.mul(1).sin(), second

    module = fused(lambda x: [part + 1 for part in before(x * 2)], [fusion(before, after, (X,))], X)
    assert places(module) == {"test": 1}
    assert "relayout" not in str(module)


def test_what_nobody_uses_of_a_replacement_is_not_there():
    def after(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.neg(), x.cos().exp()

    pair = fusion(lambda x: (x.mul(-1), x.sin()), after, (X,), numerics=ir.Numerics.CHANGED)
    module = fused(lambda x: (x.mul(-1), x.sin().shape)[0], [pair], X)
    assert "cos" not in str(module)


def dynamic(function, *inputs: Tensor, **sizes):
    """The functional module of a program with symbolic sizes."""
    program = torch.nn.Module()
    program.forward = function
    exported = torch.export.export(program, inputs, dynamic_shapes=sizes)
    return ir.run_passes(ir.import_exported(exported), "functionalize,eliminate-no-ops,dce")


FLAT = fusion(
    lambda x, rows, columns: torch.relu(x).view(rows, columns).sin(),
    lambda x, rows, columns: torch.relu(x.view(rows, columns)).sin(),
    (torch.randn(2, 3, 5), 6, 5),
)


@pytest.mark.parametrize(
    "sizes",
    [
        lambda x: (-1, 5),
        lambda x: (x.shape[0] * x.shape[1], 5),
        lambda x: (x.shape[0] * 3 + x.shape[0] * (x.shape[1] - 3), x.shape[2]),
    ],
    ids=["left out", "product", "sum"],
)
def test_sizes_in_other_words(sizes):
    """The pattern's `-1` is the program's product of symbols."""
    rows = fusion(
        lambda x, columns: torch.relu(x).view(-1, columns).sin(),
        lambda x, columns: torch.relu(x.view(-1, columns)).sin(),
        (torch.randn(2, 3, 5), 5),
    )
    auto = torch.export.Dim.DYNAMIC
    module = dynamic(lambda x: torch.relu(x).view(*sizes(x)).sin(), torch.randn(4, 6, 5), x={0: auto, 1: auto})
    with ir.using_fusions(rows):
        ir.run_passes(module, "fuse{only=test explain=true}")
    assert places(module) == {"test": 1}, reasons(module)
    module.verify()


def test_a_size_that_is_left_out_is_the_parameter_that_it_stands_for():
    assert places(fused(lambda x: torch.relu(x).view(2, -1).sin(), [FLAT], torch.randn(2, 3, 5))) == {"test": 1}
    assert places(fused(lambda x: torch.relu(x).view(-1, 3).sin(), [FLAT], torch.randn(2, 3, 5))) == {"test": 1}


def test_programs_and_patterns_are_simplified():
    """Through the option, as no other pass has to be named."""
    pair = fusion(lambda x: torch.relu(x[:] + 0.5).view(-1), lambda x: torch.clamp(x + 0.5, min=0.0).view(-1), (X,))

    def program(x: Tensor) -> Tensor:
        return torch.relu(x.view(4, 3).view(3, 4) + 0.5).view(2, 6).view(-1)

    compiled = torch.compile(
        program, backend="vllm_ir_eager", options={"fusions": [pair], "require_fusions": {"test": 1}}
    )
    assert compiled(X).equal(program(X))
