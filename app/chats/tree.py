"""The messages of a chat as a tree: every message knows the one before it, versions are siblings, and one path is in view.

Free of Qt and of the store. Whoever changes a tree stores what changed; the tree only keeps its parts consistent: each message has a
parent that was written before it, so there is no ring, and from every message one child is the one that is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.chats.model import ChatMessage

ROOT = ""  # stands for "no message" as a key


@dataclass(frozen=True, slots=True)
class Removed:
    """What one deletion took away, so that it can be put back.

    Attributes:
        messages: in the order they were written. moved: ids of the messages that followed and now follow the parent.
        choices: the versions that were in view below what went.
    """

    messages: tuple[ChatMessage, ...]
    moved: tuple[str, ...]
    choices: tuple[tuple[str, str], ...]


class MessageTree:
    """All messages of one chat; read from where they are kept when they are first asked for (`load_later`).

    Attributes:
        path: the messages in view, from the first to the last. Read only.
        choices: for a message's id (or ROOT) the id of the version shown after it, where that is not the newest.
    """

    def __init__(self) -> None:
        self._path: list[ChatMessage] = []
        self.choices: dict[str, str] = {}
        self._source: Callable[[], Iterable[ChatMessage]] | None = None
        self._loaded: dict[str, ChatMessage] = {}
        self._children: dict[str, list[ChatMessage]] = {}
        self._next_place = 0

    # ------------------------------------------------------------------------------------------------------ reading

    @property
    def path(self) -> list[ChatMessage]:
        self._wake()
        return self._path

    @property
    def empty(self) -> bool:
        """Whether nothing was said; known without reading anything."""
        return self._source is None and not self._path

    @property
    def asleep(self) -> bool:
        """Whether its messages have not been read yet."""
        return self._source is not None

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, message: ChatMessage) -> bool:
        return self._nodes.get(message.id) is message

    def get(self, message_id: str) -> ChatMessage | None:
        return self._nodes.get(message_id)

    def everything(self) -> list[ChatMessage]:
        """Every message, in view or not, in the order they were written."""
        return sorted(self._nodes.values(), key=lambda message: message.place)

    def versions(self, message: ChatMessage) -> list[ChatMessage]:
        """The message and the others that stand in its place, oldest first."""
        return self._children.get(message.parent or ROOT, [])

    def before(self, message: ChatMessage) -> list[ChatMessage]:
        """The messages that lead to this one, the first one first."""
        way: list[ChatMessage] = []
        parent = message.parent
        while parent is not None and (node := self._nodes.get(parent)) is not None:
            way.append(node)
            parent = node.parent
        return way[::-1]

    def below(self, message: ChatMessage) -> list[ChatMessage]:
        """The message and all that follows it, in any version, in the order they were written."""
        found, todo = [], [message]
        while todo:
            node = todo.pop()
            found.append(node)
            todo.extend(self._children.get(node.id, ()))
        return sorted(found, key=lambda node: node.place)

    # ----------------------------------------------------------------------------------------------------- changing

    def load_later(self, source: Callable[[], Iterable[ChatMessage]], choices: dict[str, str]) -> None:
        """There are messages, in the order they were written: `source` reads them when somebody first looks."""
        self._source, self.choices = source, choices

    def load(self, messages: Iterable[ChatMessage], choices: dict[str, str]) -> None:
        """Take stored messages, in the order they were written. One whose parent is gone follows the one before it."""
        previous: ChatMessage | None = None
        for message in messages:
            if message.parent is not None and message.parent not in self._nodes:
                message.parent = previous.id if previous else None
            self._link(message)
            previous = message
        self.choices = {parent: child for parent, child in choices.items() if child in self._nodes}
        self._find_path()

    def add(self, message: ChatMessage, after: ChatMessage | None) -> None:
        """Put a new message behind another one (None: at the beginning) and into view."""
        self._wake()
        message.parent = after.id if after else None
        message.place = self._next_place
        self._link(message)
        self.choices.pop(message.parent or ROOT, None)
        if self.path and after is self.path[-1]:
            self.path.append(message)
        else:
            self._show_way_to(message)

    def show(self, message: ChatMessage) -> None:
        """Bring a version into view, with what was last in view behind it."""
        self._show_way_to(message)

    def remove(self, message: ChatMessage) -> Removed:
        """Take a message out. The only version of its place goes alone, and what follows it moves up; one of several takes along what
        follows it, and the version beside it comes into view."""
        siblings = self.versions(message)
        parent = message.parent or ROOT
        if len(siblings) == 1:
            children = self._children.pop(message.id, [])
            del self._nodes[message.id]
            for child in children:
                child.parent = message.parent
            self._children[parent] = children
            choice = self.choices.pop(message.id, None)
            self.choices.pop(parent, None)
            if choice is not None:
                self.choices[parent] = choice
            removed = Removed((message,), tuple(child.id for child in children), ((message.id, choice),) if choice else ())
        else:
            place = siblings.index(message)
            beside = siblings[place - 1] if place else siblings[1]
            gone = self.below(message)
            choices = []
            for node in gone:
                del self._nodes[node.id]
                self._children.pop(node.id, None)
                if (choice := self.choices.pop(node.id, None)) is not None:
                    choices.append((node.id, choice))
            siblings.remove(message)
            if message in self.path:
                self.choices[parent] = beside.id
            elif self.choices.get(parent) == message.id:
                del self.choices[parent]
            removed = Removed(tuple(gone), (), tuple(choices))
        self._find_path()
        return removed

    def put_back(self, removed: Removed) -> None:
        """Undo a deletion, whatever has happened since, and bring what comes back into view."""
        for message in removed.messages:
            if message.parent is not None and message.parent not in self._nodes:
                message.parent = self.path[-1].id if self.path else None
            self._link(message)
        first = removed.messages[0]
        for child_id in removed.moved:
            child = self._nodes.get(child_id)
            if child is not None:
                self._children[child.parent or ROOT].remove(child)
                child.parent = first.id
                self._insert(child)
        self.choices.update(removed.choices)
        self._show_way_to(first)

    # ------------------------------------------------------------------------------------------------------ private

    @property
    def _nodes(self) -> dict[str, ChatMessage]:
        self._wake()
        return self._loaded

    def _wake(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            self.load(source(), self.choices)

    def _link(self, message: ChatMessage) -> None:
        self._nodes[message.id] = message
        self._next_place = max(self._next_place, message.place + 1)
        self._insert(message)

    def _insert(self, message: ChatMessage) -> None:
        siblings = self._children.setdefault(message.parent or ROOT, [])
        siblings.append(message)
        if len(siblings) > 1 and siblings[-2].place > message.place:
            siblings.sort(key=lambda sibling: sibling.place)

    def _show_way_to(self, message: ChatMessage) -> None:
        for node in (*self.before(message), message):
            parent = node.parent or ROOT
            if self._children[parent][-1] is node:
                self.choices.pop(parent, None)
            else:
                self.choices[parent] = node.id
        self._find_path()

    def _find_path(self) -> None:
        self._path, at = [], ROOT
        while children := self._children.get(at):
            chosen = self._nodes.get(self.choices.get(at, ROOT))
            shown = chosen if chosen is not None and (chosen.parent or ROOT) == at else children[-1]
            self._path.append(shown)
            at = shown.id
