"""The vendor's platform."""

import os
from collections.abc import Sequence

from vllm_ir.frontends.platforms import Platform


class ExamplePlatform(Platform):
    """A device that shares the main memory. There is none to look for: an environment variable stands for it."""

    name = "example"
    device_type = "cpu"

    @classmethod
    def is_available(cls) -> bool:
        """Whether `EXAMPLE_VENDOR_DEVICE` is 1."""
        return os.environ.get("EXAMPLE_VENDOR_DEVICE") == "1"

    def kernel_providers(self) -> Sequence[str]:
        """The vendor's kernels."""
        return ("example",)
