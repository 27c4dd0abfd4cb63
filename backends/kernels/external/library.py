"""Libraries of other projects: whether they are installed and fit this process, and their operators.

Nothing is imported to find that out. A library may take seconds to load and initialise a device, so it is loaded by the
first call of one of its kernels, for which tensors on its device are needed.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch
from torch import Tensor
from torch._ops import OpOverload

from vllm_ir.frontends.platforms import detect

Operator = OpOverload[..., object]


@dataclass(frozen=True)
class ExternalLibrary:
    """A package of another project, whose kernels a provider calls."""

    provider: str
    """The provider's name, by which platforms ask for it too."""
    package: str
    """The package's name."""
    modules: Sequence[str]
    """Modules of the package, by their names in it, that the kernels are in; an installation has at least one."""
    _found: set[tuple[str, str]] = field(default_factory=lambda: set(), init=False, compare=False)
    """What `require` has found."""

    @cached_property
    def present(self) -> Sequence[str]:
        """The full names of those modules that are installed. Neither they nor the package are imported."""
        try:
            spec = find_spec(self.package)
        except ValueError:  # somebody has put a module without a spec into sys.modules
            return ()
        if spec is None or spec.submodule_search_locations is None:
            return ()
        names = [f"{self.package}.{module}" for module in self.modules]
        # `find_spec` of a module in a package would import the package.
        return tuple(name for name in names if PathFinder.find_spec(name, spec.submodule_search_locations) is not None)

    @cached_property
    def version(self) -> str | None:
        """The version of the package's distribution, where it has one; a part of what kernels are identified by."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    @cached_property
    def unsupported_reason(self) -> str | None:
        """Why no kernel of the library can run in this process; None if they can."""
        if not self.present:
            return f"{self.package} is not installed, or has none of its modules {', '.join(self.modules)}"
        platform = detect()
        if self.provider not in platform.kernel_providers():
            return f"the platform {platform.name!r} does not name {self.provider!r} among its providers"
        return None

    @cached_property
    def device_type(self) -> str | None:
        """The type of the devices that the kernels run on, which is the platform's; None where they cannot run."""
        return detect().device_type if self.unsupported_reason is None else None

    def takes(self, tensor: Tensor) -> bool:
        """Whether a tensor is an ordinary strided one on such a device."""
        return tensor.device.type == self.device_type and tensor.layout is torch.strided

    def load(self) -> None:
        """Import the modules that are installed.

        Raises:
            RuntimeError: an import failed, or there is nothing to import; the cause is chained.
        """
        if self.unsupported_reason is not None:
            raise RuntimeError(f"provider {self.provider!r}: {self.unsupported_reason}")
        for name in self.present:
            try:
                importlib.import_module(name)
            except Exception as error:
                raise RuntimeError(
                    f"provider {self.provider!r}: import of {name} raised {type(error).__name__}: {error}; repair "
                    f"{self.package}, or leave {self.provider!r} out of the priorities"
                ) from error

    def require(self, namespace: str, name: str) -> None:
        """Load the library, unless it is, and see to it that there is an operator `torch.ops.<namespace>.<name>`.

        Raises:
            RuntimeError: the library cannot be loaded, or registers no such operator.
        """
        if (namespace, name) in self._found:
            return
        self.load()
        if not hasattr(getattr(torch.ops, namespace), name):
            installed = f"{self.package} {self.version or 'of an unknown version'}"
            raise RuntimeError(
                f"provider {self.provider!r}: {installed} registers no operator {namespace}::{name}; leave "
                f"{self.provider!r} out of the priorities of this op"
            )
        self._found.add((namespace, name))

    def __repr__(self) -> str:
        return f"<{self.provider} from {self.package} {self.version}>"
