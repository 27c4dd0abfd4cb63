"""Statements that call operators of others, operators of this project, and branches."""

from __future__ import annotations

import torch
from torch import Tensor

from vllm_ir.tools.fuzz.draw import FLOATS, INTEGERS, Draw
from vllm_ir.tools.fuzz.footprint import is_dense, overlap
from vllm_ir.tools.fuzz.operators import NAMESPACE
from vllm_ir.tools.fuzz.program import Branch, Statement


def custom(d: Draw) -> Statement | None:
    """A call of a custom operator that writes some of its operands."""
    name = d.writable()
    tensor = None if name is None else d.tensor(name)
    if name is None or tensor is None or tensor.dtype == torch.bool:
        return None

    def fits(other: Tensor) -> bool:
        # Overlapping operands have no defined meaning; some of them are left in, to be refused.
        return other.shape == tensor.shape and other.dtype == tensor.dtype and not overlap(other, tensor)

    second = d.pick(fits) or name
    apart = second != name
    result = d.fresh()
    op = f"torch.ops.{NAMESPACE}."
    choices = [
        Statement((), f"{op}numbers({{0}}, 2, [1, 2], True)", (name,), writes=(0,)),
        Statement((result,), f"{op}pure({{0}}, {{1}})", (name, second)),
        Statement((), f"{op}each([{{0}}, {{0}}.clone()], {{0}} * 2)", (name,), writes=(0,)),
        Statement((), f"{op}bump({{0}}, {{0}} + 1)", (name,), writes=(0,)),
        Statement((result,), f"{op}optional({{0}}, None, {{0}})", (name,)),
        Statement((), f"{op}second({{0}}.clone(), {{0}})", (name,), writes=(0,)),
    ]
    if tensor.numel() > 0 and is_dense(tensor):
        choices += [Statement((result,), f"{op}flat({{0}})", (name,), moves=True)] * 2
    if apart:
        choices += [
            Statement((), f"{op}bump({{0}}, {{1}})", (name, second), writes=(0,)),
            Statement((), f"{op}bump({{0}}, {{1}}.clone())", (name, second), writes=(0,)),
            Statement((), f"{op}second({{1}}, {{0}})", (name, second), writes=(0,)),
            Statement((), f"{op}keyword({{1}}, x={{0}}, by=2.0)", (name, second), writes=(0,)),
            Statement((), f"{op}two({{0}}, {{1}} * 2, {{1}})", (name, second), writes=(0, 1)),
            Statement((result,), f"{op}result({{0}}, {{1}})", (name, second), writes=(0,)),
            Statement((result, d.fresh()), f"{op}results({{0}}, {{1}})", (name, second), writes=(0,)),
            Statement((), f"{op}each([{{0}}, {{1}}], {{1}} + 0)", (name, second), writes=(0, 1)),
            Statement((result,), f"{op}each_and_one([{{0}}], {{1}}, [{{0}} - 1])", (name, second), writes=(0, 1)),
            Statement((result,), f"{op}optional({{1}}, {{0}}, None)", (name, second), writes=(0,)),
            Statement((result,), f"{op}optional({{1}}, cache={{0}})", (name, second), writes=(0,)),
        ]
    return d.one_of(choices)


def donated(d: Draw) -> Statement | None:
    """A call that gives its operands away."""
    name = d.pick(lambda t: t.dtype in FLOATS or t.dtype in INTEGERS)
    tensor = None if name is None else d.tensor(name)
    if name is None or tensor is None:
        return None
    other = d.pick(lambda o: o.shape == tensor.shape and o.dtype == tensor.dtype) or name
    result = d.fresh()
    op = "torch.ops.vllm_ir."
    choices = [
        Statement((result,), f"{op}fuzz_add({{0}}, {{1}})", (name, other)),
        Statement((result,), f"{op}fuzz_add.maybe_inplace({{0}} + 1, {{1}})", (name, other)),
        Statement((result,), f"{op}fuzz_add.maybe_inplace({{0}}.clone(), {{1}})", (name, other)),
        Statement((result,), f"{op}fuzz_add.maybe_inplace({{0}}, {{1}})", (name, other), donates=(0,)),
        Statement((result,), f"{op}fuzz_add.maybe_inplace({{0}}, {{1}})", (name, other), donates=(0,)),
        # The value that is given away is that of the other operand as well, whose memory is not.
        Statement(
            (result,),
            f"{op}fuzz_add.maybe_inplace({{0}}.copy_({{1}}), {{1}})",
            (name, other),
            writes=(0,),
            donates=(0,),
        ),
        Statement((result, d.fresh()), f"{op}fuzz_add_two({{0}}, {{1}}, {{0}})", (name, other)),
        Statement(
            (result, d.fresh()),
            f"{op}fuzz_add_two.maybe_inplace({{0}}, {{1}} * 2, {{1}})",
            (name, other),
            donates=(0,),
        ),
        Statement(
            (result, d.fresh()), f"{op}fuzz_add_two.maybe_inplace({{0}}.clone(), {{1}}.clone(), {{0}})", (name, other)
        ),
    ]
    return d.one_of(choices)


def cond(d: Draw) -> Statement | None:
    """A condition on data, with two branches that compute and write what they have made themselves."""
    # PyTorch compares the strides of what the branches give, also where they lead nowhere.
    dtypes = (torch.float32, torch.int64, torch.float64)
    name = d.pick(lambda t: t.dtype in dtypes and t.numel() > 0 and t.stride() == torch.empty(t.shape).stride())
    tensor = None if name is None else d.tensor(name)
    if name is None or tensor is None or d.dynamic:
        return None
    other = d.pick(
        lambda o: (
            o.stride() == tensor.stride()
            and o.shape == tensor.shape
            and o.dtype == tensor.dtype
            and not overlap(o, tensor)
        )
    )
    if other is None:
        return None
    branches = [_branch(d, f"branch_{d.fresh()}") for _ in range(2)]
    for branch in branches:
        d.simulation.define(branch)
    condition = d.one_of(["({0} > 1).any()", "({1} == 0).all()", "{0}.sum() > 3"])
    template = f"torch.cond({condition}, {branches[0].name}, {branches[1].name}, ({{0}}, {{1}}))"
    return Statement((d.fresh(),), template, (name, other), sums="sum" in condition, unpack=True)


def _branch(d: Draw, name: str) -> Branch:
    first = d.one_of(["x + y", "x * 2", "y - x", "x.clone()", "torch.where(x > y, x, y)"])
    body = [Statement(("z",), first, ())]
    for _ in range(d.rng.randrange(3)):
        body.append(
            Statement(
                (), d.one_of(["z.add_(y)", "z.mul_(2)", "z[...] = x", "z.copy_(y)", "z.unsqueeze(0)[0].add_(1)"]), ()
            )
        )
    return Branch(name, ("x", "y"), tuple(body), ("z",))
