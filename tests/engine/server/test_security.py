"""Who gets in. The routes are taken from the application, so that a new one is tried as well."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine import Engine, EngineError
from engine.server import access
from engine.server.access import TokenCheck, is_strong, stored_token
from engine.server.serving import ApiServer, check_policy, resolve
from tests.engine.made_up_model import PATIENCE
from tests.engine.server.made_up_server import TOKEN, Answer, Client, chat_body, make_server

GOOD_ORIGIN = "https://chat.example"
ATTACKS: dict[str, tuple[dict[str, str], set[int]]] = {
    "no token": ({"Authorization": ""}, {401}),
    "a wrong token": ({"Authorization": "Bearer " + "x" * len(TOKEN)}, {401}),
    "the beginning of the token": ({"Authorization": "Bearer " + TOKEN[:-1]}, {401}),
    "another scheme": ({"Authorization": "Basic " + TOKEN}, {401}),
    "the token alone": ({"Authorization": TOKEN}, {401}),
    "a foreign host": ({"Host": "evil.example"}, {421}),
    "a foreign host with a port": ({"Host": "evil.example:80"}, {421}),
    "a host that begins like ours": ({"Host": "localhost.evil.example"}, {421}),
    "a host like an address": ({"Host": "127.0.0.1.evil.example"}, {421}),
    "another address": ({"Host": "192.168.0.7"}, {421}),
    "no sound host": ({"Host": "localhost:80@evil.example"}, {421}),
    "a foreign origin": ({"Origin": "https://evil.example"}, {403}),
    "the null origin": ({"Origin": "null"}, {403}),
    "a local page": ({"Origin": "http://localhost:3000"}, {403}),
    "an origin like a good one": ({"Origin": GOOD_ORIGIN + ".evil.example"}, {403}),
    "a page without an origin": ({"Sec-Fetch-Site": "cross-site"}, {403}),
}


def routes(server: ApiServer) -> list[tuple[str, str]]:
    """(method, path) of everything there is, and of something that is not there."""
    paths = [(method, route.path.replace("{model:path}", "first")) for route in server.app.routes for method in sorted(route.methods)]  # type: ignore[attr-defined]
    assert len(paths) >= 10
    return [*paths, ("GET", "/nowhere"), ("POST", "/nowhere")]


def ask(client: Client, method: str, path: str, headers: dict[str, str]) -> Answer:
    own = {"max_output_tokens": 4} if path == "/v1/responses" else {**chat_body(), "prompt": "abc", "tokens": [97]}
    body: Any = {"input": "abc", **own} if method == "POST" else None
    return client.call(method, path, body, headers)


@pytest.mark.parametrize("name", ATTACKS)
def test_nobody_else_gets_in_anywhere(client: Client, server: ApiServer, name: str) -> None:
    headers, statuses = ATTACKS[name]
    for method, path in routes(server):
        got = ask(client, method, path, headers)
        if path == "/health" and 401 in statuses:
            assert got.status == 200 and method == "HEAD" or got.json == {"status": "ok"}, "a stranger learns no more than that"
            continue
        assert got.status in statuses, (method, path)
        assert not [key for key in got.headers if key.lower().startswith("access-control")]
        assert method == "HEAD" or "error" in got.json


def test_with_everything_right_they_do(client: Client, server: ApiServer) -> None:
    for method, path in routes(server):
        if path != "/nowhere":
            for host in (f"127.0.0.1:{server.port}", "localhost", "[::1]:80", "LOCALHOST:99"):
                assert ask(client, method, path, {"Host": host}).status == 200, (method, path, host)


def test_no_cross_origin_headers_by_default(client: Client, server: ApiServer) -> None:
    for method, path in routes(server):
        assert not [key for key in ask(client, method, path, {}).headers if key.lower().startswith("access-control")]
        preflight = {"Origin": GOOD_ORIGIN, "Access-Control-Request-Method": method}
        got = client.call("OPTIONS", path, None, preflight)
        assert got.status == 403 and not [key for key in got.headers if key.lower().startswith("access-control")]
    assert client.call("OPTIONS", "/v1/models").status == 405


def test_a_listed_origin_may(engine: Engine) -> None:
    server = make_server(engine, origins=[GOOD_ORIGIN])
    try:
        client = Client(server)
        got = client.call("GET", "/v1/models", None, {"Origin": GOOD_ORIGIN, "Sec-Fetch-Site": "cross-site"})
        assert (got.status, got.headers["Access-Control-Allow-Origin"]) == (200, GOOD_ORIGIN)
        stranger = Client(server, token=None)
        asked = {"Origin": GOOD_ORIGIN, "Access-Control-Request-Method": "POST"}
        assert stranger.call("OPTIONS", "/v1/chat/completions", None, asked).status == 204
        assert stranger.call("GET", "/v1/models", None, {"Origin": GOOD_ORIGIN}).status == 401
        assert client.call("GET", "/v1/models", None, {"Origin": "https://other.example"}).status == 403
    finally:
        assert server.stop(PATIENCE)


@pytest.fixture
def open_server(engine: Engine) -> Iterator[ApiServer]:
    server = make_server(engine, token=None)
    yield server
    assert server.stop(PATIENCE)


def test_without_a_token_web_pages_stay_out(open_server: ApiServer) -> None:
    client = Client(open_server, token=None)
    assert client.chat().status == 200
    for headers, statuses in ATTACKS.values():
        if 401 not in statuses:
            assert (
                client.call("GET", "/v1/models", None, {key: value.replace("{port}", "1") for key, value in headers.items()}).status
                in statuses
            )
    assert client.call("POST", "/v1/chat/completions", b"{}", {"Content-Type": "text/plain"}).status == 415


def test_twice_the_same_header_is_none(client: Client) -> None:
    for name, value in (("Authorization", f"Bearer {TOKEN}"), ("Host", "localhost")):
        connection = client.connect()
        connection.putrequest("GET", "/v1/models", skip_host=True)
        for key, given in (("Host", "localhost"), ("Authorization", f"Bearer {TOKEN}"), (name, value)):
            connection.putheader(key, given)
        connection.endheaders()
        assert connection.getresponse().status in (400, 401)
        connection.close()


# ------------------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.9"])
def test_this_machine_needs_no_token(host: str) -> None:
    check_policy(host, resolve(host)[2], None)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_other_machines_need_a_strong_one(engine: Engine, host: str) -> None:
    assert not resolve(host)[2]
    for token, code in ((None, "needs_token"), ("short", "weak_token"), ("a" * 40, "weak_token"), ("with space " * 4, "bad_token")):
        with pytest.raises(EngineError) as caught:
            ApiServer(engine, token, host=host)
        assert caught.value.code == code
    check_policy(host, False, access.secrets.token_urlsafe(access.BYTES))


def test_on_an_open_address_names_must_be_listed(engine: Engine) -> None:
    server = make_server(engine, host="0.0.0.0", hosts=["Box.example"])
    try:
        client = Client(server)
        for host, status in (("192.0.2.7:99", 200), ("box.example", 200), ("[2001:db8::1]", 200), ("evil.example", 421)):
            assert client.call("GET", "/v1/models", None, {"Host": host}).status == status
    finally:
        assert server.stop(PATIENCE)


def test_a_taken_port_is_told(engine: Engine, server: ApiServer) -> None:
    with pytest.raises(EngineError) as caught:
        make_server(engine, port=server.port)
    assert caught.value.code == "no_port" and str(server.port) in caught.value.message


def listening() -> list[Any]:
    return [item.laddr for item in psutil.Process().net_connections("inet") if item.status == psutil.CONN_LISTEN]


def test_nothing_listens_before_and_after(engine: Engine) -> None:
    before = listening()
    server = ApiServer(engine, TOKEN)
    assert listening() == before
    server.start()
    assert [address for address in listening() if address not in before] == [("127.0.0.1", server.port)]
    assert server.stop(PATIENCE) and server.stop(PATIENCE)
    assert listening() == before


# ----------------------------------------------------------------------------------------------------------------- token


def test_the_token_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    path = tmp_path / "data" / "api-token"
    token = stored_token(path)
    assert len(token) >= 43 and is_strong(token) and stored_token(path) == token
    assert stored_token(tmp_path / "other") != token
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [item.name for item in path.parent.iterdir()] == ["api-token"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api-token"
    token = stored_token(path)
    path.chmod(0o644)
    assert stored_token(path) != token and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_token_file_is_told_and_not_trusted(tmp_path: Path) -> None:
    for text in ("", "two words", "x" * 5000 + " y"):
        path = tmp_path / "api-token"
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(EngineError) as caught:
            stored_token(path)
        assert caught.value.code == "no_token"


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("somebody-elses-secret-0123456789")
    (tmp_path / "api-token").symlink_to(tmp_path / "secret")
    with pytest.raises(EngineError):
        stored_token(tmp_path / "api-token")


def test_the_check_takes_one_right_header_only() -> None:
    check = TokenCheck("secret")
    assert check.accepts([b"Bearer secret"]) and check.accepts([b"bearer  secret"])
    for wrong in ([], [b""], [b"secret"], [b"Bearer"], [b"Bearer secret", b"Bearer secret"], [b"Bearer Secret"], [b"Basic secret"]):
        assert not check.accepts(wrong)
    assert "secret" not in repr(check)
