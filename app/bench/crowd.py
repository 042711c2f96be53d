"""A large store of made-up chats, alike at every run, written through the real store."""

from __future__ import annotations

import random
import time
from pathlib import Path

import apsw

from app.chats.indexing import index_some
from app.chats.model import Chat, ChatMessage, Role
from app.chats.schema import FILE
from app.chats.store import ChatStore

MESSAGES_EACH = 10
MESSAGES_OF_LONG_CHAT = 5_000
DAY = 86_400
WRITE_S = 600.0
COMMIT_EVERY = 500
SEARCHES = ("batching", "zeppelin", "飞艇", "c++ bus")  # in every other message; in one; two characters; code

_VOCABULARY = (
    "bus seat step token model batching queue prefix block cache memory answer question city tour driver passenger route stop ticket "
    "garden kitchen letter landlord holiday recipe bread coffee morning evening because however therefore although maybe never always"
)
_WORDS = _VOCABULARY.split()
LONG_TEXT = (
    "## How a bus fills\n\nA tour bus leaves with its group and takes nobody on until the last is *home*. **In-flight batching** drives "
    "like a city bus: whoever is done gets off, and the next in line takes the seat.\n\n"
    "1. Every step carries one token for everyone aboard.\n"
    "2. A short answer is not held up by a long one.\n3. No seat rides empty while somebody waits.\n\n```python\nwhile riders:\n"
    "    board(queue, free_seats)\n    for rider in riders:\n        rider.token = model.step(rider)\n```\n\n"
    "| seat | rider | tokens |\n|---|---|---|\n| 1 | a letter | 120 |\n| 2 | a poem | 40 |\n\nThe more unequal the answers are, the more "
    "the tour bus loses, and with `n` riders it drives most of the way with one of them.\n\n"
)


def fill_store(folder: Path, chats: int, messages: int) -> str:
    """Write `chats` chats of ten messages and one of `messages`, index them, and return the id of the long one."""
    dice = random.Random(7)
    store = ChatStore(folder / FILE)
    store.load()
    now = time.time()
    for number in range(chats):
        chat = make_chat(dice, f"{number:032x}", MESSAGES_EACH, now - number * DAY / 40)
        if number == chats // 2:
            chat.messages[-1].text += " A zeppelin passed by. 昨天有一艘飞艇。 It was written in C++ for a bus."
        store.save_whole(chat)
        if number % COMMIT_EVERY == 0:
            store.commit(WRITE_S)
    long = make_chat(dice, "f" * 32, messages, now)
    store.save_whole(long)
    if not store.close(WRITE_S):
        raise RuntimeError("the chats could not be written in time")
    connection = apsw.Connection(str(folder / FILE))
    connection.pragma("synchronous", "off")
    while index_some(connection, 5000):
        pass
    connection.close()
    return long.id


def make_chat(dice: random.Random, chat_id: str, messages: int, updated: float) -> Chat:
    chat = Chat(chat_id, title=" ".join(dice.choices(_WORDS, k=4)).capitalize(), created=updated - 600, updated=updated)
    for place in range(messages):
        role = Role.USER if place % 2 == 0 else Role.ASSISTANT
        text = " ".join(dice.choices(_WORDS, k=12 if role is Role.USER else 60))
        if role is Role.ASSISTANT and place % 5 == 0:
            text += f"\n\n- {text[:40]}\n- **{text[40:80]}**\n\n```python\nprint({place})\n```"
        chat.tree.add(ChatMessage(f"{chat_id}{place:05d}", role, text, created=updated - messages + place), chat.last)
    return chat
