"""Turns token ids into text as they come: whole characters only, no control tokens, cut at the first stop string.

Owns the state of one answer's decoding. What it has shown it never takes back, and what it holds back it shows at the latest at
`flush()`: the pieces joined are the decoded answer, up to the first stop string. It must never cost more than a few microseconds a token.

Byte-level and SentencePiece vocabularies, nearly all of today's, are decoded as bytes: a token is a known run of bytes, and an
incremental UTF-8 decoder holds exactly the one character that is incomplete. That is exact also for bytes that are no text at all, which
show as U+FFFD at once instead of holding everything back. Other vocabularies are decoded through a sliding window of ids.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

HELD_TOKENS = 4  # no character of any script needs more; what is still no text then is shown as it is
MOST_WINDOW = 64  # ids a window may grow to
REPLACEMENT = "\ufffd"


class Decoder(Protocol):
    """Incremental decoding of one answer."""

    def push(self, token_id: int) -> str:
        """The text that is certain now."""

    def flush(self) -> str:
        """The rest; an incomplete character becomes U+FFFD, as in decoding all ids at once."""


class ByteTable:
    """The bytes each token stands for, in a vocabulary whose text is the concatenation of its tokens' bytes.

    Attributes:
        strip_first: what the vocabulary's own decoder drops at the start of a text: "" nothing, "space" one leading space,
            "marks" every leading-space mark of the first token.
        whole: the text of tokens that were met and are whole characters: most of any answer.
    """

    def __init__(self, token: Callable[[int], str | None], kind: str, strip_first: str) -> None:
        self._token = token
        self._kind = kind
        self.strip_first = strip_first
        self.whole: dict[int, str] = {}
        self._known: dict[int, bytes] = {}

    @classmethod
    def of(cls, backend: Any) -> ByteTable | None:
        """The table of a `tokenizers.Tokenizer`; None if its decoder does more than join bytes."""
        decoder = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else None
        if decoder is None:
            return None
        steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
        kinds = [step["type"] for step in steps]
        if kinds == ["ByteLevel"]:
            return cls(backend.id_to_token, "bytes", "")
        strip = ""
        for step in steps:
            match step["type"]:
                case "ByteFallback" | "Fuse":
                    pass
                case "Replace" if step["pattern"] == {"String": "▁"} and step["content"] == " ":
                    pass
                case "Strip" if step["content"] == " " and step["start"] == 1 and step["stop"] == 0:
                    strip = "space"
                case "Metaspace" if step["replacement"] == "▁":
                    strip = "" if step.get("prepend_scheme", "always") == "never" else "marks"
                case _:
                    return None
        if "Replace" not in kinds and "Metaspace" not in kinds:
            return None
        return cls(backend.id_to_token, "fallback" if "ByteFallback" in kinds else "spaces", strip)

    def __getitem__(self, token_id: int) -> bytes:
        """The bytes of one token; none for an id outside the vocabulary."""
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._bytes(self._token(token_id))
        return known

    def _bytes(self, token: str | None) -> bytes:
        if not token:
            return b""
        if self._kind == "bytes":
            try:
                return bytes(_BYTE_OF[character] for character in token)
            except KeyError:  # an added token, written as itself
                return token.encode()
        if self._kind == "fallback" and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            try:
                return bytes([int(token[3:5], 16)])
            except ValueError:
                pass
        return token.replace("▁", " ").encode()


class ByteDecoder:
    """Decodes through a `ByteTable`."""

    __slots__ = ("_between", "_strip", "_table", "_utf8")  # as of `TextStream`: one place in memory to go to, where all is cold

    def __init__(self, table: ByteTable) -> None:
        self._table = table
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = table.strip_first
        self._between = not self._strip  # two characters: whole ones are taken as they are

    def push(self, token_id: int) -> str:
        text = self._table.whole.get(token_id) if self._between else None
        return text if text is not None else self._decode(token_id)

    def flush(self) -> str:
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self._between = not self._strip
        return text

    def _decode(self, token_id: int) -> str:
        data = self._table[token_id]
        if self._between:
            with suppress(UnicodeDecodeError):
                self._table.whole[token_id] = data.decode()
        if self._strip and data:
            data = data.removeprefix(b" ") if self._strip == "space" else data.replace(b" ", b"")
            self._strip = ""
        text = self._utf8.decode(data)
        self._between = not self._strip and not self._utf8.getstate()[0]
        return text


class WindowDecoder:
    """Decodes through `decode(ids)` of any tokenizer, over the ids since the last point where the text was whole.

    Method: two offsets into the ids, as in Hugging Face's text-generation-inference: the text of the window with the new token, less the
    text without it. The part before is decoded along, since a token's text may depend on its neighbour.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []  # the window: ids shown last time, then ids held
        self._shown = 0  # how many of them are shown

    def push(self, token_id: int) -> str:
        self._ids.append(token_id)
        before = self._decode(self._ids[: self._shown])
        now = self._decode(self._ids)
        if now.endswith(REPLACEMENT):
            return self._push_unclear(before, now)
        if len(now) <= len(before):
            return ""
        self._ids = self._ids[self._shown :]
        self._shown = len(self._ids)
        return now[len(before) :]

    def _push_unclear(self, before: str, now: str) -> str:
        """The window ends in half a character, or in a real U+FFFD: the last tokens are held, what is before them is clear."""
        clear = len(self._ids) - (HELD_TOKENS - 1)
        if clear <= self._shown:
            return ""
        text = self._decode(self._ids[:clear])
        if not now.startswith(text):
            return ""
        if clear > MOST_WINDOW:  # a long run of bytes that are no text: without this it would be decoded over and over
            self._ids, clear = self._ids[clear - HELD_TOKENS :], HELD_TOKENS
        self._shown = clear
        return text[len(before) :]

    def flush(self) -> str:
        before = self._decode(self._ids[: self._shown])
        now = self._decode(self._ids)
        self._ids, self._shown = [], 0
        return now[len(before) :]


