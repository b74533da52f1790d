"""What clients send: OpenAI's fields, checked here. Fields that cannot be honoured are refused by name.

`null` is the same as leaving a field out. Beyond OpenAI's there are `top_k`, `min_p` and
`repetition_penalty`, as in `toeplix generate`.
"""

from abc import abstractmethod
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from toeplix.generate import Sampling

STOPS, STOP = 16, 256  # how many stop strings, and how long


class Shape(BaseModel):
    """JSON of known fields and types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(Shape):
    include_usage: bool = False
    include_obfuscation: bool | None = None


class Asked(Shape):
    """What both endpoints have."""

    model: str
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0)
    n: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=0)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Any = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None  # told by clients, of no use here
    # neutral values only
    presence_penalty: float | None = Field(None, ge=0, le=0)
    frequency_penalty: float | None = Field(None, ge=0, le=0)
    logit_bias: dict[str, float] | None = Field(None, max_length=0)

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: Any) -> list[str]:
        stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
            raise ValueError("a string or a list of strings is needed")
        if len(stops) > STOPS or any(not 0 < len(each) <= STOP for each in stops):
            raise ValueError(f"at most {STOPS} strings are taken, of 1 to {STOP} characters each")
        for each in stops:
            _check_text(each)
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
        """How many of the likeliest tokens are told; None: no chances at all."""

    @property
    def usage_in_stream(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class Completion(Asked):
    """`/v1/completions`."""

    prompt: Any = ""  # a string, tokens, or a list of either
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=5)
    best_of: int | None = Field(None, ge=1, le=1)
    suffix: Literal[""] | None = None

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: Any) -> list[str] | list[list[int]]:
        prompts = [prompt] if isinstance(prompt, str) or _tokens(prompt) else prompt
        if not isinstance(prompts, list) or not prompts:
            raise ValueError("a string, a list of strings, tokens, or lists of tokens are needed")
        if all(isinstance(each, str) for each in prompts):
            for each in prompts:
                _check_text(each)
        elif not all(_tokens(each) for each in prompts):
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


class ResponseFormat(Shape):
    type: Literal["text"]


class Chat(Asked):
    """`/v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Any] | None = Field(None, max_length=0)
    response_format: ResponseFormat | None = None

    @property
    def top(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


def _tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(
            "the text has half of a surrogate pair, which is no character"
        ) from problem
