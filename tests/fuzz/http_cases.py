"""Hostile requests against a server that runs: counts by outcome, and whether it is as well as before.

    campaign(address, seed="0", cases=200)        a server or an explorer, which is found out
    run(seconds, seed, out, address)              for `make fuzz`: that server, and an explorer of its own

Outcomes: `2xx` ... `4xx`; `closed` without an answer, which is right for bytes that are no HTTP; `left`
by the client; `waited`: for bytes that did not come. Failures: `5xx`; `hang`; `malformed` answers;
`wrong`: a good request, sent all the while and at the end, is not answered as before.
"""

import collections
import contextlib
import json
import re
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.fuzz.http_requests import SERVER, Case, Surface, explorer_surface, made

Counts = collections.Counter[str]
FINE = ("2xx", "3xx", "4xx", "closed", "left", "waited")
FAILURES = ("5xx", "hang", "malformed", "wrong")
PATIENCE = 60.0  # seconds for an answer that has to come: the machine may be busy
SILENCE = 0.25  # seconds after which a request that may be incomplete is ended
CLIENTS = 4
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def campaign(
    address: str,
    *,
    seed: str = "0",
    cases: int = 10**9,
    seconds: float = 10**9,
    out: Path | None = None,
) -> Counts:
    """Cases 0, 1, 2, ... of a seed until their number or the time is over."""
    surface, good = _known(address)
    before, counts = _healthy(address, good), collections.Counter[str]()
    until, over = time.monotonic() + seconds, threading.Event()

    def one(number: int) -> None:
        if time.monotonic() < until:
            case = made(surface, seed, number)
            outcome, answer = talk(address, case)
            counts[outcome] += 1
            if outcome in FAILURES:
                _save(out, f"http-{urlsplit(address).port}-{seed}-{number}", case, outcome, answer)

    def watch() -> None:
        while not over.wait(0.2):
            compare()

    def compare() -> None:
        try:
            found = _healthy(address, good)
        except (OSError, ValueError) as problem:
            found = repr(problem)
        if found != before:
            counts["wrong"] += 1
            _save(out, f"http-{seed}-wrong", None, "wrong", f"{before}\n{found}".encode())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with ThreadPoolExecutor(CLIENTS) as clients:
            for first in range(0, cases, 16 * CLIENTS):
                if time.monotonic() > until:
                    break
                list(clients.map(one, range(first, min(first + 16 * CLIENTS, cases))))
    finally:
        over.set()
        watching.join()
    compare()
    return counts


def talk(address: str, case: Case) -> tuple[str, bytes]:
    """The outcome of one case, and what was answered."""
    place = urlsplit(address)
    assert place.hostname is not None
    with socket.create_connection((place.hostname, place.port or 80), timeout=PATIENCE) as there:
        for piece in case.pieces:
            if isinstance(piece, float):
                time.sleep(piece)
                continue
            try:
                there.sendall(piece)
            except OSError:  # closed already: the answer may have come before
                break
        if case.leaves:
            return "left", b""
        answer, ended = _read(there, PATIENCE if case.whole else SILENCE)
        if not ended and _begun(answer):  # a stream goes on for as long as the machine is busy
            rest, ended = _read(there, PATIENCE, answer)
            if not ended:
                return "hang", rest
            answer = rest
        if not ended and not answer:
            if case.whole:
                return "hang", answer
            with contextlib.suppress(OSError):
                there.shutdown(socket.SHUT_WR)
            answer, ended = _read(there, PATIENCE)
            if not ended:
                return "hang", answer
            if not answer:
                return "waited", answer
    return _judged(answer), answer


