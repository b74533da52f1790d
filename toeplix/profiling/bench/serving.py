"""A server under load on loopback: the throughput of many clients relative to that of one.

    throughput    1, 4, 16, ... concurrent clients, interleaved; tokens per second relative to one client
    endurance     many streams for a limited time, each completion compared with that of a single client

The server is a separate process (`toeplix serve`). The clients read server-sent events from plain
sockets, because Python's HTTP clients would be slower than the server.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from toeplix.architectures import build
from toeplix.checkpoint import save
from toeplix.config import Model
from toeplix.data import Tokenizer
from toeplix.profiling import timing
from toeplix.profiling.progress import announce

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "to", "be"]
NAME = "bench"
QUESTIONS = 24  # number of different requests


@dataclass(frozen=True, kw_only=True)
class Question:
    prompt: str
    new: int
    seed: int

    @property
    def body(self) -> bytes:
        fields = {"model": NAME, "stream": True, "temperature": 1.0}
        asked = {"prompt": self.prompt, "max_tokens": self.new, "seed": self.seed}
        return json.dumps(fields | asked).encode()


def questions(count: int, new: int) -> list[Question]:
    """Return requests with prompts and completions of different lengths."""
    found = []
    for number in range(count):
        length = 4 + 11 * number % 60
        words = [WORDS[(number + 7 * place) % len(WORDS)] for place in range(length)]
        asked = new // 2 + (new * number) // count
        found.append(Question(prompt=" ".join(words), new=asked, seed=number))
    return found


def run(
    console: Console,
    *,
    model: Model,
    clients: list[int],
    streams: int,
    seconds: float,
    new: int,
    rounds: int,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Run both parts; print tables and return the results as a JSON document.

    `options` are more options of `toeplix serve`.
    """
    with served(model, options) as (process, port):
        asked = questions(min(QUESTIONS, streams), new)
        expected = [answer for answer, _ in crowd(port, [[each] for each in asked], at_once=1)]
        rows = throughput(console, port, clients, rounds, new)
        lasting = endurance(console, process.pid, port, streams, seconds, asked, expected)
    machine = timing.describe_machine()
    sizes = {"dim": model.dim, "depth": model.depth, "context": model.context, "vocab": model.vocab}
    return {
        "benchmark": "serve",
        "machine": machine,
        **sizes,
        "new_tokens": new,
        "throughput": rows,
        "endurance": lasting,
    }


