"""One message inside a transcript's document: how it is written, streamed into, and taken out again.

An entry owns frames of a document that the view owns. It does not scroll, paint or listen; the view does.
"""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QFontMetricsF, QTextCursor, QTextFrame

from app.chats.model import AnswerState, ChatMessage
from app.numbers import said
from app.transcript.actions import HEIGHT as BAR_HEIGHT
from app.transcript.body import AnswerBody
from app.transcript.copying import CHROME, Part
from app.transcript.formats import BODY_PIXELS, Formats, Kind
from app.transcript.frames import insert_frame
from app.transcript.markdown import clean
from app.transcript.pen import Pen
from app.transcript.thought import ThoughtFrame
from app.transcript.unbroken import insert_words
from app.transcript.wording import summary
from app.transcript.writer import MarkdownWriter
from engine import ReasoningSplitter

translate = QCoreApplication.translate

BUBBLE_PADDING = 12
SLACK = 3  # pixels beside a bubble's words, at either side, so that their measure may be a little wrong
BUBBLE_SHARE = 0.82  # of the column, at most
BAR_ROOM = 180  # what an answer's buttons take of its last line, and what a fork adds
FORK_ROOM = 96


class UserEntry:
    """What the person said: a bubble at the right, as wide as its words, verbatim."""

    def __init__(self, cursor: QTextCursor, message: ChatMessage, formats: Formats) -> None:
        self.message = message
        self._formats = formats
        names = ", ".join(attachment.name for attachment in message.attachments)
        files = translate("Answer", "Attached: {0}").format(names) if names else ""
        text = clean("\n".join(words for words in (files, message.text) if words))
        self._files = len(clean(files)) + 1 if files else 0
        metrics = QFontMetricsF(formats.ui(BODY_PIXELS))
        # Long texts fill the bubble anyway; measuring their first lines is enough.
        self._width = max((metrics.horizontalAdvance(line[:400]) for line in text.split("\n")[:200]), default=0.0)
        self.frame = insert_frame(cursor, formats, Kind.BUBBLE, padding=BUBBLE_PADDING, top=10, bottom=BAR_HEIGHT + 2)
        pen = Pen(self.frame.firstCursorPosition(), formats)
        block = formats.paragraph(tight=True)
        block.setBottomMargin(0)
        block.setLeftMargin(SLACK)
        pen.block(block, formats.body())
        insert_words(pen.cursor, text, formats.body())
        if files:
            mark = QTextCursor(self.frame)
            mark.setPosition(self.frame.firstPosition())
            mark.setPosition(self.frame.firstPosition() + len(clean(files)), QTextCursor.MoveMode.KeepAnchor)
            mark.setCharFormat(formats.small())

    @property
    def frames(self) -> tuple[QTextFrame, ...]:
        return (self.frame,)

    def part(self) -> Part:
        """What a selection of it copies."""
        start = self.frame.firstPosition()
        return Part(start + self._files * bool(self.message.text), self.frame.lastPosition(), clean(self.message.text))

    @property
    def bar_frame(self) -> QTextFrame:
        """The frame in whose lower margin the actions have their place."""
        return self.frame

    def fit(self, column: float) -> None:
        """Take a place at the right of a column of this width."""
        inner = min(self._width + 2 * SLACK, column * BUBBLE_SHARE - 2 * BUBBLE_PADDING)
        left = max(0.0, column - inner - 2 * BUBBLE_PADDING)
        frame_format = self.frame.frameFormat()
        if abs(frame_format.leftMargin() - left) > 0.5:
            frame_format.setLeftMargin(left)
            self.frame.setFrameFormat(frame_format)