def _read(there: socket.socket, seconds: float, data: bytes = b"") -> tuple[bytes, bool]:
    """Bytes until the connection ends, an answer is complete or nothing comes; and whether it ended."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        there.settimeout(left)
        try:
            block = there.recv(2**16)
        except TimeoutError:
            break
        except OSError:
            return data, True
        if not block:
            return data, True
        data += block
        if _complete(data):
            return data, True
    return data, False


def _begun(data: bytes) -> bool:
    """Whether these bytes start a final answer, not one that asks for the body (100 Continue)."""
    return bool(data) and not data.startswith(b"HTTP/1.1 1")


def _complete(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    if not found or head.startswith(b"HTTP/1.1 1"):
        return False
    if length:
        return len(body) >= int(length[1])
    return b"chunked" in head and body.endswith(b"0\r\n\r\n")


def _judged(answer: bytes) -> str:
    if not answer:
        return "closed"
    statuses = [int(each) for each in STATUS.findall(answer)]
    if not statuses or not answer.startswith(b"HTTP/1.1 ") or b"\r\nX-Injected" in answer:
        return "malformed"
    if any(status >= 500 for status in statuses):
        return "5xx"
    # a body that is too large is not read, and the reset that follows may overtake the answer
    if len(statuses) == 1 and statuses != [413] and not _sound(*answer.split(b"\r\n\r\n", 1)):
        return "malformed"
    return f"{statuses[-1] // 100}xx"


def _sound(head: bytes, body: bytes = b"") -> bool:
    """JSON is JSON, and a stream has its end and no NaN in it."""
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n") and not re.search(rb"[:\[,] ?(NaN|-?Infinity)\b", body)
    try:
        if b"application/json" in head and body:
            json.loads(body, parse_constant=_no_number)
    except ValueError:
        return False
    return True


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _known(address: str) -> tuple[Surface, tuple[str, dict[str, Any]]]:
    """What the server at this address answers to, and a request whose answer never changes."""
    with contextlib.suppress(urllib.error.HTTPError):
        (model,) = json.loads(_got(address, "/v1/models"))["data"]
        posts = [(path, body | {"model": model["id"]}) for path, body in SERVER.posts]
        asked = {"model": model["id"], "prompt": "to be or", "max_tokens": 8, "temperature": 0}
        return Surface(gets=SERVER.gets, posts=posts), ("/v1/completions", asked)
    places = json.loads(_got(address, "/api/list"))
    run, model = places["runs"][0]["name"], places["models"][0]
    query = urllib.parse.urlencode({"name": model})
    layer = json.loads(_got(address, f"/api/filters?{query}"))["rows"][0]["layer"]
    return explorer_surface(run, model, layer), (
        "/api/contributions",
        {"model": model, "text": "one two"},
    )


def _got(address: str, path: str) -> bytes:
    with urllib.request.urlopen(address + path, timeout=PATIENCE) as answer:
        found: bytes = answer.read()
        return found


def _healthy(address: str, good: tuple[str, dict[str, Any]]) -> str:
    path, body = good
    kind = {"Content-Type": "application/json"}
    asked = urllib.request.Request(address + path, json.dumps(body).encode(), kind)
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        found = json.loads(answer.read())
    return json.dumps([found.get(name) for name in ("choices", "usage", "tokens", "contributions")])


def _save(out: Path | None, name: str, case: Case | None, outcome: str, answer: bytes) -> None:
    """A reproducer: the bytes that were sent, and what came of them."""
    if out is not None:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        if case is not None:
            sent = [piece for piece in case.pieces if isinstance(piece, bytes)]
            (folder / "sent").write_bytes(b"".join(sent))
        (folder / "answer").write_bytes(answer)
        title = case.title if case is not None else "a good request beside the others"
        (folder / "outcome").write_text(f"{outcome}: {title}\n")


def run(seconds: float, seed: str, out: Path, address: str) -> Counts:
    """Half of the time each for a server and for an explorer, in the words of the other kinds."""
    found = campaign(address, seed=seed, seconds=seconds / 2, out=out)
    with tempfile.TemporaryDirectory() as folder, explored(Path(folder)) as explorer:
        found += campaign(explorer, seed=seed, seconds=seconds / 2, out=out)
    words = {"2xx": "ok", "5xx": "status", "hang": "hang", "malformed": "wrong", "wrong": "wrong"}
    told = Counts()
    for outcome, number in found.items():
        told[words.get(outcome, "rejected")] += number
    return told


def tiny(folder: Path) -> Path:
    """A checkpoint with a tokenizer; its logits are large, so that rounding decides nothing."""
    import torch

    from toeplix import Model, build, save
    from toeplix.data import Tokenizer

    tokenizer = Tokenizer.train(["to be or not to be, one two three, naïve 漢字 "] * 20, 280)
    tokenizer.save(folder)
    torch.manual_seed(0)
    model = build(Model(vocab=tokenizer.vocab, context=64, dim=16, depth=2, heads=2))
    with torch.no_grad():
        model.head.weight.mul_(20)
    return save(model, folder)


@contextlib.contextmanager
def explored(folder: Path) -> Iterator[str]:
    """The address of an explorer over one small run, in a thread of this process."""
    import uvicorn

    from toeplix.explorer.app import explorer
    from toeplix.serving.http_protocol import configuration

    run = folder / "runs" / "one"
    tiny(run / "model")
    (run / "run.json").write_text('{"model": {"arch": "toeplitz", "dim": 16}, "steps": 3}')
    (run / "metrics.jsonl").write_text('{"step": 3, "loss": 2.0, "tokens": 9, "seconds": 1.0}\n')
    app = explorer(folder / "runs", results=folder / "results", figures=folder / "figures")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        server = uvicorn.Server(configuration(app, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
