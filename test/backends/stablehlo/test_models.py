"""Decoders and shared caches on XLA: results of eager mode, one aliased output per cache, nothing as large copied.

Every count of copies is also taken from the same program without aliases, where it must not be zero.
"""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vllm_ir.backends.stablehlo.program as program_module
from vllm_ir.backends.stablehlo.jaxlib_calls import Executable
from vllm_ir.backends.stablehlo.xla import Execution
from vllm_ir.tools.xla import vllm_ir_xla

EXAMPLES = Path(__file__).parents[3] / "examples"
STEPS = 16
# Both orders of summation are as far from the exact sums as rounding takes them, eager's no nearer on principle: a few
# times eager's own distance from the results in float64 is as close as they can be asked to be.
ROUNDINGS = 8
SHARE = 0.2
"""Of a cache, that a program may allocate; a copy of one of its layers would be more."""


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    torch._dynamo.reset()
    with torch.no_grad():
        yield


@pytest.fixture
def executables(monkeypatch: pytest.MonkeyPatch):
    """What XLA compiles, in order."""
    made: list[Executable] = []
    compile_module = program_module.compile_module

    def compile_and_note(bytecode: bytes) -> Executable:
        made.append(compile_module(bytecode))
        return made[-1]

    monkeypatch.setattr(program_module, "compile_module", compile_and_note)
    return made


def compiled(function, **options):
    return torch.compile(function, backend=vllm_ir_xla, fullgraph=True, dynamic=False, **options)


def check_no_copies(program, cache: Tensor, share: float) -> None:
    """XLA aliases the cache, copies nothing of its size, and allocates less than a share of it in all."""
    from xla_memory import aliased_parameters, scratch, whole_writes

    hlo = program.optimized_hlo()
    assert aliased_parameters(hlo) == dict(program.io_map)
    assert whole_writes(hlo, cache.numel()) == []
    assert scratch(program) < cache.nbytes * share


def check_pointers(program, arguments) -> None:
    """Results are where XLA was lent the memory of arguments."""
    execution = Execution(program.executable)
    aliased = program.io_map
    lent = [copy.deepcopy(value) for value in arguments]
    buffers = [
        execution.lend(value)
        if index in aliased.values()
        else execution.read(value)
        if isinstance(value, Tensor)
        else execution.read_number(value)
        for index, value in enumerate(lent)
    ]
    results = execution.run(buffers)
    for result, argument in aliased.items():
        assert results[result].unsafe_buffer_pointer() == lent[argument].data_ptr()


def test_paged_decoder(executables: list[Executable]) -> None:
    from paged_model import Size, generate, make_block_table, make_cache, make_model, make_step, places_at, registered
    from xla_memory import aliased_parameters, record, whole_writes

    size = Size(layers=3, hidden=64, vocabulary=211, sequences=2, length=12 + STEPS, blocks=64)
    model = make_model(size, registered())
    step, table = make_step(model), make_block_table(size)
    prompt = torch.arange(24).reshape(2, 12)
    exact = generate(make_step(copy.deepcopy(model).double()), prompt, make_cache(size).double(), table, STEPS)
    expected_cache, cache = make_cache(size), make_cache(size)
    pointer = cache.data_ptr()
    expected = generate(step, prompt, expected_cache, table, STEPS)
    ours = generate(compiled(step), prompt, cache, table, STEPS)
    assert ours.tokens == expected.tokens
    bound = ROUNDINGS * (expected.logits - exact.logits).abs().max().item()
    assert 0 < bound < 1e-4
    torch.testing.assert_close(ours.logits, expected.logits, rtol=0, atol=bound)
    torch.testing.assert_close(cache, expected_cache, rtol=0, atol=bound)
    assert cache.data_ptr() == pointer
    assert len(executables) == 2  # the prompt's program and the step's: each step ran the same one
    for executable in executables:
        hlo = executable.hlo_modules()[0].to_string()
        assert len(aliased_parameters(hlo)) == 1
        assert whole_writes(hlo, cache.numel()) == []
    recorder = record(step, torch.tensor([[3], [4]]), places_at(table, size.length - 1, 1), cache)
    (program,), (arguments,) = recorder.programs, recorder.arguments
    assert [arguments[index] is cache for index in program.io_map.values()] == [True]
    check_no_copies(program, cache, SHARE)
    check_pointers(program, arguments)
    assert whole_writes(recorder.copying[0].optimized_hlo(), cache.numel()) != []


