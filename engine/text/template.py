"""Renders a model's own chat template: untrusted code from a model file, run in Jinja's sandbox within limits.

Owns one compiled template. It must never reach the file system, the network or Python's inside, and it must end: loop turns and calls
are counted against a budget and a deadline, and no string may grow beyond a limit, so that a hostile template is an error and not a
frozen engine. What templates may use (names, filters, tags, white-space rules) is what Hugging Face documents for chat templates.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_TURNS = 300_000  # loop turns and calls of one rendering
MAX_SECONDS = 0.8  # real templates take milliseconds for long chats
MAX_TEXT = 4_000_000  # characters of any one string, beyond four times the input
MAX_NUMBER = 1_000_000  # widths, repeat counts and the like
MAX_SOURCE = 100_000  # characters of the template itself; the longest in use have some 30,000
MAX_PARTS = 1_000  # columns and rows that `batch` and `slice` make
FILTER_TURNS = 3  # of an item that a filter looks at: sorting and grouping take longer than a turn of a loop
MAX_DIGITS = 10**60  # beyond which no number of a chat lies

_WIDE = re.compile(r"\d{6,}|\*")  # a field width in a format string that is only there to use up memory


class TemplateFailed(Exception):
    """The template does not compile, refused the messages or left its limits; the text says which."""


class _Budget:
    """What is left to one rendering."""

    def __init__(self, input_size: int, clock: Callable[[], float]) -> None:
        self.turns = MAX_TURNS
        self.text = MAX_TEXT + 4 * input_size
        self._weights: dict[int, tuple[int, Any]] = {}  # of containers, by id; each is kept, so that no other gets its id
        self._clock = clock
        self._deadline = clock() + MAX_SECONDS

    def turn(self) -> None:
        self.turns -= 1
        if self.turns < 0 or self._clock() > self._deadline:
            raise SecurityError("the chat template does not come to an end")

    def items(self, value: Any, each: int = 1) -> None:
        """A call that looks at the whole of `value` at once takes so many turns for each item in it, or each page of text."""
        if isinstance(value, str):
            self.turns -= each * (len(value) // 256)
        elif hasattr(value, "__len__"):
            self.turns -= each * len(value)
        self.turn()

    def weigh(self, value: Any) -> Any:
        """Refuse a container that holds itself many times over: a few steps of [x, x] would take years to write out. Returns `value`."""
        if self._weight(value) > self.text:
            raise SecurityError("the chat template makes a list that is too long")
        return value

    def _weight(self, value: Any) -> int:
        if isinstance(value, str):
            return 1 + len(value)
        if not isinstance(value, (list, tuple, dict)):
            return 1
        known = self._weights.get(id(value))
        if known is None:
            self._weights[id(value)] = 1, value  # while it is looked into
            items = value.values() if isinstance(value, dict) else value
            known = self._weights[id(value)] = 1 + sum(map(self._weight, items)), value
        return known[0]

    def size(self, length: int) -> None:
        if length > self.text:
            raise SecurityError("the chat template makes a text that is too long")


_budget: ContextVar[_Budget] = ContextVar("chat_template_budget")


class ChatTemplate:
    """One compiled chat template.

    Args:
        source: the template's text.
        variables: what the template sees beside the messages: bos_token, eos_token and the other special tokens.
        now: the clock of `strftime_now`; a test gives its own.
        clock: seconds of this thread's work, for the deadline; how busy the machine is besides does not count.

    Raises:
        TemplateFailed: the source is not a valid template.
    """

    def __init__(
        self,
        source: str,
        variables: Mapping[str, Any] | None = None,
        now: Callable[[], datetime] = datetime.now,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        if len(source) > MAX_SOURCE:
            raise TemplateFailed(f"the chat template has {len(source)} characters, more than the {MAX_SOURCE} allowed")
        self.source = source
        self._variables = dict(variables or {})
        self._clock = clock
        environment = _Environment(now)
        try:
            tree = _Rewriter().visit(environment.parse(source))
            self._template = environment.from_string(tree)
        except (TemplateError, RecursionError, SyntaxError) as error:
            raise TemplateFailed(f"the chat template does not compile: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text. `tools` as OpenAI's API has them; `options` are further variables, which hide none of the others.

        Raises:
            TemplateFailed: the template refused the messages, failed or left its limits.
        """
        input_size = sum(
            len(value) if isinstance(value, str) else len(str(value)) for item in (*messages, *tools) for value in item.values()
        )
        budget = _Budget(input_size, self._clock)
        token = _budget.set(budget)
        try:
            parts: list[str] = []
            written = 0
            plain = [dict(message) for message in messages]
            given = {"messages": plain, "tools": [dict(tool) for tool in tools] or None, "documents": None}
            variables = {**(options or {}), **self._variables, **given, "add_generation_prompt": add_generation_prompt}
            for part in self._template.generate(**variables):
                written += len(part)
                budget.size(written)
                parts.append(part)
            return "".join(parts)
        except Exception as error:  # a template is foreign code: whatever it raises is its own failure
            raise TemplateFailed(str(error) or type(error).__name__) from error
        finally:
            _budget.reset(token)


