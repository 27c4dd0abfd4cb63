"""The refusals that are documented, by what their messages say; any other is a failure."""

import re

REASONS: dict[str, str] = {
    r"whose elements share memory": "a write to memory that overlaps itself",
    r"what the operator sees would depend on its implementation": "an operator whose written operand overlaps another",
    r"are the same memory and eager refuses": "operands that overlap in part",
    r"share memory in a way that eager refuses": "operands that overlap in part",
    r"after its memory was donated": "a use of donated memory",
    r"assigns a new tensor to its attribute": "a module that is imported directly replaces a buffer",
    r"has no StableHLO form": "an operator without a StableHLO form",
    r"data-dependent expression": "a size that depends on data",
    r"as_strided without an offset on a window without elements": "where a view without elements begins",
    r"as_strided on memory with gaps": "the gaps of a new tensor",
    r"looks at the memory of a tensor with strides .* which has gaps": "memory that no argument holds, as values",
    r"share memory in ways that are not known at compile time": "arguments of dynamic sizes whose windows differ",
    r"reaches memory that no argument holds": "memory that no argument holds, as values",
}
"""Short reasons by a pattern of the message."""

_PATTERNS = [(re.compile(pattern), text) for pattern, text in REASONS.items()]


def reason(message: str) -> str | None:
    """The documented reason of a refusal; None if there is none."""
    return next((text for pattern, text in _PATTERNS if pattern.search(message)), None)
