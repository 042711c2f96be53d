"""A stranger with a socket: whatever bytes come, there is an answer that is no 5xx or a closed door, soon, and everybody else is served."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from engine.server import serving
from engine.server.serving import ApiServer
from tests.engine.made_up_model import PATIENCE, answer
from tests.engine.server.made_up_server import TOKEN, Client, chat_body, open_answers, until

CHAT = "/v1/chat/completions"
HOST = b"Host: 127.0.0.1\r\n"
KEY = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
JSON = b"Content-Type: application/json\r\n"
BODY = json.dumps(chat_body(max_tokens=3)).encode()


def head(method: bytes = b"POST", target: bytes = CHAT.encode(), version: bytes = b"1.1", more: bytes = HOST + KEY + JSON) -> bytes:
    return method + b" " + target + b" HTTP/" + version + b"\r\n" + more


def whole(body: bytes = BODY, **parts: bytes) -> bytes:
    return head(**parts) + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks) + end


def talk(server: ApiServer, sent: bytes, close: bool = True) -> bytes:
    """All that comes back until the server closes; with `close`, no more than one response."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
        sock.sendall(sent)
        told = b""
        while chunk := sock.recv(65536):
            told += chunk
            if close and responses(told):
                break
        return told


def responses(told: bytes) -> list[tuple[int, bytes]]:
    """(status, body) of each response that is whole."""
    found = []
    while told:
        top, gap, rest = told.partition(b"\r\n\r\n")
        lines = top.split(b"\r\n")
        if gap and lines[0].split()[1:2] == [b"100"]:  # go on
            told = rest
            continue
        names = {line.partition(b":")[0].lower(): line.partition(b":")[2].strip() for line in lines[1:]}
        if not gap or b"content-length" not in names or len(rest) < int(names[b"content-length"]):
            break
        length = int(names[b"content-length"])
        found.append((int(lines[0].split()[1]), rest[:length]))
        told = rest[length:]
    return found


def only(server: ApiServer, sent: bytes) -> int:
    """The status of the one response."""
    ((status, _),) = responses(talk(server, sent))
    return status


