"""StableHLO text that tests share."""

from vllm_ir.backends.stablehlo.aliases import AliasMode
from vllm_ir.backends.stablehlo.program import StableHLOProgram
from vllm_ir.tools.text import parse

CACHE = """
func.func public @main(%cache: tensor<64x16xf32> {tf.aliasing_output = 1 : i32}, %row: tensor<1x16xf32>,
                       %at: tensor<i32>) -> (tensor<f32>, tensor<64x16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %old = "stablehlo.reduce"(%cache, %none) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    "stablehlo.return"(%sum) : (tensor<f32>) -> ()
  }) : (tensor<64x16xf32>, tensor<f32>) -> tensor<f32>
  %new = "stablehlo.dynamic_update_slice"(%cache, %row, %at, %zero)
      : (tensor<64x16xf32>, tensor<1x16xf32>, tensor<i32>, tensor<i32>) -> tensor<64x16xf32>
  func.return %old, %new : tensor<f32>, tensor<64x16xf32>
}
"""
"""Returns the sum of the cache before it writes a row of it: old contents are read and new ones written."""

SINGLE = """
func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
  %y = stablehlo.add %x, %x : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
"""


def program(text: str, alias: AliasMode = "may") -> StableHLOProgram:
    """The program that a text describes."""
    return StableHLOProgram(parse(text), alias=alias)
