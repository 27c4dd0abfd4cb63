"""Memory of tensors that XLA reads and writes: addresses, lifetimes, dtypes."""

import gc
import os

import pytest
import torch

from test.backends.stablehlo.programs import CACHE, SINGLE, program
from vllm_ir.backends.stablehlo.jaxlib_calls import client
from vllm_ir.backends.stablehlo.signature import Alias, Argument, Plain, Result, Signature, TensorFacts, View
from vllm_ir.backends.stablehlo.xla import Execution, program_of

DTYPES = {
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "ui8": torch.uint8,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
    "complex<f32>": torch.complex64,
}


def live() -> int:
    """How many arrays XLA's client knows."""
    gc.collect()
    return len(client().live_arrays())


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4)], ids=str)
def test_dtypes_go_in_and_out_bit_by_bit(element, shape):
    kind = "tensor<" + "".join(f"{size}x" for size in shape) + f"{element}>"
    made = program(
        f"func.func public @main(%x: {kind} {{tf.aliasing_output = 0 : i32}}, %y: {kind}) -> ({kind}, {kind}) {{"
        f" func.return %y, %x : {kind}, {kind} }}"
    )
    dtype = DTYPES[element]
    x, y = (torch.randint(0, 2, shape).to(dtype) for _ in range(2))
    old, new, pointer = x.clone(), y.clone(), x.data_ptr()
    first, second = made.run(x, y)
    assert first is x
    assert x.data_ptr() == pointer
    assert second.dtype == dtype
    for value, wanted in ((x, new), (y, new), (second, old)):
        assert value.shape == shape
        assert value.untyped_storage().tolist() == wanted.untyped_storage().tolist()


def test_a_view_of_the_memory_sees_what_is_written():
    base = torch.zeros(3, 64, 16)
    numpy, cache = base.numpy(), base[1]
    program(CACHE).run(cache, torch.ones(1, 16), torch.tensor(7, dtype=torch.int32))
    assert base[1, 7].tolist() == [1] * 16
    assert base.sum() == numpy.sum() == 16


@pytest.mark.parametrize("offset", [1, 16])
def test_unaligned_and_strided_tensors_are_written_back(offset):
    made = program(CACHE)
    base = torch.randn(64 * 16 + 16)
    unaligned = base[offset : offset + 64 * 16].view(64, 16)
    wide = torch.randn(64, 32)
    for cache in (unaligned, wide[:, ::2], torch.randn(16, 64).t()):
        wanted, pointer = cache.clone(), cache.data_ptr()
        wanted[5] = 2
        made.run(cache, torch.full((1, 16), 2.0), torch.tensor(5, dtype=torch.int32))
        assert torch.equal(cache, wanted)
        assert cache.data_ptr() == pointer


def test_overlapping_inputs_are_refused():
    made = program(
        "func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xf32>) -> tensor<4xf32> {"
        " %z = stablehlo.add %x, %y : tensor<4xf32>\n func.return %z : tensor<4xf32> }"
    )
    base = torch.ones(8)
    with pytest.raises(ValueError, match=r"inputs 0 \(0\) and 1 \(1\) overlap, and the program writes the first"):
        made.run(base[:4], base[2:6])
    made.run(base[:4], base[4:])
    assert base.tolist() == [2, 2, 2, 2, 1, 1, 1, 1]


def test_memory_lives_as_long_as_it_is_used():
    made = program(CACHE)
    cache, row = torch.zeros(64, 16), torch.ones(1, 16)
    old, new = made.run(cache, row, torch.tensor(0, dtype=torch.int32))
    address = cache.data_ptr()
    del cache, row
    gc.collect()
    others = [torch.full((64, 16), 9.0) for _ in range(50)]
    assert new.data_ptr() == address
    assert all(other.data_ptr() != address for other in others)
    assert new.sum() == 16
    del new, old
    before = live()
    (result,) = program(SINGLE.replace("{tf.aliasing_output = 0 : i32}", "")).run(torch.ones(4))
    assert live() == before + 1
    result.add_(1)
    assert result.tolist() == [3, 3, 3, 3]
    del result
    assert live() == before


def test_steps_do_not_pile_up_buffers():
    made = program(CACHE)
    cache, row = torch.zeros(64, 16), torch.ones(1, 16)
    made.run(cache, row, torch.tensor(0, dtype=torch.int32))
    before, pointer = live(), cache.data_ptr()
    for step in range(100):
        old, _ = made.run(cache, row, torch.tensor(step % 64, dtype=torch.int32))
        assert old == 16 * min(max(step, 1), 64)
        assert cache.data_ptr() == pointer
    assert live() <= before + 1
    assert torch.equal(cache, torch.ones(64, 16))
    cache.resize_(2)  # the tensor's own memory is as it was before XLA had it


