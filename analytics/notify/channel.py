"""What every channel offers: one try to tell one message, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Result(Enum):
    """What came of a try."""

    SENT = "sent"
    FAILED = "failed"  # worth another try
    GONE = "gone"  # the receiver wants nothing more, ever


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `id` is the same in every try."""

    id: str
    event: str
    body: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try went; `wait_seconds` is how long the receiver asked to be left alone."""

    result: Result
    problem: str = ""
    wait_seconds: float = 0.0


class Channel(Protocol):
    """A way to people."""

    name: str

    def send(self, message: Message) -> Outcome:
        """Try once. Problems of the receiver are an outcome, never an exception."""

    def close(self) -> None:
        """Let go of connections."""
