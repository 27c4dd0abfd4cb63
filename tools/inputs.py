"""Inputs of `vllm-ir-opt` that are not text: `.pt2` files, and functions of Python files."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

from xdsl.dialects.builtin import ModuleOp

from vllm_ir.frontends.fx.errors import FxImportError


class InputError(ValueError):
    """An input that cannot be read; the message is one line and names the file."""


def import_python(path: str, name: str) -> ModuleOp:
    """The function or module `name` of the Python file at `path`, imported on what its `example_inputs()` returns.

    Raises:
        InputError: the file cannot be run, or lacks the function or the example inputs.
        FxImportError: the function cannot be imported.
    """
    source = load_module(path)
    program = _attribute(source, path, name)
    values = _example_inputs(source, path)
    from vllm_ir.frontends.fx.importer import import_callable

    return import_callable(program, *values)


def example_inputs(path: str) -> tuple[object, ...]:
    """What `example_inputs()` of the Python file at `path` returns; `InputError` as for `import_python`."""
    return _example_inputs(load_module(path), path)


def _example_inputs(source: ModuleType, path: str) -> tuple[object, ...]:
    inputs = _call(path, "example_inputs", _attribute(source, path, "example_inputs"))
    if not isinstance(inputs, tuple):
        raise InputError(f"{path}: error: example_inputs() returns a {type(inputs).__name__}, a tuple is needed")
    return cast("tuple[object, ...]", inputs)


def import_file(path: str) -> ModuleOp:
    """The exported program in the `.pt2` file at `path`.

    Raises:
        InputError: the file is not one that `torch.export.save` wrote, or loading it could run code.
        FxImportError: the program cannot be imported.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(2, "No such file or directory", path)
    from vllm_ir.frontends.fx.exported_file import load_exported
    from vllm_ir.frontends.fx.importer import import_exported

    try:
        with logging_off():
            program = load_exported(path)
    except FxImportError as error:
        raise InputError(f"{path}: error: {' '.join(error.reason.split())}") from error
    return import_exported(program)


@contextmanager
def logging_off() -> Generator[None]:
    """Keep PyTorch from logging tracebacks of errors that it also raises, and warnings beside them."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def load_module(path_or_name: str) -> ModuleType:
    """Run a Python file, or import a module by its name.

    Raises:
        InputError: its code raises an exception.
    """
    try:
        if not path_or_name.endswith(".py"):
            return importlib.import_module(path_or_name)
        return _run_file(Path(path_or_name))
    except FileNotFoundError as error:
        if error.filename == path_or_name:
            raise
        raise InputError(_user_error(path_or_name, error)) from error
    except Exception as error:  # the user's code may raise anything
        raise InputError(_user_error(path_or_name, error)) from error


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    # The file may import its neighbours, as it could if it were run as a script.
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _attribute(source: ModuleType, path: str, name: str) -> Callable[..., object]:
    value: object = getattr(source, name, None)
    if not callable(value):
        what = "is not defined" if value is None else f"is a {type(value).__name__}, not a function or module"
        raise InputError(f"{path}: error: {name} {what}")
    return value


def _call(path: str, name: str, function: Callable[..., object]) -> object:
    try:
        return function()
    except Exception as error:  # the user's code may raise anything
        raise InputError(_user_error(path, error, f"{name}() raises ")) from error


def _user_error(path: str, error: Exception, prefix: str = "") -> str:
    """The error as one line, with the last line of the user's file that it passed through."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}:{error.offset}: error: {prefix}{error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(path)]
    where = f"{path}:{frames[-1].lineno}" if frames else path
    return f"{where}: error: {prefix}{_reason(error)}"


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
