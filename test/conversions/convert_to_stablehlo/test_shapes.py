"""Operators that move elements, create and cast tensors, against eager, bit for bit."""

import pytest
import torch
import torch.nn.functional as F

X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
ROW = torch.arange(6.0)
EMPTY = torch.zeros(0, 3)
ONE = torch.tensor(3.0)


def reshapes(x, row, empty, one):
    return (
        *(x.view(6, 20), x.reshape(-1), x.flatten(1, 2), x.unsqueeze(-1), x[None, :, None], x[:, :1].squeeze(1)),
        *(row.view(2, 3).t(), x.permute(3, 1, 0, 2), x.transpose(-1, 1), x.movedim(0, 2), x.mT),
        *(row.expand(4, 6), row[:, None].expand(6, 2), one.expand(2, 2), one.view(1), empty.t(), empty.view(3, 0)),
        *(x[:, :1].expand(2, 3, 4, 5), row.repeat(3), row.view(2, 3).repeat(2, 1, 2), one.repeat(2), row.tile(2, 2)),
        *(row.unflatten(0, (2, 3)), x.swapaxes(0, 3), torch.atleast_2d(row), row.repeat_interleave(2)),
    )


def slices(x, row, empty, one):
    return (
        *(x[1], x[-1, 1:], x[:, 1:3], x[..., ::2], x[:, -2:, 1:-1:2], x[:, 5:], row[10:], row[-100:2], row[3:1]),
        *(x.select(2, -1), x.narrow(1, 1, 2), empty[:, 1:], row[2:][1:], x[0, 0, 0, 0]),
        *(*x.split(2, 1), *x.split([1, 3], 2), *x.chunk(3, -1), *x.unbind(1), *row.tensor_split(4)),
        *(x.diagonal(), x.diagonal(1, 2, 3), x.diagonal(-2, 3, 2), x.diagonal(9), row.diag(), row.diag_embed()),
        *(row.unfold(0, 3, 1), row.unfold(0, 2, 3), x.unfold(2, 2, 1), torch.diagonal(x, 0, -2, -1)),
    )


def joins(x, row, empty, one):
    return (
        *(torch.cat([x, x + 1], 1), torch.cat([row, row.int()]), torch.cat([empty, empty]), torch.cat([row[:0], row])),
        *(torch.stack([row, row * 2]), torch.stack([row, row], -1), torch.stack([one, one])),
        *(torch.hstack([row, row]), torch.vstack([row, row]), torch.block_diag(row[None], row[:2, None])),
        *(x.flip(0), x.flip(-1, 1), x.roll(1, 0), x.roll((2, -1), (1, 3)), x.roll(7), x.rot90(1, (1, 2)), row.flip(0)),
        *(F.pad(x, (1, 2)), F.pad(x, (-1, 2, 1, -1), value=7.0), F.pad(row, (0, 3)), F.pad(empty, (0, 0, 1, 1))),
        *(
            F.pad(x, (1, 1, 2, 1), mode="reflect"),
            F.pad(x, (1, 1, 2, 1), mode="replicate"),
            F.pixel_shuffle(x[:, :1].repeat(1, 4, 1, 1), 2),
        ),
        *(torch.tril(x), torch.triu(x, 1), torch.tril(x, -2), *torch.meshgrid(row, row[:2], indexing="ij")),
        *(torch.kron(row, row[:2]), torch.outer(row, row), torch.cross(x[0, :, :3, 0], x[1, :, :3, 0], dim=1)),
    )


def scatters(x, row, empty, one):
    return (
        *(x.slice_scatter(x[:, 1:3] * 2, 1, 1, 3), x.slice_scatter(x[..., ::2] + 1, 3, 0, 5, 2), x.slice_scatter(x, 0)),
        *(row.slice_scatter(row[-2:] + 9, 0, -2), x.select_scatter(x[:, 0] + 5, 1, -1), row.select_scatter(one, 0, 3)),
        *(x.diagonal_scatter(x.diagonal() * 3), x.diagonal_scatter(x.diagonal(-1, 2, 3) + 1, -1, 2, 3)),
        *(row.as_strided_scatter(row[:4].view(2, 2) * 10, (2, 2), (3, 1), 1), row.as_strided((2, 3), (1, 1), 1)),
        *(x.transpose(0, 3).as_strided((2, 2), (7, 3), 2), row.slice_scatter(row[:0], 0, 3, 3)),
    )


