"""The engine on a stage answers like the real one: text by text, piece by piece, ends and cancels included."""

from __future__ import annotations

from engine import EngineState, FinishedEvent, FinishReason, Message, StagedEngine, TokensEvent
from engine.staged import words_of


def test_a_chat_gets_its_text_and_nothing_else():
    engine = StagedEngine(seats=2)
    engine.texts.extend(["One two three.", "Another   answer,\n\nin two parts."])
    rung = []
    first = engine.submit([Message("user", "hello")], chat_id="a", title="A", on_ready=rung.append)
    second = engine.submit([Message("user", "hello")], chat_id="b", title="B")
    said = {first: "", second: ""}
    for _ in range(60):
        engine.step()
        for handle in said:
            for event in handle.poll():
                if isinstance(event, TokensEvent):
                    said[handle] += event.text
                else:
                    assert isinstance(event, FinishedEvent) and event.reason is FinishReason.STOP
    assert list(said.values()) == ["One two three.", "Another   answer,\n\nin two parts."]
    assert first.ended and second.ended and rung and engine.snapshot.seated == 0


def test_a_cancelled_chat_ends_at_once():
    engine = StagedEngine(seats=1)
    handle = engine.submit([Message("user", "hello")], chat_id="a")
    engine.step(3)
    handle.cancel()
    engine.step()
    assert [event.reason for event in handle.poll()] == [FinishReason.CANCELLED]
    assert engine.close() and engine.snapshot.state is EngineState.CLOSED


def test_pieces_are_the_text():
    for text in ("", "word", "  two  words ", "a\n\nb", "unbelievablylongword and more"):
        assert "".join(words_of(text)) == text
