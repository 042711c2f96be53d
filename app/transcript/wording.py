"""The words under an answer: where its time went, how fast it came, why it ended. Qt-free; figures as a person reads them."""

from __future__ import annotations

from app.chats.model import AnswerState, ChatMessage
from engine import FinishReason


def seconds(value: float) -> str:
    """As in "0.24 s", "5.1 s", "1 min 5 s"."""
    if value < 0.995:
        return f"{value:.2f} s"
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def speed(tokens: int, decode: float) -> float | None:
    """Tokens a second of an answer: the tokens after the first over the time they took; None where that means nothing."""
    return (tokens - 1) / decode if tokens > 1 and decode > 0 else None


def why(message: ChatMessage) -> str:
    """Why an answer ended."""
    if message.state is AnswerState.INTERRUPTED:
        return "interrupted when Omnibus closed"
    match message.reason:
        case FinishReason.STOP:
            return "complete"
        case FinishReason.LENGTH:
            return "ended at its length limit"
        case FinishReason.CANCELLED:
            return "stopped by you"
    return ""


def summary(message: ChatMessage) -> str:
    """As in "waited 0.2 s · prefill 0.4 s · decode 5.1 s · 31.2 tok/s · 157 tokens · complete"; parts that are not known are left out.

    Spaces inside a part do not break, so that a narrow line ends between two parts.
    """
    parts: list[str] = []
    if message.time:
        parts += [f"waited {seconds(message.time.waited + message.time.preempted)}", f"prefill {seconds(message.time.prefill)}"]
        parts.append(f"decode {seconds(message.time.decode)}")
    if message.usage:
        rate = speed(message.usage.completion_tokens, message.time.decode) if message.time else None
        if rate is not None:
            parts.append(f"{rate:.1f} tok/s")
        count = message.usage.completion_tokens
        parts.append(f"{count} token" + ("" if count == 1 else "s"))
    parts.append(why(message))
    return " · ".join(part.replace(" ", "\xa0") for part in parts if part)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, … 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
