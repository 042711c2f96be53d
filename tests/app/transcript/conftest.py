"""A transcript on a desk: a shown view of one chat, and the words that go into it."""

from __future__ import annotations

import pytest

from app.chats.book import ChatBook
from app.theme import Theme, apply_theme
from app.transcript.view import TranscriptView
from engine import FinishedEvent, FinishReason, TimeSplit, Usage
from tests.app.conftest import settle


class SpyView(TranscriptView):
    """Counts what is asked of loadResource."""

    def __init__(self, *args, **kwargs) -> None:
        self.asked: list[str] = []
        super().__init__(*args, **kwargs)

    def loadResource(self, kind, name):
        self.asked.append(str(name))
        return super().loadResource(kind, name)


def make_end() -> FinishedEvent:
    return FinishedEvent("r", FinishReason.STOP, Usage(10, 157), TimeSplit(0.2, 0.4, 5.1, 0.0, 0.6))


@pytest.fixture
def desk(qapp, no_leftovers):
    """A book with one chat, and a shown view of it whose clock stands still, so that writing costs nothing and never waits."""
    apply_theme(qapp, Theme.dark())
    book = ChatBook()
    chat = book.new_chat()
    view = SpyView(Theme.dark(), clock=lambda: 0.0)
    view.resize(900, 600)
    view.show_chat(chat)
    view.show()
    settle()

    class Desk:
        def ask(self, text="question"):
            book.add_user(chat.id, text)
            answer = book.begin_answer(chat.id)
            view.sync()
            return answer

        def say(self, answer, text):
            book.append(answer, text)
            view.sync()

        def end(self, answer):
            book.finish(chat.id, answer, make_end())
            view.sync()

    desk = Desk()
    desk.book, desk.chat, desk.view = book, chat, view
    yield desk
    view.close()
    view.deleteLater()
    settle()
