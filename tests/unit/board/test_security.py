"""Which requests the server of the board answers."""

import pytest

from slm_lab.board.app import make_app
from tests.unit.experiment.runs import write_run

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
def test_pages_are_for_browsers_that_ask_this_machine_by_its_name(asked, headers, status):
    assert asked.get("/", headers=headers).status_code == status


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9999", "null"])
def test_another_origin_cannot_call_back(asked, origin):
    post = asked.post("/_dash-update-component", json={}, headers={**OWN, "Origin": origin})
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
    for file in (secret, hidden, data / ".hidden.json", data / "weights.pt", data / "good.json"):
        file.write_text("the content")
    (data / "link.json").symlink_to(secret)
    (data / "folder").symlink_to(tmp_path)

    def is_given(path):
        with asked.get(f"/files/{path}", headers=OWN) as answer:
            return "the content" in answer.get_data(as_text=True)

    assert is_given("good.json")
    for path in (
        "link.json", "folder/secret.json", "../secret.json", "%2e%2e/secret.json", str(secret),
        ".hidden.json", ".git/config.json", "weights.pt", "folder", "a%00.json",
    ):  # fmt: skip
        assert not is_given(path), path
