"""The models that the documentation speaks of, small and with random weights, and the operators that they consist of.

`python -m vllm_ir.tools.operators.models` converts all of them to StableHLO and keeps what became of their operators in
`docs/stablehlo_models.json`, from which `stablehlo_report` makes a table.
"""

# pyright: reportUnknownMemberType=false
# PyTorch does not type these.

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.frontends.fx.importer import import_fx
from vllm_ir.frontends.ops import ops
from vllm_ir.tools.files import write_whole
from vllm_ir.tools.pipelines import run_passes
from vllm_ir.tools.stablehlo import PURE, to_program

_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_DECODER = {**_SIZES, "vocab_size": 61, "max_position_embeddings": 64, "pad_token_id": 0}
_GROUPED = {**_DECODER, "num_key_value_heads": 2}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 61, "n_positions": 64}
_ENDS = {"bos_token_id": 1, "eos_token_id": 2}
_DECODERS: dict[str, tuple[str, str, Mapping[str, object]]] = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**_GROUPED, "head_dim": 8}),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", {**_GPT2, **_ENDS}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**_DECODER, "rotary_pct": 0.5}),
    "Mixtral": ("MixtralForCausalLM", "MixtralConfig", {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
}
_ENCODERS: dict[str, tuple[str, str, Mapping[str, object]]] = {
    "BERT": ("BertModel", "BertConfig", _DECODER),
    "ViT": ("ViTModel", "ViTConfig", {**_SIZES, "image_size": 32, "patch_size": 8}),
}
DECODERS, ENCODERS = tuple(_DECODERS), tuple(_ENCODERS)
CACHE_LENGTH = 16


def build(name: str) -> Any:  # transformers declares no types
    """The model `name`, with the same weights each time."""
    import transformers

    kind, config, settings = (_DECODERS | _ENCODERS)[name]
    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval()


def encoder_inputs(name: str) -> dict[str, Tensor]:
    """The keywords of a call of an encoder."""
    if name == "ViT":
        return {"pixel_values": torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
    return {
        "input_ids": torch.arange(14).reshape(2, 7),
        "attention_mask": torch.tensor([[1] * 7, [1] * 4 + [0] * 3]),
    }


def decoder_inputs(tokens: Tensor, position: int, cache: Any) -> dict[str, object]:
    """The keywords of a call of a decoder on tokens behind `position`, with a static cache of transformers."""
    places = torch.arange(position, position + tokens.shape[1])
    return {
        "input_ids": tokens,
        "position_ids": places[None],
        "cache_position": places,
        "past_key_values": cache,
        "use_cache": True,
    }


def operators_of(name: str) -> dict[str, str]:
    """The operators of a model's graphs, in a prompt and in a decoding step.

    Each is `converted`, or has the reason why its graph was refused.
    """
    model = build(name)
    if name in _ENCODERS:
        return _operators(model, [encoder_inputs(name)])
    import transformers

    cache = transformers.StaticCache(config=model.config, max_cache_len=CACHE_LENGTH)
    calls = ((torch.tensor([[5, 17, 3, 44, 8]]), 0), (torch.tensor([[7]]), 5))
    return _operators(model, [decoder_inputs(tokens, position, cache) for tokens, position in calls])


def operators_of_example(folder: Path) -> dict[str, str]:
    """The operators of the paged decoder of the examples."""
    sys.path.insert(0, str(folder))
    example = importlib.import_module("paged_decode_step")
    names = ("ids", "positions", "slots", "table", "cache")
    return _operators(example.decode, [dict(zip(names, example.example_inputs(), strict=True))])


def _operators(model: Any, calls: Iterable[Mapping[str, object]]) -> dict[str, str]:
    found: dict[str, str] = {}

    def probe(gm: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        module = import_fx(gm, inputs)
        run_passes(module, PURE)
        found.update(_converted(module))
        return gm.forward

    torch.compiler.reset()
    compiled = torch.compile(model, backend=probe, dynamic=False, fullgraph=True)
    with torch.no_grad():
        for keywords in calls:
            compiled(**keywords)
    return dict(sorted(found.items()))


def _converted(module: ModuleOp) -> dict[str, str]:
    calls = sorted({op.target for op in module.walk() if isinstance(op, CallOp)})
    ours = sorted({op.name for op in module.walk() if op.name.removeprefix("vllm_ir.") in ops})
    try:
        to_program(module)
    except PassFailedException as error:
        return dict.fromkeys([*calls, *ours], " ".join(str(error).split()))
    return dict.fromkeys([*calls, *ours], "converted")


def main(page: Path = Path("docs/stablehlo.md")) -> None:
    """Convert all models, and keep what became of their operators."""
    found = {name: operators_of(name) for name in (*DECODERS, *ENCODERS)}
    found["paged decoder of the examples"] = operators_of_example(page.parent.with_name("examples"))
    write_whole(page.with_name("stablehlo_models.json"), (json.dumps(found, indent=1) + "\n").encode())


def read(beside: Path) -> dict[str, dict[str, str]]:
    """What `main` has kept, beside a file of the documentation."""
    return json.loads(beside.with_name("stablehlo_models.json").read_text(encoding="utf-8"))


def table(found: Mapping[str, Mapping[str, str]]) -> str:
    """The models, and how many of their operators convert."""
    lines = ["| Model | Operators | Convert |", "|---|---|---|"]
    for name, operators in found.items():
        lines.append(f"| {name} | {len(operators)} | {_count(operators.values())} |")
    every = {operator: outcome for operators in found.values() for operator, outcome in operators.items()}
    share = _count(every.values()) / max(len(every), 1)
    lines += ["", f"Together {len(every)} operators, of which {share:.0%} convert:"]
    names = ", ".join(f"`{name}`" if outcome == "converted" else f"`{name}` (no)" for name, outcome in every.items())
    return "\n".join([*lines, names])


def _count(outcomes: Iterable[str]) -> int:
    return sum(outcome == "converted" for outcome in outcomes)


if __name__ == "__main__":
    main()
