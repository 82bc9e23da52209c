"""The report in a real browser: no complaints, no overflow, readable in light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dacr.experiments.bounds import Bound
from dacr.report.page import read_provenance, write_provenance
from tests.chromium import Chromium, executable
from tests.synthetic_run import SyntheticRun, make_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="Debian's chromium is not installed"),
]

WIDTHS = {"phone": 390, "desktop": 1280}

# The least contrast (WCAG 2) of any text against what lies behind it, and that text.
CONTRAST = """
(() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, under) =>
    [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const behind = (node) => {
    if (!node) return [255, 255, 255, 1];
    const own = parse(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(node.parentElement));
  };
  const light = (c) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = c.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  document.querySelectorAll("details").forEach((d) => (d.open = true));
  let [least, where, count] = [21, "", 0];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest("script, title, .sr")) continue;
    const style = getComputedStyle(node);
    const ink = parse(node.closest("svg") ? style.fill : style.color);
    const found = contrast(over(ink, behind(node)), behind(node));
    count += 1;
    if (found < least) [least, where] = [found, node.outerHTML];
  }
  return [least, where, count];
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything the page can show, and names that try to be too long and too bold."""
    folder = tmp_path_factory.mktemp("run")
    long = "a-class-name-without-any-place-to-break-it"
    names = [str(i) for i in range(8)] + [long, "<img src=x onerror=alert(1)>"]
    page = make_report(SyntheticRun("ncd", classes=names), folder)
    notes = [
        {"stage": stage, "session": 1, "seconds": 61.0, "processor": "<b>chip</b>", "dirty": True}
        for stage in ("learn", "consolidate")
    ]
    for note in notes:
        name = f"provenance-{note['stage']}.json"
        (folder / "runs/10" / name).write_text(json.dumps(note))
    write_provenance(page.parent / "provenance.js", read_provenance(folder / "runs"))
    return page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
def test_page_loads_fits_and_reads(browser: Chromium, page: Path, device: str, dark: bool) -> None:
    width = WIDTHS[device]
    browser.open(page, width=width, dark=dark)
    assert browser.complaints() == []
    loaded = [url for url in browser.requests() if not url.startswith("data:")]
    assert loaded == [page.as_uri(), page.with_name("provenance.js").as_uri()]
    least, text, count = browser.evaluate(CONTRAST)  # opens every <details>, too
    assert least >= 4.5, text
    assert count > 200
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in ground[4:-1].split(","))
    assert (brightness < 3 * 128) is dark


def test_a_legend_draws_a_line_as_its_chart_does(browser: Chromium, page: Path) -> None:
    """The same classes are not enough: the style sheet could tell a chart's from a legend's."""
    browser.open(page, width=1280)
    drawn = """[...document.querySelectorAll('#losses %s .%s')].slice(0, 5).map((e) =>
        ['stroke', 'strokeWidth', 'strokeDasharray', 'fill'].map((n) => getComputedStyle(e)[n]))"""
    lines = browser.evaluate(drawn % (".chart", "line"))
    assert lines == browser.evaluate(drawn % (".key", "line"))
    assert len({stroke for stroke, *_ in lines}) == len(lines) == 5
    assert [dashes == "none" for _, _, dashes, _ in lines] == [True, False, True, False, True]
    marks = browser.evaluate(drawn % (".key", "point"))
    assert [fill for *_, fill in marks] == [stroke for stroke, *_ in lines]


def test_numbers_in_the_browser_are_those_of_metrics_json(browser: Chromium, page: Path) -> None:
    browser.open(page, width=1280)
    shown = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[data-metric]')]"
        ".map((e) => [e.dataset.metric, e.textContent]))"
    )
    files = [page.parent / name for name in ("metrics.json", "measures.json", "budget.json")]
    metrics = {k: v for file in files for k, v in json.loads(file.read_text()).items()}
    assert len(shown) >= 9
    for name, text in shown.items():
        digits = 3 if name.startswith("purity") else 2
        assert text.lstrip("+") == f"{metrics[name]:.{digits}f}", name


def test_names_and_notes_stay_text(browser: Chromium, page: Path) -> None:
    browser.open(page, width=1280)
    assert browser.evaluate("document.querySelectorAll('img:not([src^=\"data:\"])').length") == 0
    assert browser.evaluate("document.body.innerText.includes('<img src=x onerror=alert(1)>')")
    machine = browser.evaluate("document.getElementById('provenance').innerText")
    assert "<b>chip</b>" in machine
    assert "2 min" in machine
    assert "uncommitted changes" in machine


def test_the_headroom_shows_where_joint_training_was_measured(
    browser: Chromium, page: Path, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_bytes(page.read_bytes())
    accuracies = json.loads((page.parent / "metrics.json").read_text())["accuracy_by_session"]
    bound = Bound("Joint", 99.5, [99.5] * len(accuracies), [1993])
    write_provenance(tmp_path / "provenance.js", [], bound)
    browser.open(tmp_path / "index.html", width=1280)
    assert browser.complaints() == []
    shown = browser.evaluate("document.getElementById('headroom').innerText")
    assert f"{99.5 - accuracies[0]:+.2f}" in shown
    assert "breaks the protocol" in shown
    browser.open(page, width=1280)
    assert browser.evaluate("document.getElementById('headroom').hidden")


def test_without_notes_the_page_says_so(browser: Chromium, page: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_bytes(page.read_bytes())
    (tmp_path / "provenance.js").write_text("window.DACR_PROVENANCE = [];\n")
    browser.open(tmp_path / "index.html", width=1280)
    assert browser.complaints() == []
    machine = browser.evaluate("document.getElementById('provenance').innerText")
    assert "No notes about machine and time" in machine


def test_a_script_in_the_page_other_than_its_own_is_refused(
    browser: Chromium, page: Path, tmp_path: Path
) -> None:
    html = page.read_text(encoding="utf-8")
    tampered = html.replace("</body>", "<script>document.title = 'taken'</script></body>")
    (tmp_path / "index.html").write_text(tampered, encoding="utf-8")
    (tmp_path / "provenance.js").write_bytes(page.with_name("provenance.js").read_bytes())
    browser.open(tmp_path / "index.html", width=1280)
    assert any("Content Security Policy" in text for text in browser.complaints())
    assert browser.evaluate("document.title") != "taken"
