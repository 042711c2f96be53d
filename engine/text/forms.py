"""Safe chat templates for models that bring none: how the turns of a chat are written down, and where an answer ends.

Plain data, written here and not taken from any model's files. Which one fits a model is seen from its vocabulary: a form whose control
tokens it does not have would be read as ordinary letters. The marks are those that the model families document.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_BOS = "{% if bos_token is defined %}{{ bos_token }}{% endif %}"
EXAMPLE = (
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Italy?"},
)


@dataclass(frozen=True, slots=True)
class ChatForm:
    """One way to write a chat down.

    Attributes:
        key: as it is remembered.
        title, words: for a person.
        source: the template.
        marks: control tokens that the vocabulary must have.
        stop: a text at which an answer ends, where no token says so.
    """

    key: str
    title: str
    words: str
    source: str
    marks: frozenset[str] = frozenset()
    stop: str = ""

    def preview(self) -> str:
        """A short chat in this form, up to where the next answer begins."""
        from engine.text.template import ChatTemplate  # needs Jinja, which the launcher's Python does not have

        return ChatTemplate(self.source).render(EXAMPLE, add_generation_prompt=True)


CHATML = ChatForm(
    "chatml",
    "ChatML",
    "What Qwen, SmolLM and many fine-tuned models were taught.",
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    frozenset({"<|im_start|>", "<|im_end|>"}),
)
LLAMA = ChatForm(
    "llama",
    "Llama 3",
    "What Llama 3 and models made of it were taught.",
    _BOS + "{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    frozenset({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}),
)
GEMMA = ChatForm(
    "gemma",
    "Gemma",
    "What Gemma models that follow instructions were taught. It knows no system role: instructions stand before the first question.",
    _BOS + "{% set ns = namespace(said='') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.said = m.content + '\n\n' %}"
    "{% else %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' + ns.said + m.content + '<end_of_turn>\n' }}"
    "{% set ns.said = '' %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    frozenset({"<start_of_turn>", "<end_of_turn>"}),
)
PLAIN = ChatForm(
    "plain",
    "Plain lines",
    "User: and Assistant:, in plain letters. For base models, which were taught no chat; any model can read it.",
    _BOS + "{% for m in messages %}"
    "{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}{{ 'User: ' + m.content }}"
    "{% else %}{{ 'Assistant: ' + m.content }}{% endif %}{{ '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
    stop="\n\nUser:",  # without control tokens a model does not know where its answer ends
)
FORMS = (CHATML, LLAMA, GEMMA, PLAIN)


def form_named(key: str) -> ChatForm | None:
    return next((form for form in FORMS if form.key == key), None)


def fitting(vocabulary: Iterable[str]) -> tuple[ChatForm, ...]:
    """The forms whose control tokens a vocabulary has; the last one is always among them."""
    known = set(vocabulary)
    return tuple(form for form in FORMS if form.marks <= known)


def default_of(vocabulary: Iterable[str]) -> ChatForm:
    """What is used until somebody chooses: ChatML where the vocabulary has it. Other marks may stand in a base model's vocabulary, too,
    which was never taught them."""
    return CHATML if CHATML in fitting(vocabulary) else PLAIN
