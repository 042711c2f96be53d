"""What a model is given of a chat that has outgrown its context: by the chat's own setting nothing, or all but the oldest turns.

Free of Qt. Turns are left out in steps of `STEP`, so that many prompts in a row begin alike and the engine's prefix cache serves them;
leaving out just enough each time would shift every prompt and have all of it computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.chats.model import Chat, Overflow
from engine import ErrorInfo, Message, Sentence

STEP = 8  # turns
MOST_RESERVE = 0.25  # of the context, kept free for the answer


def fitted(chat: Chat, count: Callable[[list[Message]], int | None], context: int) -> list[Message]:
    """The chat's turns, without the oldest where it is set so and they do not fit into `context` tokens (0: not known).

    The system prompt stays, and so does the last turn; whether these fit is for the engine to say.
    """
    turns = chat.prompt()
    if chat.settings.overflow != Overflow.DROP_OLDEST or context <= 0:
        return turns
    room = context - min(chat.settings.max_tokens, round(context * MOST_RESERVE))
    head = turns[:1] if turns and turns[0].role == "system" else []
    rest = turns[len(head) :]
    dropped = 0
    while dropped + 1 < len(rest) and _tokens(head + rest[dropped:], count) > room:
        dropped = min(dropped + STEP, len(rest) - 1)
        if rest[dropped].role != "user" and dropped + 1 < len(rest):
            dropped += 1  # templates insist that a person speaks first
    return head + rest[dropped:]


def _tokens(turns: list[Message], count: Callable[[list[Message]], int | None]) -> int:
    """Counted where there is a tokenizer (a server elsewhere keeps its own), else guessed, rather too high than too low."""
    tokens = count(turns)
    return sum(8 + len(turn.content) // 3 for turn in turns) if tokens is None else tokens


def overflow_words(error: ErrorInfo, chat: Chat) -> ErrorInfo:
    """An engine's word on a prompt that is too long, with what can be done about it in this window."""
    if error.code != "prompt_too_long":
        return error
    if chat.settings.overflow == Overflow.STOP:
        hint = Sentence("This chat is set to stop here. Let it forget its oldest turns (Parameters, Ctrl+Shift+B), or start a new chat.")
    else:
        hint = Sentence("Even without the older turns it is too long: shorten the last message, its attachments, or the system prompt.")
    return replace(error, hint=hint)