class _Rewriter(NodeTransformer):
    """Sends every loop, every `~`, and what is put together in place through a counting filter; Jinja has no hook of its own for these."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "_counted", [], [], None, None, lineno=node.lineno)
        return node

    def _weighed(self, node: nodes.Expr) -> nodes.Expr:
        self.generic_visit(node)
        if getattr(node, "ctx", "load") != "load":  # a tuple of names that are set
            return node
        return nodes.Filter(node, "_weighed", [], [], None, None, lineno=node.lineno)

    visit_List = visit_Tuple = visit_Dict = _weighed

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        items = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(items, "_joined", [], [], None, None, lineno=node.lineno)


class _Counted:
    """An iterable that takes a turn off the budget for each item; it keeps its length, which `loop.last` and `loop.length` use."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        budget = _budget.get()
        for item in self._items:
            budget.turn()
            yield item

    def __len__(self) -> int:
        return len(self._items)


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's part for training; here it is just its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _SafeNamespace(Namespace):
    """A namespace without underscore names, the usual first step out of a sandbox."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # no named `self`: a template may well store a field of that name
        for name in dict(*args[1:], **kwargs):
            _check_name(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a chat template may not set {name!r}")


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with everything guarded that can make much out of little."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda form: now().strftime(form)
        self.globals["namespace"] = _SafeNamespace
        self.globals["dict"] = lambda *args, **kwargs: dict(*args, **kwargs)  # a function has no class attributes to climb
        self.filters["tojson"] = _tojson
        self.filters["_counted"] = _Counted
        self.filters["_weighed"] = lambda value: _budget.get().weigh(value)
        self.filters["_joined"] = _joined
        for name in ("urlize", "wordwrap", "pprint", "xmlattr"):  # for pages, slow on long texts, and in no chat template
            del self.filters[name]
        for name, plain in self.filters.items():
            if name.startswith("_"):
                continue
            self.filters[name] = _guard_filter(name, plain)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        budget = _budget.get()
        budget.turn()
        _check_numbers((*args, *kwargs.values()))
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, (str, list, tuple, dict)):
            budget.items(owner)
        if isinstance(owner, str):
            _check_growth(name, owner, args)
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, str):
            budget.size(len(result))
        return budget.weigh(result)

    def wrap_str_format(self, value: Any) -> Any:
        owner = getattr(value, "__self__", None)
        if isinstance(owner, str) and getattr(value, "__name__", "") in ("format", "format_map"):
            _check_growth("format", owner, ())
        return super().wrap_str_format(value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget = _budget.get()
        if operator == "+" and type(left) is type(right) is str:  # most of what templates do
            budget.size(len(left) + len(right) + 1)
            return left + right
        if operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(many, (str, list, tuple)) and isinstance(times, int):
                    budget.size(len(many) * times)
        elif operator == "+" and isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
            budget.size(len(left) + len(right))
        elif operator == "**":
            _check_numbers((left, right))
            if isinstance(right, int) and right > 64:
                raise SecurityError("a chat template raises a number to a huge power")
        elif operator == "%" and isinstance(left, str):
            _check_growth("%", left, ())
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, int) and abs(result) > MAX_DIGITS:
            raise SecurityError("a chat template makes a number that is too large")
        return budget.weigh(result)


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without Jinja's HTML escapes, which have no place in a prompt."""
    _check_numbers((indent,))
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    _budget.get().size(len(text))
    return text


def _joined(items: Iterable[Any]) -> str:
    texts = [str(item) for item in items]
    _budget.get().size(sum(map(len, texts)))
    return "".join(texts)


def _guard_filter(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """`plain` (some of Jinja's filters take the environment first) behind the same checks as a method call."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        _check_numbers((*args, *kwargs.values()))
        if name in ("batch", "slice"):
            _check_numbers((*args, *kwargs.values()), MAX_PARTS)
        values = [item for item in args if not isinstance(item, ImmutableSandboxedEnvironment) and type(item).__name__ != "EvalContext"]
        if values:
            _budget.get().items(values[0], FILTER_TURNS)
        if values and isinstance(values[0], str):
            _check_growth(name, values[0], tuple(values[1:]))
        elif name == "join" and values and isinstance(values[0], (list, tuple)):
            glue = len(str(values[1])) if len(values) > 1 else 0
            _budget.get().size(sum(len(str(item)) + glue for item in values[0]))
        return _budget.get().weigh(plain(*args, **kwargs))

    guarded.__dict__.update(getattr(plain, "__dict__", {}))  # Jinja's marks (pass_environment, pass_eval_context) live there
    return guarded


def _check_numbers(values: Iterable[Any], most: int = MAX_NUMBER) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > most:
            raise SecurityError(f"a chat template uses the number {value} where a small one belongs")


def _check_growth(name: str, text: str, args: tuple[Any, ...]) -> None:
    """Refuse, before it is made, a string that the method or filter `name` would blow up."""
    if name in ("format", "format_map", "%") and _WIDE.search(text):
        raise SecurityError("a chat template formats a very wide field")
    if name in ("translate", "maketrans"):
        raise SecurityError(f"a chat template may not use {name}")
    if name == "expandtabs":
        _budget.get().size(len(text) + text.count("\t") * (args[0] if args and isinstance(args[0], int) else 8))
    if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        _budget.get().size(len(text) + text.count(args[0]) * len(args[1]))
    if name == "join" and args and isinstance(args[0], (list, tuple)):
        _budget.get().size(sum(len(str(item)) + len(text) for item in args[0]))
