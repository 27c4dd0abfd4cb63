"""Arguments that share memory, operands of one call that share memory, and results that share memory."""

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor
from xdsl.utils.exceptions import PassFailedException

Check = Callable[..., None]
Refused = Callable[..., str]


@torch.library.custom_op("shared_memory::mirror", mutates_args=("written",))
def mirror(written: Tensor, read: Tensor) -> None:
    # What is read changes on the way if it is the same memory.
    for i in range(written.shape[0]):
        written[i] += read[-1 - i]


@torch.library.custom_op("shared_memory::write_both", mutates_args=("a", "b"))
def write_both(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    b.mul_(2)
    return a + b


@write_both.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return torch.empty_like(a)


def numbers(*shape: int) -> Tensor:
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)


# Arguments


def same_twice() -> Sequence[Tensor]:
    x = numbers(4, 4)
    return x, x


def overlapping_rows() -> Sequence[Tensor]:
    x = numbers(6, 4)
    return x[:4], x[2:]


def whole_and_row() -> Sequence[Tensor]:
    x = numbers(4, 4)
    return x, x[1:2].expand(1, 4)


def transposed() -> Sequence[Tensor]:
    x = numbers(4, 4)
    return x, x.t()


def disjoint_halves() -> Sequence[Tensor]:
    x = numbers(8, 4)
    return x[:4], x[4:]


def interleaved() -> Sequence[Tensor]:
    x = numbers(4, 8)
    return x[:, ::2], x[:, 1::2]


def overlapping_with_gaps() -> Sequence[Tensor]:
    x = numbers(4, 9)
    return x[:, :8:2], x[:, 2::2]


def one_element_twice() -> Sequence[Tensor]:
    x = numbers(8)
    return x[:4], x[3:7]


ARGUMENTS: dict[str, Callable[[], Sequence[Tensor]]] = {
    "the same tensor twice": same_twice,
    "overlapping rows": overlapping_rows,
    "a tensor and a row of it": whole_and_row,
    "a tensor and its transpose": transposed,
    "disjoint halves": disjoint_halves,
    "interleaved columns": interleaved,
    "overlapping, with gaps": overlapping_with_gaps,
    "one element in common": one_element_twice,
}

WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "first": lambda x, y: x.mul_(2),
    "second": lambda x, y: y.add_(1),
    "both": lambda x, y: (x.mul_(2), y.add_(1), x[0].zero_()),
    "second from first": lambda x, y: y.copy_((x * 3)[: y.shape[0]]),
    "through a view": lambda x, y: x.view_as(x)[..., 1].fill_(9),
}


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("write", WRITES)
def test_arguments(arguments: str, write: str, check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        before = x * 1, y * 1
        WRITES[write](x, y)
        return before, x * 1, y * 1, x.sum() + y.sum()

    check(program, ARGUMENTS[arguments], text=write == "both")


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_arguments_through_dynamo(arguments: str, check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x.mul_(2)
        before = y * 1
        y.add_(1)
        return before, x * 1

    check(program, ARGUMENTS[arguments], dynamo=True)


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_arguments_that_are_returned(arguments: str, check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x.add_(1)
        return y, x, y.view(-1) if y.is_contiguous() else y.t()

    check(program, ARGUMENTS[arguments])


def test_three_arguments_with_one_storage(check: Check) -> None:
    def make() -> Sequence[Tensor]:
        x = numbers(6)
        return x[:3], x[2:5], x

    def program(a: Tensor, b: Tensor, c: Tensor) -> object:
        a.mul_(2)
        b.add_(a * 1)
        c[1:].sub_(1)
        return a * 1, b * 1, c * 1, b

    check(program, make)


def test_two_dtypes_of_one_storage(check: Check) -> None:
    def make() -> Sequence[Tensor]:
        x = numbers(4)
        return x, x.view(torch.int32)[1:], x.view(torch.int16)[::2]

    def program(x: Tensor, words: Tensor, halves: Tensor) -> object:
        x.mul_(2)
        words.add_(1)
        halves[:3] = 7
        return x * 1, words + 1, halves.clone(), words

    check(program, make, text=True)


def test_two_dtypes_of_memory_that_is_not_whole_elements_are_refused(harness: ModuleType) -> None:
    def make() -> Sequence[Tensor]:
        x = numbers(3)
        return x[:2].view(torch.float64), x

    def program(x: Tensor, y: Tensor) -> object:
        x.mul_(2)
        return y + 1

    with pytest.raises(PassFailedException, match=r"^arguments %x, %y share memory .* pass tensors of .* one dtype"):
        harness.check(program, make)


def test_strides_that_reach_another_argument(check: Check) -> None:
    def make() -> Sequence[Tensor]:
        x = numbers(9)
        return x[:4], x[4:8], x[1:3]

    def program(first: Tensor, second: Tensor, third: Tensor) -> object:
        every_third = first.as_strided((3,), (3,), 1)
        second.add_(10)
        before = every_third * 1
        every_third.mul_(2)
        third.zero_()
        return before, second * 1, first, every_third

    check(program, make, text=True)


# Operands of one call


def test_custom_operator_with_one_tensor_in_two_roles(check: Check) -> None:
    def program(x: Tensor) -> object:
        torch.ops.shared_memory.mirror(x, x)
        return x * 1

    check(program, lambda: (numbers(5),))


def test_custom_operator_with_one_window_in_two_roles(check: Check) -> None:
    def program(x: Tensor) -> object:
        torch.ops.shared_memory.mirror(x[1:4], x[1:4])
        return x * 1

    check(program, lambda: (numbers(5, 2),))


def test_custom_operator_that_writes_one_tensor_twice(check: Check) -> None:
    def program(x: Tensor) -> object:
        sum_ = torch.ops.shared_memory.write_both(x[1:], x[1:])
        return sum_, x * 1

    check(program, lambda: (numbers(5, 2),))


def test_custom_operator_on_disjoint_windows(check: Check) -> None:
    def program(x: Tensor) -> object:
        torch.ops.shared_memory.mirror(x[:, 0], x[:, 1])
        torch.ops.shared_memory.mirror(x[:2], x[2:])
        return torch.ops.shared_memory.write_both(x[::2], x[1::2]), x * 1

    check(program, lambda: (numbers(4, 2),))


def test_custom_operator_on_overlapping_windows_is_refused(refused: Refused) -> None:
    def program(x: Tensor) -> object:
        torch.ops.shared_memory.mirror(x[1:], x[:-1])
        return x * 1

    refused(program, lambda: (numbers(5),), match="@shared_memory.mirror.default: writes .* overlaps the operand")


def test_a_column_of_an_expanded_argument_is_not_written(refused: Refused) -> None:
    def program(x: Tensor) -> object:
        x[:, 1].add_(1)
        return x[:, 0] * 1

    refused(program, lambda: (numbers(3, 1).expand(3, 2),), match="others of them change as well", eager_raises=False)


def test_an_argument_that_is_the_window_of_another_is_returned_as_itself(check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        torch.mul(y, y, out=x)
        return x

    def make() -> Sequence[Tensor]:
        x = numbers(4)
        return x[:2], x[:2]

    check(program, make)


def test_same_tensor_as_source_and_destination(check: Check) -> None:
    def program(x: Tensor) -> object:
        x.add_(x)
        x.mul_(x.view(-1).view_as(x))
        x.copy_(x)
        torch.add(x, x, out=x)
        x.addcmul_(x, x)
        return x * 1

    check(program, lambda: (numbers(3, 2),))


def test_lists_that_name_a_tensor_twice(check: Check) -> None:
    def program(x: Tensor, y: Tensor, z: Tensor) -> object:
        torch._foreach_add_([x, x, y], 1)
        torch._foreach_add_([x, y], [y, x])
        torch._foreach_mul_([y, z], [y, z])
        torch._foreach_mul_([y, z], z.sum())
        return x * 1, y * 1

    check(program, lambda: (numbers(3), numbers(3) * 2, numbers(3) * 3))


REFUSED_BY_EAGER: dict[str, Callable[[Tensor], object]] = {
    "add_ of a shifted window": lambda x: x[1:].add_(x[:-1]),
    "copy_ of a shifted window": lambda x: x[1:].copy_(x[:-1]),
    "add_ of the transpose with another extent": lambda x: x.view(-1)[1:].add_(x.view(-1)[:-1]),
    "index_put_ of the tensor itself": lambda x: x.index_put_((torch.tensor([0, 1, 2, 3]),), x),
    "scatter_ of the tensor itself": lambda x: x.scatter_(0, torch.zeros(4, 4, dtype=torch.int64), x),
    "index_copy_ of the tensor itself": lambda x: x.index_copy_(0, torch.tensor([0, 1, 2, 3]), x),
    "index_add_ of the tensor itself": lambda x: x.index_add_(0, torch.tensor([0, 1, 2, 3]), x),
    "cat into a source": lambda x: torch.cat([x[:2], x[2:]], out=x),
    "gather into the source": lambda x: torch.gather(x, 0, torch.zeros(4, 4, dtype=torch.int64), out=x),
    "write to an expanded tensor": lambda x: x[:1].expand(4, 4).add_(1),
    "copy_ to an expanded tensor": lambda x: x[:1].expand(4, 4).copy_(x),
    "out= that is expanded": lambda x: torch.add(x, 1, out=x[:1].expand(4, 4)),
}

# Eager mode lets these through, and what they do depends on the order in which it happens to write.
UNDEFINED: dict[str, Callable[[Tensor], object]] = {
    "write to overlapping windows of unfold": lambda x: x.view(-1).unfold(0, 4, 2).mul_(2),
    "write to as_strided that overlaps itself": lambda x: x.as_strided((3, 3), (1, 1)).add_(1),
    "masked_fill_ of an expanded tensor": lambda x: x[:1].expand(4, 4).masked_fill_(x > 3, 0),
}


@pytest.mark.parametrize("name", REFUSED_BY_EAGER)
def test_refused_as_by_eager(name: str, refused: Refused) -> None:
    refused(REFUSED_BY_EAGER[name], lambda: (numbers(4, 4),), eager_raises=True)


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors")
@pytest.mark.parametrize("name", UNDEFINED)
def test_refused_where_the_result_is_undefined(name: str, refused: Refused) -> None:
    refused(UNDEFINED[name], lambda: (numbers(4, 4),), match="share memory.*write to a clone", eager_raises=False)


def test_asking_eager_leaves_the_random_state_alone(check: Check) -> None:
    def program(x: Tensor) -> object:
        x.bernoulli_(x / 20)
        return torch.rand(2)

    check(program, lambda: (numbers(4, 4),))


# Results


RESULTS: dict[str, Callable[[Tensor], object]] = {
    "an argument": lambda x: x,
    "an argument twice": lambda x: (x, x),
    "a view of an argument": lambda x: x[1:],
    "two views of an argument": lambda x: (x[1:], x.t()),
    "a written argument": lambda x: x.add_(1),
    "a written argument and a view of it": lambda x: (x.add_(1), x[0]),
    "a view that is written": lambda x: x[1].mul_(2),
    "a value and its argument": lambda x: (x + 1, x),
    "pieces of an argument": lambda x: list(x.unbind(0)),
    "one of the pieces": lambda x: x.chunk(2)[1],
    "a chain of views": lambda x: x.view(2, 8)[1].view(2, 4).t(),
    "a view as bits": lambda x: x.view(torch.int32)[0],
    "strided": lambda x: x.as_strided((2, 2), (5, 1), 3),
    "expanded": lambda x: x[:, :1].expand(4, 4),
    "unfolded": lambda x: x.unfold(1, 2, 1),
    "detached": lambda x: x.detach(),
    "new: x + 0": lambda x: x + 0,
    "new: clone": lambda x: x.clone(),
    "new: reshape that copies": lambda x: x.t().reshape(-1),
    "not new: reshape that does not": lambda x: x.reshape(-1),
    "not new: contiguous": lambda x: x.contiguous(),
    "new: contiguous of the transpose": lambda x: x.t().contiguous(),
    "not new: to": lambda x: x.to(torch.float32),
    "two results that share new memory": lambda x: (lambda y: (y, y[0]))(x * 2),
    "two views of new memory": lambda x: (lambda y: (y[1:], y.t()))(x * 2),
    "new memory that is written": lambda x: (lambda y: (y.add_(1), y[0].zero_(), y.view(-1)))(x * 2),
    "one of two halves of new memory": lambda x: (x * 2).chunk(2)[1],
    "nothing": lambda x: None,
    "nested": lambda x: {"a": [x, (x[0], None)], "b": 3},
    "a written clone and the argument": lambda x: (x.clone().add_(1), x),
    "equal results that are not the same": lambda x: (x + 1, x + 1),
    "a constant": lambda x: torch.tensor([1.0, 2.0]),
    "views of an argument's view that is written": lambda x: (lambda v: (v.add_(1), v[0], x[2]))(x[1:]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str, check: Check) -> None:
    check(RESULTS[name], lambda: (numbers(4, 4),), text=True)


@pytest.mark.parametrize("name", RESULTS)
def test_results_through_dynamo(name: str, check: Check) -> None:
    check(RESULTS[name], lambda: (numbers(4, 4),), dynamo=True)


def test_results_of_an_argument_with_gaps(check: Check) -> None:
    def program(x: Tensor) -> object:
        y = x * 2
        y[0].add_(1)
        return y, x.t(), torch.empty_like(x).copy_(x), x.clone()

    check(program, lambda: (numbers(4, 8)[:, ::2].t(),))


def test_values_keep_the_strides_of_eager_mode(check: Check) -> None:
    """The value of `y` comes from a transposed tensor; nothing that looks at its memory may see that."""

    def program(x: Tensor) -> object:
        y = torch.zeros(4, 4)
        y.copy_(x.t())
        z = y + 1
        return y, z, z.view(16), z.view(torch.int16), z.as_strided((3,), (1,)) * 1, torch.bernoulli(z / 20), y.clone()

    check(program, lambda: (numbers(4, 4),))
