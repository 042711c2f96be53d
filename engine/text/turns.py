"""Arranges a chat's turns for templates that want them in a certain order.

Many templates refuse a system turn, or two turns of one role in a row, or an assistant turn first. Chats have all of these: an answer
was cancelled before its first word, a system text was added later. The arrangements go from the chat as it is to the strictest form;
the first one a template takes without losing text is used, so that every chat can be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.types import Message

ROLES = ("system", "user", "assistant", "tool")


def arrangements(messages: list[Message]) -> Iterator[list[Message]]:
    """Different orders of the same texts, mildest change first. Only the last may drop text: an assistant's opening turns."""
    seen: list[list[Message]] = []
    changes: tuple[Callable[[list[Message]], list[Message]], ...] = (
        lambda given: given,
        merge,
        lambda given: merge(system_first(given)),
        lambda given: merge(fold_system(given)),
        lambda given: user_first(merge(fold_system(given))),
    )
    for changed in changes:  # one at a time: nearly every chat is taken as it is
        candidate = changed(messages)
        if candidate and candidate not in seen:
            seen.append(candidate)
            yield candidate


def merge(messages: list[Message]) -> list[Message]:
    """Neighbouring turns of one role become one, a blank line between them. Calls of tools and their answers stay as they are."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role != "tool" and not (merged[-1].tool_calls or message.tool_calls):
            merged[-1] = Message(message.role, _joined(merged[-1].content, message.content))
        else:
            merged.append(message)
    return merged


def system_first(messages: list[Message]) -> list[Message]:
    """All system turns, in their order, before the others."""
    return [m for m in messages if m.role == "system"] + [m for m in messages if m.role != "system"]


def fold_system(messages: list[Message]) -> list[Message]:
    """Each system text moves to the head of the next user turn; with none after it, it becomes a user turn."""
    folded: list[Message] = []
    waiting = ""
    for message in messages:
        if message.role == "system":
            waiting = _joined(waiting, message.content)
        elif message.role == "user" and waiting:
            folded.append(Message("user", _joined(waiting, message.content)))
            waiting = ""
        else:
            folded.append(message)
    if waiting:
        at = len(folded) - 1 if folded and folded[-1].role == "assistant" else len(folded)
        folded.insert(at, Message("user", waiting))
    return folded


def user_first(messages: list[Message]) -> list[Message]:
    """Without the assistant turns that open the chat (a greeting), unless there is nothing else."""
    for place, message in enumerate(messages):
        if message.role != "assistant":
            return messages[place:]
    return messages


def _joined(first: str, second: str) -> str:
    return f"{first}\n\n{second}" if first and second else first or second