@contextmanager
def served(
    model: Model, options: Sequence[str] = ()
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Run `toeplix serve` for a model with random weights in a process, on a free port."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Tokenizer.train([" ".join(WORDS)] * 5, model.vocab)
        tokenizer.save(folder)
        torch.manual_seed(0)
        save(build(model), folder)
        threads = str(torch.get_num_threads())
        command = [sys.executable, "-m", "toeplix", "serve", folder, "--port", "0", "--name", NAME]
        with subprocess.Popen(
            [*command, "--threads", threads, *options],
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "TOEPLIX_API_KEY"},
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                if "/v1" not in line:
                    raise OSError("the server did not start")
                yield process, int(line.rstrip().removesuffix("/v1").rpartition(":")[2])
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(90)


def throughput(
    console: Console, port: int, clients: list[int], rounds: int, new: int
) -> list[dict[str, Any]]:
    """Measure tokens per second; each client sends its requests one after the other."""
    rates: dict[int, list[float]] = {count: [] for count in clients}
    for number in range(rounds):
        for count in clients:
            announce(f"throughput: round {number + 1} of {rounds}, {count} clients")
            asked = [
                [
                    Question(prompt=" ".join(WORDS), new=new, seed=10 * client + turn)
                    for turn in (0, 1)
                ]
                for client in range(count)
            ]
            began = time.perf_counter()
            found = crowd(port, asked, at_once=count)
            rates[count].append(sum(tokens for _, tokens in found) / (time.perf_counter() - began))
    one = rates[clients[0]]
    rows = [
        {
            "clients": count,
            "tokens_per_second": round(statistics.median(found), 1),
            "ratio": round(timing.median_ratio(found, one), 2),
        }
        for count, found in rates.items()
    ]
    drawn = Table(title="throughput: all clients together, ratio to one")
    for column in ("clients", "tokens/s", "ratio"):
        drawn.add_column(column, justify="right")
    for row in rows:
        drawn.add_row(str(row["clients"]), f"{row['tokens_per_second']:.0f}", f"{row['ratio']:.1f}")
    console.print(drawn)
    return rows


def endurance(
    console: Console,
    pid: int,
    port: int,
    streams: int,
    seconds: float,
    asked: list[Question],
    expected: list[str],
) -> dict[str, Any]:
    """Stream continuously; count lost and wrong completions, and measure memory over time."""
    announce(f"load test: {streams} streams for {seconds:.0f} s")
    memory: list[tuple[float, int]] = []
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(1) as aside:
        working = aside.submit(_besiege, port, streams, until, asked)
        while not working.done():
            memory.append((time.monotonic() - until + seconds, resident(pid)))
            wait([working], max(0.05, seconds / 200))
        found = working.result()
    wrong = sum(text != expected[number] for number, text in found if text is not None)
    half = [size for at, size in memory if seconds / 4 < at <= seconds / 2] or [memory[-1][1]]
    last = [size for at, size in memory if 3 * seconds / 4 < at <= seconds] or [memory[-1][1]]
    row = {
        "streams": streams,
        "seconds": seconds,
        "answers": len(found),
        "lost": sum(text is None for _, text in found),
        "wrong": wrong,
        "resident_mib": round(max(last) / 2**20, 1),
        "memory_ratio": round(max(last) / max(half), 3),
    }
    console.print(
        f"{streams} streams for {seconds:g} s: {row['answers']} answers, {row['lost']} lost, "
        f"{wrong} wrong; {row['resident_mib']} MiB, last quarter over second {row['memory_ratio']}"
    )
    return row


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if the operating system does not report it."""
    try:
        with open(f"/proc/{pid}/statm") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def crowd(port: int, asked: list[list[Question]], at_once: int) -> list[tuple[str, int]]:
    """Send lists of requests, one list per client, one after the other; return completions and tokens."""

    async def all_of_them() -> list[tuple[str, int]]:
        places = asyncio.Semaphore(at_once)

        async def client(own: list[Question]) -> list[tuple[str, int]]:
            async with places:
                return [await ask(port, each) for each in own]

        found = await asyncio.gather(*(client(own) for own in asked))
        return [answer for each in found for answer in each]

    return asyncio.run(all_of_them())


def _besiege(
    port: int, streams: int, until: float, asked: list[Question]
) -> list[tuple[int, str | None]]:
    async def client(number: int) -> list[tuple[int, str | None]]:
        found: list[tuple[int, str | None]] = []
        while time.monotonic() < until:
            try:
                text, _ = await ask(port, asked[number])
                found.append((number, text))
            except (OSError, ValueError, asyncio.IncompleteReadError):
                found.append((number, None))
            number = (number + streams + 1) % len(asked)
        return found

    async def all_of_them() -> list[tuple[int, str | None]]:
        clients = (client(number % len(asked)) for number in range(streams))
        return [each for found in await asyncio.gather(*clients) for each in found]

    return asyncio.run(all_of_them())


async def ask(port: int, question: Question) -> tuple[str, int]:
    """Return the text of a streamed completion, up to `[DONE]`, and the number of requested tokens."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(question.body)}\r\n\r\n"
        )
        writer.write(head.encode() + question.body)
        status = await reader.readline()
        if b" 200 " not in status:
            raise ValueError(f"the server answered {status!r}")
        text, ended = [], False
        async for line in reader:
            if line.startswith(b"data: [DONE]"):
                ended = True
            elif line.startswith(b"data: "):
                text.append(json.loads(line[6:])["choices"][0]["text"])
        if not ended:
            raise ValueError("the stream has no end")
        return "".join(text), question.new
    finally:
        writer.close()
