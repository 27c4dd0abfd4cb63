"""`.pt2` files that are damaged, or that would run code if `torch.export.load` had them."""

from __future__ import annotations

import builtins
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import vllm_ir as ir
from vllm_ir.frontends.fx import exported_file
from vllm_ir.frontends.fx.errors import FxImportError

Records = dict[str, bytes]
CANARY = "vllm_ir_test_canary"


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleDict({"a-b": torch.nn.Linear(4, 4)})
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        self.count.add_(1)
        y = self.layers["a-b"](x) + torch.tensor([1.0, 2, 3, 4])
        y = torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (y,))
        return {"y": y[0], "sizes": [x.shape[0] * 2 + 1]}


@pytest.fixture(name="program", scope="module")
def exported_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = torch.export.Dim("rows", min=2, max=100)
    program = torch.export.export(Model().requires_grad_(False), (torch.ones(6, 4),), dynamic_shapes={"x": {0: rows}})
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    torch.export.save(program, path)
    return path


def _records(path: Path) -> Records:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _written(path: Path, records: Records, extra: tuple[tuple[str, bytes], ...] = ()) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (*records.items(), *extra):
            archive.writestr(name, data)
    return path


class _Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (f"{CANARY}()",)


def _pickled() -> bytes:
    buffer = io.BytesIO()
    torch.save(_Payload(), buffer)
    return buffer.getvalue()


def test_programs_load_as_before(accepted, program: Path):
    text = accepted(None, program)
    assert 'vllm_ir.resource = "layers.a-b.weight"' in text
    assert '"2*s' in text or "s77" in text
    assert str(ir.import_exported(program)) == text.strip()


@pytest.mark.parametrize("step", [997])
def test_files_cut_off_anywhere(refused, program: Path, tmp_path: Path, step: int):
    data = program.read_bytes()
    for end in range(0, len(data), max(len(data) // 20, step)):
        path = tmp_path / "model.pt2"
        path.write_bytes(data[:end])
        assert "model.pt2: error: not a program saved by torch.export.save: " in refused(None, path, place=False)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18])
def test_files_that_are_no_archives(refused, tmp_path: Path, content: bytes):
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    assert "not a program saved by torch.export.save" in refused(None, path, place=False)


def test_an_archive_without_one_of_its_records(refused, program: Path, tmp_path: Path):
    for missing in _records(program):
        records = {name: data for name, data in _records(program).items() if name != missing}
        path = _written(tmp_path / "model.pt2", records)
        if (message := _refusal(path)) is not None:
            assert "\n" not in message
            refused(None, path, place=False)


def _refusal(path: Path) -> str | None:
    try:
        ir.import_exported(path)
    except FxImportError as error:
        return str(error)
    return None