class TextStream:
    """The text of one answer, token by token.

    Args:
        decoder: fresh, for this answer alone.
        special_ids: control tokens; they make no text.
        stop: strings that end the answer; none is empty.

    Attributes:
        stopped: a stop string is complete. The text up to it is out, nothing more will come.
    """

    __slots__ = ("_decoder", "_held", "_special_ids", "_stop", "stopped")

    def __init__(self, decoder: Decoder, special_ids: frozenset[int] = frozenset(), stop: Sequence[str] = ()) -> None:
        self._decoder = decoder
        self._special_ids = special_ids
        self._stop = tuple(stop)
        self._held = ""  # decoded, but it may be the beginning of a stop string
        self.stopped = False

    def push(self, token_id: int) -> str:
        """The new text that is safe to show; empty while a character or a possible stop string is incomplete."""
        if self.stopped or token_id in self._special_ids:
            return ""
        text = self._decoder.push(token_id)
        return self._release(text) if self._stop else text

    def flush(self) -> str:
        """Whatever is still held back. Call once, when the answer ends for any reason; after a stop string it is empty."""
        if self.stopped:
            return ""
        text = self._release(self._decoder.flush())
        held, self._held = self._held, ""
        return text + held

    def _release(self, text: str) -> str:
        """Add `text` to what is held and give what can no longer become part of a stop string."""
        if not text:
            return ""
        text = self._held + text
        found = first_stop(text, self._stop)
        if found is not None:
            self._held = ""
            self.stopped = True
            return text[:found]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop string that is complete first begins; of several complete at once, the longest. None if there is none."""
    best: tuple[int, int] | None = None
    for stop in stops:
        start = text.find(stop)
        if start >= 0 and (best is None or (start + len(stop), start) < best):
            best = (start + len(stop), start)
    return best[1] if best else None


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0


def _byte_alphabet() -> dict[str, int]:
    """The character each byte is written as in a byte-level vocabulary, reversed (Radford et al., GPT-2, 2019).

    Printable Latin-1 stands for itself; the other 68 bytes are written as the characters from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
