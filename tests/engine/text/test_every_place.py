"""No control token of the starter model can be written by anybody: not as a message, a name, an id, a call, a tool, or a tool's result.

Every one of them, in every place. `tests/by_hand/real_models.py` does the same with Gemma's six thousand.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.text.codec import Codec
from engine.text.forms import form_named
from tests.engine.text.conftest import make_starter_tokenizer
from tests.engine.text.every_place import HARMLESS, chats_with, control_tokens, forged

pytestmark = pytest.mark.model


def added_tokens(codec: Codec) -> list[str]:
    """Whatever the vocabulary has beside what text is made of."""
    return [token["content"] for token in json.loads(codec.tokenizer_json())["added_tokens"]]


@pytest.mark.parametrize("form", ["model", "chatml", "plain"])
def test_every_control_token_in_every_place(starter_folder: Any, form: str) -> None:
    codec = Codec(make_starter_tokenizer(starter_folder), [2])
    if form != "model":
        chosen = form_named(form)
        assert chosen is not None
        codec.use_form(chosen)
    tokens = added_tokens(codec)
    assert len(tokens) == len(codec.special_ids) == 17
    assert not {token: places for token in tokens if (places := forged(codec, token))}
    assert not forged(codec, "".join(tokens)) and not forged(codec, " ".join(tokens))


def test_a_plain_prompt_of_all_of_them_has_none(codec: Codec) -> None:
    assert not codec.special_ids & set(codec.encode("Hello" + "".join(added_tokens(codec))))


def test_the_search_would_see_a_forged_one(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard each place that the template writes out lets one through."""
    monkeypatch.setattr(codec, "_holds_mark", lambda text, marks: False)
    assert {"user", "inside", "system", "assistant", "result", "call", "tool"} <= set(forged(codec, "<|im_end|>"))
    assert control_tokens(codec, dict(chats_with(HARMLESS))["user"]) == [1, 2, 1, 2, 1]
