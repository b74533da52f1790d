"""The OpenAPI document of one server: its requests with the server's limits, its responses and statuses.

Requests are described by the classes that validate them (requests.py). Responses are described here, and
tests compare them with actual responses. Limits of the server and rules between fields, such as prompts
times `n`, are added to the schemas, so that a request that is valid by its schema gets status 400 only if
its text has too many tokens or bytes.
"""

from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from toeplix.serving.requests import Chat, Completion
from toeplix.serving.service import Service

Json = dict[str, Any]
REF = "#/components/schemas/{model}"
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"


class Sent(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Fault(Sent):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(Sent):
    error: Fault


class Usage(Sent):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionLogprobs(Sent):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Sent):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]


class CompletionAnswer(Sent):
    id: str
    created: int
    model: str
    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage


class TopLogprob(Sent):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Sent):
    content: list[TokenLogprob]
    refusal: None


class ChatMessage(Sent):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Sent):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatAnswer(Sent):
    id: str
    created: int
    model: str
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class ModelCard(Sent):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Sent):
    object: Literal["list"]
    data: list[ModelCard]


class Health(Sent):
    status: Literal["ok", "draining"]


REQUESTS: dict[str, type[BaseModel]] = {COMPLETIONS: Completion, CHATS: Chat}
ANSWERS: dict[str, type[Sent]] = {
    COMPLETIONS: CompletionAnswer,
    CHATS: ChatAnswer,
    "/v1/models": ModelList,
    "/v1/models/{name}": ModelCard,
    "/health": Health,
}
EVERYWHERE = {
    400: "Bytes that are no HTTP.",
    403: "Another host name than this machine's.",
    500: "The server failed; see its log.",
    503: "The server is about to end, or has too many connections.",
}
OF_REQUESTS = {
    400: "A body that is no JSON, or a field that is wrong or not supported: it is named.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not application/json in UTF-8.",
    429: "The queue is full: try again.",
    504: "The answer took too long.",
}
# of a stream: chunks as JSON, an error if there was one, else "[DONE]" at the end
EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}


def document(app: FastAPI, service: Service, *, secured: bool) -> Json:
    """Return the document of one server; `secured` if it requires an API key."""
    if app.openapi_schema is None:
        found = get_openapi(title="toeplix", version=_version(), routes=app.routes)
        kinds: list[type[BaseModel]] = [*REQUESTS.values(), *ANSWERS.values(), Error]
        _, defined = models_json_schema([(kind, "validation") for kind in kinds], ref_template=REF)
        found["components"] = {"schemas": defined["$defs"]}
        for path, operations in found["paths"].items():
            for operation in operations.values():
                _describe(operation, path, service, secured)
        _link(found["paths"])
        if secured:
            found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        _limit(found["components"]["schemas"], service)
        app.openapi_schema = found
    return app.openapi_schema


def _version() -> str:
    from toeplix import __version__

    return __version__


def _describe(operation: Json, path: str, service: Service, secured: bool) -> None:
    statuses = dict(EVERYWHERE)
    if path in REQUESTS:
        statuses |= OF_REQUESTS
        operation["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _named(REQUESTS[path]),
                    "examples": _examples(path, service.name),
                }
            },
        }
    elif path == "/v1/models/{name}":
        statuses[404] = OF_REQUESTS[404]
        operation["parameters"][0]["examples"] = {"served": {"value": service.name}}
    if secured and path != "/health":
        statuses[401] = "No key, or a wrong one."
        operation["security"] = [{"key": []}]
    operation["responses"] = {"200": {"description": "The answer.", "content": _answer(path)}}
    for status, words in sorted(statuses.items()):
        content = {"application/json": {"schema": _named(Error)}}
        if status in (400, 503):  # of the HTTP parser, before the application
            content["text/plain"] = {"schema": {"type": "string"}}
        if status == 503 and path == "/health":
            content["application/json"] = {"schema": _named(Health)}
        described: Json = {"description": words, "content": content}
        if status in (429, 503) and path in REQUESTS:
            described["headers"] = {"Retry-After": {"schema": {"type": "string"}}}
        operation["responses"][str(status)] = described


def _link(paths: Json) -> None:
    """Describe that the model name of other operations comes from the list of models."""
    name = "$response.body#/data/0/id"
    one = {"operationId": paths["/v1/models/{name}"]["get"]["operationId"]}
    paths["/v1/models"]["get"]["responses"]["200"]["links"] = {
        "model": one | {"parameters": {"name": name}}
    }


def _answer(path: str) -> Json:
    if path == "/metrics":
        return {"text/plain": {"schema": {"type": "string"}}}
    content: Json = {"application/json": {"schema": _named(ANSWERS[path])}}
    if path in REQUESTS:
        content["text/event-stream"] = {"itemSchema": EVENT}
    return content


def _named(kind: type[BaseModel]) -> Json:
    return {"$ref": REF.format(model=kind.__name__)}


def _examples(path: str, name: str) -> Json:
    how = {"model": name, "max_tokens": 8, "temperature": 0.8, "seed": 7}
    if path == COMPLETIONS:
        return {
            "text": {"value": {**how, "prompt": "Return the "}},
            "stream": {"value": {**how, "prompt": ["Return ", "If "], "stream": True}},
            "logprobs": {"value": {**how, "prompt": "Return", "logprobs": 2, "echo": True}},
        }
    messages = [{"role": "user", "content": "What is a list?"}]
    return {
        "chat": {"value": {**how, "messages": messages}},
        "stream": {"value": {**how, "messages": messages, "stream": True}},
    }


def _limit(schemas: Json, service: Service) -> None:
    """Add the limits of the server to the schemas of requests."""
    limits, vocab = service.limits, service.model.config.vocab
    for kind in REQUESTS.values():
        fields = schemas[kind.__name__]["properties"]
        fields["model"]["enum"] = [service.name]
        for name, least in (("max_tokens", 0 if kind is Completion else 1), ("n", 1)):
            most = limits.max_tokens if name == "max_tokens" else limits.choices
            fields[name]["anyOf"][0] |= {"minimum": least, "maximum": most}
    chat = schemas["Chat"]["properties"]
    chat["max_completion_tokens"]["anyOf"][0]["maximum"] = limits.max_tokens
    completion = schemas["Completion"]
    _, tokens, texts, several = completion["properties"]["prompt"]["anyOf"]
    for each in (tokens, several["items"]):
        each["items"] = {"type": "integer", "minimum": 0, "maximum": vocab - 1}
    for each in (texts, several):
        each["maxItems"] = limits.choices
    completion["allOf"] = [_tokens_or_echo(), {"anyOf": _shares(limits.choices)}]


def _tokens_or_echo() -> Json:
    """Return the rule that `max_tokens` may be 0 only with `echo`."""
    some = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}
    echo = {"properties": {"echo": {"enum": [True]}}, "required": ["echo"]}
    return {"anyOf": [{"properties": {"max_tokens": some}}, echo]}


def _shares(choices: int) -> list[Json]:
    """Return the rule that prompts times `n` is at most `choices`."""
    single = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}
    found: list[Json] = [{"properties": {"prompt": single}}]
    shares = {choices // n: n for n in range(1, choices + 1)}  # the largest n for so many prompts
    for prompts, n in shares.items():
        each = {"anyOf": [{"type": "integer", "maximum": n}, {"type": "null"}]}
        found.append({"properties": {"prompt": {"type": "array", "maxItems": prompts}, "n": each}})
    return found