class AnswerEntry:
    """An answer: its reasoning, folded; its body, which grows at its end; a footer with its state, figures and buttons.

    `sync` may be called as often as one likes.
    """

    def __init__(self, cursor: QTextCursor, message: ChatMessage, formats: Formats, writer: MarkdownWriter, last: bool) -> None:
        self.message = message
        self._last = last
        self._forked = False
        self._formats = formats
        self._splitter = ReasoningSplitter()
        self._thought: ThoughtFrame | None = None
        self._open_thought = False  # the person unfolded it
        self._fed = 0
        self._final = False
        self._status = ""
        self._touched: int | None = None  # where the changes of the present call begin
        self._footer_words: str | None = None
        self._body = AnswerBody(cursor, formats, writer, code_href=f"code:{message.id}:")
        cursor.setPosition(self._body.last_frame.lastPosition() + 1)
        self.footer = insert_frame(cursor, formats, Kind.PLAIN, top=2, bottom=6)

    @property
    def frames(self) -> tuple[QTextFrame, ...]:
        """Top to bottom."""
        thought = () if self._thought is None else (self._thought.frame,)
        return (*thought, *self._body.frames, self.footer)

    @property
    def bar_frame(self) -> QTextFrame:
        """The frame on whose last line the actions have their place."""
        return self.footer

    def part(self) -> Part:
        """What a selection of it copies."""
        return self._body.part()

    def toggle_thought(self) -> None:
        """Fold or unfold the reasoning."""
        if self._thought is not None:
            self._open_thought = not self._open_thought
            self._thought.show(self._open_thought, self.message.thought, thinking=self.message.running and self._splitter.inside)

    def tail_span(self) -> tuple[int, int]:
        """Positions that the next `sync` may replace."""
        return self._body.tail_span()

    def code(self, number: int) -> str | None:
        """The source of the n-th code block, to the byte."""
        return self._body.code(number)

    @property
    def blank(self) -> bool:
        """Whether nothing of the answer has been written yet."""
        return self._fed == 0

    @property
    def up_to_date(self) -> bool:
        return self._fed == len(self.message.text) and (self._final or self.message.running)

    def sync(self) -> int | None:
        """Write what the message has and the document has not. Cheap where nothing changed. Returns where in the document changes begin,
        None for nowhere."""
        last = not self.message.running
        self._touched = None
        if self._final and last:
            self.write_footer()  # the figures of a stopped answer come after its end
            return self._touched
        if self._final:
            self._begin_again()
        piece = self.message.text[self._fed :]
        if piece or last:
            self._fed = len(self.message.text)
            edit = QTextCursor(self._body.last_frame)
            edit.beginEditBlock()
            self._take(piece, last)
            edit.endEditBlock()
            self._final = last
        self.write_footer()
        return self._touched

    def set_status(self, words: str) -> int | None:
        """Words on how the answer is getting on (its place in the queue, its speed), while it runs. Returns what `sync` does."""
        self._status = words
        self._touched = None
        self.write_footer()
        return self._touched

    def set_last(self, last: bool) -> None:
        """Whether this is the chat's last message; only there an error offers another try."""
        if last != self._last:
            self._last = last
            self.write_footer()

    def set_forked(self, forked: bool) -> None:
        """Whether there are other versions; the actions take more room then."""
        if forked != self._forked:
            self._forked = forked
            self.write_footer()

    def write_footer(self) -> None:
        words = self._status if self.message.running else summary(self.message)
        key = f"{self.message.state}|{words}|{self._last}|{self._forked}"
        if key == self._footer_words:
            return
        self._footer_words = key
        self._touch(self.footer.firstPosition())
        failed = self.message.state is AnswerState.FAILED and self.message.error is not None
        frame_format = self._formats.frame(
            Kind.ERROR if failed else Kind.PLAIN, padding=12 if failed else 0, top=2, bottom=BAR_HEIGHT + 6 if failed else 6
        )
        edit = self.footer.firstCursorPosition()
        edit.beginEditBlock()
        edit.setPosition(self.footer.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
        edit.removeSelectedText()
        self.footer.setFrameFormat(frame_format)
        pen = Pen(self.footer.firstCursorPosition(), self._formats)
        if failed:
            self._write_error(pen)
        self._write_line(pen, words)
        edit.endEditBlock()

    # ------------------------------------------------------------------------------------------------------ private

    def _touch(self, position: int) -> None:
        """Note that what stands here, and below, changes."""
        self._touched = position if self._touched is None else min(self._touched, position)

    def _take(self, piece: str, last: bool) -> None:
        """Tell reasoning from answer, and write both."""
        if self._thought is None and not self._splitter.inside and _closes_unopened(self.message.text, self._fed - len(piece)):
            self._begin_again(opened=True)
            self._fed = len(self.message.text)
            piece = self.message.text
        pieces = [*self._splitter.push(piece), *(self._splitter.flush() if last else ())]
        thought = "".join(one.text for one in pieces if one.reasoning)
        if thought or self._splitter.inside or self._thought is not None:
            if self._thought is None:
                self._thought = ThoughtFrame(self._body.frames[0], self.message.id, self._formats)
            if self._thought.append(clean(thought)) or self._body.empty:
                self._touch(self._thought.frame.firstPosition())  # its head tells when it ended
            self._thought.show(self._open_thought, self.message.thought, thinking=self.message.running and self._splitter.inside)
        answer = "".join(one.text for one in pieces if not one.reasoning)
        if answer or last:
            self._touch(self._body.write(answer, last))

    def _begin_again(self, opened: bool = False) -> None:
        """The answer is being continued: its end, which was closed, must open again, so all of it is written anew."""
        self._final, self._fed = False, 0
        self._splitter = ReasoningSplitter(opened)
        if self._thought is not None:
            self._thought.remove()
            self._thought = None
        self._body.begin_again()
        self._touch(self._body.first_position)

    def _write_error(self, pen: Pen) -> None:
        error = self.message.error
        assert error is not None
        head = self._formats.small(self._formats.theme.danger)
        head.setFontWeight(600)
        block = self._formats.cell("left")
        block.setBottomMargin(3)
        pen.block(block, head)
        pen.cursor.insertText(clean(said(error.message)), head)
        if error.hint:
            block.setBottomMargin(8)
            pen.block(block, self._formats.small())
            pen.cursor.insertText(clean(said(error.hint)), self._formats.small())

    def _write_line(self, pen: Pen, words: str) -> None:
        """The last line: what the answer is doing, at the left; or where its time went, at the right, beside the actions."""
        f = self._formats
        message = self.message
        if message.state is AnswerState.FAILED:
            if self._last:
                pen.block(f.cell("left"), f.small())
                pen.cursor.insertText(translate("Answer", "Try again"), f.action(f"action:retry:{message.id}"))
            return
        block = f.cell("left" if message.running else "right")
        block.setTopMargin(6)
        block.setBottomMargin(6)
        if not message.running:
            block.setLeftMargin(BAR_ROOM + FORK_ROOM * self._forked)
        ours = f.figures()
        ours.setProperty(CHROME, True)
        pen.block(block, ours)
        pen.cursor.insertText(words or " ", ours)


def _closes_unopened(text: str, fresh: int) -> bool:
    """Whether reasoning ends, in what is new from `fresh` on, that never began: then the model's template began it, in the prompt."""
    at = text.find("</think>", max(0, fresh - 8))
    return at >= 0 and "<think" not in text[:at] and text[at - 1 : at] != "`"
