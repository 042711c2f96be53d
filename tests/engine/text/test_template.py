"""The sandbox of chat templates: what real templates use works, and nothing a hostile one does gets out, up or forever on."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from engine.text.template import MAX_SECONDS, ChatTemplate, TemplateFailed

HELLO = [{"role": "user", "content": "Hello"}]


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source, variables).render(HELLO, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}{{ loop.index0 }}{{ m['role'] }}{{ m.content }}{{ loop.last }}{% endfor %}", "0userHelloTrue"),
        ("{% if add_generation_prompt %}\n  {{- 'go' }}\n{% endif %}", "go\n"),
        ("{{ bos_token + 'x' }}", "<s>x"),
        ("{{ 'a' ~ 1 ~ none }}", "a1None"),
        ("{% set ns = namespace(found=false) %}{% for m in messages %}{% set ns.found = true %}{% endfor %}{{ ns.found }}", "True"),
        ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% if not loop.last %},{% endif %}{% endfor %}", "a1,b2"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ ['a', 'b'] | join(', ') }} {{ ' x '.strip() }} {{ 'abc'[::-1] }} {{ 'a-b' | replace('-', '+') }}", "a, b x cba a+b"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "Hello"),
        ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "013"),
        ("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"),
        ("{% if tools is none and missing is not defined %}ok{% endif %}", "ok"),
        ("{% for part in 'a|b'.split('|') %}{{ part | upper | trim }}{% endfor %}{{ '%s!' | format('x') }}", "ABx!"),
        ("{% set x = dict(a=1) %}{{ x.a + 41 }}", "42"),
    ],
)
def test_what_templates_use(source: str, text: str) -> None:
    assert render(source, bos_token="<s>") == text


def test_the_clock_is_given() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2031, 5, 6))
    assert template.render(HELLO, add_generation_prompt=False) == "06 May 2031"


def test_refusal_says_why() -> None:
    with pytest.raises(TemplateFailed, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize("source", ["{% for x in y %}", "{{ 1 +", "{% nonsense %}", "{{ 'a' | nofilter }}"])
def test_broken_source(source: str) -> None:
    with pytest.raises(TemplateFailed):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'content': 'x'}) }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns.__dict__ = 1 %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_no_way_out(source: str) -> None:
    with pytest.raises(TemplateFailed):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ dict.__class__.__mro__[0] }}",
        "{{ self.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ 'x'.format.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}",
    ],
)
def test_private_names_lead_nowhere(source: str) -> None:
    try:
        text = render(source)
    except TemplateFailed:
        return
    assert text == ""


DOUBLE = "{{% set ns = namespace(x='12345678') %}}{{% for i in range(80) %}}{{% set ns.x = {} %}}{{% endfor %}}{{{{ ns.x }}}}"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999999999) %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        DOUBLE.format("ns.x ~ ns.x"),
        DOUBLE.format("ns.x + ns.x"),
        DOUBLE.format("ns.x * 2"),
        DOUBLE.format("[ns.x, ns.x] | join"),
        DOUBLE.format("ns.x.replace('1', '11111111')"),
        DOUBLE.format("ns.x | replace('1', '11111111')"),
        DOUBLE.format("[ns.x, ns.x] | tojson"),
        "{{ 'a' * 10 ** 9 }}",
        "{{ 10 ** 10 ** 9 }}",
        "{{ '%0999999999d' % 3 }}",
        "{{ '%0*d' % (999999999, 3) }}",
        "{{ '%0999999999d' | format(3) }}",
        "{{ '{:>999999999}'.format(3) }}",
        "{{ 'a'.center(999999999) }}",
        "{{ 'a' | center(999999999) }}",
        "{{ 'a\nb' | indent(999999999) }}",
        "{{ (['a' * 1000000] * 100000) | join }}",
        "{{ ''.join(['a' * 1000000] * 100000) }}",
        "{{ [1] | tojson(indent=999999999) }}",
        "{{ lipsum(n=100000) }}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% for i in range(9999) %}{{ range(99999) | list | sort | length }}{% endfor %}",
        "{% for i in range(9999) %}{{ range(99999) | sum }}{% endfor %}",
        "{% for i in range(999) %}{{ range(99999) | groupby('real') | length }}{% endfor %}",
        "{{ [1] | slice(1000000) | list }}",
        "{{ [1] | batch(1000000, 'x') | list }}",
        "{% set ns = namespace(x=9) %}{% for i in range(90) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        "{% for i in range(99999) %}{{ ('a ' * 1000000) | title | length }}{% endfor %}",
        "{% for i in range(99999) %}{{ ('a ' * 1000000).split() | length }}{% endfor %}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(40) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(40) %}{% set ns.x = {1: ns.x, 2: ns.x} %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(40) %}{% set ns.x = [ns.x] * 2 %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(40) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x }}",
        "{{ ('a' * 1000000).translate({97: 'b' * 1000000}) }}",
        "{{ ('\t' * 100000).expandtabs(100000) }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
        "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "{{ " + " ~ ".join(["'a'"] * 50000) + " }}",
    ],
)
def test_limits(source: str) -> None:
    """Each ends with one sentence. That it ends soon is a matter of turns and sizes; the seconds only say that nothing was forgotten."""
    before = time.thread_time()
    with pytest.raises(TemplateFailed) as caught:
        render(source)
    assert str(caught.value) and "Traceback" not in str(caught.value)
    assert time.thread_time() - before < 3 * MAX_SECONDS


def test_deadline() -> None:
    ticks = iter(range(10_000))
    template = ChatTemplate("{% for i in range(1000) %}{% endfor %}", clock=lambda: float(next(ticks)))
    with pytest.raises(TemplateFailed, match="end"):
        template.render(HELLO, add_generation_prompt=True)


def test_long_chats_fit() -> None:
    """The limit on text grows with the chat: a pasted book is no attack."""
    content = "word " * 2_000_000
    template = ChatTemplate("{% for m in messages %}{{ m.content ~ '!' }}{% endfor %}")
    assert template.render([{"role": "user", "content": content}], add_generation_prompt=False) == content + "!"


def test_one_rendering_does_not_eat_anothers_budget() -> None:
    template = ChatTemplate("{% for i in range(90000) %}{% endfor %}{{ messages[0].content }}")
    assert [template.render(HELLO, add_generation_prompt=False) for _ in range(8)] == ["Hello"] * 8


def test_messages_are_not_changed() -> None:
    messages = [{"role": "user", "content": "a"}]
    ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}").render(messages, add_generation_prompt=False)
    assert messages == [{"role": "user", "content": "a"}]
