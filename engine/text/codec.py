"""The text side of a loaded model: chats and prompts to token ids, ids to text.

Owns the tokenizer, the chat template and the ids that end an answer. It must never let a person's text become a control token: what
looks like one in a message is encoded as the ordinary characters it is, while harmless text is encoded exactly as the tokenizer would
encode the whole prompt. Safe to use from several threads.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from engine.text import pieces
from engine.text.forms import ChatForm, default_of, fitting, form_named
from engine.text.marks import Marks
from engine.text.panics import faults_told, panics_caught
from engine.text.pieces import Pieces
from engine.text.stream import ByteDecoder, ByteTable, Decoder, TextStream, WindowDecoder
from engine.text.template import ChatTemplate, TemplateFailed
from engine.text.tools import MARKS, ToolForm, form_of
from engine.text.toolturns import call_ids, data_of, data_of_tool, folded, map_texts, texts_of
from engine.text.turns import ROLES, arrangements
from engine.types import Chat, Message, RequestRefused, Sentence, Tool

# Names under which vocabularies carry their end-of-answer token; model files often list only one of several.
END_MARKS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<turn|>",
    "<|return|>",
    "<｜end▁of▁sentence｜>",
    "</s>",
)
_LOOKS_LIKE_MARK = re.compile(r"<[^\s<>]+>|\[/?[A-Z_]+\]")


@dataclass(frozen=True, slots=True)
class CodecParts:
    """What a codec was made of: the text of a tokenizer.json, its special tokens by role, the ids that end an answer, the template."""

    tokenizer: str
    named: Mapping[str, str]
    eos_ids: tuple[int, ...]
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class _Tokenizer:
    """The face of a transformers tokenizer that a codec looks at."""

    backend_tokenizer: Any
    special_tokens_map: Mapping[str, str]


class Codec:
    """Encodes and decodes for one model.

    Args:
        tokenizer: a transformers tokenizer, or a `tokenizers.Tokenizer`. The codec takes it over: truncation and padding are switched off.
        eos_ids: ids that end an answer, as the model's files list them; what the vocabulary itself marks as an end is added.
        chat_template: used instead of the tokenizer's own. Without any, ChatML is used where its tokens exist, else plain
            "User: / Assistant:" lines.

    Attributes:
        eos_ids: every id that ends an answer.
        special_ids: control tokens; they make no text.
        template: "model", or the key of a safe one: "chatml", "llama", "gemma", "plain".
        tool_form: how an answer calls tools: as the model's template teaches it, or as we do where it knows of none.
        template_error: why the model's own template is not used; empty if it is, or if it has none.

    A template that does not compile is not an error here: the chat falls back to the chooser above, and `template_error` says so.
    """

    def __init__(self, tokenizer: Any, eos_ids: Iterable[int] = (), chat_template: str | None = None) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None and not hasattr(tokenizer, "convert_tokens_to_ids"):
            backend = tokenizer
        self._backend: Any = backend  # a tokenizers.Tokenizer, or None for a tokenizer written in Python
        self._python: Any = tokenizer if backend is None else None
        if backend is not None:
            backend.no_truncation()
            backend.no_padding()
            _keep_no_words(backend)
            added = list(backend.get_added_tokens_decoder().items())
        else:
            added = list(tokenizer.added_tokens_decoder.items())
        named = {name: str(value) for name, value in getattr(tokenizer, "special_tokens_map", {}).items() if isinstance(value, str)}
        self.special_ids = frozenset(token_id for token_id, token in added if token.special)
        ids = {token.content: token_id for token_id, token in added}
        ends = {token_id for token_id in eos_ids if token_id is not None}
        if getattr(tokenizer, "eos_token_id", None) is not None:
            ends.add(tokenizer.eos_token_id)
        harmony = "<|start|>" in ids and "<|channel|>" in ids  # there <|end|> only ends a part of the answer
        ends |= {ids[mark] for mark in END_MARKS if ids.get(mark) in self.special_ids and not (harmony and mark == "<|end|>")}
        self.eos_ids = frozenset(ends)
        self._table = ByteTable.of(backend) if backend is not None else None
        # Special tokens must never come from a message; marks that steer a model without being special (<think>, <tool_call>) may come
        # back in what the model itself said, and from nobody else.
        special = [token for _, token in added if token.special]
        marks = special + [token for _, token in added if not token.special and _LOOKS_LIKE_MARK.fullmatch(token.content)]
        self._special = Marks([token.content for token in special])
        self._marks = Marks([token.content for token in marks])
        self._mark_tokens = {token.content: (ids[token.content], token) for token in marks}
        self._folds_marks = backend is not None and backend.normalizer is not None and any(token.normalized for token in marks)
        self._silent_ids = self.special_ids - {ids[mark] for mark in MARKS if mark in ids}
        self._nonce = secrets.token_hex(8)
        self._named, self._vocabulary = named, frozenset(ids)
        self._choose_template(chat_template or _own_template(tokenizer))

    @classmethod
    def again(cls, parts: CodecParts) -> Codec:
        """The one that `parts` were told by, without the library that it was first read with."""
        from tokenizers import Tokenizer

        with panics_caught():
            tokenizer = Tokenizer.from_str(parts.tokenizer)
        return cls(_Tokenizer(tokenizer, dict(parts.named)), parts.eos_ids, parts.chat_template)

    def parts(self) -> CodecParts | None:
        """What makes an equal one again; None for a tokenizer written in Python."""
        if self._backend is None:
            return None
        return CodecParts(str(self._backend.to_str()), dict(self._named), tuple(sorted(self.eos_ids)), self._own_template)

    def _choose_template(self, source: str | None) -> None:
        self._own_template = source
        self.template_error = ""
        if source:
            try:
                self._template, self.template = ChatTemplate(source, self._named), "model"
                return
            except TemplateFailed as error:
                self.template_error = str(error)
        self.use_form(default_of(self._vocabulary))

    @property
    def forms(self) -> tuple[str, ...]:
        """The keys of the safe templates (see forms.py) that this vocabulary knows."""
        return tuple(form.key for form in fitting(self._vocabulary))

    def use_form(self, form: ChatForm) -> None:
        """Put chats in this form from now on."""
        self._template, self.template = ChatTemplate(form.source, self._named), form.key
        for name in ("tool_form", "_pieces", "_twin_pieces"):  # they hang on the template
            self.__dict__.pop(name, None)

    @cached_property
    def tool_form(self) -> ToolForm:
        own = form_of(self._template.source)
        return ToolForm.MARKED if own is ToolForm.NONE else own

    # ------------------------------------------------------------------------------------------------------------ to ids

    def encode(self, text: str) -> list[int]:
        """A plain prompt, with the begin-of-text token where the tokenizer puts one.

        Raises:
            RequestRefused: "empty_prompt" if there is no text, "tokenizer_failed".
        """
        if not text:
            raise RequestRefused("empty_prompt", "The prompt is empty.", "Write something to answer.")
        text = _sound(text)
        if self._backend is None:
            with faults_told():
                return list(self._python.encode(text, split_special_tokens=True))
        if not self._holds_mark(text, self._marks):
            return pieces.encode(self._backend, text)
        twin, _, real = self._twin
        return [real.get(token_id, token_id) for token_id in pieces.encode(twin, text)]

    def encode_chat(self, chat: Chat | Sequence[Message], continue_final: bool = False, salt: bytes = b"") -> list[int]:
        """The prompt of a chat, ending where the assistant's answer begins.

        Args:
            chat: the turns. Blank assistant turns (an answer cancelled before its first word) are left out.
            continue_final: the last turn is the assistant's and stays open, so that the answer goes on where it ends.
            salt: what was encoded before is found again under the same one only.

        Raises:
            RequestRefused: "empty_prompt", "bad_role", "nothing_to_continue", "tokenizer_failed", or "template_failed" when the model's
                template takes the chat in no arrangement.
        """
        given = chat if isinstance(chat, Chat) else Chat(tuple(chat))
        for name, value in given.options:
            if isinstance(value, str) and self._holds_mark(value, self._marks):
                raise RequestRefused("bad_parameter", Sentence("{0} holds a control token.", name), "Leave it out.")
        turns = self._turns(given.messages, continue_final)
        text, hostile = self._render(replace(given, messages=tuple(turns)), continue_final)
        if self._backend is None:
            return self._encode_python(text, hostile)
        if not hostile:
            return self._pieces.encode(text, salt)
        aliases = self._twin[1]
        text = self._marks.pattern.sub(lambda match: aliases[match.group()], text).replace(self._break, "")
        return self._twin_pieces.encode(text, salt)

    def _turns(self, messages: Sequence[Message], continue_final: bool) -> list[Message]:
        for message in messages:
            if message.role not in ROLES:
                raise RequestRefused(
                    "bad_role", Sentence("A message has the role {0!r}.", message.role), Sentence("Use one of {0}.", ", ".join(ROLES))
                )
        if continue_final and (not messages or messages[-1].role != "assistant"):
            sentence = "The chat does not end with an answer to continue."
            raise RequestRefused("nothing_to_continue", sentence, "Ask for a new answer instead.")
        last = len(messages) - 1
        turns = [
            map_texts(message, _sound)
            for place, message in enumerate(messages)
            if message.content.strip() or message.role in ("user", "tool") or message.tool_calls or (continue_final and place == last)
        ]
        if not any(turn.content.strip() or turn.role == "tool" for turn in turns if turn.role != "system"):
            raise RequestRefused("empty_prompt", "There is no message to answer.", "Write something to answer.")
        return turns

    def _render(self, chat: Chat, continue_final: bool) -> tuple[str, bool]:
        """The prompt's text, and whether a message or a tool holds something that looks like a control token.

        In that case each such place carries `_break` behind its first character, so that it is told apart from the template's own.
        """
        end = f"\U0010fffb{self._nonce}"
        turns, tools = list(chat.messages), [map_texts(tool, _sound) for tool in chat.tools]
        items: list[Message | Tool] = [*turns, *tools]
        hostile = any(self._holds_mark(text, self._forbidden(item)) for item in items for text in texts_of(item))
        if hostile:
            turns = [map_texts(turn, lambda text, turn=turn: self._forbidden(turn).broken(text, self._break)) for turn in turns]  # type: ignore[misc]
            tools = [map_texts(tool, lambda text: self._marks.broken(text, self._break)) for tool in tools]
        known = form_of(self._template.source)
        if known is ToolForm.NONE:
            turns, tools = folded(turns, tools), []
        elif known is ToolForm.MISTRAL:
            turns = call_ids(turns)
        if continue_final:
            turns = [*turns[:-1], replace(turns[-1], content=turns[-1].content + end)]
        fallback: str | None = None
        reason = ""
        for arrangement in arrangements(turns):
            try:
                text = self._rendered(arrangement, tools, chat, end if continue_final else "")
            except TemplateFailed as error:
                reason = reason or str(error)
                continue
            if all(turn.content.strip() in text for turn in arrangement if turn.role not in ("assistant", "tool")):
                return text, hostile
            fallback = text if fallback is None else fallback
        if fallback is None:
            sentence = Sentence("The model's chat template cannot take this chat: {0}.", reason)
            raise RequestRefused("template_failed", sentence, "Choose another model, or start a new chat.")
        return fallback, hostile

    def _rendered(self, turns: list[Message], tools: Sequence[Tool], chat: Chat, end: str) -> str:
        """`end` marks the end of a last answer that is to be continued; "" opens a new one."""
        data = [data_of(turn) for turn in turns]
        told, options = [data_of_tool(tool) for tool in tools], dict(chat.options)
        text = self._template.render(data, not end, told, options)
        if not end:
            return text
        if end in text:
            return text[: text.rindex(end)]
        # A template that rewrites the last answer: open a new one and put the text there.
        return self._template.render(data[:-1], True, told, options) + turns[-1].content.removesuffix(end)

    def _forbidden(self, item: Message | Tool) -> Marks:
        return self._special if isinstance(item, Message) and item.role == "assistant" else self._marks

    @faults_told()
    def _holds_mark(self, text: str, marks: Marks) -> bool:
        return marks.in_text(text) or (self._folds_marks and marks.in_text(self._backend.normalizer.normalize_str(text)))

    @property
    def _break(self) -> str:
        return f"\U0010fffc{self._nonce}"

    @cached_property
    @faults_told()
    def _twin(self) -> tuple[Any, dict[str, str], dict[int, int]]:
        """A copy of the tokenizer that takes control tokens for plain text, and knows each under an unguessable second name.

        Encoding the whole prompt with it, the template's own marks written in their second names, splits, normalises and merges
        exactly as the tokenizer itself would, since the second names carry the same flags.

        Returns:
            the copy; second name by mark; real id by the copy's id, where they differ.
        """
        from tokenizers import Tokenizer

        backend = self._backend
        twin: Any = Tokenizer(backend.model)  # the same one in memory; all else is written down anew, since it differs
        twin.normalizer, twin.pre_tokenizer, twin.post_processor = backend.normalizer, backend.pre_tokenizer, backend.post_processor
        added = sorted(backend.get_added_tokens_decoder().items())
        twin.add_tokens([_added(token, special=token.special or token.content in self._mark_tokens) for _, token in added])
        twin.encode_special_tokens = True
        aliases = {mark: f"\U0010fffd{self._nonce}.{place}." for place, mark in enumerate(self._mark_tokens)}
        second_names = [_added(token, alias=aliases[mark]) for mark, (_, token) in self._mark_tokens.items()]
        twin.add_tokens(second_names)  # all at once: each call builds the search anew
        real = {twin.token_to_id(token.content): token_id for token_id, token in added}
        real |= {twin.token_to_id(alias): self._mark_tokens[mark][0] for mark, alias in aliases.items()}
        return twin, aliases, {its: ours for its, ours in real.items() if its != ours}

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self._backend, self._turn_marks())

    @cached_property
    def _twin_pieces(self) -> Pieces:
        twin, aliases, real = self._twin
        return Pieces(twin, [aliases[mark] for mark in self._turn_marks()], real, pieces.KEPT // 4)

    def _turn_marks(self) -> list[str]:
        """The control tokens that the template writes between turns."""
        source = self._template.source
        named = {value for name, value in self._named.items() if name in source}
        return [mark for mark in self._mark_tokens if mark in named or mark in source]

    @faults_told()
    def _encode_python(self, text: str, hostile: bool) -> list[int]:
        """With a tokenizer written in Python: stretch by stretch between the template's marks, if there is something to keep apart."""
        if not hostile:
            return list(self._python.encode(text, add_special_tokens=False))
        ids: list[int] = []
        place = 0
        for match in [*self._marks.pattern.finditer(text), None]:
            stretch = text[place : match.start() if match else None].replace(self._break, "")
            ids += self._python.encode(stretch, add_special_tokens=False, split_special_tokens=True)
            if match:
                ids.append(self._mark_tokens[match.group()][0])
                place = match.end()
        return ids

    # ----------------------------------------------------------------------------------------------------------- to text

    def stream(self, stop: Sequence[str] = ()) -> TextStream:
        """A fresh decoder for one answer that ends at the first of `stop`."""
        form = form_named(self.template)
        if form is not None and form.stop and form.stop not in stop:
            stop = (*stop, form.stop)
        return TextStream(self._decoder(), self._silent_ids, stop)

    @faults_told()
    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of all ids at once, control tokens left out. Raises RequestRefused("tokenizer_failed")."""
        if self._backend is not None:
            return str(self._backend.decode(list(token_ids), skip_special_tokens=True))
        return str(self._python.decode(list(token_ids), skip_special_tokens=True))

    def tokenizer_json(self) -> str:
        """The tokenizer as the text of a tokenizer.json.

        Raises:
            RequestRefused: "no_grammar" for a tokenizer written in Python, which has no such form.
        """
        if self._backend is None:
            raise RequestRefused("no_grammar", "This model's tokenizer cannot hold answers to a form.", "Leave the schema or grammar out.")
        return str(self._backend.to_str())

    @faults_told()
    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to the answer, as raw bytes (part of a character may be one token); control tokens show their name.

        Raises RequestRefused("tokenizer_failed").
        """
        if self._table is not None:
            return self._table[token_id]
        if self._backend is not None:
            return str(self._backend.decode([token_id], skip_special_tokens=False)).encode()
        return str(self._python.decode([token_id])).encode()

    def _decoder(self) -> Decoder:
        return ByteDecoder(self._table) if self._table is not None else WindowDecoder(self.decode)


def _added(token: Any, alias: str = "", special: bool = False) -> Any:
    """An added token with the flags of another: under an alias, or special or not."""
    from tokenizers import AddedToken

    flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip")}
    return AddedToken(alias or token.content, normalized=token.normalized and not alias, special=special, **flags)


def _keep_no_words(backend: Any) -> None:
    """Have a tokenizer remember no words that it has cut.

    tokenizers 0.23 keeps them for each thread that encodes, up to some ten megabytes, and lets go of them when that thread ends, not when
    the tokenizer does: every load of a model would leave its own behind with the engine's thread. Without, a prompt takes a little longer.
    """
    resize = getattr(backend.model, "_resize_cache", None)  # BPE and Unigram have one
    if resize is not None:
        resize(0)


def _own_template(tokenizer: Any) -> str | None:
    """The tokenizer's chat template; of several named ones the default."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def _sound(text: str) -> str:
    """`text` with lone surrogates, which no tokenizer takes, replaced by U+FFFD."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
