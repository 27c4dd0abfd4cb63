"""Compiles and loads the C++ kernels, with torch's extension builder.

The library is kept in the builder's cache directory, under a name made from everything it depends on: sources, flags
and torch's version. The flags state the vector instructions that torch found on this machine, so machines that share a
home directory do not share code that only one of them can run. Processes that need the library at the same time wait
for one of them to build it.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType

import torch
from torch.utils import cpp_extension

from vllm_ir.backends.writable import temporary_directory, unwritable_reason

_SOURCES = Path(__file__).parent / "csrc"
KERNEL_FILES = tuple(sorted((*_SOURCES.glob("*.cpp"), *_SOURCES.glob("*.h"))))
"""What the kernels are compiled from."""
_MAIN = "kernels.cpp"

_VECTOR_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "AVX2": ("-mavx2", "-mfma", "-mf16c"),
        "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma", "-mf16c"),
    }
)
"""By the name that torch gives to a processor; others get what the compiler does for every processor of the kind."""

# Several threads may run their first kernel at once; the file lock below is for processes.
_LOADING = threading.Lock()


def compiler_flags() -> list[str]:
    """Flags for this machine, beside those that the builder adds."""
    capability = torch.backends.cpu.get_cpu_capability()
    vectors = _VECTOR_FLAGS.get(capability)
    name = "DEFAULT" if vectors is None else capability
    return [
        "-O3",
        # A fused multiply-add rounds once where native definitions round twice.
        "-ffp-contract=off",
        "-fopenmp",
        f"-DCPU_CAPABILITY={name}",
        f"-DCPU_CAPABILITY_{name}",
        *(vectors or ()),
    ]


@cache
def library_path() -> Path:
    """Where the library for this machine is, or will be once it is built."""
    digest = hashlib.sha256()
    for text in (torch.__version__, *compiler_flags()):
        digest.update(text.encode() + b"\0")
    for file in KERNEL_FILES:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    name = f"vllm_ir_cpu_{digest.hexdigest()[:16]}"
    return Path(root) / name / f"{name}.so"


def unsupported_reason() -> str | None:
    """Why the kernels cannot run in this process; None if they can. Looks for the tools, and compiles nothing."""
    if sys.platform != "linux":
        return f"the kernels are built on Linux only, this is {sys.platform}"
    compiler = cpp_extension.get_cxx_compiler()
    if shutil.which(shlex.split(compiler)[0]) is None:
        missing = f"no C++ compiler: {compiler!r} is not on PATH; install g++ or set CXX"
    elif _ninja_directory() is None:
        missing = "no ninja, which torch's extension builder runs: pip install ninja"
    else:
        return None
    return None if _is_complete(library_path()) else missing


def load() -> None:
    """Load the kernels into torch's dispatcher, after building them if no process has done so yet.

    Raises:
        RuntimeError: a tool is missing, or the build failed; the message says where the compiler's output is.
    """
    library = library_path()
    with _LOADING:
        if not _is_complete(library):
            library = _writable(library)
            _build(library)
        torch.ops.load_library(str(library))  # pyright: ignore[reportUnknownMemberType]  # untyped in torch


def _mark(library: Path) -> Path:
    """A file that exists when the build has ended well: a build that is killed leaves half a library behind."""
    return library.with_suffix(".complete")


def _is_complete(library: Path) -> bool:
    return _mark(library).exists() and library.exists()


def _writable(library: Path) -> Path:
    """Where the library can be built: there, or in a temporary directory if nothing can be written there."""
    reason = unwritable_reason(library.parent)
    return library if reason is None else temporary_directory(library.parent, reason) / library.name


def _build(library: Path) -> None:
    reason = unsupported_reason()
    if reason is not None:
        raise RuntimeError(f"vllm_ir: provider 'cpu' cannot build its kernels: {reason}")
    directory = library.parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory / "build.lock"), _ninja_on_path():
            if _is_complete(library):
                return
            # The builder waits for ever on a lock file that a killed process left; nobody else is in here.
            (directory / "lock").unlink(missing_ok=True)
            cpp_extension.load(  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
                name=library.stem,
                sources=[str(_SOURCES / _MAIN)],
                extra_cflags=compiler_flags(),
                build_directory=str(directory),
                with_cuda=False,
                is_python_module=False,
            )
            _mark(library).touch()
    except OSError as error:
        raise RuntimeError(
            f"vllm_ir: provider 'cpu' cannot build its kernels in {directory}: {error}; "
            "set TORCH_EXTENSIONS_DIR to a directory in which files can be written and libraries loaded"
        ) from error
    except (RuntimeError, subprocess.SubprocessError) as error:
        log = directory / "build.log"
        log.write_text(str(error), encoding="utf-8")
        lines = str(error).splitlines() or ["no message"]
        fact = next((line for line in lines if "error:" in line), lines[0]).strip()
        raise RuntimeError(
            f"vllm_ir: the kernels of provider 'cpu' do not compile: {fact}; the compiler's output is in {log}; "
            "leave 'cpu' out of the priorities, or set CXX to a compiler that works"
        ) from error


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold a file lock; the system releases it also when the process is killed."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ninja_directory() -> str | None:
    """The directory of the ninja that a build will run: one on PATH, or the one that pip put beside this Python."""
    found = shutil.which("ninja") or shutil.which("ninja", path=sysconfig.get_path("scripts"))
    return None if found is None else os.path.dirname(found)


@contextmanager
def _ninja_on_path() -> Generator[None]:
    """Let the builder find ninja in an environment that is not activated."""
    before, directory = os.environ.get("PATH", ""), _ninja_directory()
    if directory is None or shutil.which("ninja") is not None:
        yield
        return
    os.environ["PATH"] = f"{before}{os.pathsep}{directory}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
