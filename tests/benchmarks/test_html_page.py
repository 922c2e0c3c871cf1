"""The page in a real browser: Chromium without a window, driven over the pipe of its DevTools protocol."""

import fcntl
import json
import os
import select
import shutil
import subprocess

import numpy as np
import pytest

from vmsst_jax.benchmarks import html_report

pytestmark = pytest.mark.browser
PATIENCE = 60  # seconds for an answer
LANGUAGES = "afr amh ara ben cmn deu ell eus fra hin jpn kat kor mal rus swh tam tha tur war yid".split()
WIDTHS = (320, 390, 1280)


class Browser:
    """One tab of Chromium; ``events`` are what it reported by itself."""

    def __init__(self, folder):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        assert program, "there is no Chromium here; install it (Debian: apt install chromium) or use `make test`"
        (read_end, self._to), (self._from, write_end) = os.pipe(), os.pipe()
        # Chromium reads from 3 and writes to 4, numbers that our own pipes may have as well.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 50) for end in (read_end, write_end)]
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")
        self._process = subprocess.Popen(
            [program, *flags, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=lambda: [os.dup2(end, number) for number, end in enumerate(ends, 3)],
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (read_end, write_end, *ends):
            os.close(end)
        self._asked, self._unread, self._session, self.events = 0, b"", {}, []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method, **parameters):
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": parameters, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._asked:
            self.events.append(answer)
        assert "result" in answer, answer
        return answer["result"]

    def _next(self):
        while b"\0" not in self._unread:
            assert select.select([self._from], [], [], PATIENCE)[0], f"no answer from Chromium in {PATIENCE} s"
            read = os.read(self._from, 1 << 20)
            assert read, "Chromium has gone"
            self._unread += read
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width, **media):
        self("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 500)
        self("Emulation.setEmulatedMedia", **media)
        self.events.clear()
        self("Page.navigate", url=path.as_uri())
        while not self.reported("Page.loadEventFired"):
            self.events.append(self._next())

    def reported(self, *methods):
        return [event for event in self.events if event.get("method") in methods]

    def evaluate(self, code):
        answer = self("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def close(self):
        self("Browser.close")
        self._process.wait(PATIENCE)
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


def model_result(model, shift, benchmark="tatoeba"):
    rng = np.random.default_rng(0)
    rows = {code: {"pairs": 1000, "seen": True, "score": float(rng.uniform(0.3, 0.8)) + shift} for code in LANGUAGES}
    rows["war"]["score"] = None
    plane = rng.normal(size=(2, 50, 2)).round(3).tolist()
    return {
        "benchmark": benchmark,
        "data": {"directory": "data", "sha256": "0f" * 32, "sentences": 123456},
        "split": "test",
        "direction": ["xx->en"] * 30,
        "scoring": "accuracy: nearest neighbour by cosine " * 5,
        "index": {"kind": "exact", "recall": 1.0},
        "scores": ["score"],
        "per_language": rows,
        "means": {"all": {"languages": len(rows), "score": 0.5 + shift}},
        "model": {"name": model, "fingerprint": model * 3, "directory": "/a/folder/with/a/long/name" * 8},
        "figures": [
            {"kind": "lines", "title": f"by layer {model}", "series": {"a": [[i, i * i] for i in range(13)]}},
            {"kind": "histogram", "title": "cosines", "edges": [0, 1, 2], "series": {"a": [1, 2], "b": [2, 1]}},
            {"kind": "scatter", "title": "plane", "groups": {"de": plane[0], "en": plane[1]}},
            {"kind": "bars", "title": "bars", "bars": {"a name that is longer than all others " * 2: 3, "中文": 1}},
        ],
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    names = ["ours", "a_name_without_any_space_that_is_quite_long_indeed_v1.2.3", "نموذج", "<script>alert(1)</script>"]
    results = [model_result(name, -0.05 * i) for i, name in enumerate(names)]
    results.append(model_result("ours", 0.1, "psm"))
    path = tmp_path_factory.mktemp("page") / "report.html"
    reasons = {"missing": {"ours x bucc": "ValueError: /a/very/long/path" + "/of/a/file" * 30}}
    html_report.write_page(path, results, summary={"columns": [], "rows": {}, **reasons})
    return path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("opened", [False, True])
def test_no_errors_nothing_fetched_nothing_beyond_the_edge(browser, page, width, opened):
    browser.open(page, width)
    if opened:
        browser.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """Array.from(document.querySelectorAll("body *"))
        .filter((e) => !e.parentElement.closest(".scroll, figure > svg"))
        .map((e) => [e.tagName, e.className, e.getBoundingClientRect().right])
        .filter((e) => e[2] > document.documentElement.clientWidth + 1)"""
    assert browser.evaluate(beyond) == []
    assert browser.reported("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    fetched = [event["params"]["request"]["url"] for event in browser.reported("Network.requestWillBeSent")]
    assert fetched == [page.as_uri()]


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_and_figures_are_seen(browser, page, width):
    browser.open(page, width)

    def boxes(selector):
        found = f"Array.from(document.querySelectorAll({json.dumps(selector)})).map((e) => e.getBoundingClientRect())"
        return browser.evaluate(f"{found}.map((box) => [box.width, box.height])")

    seen = boxes("main > section > .scroll > table")
    assert len(seen) == 1 + 3 + 3 and min(min(table) for table in seen) > 40
    figures = boxes("figure > svg[role=img]")
    # Family and script, for four models and one; the curves have titles of their own, so each its figure.
    assert len(figures) == 2 * 2 + 5 * 4
    assert min(w for w, _ in figures) > 250 and min(h for _, h in figures) > 50
    # The letters' own size, as a box's height is of the machine's fonts.
    sizes = """Array.from(document.querySelectorAll("figure svg text"))
        .map((e) => parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getScreenCTM().a)"""
    assert min(browser.evaluate(sizes)) > (7 if width < 390 else 8.5)


def test_a_click_sorts(browser, page):
    browser.open(page, 1280)
    table = "document.querySelector('#b0 > .scroll table.sortable')"
    column = f"Array.from({table}.tBodies[0].rows).map((row) => row.cells[%d].innerText)"
    heading = f"{table}.tHead.rows[0].cells[%d]"

    def click(i):
        browser.evaluate(f"{heading % i}.querySelector('button').click()")
        return browser.evaluate(column % i), browser.evaluate(f"{heading % i}.ariaSort")

    before = browser.evaluate(column % 2)
    assert before[-1] == "–" and before[:-1] == sorted(before[:-1], key=float, reverse=True)
    names, order = click(1)
    assert names == sorted(names) and len(names) == len(LANGUAGES) and order == "ascending"
    names, order = click(1)
    assert names == sorted(names, reverse=True) and order == "descending"
    assert click(2) == (before, "descending")
    rising, order = click(2)
    assert rising == [*reversed(before[:-1]), "–"] and order == "ascending"
    assert browser.evaluate(f"{table}.querySelectorAll('th[aria-sort]').length") == 1


def test_dark_and_print(browser, page):
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.open(page, 1280, features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.evaluate(ground) != "rgb(255, 255, 255)"
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.open(page, 680, media="print", features=dark)  # A4 less its margins
    assert browser.evaluate(ground) == "rgb(255, 255, 255)"
    shown = "Array.from(document.querySelectorAll('main table')).filter((table) => table.offsetParent)"
    widths = browser.evaluate(f"{shown}.map((table) => [table.className, table.offsetWidth])")
    assert max(width for name, width in widths if "wide" not in name) <= 680
    assert max(width for name, width in widths) <= 1010  # printed across
    assert browser.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    printed = browser("Page.printToPDF", preferCSSPageSize=True, transferMode="ReturnAsStream")
    assert printed["stream"]
