"""The demo in a terminal: a live frame that is redrawn in place, pictures of the seats over the steps, and the table.

Owns layout and ink only: everything it draws comes from snapshots and step records. Plain ASCII and at most 79 columns, so that it
looks right in any terminal of 80 x 24. Never writes a control sequence to a stream that is not a terminal, nor colours when NO_COLOR
is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TextIO

from engine.bench.load import Load
from engine.bench.policy_run import PolicyRun, Progress
from engine.types import Phase, Policy, SeatView, Snapshot, StepRecord

POLICY_WORDS = {Policy.STATIC: "Tour bus (static)", Policy.IN_FLIGHT: "City bus (in-flight)"}
LEGEND = "# a token   / reading the prompt   . empty seat"
HELD_LEGEND = "   - seated, not served"
EMPTY, PREFILL, DECODE, HELD = ".", "/", "#", "-"
MOST_COLUMNS = 79
BEFORE_TRAIL = 43  # columns of a seat's line before its last steps
LINE_EVERY_S = 2.0  # where nothing can be redrawn; on slow machines less often
LINE_EVERY_SHARE = 0.15  # of the time so far
HUES = (75, 214, 114, 177, 80, 222, 210, 111, 150, 217)  # of the 256-colour palette, about equally light
RED, DIM, BOLD = "31", "2", "1"

Cell = tuple[str, str]  # what a seat did in a step, and the request id that did it


class Ink:
    """Colours, or none of them. Whoever has the same name has the same hue, under both policies."""

    def __init__(self, colours: bool) -> None:
        self.colours = colours
        self._hues: dict[str, int] = {}

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colours and text else text

    def owner(self, text: str, who: str) -> str:
        hue = self._hues.setdefault(who, HUES[len(self._hues) % len(HUES)])
        return self.paint(text, f"38;5;{hue}")

    def cells(self, cells: Sequence[Cell], names: Mapping[str, str]) -> str:
        """A run of cells, with one control sequence a stretch of equal colour."""
        out, start = [], 0
        for end in range(1, len(cells) + 1):
            if end < len(cells) and cells[end][1] == cells[start][1]:
                continue
            text, who = "".join(char for char, _ in cells[start:end]), cells[start][1]
            out.append(self.owner(text, names.get(who, who)) if who else self.paint(text, RED))
            start = end
        return "".join(out)


def seat_cells(record: StepRecord) -> list[Cell]:
    """What each seat did in a step, seat 0 first."""
    cells: list[Cell] = [(EMPTY, "")] * record.seats_total
    for seat in record.held:
        if seat < len(cells):
            cells[seat] = (HELD, "")
    for row in record.rows:
        if row.seat < len(cells):
            cells[row.seat] = (DECODE if row.phase is Phase.DECODE else PREFILL, row.request_id)
    return cells


def merge(cells: Sequence[Cell]) -> Cell:
    """One character for several steps of one seat: mostly empty, else somebody's prompt was read, else tokens came out."""
    taken = [cell for cell in cells if cell[0] != EMPTY]
    if 2 * len(taken) < len(cells):
        return EMPTY, ""
    reading = [cell for cell in taken if cell[0] == PREFILL]
    return reading[0] if reading else taken[-1]


# --------------------------------------------------------------------------------------------------------------- picture