def test_bytes_that_are_changed(program: Path, tmp_path: Path):
    data = program.read_bytes()
    for at in range(11, len(data), len(data) // 40):
        path = tmp_path / "model.pt2"
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        assert "\n" not in (_refusal(path) or "")


# What would run code


def _model(records: Records) -> str:
    return next(name for name in records if "/models/" in name)


def _edited(records: Records, edit: Callable[[dict[str, object]], None]) -> Records:
    content = json.loads(records[_model(records)])
    edit(content)
    return {**records, _model(records): json.dumps(content).encode()}


def _replaced(old: str, new: str) -> Callable[[Records], Records]:
    def edit(records: Records) -> Records:
        name = _model(records)
        text = records[name].decode()
        assert old in text
        return {**records, name: text.replace(old, new).encode()}

    return edit


def _sample_inputs(records: Records) -> Records:
    name = next(name for name in records if "sample_inputs" in name)
    return {**records, name: _pickled()}


def _pickled_weight(records: Records) -> Records:
    config = next(name for name in records if name.endswith("weights_config.json"))
    content = json.loads(records[config])
    first = next(iter(content["config"].values()))
    first["use_pickle"] = True
    weight = next(name for name in records if name.endswith("/" + first["path_name"]))
    return {**records, config: json.dumps(content).encode(), weight: _pickled()}


def _constant(prefix: str) -> Callable[[Records], Records]:
    def edit(records: Records) -> Records:
        config = next(name for name in records if name.endswith("constants_config.json"))
        content = json.loads(records[config])
        first = next(iter(content["config"].values()))
        first.update(path_name=f"{prefix}0", use_pickle=True)
        name = config.rpartition("/")[0] + f"/{prefix}0"
        return {**records, config: json.dumps(content).encode(), name: pickle.dumps(_Payload())}

    return edit


def _compiled_library(records: Records) -> Records:
    root = _model(records).partition("/")[0]
    return {**records, f"{root}/data/aotinductor/model/x.so": b"\x7fELF"}


def _structure(records: Records) -> Records:
    def edit(content: dict[str, object]) -> None:
        context = json.dumps({"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": []})
        spec = json.dumps([1, {"type": "collections.defaultdict", "context": context, "children_spec": []}])
        _set_all(content, "in_spec", spec)

    return _edited(records, edit)


def _set_all(value: object, field: str, text: str) -> None:
    if isinstance(value, dict):
        for key, entry in value.items():
            if key == field and isinstance(entry, str):
                value[key] = text
            else:
                _set_all(entry, field, text)
    elif isinstance(value, list):
        for entry in value:
            _set_all(entry, field, text)


def _field(field: str, text: str) -> Callable[[Records], Records]:
    return lambda records: _edited(records, lambda content: _set_all(content, field, text))


HOSTILE: dict[str, tuple[Callable[[Records], Records], str]] = {
    "sample inputs": (_sample_inputs, "error: "),
    "weights": (_pickled_weight, "error: "),
    "custom object": (_constant("custom_obj_"), "not safe to load: it holds"),
    "opaque object": (_constant("opaque_obj_"), "not safe to load: it holds"),
    "library": (_compiled_library, "not safe to load: it holds"),
    "structure": (_structure, "which names a module to import"),
    "size": (_field("expr_str", f"__import__('builtins').{CANARY}()"), "which is not an expression of SymPy"),
    "size that calls": (_field("expr_str", "eval(chr(49))"), "which is not an expression of SymPy"),
    "size with attributes": (_field("expr_str", "Symbol('s0').__class__"), "which is not an expression of SymPy"),
    "size with text": (_field("expr_str", "Symbol('s0 + f()')"), "which is not an expression of SymPy"),
    "name": (_field("name", f"x={CANARY}()"), "which is not a name"),
    "name of two lines": (_field("name", f"x\n    {CANARY}()"), "which is not a name"),
    "name of a size": (_field("as_name", f"{CANARY}()"), "which is not a name"),
    "attribute": (_field("parameter_name", f'x"); {CANARY}(); ("'), "which is not a name"),
    "function": (_replaced("torch.ops.aten.add.Tensor", "torch.os.system"), "error: "),
    "function of the interpreter": (_replaced("_operator.add", "_operator.call"), "error: "),
    "operator by hand": (_replaced("torch.ops.aten.add.Tensor", "torch.hub.load"), "error: "),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_loading_runs_no_code(canary, refused, program: Path, tmp_path: Path, name: str):
    edit, message = HOSTILE[name]
    path = _written(tmp_path / "model.pt2", edit(_records(program)))
    assert message in refused(None, path, place=False)
    with pytest.raises(FxImportError):
        ir.import_exported(path)


@pytest.mark.parametrize("name", ["sample inputs", "weights", "opaque object", "size"])
def test_the_checks_are_needed(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    calls: list[object] = []
    monkeypatch.setattr(builtins, CANARY, lambda: calls.append(1), raising=False)
    monkeypatch.setattr(exported_file, "_verify_archive", lambda path: None)
    monkeypatch.setattr(exported_file, "_WEIGHTS_ONLY", {})
    path = _written(tmp_path / "model.pt2", HOSTILE[name][0](_records(program)))
    with suppress(Exception):
        ir.import_exported(path)
    assert calls != []


def test_two_records_of_one_name(canary, refused, program: Path, tmp_path: Path):
    records = _records(program)
    name = _model(records)
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = _written(tmp_path / "model.pt2", records, ((name, b"{}"),))
    assert "two records" in refused(None, path, place=False)
    path = _written(tmp_path / "model.pt2", records, ((name.upper(), b"{}"),))
    assert "two records" in refused(None, path, place=False)
