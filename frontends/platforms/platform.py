"""What a platform is: where tensors live, and which providers are asked first there."""

from collections.abc import Sequence


class Platform:
    """The device that programs run on. Vendors subclass it and name the class in the entry point group
    `vllm_ir.platforms`.

    Attributes:
        name: `cpu`, `cuda`, `rocm`, `xpu`, `neuron` or a vendor's own.
        device_type: the type of its devices in torch.
    """

    name: str = "unspecified"
    device_type: str = "cpu"

    @classmethod
    def is_available(cls) -> bool:
        """Whether this process runs on the platform. It is asked once, and must not initialise devices."""
        return False

    def get_default_ir_op_priority(self, op_name: str, *, using_inductor: bool) -> Sequence[str]:
        """Providers to ask for an op where the user names none, and behind those that he names.

        Those that have no implementation of the op are passed over.

        Args:
            op_name: the op.
            using_inductor: whether the op is lowered into a graph that Inductor compiles. Inductor fuses native
                definitions with what is around them, which as a rule is worth more than a kernel of its own.
        """
        del op_name
        return ["native"] if using_inductor else [*self.kernel_providers(), "native"]

    def kernel_providers(self) -> Sequence[str]:
        """The vendor's providers, the best one first."""
        return ()

    def is_cpu(self) -> bool:
        """Whether tensors are in main memory."""
        return self.name == "cpu"

    def is_cuda(self) -> bool:
        """Whether devices are NVIDIA's."""
        return self.name == "cuda"

    def is_rocm(self) -> bool:
        """Whether devices are AMD's, which torch calls `cuda` as well."""
        return self.name == "rocm"

    def is_xpu(self) -> bool:
        """Whether devices are Intel's."""
        return self.name == "xpu"

    def is_neuron(self) -> bool:
        """Whether devices are AWS Trainium or Inferentia."""
        return self.name == "neuron"

    def is_cuda_alike(self) -> bool:
        """Whether devices are programmed like NVIDIA's."""
        return self.is_cuda() or self.is_rocm()

    def is_out_of_tree(self) -> bool:
        """Whether another distribution brings the platform along."""
        return not type(self).__module__.startswith("vllm_ir.")

    def __repr__(self) -> str:
        return f"<platform {self.name}>"
