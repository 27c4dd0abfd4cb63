"""Writing files."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is either complete or as it was."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)  # a device or a pipe
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    with NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(data)
            file.close()
            # The temporary file is private; the result has the permissions of any new file, or of the one it replaces.
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
