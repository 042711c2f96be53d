"""The choice of a chat form: offered once for a model without a template, with a preview, and reachable again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.models.dialog import ModelsDialog
from app.theme import Theme
from engine import EngineState, ModelView, Snapshot
from tests.app.conftest import settle
from tests.app.models.test_models import FakeDesk

SOURCE = "/models/base"


@pytest.fixture
def window(make_window: Any) -> Any:
    made, engine = make_window()
    made.show()
    yield made, engine
    made.models.shut_down()


def loaded(engine: Any, **facts: Any) -> Snapshot:
    known = {"template": "plain", "forms": ("gemma", "plain"), **facts}
    return replace(engine.snapshot, state=EngineState.READY, model=ModelView(name="base", source=SOURCE, **known))


def test_it_is_offered_once_for_a_model_without_a_template(window: Any) -> None:
    made, engine = window
    made.models.show_snapshot(loaded(engine, template="model"))
    made.models.show_snapshot(loaded(engine, form_chosen=True))
    assert made.models.form_dialog is None
    made.models.show_snapshot(loaded(engine))
    dialog = made.models.form_dialog
    assert dialog.isVisible() and not dialog.isModal() and "base" in dialog.title.text()
    dialog.close()
    made.models.show_snapshot(loaded(engine))
    assert not dialog.isVisible()


def test_each_form_shows_what_the_model_would_read_and_is_told_to_the_engine(window: Any) -> None:
    made, engine = window
    made.models.show_snapshot(loaded(engine))
    dialog = made.models.form_dialog
    assert [key for key, button in dialog.buttons.items() if button.isEnabled()] == ["gemma", "plain"]
    assert dialog.buttons["plain"].isChecked()
    assert dialog.preview.toPlainText().endswith("User: And of Italy?\n\nAssistant:")
    dialog.buttons["gemma"].click()
    text = dialog.preview.toPlainText()
    assert "<start_of_turn>model\nParis.<end_of_turn>" in text and text.endswith("<start_of_turn>model\n")
    dialog.use.click()
    assert engine.forms == [(SOURCE, "gemma")] and not dialog.isVisible()


def test_no_words_are_cut_in_the_smallest_window(window: Any) -> None:
    made, engine = window
    snapshot = loaded(engine)
    name = "A base model with quite a long name that somebody gave it, Q4_K_M"
    made.models.show_snapshot(replace(snapshot, model=replace(snapshot.model, name=name)))
    dialog = made.models.form_dialog
    dialog.resize(dialog.minimumSize())
    settle()
    labels = [dialog.title, *dialog._hints.values()]
    assert all(label.height() >= label.heightForWidth(label.width()) for label in labels)
    assert name in dialog.title.text() and dialog.width() == dialog.minimumWidth()


def test_the_models_window_leads_to_it(window: Any) -> None:
    made, engine = window
    made.models.show_snapshot(loaded(engine, form_chosen=True))
    shown = made.models._dialog = ModelsDialog(made.models, Theme.dark(), made, FakeDesk())
    shown.show_snapshot(loaded(engine, form_chosen=True))
    shown.present.first.form.click()
    assert made.models.form_dialog.isVisible()
    shown.show_snapshot(loaded(engine, template="model"))
    assert shown.present.first.form.isHidden()
    made.models.form_dialog.close()
    settle()
