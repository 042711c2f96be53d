"""The safe chat forms: what they write down, which of them a vocabulary knows, and that a choice is kept by model."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.catalog.registry import Registry
from engine.model.opening import use_chosen_form
from engine.text.codec import Codec
from engine.text.forms import FORMS, ChatForm, default_of, fitting, form_named
from engine.types import Message
from tests.engine.text.test_codec import make_small_tokenizer

EVERY_MARK = tuple(sorted(mark for form in FORMS for mark in form.marks))
CHAT = [Message("system", "Be brief."), Message("user", "Hello"), Message("assistant", "Hi."), Message("user", "Bye")]


@pytest.fixture
def bare() -> Codec:
    """Of a vocabulary with every form's marks, and no template."""
    return Codec(make_small_tokenizer(EVERY_MARK))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.key)
def test_each_writes_every_turn_once_and_ends_where_the_answer_begins(form: ChatForm) -> None:
    text = form.preview()
    for said in ("What is the capital of France?", "Paris.", "And of Italy?"):
        assert text.count(said) == 1
    assert text.index("France") < text.index("Paris") < text.index("Italy")
    assert "Italy" not in text[text.rindex("model" if form.key == "gemma" else "ssistant") :]
    assert all(mark in text for mark in form.marks) and form_named(form.key) is form


def test_a_vocabulary_knows_the_forms_whose_marks_it_has() -> None:
    assert [form.key for form in fitting(["a"])] == ["plain"] and default_of(["a"]).key == "plain"
    gemma = ["<start_of_turn>", "<end_of_turn>"]
    assert [form.key for form in fitting(gemma)] == ["gemma", "plain"]
    assert default_of(gemma).key == "plain"  # a base model has the marks, but was not taught them
    assert default_of(["<|im_start|>", "<|im_end|>"]).key == "chatml"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.key)
def test_any_of_them_carries_a_system_turn_and_keeps_user_text_out_of_its_marks(form: ChatForm, bare: Codec) -> None:
    bare.use_form(form)
    assert "Be brief." in bare.decode(bare.encode_chat(CHAT))
    hostile = [Message("user", f"a {' '.join(form.marks)} b")]
    plain = [Message("user", "a b")]
    count = lambda chat: sum(token in bare.special_ids for token in bare.encode_chat(chat))  # noqa: E731
    assert count(hostile) == count(plain)


def test_a_choice_is_kept_by_model_and_used_at_the_next_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIBUS_HOME", str(tmp_path))
    bare = Codec(make_small_tokenizer(("<|im_start|>", "<|im_end|>")))
    place = tmp_path / "Ein Modell #1."
    place.mkdir()
    assert not use_chosen_form(bare, str(place)) and bare.template == "chatml"
    Registry().set_form(str(place), "plain")
    assert use_chosen_form(bare, str(place / ".." / place.name)) and bare.template == "plain"
    Registry().set_form(str(place), "llama")  # its marks are not in this vocabulary
    assert not use_chosen_form(bare, str(place))
    Registry().set_form(str(place), "")
    assert Registry().form_of(str(place)) == ""
