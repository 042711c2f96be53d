"""The words under an answer: where its time went, how fast it came, why it ended; figures as a person reads them. Knows no widget."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.chats.model import AnswerState, ChatMessage
from app.numbers import fill, number
from engine import FinishReason

translate = QCoreApplication.translate


def seconds(value: float) -> str:
    """As in "0.24 s", "5.1 s", "1 min 5 s"."""
    if value < 0.995:
        return number(value, ".2f") + " s"
    if value < 59.95:
        return number(value, ".1f") + " s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def speed(tokens: int, decode: float) -> float | None:
    """Tokens a second of an answer: the tokens after the first over the time they took; None where that means nothing."""
    return (tokens - 1) / decode if tokens > 1 and decode > 0 else None


def why(message: ChatMessage) -> str:
    """Why an answer ended."""
    if message.state is AnswerState.INTERRUPTED:
        return translate("Answer", "interrupted when Omnibus closed")
    match message.reason:
        case FinishReason.STOP:
            return translate("Answer", "complete")
        case FinishReason.LENGTH:
            return translate("Answer", "ended at its length limit")
        case FinishReason.CANCELLED:
            return translate("Answer", "stopped by you")
    return ""


def summary(message: ChatMessage) -> str:
    """As in "waited 0.2 s · prefill 0.4 s · decode 5.1 s · 31.2 tok/s · 157 tokens · complete"; parts that are not known are left out.

    Spaces inside a part do not break, so that a narrow line ends between two parts.
    """
    parts: list[str] = []
    if message.time:
        parts.append(translate("Answer", "waited {0}").format(seconds(message.time.waited + message.time.preempted)))
        parts.append(translate("Answer", "prefill {0}").format(seconds(message.time.prefill)))
        parts.append(translate("Answer", "decode {0}").format(seconds(message.time.decode)))
    if message.usage:
        rate = speed(message.usage.completion_tokens, message.time.decode) if message.time else None
        if rate is not None:
            parts.append(fill(translate("Answer", "{0:.1f} tok/s"), rate))
        parts.append(tokens(message.usage.completion_tokens))
    parts.append(why(message))
    return " · ".join(part.replace(" ", "\xa0") for part in parts if part)


def tokens(count: int) -> str:
    return translate("Answer", "1 token") if count == 1 else translate("Answer", "{0} tokens").format(count)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, … 11th; another language has a form of its own for all."""
    other = translate("Answer", "{0}th", "a place in line")
    if other != "{0}th":
        return other.format(number)
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
