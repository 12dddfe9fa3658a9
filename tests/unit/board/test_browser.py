"""The board in a real browser, as a user sees it."""

import json
import shutil
from threading import Thread

import pytest

from slm_lab.board import app
from tests.unit.records.runs import write_ended, write_run

PROGRAMS = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
MISSING = [name for name, place in PROGRAMS.items() if place is None]
HOSTILE = "<img src=x onerror=document.title='owned'>"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING), reason=f"no {' and no '.join(MISSING)} on this machine"
    ),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def address(tmp_path, monkeypatch):
    """Of the board of `tmp_path`, whose pages refresh every half second."""
    monkeypatch.setattr(app, "REFRESH_SECONDS", 0.5)
    monkeypatch.setattr("slm_lab.board.refresh.SHARE", float("inf"))
    server, address = app.make_board(tmp_path, 0)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield address
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def browser(tmp_path_factory):
    """Chromium, without a window."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = PROGRAMS["chromium"]
    profile = tmp_path_factory.mktemp("profile")
    for each in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "window-size=1280,1000",
        "disable-background-networking",
        f"user-data-dir={profile}",
    ):
        options.add_argument(f"--{each}")
    service = webdriver.ChromeService(PROGRAMS["chromedriver"])
    with webdriver.Chrome(options=options, service=service) as found:
        yield found


def _until(browser, script):
    """What a script returns as soon as that is true."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, 60).until(
        lambda page: page.execute_script(f"return {script}")
    )


def _set_width(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_runs_are_ticked_and_drawn_over_each_other(tmp_path, address, browser):
    for name in ("one", "two"):
        write_ended(tmp_path, name)
    browser.get(address)
    _until(browser, "document.querySelectorAll('.ag-row[row-id]').length >= 2")
    assert "done" in browser.page_source
    for row in (0, 1):
        box = (
            f'document.querySelector(\'.ag-row[row-index="{row}"] '
            "input[type=checkbox]')"
        )
        _until(browser, box).click()
        _until(browser, f"location.search.split('runs=').length == {row + 2}")
    _until(
        browser,
        "document.querySelectorAll('.js-plotly-plot .scatterlayer .trace').length >= 2",
    )
    _until(browser, "document.body.innerText.includes('Differences of the specs')")


@pytest.mark.parametrize("width", [420, 1280])
def test_the_return_is_seen_without_scrolling(width, tmp_path, address, browser):
    write_ended(tmp_path, "a_spec_with_a_long_name")
    _set_width(browser, width)
    browser.get(address)
    cell = "document.querySelector('.ag-row [col-id=\"final_return\"]')"
    _until(browser, f"{cell} && {cell}.innerText == '12.5 ± 0.500'")
    _until(browser, f"{cell}.getBoundingClientRect().right <= {width}")
    _until(browser, f"{cell}.scrollWidth <= {cell}.clientWidth")
    browser.save_screenshot(str(tmp_path / f"board_{width}.png"))


def test_long_names_are_whole_on_a_narrow_screen(tmp_path, address, browser):
    for number in (1, 2):
        write_ended(
            tmp_path, f"my_long_experiment_with_a_learning_rate_of_0003_{number}"
        )
    _set_width(browser, 420)
    browser.get(address)
    cells = "[...document.querySelectorAll('.ag-row [col-id=\"run\"]')]"
    _until(browser, f"{cells}.length == 2")
    _until(browser, f"{cells}.every(c => c.scrollWidth <= c.clientWidth)")
    grid = "document.querySelector('.ag-root').getBoundingClientRect().bottom"
    _until(browser, f"{cells}.every(c => c.getBoundingClientRect().bottom <= {grid})")
    browser.save_screenshot(str(tmp_path / "board_names.png"))


def test_a_curve_grows_while_its_page_is_open(tmp_path, address, browser):
    run = write_run(tmp_path)
    rows = run.session(0, 0).rows
    *lines, last = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(lines))
    browser.get(f"{address}run?run={run.root.name}")
    graph = "document.querySelector('.js-plotly-plot:has(.trace)')"
    ends = f"{graph} && Math.max(...{graph}._fullData.flatMap(line => [...line.x]))"
    drawn = _until(browser, ends)
    with rows.open("a") as file:
        file.write(last)
    _until(browser, f"({ends}) > {drawn}")


def test_a_hostile_name_stays_text(tmp_path, address, browser):
    run = write_ended(tmp_path, "small", note=HOSTILE)
    content = json.loads(run.spec_file.read_text())
    run.spec_file.write_text(json.dumps({HOSTILE: content.pop("small"), **content}))
    hostile = run.root.rename(tmp_path / HOSTILE.replace("/", ""))
    for path in ("", f"run?run={hostile.name}", f"?runs={hostile.name}"):
        browser.get(address + path)
        _until(browser, f"document.body.innerText.includes({json.dumps(HOSTILE)})")
        assert not browser.execute_script(
            "return document.querySelector('main img[src=x]')"
        )
        assert browser.title == "slm-lab board"
