"""IREE, a compiler that is not XLA, reads what is exported and computes what eager mode does.

Programs are exported without aliases: IREE takes `tf.aliasing_output` for the storage of a result, and writes it while
the argument is still to be read. It takes scatters only where the dimensions that are indexed are the first ones.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import vllm_ir as ir

compiler = pytest.importorskip("iree.compiler", reason="IREE is not installed; `make test-iree` installs it")
runtime = pytest.importorskip("iree.runtime", reason="IREE is not installed; `make test-iree` installs it")

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def run_by_iree(program, inputs: list[object], form: str) -> list[np.ndarray]:
    """All results of a program, appended arguments among them, in the order of its function."""
    module = program.to_portable_artifact() if form == "vhlo" else program.text.encode()
    binary = compiler.compile_str(
        module,
        target_backends=["llvm-cpu"],
        input_type="stablehlo",
        extra_args=["--iree-llvmcpu-target-cpu=generic"],
    )
    config = runtime.Config("local-sync")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary))
    arrays = [value.numpy() if isinstance(value, Tensor) else np.int64(value) for value in inputs]
    results = context.modules.module["main"](*arrays)
    return [np.asarray(result) for result in (results if isinstance(results, tuple | list) else [results])]


def check(function, *inputs: Tensor, form: str = "vhlo") -> None:
    """IREE's results are eager's to the rounding of float32, and those that are arguments are what eager leaves there.

    Sums have at most some hundred terms of the order of 1.
    """
    module = ir.import_callable(function, *inputs)
    program = ir.export_stablehlo(module, alias="none")
    results = run_by_iree(program, [value.clone() for value in inputs], form)
    eager = [value.clone() for value in inputs]
    outputs = function(*eager)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    assert len(outputs) == program.original_output_count
    expected = dict(enumerate(outputs)) | {o: eager[i] for o, i in program.io_map.items()}
    assert len(results) == len(expected)
    for index, wanted in expected.items():
        torch.testing.assert_close(torch.from_numpy(results[index].copy()), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["vhlo", "text"])
def test_mlp_that_updates_a_buffer(form: str) -> None:
    def mlp(count: Tensor, x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        count.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return F.gelu((x - count) @ up) @ down

    check(mlp, torch.randn(16), torch.randn(8, 16), torch.randn(16, 32), torch.randn(32, 16) / 6, form=form)


def test_attention_that_writes_a_cache() -> None:
    def attention(cache: Tensor, query: Tensor, key: Tensor, value: Tensor, slots: Tensor, mask: Tensor) -> Tensor:
        cache[0, slots] = key
        cache[1, slots] = value
        keys, values = cache.transpose(1, 2)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)

    rows = [torch.randn(*sizes) for sizes in ((4, 2, 16), (2, 4, 16), (2, 4, 16))]
    mask = torch.tensor([[True] * 7 + [False] * 25, [True] * 8 + [False] * 24])
    check(attention, torch.randn(2, 32, 4, 16), *rows, torch.tensor([6, 7]), mask)


def test_llama_step(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from llama_decoder import Size, cache_tensors, make_cache, make_model, make_step
    from xla_memory import record

    size = Size(layers=1, hidden=64, vocabulary=101, cache_length=32)
    step, cache = make_step(make_model(size)), make_cache(size)
    step(torch.arange(1, 6).reshape(1, 5), cache)
    before = [tensor.clone() for tensor in cache_tensors(cache)]
    recorder = record(step, torch.tensor([[7]]), cache)  # runs the step in eager mode
    (program,), (arguments,) = recorder.copying, recorder.arguments
    logits = step(torch.tensor([[7]]), _restored(cache, before))
    after = cache_tensors(cache)
    pointers = {new.data_ptr(): old for new, old in zip(after, before, strict=True)}
    inputs = [pointers.get(a.data_ptr(), a) if isinstance(a, Tensor) else a for a in arguments]
    results = run_by_iree(program, [v.clone() if isinstance(v, Tensor) else v for v in inputs], "vhlo")
    torch.testing.assert_close(torch.from_numpy(results[0].copy()), logits, rtol=1e-5, atol=1e-5)
    assert len(program.io_map) == len(before) == 3
    for output, argument in program.io_map.items():
        torch.testing.assert_close(
            torch.from_numpy(results[output].copy()), arguments[argument], rtol=1e-5, atol=1e-5, check_stride=False
        )


def _restored(cache, contents: list[Tensor]):
    """The cache with these contents."""
    from llama_decoder import cache_tensors

    for tensor, old in zip(cache_tensors(cache), contents, strict=True):
        tensor.copy_(old)
    return cache