def test_static_cache_llama(executables: list[Executable]) -> None:
    pytest.importorskip("transformers")
    from llama_decoder import Size, cache_tensors, generate, make_cache, make_model, make_step
    from xla_memory import aliased_parameters, record

    size = Size(layers=2, hidden=64, vocabulary=211, cache_length=64)
    model = make_model(size)
    step, prompt = make_step(model), torch.arange(1, 13).reshape(1, 12)
    expected_cache, cache = make_cache(size), make_cache(size)
    tensors = cache_tensors(cache)
    pointers = [tensor.data_ptr() for tensor in tensors]
    expected = generate(step, prompt, expected_cache, STEPS)
    ours = generate(compiled(step), prompt, cache, STEPS)
    assert ours.tokens == expected.tokens
    bound = 1e-5  # as in examples/llama_static_cache.py
    torch.testing.assert_close(ours.logits, expected.logits, rtol=0, atol=bound)
    for ours_now, wanted in zip(tensors, cache_tensors(expected_cache), strict=True):
        torch.testing.assert_close(ours_now, wanted, rtol=0, atol=bound)
    assert [tensor.data_ptr() for tensor in tensors] == pointers
    for executable in executables:
        assert len(aliased_parameters(executable.hlo_modules()[0].to_string())) == len(tensors) == 6
    recorder = record(step, torch.tensor([[3]]), cache)
    (program,), (arguments,) = recorder.programs, recorder.arguments
    assert {arguments[index].data_ptr() for index in program.io_map.values()} == set(pointers)
    check_no_copies(program, tensors[0], 8)  # attention has temporaries, of few positions
    check_pointers(program, arguments)


def four_views(cache: Tensor, row: Tensor, slots: Tensor) -> Tensor:
    """Writes to one cache through a select, a slice, a flattened view and a transposed one, with a read between."""
    cache[1, 0].index_copy_(0, slots, row.expand(2, 16))
    old = cache[1, 0].sum()
    cache[0, :, 3:5] = row
    cache[2].view(-1, 16)[slots] = row.expand(2, 16) * old
    cache[3].transpose(0, 1)[7] = row
    return cache[:, 0, 3].sum()


def stacked(cache: Tensor, row: Tensor, slots: Tensor) -> Tensor:
    """Two writes to one layer, with reads of its older values, then one to another."""
    keys, values = cache[1].unbind(0)
    keys[slots] = row.expand(2, 16)
    first = keys.sum()
    keys[slots + 1] = values[slots]
    values[5] = first
    cache[-1, 1, slots] += keys[slots]
    return keys.sum() + first


@pytest.mark.parametrize("function", [four_views, stacked])
def test_writes_through_views_are_one_alias(function, executables: list[Executable]) -> None:
    from xla_memory import aliased_parameters, record, whole_writes

    cache, row, slots = torch.randn(4, 2, 64, 16), torch.randn(16), torch.tensor([9, 30])
    ours, wanted = cache.clone(), cache.clone()
    result, expected = compiled(function)(ours, row, slots), function(wanted, row, slots)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(ours, wanted)
    assert len(aliased_parameters(executables[0].hlo_modules()[0].to_string())) == 1
    recorder = record(function, cache.clone(), row, slots)
    (program,), (arguments,) = recorder.programs, recorder.arguments
    assert list(program.io_map) == [1]
    assert program.original_output_count == 1
    check_no_copies(program, cache, SHARE)
    check_pointers(program, arguments)
    assert whole_writes(recorder.copying[0].optimized_hlo(), cache.numel()) != []