def scale_for(runs: Sequence[PolicyRun], columns: int) -> int:
    """Steps a character, so that the longest run fits; all are drawn to the same scale."""
    return max(1, -(-max(run.steps for run in runs) // columns))


def picture(run: PolicyRun, scale: int, ink: Ink) -> list[str]:
    """One line a seat, one character a step (or `scale` steps)."""
    columns = [seat_cells(record) for record in run.records]
    lines = []
    for seat in range(run.load.seats):
        row = [column[seat] if seat < len(column) else (EMPTY, "") for column in columns]
        merged = [merge(row[start : start + scale]) for start in range(0, len(row), scale)]
        lines.append(f"  seat {seat + 1}  {ink.cells(merged, run.names)}")
    return lines


def ruler(steps: int, scale: int) -> str:
    """Step numbers over a picture, every fifth or tenth column."""
    every = 5 if scale == 1 and steps <= 40 else 10
    line = ""
    for column in range(0, -(-steps // scale), every):
        line = line.ljust(column) + str(column * scale + 1)
    return f"  step    {line}"


def pictures(runs: Sequence[PolicyRun], ink: Ink, columns: int = MOST_COLUMNS - 10) -> list[str]:
    scale = scale_for(runs, columns)
    lines: list[str] = []
    for run in runs:
        lines += [f"  {ink.paint(POLICY_WORDS[run.policy], BOLD)}: {run.steps} steps, {run.idle_seat_steps} empty seat-steps"]
        lines += [ruler(max(item.steps for item in runs), scale), *picture(run, scale, ink), ""]
    words = _legend(record for run in runs for record in run.records)
    return [*lines, f"  {words}", *([f"  Each character stands for {scale} steps."] if scale > 1 else [])]


def _legend(records: Iterable[StepRecord]) -> str:
    return LEGEND + (HELD_LEGEND if any(record.held for record in records) else "")


# ---------------------------------------------------------------------------------------------------------------- tables


def boarding_table(static: PolicyRun, in_flight: PolicyRun) -> list[str]:
    """When each got on and off, in steps."""
    lines = ["  rider   stops   tour bus rides steps   city bus rides steps"]
    runs = (static, in_flight)
    for request in static.load.requests:
        spans = [f"{run.boarded_step[request.id]:>3} to {run.finished_step[request.id]:>3}" for run in runs]
        lines.append(f"  {request.title:<8}{request.tokens:>4}    {spans[0]:^20}   {spans[1]:^20}")
    return lines


def answers(run: PolicyRun, ink: Ink) -> list[str]:
    """What was asked and, in brackets, what was answered: one line each."""
    lines = []
    for request in run.load.requests:
        asked = request.prompt if isinstance(request.prompt, str) else ""
        line = plain_text(f"{asked} [{run.text[request.id].strip()}]", MOST_COLUMNS - 6)
        lines.append(f"  {ink.owner(request.title, request.id)}  {line}")
    return lines


def result_table(static: PolicyRun, in_flight: PolicyRun) -> list[str]:
    """The figures of both, and how many times better the city bus is."""
    rows = [
        ("time for everyone", "s", static.makespan_s, in_flight.makespan_s, False),
        ("tokens a second", "", static.tok_s, in_flight.tok_s, True),
        ("first token, p50", "s", static.ttft_percentile(0.50), in_flight.ttft_percentile(0.50), False),
        ("first token, p95", "s", static.ttft_percentile(0.95), in_flight.ttft_percentile(0.95), False),
        ("steps", "", static.steps, in_flight.steps, False),
        ("empty seat-steps", "", static.idle_seat_steps, in_flight.idle_seat_steps, False),
    ]
    lines = [f"  {'':<20}{'tour bus':>12}{'city bus':>14}{'city bus better by':>22}"]
    for name, unit, tour, city, more_is_better in rows:
        better, worse = (city, tour) if more_is_better else (tour, city)
        ratio = f"{better / worse:.2f} x" if worse else "-"
        lines.append(f"  {name:<20}{_figure(tour, unit):>12}{_figure(city, unit):>14}{ratio:>22}")
    return lines


def _figure(value: float, unit: str) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f} {unit}" if unit else f"{value:,.{0 if value >= 100 else 1}f}"


# ------------------------------------------------------------------------------------------------------------------ live


def frame(progress: Progress, ink: Ink, width: int, height: int) -> list[str]:
    """The live view of a run: seats with their last steps, queue, blocks. At most `height` lines of `width` columns."""
    if width < MOST_COLUMNS - 1:  # a narrow terminal: no colours, so that lines can be cut
        return [_cut(line, width) for line in frame(progress, Ink(False), MOST_COLUMNS, height)]
    snapshot = progress.snapshot
    trail = max(1, width - BEFORE_TRAIL)
    columns = [seat_cells(record) for record in progress.records[-trail:]]
    lines = [_headline(progress, ink), ""]
    lines.append(ink.paint(f"  seat  rider     doing    tokens  blocks  last {len(columns)} steps" if columns else "  seat  rider", DIM))
    for number, seat in enumerate(snapshot.seats):
        row = [column[number] for column in columns if number < len(column)]
        lines.append(f"  {number + 1:>4}  {_seat_words(seat, progress, ink)}  {ink.cells(row, progress.names)}")
    lines += ["", _queue_line(snapshot, width), _reason_line(snapshot, width), _blocks_line(snapshot, ink, width)]
    lines += ["", ink.paint(f"  {_legend(progress.records[-trail:])}", DIM)]
    if len(lines) > height:  # a low terminal: the empty lines go first, then the lower ones
        lines = [line for line in lines if line][: max(1, height)]
    return lines


def _seat_words(seat: SeatView | None, progress: Progress, ink: Ink) -> str:
    if seat is None:
        return f"{'-':<9} {'':<8} {'':>7} {'':>6}"
    who = ink.owner(f"{seat.title[:9]:<9}", progress.names.get(seat.request_id, ""))
    if seat.phase is Phase.DECODE:
        count = f"{seat.output_tokens}/{seat.max_output_tokens}"
        return f"{who} {'answers':<8} {count if len(count) <= 7 else seat.output_tokens:>7} {seat.blocks:>6}"
    return f"{who} {'reads':<8} {seat.computed_tokens / max(1, seat.prompt_tokens):>7.0%} {seat.blocks:>6}"


def _headline(progress: Progress, ink: Ink) -> str:
    step = len(progress.records)
    speed = progress.tokens / progress.elapsed_s if progress.elapsed_s else 0.0
    done = f"{progress.finished} of {len(progress.load.requests)} answered"
    words = ink.paint(f"{POLICY_WORDS[progress.policy]:<22}", BOLD)
    return f"  {words}step {step:<6}{progress.elapsed_s:>6.1f} s  {speed:>6.0f} tok/s   {done}"


def _queue_line(snapshot: Snapshot, width: int) -> str:
    if not snapshot.waiting:
        return "  queue   nobody waits"
    names = ", ".join(view.title for view in snapshot.queue)
    return _cut(f"  queue   {snapshot.waiting} waiting: {names}", width)


def _reason_line(snapshot: Snapshot, width: int) -> str:
    """Why the first one waits, in the engine's words."""
    if not snapshot.queue:
        return ""
    first = snapshot.queue[0]
    return _cut(f"          {first.title}: {first.detail or first.reason}", width)


def _blocks_line(snapshot: Snapshot, ink: Ink, width: int) -> str:
    kv = snapshot.kv
    words = f" {kv.referenced} in use, {kv.cached} cached, {kv.free} free"
    room = max(4, width - len("  blocks  []") - len(words))
    used, kept = _shares(room, kv.total, kv.referenced, kv.cached)
    bar = ink.paint("#" * used, "36") + ink.paint("+" * kept, DIM) + " " * (room - used - kept)
    return f"  blocks  [{bar}]{words}"


def _shares(room: int, total: int, used: int, cached: int) -> tuple[int, int]:
    """Characters of a bar; whatever is not zero shows."""
    if not total:
        return 0, 0
    first = min(room, -(-used * room // total))
    return first, min(room - first, -(-cached * room // total))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


class Screen:
    """Draws frames over one another where the stream is a terminal, and a line now and then where it is not. Use as a context."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str] = os.environ, plain: bool = False) -> None:
        terminal = stream.isatty() and environ.get("TERM") != "dumb"
        self.stream = stream
        self.redraws = terminal and not plain
        self.ink = Ink(terminal and not environ.get("NO_COLOR"))
        self._drawn = 0
        self._run = 0  # the first step of the run that the last line was about
        self._last_line = 0.0

    def __enter__(self) -> Screen:
        if self.redraws:
            if os.name == "nt":
                os.system("")  # switches the console's interpretation of control sequences on
            self.stream.write("\x1b[?25l")  # no cursor while frames follow one another
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.redraws:
            self.stream.write("\x1b[?25h" + ("\n" if kind is not None and self._drawn else ""))
            self.stream.flush()

    def say(self, *lines: str) -> None:
        """Lines that stay; the present frame is wiped."""
        self._wipe()
        self.stream.write("".join(f"{line}\n" for line in lines))
        self.stream.flush()

    def stage(self, text: str) -> None:
        """What is being waited for."""
        if self.redraws:
            self._draw([f"  {text}"])

    def show(self, progress: Progress) -> None:
        """A run so far."""
        if self.redraws:
            size = shutil.get_terminal_size()
            self._draw(frame(progress, self.ink, min(MOST_COLUMNS, size.columns - 1), size.lines - 1))
            return
        pause = max(LINE_EVERY_S, LINE_EVERY_SHARE * progress.elapsed_s)
        if progress.first_step != self._run or progress.elapsed_s - self._last_line >= pause:
            self._run, self._last_line = progress.first_step, progress.elapsed_s
            snapshot = progress.snapshot
            self.stream.write(
                f"  {progress.policy:<10} {progress.elapsed_s:5.1f} s  step {len(progress.records):<5} seats {snapshot.seated} of "
                f"{len(snapshot.seats)}  waiting {snapshot.waiting:<3} blocks {snapshot.kv.referenced} of {snapshot.kv.total}\n"
            )
            self.stream.flush()

    def _draw(self, lines: list[str]) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self.stream.write(up + "".join(f"\r\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self.stream.flush()
        self._drawn = len(lines)

    def _wipe(self) -> None:
        if self._drawn:
            self.stream.write(f"\x1b[{self._drawn}A\r\x1b[J")
            self._drawn = 0


def plain_text(text: str, most: int) -> str:
    """A model's text on one line of a terminal: control characters (and with them, escape sequences) never get through."""
    return _cut(" ".join("".join(char if char.isprintable() else " " for char in text).split()), most)


def load_line(load: Load) -> str:
    tokens = sum(request.tokens for request in load.requests)
    return f"{load.title} ({tokens:,} tokens to answer)"