REFUSED: dict[str, tuple[bytes, set[int]]] = {
    "two lengths": (head() + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456", {400}),
    "a list of lengths": (head() + b"Content-Length: 5, 6\r\n\r\n123456", {400}),
    "a length below nothing": (head() + b"Content-Length: -5\r\n\r\n", {400}),
    "a length with a sign": (head() + b"Content-Length: +5\r\n\r\n12345", {400}),
    "a length beyond all bounds": (head() + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", {400, 413}),
    "a length in other digits": (head() + "Content-Length: ٥\r\n\r\n".encode(), {400}),
    "length and chunks": (head() + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BODY), {400}),
    "chunks and length": (head() + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + chunked(BODY), {400}),
    "another coding": (head() + b"Transfer-Encoding: gzip\r\n\r\n", {400, 501}),
    "codings on codings": (head() + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked(BODY), {400, 501}),
    "chunked twice": (head() + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BODY), {400, 501}),
    "a chunk of no size": (head() + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n", {400}),
    "a chunk below nothing": (head() + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n0\r\n\r\n", {400}),
    "a chunk that is longer than it says": (head() + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n0\r\n\r\n", {400}),
    "two hosts": (whole(more=HOST + HOST + KEY + JSON), {400, 421}),
    "no host": (whole(more=KEY + JSON), {400, 421}),
    "no host in the old tongue": (whole(version=b"1.0", more=KEY + JSON), {400, 421}),
    "a host with a tab": (whole(more=b"Host: 127.0.0.1\tevil\r\n" + KEY + JSON), {400, 421}),
    "a host with a name and a word": (whole(more=b"Host: user:x@127.0.0.1\r\n" + KEY + JSON), {400, 421}),
    "two keys": (whole(more=HOST + KEY + KEY + JSON), {401}),
    "a key in the address": (whole(target=CHAT.encode() + b"?api_key=" + TOKEN.encode(), more=HOST + JSON), {401}),
    "a key in a cookie": (whole(more=HOST + b"Cookie: Authorization=Bearer " + TOKEN.encode() + b"\r\n" + JSON), {401}),
    "a foreign page": (whole(more=HOST + KEY + JSON + b"Origin: https://evil.example\r\n"), {403}),
    "two origins": (whole(more=HOST + KEY + JSON + b"Origin: https://a.example\r\nOrigin: https://b.example\r\n"), {403}),
    "a folded header": (whole(more=HOST + b"X: a\r\n b\r\n" + KEY + JSON + b"Y: a\r\n\tb\r\n"), {200, 400}),
    "a header without a name": (whole(more=HOST + b": x\r\n" + KEY + JSON), {400}),
    "a header with a space before the colon": (whole(more=HOST + b"X-A : b\r\n" + KEY + JSON), {400}),
    "a header with a zero": (whole(more=HOST + b"X: a\x00b\r\n" + KEY + JSON), {400}),
    "ten thousand headers": (whole(more=HOST + KEY + JSON + b"".join(b"X%d: y\r\n" % n for n in range(10_000))), {400, 431}),
    "a long header": (whole(more=HOST + KEY + JSON + b"X: " + b"y" * 33_000 + b"\r\n"), {400, 431}),
    "no version": (b"GET /health\r\n\r\n", {400}),
    "a later version": (whole(version=b"2.0"), {200, 400, 505}),
    "the next protocol": (b"PRI * HTTP/2.0\r\n\r\n", {400, 421, 505}),
    "a proxy's request": (whole(target=b"http://evil.example" + CHAT.encode()), {404}),
    "a tunnel": (head(b"CONNECT", b"evil.example:443", more=HOST + KEY) + b"\r\n", {400, 404, 405}),
    "every path": (head(b"OPTIONS", b"*", more=HOST + KEY) + b"\r\n", {400, 404, 405}),
    "a trace": (head(b"TRACE", b"/health", more=HOST + KEY) + b"\r\n", {405}),
    "a method in small letters": (head(b"get", b"/health", more=HOST + KEY) + b"\r\n", {400, 405}),
    "a method of its own": (head(b"X" * 3000, b"/health", more=HOST + KEY) + b"\r\n", {400, 405}),
    "a way up": (head(b"GET", b"/v1/models/../../../../etc/passwd", more=HOST + KEY) + b"\r\n", {404}),
    "a way up in disguise": (head(b"GET", b"/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", more=HOST + KEY) + b"\r\n", {404}),
    "a way up twice in disguise": (head(b"GET", b"/v1/models/%252e%252e%252fetc%252fpasswd", more=HOST + KEY) + b"\r\n", {404}),
    "a way up of another system": (head(b"GET", b"/v1/models/..%5c..%5cwindows%5cwin.ini", more=HOST + KEY) + b"\r\n", {404}),
    "a zero in the path": (head(b"GET", b"/v1/models/first%00.txt", more=HOST + KEY) + b"\r\n", {404}),
    "no text in the path": (head(b"GET", b"/v1/models/%ff%fe", more=HOST + KEY) + b"\r\n", {404}),
    "raw bytes in the path": (head(b"GET", b"/v1/models/\xff\xfe", more=HOST + KEY) + b"\r\n", {400, 404}),
    "a model that is a path": (whole(json.dumps(chat_body(model="../../../../etc/passwd")).encode()), {404}),
    "a model that is an address": (whole(json.dumps(chat_body(model="http://127.0.0.1:1/v1")).encode()), {404}),
    "a switch to another protocol": (
        head(b"GET", b"/v1/chat/completions", more=HOST + KEY + b"Connection: Upgrade\r\nUpgrade: websocket\r\n") + b"\r\n",
        {400, 405},
    ),
    "deep": (whole(b"[" * 100_000), {400}),
    "deep objects": (whole(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), {400}),
    "a number without an end": (whole(b'{"max_tokens": ' + b"9" * 100_000 + b"}"), {400}),
    "a number that is none": (whole(b'{"temperature": NaN}'), {400}),
    "no text": (whole(b"\xff\xfe{}"), {400}),
    "a mark before it": (whole(b"\xef\xbb\xbf" + BODY), {200, 400}),
    "nothing": (whole(b""), {400}),
    "a body of a page": (whole(more=HOST + KEY + b"Content-Type: text/plain\r\n"), {415}),
    "two kinds": (whole(more=HOST + KEY + JSON + b"Content-Type: text/plain\r\n"), {415}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(server: ApiServer, name: str) -> None:
    sent, statuses = REFUSED[name]
    assert only(server, sent) in statuses
    assert Client(server).chat().status == 200
    until(lambda: open_answers(server) == 0)


TAKEN: dict[str, bytes] = {
    "as clients send it": whole(),
    "in chunks": head() + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BODY[:10], BODY[10:]),
    "in chunks of one byte": head() + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*(bytes([byte]) for byte in BODY)),
    "with a word beside a chunk": head() + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BODY).replace(b"\r\n", b";a=b\r\n", 1),
    "with headers behind it": head() + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BODY, end=b"0\r\nX: y\r\n\r\n"),
    "in the old tongue": whole(version=b"1.0"),
    "with names in any case": whole(more=b"hOsT: LOCALHOST:80\r\n" + KEY.replace(b"Authorization", b"AUTHORIZATION") + JSON),
    "with a kind of more words": whole(more=HOST + KEY + b"Content-Type: Application/JSON; charset=utf-8\r\n"),
    "with the same length twice": head() + 2 * (b"Content-Length: " + str(len(BODY)).encode() + b"\r\n") + b"\r\n" + BODY,
    "with what is asked first": head() + b"Expect: 100-continue\r\nContent-Length: " + str(len(BODY)).encode() + b"\r\n\r\n" + BODY,
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(server: ApiServer, name: str) -> None:
    ((status, body),) = responses(talk(server, TAKEN[name]))
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == answer("user:hi;", 7, 3)


def test_one_behind_the_other_in_one_piece(server: ApiServer) -> None:
    """Pipelined: answered in order, whatever came before."""
    get = head(b"GET", b"/version", more=HOST + KEY) + b"\r\n"
    last = head(b"GET", b"/version", more=HOST + KEY + b"Connection: close\r\n") + b"\r\n"
    wrong = head(b"GET", b"/version", more=HOST) + b"\r\n"
    got = responses(talk(server, get + whole() + wrong + get + whole(b"{}") + last, close=False))
    assert [status for status, _ in got] == [200, 200, 401, 200, 400, 200]


def test_hundreds_of_them_in_one_piece(server: ApiServer) -> None:
    get = head(b"GET", b"/health", more=HOST) + b"\r\n"
    last = head(b"GET", b"/health", more=HOST + b"Connection: close\r\n") + b"\r\n"
    got = responses(talk(server, get * 400 + last, close=False))
    assert [status for status, _ in got] == [200] * 401


def test_nothing_is_smuggled_in_behind_a_refusal(server: ApiServer) -> None:
    """What follows a request that two readers could cut differently is not read as another one."""
    hidden = head(b"GET", b"/v1/models", more=HOST + KEY) + b"\r\n"
    for framing in (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 4\r\nContent-Length: 5\r\n"):
        got = responses(talk(server, head() + framing + b"\r\n0\r\n\r\n" + hidden, close=False))
        assert [status for status, _ in got] == [400]


def test_the_old_tongue_streams_to_the_end_of_the_connection(server: ApiServer) -> None:
    body = json.dumps(chat_body(stream=True, max_tokens=3)).encode()
    told = talk(server, whole(body, version=b"1.0"), close=False)
    top, _, rest = told.partition(b"\r\n\r\n")
    assert b" 200 " in top.split(b"\r\n")[0] and b"chunked" not in top.lower()
    assert rest.endswith(b"data: [DONE]\n\n")


def test_a_refused_body_that_never_comes_is_not_waited_for(server: ApiServer) -> None:
    """With `Expect`, a client waits for a word before it sends: the word is the refusal."""
    asked = head(more=HOST + JSON) + b"Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"
    assert only(server, asked) == 401


def test_a_chunk_larger_than_memory_is_not_waited_for(server: ApiServer) -> None:
    object.__setattr__(server.app._rules, "body_patience_s", 0.2)
    assert only(server, head() + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc") == 408


def test_bytes_that_drip_do_not_keep_a_connection(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The patience is for the whole head, not for each byte of it; in the second request of a connection as in the first."""
    monkeypatch.setattr(serving, "HEAD_PATIENCE_S", 0.3)
    for first in (b"", head(b"GET", b"/health", more=HOST) + b"\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
            sock.sendall(first)
            over = threading.Event()

            def drip(sock: socket.socket = sock, over: threading.Event = over) -> None:
                for byte in head(b"GET", b"/health", more=HOST) * 50:
                    try:
                        sock.sendall(bytes([byte]))
                    except OSError:
                        return
                    if over.wait(0.02):
                        return

            dripping = threading.Thread(target=drip, name="dripping")
            dripping.start()
            try:
                told = b""
                while chunk := sock.recv(65536):
                    told += chunk
            except ConnectionResetError:
                pass
            finally:
                over.set()
                dripping.join()
            assert told.count(b"HTTP/1.1 200") == bool(first)


def test_no_more_connections_than_a_bound(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 20)
    guests = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(20)]
    try:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as late:
            ((status, body),) = responses(b"".join(iter(lambda: late.recv(65536), b"")))
            assert status == 503 and json.loads(body)["error"]["code"] == "too_many_connections"
        guests.pop().close()

        def served() -> bool:
            try:
                return Client(server).chat().status == 200
            except OSError:
                return False

        until(served)
    finally:
        for guest in guests:
            guest.close()
