"""The bugs. Each is one that was made, or nearly made, in a compiler of this kind."""

from __future__ import annotations

from vllm_ir.tools.fuzz.mutants.mutant import Mutant

_FUNCTIONALIZE = "vllm_ir.conversions.functionalize."
_CLONES = "vllm_ir.conversions.eliminate_clones."
_NARROW = "vllm_ir.conversions.narrow_updates."

_ALL = (
    # Views and their inverses.
    Mutant(
        "permute-is-its-own-inverse",
        _FUNCTIONALIZE + "views",
        "inverse[number % len(order)] = position",
        "inverse[position] = number % len(order)",
    ),
    Mutant(
        "index-map-accumulates",
        _FUNCTIONALIZE + "views",
        "[flat, [positions], piece.value, False]",
        "[flat, [positions], piece.value, True]",
    ),
    Mutant(
        "diagonal-forgets-its-offset",
        _FUNCTIONALIZE + "views",
        "aten.diagonal: _scatter(aten.diagonal_scatter.default),",
        "aten.diagonal: Rule(lambda p: p.call(aten.diagonal_scatter.default, needed(p.base), p.value, 0, "
        "*p.codec.arguments()[1:]), None, needs_base=True),",
    ),
    Mutant(
        "select-and-slice-off-by-one",
        _FUNCTIONALIZE + "views",
        "aten.select: _scatter(aten.select_scatter.default),",
        "aten.select: Rule(lambda p: p.call(aten.select_scatter.default, needed(p.base), p.value, "
        "p.codec.arguments()[0], 0), None, needs_base=True),",
    ),
    Mutant(
        "flattened-memory-in-wrong-order",
        _FUNCTIONALIZE + "strided",
        "inverse = [self.order.index(dimension) for dimension in range(len(self.order))]",
        "inverse = list(range(len(self.order)))",
    ),
    Mutant(
        "as-strided-counts-from-the-view",
        _FUNCTIONALIZE + "storage",
        "self.b.sum(offset, -start) if start else offset,",
        "offset,",
    ),
    Mutant("split-pieces-start-wrong", _FUNCTIONALIZE + "splits", "start += size", "start = size"),
    # Values of storages.
    Mutant(
        "stale-window",
        _FUNCTIONALIZE + "storage",
        "if self.cached is None or self.version != root.version:",
        "if self.cached is None:",
    ),
    Mutant("version-does-not-move", _FUNCTIONALIZE + "storage", "root.version += 1", "root.version += 0"),
    Mutant(
        "final-write-dropped",
        _FUNCTIONALIZE + "functionalize",
        "if root.is_argument and root.changed and not root.given_away",
        "if root is self.storages.roots[0] and root.changed and not root.given_away",
    ),
    Mutant(
        "memory-between-arguments-written",
        _FUNCTIONALIZE + "storage",
        "has_gaps=not fills(kinds, flat_type)",
        "has_gaps=False",
    ),
    Mutant(
        "donated-in-part-is-donated",
        _FUNCTIONALIZE + "storage",
        "return not is_empty(self.type) and any(covers(donation.window, self.type) for donation in self.donations)",
        "return bool(self.donations)",
    ),
    Mutant(
        "later-use-of-donated-value",
        _FUNCTIONALIZE + "functionalize",
        "        drop_invalid_donations(self.function)\n",
        "",
        path="text",  # where each module is verified
    ),
    Mutant(
        "written-operands-swapped",
        _FUNCTIONALIZE + "calls",
        "for window, value in zip(windows, call.results[len(fresh) :], strict=True):\n        window.assign(b, value)",
        "for window, value in zip(reversed(windows), call.results[len(fresh) :], strict=True):\n"
        "        window.assign(b, value)",
    ),
    Mutant(
        "last-updated-operand-forgotten",
        _FUNCTIONALIZE + "calls",
        "written = list(dict.fromkeys(_written(op, info)))",
        "written = list(dict.fromkeys(_written(op, info)))[:1]",
    ),
    Mutant(
        "result-of-write-is-no-alias",
        _FUNCTIONALIZE + "calls",
        "if operand is not None:\n            storages.add_alias(result, operand)",
        "if operand is not None and op.operands[0] is not operand:\n            storages.add_alias(result, operand)",
    ),
    # Alias and overlap analysis.
    Mutant(
        "last-step-of-windows-forgotten",
        "vllm_ir.conversions.analysis.regions",
        "dimensions.append((stride * width, size))",
        "dimensions.append((stride * width, size - 1))",
    ),
    Mutant(
        "windows-equal-wherever-they-are",
        "vllm_ir.conversions.analysis.regions",
        "and equal(offsets[0], offsets[1])",
        "and offsets[0] is not None",
    ),
    Mutant(
        "arguments-that-share-memory-do-not",
        "vllm_ir.conversions.analysis.aliases",
        "known = shared.get(number.value.data) if isinstance(number, IntegerAttr) else None",
        "known = None",
    ),
    Mutant(
        "views-are-new-memory",
        "vllm_ir.conversions.analysis.aliases",
        "target = resolve(op.target)\n    return target if is_overload(target) and op_info(target).is_view else None",
        "target = resolve(op.target)\n"
        '    return target if is_overload(target) and op_info(target).is_view and "select" not in op.target else None',
    ),
    # eliminate-clones.
    Mutant(
        "other-operands-ignored",
        _CLONES + "plan",
        "if index != update.index and index not in later and place is not None and place.overlaps(written):",
        "if index != update.index and index not in later and place is None:",
    ),
    Mutant(
        "next-use-ignored",
        _CLONES + "conflicts",
        "if self.position[use.operation] > at and",
        "if self.position[use.operation] > at + 1 and",
    ),
    Mutant(
        "scatter-replaces-all",
        _CLONES + "conflicts",
        "return piece is not None and written.is_within(piece)",
        "return piece is not None",
    ),
    Mutant(
        "piece-is-there-already",
        _CLONES + "plan",
        "return same_window(place.window, written.window)",
        "return place.window.shape == written.window.shape",
    ),
    Mutant(
        "read-only-arguments-written",
        _CLONES + "plan",
        "if storage.is_argument and not (storage.mutated or storage.donated):",
        "if storage.is_argument and storage.root is None:",
    ),
    Mutant(
        "expanded-memory-written",
        _CLONES + "plan",
        "if overlaps_itself(place.window) or overlaps_itself(window):",
        "if overlaps_itself(window):",
    ),
    Mutant(
        "last-conflict-forgotten",
        _CLONES + "plan",
        "for conflict in conflicts:\n            self._cut(update, written, conflict)",
        "for conflict in conflicts[:-1]:\n            self._cut(update, written, conflict)",
    ),
    Mutant(
        "saved-for-too-few-uses",
        _CLONES + "cuts",
        "if number > position[op] or",
        "if number > position[op] + 2 or",
    ),
    Mutant(
        "result-returned-twice-is-one",
        _CLONES + "rewrite",
        "if value in seen and is_tensor(value.type):",
        "if value is None:",
    ),
    Mutant(
        "pieces-are-carried-along",
        _CLONES + "conflicts",
        "elif (update := self._scatter(op)) is not None and self._carries(use, update, place):",
        "elif (update := self._scatter(op)) is not None:",
    ),
    # Export.
    Mutant(
        "value-written-before-it-is-read",
        "vllm_ir.backends.fx.tail",
        "if op.value not in self.nodes and (shared or key in self._written):",
        "if op.value in self._taken:",
    ),
    Mutant(
        "new-tensor-is-an-alias",
        "vllm_ir.backends.fx.tail",
        "if storage_key(tensor_of(node)) in self._taken:",
        "if node in self._taken:",
    ),
    Mutant(
        "strides-in-wrong-order",
        "vllm_ir.backends.fx.layout",
        "inverse = [order.index(dimension) for dimension in range(len(order))]",
        "inverse = list(range(len(order)))",
    ),
    # Import.
    Mutant(
        "second-write-of-a-call-unseen",
        "vllm_ir.frontends.fx.storages",
        "for position in info.writes:",
        "for position in info.writes[:1]:",
    ),
    Mutant(
        "shared-results-unseen",
        "vllm_ir.frontends.fx.storages",
        "if key in inputs or key in seen:",
        "if key in inputs:",
    ),
    # Around the compiled graph.
    Mutant(
        "overlap-memo-is-never-stale",
        "vllm_ir.tools.overlap",
        "if pointers == known.pointers:",
        "if len(pointers) == len(known.pointers):",
        path="vllm_ir_eager",
    ),
    Mutant(
        "overlap-of-read-arguments-unseen",
        "vllm_ir.tools.overlap",
        "if left in self.written or right in self.written",
        "if left in self.written and right in self.written",
        path="vllm_ir_eager",
    ),
    Mutant(
        "offsets-of-arguments-unseen",
        "vllm_ir.tools.offsets",
        "return tuple([int(value.storage_offset()) for value in arguments if isinstance(value, Tensor)])",
        "return ()",
        path="vllm_ir_eager",
    ),
    # StableHLO.
    Mutant(
        "second-changed-argument-forgotten",
        "vllm_ir.conversions.alias_outputs",
        "if index not in self.aliased\n            and isinstance",
        "if index not in self.aliased\n            and index == 0\n            and isinstance",
        path="vllm_ir_xla",
    ),
    Mutant(
        "boxes-off-by-one",
        _NARROW + "boxes",
        "return any(a.last <= b.first or b.last <= a.first for a, b in zip(first, second, strict=True))",
        "return any(a.last <= b.first + 1 or b.last <= a.first + 1 for a, b in zip(first, second, strict=True))",
        path="vllm_ir_xla",
    ),
    Mutant(
        "put-back-elsewhere",
        _NARROW + "analysis",
        "source.version.root is not whole.version.root or source.window.key != target.key:",
        "source.version.root is not whole.version.root:",
        path="vllm_ir_xla",
    ),
    Mutant(
        "compiled-for-other-sizes",
        "vllm_ir.tools.pure_programs",
        "key = tuple((v.shape, v.stride()) if isinstance(v, Tensor) else v for v in arguments)",
        "key = tuple(v.dim() if isinstance(v, Tensor) else 0 for v in arguments)",
        path="vllm_ir_xla",
    ),
    # Inductor.
    Mutant(
        "final-value-is-also-returned",
        "vllm_ir.backends.fx.export",
        "if isinstance(op.buffer, BlockArgument) and op.value in outputs and uses[op.value] == 1",
        "if isinstance(op.buffer, BlockArgument) and op.value in outputs and uses[op.value] >= 1",
        path="vllm_ir",
    ),
    Mutant(
        "every-form-is-faithful",
        "vllm_ir.tools.post_grad.policy",
        "if storage.root in self.frozen or update.op in self.functional:",
        "if update.op in self.functional:",
        path="vllm_ir",
    ),
    Mutant(
        "epilogue-writes-nothing",
        "vllm_ir.tools.epilogue",
        "[i for i, result in enumerate(results) if result is None]",
        "range(len(results))",
        path="vllm_ir",
    ),
)

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _ALL}
"""The bugs by name."""

FAST = ("final-write-dropped", "stale-window", "index-map-accumulates")
"""Those that are found within a few programs, for CI."""
