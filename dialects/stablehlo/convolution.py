"""`stablehlo.convolution`, and the attribute that says what its dimensions are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import (
    I64,
    AnyTensorType,
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    StringAttr,
    i1,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.stablehlo.checks import check_positive, check_rank, check_shape, fits, tensor_of
from vllm_ir.dialects.stablehlo.windows import padding_pairs, window_count

Labels: TypeAlias = ArrayAttr[StringAttr]
"""What each dimension is: `b`atch and `f`eature, or `i`nput and `o`utput feature, and the number of a spatial one."""


def labels(text: str) -> Labels:
    """`"bf01"` as labels, one letter or digit each."""
    return ArrayAttr([StringAttr(letter) for letter in text])


@irdl_attr_definition
class ConvDimensionsAttr(ParametrizedAttribute):
    """What the dimensions of a convolution's operands and result are: `[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]`."""

    name = "stablehlo.conv"

    input: Labels
    kernel: Labels
    output: Labels

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Parse `<[..]x[..]->[..]>`."""
        with parser.in_angle_brackets():
            first = _parse_labels(parser)
            parser.parse_keyword("x")
            second = _parse_labels(parser)
            parser.parse_punctuation("->")
            return (first, second, _parse_labels(parser))

    def print_parameters(self, printer: Printer) -> None:
        """Print `<[..]x[..]->[..]>`."""
        with printer.in_angle_brackets():
            for mark, part in (("", self.input), ("x", self.kernel), ("->", self.output)):
                printer.print_string(f"{mark}[{', '.join(label.data for label in part.data)}]")

    def verify(self) -> None:
        """Each list names its two features and every spatial dimension once."""
        for name, part, features in (
            ("input", self.input, "bf"),
            ("kernel", self.kernel, "io"),
            ("output", self.output, "bf"),
        ):
            given = [label.data for label in part.data]
            wanted = {*features, *map(str, range(len(given) - 2))}
            if set(given) != wanted or len(wanted) != len(given):
                raise VerifyException(f"{name} dimensions are {given}, expected each of {sorted(wanted)} once")
        if not len(self.input.data) == len(self.kernel.data) == len(self.output.data):
            raise VerifyException("input, kernel and output have different numbers of dimensions")


def _parse_labels(parser: AttrParser) -> Labels:
    def label() -> StringAttr:
        name = parser.parse_optional_identifier()
        return StringAttr(str(parser.parse_integer(allow_negative=False)) if name is None else name)

    return ArrayAttr(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, label))


@irdl_op_definition
class ConvolutionOp(IRDLOperation):
    """Dot products of windows of `lhs` with slices of `rhs`."""

    name = "stablehlo.convolution"

    lhs = operand_def(AnyTensorType)
    rhs = operand_def(AnyTensorType)
    window_strides = opt_prop_def(DenseArrayBase.constr(i64))
    padding = opt_prop_def(DenseIntOrFPElementsAttr)
    lhs_dilation = opt_prop_def(DenseArrayBase.constr(i64))
    rhs_dilation = opt_prop_def(DenseArrayBase.constr(i64))
    window_reversal = opt_prop_def(DenseArrayBase.constr(i1))
    dimension_numbers = prop_def(ConvDimensionsAttr)
    feature_group_count = prop_def(IntegerAttr[I64])
    batch_group_count = prop_def(IntegerAttr[I64])
    precision_config = opt_prop_def(ArrayAttr[Attribute])
    result = result_def(AnyTensorType)

    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Ranks, features and groups agree, and the result has one element per window."""
        lhs, rhs = tensor_of("lhs", self.lhs).get_shape(), tensor_of("rhs", self.rhs).get_shape()
        numbers = self.dimension_numbers
        rank = len(numbers.input.data)
        if not len(lhs) == len(rhs) == rank:
            raise VerifyException(f"lhs and rhs have {len(lhs)} and {len(rhs)} dimensions, dimension_numbers {rank}")
        at = _positions(numbers.input)
        kernel, output = _positions(numbers.kernel), _positions(numbers.output)
        groups, batches = self.feature_group_count.value.data, self.batch_group_count.value.data
        check_positive("feature_group_count", [groups])
        check_positive("batch_group_count", [batches])
        if not fits(lhs[at["f"]], rhs[kernel["i"]] * groups):
            raise VerifyException(
                f"lhs has {lhs[at['f']]} features, rhs takes {rhs[kernel['i']]} in each of {groups} groups"
            )
        expected = [0] * rank
        expected[output["b"]] = lhs[at["b"]] // batches
        expected[output["f"]] = rhs[kernel["o"]]
        for index, count in enumerate(self._windows(lhs, rhs)):
            expected[output[str(index)]] = count
        check_shape("result", tensor_of("result", self.result), expected)

    def _windows(self, lhs: Sequence[int], rhs: Sequence[int]) -> list[int]:
        numbers = self.dimension_numbers
        at, kernel = _positions(numbers.input), _positions(numbers.kernel)
        spatial = len(lhs) - 2
        given = [
            [1] * spatial if entries is None else [int(entry) for entry in entries.get_values()]
            for entries in (self.window_strides, self.lhs_dilation, self.rhs_dilation)
        ]
        pads = padding_pairs(self.padding, spatial)
        for name, entries in zip(("window_strides", "lhs_dilation", "rhs_dilation"), given, strict=True):
            check_rank(name, entries, spatial)
            check_positive(name, entries)
        return [
            window_count(lhs[at[str(i)]], rhs[kernel[str(i)]], given[0][i], *pads[i], given[2][i], given[1][i])
            for i in range(spatial)
        ]


def _positions(part: Labels) -> dict[str, int]:
    return {label.data: position for position, label in enumerate(part.data)}
