"""A hash of what a module says: operations, types, attributes and how values flow, without names and places."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue


def structural_hash(module: ModuleOp, without: Collection[str] = ()) -> str:
    """The same for modules that differ in names of values and locations only.

    `without` names attributes of the module that play no part: what passes have noted for reports.
    """
    walk = _Walk()
    walk.say(walk.named({name: value for name, value in module.attributes.items() if name not in without}))
    for region in module.regions:
        for block in region.blocks:
            walk.block(block)
    return walk.digest.hexdigest()


class _Walk:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.numbers: dict[SSAValue, int] = {}
        self.blocks: dict[Block, int] = {}
        self.texts: dict[int, str] = {}
        """Attributes as text, by identity: the module keeps them alive, and most are shared."""

    def say(self, *facts: object) -> None:
        self.digest.update(repr(facts).encode())

    def text(self, attribute: Attribute) -> str:
        text = self.texts.get(id(attribute))
        if text is None:
            text = self.texts[id(attribute)] = str(attribute)
        return text

    def named(self, attributes: Mapping[str, Attribute]) -> list[tuple[str, str]]:
        return [(name, self.text(attribute)) for name, attribute in sorted(attributes.items())]

    def number(self, value: SSAValue) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def block(self, block: Block) -> None:
        self.say("block", self.blocks.setdefault(block, len(self.blocks)))
        self.say([(self.number(argument), self.text(argument.type)) for argument in block.args])
        for op in block.ops:
            self.operation(op)

    def operation(self, op: Operation) -> None:
        self.say(op.name, [self.number(operand) for operand in op.operands])
        self.say(self.named(op.properties), self.named(op.attributes))
        self.say([(self.number(result), self.text(result.type)) for result in op.results])
        self.say([self.blocks.setdefault(successor, len(self.blocks)) for successor in op.successors])
        for region in op.regions:
            self.say("region")
            for block in region.blocks:
                self.block(block)
        self.say("end")


__all__ = ["structural_hash"]
