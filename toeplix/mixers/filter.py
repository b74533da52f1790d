"""A causal Toeplitz layer with its decoding state: one filter per head and one bias per position.

    y[b, t, h, c] = sum over i < k, s <= t of kernel[h, i, t-s] x[b, s, h, c + i - (k-1)] + bias[h, t]

With k kernels each channel also reads its k - 1 lower neighbours (channels below 0 are zero). Beyond
`context` positions a filter is a sliding window and the bias keeps its last value.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.mixers.ragged import Positions, RowState, each, picked, selected, times
from toeplix.ops import Decoder, decoder, toeplitz_continued, toeplitz_windowed
from toeplix.ops.decoding.ragged import RaggedDecoder


class Filter(nn.Module):
    """A layer of causal filters with parameters `kernel` (h, k, n) and `bias` (h, n)."""

    def __init__(self, heads: int, context: int, kernels: int = 1, frozen: bool = False) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(heads, kernels, context), requires_grad=not frozen)
        self.bias = nn.Parameter(torch.empty(heads, context), requires_grad=not frozen)

    def reset(self, kind: str) -> None:
        """Initialise as `kaiming` noise, as `ones`, or as `decay` over 1/2 to 16 positions."""
        heads, _, context = self.kernel.shape
        with torch.no_grad():
            self.bias.zero_()
            if kind == "kaiming":
                self.kernel.normal_(std=math.sqrt(2 / context))
            elif kind == "ones":
                self.kernel.fill_(1.0)
            else:
                lag = torch.arange(context, dtype=torch.float32)
                shortest, longest = (1.0, 1.0) if heads == 1 else (-1.0, 4.0)
                reach = 2.0 ** torch.linspace(shortest, longest, heads)
                curve = torch.exp(-lag / reach[:, None])
                curve = curve / curve.norm(dim=1, keepdim=True)
                self.kernel.zero_()
                self.kernel[:, -1] = curve

    def forward(self, x: Float[Tensor, "b t h c"]) -> Float[Tensor, "b t h c"]:
        return self.product(x) + self._bias(0, x.shape[1]).to(x.dtype)

    def product(self, x: Float[Tensor, "b t h c"]) -> Float[Tensor, "b t h c"]:
        """Return the product without the bias, which is linear in x."""
        return self._sum(toeplitz_windowed(self._neighbours(x), self.kernel.flatten(0, 1)))

    def _neighbours(self, x: Tensor) -> Tensor:
        """Return the shifted channels that each kernel reads, as heads: `(b, t, h k, c)`."""
        kernels, channels = self.kernel.shape[1], x.shape[-1]
        if kernels == 1:
            return x
        padded = nn.functional.pad(x, (kernels - 1, 0))
        return torch.stack([padded[..., i : i + channels] for i in range(kernels)], 3).flatten(2, 3)

    def _sum(self, y: Tensor) -> Tensor:
        heads, kernels = self.kernel.shape[:2]
        return y if kernels == 1 else y.unflatten(2, (heads, kernels)).sum(3)

    def _bias(self, first: Positions, count: int) -> Float[Tensor, "#b t h 1"]:
        context = self.bias.shape[1]
        if isinstance(first, int) and first + count <= context:
            return self.bias[:, first : first + count].t()[None, :, :, None]
        return self.bias[:, times(first, count, context - 1)].permute(1, 2, 0)[..., None]

    def extend(self, x: Float[Tensor, "b k h c"], state: "FilterState") -> Tensor:
        first = state.position
        y = state.extend(self._neighbours(x), self.kernel.flatten(0, 1))
        return self._sum(y) + self._bias(first, x.shape[1]).to(x.dtype)


class FilterBank:
    """The decoding state of the filters of all layers of one model.

    During prefill each layer keeps a history of its inputs. After `begin_decoding` one decoder computes
    the filters of all layers, position by position (`open` before a position, `close` after it), so that
    its work is batched over layers.
    """

    def __init__(self, kind: str = "auto") -> None:
        self.kind = kind
        self.decoding = False  # whether positions are decoded one by one
        self.max_new_tokens: int | None = None
        self.decoder: Decoder | None = None
        self._states: list[FilterState] = []

    def join(self) -> "FilterState":
        state = FilterState(self)
        self._states.append(state)
        return state

    def begin_decoding(self, max_new_tokens: int | None = None) -> None:
        """Switch to decoding, with at most `max_new_tokens` steps; None: no limit."""
        if self.decoding:
            raise ValueError("decoding has begun already: a state switches from prefill once")
        self.decoding, self.max_new_tokens = True, max_new_tokens
        self.open()

    @torch.no_grad()
    def open(self) -> None:
        """Build the decoder if decoding has begun and any position was read, which is its past.

        Before the first position the layers have no kernels yet; it goes through the histories.
        """
        if not self.decoding or self.decoder is not None:
            return
        if self._states and self._states[0].history is not None:
            kernel, past = self._collect()
            self.decoder = decoder(kernel, past, horizon=self.max_new_tokens, kind=self.kind)

    def _collect(self) -> tuple[Float[Tensor, "h n"], Float[Tensor, "b p h c"]]:
        """Return filters and histories of all layers, concatenated as heads; the states release them."""
        kernels, histories, heads = [], [], 0
        for state in self._states:
            assert state.kernel is not None
            assert state.history is not None
            kernels.append(state.kernel)
            histories.append(state.history)
            state.first, state.history = heads, None
            heads += len(state.kernel)
        return torch.cat(kernels), torch.cat(histories, 2)

    def begin_ragged(self, max_new_tokens: int) -> None:
        """Switch to decoding a ragged batch: rows may join (`append`) and leave (`select`).

        No row takes more than `max_new_tokens` decode steps.
        """
        self.decoding, self.max_new_tokens = True, max_new_tokens
        if self._states:
            self.decoder = RaggedDecoder(*self._collect(), max_new_tokens)

    def append(self, other: "FilterBank") -> None:
        """Append the rows of another bank, whose prompts are prefilled."""
        if isinstance(self.decoder, RaggedDecoder):
            self.decoder.append(other._collect()[1])

    def extend(
        self, state: "FilterState", x: Float[Tensor, "b k h c"], kernel: Float[Tensor, "h n"]
    ) -> Float[Tensor, "b k h c"]:
        """Return the outputs of the next positions of a bank with a single layer.

        This bank begins decoding by itself, at the first single position: for callers whose interface
        has no such moment.
        """
        if self.decoder is None and x.shape[1] > 1:
            return state.extend(x, kernel)
        self.decoding = True
        parts = []
        for part in x.split(1, dim=1):
            self.open()
            parts.append(state.extend(part, kernel))
            self.close()
        return torch.cat(parts, 1)

    def select(self, rows: Int[Tensor, " r"]) -> None:
        """Keep these rows of the batch, in this order."""
        if self.decoder is not None:
            self.decoder.select(rows)
        for state in self._states:
            if state.history is not None:
                state.history = selected(state.history, rows)

    def close(self) -> None:
        if self.decoder is not None:
            self.decoder.advance()


class FilterState(RowState):
    """The decoding state of one layer's filters: a history, or some heads of the bank's decoder."""

    def __init__(self, bank: FilterBank) -> None:
        self.position: Positions = 0
        self.history: Tensor | None = None
        self.kernel: Tensor | None = None
        self.first = 0  # first head of this layer in the decoder
        self._bank = bank

    def extend(self, x: Float[Tensor, "b k h c"], kernel: Float[Tensor, "h n"]) -> Tensor:
        self.position = self.position + x.shape[1]
        if self._bank.decoder is not None:
            return self._bank.decoder.emit(x[:, 0], self.first)[:, None]
        self.kernel = kernel
        past = x[:, :0] if self.history is None else self.history
        y = toeplitz_continued(x, kernel, past)
        kept = torch.cat([past, x], 1)
        self.history = kept[:, max(0, kept.shape[1] - kernel.shape[1] + 1) :]
        return y

    def begin_ragged(self, rows: int) -> None:
        self.position = each(self.position, rows)

    def append(self, other: "FilterState") -> None:
        """Append the positions of another state; the bank appends the histories."""
        self.position = torch.cat([torch.as_tensor(p) for p in (self.position, other.position)])

    def select(self, rows: Int[Tensor, " r"]) -> None:
        self.position = picked(self.position, rows)
