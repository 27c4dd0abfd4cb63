"""Reductions, scans and matrix products, against eager."""

import pytest
import torch
import torch.nn.functional as F

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
WITH_NAN = X.clone()
WITH_NAN[1, 2, 3] = float("nan")
TIES = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0], [-float("inf")] * 4])
INTEGERS = torch.randint(-9, 9, (3, 4, 5), generator=torch.Generator().manual_seed(1))
TOLERANCE = {
    torch.float32: {"rtol": 4e-6, "atol": 2e-6},
    torch.float64: {"rtol": 1e-13, "atol": 1e-14},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2},
    torch.float16: {"rtol": 2e-3, "atol": 1e-3},
}


def exact(x, n, t, b, i):
    return (
        *(x.amax(1), x.amin((0, 2)), x.max(), x.min(), *x.max(-1), *x.min(0, keepdim=True), x.argmax(), x.argmin(1)),
        *(n.amax(2), *n.max(2), *n.min(-1), n.argmax(2), *t.max(1), *t.min(1), t.argmax(1), t.argmin(-1, True)),
        *(b.any(), b.all(1), b.any((0, 2), keepdim=True), x.any(0), x.all(), b.sum(), b.sum(1), i.sum(), i.sum((0, 1))),
        *(
            i.prod(1),
            i.amax(),
            i.cumsum(1),
            b.cumsum(0),
            i.cumprod(2),
            i.argmax(0),
            b.to(torch.int32).sum(dtype=torch.int32),
        ),
        *(
            *i.aminmax(),
            torch.count_nonzero(i, 1),
            b.float().sum(),
            x[:, :0].sum(1),
            x[:0].any(),
            x[:0].all(),
            i[0, 0, 0].sum(),
        ),
        *(x[0, 0, 0].amax(0), x[0, 0, 0].cumsum(0), i.max(), *i.max(1), b.amax(0), torch.isin(i, i[0, 0])),
    )


def test_exact(xla) -> None:
    xla.compare(exact, X, WITH_NAN, TIES, X > 0, INTEGERS)


def rounded(x):
    y = x.abs() + 0.5
    return (
        *(x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.mean(), x.mean(-1), y.prod(2), x.var(1), x.std((0, 2))),
        *(
            *torch.var_mean(x, 1, correction=0),
            x.logsumexp(1),
            x.softmax(-1),
            x.log_softmax(0),
            x.cumsum(1),
            x.norm(dim=1),
        ),
        *(torch.linalg.vector_norm(x, 1, dim=0), torch.linalg.vector_norm(x, float("inf")), F.normalize(x, dim=-1)),
        *(
            x.norm(p=3),
            F.layer_norm(x, (5,)),
            F.rms_norm(x, (5,)),
            F.group_norm(x, 2),
            F.softmin(x, 1),
            x.sum(1).cumprod(0),
        ),
        *(torch.cumsum(x.flatten(), 0), F.cosine_similarity(x, y, dim=1), x.var(unbiased=False), F.mse_loss(x, y)),
        *(
            torch.softmax(torch.where(x > -9, x, float("-inf")), 0),
            F.glu(torch.cat([x, y], 1), 1),
            torch.mean(x, (0,), True),
        ),
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_rounded(dtype: torch.dtype, xla) -> None:
    xla.compare(rounded, X.to(dtype), **TOLERANCE[dtype])


def products(a, b, v, m, n):
    return (
        *(a @ b, torch.mm(a, b), v @ b, a @ v, v.dot(v), m @ n, m @ b, a[:, :] @ n, v @ n, m @ v, torch.bmm(m, n)),
        *(
            torch.addmm(a[:, :1] * 0 + 1, a, b),
            torch.addmm(a @ b, a, b, beta=0.5, alpha=2),
            F.linear(m, a),
            F.linear(a, a, v[:1]),
        ),
        *(torch.baddbmm(m @ n, m, n, beta=2), torch.einsum("bij,bjk->bik", m, n), torch.einsum("ij,kj->ik", a, a)),
        *(m[:, None] @ n[None], torch.tensordot(m, n, ([2], [1])), torch.outer(v, v), torch.addmv(a @ v, a, v)),
        *(a[:0] @ b, a[:, :0] @ b[:0], torch.chain_matmul(a, b, b.t())),
    )


def matrices(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    shapes = ((3, 4), (4, 5), (4,), (2, 3, 4), (2, 4, 5))
    if not dtype.is_floating_point:
        return [torch.randint(-5, 5, shape, generator=generator).to(dtype) for shape in shapes]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_products(dtype: torch.dtype, xla) -> None:
    xla.compare(products, *matrices(dtype), **{"rtol": TOLERANCE[dtype]["rtol"], "atol": 10 * TOLERANCE[dtype]["atol"]})


def test_products_of_integers(xla) -> None:
    xla.compare(lambda a, b, v, m, n: (a @ b, m @ n, v @ b, F.linear(m, a)), *matrices(torch.int64))


def attention(q, k, v, bias, mask):
    few = (k[:, :2], v[:, :2])
    return (
        *(F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        *(F.scaled_dot_product_attention(q, k, v, bias), F.scaled_dot_product_attention(q, k, v, mask)),
        *(F.scaled_dot_product_attention(q, *few, enable_gqa=True), F.scaled_dot_product_attention(q, k, v, scale=0.3)),
        *(F.scaled_dot_product_attention(q, *few, attn_mask=bias, enable_gqa=True),),
        F.scaled_dot_product_attention(q, k, v, mask & (torch.arange(6) > 2)),
        *(
            F.scaled_dot_product_attention(q[0], k[0], v[0]),
            F.scaled_dot_product_attention(q[..., :2, :], k, v, mask[:2]),
        ),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attention(dtype: torch.dtype, xla) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 4, 6, 8, generator=generator).to(dtype) for _ in range(3))
    bias, mask = torch.randn(6, 6, generator=generator).to(dtype), torch.ones(6, 6, dtype=torch.bool).tril()
    xla.compare(
        attention,
        q,
        k,
        v,
        bias,
        mask,
        **{"rtol": 2 * TOLERANCE[dtype]["rtol"], "atol": 2e-6 if dtype == torch.float32 else 1e-2},
    )