def creations(x, row, empty, one):
    return (
        *(torch.zeros(2, 3), torch.ones(2, dtype=torch.int32), torch.full((2, 2), 1.5), x.new_full((3,), 4)),
        *(torch.arange(5), torch.arange(2, 9, 3), torch.arange(0, 1, 0.25), torch.arange(5, 0, -2), torch.arange(3.0)),
        *(torch.zeros_like(x, dtype=torch.bfloat16), torch.ones_like(row), torch.full_like(row, 2), torch.eye(3)),
        *(torch.eye(2, 4), torch.tensor([1.5, 2.5]), torch.tensor([[1, 2], [3, 4]]), torch.scalar_tensor(2.0)),
        *(torch.arange(0, 0), torch.zeros(0, 2), torch.full((), True), torch.tensor([True, False])),
        *(row.new_zeros(2), row.new_ones(2), torch.tril_indices(3, 3), torch.tensor(7), torch.full((2,), 1 << 40)),
        *(
            torch.linspace(0, 1, 5),
            torch.empty(2, 3).zero_(),
            row.clone().fill_(3),
            torch.arange(3, dtype=torch.float64),
        ),
    )


PROGRAMS = (reshapes, slices, joins, scatters, creations)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool], ids=str)
def test_moves(program, dtype: torch.dtype, xla) -> None:
    if dtype == torch.bool and program in (creations, scatters, joins):
        pytest.skip("computes with the values")
    xla.compare(program, *(value.to(dtype) for value in (X, ROW, EMPTY, ONE)))


def test_casts(xla) -> None:
    floats = torch.tensor([0.0, -1.5, 2.5, 3.7, 100.25, -0.0, 1e-3, 65000.0])
    dtypes = (
        *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int16, torch.int32),
        *(torch.int64, torch.uint8, torch.bool),
    )

    def program(x, y, z, odd):
        small = x.clamp(0, 100)
        return (
            *([v.to(d) for d in dtypes] for v in (small, small.to(torch.bfloat16), y, z)),
            *(x.to(torch.bfloat16), x.to(torch.float16), odd.to(torch.bfloat16), odd.to(torch.bool)),
            *(x.to(torch.float8_e4m3fn), x.to(torch.float8_e5m2), x.to(torch.float8_e4m3fn).to(torch.bfloat16)),
        )

    integers = torch.tensor([0, 1, -1, 127, 300, -70000])
    odd = torch.tensor([float("inf"), float("nan"), 0.0, -float("inf")])
    xla.compare(program, floats, integers, torch.tensor([True, False]), odd)


def test_dtype_views(xla) -> None:
    def program(x, y, z):
        return (
            *(
                x.view(torch.int32),
                x.view(torch.int16),
                x.view(torch.uint8),
                y.view(torch.float32),
                x.view(torch.float64),
            ),
            *(y.view(torch.bfloat16), z.view(torch.uint8), y.view(torch.uint8).view(torch.int16), z.view(torch.int8)),
        )

    xla.compare(
        program, torch.randn(3, 4), torch.arange(6, dtype=torch.int16).reshape(3, 2), torch.tensor([True, False])
    )


def test_starts_known_only_when_the_program_runs(xla) -> None:
    """Numbers that a tensor holds, read with `item`, index into tensors."""

    def program(x, n):
        return x.select(0, 1) + n, torch.add(x, n), n * x

    xla.compare(program, torch.arange(6.0).reshape(2, 3), torch.tensor(2))


def test_complex_numbers(xla) -> None:
    """Rotary embeddings as products of complex numbers, as the first Llama has them."""

    def program(x, angle):
        turn = torch.polar(torch.ones_like(angle), angle)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = torch.view_as_real(pairs * turn).flatten(-2)
        return turned, pairs.real + 1, pairs.conj().imag * 2, pairs.abs()

    xla.compare(program, torch.randn(2, 3, 8), torch.randn(3, 4), rtol=1e-6, atol=1e-6)


def test_control_flow(xla) -> None:
    def program(x, flag):
        return torch.cond(flag, lambda x: (x.sin(), x * 2), lambda x: (x.cos() + 1, x - 1), (x,))

    for flag in (True, False):
        xla.compare(program, torch.arange(6.0), torch.tensor(flag), rtol=1e-6, atol=1e-6)


def test_loop(xla) -> None:
    def program(x):
        return torch.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x * 2 + i), (torch.tensor(0), x))

    xla.compare(program, torch.arange(3.0))
