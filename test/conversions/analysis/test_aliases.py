"""In which storage values are, and where, and how long storages are needed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from xdsl.ir import SSAValue

from vllm_ir.conversions.analysis.aliases import AliasSets
from vllm_ir.conversions.analysis.liveness import Liveness
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import BufferType, offset_of, sizes_of, strides_of
from vllm_ir.frontends.fx.importer import import_callable
from vllm_ir.tools.text import parse

MATRIX = "tensor<4x6xf32>"
PART = "tensor<2xf32, #vllm_ir.layout<strides = [2]>>"
COLUMNS = "tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>"
PIECE = "tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>"
LAYERS = 'tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>'
LAYER = 'tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>'


class Placed:
    """The values of a function by name, and their places."""

    def __init__(self, text: str) -> None:
        module = parse(text)
        module.verify()
        function = module.body.block.first_op
        assert isinstance(function, FuncOp)
        self.function = function
        self.aliases = AliasSets(function).run()
        results = [result for op in function.block.ops for result in op.results]
        self.values: dict[str, SSAValue] = {
            value.name_hint: value for value in (*function.block.args, *results) if value.name_hint
        }

    def root(self, name: str) -> str | None:
        return self.aliases.places[self.values[name]].storage.root.name_hint

    def window(self, name: str) -> tuple[object, object, object] | None:
        window = self.aliases.places[self.values[name]].window
        return None if window is None else (sizes_of(window), strides_of(window), offset_of(window))

    def overlap(self, first: str, second: str) -> bool:
        places = self.aliases.places
        return places[self.values[first]].overlaps(places[self.values[second]])


def function(body: str, arguments: str = f"%x: {MATRIX}") -> Placed:
    return Placed(f"vllm_ir.func functional @f({arguments}) {{\n{body}\n  vllm_ir.return ()\n}}")


def test_views_are_windows_of_their_base() -> None:
    placed = function(f"""
      %row = torch.call @aten.select.int(%x, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
      %part = torch.call @aten.slice.Tensor(%row, 0, 1, 5, 2) : (tensor<6xf32>) -> {PART}
      %columns = torch.call @aten.t.default(%x) : (tensor<4x6xf32>) -> {COLUMNS}
      %twice = torch.call @aten.mul.Tensor(%row, 2) : (tensor<6xf32>) -> tensor<6xf32>
    """)
    assert placed.window("part") == ((2,), (2,), 13)
    assert placed.window("columns") == ((6, 4), (1, 6), 0)
    assert [placed.root(name) for name in ("row", "part", "columns", "twice")] == ["x", "x", "x", "twice"]
    assert placed.overlap("part", "columns")
    assert not placed.overlap("row", "twice")


def test_pieces_of_a_split_are_disjoint() -> None:
    placed = function(f"""
      %q, %k, %v = torch.call @aten.split.Tensor(%x, 2, 1) : (tensor<4x6xf32>) -> ({PIECE}, {PIECE}, {PIECE})
      %rows = torch.call @aten.slice.Tensor(%x, 0, 0, 1, 1) : (tensor<4x6xf32>) -> tensor<1x6xf32>
    """)
    first = placed.function.block.first_op
    assert first is not None
    q, k, v = (placed.aliases.places[result] for result in first.results)
    assert [place.window and offset_of(place.window) for place in (q, k, v)] == [0, 2, 4]
    assert not q.overlaps(k)
    assert not k.overlaps(v)
    assert all(place.overlaps(placed.aliases.places[placed.values["rows"]]) for place in (q, k, v))


def test_a_reshape_that_copies_is_new_memory() -> None:
    placed = function(f"""
      %flat = torch.call @aten.reshape.default(%x, [24]) : (tensor<4x6xf32>) -> tensor<24xf32>
      %columns = torch.call @aten.t.default(%x) : (tensor<4x6xf32>) -> {COLUMNS}
      %copied = torch.call @aten.reshape.default(%columns, [24]) : ({COLUMNS}) -> tensor<24xf32>
    """)
    assert [placed.root(name) for name in ("flat", "copied")] == ["x", "copied"]
    assert placed.window("copied") == ((24,), (1,), 0)


def test_a_window_that_is_not_known_overlaps_what_its_base_overlaps() -> None:
    placed = function(
        f"""
      %row = torch.call @aten.select.int(%x, 0, 1) : ({LAYERS}) -> {LAYER}
      %other = torch.call @aten.select.int(%x, 0, 0) : ({LAYERS}) -> {LAYER}
      %element = torch.call @aten.select.int(%row, 0, %i) : ({LAYER}, i64) -> tensor<f32>
    """,
        f'%i: i64, %s0: i64 {{vllm_ir.symbol = "s0"}}, %x: {LAYERS}',
    )
    assert placed.window("element") is None
    assert placed.overlap("element", "row")
    assert placed.overlap("element", "x")
    assert not placed.overlap("element", "other")


def test_a_lazy_conjugate_is_in_memory_that_holds_other_values() -> None:
    placed = function(
        """
      %row = torch.call @aten.select.int(%z, 0, 1) : (tensor<4x6xcomplex<f32>>) -> tensor<6xcomplex<f32>>
      %conjugate = torch.call @aten._conj.default(%row) : (tensor<6xcomplex<f32>>) -> tensor<6xcomplex<f32>>
    """,
        "%z: tensor<4x6xcomplex<f32>>",
    )
    assert placed.root("conjugate") == "z"
    assert placed.window("conjugate") is None
    assert placed.overlap("conjugate", "row")


def test_arguments_that_share_memory_are_in_one_storage() -> None:
    placed = function(
        "",
        "%x: !vllm_ir.buffer<4xf32> {vllm_ir.storage = 0 : i64}, %y: !vllm_ir.buffer<4xf32, offset = 4> "
        "{vllm_ir.storage = 0 : i64, vllm_ir.mutated}, %z: !vllm_ir.buffer<4xf32> {vllm_ir.donated}",
    )
    assert [placed.root(name) for name in "xyz"] == ["x", "x", "z"]
    first, last = (placed.aliases.places[placed.values[name]].storage for name in "xz")
    assert (first.mutated, first.donated, last.mutated, last.donated) == (True, False, False, True)
    assert not placed.overlap("x", "y")
    assert not placed.overlap("x", "z")


VIEWS = {
    "permute": lambda x: x.permute(1, 0),
    "diagonal": lambda x: x.diagonal(1),
    "unfold": lambda x: x.unfold(1, 2, 3),
    "expand": lambda x: x.unsqueeze(0).expand(3, 4, 6),
    "bits": lambda x: x.view(torch.int16),
    "narrow": lambda x: x.narrow(0, 1, 2).narrow(1, 2, 3),
    "as_strided": lambda x: x[1:].as_strided((2, 2), (3, 1), 5),
    "unbind": lambda x: x.unbind(1)[4],
    "flat": lambda x: x.flatten()[3:7].view(2, 2),
}


@pytest.mark.parametrize("name", VIEWS)
def test_windows_are_those_of_eager_mode(name: str) -> None:
    x = torch.zeros(4, 6)

    def program(x: Tensor) -> Tensor:
        return VIEWS[name](x)

    module = import_callable(program, x)
    main = module.body.block.first_op
    assert isinstance(main, FuncOp)
    place = AliasSets(main).run().places[main.terminator.operands[0]]
    eager = VIEWS[name](x)
    assert place.storage.root is main.block.args[0]
    assert isinstance(place.window, BufferType)
    assert sizes_of(place.window) == tuple(eager.shape)
    assert strides_of(place.window) == eager.stride()
    assert offset_of(place.window) == eager.storage_offset()


def test_liveness_follows_storages_and_not_names() -> None:
    placed = function("""
      %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
      %row = torch.call @aten.select.int(%twice, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
      %sum = torch.call @aten.sum.default(%twice, dtype = none) : (tensor<4x6xf32>) -> tensor<f32>
      %last = torch.call @aten.neg.default(%row) : (tensor<6xf32>) -> tensor<6xf32>
    """)
    liveness = Liveness(placed.function, placed.aliases)
    last = placed.values["last"].owner
    assert liveness.last_use(placed.values["twice"]) is last
    assert liveness.last_use(placed.values["row"]) is last
    assert [storage.root.name_hint for storage in liveness.dies_at(last)] == ["twice", "last"]
    assert [storage.root.name_hint for storage in liveness.live_out] == ["x"]


def test_what_is_never_used_has_no_last_use() -> None:
    placed = function("", "%x: tensor<4xf32>, %n: i64, %given: !vllm_ir.buffer<4xf32> {vllm_ir.donated}")
    liveness = Liveness(placed.function, placed.aliases)
    assert all(liveness.last_use(value) is None for value in placed.values.values())
    assert list(liveness.live_out.values()) == [["the caller's"]]
