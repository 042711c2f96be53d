"""The bus under a hand: pointing, keys, menu, and the moment of getting on and off."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtWidgets import QMenu

from app.dashboard import capsule
from app.dashboard.bus import BusView
from app.dashboard.lift import places
from app.theme import Theme
from engine import Policy, Priority
from tests.app.dashboard.sim_engine import SimEngine


@pytest.fixture
def engine() -> SimEngine:
    engine = SimEngine(seats=4)
    for number in range(7):
        engine.board(20, 8 + number, title=f"chat {number}")
    engine.step(6)
    return engine


@pytest.fixture
def bus(dressed, qtbot, clock, engine):
    view = BusView(Theme.dark(), clock=clock, still=lambda: True)
    qtbot.addWidget(view)
    view.resize(1000, 220)
    view.show()
    view.show_snapshot(engine.snapshot)
    yield view
    view.settle()


def heard(bus: BusView) -> list[tuple]:
    calls: list[tuple] = []
    bus.open_chat.connect(lambda chat: calls.append(("open", chat)))
    bus.cancel.connect(lambda request: calls.append(("cancel", request)))
    bus.set_priority.connect(lambda request, priority: calls.append(("priority", request, priority)))
    bus.seat_hovered.connect(lambda seat: calls.append(("hover", seat)))
    return calls


def test_a_click_goes_to_the_chat_and_the_cross_cancels(bus, engine, qtbot):
    calls = heard(bus)
    seat, chip = bus.spots()[1], bus.spots()[4]
    for spot in (seat, chip):
        middle = spot.rect.center().toPoint()
        cross = capsule.cross_rect(spot.rect).center().toPoint()
        qtbot.mouseMove(bus, middle)
        qtbot.mouseClick(bus, Qt.MouseButton.LeftButton, pos=middle)
        qtbot.mouseClick(bus, Qt.MouseButton.LeftButton, pos=cross)
    assert [call for call in calls if call[0] != "hover"] == [
        ("open", seat.cell.chat_id),
        ("cancel", seat.cell.request_id),
        ("open", chip.cell.chat_id),
        ("cancel", chip.cell.request_id),
    ]
    assert calls[0] == ("hover", 1)
    qtbot.mouseClick(bus, Qt.MouseButton.LeftButton, pos=QPoint(bus.width() - 4, 4))
    assert len([call for call in calls if call[0] != "hover"]) == 4


def test_all_of_it_by_keyboard(bus, engine, qtbot):
    calls = heard(bus)
    bus.activateWindow()
    bus.setFocus()
    ids = [spot.cell.request_id for spot in bus.spots()]
    for _ in ids:
        qtbot.keyClick(bus, Qt.Key.Key_Right)
        qtbot.keyClick(bus, Qt.Key.Key_Delete)
    assert sorted(call[1] for call in calls if call[0] == "cancel") == sorted(ids)
    qtbot.keyClick(bus, Qt.Key.Key_Return)
    assert calls[-1][0] == "open"
    bus.repaint()


def test_the_menu_changes_the_priority(bus, engine):
    calls = heard(bus)
    cell = bus.spots()[0].cell
    menu: QMenu = bus.make_menu(cell)
    by_words = {action.text(): action for action in menu.actions()}
    assert by_words["Background"].isChecked() and not by_words["Foreground"].isChecked()
    by_words["Foreground"].trigger()
    by_words["Stop this answer"].trigger()
    assert calls == [("priority", cell.request_id, Priority.FOREGROUND), ("cancel", cell.request_id)]
    menu.close()


def test_boarding_and_alighting_take_a_sixth_of_a_second(bus, engine, clock):
    bus.motion._still = lambda: False
    before = {spot.cell.request_id: spot.rect for spot in bus.spots()}
    waiting = [chip.request_id for chip in bus.cells.chips]
    while not any(cell is not None and cell.request_id == waiting[0] for cell in bus.cells.seats):
        engine.step()
        bus.show_snapshot(engine.snapshot)
    move = bus.motion.moves[waiting[0]]
    assert move.start == before[waiting[0]] and move.end in bus.plan.seats and not move.leaving
    gone = [move for move in bus.motion.moves.values() if move.leaving]
    assert gone and gone[0].start in before.values()
    assert bus.motion.running
    bus.repaint()
    clock.now += 0.09
    assert bus.motion.where(move) not in (move.start, move.end)
    clock.now += 0.1
    bus.motion._tick()
    assert not bus.motion.running and not bus.motion.moves


def test_nothing_moves_when_stillness_is_asked_for(bus, engine):
    while bus.cells.waiting:
        engine.step()
        bus.show_snapshot(engine.snapshot)
    assert not bus.motion.running and not bus.motion.moves


def test_empty_seats_are_outlines_and_taken_ones_have_their_colour(bus, engine):
    picture = bus.grab().toImage()
    ratio = picture.devicePixelRatio()

    def color_at(rect) -> str:
        at = QPointF(rect.x() + 12, rect.center().y()) * ratio
        return picture.pixelColor(at.toPoint()).name()

    for seat, rect in enumerate(bus.plan.seats):
        assert color_at(rect) == Theme.dark().seat_color(seat).name()
    engine.step(60)
    bus.show_snapshot(engine.snapshot)
    assert bus.cells.taken == 0
    picture = bus.grab().toImage()
    for rect in bus.plan.seats:
        assert color_at(rect) == Theme.dark().raised


def test_figures_are_held_back_but_never_lost(bus, clock, qtbot):
    engine = SimEngine(seats=4)
    engine.board(20, 200)
    engine.step(4)
    bus.show_snapshot(engine.snapshot)
    clock.now += 1
    for _ in range(2):
        engine.step()
        bus.show_snapshot(engine.snapshot)
        bus.repaint()
    before = bus.grab().toImage()
    engine.step(40)
    bus.show_snapshot(engine.snapshot)
    assert bus._pace.behind and bus.cells.seats[0].view is engine.snapshot.seats[0]
    bus.flush()
    assert not bus._pace.behind and bus.grab().toImage() != before


@pytest.mark.parametrize("width", [320, 520, 640, 1200])
@pytest.mark.parametrize("seats", [3, 20, 60])
def test_it_paints_at_every_size_under_both_policies(dressed, qtbot, width, seats):
    view = BusView(Theme.light(), still=lambda: True)
    qtbot.addWidget(view)
    view.resize(width, 300)
    for policy in Policy:
        engine = SimEngine(seats=seats, policy=policy)
        engine.load(seats + 9)
        engine.step(3)
        view.show_snapshot(engine.snapshot)
        assert not view.grab().isNull()
        assert view.summary().startswith(("City bus", "Tour bus")[policy is Policy.STATIC])


def test_priority_by_hand_and_by_key(make_page, tick, qtbot):
    """A chip set down in another class, and a seat by keyboard: what the engine then says is what stands there."""
    engine = SimEngine(seats=2)
    names = [engine.board(10, 60, title=f"Chat {number}", priority=Priority.BACKGROUND) for number in range(5)]
    page = make_page(engine)
    tick(page, engine, 2)
    bus = page.bus
    chip = next(spot for spot in bus.spots() if spot.cell.request_id == names[4])
    drag(qtbot, bus, chip.rect.center().toPoint(), Priority.FOREGROUND)
    assert engine.calls[-1] == ("set_priority", names[4], Priority.FOREGROUND)
    tick(page, engine)
    raised = next(spot.cell for spot in bus.spots() if spot.cell.request_id == names[4])
    assert raised.priority is Priority.FOREGROUND and raised.marks.startswith("↑")
    assert bus.cells.people.index(names[4]) < 2, "the foreground did not board first"
    calls = len(engine.calls)
    first = bus.spots()[0]
    drag(qtbot, bus, first.rect.center().toPoint(), first.cell.priority)  # where it is already: nothing to ask for
    assert len(engine.calls) == calls
    bus.setFocus()
    bus._current = first.cell.request_id
    qtbot.keyClick(bus, Qt.Key.Key_Down, Qt.KeyboardModifier.AltModifier)
    assert engine.calls[-1] == ("set_priority", first.cell.request_id, Priority.API)
    tick(page, engine)
    qtbot.keyClick(bus, Qt.Key.Key_Up, Qt.KeyboardModifier.AltModifier)
    assert engine.calls[-1] == ("set_priority", first.cell.request_id, Priority.BACKGROUND)


def drag(qtbot, bus, start, priority: Priority) -> None:
    """Lift who is at `start`, and set them down in a class."""
    end = next(place.rect.center().toPoint() for place in places(bus.plan) if place.priority is priority)
    qtbot.mousePress(bus, Qt.MouseButton.LeftButton, pos=start)
    qtbot.mouseMove(bus, start + (end - start) / 2)
    qtbot.mouseMove(bus, end)
    bus.repaint()
    qtbot.mouseRelease(bus, Qt.MouseButton.LeftButton, pos=end)
