"""Reading the elements of dense literals."""

from __future__ import annotations

from xdsl.dialects.builtin import AnyFloat, ComplexType, IndexType, IntegerType
from xdsl.parser import AttrParser


class DenseElement(AttrParser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]  # it has no public name
    """An element of a dense literal, as xDSL's parser reads it, except for floating-point numbers in hexadecimal.

    Those are the bits of the number, which the parser takes for an integer. Infinities and NaN are printed so.
    """

    def to_type(
        self, parser: AttrParser, type: AnyFloat | IntegerType | IndexType | ComplexType
    ) -> float | tuple[float, float]:
        """The element as one of a type."""
        if isinstance(type, AnyFloat) and not isinstance(self.value, tuple):
            return _number(parser, self, self.span.text, self.value, type)
        if isinstance(type, ComplexType) and isinstance(type.element_type, AnyFloat) and isinstance(self.value, tuple):
            real, imaginary = self.span.text.strip("()").split(",")
            part = type.element_type
            return (
                _number(parser, self, real, self.value[0], part),
                _number(parser, self, imaginary, self.value[1], part),
            )
        return super().to_type(parser, type)


def _number(parser: AttrParser, element: DenseElement, text: str, value: float, type: AnyFloat) -> float:
    """A number that was written as `text`."""
    text = text.strip().lower()
    if not text.lstrip("-").startswith("0x"):
        return float(value)
    if text.startswith("-") or int(text, 16) >= 1 << type.bitwidth:
        parser.raise_error(f"{text} is not the bits of a number of type {type}", element.span)
    return next(type.iter_unpack(int(text, 16).to_bytes(type.compile_time_size, "little")))
