"""Random StableHLO modules of nested reads and updates."""

from __future__ import annotations

import math
from random import Random

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, IntegerAttr, ModuleOp, StringAttr, i32, i64
from xdsl.ir import Block, Region, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder
from vllm_ir.conversions.convert_to_stablehlo.dtypes import shape
from vllm_ir.conversions.convert_to_stablehlo.takes import dims, flag
from vllm_ir.dialects.stablehlo import (
    AddOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    GatherDimensionNumbers,
    GatherOp,
    ScatterDimensionNumbers,
    ScatterOp,
)

ROOTS = [(3, 2, 4, 6), (4, 12), (24,), (2, 1, 3, 4), (5, 6)]
SCALARS, VECTORS = 3, 3


class RandomProgram:
    """Appends a random program to a block; `results` are what it returns."""

    def __init__(self, random: Random, b: Builder, root: SSAValue, scalars: list[SSAValue], indices: list[SSAValue]):
        self.random, self.b, self.scalars, self.indices = random, b, scalars, indices
        self.versions, self.results = [root], []
        for _ in range(random.randint(1, 5)):
            self._step()
        self.results.append(self.versions[-1])

    def _step(self) -> None:
        # Mostly from the newest version, sometimes from an older one, as a part of which is put into the newest.
        base = self.versions[-1] if self.random.random() < 0.8 else self.random.choice(self.versions)
        target = base if self.random.random() < 0.6 else self.versions[-1]
        part, backs = self._nested(base, self.random.randint(0, 3))
        for _ in range(self.random.choice((0, 1, 1, 1, 2))):
            part = self._updated(part)
            if self.random.random() < 0.3:
                self.results.append(self._read(part))
        for place, back in enumerate(reversed(backs)):
            last = place == len(backs) - 1
            part = back(part, target if last else None)
        self.versions.append(part)
        if self.random.random() < 0.6:
            source = self.random.choice(self.versions)
            self.results.append(self._read(self._nested(source, self.random.randint(0, 3))[0]))

    def _read(self, part: SSAValue) -> SSAValue:
        if shape(part) and self.random.random() < 0.5:
            return self._gathered(part)
        return self.b.binary(AddOp, part, 1) if self.random.random() < 0.5 else part

    # --- views, each with its inverse ---

    def _nested(self, value: SSAValue, depth: int):
        backs = []
        for _ in range(depth):
            choices = [self._slice, self._slice, self._transpose, self._reshape]
            value, back = self.random.choice(choices)(value)
            backs.append(back)
        return value, backs

    def _start(self, length: int, size: int) -> tuple[int, SSAValue | None]:
        if self.random.random() < 0.2:
            return 0, self.random.choice(self.scalars)
        return self.random.randint(0, length - size), None

    def _slice(self, value: SSAValue):
        b, lengths = self.b, shape(value)
        sizes = [self.random.choice((1, length, self.random.randint(1, length))) for length in lengths]
        starts = [self._start(length, size) for length, size in zip(lengths, sizes, strict=True)]
        operands = [b.scalar(number, i32) if known is None else known for number, known in starts]
        if all(known is None for _, known in starts):
            numbers = [number for number, _ in starts]
            part = b.slice(value, numbers, [n + size for n, size in zip(numbers, sizes, strict=True)])
        else:
            properties = {"slice_sizes": b.integers(sizes)}
            part = b.emit(DynamicSliceOp, (value, *operands), b.tensor(sizes, i32), properties)
        if self.random.random() < 0.15:  # put back elsewhere
            operands = [b.scalar(self.random.randint(-1, 3), i32) for _ in operands]

        def back(new: SSAValue, target: SSAValue | None) -> SSAValue:
            onto = value if target is None or shape(target) != lengths else target
            return b.emit(DynamicUpdateSliceOp, (onto, new, *operands), onto.type)

        return part, back

    def _transpose(self, value: SSAValue):
        order = list(range(len(shape(value))))
        self.random.shuffle(order)
        inverse = [order.index(at) for at in range(len(order))]
        return self.b.transpose(value, order), lambda new, _: self.b.transpose(new, inverse)

    def _reshape(self, value: SSAValue):
        sizes, lengths = [], list(shape(value))
        while lengths:
            length = lengths.pop(0)
            choice = self.random.random()
            if choice < 0.3 and lengths:
                lengths[0] *= length
            elif choice < 0.6 and (divisors := [d for d in range(2, length) if length % d == 0]):
                divisor = self.random.choice(divisors)
                sizes += [length // divisor, divisor]
            elif choice < 0.7 and length == 1:
                pass
            elif choice < 0.8:
                sizes += [1, length]
            else:
                sizes.append(length)
        old = shape(value)
        return self.b.reshape(value, sizes), lambda new, _: self.b.reshape(new, old)

    # --- updates and reads by index ---

    def _updated(self, part: SSAValue) -> SSAValue:
        if shape(part) and self.random.random() < 0.5:
            return self._scattered(part)
        b, lengths = self.b, shape(part)
        sizes = [self.random.randint(1, length) for length in lengths]
        starts = [self._start(length, size) for length, size in zip(lengths, sizes, strict=True)]
        operands = [b.scalar(number, i32) if known is None else known for number, known in starts]
        return b.emit(DynamicUpdateSliceOp, (part, self._new(sizes), *operands), part.type)

    def _new(self, sizes) -> SSAValue:
        data = [self.random.randint(100, 10**6) for _ in range(math.prod(sizes))]
        return self.b.constant(np.array(data, np.int32).tobytes(), self.b.tensor(sizes, i32))

    def _places(self, lengths):
        """Indexed dimensions, the collapsed ones among them, index vectors, and the lengths of a slice."""
        count = self.random.randint(1, min(2, len(lengths)))
        indexed = self.random.sample(range(len(lengths)), count)
        collapsed = sorted(at for at in indexed if self.random.random() < 0.7)
        indices = self.random.choice([value for value in self.indices if shape(value)[1] == count])
        if self.random.random() < 0.3:
            numbers = [self.random.choice((-1, 0, 0, 1, 2, 3, 7)) for _ in range(2 * count)]
            indices = self.b.constant(np.array(numbers, np.int32).tobytes(), self.b.tensor((2, count), i32))
        vector = 1
        if count == 1 and self.random.random() < 0.5:
            indices, vector = self.b.reshape(indices, (2,)), 1
        elif self.random.random() < 0.3:
            indices, vector = self.b.transpose(indices, (1, 0)), 0
        sizes = [1 if at in collapsed else self.random.randint(1, n) for at, n in enumerate(lengths)]
        return indexed, collapsed, indices, vector, sizes

    def _windows(self, count: int):
        """Where the dimension that counts slices stands among `count` others."""
        batch = self.random.randint(0, count)
        return [*range(batch), *range(batch + 1, count + 1)], batch

    def _scattered(self, part: SSAValue) -> SSAValue:
        b, lengths = self.b, shape(part)
        indexed, collapsed, indices, vector, sizes = self._places(lengths)
        kept = [size for at, size in enumerate(sizes) if at not in collapsed]
        windows, batch = self._windows(len(kept))
        kept.insert(batch, 2)
        numbers = ScatterDimensionNumbers(
            dims(windows), dims(collapsed), dims([]), dims([]), dims(indexed), IntegerAttr(vector, i64)
        )
        properties = {
            "scatter_dimension_numbers": numbers,
            "indices_are_sorted": flag(False),
            "unique_indices": flag(False),
        }
        scalar = b.tensor((), i32)
        add = self.random.random() < 0.3
        region = b.region((scalar, scalar), lambda old, new: [b.binary(AddOp, old, new) if add else new])
        return b.emit(ScatterOp, (part, indices, self._new(kept)), part.type, properties, [region])

    def _gathered(self, part: SSAValue) -> SSAValue:
        b = self.b
        indexed, collapsed, indices, vector, sizes = self._places(shape(part))
        kept = [size for at, size in enumerate(sizes) if at not in collapsed]
        windows, batch = self._windows(len(kept))
        kept.insert(batch, 2)
        numbers = GatherDimensionNumbers(
            dims(windows), dims(collapsed), dims([]), dims([]), dims(indexed), IntegerAttr(vector, i64)
        )
        properties = {
            "dimension_numbers": numbers,
            "slice_sizes": b.integers(sizes),
            "indices_are_sorted": flag(False),
        }
        return b.emit(GatherOp, (part, indices), b.tensor(kept, i32), properties)


def random_module(seed: int, programs: int) -> tuple[ModuleOp, list[int]]:
    """A module with that many programs in its function, and for each result the program that it is of."""
    b = Builder(Block())
    randoms = [Random(1000 * seed + program) for program in range(programs)]
    chosen = [random.choice(ROOTS) for random in randoms]
    kinds = [*(b.tensor(sizes, i32) for sizes in chosen), *[b.tensor((), i32)] * SCALARS]
    kinds += [b.tensor((2, count), i32) for count in (1, 2) for _ in range(VECTORS)]
    b.block = block = Block(arg_types=kinds)
    scalars = list(block.args[programs : programs + SCALARS])
    indices = list(block.args[programs + SCALARS :])
    results, owners = [], []
    for program, root in enumerate(block.args[:programs]):
        found = RandomProgram(randoms[program], b, root, scalars, indices).results
        results += found
        owners += [program] * len(found)
    block.add_op(func.ReturnOp.create(operands=results))
    kind = FunctionType.from_lists(kinds, [value.type for value in results])
    properties = {"sym_name": StringAttr("main"), "function_type": kind, "sym_visibility": StringAttr("public")}
    return ModuleOp([func.FuncOp.create(properties=properties, regions=[Region(block)])]), owners


def arguments(module: ModuleOp, seed: int) -> list[np.ndarray]:
    """Arguments of its function: distinct numbers, and indices that are mostly in range."""
    generator, arrays = np.random.default_rng(seed), []
    (function,) = module.body.block.ops
    for value in function.body.block.args:
        sizes = shape(value)
        if sizes in ROOTS:
            arrays.append(generator.permutation(10**4)[: math.prod(sizes)].reshape(sizes).astype(np.int32))
        else:
            arrays.append(np.asarray(generator.choice([-1, 0, 0, 1, 1, 2, 3, 5], sizes), np.int32))
    return arrays
