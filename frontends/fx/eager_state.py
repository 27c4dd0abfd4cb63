"""What eager's kernels depend on beside their arguments, and a place to call them in the middle of a trace."""

# pyright: reportPrivateUsage=false
# Private: some switches, and the stack of function modes, have no public form, or none that is fast enough for a look
# at every call.

import warnings
from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch._dispatch.python import no_python_dispatcher
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

_SWITCHES = (
    torch.get_default_dtype,
    torch.get_num_threads,
    torch.get_float32_matmul_precision,
    torch.are_deterministic_algorithms_enabled,
    torch.is_deterministic_algorithms_warn_only_enabled,
    torch._C._get_mkldnn_enabled,
    torch._C._get_nnpack_enabled,
    torch._C._get_flash_sdp_enabled,
    torch._C._get_math_sdp_enabled,
    torch._C._get_mem_efficient_sdp_enabled,
)


def eager_switches() -> tuple[object, ...]:
    """What chooses among the kernels of an operator on the CPU, or the types that they compute in."""
    return tuple([switch() for switch in _SWITCHES])


def user_modes_active() -> bool:
    """Whether calls are intercepted by a mode that tracing did not enter: a default device, a mode of the user."""
    return torch._C._len_torch_function_stack() > 0 or is_in_torch_dispatch_mode(include_infra_modes=False)


@contextmanager
def undisturbed() -> Generator[None]:
    """Run eager beside a trace: nothing is recorded, no fakes, gradients or warnings, random numbers as before."""
    state = torch.get_rng_state()
    try:
        with (
            disable_proxy_modes_tracing(),
            unset_fake_temporarily(),
            no_python_dispatcher(),
            temporarily_clear_interpreter_stack(),
            torch.no_grad(),
            torch.inference_mode(False),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_rng_state(state)
