"""Exports: what was said, whole and harmless."""

from __future__ import annotations

from app.chats.book import ChatBook
from app.chats.exchange import html, markdown
from app.chats.model import Attachment


def make_chat(*answers: str):
    book = ChatBook(clock=lambda: 1700000000.0)
    chat = book.new_chat()
    book.add_user(chat.id, "Question <b>1</b>\n  indented", (Attachment("a_b.py", "code", "x = '```'"),))
    for text in answers:
        answer = book.begin_answer(chat.id)
        book.append(answer, text)
        book.stop(chat.id, answer)
    return book, chat


def test_markdown_keeps_the_text_and_closes_what_was_cut_off():
    _, chat = make_chat("Look:\n```python\nprint(1)")
    text = markdown.dump([chat])
    assert "Question <b>1</b>\n  indented" in text and "````\nx = '```'\n````" in text
    assert "```python\nprint(1)\n```\n\n*Stopped.*" in text


def test_markdown_names_the_versions_that_are_not_in_view():
    book, chat = make_chat()
    answer = book.begin_answer(chat.id)
    book.append(answer, "first")
    again = book.begin_answer(chat.id, instead_of=answer)
    book.append(again, "second")
    text = markdown.dump([chat])
    assert text.index("second") < text.index("version 1 of 2, not in view") < text.index("first")


def test_a_title_is_no_markup():
    book, chat = make_chat()
    book.rename(chat.id, "# *x* <script>")
    assert markdown.dump([chat]).startswith("# \\# \\*x\\* \\<script\\>\n")
    assert "<script>" not in html.dump([chat])


HOSTILE = (
    "<script>alert(1)</script>",
    "![x](http://evil/x.png)",
    "![x](file:///etc/passwd)",
    "<img src=//evil/x>",
    "[a](javascript:alert(1))",
    "[b](data:text/html,x)",
    "[c](\\\\host\\share)",
    '<style>@import "http://evil"</style>',
)


def test_html_can_do_nothing():
    _, chat = make_chat(*HOSTILE)
    page = html.dump([chat])
    for bad in ("<script", "<img", "<link", "<iframe", 'src="', '@import "', 'href="javascript', 'href="data', 'href="file', 'href="\\'):
        assert bad not in page, bad
    assert page.count("<style>") == 1 and "default-src 'none'" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_html_shows_markdown_of_answers_and_plain_text_of_questions():
    _, chat = make_chat("**bold**\n\n| a |\n|---|\n| 1 |")
    page = html.dump([chat])
    assert "<strong>bold</strong>" in page and "<td>1</td>" in page
    assert '<p class="typed">Question &lt;b&gt;1&lt;/b&gt;\n  indented</p>' in page
