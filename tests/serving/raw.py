"""Bytes over a socket: what curl sends, and what it never would."""

import json
import socket
from urllib.parse import urlparse


def connect(server) -> socket.socket:
    place = urlparse(server if isinstance(server, str) else server.url)
    return socket.create_connection((place.hostname, place.port), timeout=120)


def post(path: str, body: bytes, *headers: str, host: str = "localhost") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    if not any(header.startswith("Transfer-Encoding") for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def exchange(server, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to these bytes, until the server closes or is done."""
    with connect(server) as there:
        there.sendall(data)
        return answer(there)


def answer(there: socket.socket) -> tuple[int, dict[str, str], bytes]:
    with there.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        headers = {}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if "content-length" in headers:
            return status, headers, stream.read(int(headers["content-length"]))
        return status, headers, _chunks(stream) if "transfer-encoding" in headers else stream.read()


def _chunks(stream) -> bytes:
    body = b""
    while size := int(stream.readline() or b"0", 16):
        body += stream.read(size)
        stream.readline()
    return body


def ask(server, path: str = "/v1/completions", **fields) -> tuple[int, dict]:
    body = json.dumps({"model": "tiny", **fields}).encode()
    status, _, found = exchange(server, post(path, body))
    return status, json.loads(found)
