"""The switch of the local API server: on and off from the window, with the real server behind it."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request

import pytest
from PySide6.QtCore import QEventLoop
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from app.settings import SettingsFile
from app.window.api_switch import ApiState, ApiSwitch
from engine import EngineError
from tests.app.fakes import FakeEngine


def settle(switch: ApiSwitch) -> None:
    """Until nothing changes any more."""
    while switch.state is ApiState.CHANGING:
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)


@pytest.fixture
def switch(qapp: QApplication, no_leftovers: None):
    made = ApiSwitch(FakeEngine())
    yield made
    made.shut_down()


def status_of(url: str, token: str = "") -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_it_is_off_until_asked_for_and_lets_in_who_has_the_token(switch: ApiSwitch) -> None:
    assert switch.state is ApiState.OFF and switch.url == switch.token == ""
    switch.turn_on(0)
    settle(switch)
    assert switch.state is ApiState.ON and switch.url.startswith("http://127.0.0.1:")
    assert status_of(f"{switch.url}/models", switch.token) == 200
    assert status_of(f"{switch.url}/models") == 401
    url = switch.url
    switch.turn_off()
    settle(switch)
    assert switch.state is ApiState.OFF and switch.url == switch.token == ""
    with pytest.raises(urllib.error.URLError):
        status_of(f"{url}/models")


def test_a_port_that_is_taken_is_told_and_another_one_works(switch: ApiSwitch, qapp: QApplication) -> None:
    other = ApiSwitch(FakeEngine())
    try:
        other.turn_on(0)
        settle(other)
        taken = int(other.url.rsplit(":", 1)[1].partition("/")[0])
        switch.turn_on(taken)
        settle(switch)
        assert switch.state is ApiState.OFF and f"127.0.0.1:{taken} cannot be listened on" in switch.trouble
        switch.turn_on(0)
        settle(switch)
        assert switch.state is ApiState.ON and switch.trouble == ""
    finally:
        other.shut_down()


class SlowServer:
    """Starts when it is let."""

    def __init__(self, log: list[str], gate: threading.Event) -> None:
        self.log, self.gate, self.url = log, gate, "http://127.0.0.1:1/v1"

    def start(self) -> None:
        self.gate.wait(60)
        self.log.append("start")

    def stop(self) -> bool:
        self.log.append("stop")
        return True


def test_who_changes_their_mind_while_it_starts_gets_what_they_wanted_last(qapp: QApplication, no_leftovers: None) -> None:
    log: list[str] = []
    gate = threading.Event()
    switch = ApiSwitch(None, lambda engine, port: (SlowServer(log, gate), "token"))
    switch.turn_on(1)
    switch.turn_off()
    switch.turn_on(2)
    switch.turn_off()
    assert switch.state is ApiState.CHANGING
    gate.set()
    settle(switch)
    assert switch.state is ApiState.OFF and log == ["start", "stop"]
    switch.shut_down()


@pytest.mark.parametrize("fault", [EngineError("no_token", "The token cannot be kept."), ValueError("odd")])
def test_what_goes_wrong_is_said_in_a_sentence(fault: Exception, qapp: QApplication, no_leftovers: None) -> None:
    def make(engine: object, port: int):
        raise fault

    switch = ApiSwitch(None, make)
    switch.turn_on()
    settle(switch)
    assert switch.state is ApiState.OFF and str(fault) in switch.trouble
    switch.shut_down()


def test_shutting_down_while_it_starts_leaves_nothing(qapp: QApplication, no_leftovers: None) -> None:
    log: list[str] = []
    gate = threading.Event()
    switch = ApiSwitch(None, lambda engine, port: (SlowServer(log, gate), "token"))
    switch.turn_on(1)
    gate.set()
    switch.shut_down()
    assert log == ["start", "stop"]


def test_the_settings_turn_it_on_for_other_programs_and_back_off(make_window, tmp_path) -> None:
    window, _ = make_window()
    window.preferences.attach(SettingsFile(tmp_path))
    window.overlays.open_settings("server")
    rows = window.overlays.settings_card.api_rows
    assert {"Server for other programs", "Port of the server", "Address and token"} <= set(window.overlays.settings_card.shown())
    assert window.api.state is ApiState.OFF and not rows.copy_token.isEnabled()
    window.preferences.change(api_port=free_port())
    rows.box.setChecked(True)
    settle(window.api)
    assert rows.address.text() == window.api.url and SettingsFile(tmp_path).settings.api
    rows.copy_token.click()
    assert status_of(f"{window.api.url}/models", QGuiApplication.clipboard().text()) == 200
    rows.box.setChecked(False)
    settle(window.api)
    assert window.api.state is ApiState.OFF and rows.address.text() == "off"


def test_a_server_that_cannot_start_turns_its_setting_off_and_says_why(make_window, tmp_path) -> None:
    other = ApiSwitch(FakeEngine())
    window, _ = make_window()
    try:
        other.turn_on(0)
        settle(other)
        taken = int(other.url.rsplit(":", 1)[1].partition("/")[0])
        window.preferences.attach(SettingsFile(tmp_path))
        window.preferences.change(api=True, api_port=taken)
        settle(window.api)
        assert not window.preferences.settings.api and "cannot be listened on" in window.bar.words
    finally:
        other.shut_down()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
