"""Whole programs: converted and evaluated, they give what eager mode gives, and what XLA gives."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx

import vllm_ir as ir
from vllm_ir.backends.interpreter.stablehlo.interpret import interpret_stablehlo
from vllm_ir.tools.operators.database import Entry, entries, samples_of, spread
from vllm_ir.tools.operators.stablehlo_sweep import program_of
from vllm_ir.tools.text import parse

TEST = Path(__file__).parents[3]
PASSES = "alias-outputs,functionalize,convert-to-stablehlo,narrow-updates"


@pytest.fixture
def texts():
    """The programs of the tests of the runtime."""
    spec = importlib.util.spec_from_file_location("vllm_ir_runtime_programs", TEST / "backends/stablehlo/programs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_programs_of_the_runtime(texts) -> None:
    """Integers in floats: sums are exact in any order."""
    generator = torch.Generator().manual_seed(0)

    def inputs() -> list[list[Tensor]]:
        cache = torch.randint(-9, 9, (64, 16), generator=generator.manual_seed(1)).float()
        return [[cache, torch.full((1, 16), 7.0), torch.tensor(at, dtype=torch.int32)] for at in (5, -1, 63, 99)]

    for ours, theirs in zip(inputs(), inputs(), strict=True):
        found, expected = interpret_stablehlo(parse(texts.CACHE), *ours), texts.program(texts.CACHE).run(*theirs)
        assert found[1] is ours[0]
        assert torch.equal(found[0], expected[0])
        assert torch.equal(ours[0], theirs[0])
    x = torch.arange(4.0)
    assert interpret_stablehlo(parse(texts.SINGLE), x)[0] is x
    assert x.tolist() == [0, 2, 4, 6]


def reference(gm: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    """A backend of `torch.compile`: each graph is converted to StableHLO and evaluated."""
    module = ir.run_passes(ir.import_fx(gm, inputs), PASSES)
    return lambda *arguments: interpret_stablehlo(module, *arguments)


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TEST.parent / "examples"))
    with torch.no_grad():
        yield


STEPS = 4


def test_static_cache_llama(examples) -> None:
    pytest.importorskip("transformers")
    from llama_decoder import Size, cache_tensors, generate, make_cache, make_model, make_step

    size = Size(layers=2, hidden=64, vocabulary=101, cache_length=24)
    step, prompt = make_step(make_model(size)), torch.arange(1, 9).reshape(1, 8)
    expected_cache, cache = make_cache(size), make_cache(size)
    pointers = [tensor.data_ptr() for tensor in cache_tensors(cache)]
    expected = generate(step, prompt, expected_cache, STEPS)
    ours = generate(torch.compile(step, backend=reference, fullgraph=True, dynamic=False), prompt, cache, STEPS)
    assert ours.tokens == expected.tokens
    bound = 1e-5  # as for XLA, in test/backends/stablehlo/test_models.py
    torch.testing.assert_close(ours.logits, expected.logits, rtol=0, atol=bound)
    for now, wanted in zip(cache_tensors(cache), cache_tensors(expected_cache), strict=True):
        torch.testing.assert_close(now, wanted, rtol=0, atol=bound)
    assert [tensor.data_ptr() for tensor in cache_tensors(cache)] == pointers


def test_paged_decoder(examples) -> None:
    from paged_model import Size, generate, make_block_table, make_cache, make_model, make_step, registered

    size = Size(layers=2, hidden=64, vocabulary=101, sequences=2, length=8 + STEPS, blocks=16)
    step, table = make_step(make_model(size, registered())), make_block_table(size)
    prompt = torch.arange(16).reshape(2, 8)
    expected_cache, cache = make_cache(size), make_cache(size)
    expected = generate(step, prompt, expected_cache, table, STEPS)
    compiled = torch.compile(step, backend=reference, fullgraph=True, dynamic=False)
    ours = generate(compiled, prompt, cache, table, STEPS)
    assert ours.tokens == expected.tokens
    torch.testing.assert_close(ours.logits, expected.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(cache, expected_cache, rtol=0, atol=1e-5)


# PyTorch's samples of its operators

DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.complex64, torch.bfloat16)
SAMPLES, EVERY = 3, 24
TOLERANCE = {torch.float32: (2e-5, 1e-5), torch.float64: (1e-9, 1e-9), torch.complex64: (1e-4, 1e-5)}
"""As far as eager's kernels are from the evaluator, which rounds functions and products once: polynomials in place of
functions, sums of some ten to a hundred terms. Everything else is exact."""


def differences(name: str, entry: Entry) -> tuple[int, list[str]]:
    """How many samples of an entry convert and were compared, and what is wrong with any of them."""
    dtype = next((dtype for dtype in DTYPES if dtype in entry.supported_dtypes("cpu")), None)
    count, wrong = 0, []
    for sample in [] if dtype is None else spread(samples_of(entry, dtype)[:48], SAMPLES):
        program, tensors = program_of(entry, sample)
        try:
            expected = program(*(tensor.clone() for tensor in tensors))
            module = ir.run_passes(ir.import_callable(program, *tensors), PASSES)
        except Exception:  # noqa: BLE001  # eager mode or the converter refuses it, in any way: not the subject here
            continue
        count += 1
        found = interpret_stablehlo(module, *(tensor.clone() for tensor in tensors))
        for result, value in zip(found, expected, strict=True):
            rtol, atol = TOLERANCE.get(value.dtype, (0, 0))
            value = value.detach().resolve_conj().resolve_neg()
            try:
                torch.testing.assert_close(result, value, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
            except AssertionError as error:
                wrong.append(f"{name}: {' '.join(str(error).split())}")
    return count, wrong


def check_entries(names: Sequence[str]) -> int:
    known = entries()
    # `empty` and its like have any contents.
    outcomes = [differences(name, known[name]) for name in names if "empty" not in name]
    assert [text for _, wrong in outcomes for text in wrong] == []
    return sum(count for count, _ in outcomes)


@pytest.mark.filterwarnings("ignore")
def test_samples_of_operators() -> None:
    names = sorted(entries())
    assert check_entries(names[::EVERY]) > 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(EVERY))
def test_samples_of_all_operators(part: int) -> None:
    assert check_entries(sorted(entries())[part::EVERY]) > 20