def test_results_can_be_caches_of_the_next_program():
    zeros = program(
        "func.func public @main() -> tensor<64x16xf32> {"
        " %z = stablehlo.constant dense<0.0> : tensor<64x16xf32>\n func.return %z : tensor<64x16xf32> }"
    )
    (cache,) = zeros.run()
    pointer = cache.data_ptr()
    made = program(CACHE, "must")
    for step in range(3):
        made.run(cache, torch.ones(1, 16), torch.tensor(step, dtype=torch.int32))
    assert cache.data_ptr() == pointer
    assert cache.sum() == 48


def facts(*shape: int) -> TensorFacts:
    return TensorFacts(shape, torch.float32, torch.empty(shape).stride())


def test_outputs_that_are_windows_and_plain_values():
    tensor = facts(4)
    signature = Signature(
        (Argument("x", tensor),),
        (
            Plain(None),
            Alias(0),
            View(0, TensorFacts((2, 2), torch.float32, (1, 2)), 8),
            View(0, TensorFacts((8,), torch.int16, (1,)), 16),
            Plain(7),
        ),
        {0: 0},
        {1: 0},
    )
    call = program_of(program(SINGLE).executable, signature, in_place=True, offsets={0: 8})
    for offset in (8, 16):  # the program was made where the argument is at 8
        base = torch.arange(32.0)
        x = base[offset : offset + 4]
        none, same, window, pieces, seven = call(x)
        assert none is None
        assert same is x
        assert seven == 7
        assert x.tolist() == [2 * (offset + i) for i in range(4)]
        assert window.tolist() == [[x[0], x[2]], [x[1], x[3]]]
        assert torch.equal(pieces, x.view(torch.int16))
        window.zero_()
        assert x.tolist() == [0, 0, 0, 0]


def test_held_arguments_see_new_contents_and_new_tensors():
    executable = program(SINGLE.replace("{tf.aliasing_output = 0 : i32}", "")).executable
    signature = Signature((Argument("w", facts(4)),), (Result(0, facts(4)),))
    call = program_of(executable, signature, in_place=True, held=[0])
    aligned, unaligned = torch.ones(4), torch.ones(5)[1:]
    for weight in (aligned, unaligned, aligned, torch.nn.Parameter(torch.ones(4))):
        for value in (1.0, 3.0):
            with torch.no_grad():
                weight.fill_(value)
            assert call(weight)[0].tolist() == [2 * value] * 4


def test_arguments_that_share_memory_are_read_before_one_is_written():
    executable = program(
        "func.func public @main(%x: tensor<16xf32> {tf.aliasing_output = 0 : i32},"
        " %y: tensor<16xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<16xf32>, tensor<16xf32>) {"
        " %z = stablehlo.add %x, %x : tensor<16xf32>\n %v = stablehlo.multiply %y, %y : tensor<16xf32>\n"
        " %w = stablehlo.multiply %v, %y : tensor<16xf32>\n func.return %z, %w : tensor<16xf32>, tensor<16xf32> }"
    ).executable
    signature = Signature((Argument("x", facts(16)), Argument("y", facts(16))), (), {0: 0, 1: 1})
    call = program_of(executable, signature, in_place=True, overlapping=[[0, 1]])
    x = torch.full((16,), 3.0)
    call(x, x)
    assert x.tolist() == [27] * 16  # of the old contents, and not of those that the other result has put there


def test_a_forked_child_gets_an_error_and_no_crash():
    program(SINGLE).run(torch.ones(4))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            program(SINGLE).run(torch.ones(4))
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    assert os.read(reader, 200).startswith(b"XLA was used before this process was forked")
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("alias", ["may", "must"])
def test_xla_writes_into_the_memory_of_the_tensor(alias):
    execution = Execution(program(CACHE, alias).executable)
    for cache in (torch.zeros(64, 16), torch.zeros(3, 64, 16)[1], torch.zeros(128, 16)[4:68]):
        at = execution.read(torch.tensor(2, dtype=torch.int32))
        buffers = [execution.lend(cache), execution.read(torch.ones(1, 16)), at]
        results = execution.run(buffers)
        assert buffers[0].is_deleted()
        assert results[1].unsafe_buffer_pointer() == cache.data_ptr()
        assert cache[2].sum() == cache.sum() == 16


def test_an_argument_that_is_only_read_is_not_written():
    execution = Execution(program(CACHE).executable)
    cache = torch.zeros(64, 16)
    at = execution.read(torch.tensor(2, dtype=torch.int32))
    results = execution.run([execution.read(cache), execution.read(torch.ones(1, 16)), at])
    assert results[1].unsafe_buffer_pointer() != cache.data_ptr()
    assert cache.sum() == 0
