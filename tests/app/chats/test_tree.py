"""The message tree: versions, the path in view, deletion and its undo; and that its parts agree after any order of changes."""

from __future__ import annotations

import random

import pytest

from app.chats.book import ChatBook
from app.chats.model import AnswerState, ChatMessage, Role
from app.chats.tree import ROOT, MessageTree


def make_chat(*texts: str):
    """A chat in which person and model said these things in turn."""
    book = ChatBook()
    chat = book.new_chat()
    for number, text in enumerate(texts):
        if number % 2 == 0:
            book.add_user(chat.id, text)
        else:
            answer = book.begin_answer(chat.id)
            book.append(answer, text)
            answer.state = AnswerState.DONE
    return book, chat


def texts(chat) -> list[str]:
    return [message.text for message in chat.messages]


def test_an_edit_is_a_new_version_and_the_old_one_keeps_what_followed():
    book, chat = make_chat("a", "b", "c", "d")
    book.edit(chat.id, chat.messages[2], "C")
    assert texts(chat) == ["a", "b", "C"]
    assert book.show_version(chat.id, chat.messages[2], -1).text == "c"
    assert texts(chat) == ["a", "b", "c", "d"]
    assert book.show_version(chat.id, chat.messages[2], -1) is None
    book.edit(chat.id, chat.messages[0], "A")
    assert texts(chat) == ["A"]
    book.show_version(chat.id, chat.messages[0], -1)
    assert texts(chat) == ["a", "b", "c", "d"]  # the version that was in view further down is in view again


def test_a_message_without_other_versions_goes_alone_and_comes_back():
    book, chat = make_chat("a", "b", "c", "d")
    removed = book.delete_message(chat.id, chat.messages[1])
    assert texts(chat) == ["a", "c", "d"]
    book.restore_message(chat.id, removed)
    assert texts(chat) == ["a", "b", "c", "d"]
    removed = book.delete_message(chat.id, chat.messages[0])
    assert texts(chat) == ["b", "c", "d"]
    book.restore_message(chat.id, removed)
    assert texts(chat) == ["a", "b", "c", "d"]


def test_one_of_several_versions_takes_what_followed_it_and_comes_back_with_it():
    book, chat = make_chat("a", "b", "c", "d")
    book.edit(chat.id, chat.messages[1], "B")
    book.show_version(chat.id, chat.messages[1], -1)
    removed = book.delete_message(chat.id, chat.messages[1])
    assert texts(chat) == ["a", "B"] and [message.text for message in removed.messages] == ["b", "c", "d"]
    book.add_user(chat.id, "meanwhile")
    book.restore_message(chat.id, removed)
    assert texts(chat) == ["a", "b", "c", "d"]
    book.show_version(chat.id, chat.messages[1], 1)
    assert texts(chat) == ["a", "B", "meanwhile"]


def test_a_branch_is_a_chat_of_its_own():
    book, chat = make_chat("a", "b", "c", "d")
    book.edit(chat.id, chat.messages[0], "other")
    book.show_version(chat.id, chat.messages[0], -1)
    branch = book.branch(chat.id, chat.messages[1])
    assert texts(branch) == ["a", "b"] and branch.title == chat.title and branch.prompt() == chat.prompt()[:2]
    assert not {message.id for message in branch.messages} & {message.id for message in chat.tree.everything()}
    book.add_user(branch.id, "x")
    assert texts(chat) == ["a", "b", "c", "d"]


def test_damaged_links_hide_nothing():
    tree = MessageTree()
    parents = (None, "0", "gone", "2", "3")
    messages = [ChatMessage(str(place), Role.USER, str(place), parent=parent, place=place) for place, parent in enumerate(parents)]
    tree.load(messages, {"0": "nowhere", "1": "3", ROOT: "0"})
    assert [message.id for message in tree.path] == ["0", "1", "2", "3", "4"]


def agree(tree: MessageTree) -> None:
    """What must hold of every tree."""
    everything = tree.everything()
    assert len(everything) == len(tree)
    for message in everything:
        assert message in tree and message in tree.versions(message)
        assert message.parent is None or tree.get(message.parent) is not None
        assert [node.place for node in tree.versions(message)] == sorted(node.place for node in tree.versions(message))
    assert [tree.path[place].id for place in range(len(tree.path) - 1)] == [message.parent for message in tree.path[1:]]
    assert bool(tree.path) == bool(everything)
    again = MessageTree()
    again.load([ChatMessage(m.id, m.role, parent=m.parent, place=m.place) for m in everything], tree.choices)
    assert [message.id for message in again.path] == [message.id for message in tree.path]


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_changes_keeps_the_tree_whole(seed):
    rng = random.Random(seed)
    book = ChatBook()
    chat = book.new_chat()
    gone = []
    for number in range(60):
        everything = chat.tree.everything()
        match rng.randrange(6):
            case 1 if everything:
                book.edit(chat.id, rng.choice(everything), f"e{number}")
            case 2 if everything:
                book.show_version(chat.id, rng.choice(everything), rng.choice((-1, 1)))
            case 3 if everything and rng.random() < 0.5:
                gone.append(book.delete_message(chat.id, rng.choice(everything)))
            case 4 if gone:
                removed = gone.pop()
                book.restore_message(chat.id, removed)
                assert all(message in chat.tree for message in removed.messages) and removed.messages[0] in chat.messages
            case _:
                book.add_user(chat.id, str(number))
                assert chat.last.text == str(number)
        agree(chat.tree)


def test_taking_a_deletion_back_at_once_changes_nothing():
    for seed in range(40):
        rng = random.Random(seed)
        book, chat = make_chat(*"abcdefgh")
        for _ in range(4):
            book.edit(chat.id, rng.choice(chat.tree.everything()), "x")
            book.show_version(chat.id, rng.choice(chat.tree.everything()), -1)
        shape = {message.id: message.parent for message in chat.tree.everything()}
        victim = rng.choice(chat.messages)
        before = list(chat.messages)
        book.restore_message(chat.id, book.delete_message(chat.id, victim))
        assert {message.id: message.parent for message in chat.tree.everything()} == shape
        assert chat.messages == before
