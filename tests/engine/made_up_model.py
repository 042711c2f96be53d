"""A model that says letters at once, and does as it is told: load slowly, fail to load, stand still, break."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from engine import Chat, Engine, EngineConfig, FinishedEvent, Message, ModelError, ModelView, OpenModel, RequestHandle
from engine.scheduling.plan import Row, Sampled
from engine.sim import SimRunner, expected_answer
from engine.text.forms import ChatForm
from engine.text.tools import ToolForm
from engine.types import Event, TokensEvent

VOCAB = 26
PATIENCE = 60.0  # seconds after which a test gives up; nothing here takes nearly as long, on a machine that has time for it


class LetterStream:
    """Token 0 is "a", and so on. Ends before a stop string."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self.stopped = False
        self._stop = stop

    def push(self, token_id: int) -> str:
        letter = chr(97 + token_id)
        self.stopped = letter in self._stop
        return "" if self.stopped else letter

    def flush(self) -> str:
        return ""


class LetterCodec:
    """One token a character, plus an offset that tells one model's tokens from another's."""

    eos_ids: frozenset[int] = frozenset()
    tool_form = ToolForm.MARKED

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.salts: list[bytes] = []

    def encode(self, text: str) -> list[int]:
        if "\0" in text:
            raise ValueError("made-up fault of a tokenizer")
        return [ord(letter) + self.offset for letter in text]

    def encode_chat(self, chat: Chat | Sequence[Message], continue_final: bool = False, salt: bytes = b"") -> list[int]:
        self.salts.append(salt)
        given = chat if isinstance(chat, Chat) else Chat(tuple(chat))
        tools = "".join(f"tool {tool.name};" for tool in given.tools)
        return self.encode(tools + "".join(map(self._turn, given.messages)))

    @staticmethod
    def _turn(message: Message) -> str:
        calls = "".join(f"{call.name}{call.arguments}" for call in message.tool_calls)
        return f"{message.role}:{message.content}{calls}" + ("" if message.content == "<think>" else ";")

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode()

    def token_bytes(self, token_id: int) -> bytes:
        """Answers are made of 0 to 25, prompts of characters."""
        return chr(97 + token_id if token_id < VOCAB else token_id - self.offset).encode()

    def stream(self, stop: tuple[str, ...]) -> LetterStream:
        return LetterStream(stop)

    def use_form(self, form: ChatForm) -> None:
        """Letters have no templates."""


class Workshop:
    """Opens made-up models.

    Attributes:
        gate: loading waits here while it is cleared.
        steps: forward passes wait here while it is cleared.
        opened, closed: names of models, in order.
        broken: the next load fails.
        down: forward passes fail.
        poisoned: requests whose rows fail.
        pace: seconds that a forward pass takes, so that there is something to see while it lasts.
    """

    def __init__(self, blocks: int = 256, block_size: int = 4, context: int = 200) -> None:
        self.gate, self.steps = threading.Event(), threading.Event()
        self.gate.set()
        self.steps.set()
        self.loading = threading.Event()
        self.stepping = threading.Event()
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.broken = self.down = False
        self.poisoned: set[str] = set()
        self.pace = 0.0
        self.offsets: dict[str, int] = {}
        self.salts: list[bytes] = []  # under which chats were encoded
        self._blocks, self._size, self._context = blocks, block_size, context

    def open(self, config: EngineConfig, progress: Callable[[float, str], None], cancelled: Callable[[], bool]) -> OpenModel:
        name = config.model
        progress(0.25, "making things up")
        self.loading.set()
        while not self.gate.wait(0.01):
            if cancelled():
                raise ModelError("load_cancelled", "Loading was cancelled.")
        self.loading.clear()
        if self.broken:
            raise ModelError("model_not_found", f"There is no model named {name}.", "Choose another.")
        runner = _Runner(self, self._blocks, self._size, context=self._context, vocab=VOCAB)
        view = ModelView(name, "cpu", "none", "made-up", self._context, 1.0, "ready")
        self.opened.append(name)
        codec = LetterCodec(self.offsets.get(name, 0))
        codec.salts = self.salts
        return OpenModel(codec, runner, self._blocks, self._size, 64, view, lambda: self.closed.append(name))


class _Runner(SimRunner):
    def __init__(self, workshop: Workshop, blocks: int, block_size: int, **options: int) -> None:
        super().__init__(blocks, block_size, **options)  # type: ignore[arg-type]
        self._workshop = workshop

    def forward(self, rows: Sequence[Row]) -> list[Sampled | None]:
        workshop = self._workshop
        workshop.stepping.set()
        assert workshop.steps.wait(PATIENCE)
        time.sleep(workshop.pace)
        if workshop.down or any(row.request.id in workshop.poisoned for row in rows):
            raise RuntimeError("made-up fault")
        return super().forward(rows)


def make_engine(workshop: Workshop | None = None, *, start: bool = True, **rules: object) -> Engine:
    """An engine over the workshop's models, started unless asked not to."""
    config = EngineConfig(model="first", debug_audit=True, **{"seats": 4, **rules})  # type: ignore[arg-type]
    engine = Engine(config, opener=(workshop or Workshop()).open)
    if start:
        engine.start()
    return engine


def wait_for(engine: Engine, holds: Callable[[], bool]) -> None:
    """Until something holds, looked at after every snapshot."""
    published = threading.Event()
    remove = engine.add_listener(published.set)
    try:
        while not holds():
            assert published.wait(PATIENCE), "nothing was published any more, and it does not hold"
            published.clear()
    finally:
        remove()


def rests(engine: Engine, seconds: float = 0.3) -> bool:
    """Whether the engine publishes nothing for so long. One that has just become idle may still have a last thing to say, later on a busy
    machine than on an idle one: it gets several chances, of which one that does not rest can take none."""
    for _ in range(20):
        before, published = engine.snapshot, threading.Event()
        remove = engine.add_listener(published.set)
        said = published.wait(seconds)
        remove()
        if not said and engine.snapshot is before:
            return True
    return False


def read(handle: RequestHandle) -> list[Event]:
    """Everything to the end."""
    events: list[Event] = []
    while not (events and isinstance(events[-1], FinishedEvent)):
        more = handle.wait(PATIENCE)
        assert more, f"{handle} gave nothing more"
        events += more
    return events


def the_end(handle: RequestHandle) -> FinishedEvent:
    """The end, which must be there once, last, and soon."""
    events = read(handle)
    ends = [event for event in events if isinstance(event, FinishedEvent)]
    assert len(ends) == 1 and events[-1] is ends[0] and handle.poll() == []
    return ends[0]


def said(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokensEvent))


def answer(prompt: str, seed: int, count: int, offset: int = 0) -> str:
    """What the made-up model says to a plain prompt when it is alone."""
    return "".join(chr(97 + token) for token in expected_answer([ord(letter) + offset for letter in prompt], seed, count, VOCAB))
