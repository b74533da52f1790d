"""The fields of requests: OpenAI's, validated. Fields that are not supported are rejected by name.

`null` is the same as omitting a field. Extensions of OpenAI's fields are `top_k`, `min_p` and
`repetition_penalty`, as in `toeplix generate`. The JSON schemas of the OpenAPI document come from here.
"""

import json
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from toeplix.inference.sampling import MAX_PENALTY, MIN_PENALTY, Sampling

MAX_STOPS, MAX_STOP = 16, 256  # stop strings of a request, characters of each
MAX_TOP_K = 2**31 - 1  # more tokens than any vocabulary has
NOT_SUPPORTED = "not_supported"  # pydantic's type of the error

# OpenAI's parameters of either endpoint that have no meaning here
UNSUPPORTED = frozenset(
    [
        "audio",
        "function_call",
        "functions",
        "metadata",
        "modalities",
        "moderation",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "safety_identifier",
        "service_tier",
        "store",
        "tool_choice",
        "verbosity",
        "web_search_options",
    ]
)


def _only(neutral: Any) -> Callable[[Any], Any]:
    """Return a validator that accepts only None and the value that has no effect."""

    def check(given: Any) -> Any:
        if given is None or (given == neutral and not isinstance(given, bool)):
            return None
        shown = {"neutral": json.dumps(neutral)}
        raise PydanticCustomError(NOT_SUPPORTED, "leave it out, or give {neutral}", shown)

    return check


Zero = Annotated[Any, AfterValidator(_only(0)), WithJsonSchema({"enum": [0, None]})]
One = Annotated[Any, AfterValidator(_only(1)), WithJsonSchema({"enum": [1, None]})]
NoText = Annotated[Any, AfterValidator(_only("")), WithJsonSchema({"enum": ["", None]})]
NoEntry = Annotated[Any, AfterValidator(_only({})), WithJsonSchema({"enum": [{}, None]})]
NoItem = Annotated[Any, AfterValidator(_only([])), WithJsonSchema({"enum": [[], None]})]
PlainText = Annotated[
    Any,
    AfterValidator(_only({"type": "text"})),
    WithJsonSchema({"enum": [{"type": "text"}, None]}),
]

_STOP = {"type": "string", "minLength": 1, "maxLength": MAX_STOP}
Stop = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                _STOP,
                {"type": "array", "items": _STOP, "maxItems": MAX_STOPS},
                {"type": "null"},
            ]
        }
    ),
]

_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
Text = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                _TOKENS,
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "array", "items": _TOKENS, "minItems": 1},
            ]
        }
    ),
]


class Shape(BaseModel):
    """A JSON object with known fields and strict types."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, validate_default=True
    )


class StreamOptions(Shape):
    include_usage: bool = False
    include_obfuscation: bool | None = None


class Asked(Shape):
    """The fields of both endpoints."""

    model: str
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, le=MAX_TOP_K)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=MIN_PENALTY, le=MAX_PENALTY)
    n: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=0)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None  # accepted and ignored
    # neutral values only
    presence_penalty: Zero = None
    frequency_penalty: Zero = None
    logit_bias: NoEntry = None

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: Any) -> list[str]:
        stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
            raise ValueError("a string or a list of strings is needed")
        if len(stops) > MAX_STOPS or any(not 0 < len(each) <= MAX_STOP for each in stops):
            raise ValueError(
                f"at most {MAX_STOPS} strings are taken, of 1 to {MAX_STOP} characters each"
            )
        return stops

    @property
    def stops(self) -> list[str]:
        return self.stop or []

    @property
    def choices(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=self.top_p or 1.0,
            top_k=self.top_k or 0,
            min_p=self.min_p or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
        )

    @property
    @abstractmethod
    def top(self) -> int | None:
        """The number of top logprobs for each token; None: no logprobs."""

    @property
    def usage_in_stream(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class Completion(Asked):
    """The body of `POST /v1/completions`."""

    prompt: Text = ""  # a string, tokens, or a list of either
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=5)
    best_of: One = None
    suffix: NoText = None

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: Any) -> list[str] | list[list[int]]:
        prompts = [prompt] if isinstance(prompt, str) or _tokens(prompt) else prompt
        if not isinstance(prompts, list) or not prompts:
            raise ValueError("a string, a list of strings, tokens, or lists of tokens are needed")
        texts = all(isinstance(each, str) for each in prompts)
        if not texts and not all(_tokens(each) for each in prompts):
            raise ValueError("a string, a list of strings, tokens, or lists of tokens are needed")
        return prompts

    @property
    def top(self) -> int | None:
        return self.logprobs


class Part(Shape):
    type: Literal["text"]
    text: str


class Message(Shape):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]
    name: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class Chat(Asked):
    """The body of `POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: NoItem = None
    response_format: PlainText = None

    @property
    def top(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


def _tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
