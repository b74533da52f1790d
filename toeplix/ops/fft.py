"""The FFT path, for long sequences: the convolution theorem, in chunks that fit into the cache.

    y = ifft(fft(x, n) * fft(kernel, n))[start : stop]

with x padded by zeros to a length n at which the circular product does not wrap into the window
that is kept. One filter serves all channels of a head and is real, so two neighbouring channels
travel as the real and imaginary part of one complex signal ("lane") and never need separating:
filter * (x1 + i x2) = filter * x1 + i (filter * x2). An odd number of channels uses real transforms.
Channels in one lane share their rounding, and NaN: both belong to one row, so that rows stay apart.

Lanes are processed in chunks of about `CHUNK` bytes. The spectra of a chunk are freed with it, and the
backward pass transforms x again instead of keeping its spectrum. Causal to rounding only: a spike of 1e4
at a later position changes earlier outputs by about 1e-4 in float32.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toeplix.ops.contraction import Gradient

CHUNK_BYTES = {"cpu": 2**21, "cuda": 2**28}  # bytes of one padded chunk; on a CPU it stays in cache
MIN_CHUNK_LANES = 16
# longest result for which spreading its lanes is cheaper than transposing them as is
MAX_SPREAD_LENGTH = 4096


def product(x: Float[Tensor, "b t h c"], kernel: Float[Tensor, "h t"]) -> Float[Tensor, "b t h c"]:
    return window(x, kernel, 0, x.shape[1])


def window(
    x: Float[Tensor, "b s h c"],
    kernel: Float[Tensor, "h n"],
    start: int,
    stop: int,
    spectrum: Tensor | None = None,
    paired: bool | None = None,
) -> Float[Tensor, "b k h c"]:
    """Return positions `start .. stop` of the whole convolution of x with `kernel[:, :stop]`.

    `window(x, w, 0, t)` is the causal product; `window(x, w, s, s + k)` is what a past of
    length s adds to the k positions after it. `spectrum` is that of the kernel for this window,
    where a caller keeps it (`window_spectrum`). `paired` says whether neighbouring channels share
    a lane, for callers that have rows side by side as channels; by default they do if they can.
    """
    work = _Lanes(x, _length(x.shape[1], start, stop), paired)
    if spectrum is None:
        spectrum = work.spectrum(kernel[:, :stop])
    y = x.new_empty(x.shape[0], stop - start, *x.shape[2:])
    for chunk in work.chunks():
        signal = work.forward(work.load(x, chunk))
        signal *= spectrum[chunk.heads, None]
        work.store(work.inverse(signal)[..., start:stop], y, chunk)
    return y


def window_spectrum(
    x: Float[Tensor, "b s _ c"], kernel: Float[Tensor, "h n"], start: int, stop: int
) -> Tensor:
    """Return the spectrum of the kernel that `window` uses for an x of this shape, to be cached."""
    return _Lanes(x, _length(x.shape[1], start, stop)).spectrum(kernel[:, :stop])


def gradient(
    g: Float[Tensor, "b t h c"],
    x: Float[Tensor, "b t h c"],
    kernel: Float[Tensor, "h t"],
    need_x: bool,
    need_kernel: bool,
) -> Gradient:
    """Return dx, with spectrum `G conj(W)`, and dkernel, with that of `G conj(X)` summed over lanes."""
    time = x.shape[1]
    work = _Lanes(g, _length(time, 0, time))
    mirrored = work.spectrum(kernel).conj_physical()
    dx = torch.empty_like(g, memory_format=torch.contiguous_format) if need_x else None
    correlation = torch.zeros_like(mirrored)
    for chunk in work.chunks():
        signal = work.forward(work.load(g, chunk))
        if need_kernel:
            other = work.forward(work.load(x, chunk)).conj_physical_().mul_(signal)
            correlation[chunk.heads] += other.sum((0, 2))
            del other
        if dx is not None:
            signal *= mirrored[chunk.heads, None]
            work.store(work.inverse(signal)[..., :time], dx, chunk)
    return dx, work.inverse(correlation)[:, :time].real if need_kernel else None


class _Chunk(NamedTuple):
    batch: slice
    heads: slice
    channels: slice


class _Lanes:
    """Copies chunks of a `(b, t, h, c)` tensor to `(b, h, lanes, n)` and back, through one buffer.

    Copying a chunk in its own layout first, then transposing, is faster than one strided copy,
    and supports any layout and dtype of x.
    """

    def __init__(self, x: Tensor, length: int, paired: bool | None = None) -> None:
        self.shape = x.shape
        self.length = length
        paired = x.shape[3] % 2 == 0 if paired is None else paired
        self.width = 2 if paired else 1
        self.real = torch.float64 if x.dtype == torch.float64 else torch.float32
        self.dtype = self.real.to_complex() if paired else self.real
        self.forward: Callable[[Tensor], Tensor] = torch.fft.fft if paired else torch.fft.rfft
        self._inverse = torch.fft.ifft if paired else torch.fft.irfft
        self.device = x.device
        self._buffers: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def inverse(self, spectrum: Tensor) -> Tensor:
        return self._inverse(spectrum, n=self.length)

    def spectrum(self, kernel: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(
            kernel.to(self.real), (0, max(0, self.length - kernel.shape[1]))
        )
        return self.forward(padded)

    def chunks(self) -> Iterator[_Chunk]:
        """Yield chunks: channels of one head, else several whole heads, else several whole sequences."""
        batch, _, heads, channels = self.shape
        lanes = channels // self.width
        budget = CHUNK_BYTES.get(self.device.type, CHUNK_BYTES["cpu"])
        wanted = max(MIN_CHUNK_LANES, budget // (self.length * self.dtype.itemsize))
        for rows in slices(batch, wanted // (lanes * heads)):
            for group in slices(heads, wanted // lanes):
                for part in slices(lanes, wanted):
                    channel = slice(part.start * self.width, part.stop * self.width)
                    yield _Chunk(rows, group, channel)

    def load(self, x: Tensor, chunk: _Chunk) -> Tensor:
        """Return a chunk as lanes, padded with zeros to the length of the transform."""
        part = x[chunk.batch, :, chunk.heads, chunk.channels]
        stage, lanes = self._buffer(part.shape)
        stage.copy_(part)
        signal = stage.view(self.dtype).permute(0, 2, 3, 1)
        lanes[..., : part.shape[1]].copy_(signal)
        return lanes

    def store(self, lanes: Tensor, y: Tensor, chunk: _Chunk) -> None:
        part = y[chunk.batch, :, chunk.heads, chunk.channels]
        signal = self._spread(lanes).permute(0, 3, 1, 2)
        if part.dtype == self.real:
            part.view(self.dtype).copy_(signal)
            return
        signal = signal.contiguous()  # transposed as it is, converted in order
        # a lane alone counts as contiguous whatever its strides, which view(dtype) does not take
        part.copy_(torch.view_as_real(signal).flatten(3) if signal.is_complex() else signal)

    def _spread(self, lanes: Tensor) -> Tensor:
        """Add space between lanes whose distance is a power of two, as these share few cache sets."""
        time = lanes.shape[-1]
        if time > MAX_SPREAD_LENGTH or (self.length * self.dtype.itemsize) % 1024:
            return lanes
        apart = lanes.new_empty(*lanes.shape[:-1], time + 8)[..., :time]
        return apart.copy_(lanes)

    def _buffer(self, shape: torch.Size) -> tuple[Tensor, Tensor]:
        if shape not in self._buffers:
            batch, _, heads, channels = shape
            stage = torch.empty(shape, dtype=self.real, device=self.device)
            lanes = (batch, heads, channels // self.width, self.length)
            self._buffers[shape] = (
                stage,
                torch.zeros(lanes, dtype=self.dtype, device=self.device),
            )
        return self._buffers[shape]


def slices(size: int, most: int) -> Iterator[slice]:
    """Nearly equal parts of at most `most`, and at least one; none of nothing."""
    step = -(-size // max(1, -(-size // max(1, most))))
    for first in range(0, size, max(1, step)):
        yield slice(first, min(first + step, size))


def _length(time: int, start: int, stop: int) -> int:
    """Return the shortest fast transform length at which nothing wraps into `start .. stop`.

    The whole convolution has `time + stop - 1` positions; positions beyond the end wrap to 0, which is
    harmless below `start`.
    """
    return good_length(max(stop, time, time + stop - 1 - start))


@lru_cache(maxsize=1024)
def good_length(least: int) -> int:
    """Return the next fast transform length: no prime factor above 5, and a multiple of 8 if long."""
    step = 8 if least > 64 else 1
    length = -(-least // step) * step
    while not _smooth(length):
        length += step
    return length


def _smooth(number: int) -> bool:
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1
