"""Parse and validate the body of a request; the error 400 names what is wrong.

JSON allows what a server should reject: other encodings, duplicate names (of which parsers take different
ones), lone surrogates, which a tokenizer cannot read and a response cannot contain, and unlimited
nesting. All of these are rejected here, before the fields are validated.
"""

import json
import re
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from toeplix.files import printable
from toeplix.serving.limits import RequestError
from toeplix.serving.requests import NOT_SUPPORTED, UNSUPPORTED, Asked

MAX_DEPTH = 32  # levels of JSON; a conversation has 4
MAX_WORDS = 300  # characters of an error message, which may quote the request
SURROGATE = re.compile(rb"\\u[dD][89abAB]|\\u[dD][c-fC-F]")

Wanted = TypeVar("Wanted", bound=Asked)


async def read(request: Request, kind: type[Wanted]) -> Wanted:
    """Return the body as a request of this kind; raise `RequestError` if it is not valid."""
    _check_type(request.headers.get("content-type", ""))
    try:
        body = await request.body()
    except ClientDisconnect:
        raise RequestError(400, "the connection ended before the body did") from None
    found = _parsed(body)
    try:
        return kind.model_validate(found)
    except ValidationError as problem:
        raise _rejection(problem.errors(include_url=False, include_input=False)[0]) from None


def _check_type(given: str) -> None:
    kind, _, rest = given.partition(";")
    charset = rest.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8", "utf8"):
        shown = printable(given)[:80]
        raise RequestError(415, f"Content-Type: application/json in UTF-8 is needed, not {shown!r}")


def _parsed(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise RequestError(400, f"the body is not UTF-8: byte {problem.start} is wrong") from None
    if text.startswith("\ufeff"):
        raise RequestError(400, "the body begins with a byte order mark: leave it out")
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_float=_number)
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply") from None
    except ValueError as problem:  # also numbers of too many digits
        raise RequestError(400, f"the body is no JSON: {problem}") from None
    _check_depth(found)
    if SURROGATE.search(body):
        _check_characters(found)
    return found


def _number(text: str) -> int | float:
    """Return a number of JSON, where 3.0 is an integer like 3."""
    value = float(text)
    return int(value) if abs(value) < 2**53 and value.is_integer() else value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RequestError(400, f"{_shown(twice)!r} is given twice", param=_shown(twice))
    return found


def _check_depth(found: Any) -> None:
    level = [found]
    for _ in range(MAX_DEPTH):
        inner = (
            value.values() if isinstance(value, dict) else value
            for value in level
            if isinstance(value, dict | list)
        )
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
        if not level:
            return
    raise RequestError(400, f"the body is nested too deeply: at most {MAX_DEPTH} levels are read")


def _check_characters(found: Any) -> None:
    """Reject lone surrogates in names and values."""
    items = found.items() if isinstance(found, dict) else [("body", found)]
    for name, value in items:
        try:
            json.dumps({name: value}, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            words = "the text has half of a surrogate pair, which is no character"
            raise RequestError(400, f"{_shown(name)}: {words}", param=_shown(name)) from None


def _rejection(first: ErrorDetails) -> RequestError:
    """Return the error response for the first invalid field."""
    place = ".".join(_shown(str(part)) for part in first["loc"])[:MAX_WORDS]
    words = first["msg"].removeprefix("Value error, ")[:MAX_WORDS]
    message = f"{place or 'body'}: {words}"
    if first["type"] == "extra_forbidden":
        known = place in UNSUPPORTED
        message = f"{place} is not supported: leave it out"
        message = message if known else f"{place}: this server knows no such parameter"
    elif first["type"] == NOT_SUPPORTED:
        message = f"{place} is not supported: {words}"
    return RequestError(400, message, param=place or None)


def _shown(name: str) -> str:
    return printable(name[:80])
