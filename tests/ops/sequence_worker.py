"""Started by torchrun: products of divided sequences, in every process. See test_sequence_parallel.py.

Every process knows the whole sequence, multiplies it by the definition in float64, and compares its own
positions of the divided product: values, gradients of its positions, and gradients of the weights summed
over the processes.
"""

import itertools

import torch
import torch.distributed as dist

from tests.ops.oracle import spelled_out
from toeplix.ops import recurrent_kernel
from toeplix.ops.exchange import Exchange
from toeplix.ops.sequence_parallel import DividedSequence
from toeplix.training.processes import joined

TIMES = (1, 2, 7, 8)  # positions of a process
SHAPES = ((1, 1, 1), (2, 4, 1), (1, 1, 8), (2, 3, 5))  # rows, heads, channels
FILTERS = ((0, 1), (1, 2), (3, 0), (4, 2), (19, 3))  # short taps, decays
CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def random(*shape):
    """Return the same numbers in every process."""
    return torch.randn(*shape, dtype=torch.float64)


def compare(layout, time, product, definition, x, weights):
    """Compare the divided product and its gradients with those of the definition."""
    own = slice(layout.first(time), layout.first(time) + time)
    g = random(*x.shape)
    whole = [each.clone().requires_grad_() for each in (x, *weights)]
    expected = definition(*whole)
    expected.backward(g)
    mine = [each.clone().requires_grad_() for each in (x[:, own], *weights)]
    y = product(*mine)
    y.backward(g[:, own])
    torch.testing.assert_close(y, expected[:, own], **CLOSE)
    torch.testing.assert_close(mine[0].grad, whole[0].grad[:, own], **CLOSE)
    for part, full in zip(mine[1:], whole[1:], strict=True):
        dist.all_reduce(part.grad, group=layout.exchange.group)
        torch.testing.assert_close(part.grad, full.grad, **CLOSE)


def check_free(layout):
    for time, (rows, heads, channels) in itertools.product(TIMES, SHAPES):
        length = time * layout.exchange.count
        x = random(rows, length, heads, channels)
        for taps in {length, max(1, length - 2)}:  # the second is a window
            kernel = random(heads, taps)
            compare(layout, time, layout.windowed, spelled_out, x, [kernel])


def check_recurrent(layout):
    for time, (rows, heads, channels) in itertools.product(TIMES, SHAPES[1::2]):
        length = time * layout.exchange.count
        x = random(rows, length, heads, channels)
        for short, rank in FILTERS:
            decays = torch.rand(heads, rank, dtype=torch.float64) / 2 + 0.5
            weights = [random(heads, short), random(heads, rank), decays]
            compare(
                layout,
                time,
                layout.recurrent,
                lambda x, *w: spelled_out(x, recurrent_kernel(*w, x.shape[1])),
                x,
                weights,
            )


def check_exchange(layout):
    """Shifts move tensors along the ranks, and bytes are those that were sent."""
    exchange, count = layout.exchange, layout.exchange.count
    own = torch.full((3,), float(exchange.rank))
    for by in {*range(-count, count + 1)} - {0}:
        before, source = exchange.sent, exchange.rank - by
        found = exchange.shift(own, by)
        assert torch.equal(found, torch.full((3,), float(source if 0 <= source < count else 0)))
        assert exchange.sent - before == (12 if 0 <= exchange.rank + by < count else 0)
    table = 10.0 * exchange.rank + torch.arange(count, dtype=torch.bfloat16)
    before, found = exchange.sent, exchange.all_to_all(table)
    assert found.tolist() == [10.0 * rank + exchange.rank for rank in range(count)]
    assert exchange.sent - before == 2 * (count - 1)
    for size in (0, 1, 4, 5, 99):
        x = torch.arange(2.0 * count).view(1, -1, 1)[:, 2 * exchange.rank : 2 * exchange.rank + 2]
        known = [max(0.0, 2.0 * exchange.rank - size + i) for i in range(size)]
        assert layout.before(x, size).flatten().tolist() == known


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined() as processes:
        pairs = [dist.new_group([first, first + 1]) for first in range(0, processes.count, 2)]
        for group in (None, pairs[processes.rank // 2]):
            layout = DividedSequence(Exchange(group))
            for check in (check_exchange, check_free, check_recurrent):
                torch.manual_seed(0)
                check(layout)
        if processes.first:
            print(f"agreed in {processes.count} processes")
