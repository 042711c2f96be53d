"""Exports: what was said, whole and harmless."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pypdf import PdfReader

from app.chats.book import ChatBook
from app.chats.exchange import html, markdown
from app.chats.model import Attachment, ChatSettings
from app.pdf import write_pdf


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


CODE = st.sampled_from(
    ["```", "````", "~~~", "``` py", "``` a`b", " ```", "    ```", "1. a", "   ```", "> ```", "- ```", "words", "```   ", ""]
)


@given(lines=st.lists(CODE, max_size=8))
@example(lines=["```", "code", "``` that goes on", "code"])
@example(lines=["1. a", "   ```", "   code"])  # ends with its list
@example(lines=["``` a`b", "words"])
def test_no_answer_swallows_what_stands_behind_it(lines):
    cut_short = "\n".join(lines)
    text = markdown.closed(cut_short)
    assert text.startswith(cut_short)
    last = MarkdownIt("commonmark").parse(f"{text}\n\n## You")[-1]
    assert (last.type, last.tag, last.level) == ("heading_close", "h2", 0)


HTML = st.sampled_from(
    [
        "<!-- a",
        "- <!-- a",
        "> <!-- a",
        "<div>",
        "b -->",
        "<script>",
        "</SCRIPT>",
        "words <!-- a",
        "<?php",
        "<![CDATA[ x",
        "<!A",
        "<Pre>",
        "",
    ]
    + ["   <!-- a", "\t<!-- a", "-\t<!-- a", "```", "1. a", "a > b", "</div>", "<!---->", "<pre", "<title>t", "words"]
)


class Headings(HTMLParser):
    """The headings that a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


@given(lines=st.lists(HTML, max_size=8))
@example(lines=["<!-- a", "", "words"])
@example(lines=["- <!-- a", "words"])  # Markdown's block ends with its list, but a browser looks on
@example(lines=["> <div>", "> <!-- a"])
@example(lines=["<!-- a"] * 60)
def test_no_html_without_an_end_swallows_what_stands_behind_it(lines):
    text = markdown.closed("\n".join(lines))
    page = MarkdownIt("commonmark").render(f"{text}\n\n## You")
    assert "h2" in Headings(page).tags, page


def test_an_unclosed_comment_is_read_and_a_closed_one_stays():
    _, chat = make_chat("Write\n\n<!-- so:\n\nall of it")
    book = ChatBook(clock=lambda: 1700000000.0)
    book.add_user((other := book.new_chat()).id, "first")
    book.set_settings(other.id, ChatSettings(system_prompt="<!-- x"))
    text = markdown.dump([chat, other])
    assert "Write\n\n&lt;!-- so:\n\nall of it" in text and "> &lt;!-- x" in text
    for whole in ("<!-- so -->\n\nwords", "`<!--`, and <!-- a", "```\n<!--\n```", "<div>\n\nwords", "a < b\r\n\r\nc"):
        assert markdown.closed(whole) == whole


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
    assert "<strong>bold</strong>" in page and '<td dir="auto">1</td>' in page
    assert '<p class="typed" dir="auto">Question &lt;b&gt;1&lt;/b&gt;\n  indented</p>' in page


FORMULAS = r"Inline $a_1 * b_2 * c$ and \(x^2\), then" "\n\n" r"\[ \sum_k k \]" "\n\nand money: $5 to $7, and $\\frac{a}{$"


def test_formulas_are_drawn_in_html_and_keep_their_tex():
    _, chat = make_chat(FORMULAS)
    page = html.dump([chat])
    assert page.count("<svg") == 3 and "<em>" not in page and "currentColor" in page
    for tex in ("$a_1 * b_2 * c$", r"\(x^2\)", r"\[ \sum_k k \]"):
        assert f'aria-label="{tex}"' in page
    assert "money: $5 to $7" in page and r"$\frac{a}{$" in page, "what is no formula, and what cannot be drawn, stays as written"


def test_reasoning_is_folded_and_its_marks_are_gone():
    _, chat = make_chat("<think>First <b>this</b>,\nthen that.</think>The answer.")
    chat.messages[-1].thought = 3.2
    page, text = html.dump([chat]), markdown.dump([chat])
    assert "think&gt;" not in page and "<think>" not in text
    folded = '<summary>Thought for 3.2 s</summary><p class="thoughts" dir="auto">First &lt;b&gt;this&lt;/b&gt;,\nthen that.</p></details>'
    assert folded in page and page.index("</details>") < page.index("The answer.")
    assert "<summary>Thought for 3.2 s</summary>\n\nFirst <b>this</b>,\nthen that.\n\n</details>\n\nThe answer." in text


def test_blocks_run_in_the_direction_of_their_words_and_tasks_have_boxes():
    _, chat = make_chat("# عربي\n\nעברית\n\n- [ ] open\n- [x] done\n- none\n\n> quote\n\n| a |\n|---|\n| b |\n")
    page = html.dump([chat])
    for block in ('<h1 dir="auto">عربي', '<p dir="auto">עברית', '<blockquote dir="auto">', '<td dir="auto">b'):
        assert block in page, block
    assert page.count('class="task"') == 2 and "☐ open" in page and "☑ done" in page and "<li dir=" in page


def pages(target) -> list[str]:
    """The words of each page."""
    return [" ".join(page.extract_text().split()) for page in PdfReader(target).pages]


def test_a_pdf_has_every_word_and_numbered_pages_and_each_chat_begins_one(qapp, tmp_path):
    _, first = make_chat(FORMULAS, "\n\n".join(f"line{number}" for number in range(120)), "```\na -> b\n```\n<script>alert(1)</script>")
    _, second = make_chat("the second", "\n\n".join(f"more{number}" for number in range(60)))
    write_pdf([first, second], tmp_path / "out.pdf")
    texts = pages(tmp_path / "out.pdf")
    whole = " ".join(texts).split()
    assert [word for word in whole if word.startswith(("line", "more"))] == [
        *(f"line{number}" for number in range(120)),
        *(f"more{number}" for number in range(60)),
    ]
    start = next(place for place, text in enumerate(texts) if "the second" in text)
    assert start >= 3 and "line119" not in texts[start] and "more0" in texts[start], "a chat begins a page, and goes on there"
    assert all(f" {number} Question" in text for number, text in enumerate(texts, 1)), "number and title stand at the foot"
    text = " ".join(whole)
    assert "a -> b" in text and "<script>alert(1)</script>" in text and "\ue000" not in text and "money: $5 to $7" in text


def test_what_is_written_is_found_and_copied_from_a_pdf(qapp, tmp_path):
    _, chat = make_chat("Two words at 22:13 on 2023-11-14.\n\n```\na != b -> c\n```\n\nمرحبا\n")
    write_pdf([chat], tmp_path / "out.pdf")
    text = PdfReader(tmp_path / "out.pdf").pages[0].extract_text()
    assert "Two words at 22:13 on 2023-11-14." in text and "a != b -> c" in text and "\t" not in text
    assert not any(0xFB50 <= ord(letter) <= 0xFEFC for letter in text), "letters, not their shapes"
