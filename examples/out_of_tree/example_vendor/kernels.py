"""Two ops, and an implementation of one of vllm_ir's. Importing this module registers them."""

import torch
from torch import Tensor

import vllm_ir as ir

PROVIDER = "example"


@ir.register_op(batch_invariant=True)
def soft_cap(x: Tensor, cap: float) -> Tensor:
    """`cap * tanh(x / cap)`, element by element: keeps the logits of a model between `-cap` and `cap`."""
    return cap * torch.tanh(x / cap)


@soft_cap.register_input_generator
def generate_soft_cap_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, cap: float = 30.0
) -> tuple[object, ...]:
    """Random arguments of `soft_cap`."""
    return 40 * torch.randn(num_tokens, hidden_size).to(dtype), cap


@ir.register_op
def capped_rms_norm(x: Tensor, weight: Tensor, epsilon: float, cap: float) -> Tensor:
    """`soft_cap` of `rms_norm`."""
    return soft_cap(ir.ops.rms_norm(x, weight, epsilon), cap)


@capped_rms_norm.register_input_generator
def generate_capped_rms_norm_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `capped_rms_norm`."""
    return torch.randn(num_tokens, hidden_size).to(dtype), torch.randn(hidden_size).to(dtype), 1e-6, 2.0


# The kernel is an operator of torch, so that the IR sees one call with known effects. A real one would be compiled.
_LIBRARY = torch.library.Library("example_vendor", "DEF")
_LIBRARY.define("rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


def _rms_norm_kernel(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return x * scale * weight


_LIBRARY.impl("rms_norm", _rms_norm_kernel, "CPU")
# Without data, this one gives shapes, dtypes and strides; for a compiled one these have to be written out.
torch.library.register_fake("example_vendor::rms_norm", _rms_norm_kernel, lib=_LIBRARY)


def _takes_rms_norm(x: Tensor, weight: Tensor | None, _epsilon: float, variance_size: int | None) -> bool:
    return (
        weight is not None
        and variance_size is None
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() > 0
        and weight.dim() == 1
        and ir.statically_known(weight.shape[0] == x.shape[-1])
    )


@ir.ops.rms_norm.register_impl(PROVIDER, supports_args=_takes_rms_norm)
def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    """`rms_norm` of float32 rows with a weight."""
    del variance_size  # None, as checked above
    return torch.ops.example_vendor.rms_norm(x, weight, epsilon)
