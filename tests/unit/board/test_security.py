"""Which requests the server of the board answers."""

import copy
import json
import random
import signal
import socket
import subprocess
from threading import Thread
from urllib.parse import urlsplit

import pytest

from slm_lab.board import security
from slm_lab.board.app import HOST, make_app, make_board
from tests.faults.lab import LAB
from tests.unit.records.runs import write_run

OWN = {"Host": "127.0.0.1:8050"}


@pytest.fixture
def asked(tmp_path):
    """Asks the server of a data folder."""
    write_run(tmp_path / "data")
    return make_app(tmp_path / "data").server.test_client()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8050"}, 200),
        ({"Host": "localhost:8050"}, 200),
        ({"Host": "[::1]:8050"}, 200),
        ({"Host": "evil.example:8050"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({**OWN, "Sec-Fetch-Site": "same-origin"}, 200),
        ({**OWN, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**OWN, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
    ],
)
def test_pages_are_for_browsers_that_ask_this_machine_by_its_name(
    asked, headers, status
):
    assert asked.get("/", headers=headers).status_code == status


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:9999", "null"]
)
def test_another_origin_cannot_call_back(asked, origin):
    post = asked.post(
        "/_dash-update-component", json={}, headers={**OWN, "Origin": origin}
    )
    assert post.status_code == 403


def test_pages_run_only_scripts_of_the_server(asked):
    policy = asked.get("/", headers=OWN).headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == "'none'"
    assert "'self'" in rules["script-src"]
    assert "'unsafe-inline'" not in rules["script-src"]
    assert "http" not in policy


def test_a_page_of_a_run_is_alone(asked, tmp_path):
    (tmp_path / "data" / "page.html").write_text("<p>")
    with asked.get("/files/page.html", headers=OWN) as answer:
        rules = answer.headers["Content-Security-Policy"]
    assert "sandbox" in rules
    assert "allow-same-origin" not in rules
    assert "connect-src" not in rules
    assert "http" not in rules


def test_nothing_outside_the_data_folder_is_served(asked, tmp_path):
    data, secret = tmp_path / "data", tmp_path / "secret.json"
    hidden = data / ".git" / "config.json"
    hidden.parent.mkdir()
    for file in (
        secret,
        hidden,
        data / ".hidden.json",
        data / "weights.pt",
        data / "good.json",
    ):
        file.write_text("the content")
    (data / "link.json").symlink_to(secret)
    (data / "folder").symlink_to(tmp_path)

    def is_given(path):
        with asked.get(f"/files/{path}", headers=OWN) as answer:
            return "the content" in answer.get_data(as_text=True)

    assert is_given("good.json")
    for path in (
        "link.json",
        "folder/secret.json",
        "../secret.json",
        "%2e%2e/secret.json",
        str(secret),
        ".hidden.json",
        ".git/config.json",
        "weights.pt",
        "folder",
        "a%00.json",
    ):
        assert not is_given(path), path


@pytest.mark.parametrize(
    "path", ["a" * 5000, "a" * 5000 + ".json", "x/" * 2500 + "a.json"]
)
def test_a_path_that_is_too_long_is_not_found(asked, path):
    assert asked.get(f"/files/{path}", headers=OWN).status_code == 404


CALL = {
    "output": "page.children",
    "outputs": {"id": "page", "property": "children"},
    "inputs": [{"id": "url", "property": "pathname", "value": "/"}],
    "changedPropIds": ["url.pathname"],
    "state": [{"id": "url", "property": "search", "value": ""}],
}
JUNK = [None, 1, "x", [], {}, [1], {"a": 1}, "..page.children..", -1e9, True]


def spoilt(generator):
    """The call of a page with some values replaced by others."""
    call = copy.deepcopy(CALL)
    for _ in range(generator.randint(1, 3)):
        block = generator.choice(
            [call, *call.get("inputs", []), *call.get("state", [])]
        )
        block[generator.choice([*block])] = copy.deepcopy(generator.choice(JUNK))
        if not all(isinstance(call[key], list) for key in ("inputs", "state")):
            break
        if not all(
            isinstance(each, dict) and each
            for key in ("inputs", "state")
            for each in call[key]
        ):
            break
    return json.dumps(call)


def test_a_call_that_no_page_makes_is_a_bad_request_without_a_word(
    asked, capfd, caplog
):
    """The whole call is answered; a spoilt one too, or it is refused."""

    def code(content):
        kind = {**OWN, "Content-Type": "application/json"}
        return asked.post(
            "/_dash-update-component", data=content, headers=kind
        ).status_code

    assert code(json.dumps(CALL)) == 200
    generator = random.Random(0)
    calls = [spoilt(generator) for _ in range(200)]
    codes = [code(call) for call in [*calls, "", "{", "null", "[]", "1"]]
    assert set(codes) <= {200, 204, 400, 404}
    assert codes.count(400) > 100
    assert (capfd.readouterr(), caplog.messages) == (("", ""), [])


@pytest.fixture
def port(tmp_path):
    """That of a running board."""
    (tmp_path / "data").mkdir()
    server, address = make_board(tmp_path / "data", 0)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield urlsplit(address).port
    server.shutdown()
    thread.join()
    server.server_close()


def connected(port):
    return socket.create_connection((HOST, port), timeout=30)


def test_one_connection_too_many_closes_the_oldest(port, monkeypatch):
    monkeypatch.setattr(security, "MOST_CONNECTIONS", 4)
    slow = [connected(port) for _ in range(6)]
    try:
        assert [each.recv(1) for each in slow[:2]] == [b"", b""]
        slow[-1].sendall(f"GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
        assert slow[-1].recv(12) == b"HTTP/1.1 200"
    finally:
        for each in slow:
            each.close()


def test_a_connection_that_sends_nothing_is_closed(port, monkeypatch):
    monkeypatch.setattr(security._Handler, "timeout", 0.05)
    with connected(port) as idle:
        assert idle.recv(1) == b""


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_board_exits_as_its_help_says(number, tmp_path):
    words = [str(LAB), "board", str(tmp_path), "--port", "0", "--no-open"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as board:
        assert "Ctrl-C ends it" in board.stdout.readline()
        board.send_signal(number)
        _, err = board.communicate(timeout=60)
    assert (board.returncode, err) == (130, "stopped\n")
    assert (
        subprocess.run(
            [*words[:2], "--port", "-1"], capture_output=True, check=False
        ).returncode
        == 2
    )
