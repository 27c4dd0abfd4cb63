"""The file that says what the patterns of our fusions consist of: `python -m vllm_ir.tools.fusion_index` writes it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from vllm_ir.conversions.fusion.catalog import FUSIONS
from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.conversions.fusion.library import INDEX, index_key, source_hash, traced_sketches
from vllm_ir.tools.files import write_whole


def index_text() -> str:
    """What the file has to say, a fusion a line."""
    lines: list[str] = []
    for fusion in sorted(FUSIONS, key=lambda fusion: fusion.name):
        for decompose in (False, True):
            lines.append(f"{json.dumps(index_key(fusion, decompose))}: {json.dumps(entry(fusion, decompose))}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def entry(fusion: Fusion, decompose: bool) -> dict[str, object]:
    """What the file has to say of a fusion, in programs with operators of PyTorch or in decomposed ones."""
    variants = [
        [sketch.example, sketch.root, *map(sorted, (sketch.feeding, sketch.looked_for, sketch.made)), sketch.size]
        for sketch in traced_sketches(fusion, decompose)
    ]
    return {"source": source_hash(fusion), "variants": variants}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; with `--check` say whether it is as it should be."""
    parser = argparse.ArgumentParser(prog="python -m vllm_ir.tools.fusion_index", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the file would change")
    options = parser.parse_args(arguments)
    text = index_text()
    if options.check:
        same = INDEX.exists() and INDEX.read_text(encoding="utf-8") == text
        print("the index is up to date" if same else "the index is stale; run python -m vllm_ir.tools.fusion_index")
        return 0 if same else 1
    write_whole(INDEX, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
