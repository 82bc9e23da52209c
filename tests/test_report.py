"""The report: the numbers of metrics.json, stable bytes, and names that cannot break out."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from PIL import Image, ImageDraw

from dacr.config import load_params
from dacr.data.session_table import read_schedule
from dacr.data.shares import read_with_shares
from dacr.data.sources.upstream import SAMPLE, WHOLE
from dacr.errors import UserError
from dacr.evaluation.files import read_history, read_predictions
from dacr.evaluation.plots import read_tables, write_tables
from dacr.experiments.bounds import bound_of
from dacr.experiments.plan import experiment_of
from dacr.experiments.published import PaperNumbers, compare
from dacr.experiments.tables import load_paper
from dacr.report.charts import (
    GROUPS,
    PALETTE,
    SHAPES,
    Line,
    bars_by_session,
    line_chart,
    paint,
    scatter,
    ticks,
)
from dacr.report.page import (
    memory_words,
    read_provenance,
    reproduce_command,
    write_provenance,
)
from dacr.report.sections import confusion_figures, matrix_png
from dacr.report.stream import stream_chart
from dacr.runtime.compose import compose
from tests.legends import line_figures, looks, of_class, place_and_shape
from tests.paper_records import record_of
from tests.synthetic_run import RULES, SyntheticRun, make_report, rerun


class Page(HTMLParser):
    """What a test asks of a page: metrics, ids, addresses, tags."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.metrics: dict[str, str] = {}
        self.ids: set[str] = set()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self._metric: str | None = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.attributes |= set(values)
        self.ids.add(values.get("id") or "")
        self.addresses += [values[name] or "" for name in ("src", "href") if name in values]
        self._metric = values.get("data-metric")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._metric:
            self.metrics[self._metric] = data
            self._metric = None


@pytest.fixture(scope="module")
def ncd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_report(SyntheticRun("ncd"), tmp_path_factory.mktemp("ncd"))


@pytest.fixture(scope="module")
def nd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_report(SyntheticRun("nd", "replay"), tmp_path_factory.mktemp("nd"))


def _metrics(page: Path) -> dict[str, Any]:
    metrics, measures = (
        json.loads((page.parent / f"{name}.json").read_text()) for name in ("metrics", "measures")
    )
    return {**measures, **metrics}


def test_every_number_of_the_page_is_the_one_of_metrics_json(ncd: Path) -> None:
    shown, metrics = Page(ncd).metrics, _metrics(ncd)
    assert {
        "average_incremental_accuracy",
        "final_accuracy",
        "forgetting",
        "worst_domain_accuracy",
        "components_per_class",
        "purity",
        "backward_transfer",
        "chaudhry_forgetting",
        "calibration_error",
    } <= set(shown)
    for name, text in shown.items():
        digits = 3 if name.startswith("purity") else 2
        assert float(text) == pytest.approx(round(metrics[name], digits), abs=1e-9), name


def test_sections_follow_the_method(ncd: Path, nd: Path) -> None:
    assert {"mixture", "memory", "losses", "embedding"} <= Page(ncd).ids
    assert "mixture" not in Page(nd).ids
    assert not {"components_per_class", "purity"} & set(Page(nd).metrics)
    anchors = {address[1:] for address in Page(ncd).addresses if address.startswith("#")}
    assert anchors <= Page(ncd).ids


def test_nothing_is_loaded_from_elsewhere(ncd: Path) -> None:
    outside = [a for a in Page(ncd).addresses if not a.startswith(("data:", "#"))]
    assert outside == ["provenance.js"]
    assert not re.search(r"https?:|url\(|@import", ncd.read_text(encoding="utf-8"))


def test_reruns_give_the_same_bytes_whatever_machine_and_time(tmp_path: Path) -> None:
    page = make_report(SyntheticRun("nd"), tmp_path)
    files = [page, page.parent / "metrics.json", *sorted((page.parent / "plots").iterdir())]
    before = [file.read_bytes() for file in files]
    note = {"stage": "learn", "session": 1, "seconds": 1.5, "processor": "quantum"}
    (tmp_path / "runs/04/provenance-learn.json").write_text(json.dumps(note))
    rerun(tmp_path)
    assert [file.read_bytes() for file in files] == before
    assert "quantum" in (page.parent / "provenance.js").read_text()


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "{{ 7 * 7 }}",
    "NA",
    "007",
]


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    classes = HOSTILE + [f"class {i}" for i in range(5)]
    domains = ["</svg><script>alert(3)</script>", "a & b", "'onload='x", "d"]
    page = make_report(SyntheticRun("ncd", classes=classes, domains=domains), tmp_path)
    own = Page(page)
    assert own.tags.count("script") == 2  # provenance.js and our own
    assert not {name for name in own.attributes if name.startswith("on")}
    text = "".join(own.texts)
    for name in classes + domains:
        assert name in text


def test_a_mixture_that_merges_nothing_is_reported(tmp_path: Path) -> None:
    run = SyntheticRun("nd")
    run.history["merges"] = []
    run.history["memory"] = [{"session": 1, "class": 0, "component": 0, "count": 3}]
    ids = Page(make_report(run, tmp_path)).ids
    assert "mixture" in ids
    assert "memory" not in ids  # the records do not say which images


def test_many_classes_become_a_picture(tmp_path: Path) -> None:
    names = [f"class {i}" for i in range(30)]
    run = SyntheticRun("nd", classes=names, test_per_pair=2, train_per_pair=4, epochs=1)
    page = make_report(run, tmp_path)
    assert 'class="matrix"' in page.read_text(encoding="utf-8")
    table = pd.DataFrame({"actual": names, "predicted": [*names[1:], names[0]]})
    matrix, most = confusion_figures(table, names)
    assert matrix.sheet is None
    assert most.sheet is not None
    assert most.sheet.rows[0] == ["class 0", "class 1", "100.0"]


def test_matrix_picture_has_a_pixel_an_entry(tmp_path: Path) -> None:
    (tmp_path / "m.png").write_bytes(matrix_png([[100.0, 0.0], [25.0, 75.0]]))
    opacity = np.asarray(Image.open(tmp_path / "m.png"))[..., 3]
    assert opacity.tolist() == [[255, 0], [128, 221]]


def test_a_single_session_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "nd", {"sessions": 1, "domains_per_session": [1]})
    run = SyntheticRun("nd", domains=["only"])
    run.params["schedule"] |= {"sessions": {"01": {"index": 1, "prev": "00"}}, "last": "01"}
    page = make_report(run, tmp_path)
    assert Page(page).metrics["forgetting"] == "0.00"


def test_command_composes_the_very_parameters(tmp_path: Path) -> None:
    choice = [
        "split=nd",
        "method=der_dacr",
        "train.epochs=3",
        "memory.size=7",
        "seed=5",
        "schedule.seed=4",
    ]
    compose(choice, tmp_path / "a.yaml")
    params = load_params(tmp_path / "a.yaml").model_dump(mode="json", by_alias=True)
    words = shlex.split(reproduce_command(params).replace("\\\n", ""))
    assert words[:3] == ["dvc", "exp", "run"]
    assert set(words[3::2]) == {"-S"}
    compose(words[4::2], tmp_path / "b.yaml")
    assert load_params(tmp_path / "b.yaml").model_dump(mode="json", by_alias=True) == params


# -- beside the paper -------------------------------------------------------------------------


def _compare(
    tmp_path: Path, *choice: str, paper: dict[str, int] | None = None, kind: str = WHOLE
) -> PaperNumbers:
    compose(list(choice), tmp_path / "params.yaml")
    params = load_params(tmp_path / "params.yaml").model_dump(mode="json", by_alias=True)
    benchmark: dict[str, Any] = {"counts": {"train": 50_000, "test": 10_000}, "paper": paper}
    benchmark |= {"origins": {"cifar100": {"kind": kind}}}
    return compare(load_paper(), params, benchmark)


def test_the_papers_own_settings_are_comparable(tmp_path: Path) -> None:
    choice = "benchmark=icifar20", "split=ncd", "method=der_dacr", "reading=printed"
    same = _compare(tmp_path, *choice)
    assert same.reason is None
    assert same.values["average_incremental_accuracy"] == 82.11
    assert same.values["final_accuracy"] == 76.40
    assert same.values["forgetting"] == -1.79
    assert same.method == "DER w/ ours"
    assert len(same.table) == 10


@pytest.mark.parametrize("benchmark", ["icifar20", "idomainnet", "idigits"])
@pytest.mark.parametrize("method", load_paper().methods)
def test_every_method_has_the_papers_settings(tmp_path: Path, benchmark: str, method: str) -> None:
    choice = f"benchmark={benchmark}", "split=nd", f"method={method}", "reading=printed"
    reason = _compare(tmp_path, *choice).reason
    if load_paper().is_fair(method):
        assert reason == "options.prior empirical (paper uniform)"
    elif load_paper().is_bound(method):
        assert reason == "a bound, which the paper does not have"
    else:
        assert reason is None


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (["train.epochs=20"], "train.epochs 20 (paper 200)"),
        (["train.milestones=[1,2]"], "train.milestones [1, 2] (paper [80, 120])"),
        (["train.schedule=cosine"], "train.schedule cosine (paper multistep)"),
        (["train.gamma=0.5"], "train.gamma 0.5 (paper 0.1)"),
        (["loss.lambda_epochs=1"], "loss.lambda_epochs 1 (paper 10)"),
        (["loss.beta=0.5"], "loss.beta 0.5 (paper 1)"),
        (["reduction.delta=0.5"], "reduction.delta 0.5 (paper 0.7)"),
        (["data.per_pair=10"], "data.per_pair 10 (paper none)"),
        (["benchmark=idigits_mini"], "embedded data"),
        (["split=nd3", "method=der"], None),
    ],
)
def test_other_settings_are_named(tmp_path: Path, choice: list[str], reason: str | None) -> None:
    base = ["benchmark=icifar20", "split=ncd", "method=der_dacr", "reading=printed"]
    given = {word.split("=")[0] for word in choice}
    found = _compare(tmp_path, *(w for w in base if w.split("=")[0] not in given), *choice).reason
    assert found is None if reason is None else reason in str(found)


def test_a_data_set_of_another_size_is_named(tmp_path: Path) -> None:
    choice = "benchmark=icifar20", "split=nc", "method=der"
    assert _compare(tmp_path, *choice, paper={"train": 50_000}).reason is None
    other = _compare(tmp_path, *choice, paper={"train": 60_000}).reason
    assert "50000 train images (paper 60000)" in str(other)
    sample = _compare(tmp_path, *choice, kind=SAMPLE).reason
    assert sample == "cifar100: mirror sample, not the official split"


# -- files ------------------------------------------------------------------------------------


def test_tables_read_back_as_written(tmp_path: Path) -> None:
    table = pd.DataFrame({"session": [1, 2], "domain": ["NA", "007"], "accuracy": [50.0, 66.6667]})
    write_tables({"domain_accuracy": table}, tmp_path)
    pd.testing.assert_frame_equal(
        read_tables(tmp_path)["domain_accuracy"], table, check_dtype=False
    )


def test_damaged_inputs_are_one_line(tmp_path: Path) -> None:
    parquet, history, schedule = tmp_path / "p.parquet", tmp_path / "h.json", tmp_path / "s.csv"
    with pytest.raises(UserError, match="is missing; run `dvc repro consolidate`"):
        read_predictions(parquet)
    parquet.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(UserError, match=r"is damaged .*run `dvc repro -f consolidate`"):
        read_predictions(parquet)
    pd.DataFrame({"session": [1]}).to_parquet(parquet)
    with pytest.raises(UserError, match="no column component, domain, id"):
        read_predictions(parquet)
    history.write_text('{"losses": [')
    with pytest.raises(UserError, match="is damaged"):
        read_history(history)
    history.write_text("[]")
    with pytest.raises(UserError, match="no losses, memory"):
        read_history(history)
    schedule.write_text("session,class,domain,new_class\n1,0,x,1\n")
    with pytest.raises(UserError, match=r"is damaged .*'x'.*`dvc repro -f schedule`"):
        read_schedule(schedule)


def test_provenance_is_sorted_and_survives_damage(tmp_path: Path) -> None:
    for session, stage in ((1, "consolidate"), (1, "learn"), (2, "learn")):
        folder = tmp_path / f"{session:02d}"
        folder.mkdir(exist_ok=True)
        note = {"stage": stage, "session": session, "processor": "</script>\u2028"}
        (folder / f"provenance-{stage}.json").write_text(json.dumps(note))
    (tmp_path / "02/provenance-consolidate.json").write_text('{"stage": "cons')
    records = read_provenance(tmp_path)
    assert [(r["session"], r["stage"]) for r in records] == [
        (1, "learn"),
        (1, "consolidate"),
        (2, "learn"),
    ]
    write_provenance(tmp_path / "provenance.js", records)
    script = (tmp_path / "provenance.js").read_text()
    assert script.isascii()
    content = script.removeprefix("window.DACR_PROVENANCE = ").removesuffix(";\n")
    assert json.loads(content) == records


# -- charts -----------------------------------------------------------------------------------


@given(st.floats(-1e4, 1e4), st.floats(0, 1e4))
def test_ticks_cover_the_range_in_few_even_steps(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert found[0] <= low + 1e-6 * max(1, abs(low))
    assert found[-1] >= low + span - 1e-6 * max(1, abs(low), span)
    assert 2 <= len(found) <= 12
    steps = np.diff(found)
    assert np.allclose(steps, steps[0])


def _elements(chart: Markup, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(str(chart)).iter(tag))


def test_points_lie_where_the_axis_says() -> None:
    lines = [Line("<b>", [(1, 0.0), (2, 50.0), (3, 100.0)], 0)]
    chart = Markup(line_chart(lines, "a & b", "%", (0, 100), x_ticks=[1]).chart)
    *marks, beside_the_value = of_class(ElementTree.fromstring(str(chart)), "point")
    (x1, y1), (x2, y2), (x3, y3) = (place_and_shape(mark)[:2] for mark in marks)
    assert place_and_shape(beside_the_value)[1] == y3
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    labels = {t.text: float(t.attrib["y"]) for t in _elements(chart, "text") if "y" in t.attrib}
    assert labels["0"] - 4 == pytest.approx(y1, abs=0.2)
    titles = [t.text for t in _elements(chart, "title")]
    assert titles[1] == "<b>, session 2: 50"


def _chart_of(lengths_and_colours: list[tuple[int, int]]) -> ElementTree.Element:
    lines = [
        Line(f"line {c}", [(x, 5.0 * c + x % 3) for x in range(1, n + 1)], c)
        for n, c in lengths_and_colours
    ]
    figure = line_chart(lines, "", "%", (0, 100), x_ticks=[1], end_values=False)
    return ElementTree.fromstring(str(figure.chart))


def test_every_colour_of_the_palette_has_marks_and_dashes_of_its_own() -> None:
    drawn = looks(_chart_of([(4, colour) for colour in range(PALETTE)]))
    assert len({(look.shape, look.stroke) for look in drawn}) == len(drawn) == PALETTE
    assert [look.stroke for look in drawn] == ["", "dashed"] * 6 + ["dotted"] * 3
    assert len({look.shape for look in drawn[:6]}) == 6


def test_long_lines_have_marks_too_and_these_do_not_touch() -> None:
    chart = _chart_of([(200, 0), (200, 2)])
    assert len({look.shape for look in looks(chart)}) == 2
    for colour in (0, 2):
        own = [m for m in of_class(chart, "point") if m.attrib["style"] == paint(colour)]
        xs = [place_and_shape(mark)[0] for mark in own]
        assert len(xs) > 10
        assert min(np.diff(xs)) > 12


def _outline(shape: str) -> list[tuple[float, float]]:
    """The corners of a mark about its centre; an arc, which must be half a circle, has many."""
    at = 0j
    corners = []
    for command, words in re.findall(r"([mlhvaz])([^mlhvaz]*)", shape):
        numbers = [float(word) for word in re.findall(r"-?[\d.]+", words)]
        match command:
            case "m" | "l":
                at += complex(*numbers)
            case "h":
                at += numbers[0]
            case "v":
                at += 1j * numbers[0]
            case "a":
                middle, start = at + numbers[5] / 2, at
                assert numbers == [abs(middle - at), abs(middle - at), 0, 1, 0, numbers[5], 0]
                turns = [np.exp(-1j * np.pi * i / 40) for i in range(41)]
                corners += [middle + (start - middle) * turn for turn in turns]
                at += numbers[5]
        corners.append(at)
    return [(float(c.real), float(c.imag)) for c in corners]


def test_shapes_of_marks_differ_and_lie_on_their_points() -> None:
    """Drawn at twenty times their size: area, middle, and what two of them do not share."""
    areas = []
    for shape in SHAPES:
        picture = Image.new("1", (280, 280))
        corners = [(20 * x + 140, 20 * y + 140) for x, y in _outline(shape)]
        ImageDraw.Draw(picture).polygon(corners, fill=1)
        areas.append(np.asarray(picture))
    for area in areas:
        assert 35 < area.sum() / 400 < 55  # a circle of radius 3.9 has 48
        assert np.abs(np.argwhere(area).mean(axis=0) - 140).max() < 20 * 0.3
    for a, b in combinations(areas, 2):
        assert (a ^ b).sum() > 0.12 * (a | b).sum()


def test_legends_of_the_page_show_lines_as_their_charts_do(ncd: Path) -> None:
    page = ncd.read_text(encoding="utf-8")
    charts = line_figures(page)
    assert [len(lines) for lines in charts] == [2, 2, 2, 1, 5]  # with calibration, purity, κ
    assert page.count('class="swatch') > 2 * 4  # components, memory and t-SNE


def test_stacked_bars_stand_on_each_other() -> None:
    table = pd.DataFrame({"session": [1, 2], "a": [3, 2], "b": [1, 2]})
    names = {"a": "a", "b": "b"}
    chart = Markup(bars_by_session(table, names, "", "n", stacked=True).chart)
    first, second, third, _ = (
        {k: float(v) for k, v in r.attrib.items() if k in ("x", "y", "width", "height")}
        for r in _elements(chart, "rect")
    )
    assert second["y"] + second["height"] == pytest.approx(first["y"], abs=0.2)
    assert first["height"] == pytest.approx(3 * second["height"], abs=0.5)
    assert first["x"] + first["width"] < third["x"]
    beside = Markup(bars_by_session(table, names, "", "n", stacked=False).chart)
    left, right = _elements(beside, "rect")[:2]
    end = float(left.attrib["x"]) + float(left.attrib["width"])
    assert end == pytest.approx(float(right.attrib["x"]), abs=0.2)


def test_scatter_keeps_shape_and_colour_of_absent_groups() -> None:
    points = pd.DataFrame({"group": ["here"] * 3, "x": [0.0, 2.0, 2.0], "y": [0.0, 0.0, 1.0]})
    (path,) = _elements(scatter(points, "group", ["gone", "here"], ""), "path")
    names = [str(i) for i in range(GROUPS)]
    all_groups = pd.DataFrame({"group": names, "x": range(GROUPS), "y": 0.0})
    many = scatter(all_groups, "group", names, "")
    shapes = {(p.attrib["class"], p.attrib["d"].partition("m")[2]) for p in _elements(many, "path")}
    assert len(shapes) == GROUPS, "groups can be told apart without colours"
    assert path.attrib["style"] == "color:var(--c1)"
    (ax, ay), (bx, by), (cx, cy) = (
        (float(x), float(y)) for x, y in re.findall(r"M(\S+) (\S+?)m", path.attrib["d"])
    )
    assert (bx - ax, by - ay) == (pytest.approx(2 * (cy - by), abs=2), 0)
    assert cx == bx


# -- the picture of a split -------------------------------------------------------------------


def bars_of(chart: str) -> list[list[tuple[float, float, float]]]:
    """(x, y, height) of every bar, domain by domain."""
    return [
        [
            (float(x), float(y), float(tall))
            for x, y, tall in re.findall(r"M([\d.]+) ([\d.]+)h[\d.]+v([\d.]+)h", path)
        ]
        for path in re.findall(r'class="bars"[^>]* d="([^"]*)"', chart)
    ]


def test_a_bar_stands_for_each_pair_of_each_session() -> None:
    schedule = pd.DataFrame(
        [(1, 0, 0, 1, 1.0), (1, 1, 1, 1, 0.25), (2, 1, 1, 0, 0.75)],
        columns=["session", "class", "domain", "new_class", "share"],
    )
    first, second = bars_of(stream_chart(schedule, ["<a>", "b"], ["x", "y"]))
    assert (len(first), len(second)) == (1, 2)
    whole, quarter, rest = first[0], *second
    assert quarter[2] == pytest.approx(whole[2] / 2, abs=0.06)
    assert whole[0] < quarter[0] < rest[0]  # domain y has its place to the right of x's
    assert whole[1] < quarter[1]  # class b is below class a
    assert "<a>" not in stream_chart(schedule, ["<a>", "b"], ["x", "y"])
    plain = bars_of(stream_chart(schedule.drop(columns="share"), ["a", "b"], ["x", "y"]))
    assert {tall for own in plain for _, _, tall in own} == {whole[2]}


def test_a_picture_of_many_classes_fits() -> None:
    schedule = read_with_shares(Path("data/schedules/idomainnet_blurry.csv"))
    chart = stream_chart(schedule, [f"class {c}" for c in range(100)], [str(z) for z in range(6)])
    assert sum(map(len, bars_of(chart))) == len(schedule)
    assert len(chart) < 100_000


@pytest.mark.parametrize("split", ["nc", "nd", "ncd", "vil", "uil", "blurry", "repeat"])
def test_the_pictures_of_the_docs_are_those_of_the_committed_tables(split: str) -> None:
    schedule = read_with_shares(Path(f"data/schedules/idigits_{split}.csv"))
    shown = bars_of(Path(f"docs/images/split-{split}.svg").read_text())
    chart = stream_chart(schedule, [str(c) for c in range(10)], ["", "", "", ""])
    assert shown == bars_of(chart)
    assert f"images/split-{split}.svg" in Path("docs/splits.md").read_text()


def test_the_page_of_a_stream_whose_pairs_come_back(tmp_path: Path) -> None:
    synthetic = SyntheticRun("repeat", "replay")
    page = make_report(synthetic, tmp_path).read_text()
    assert sum(map(len, bars_of(page))) == len(synthetic.schedule) == 80
    assert "The session that first brings each pair" in page
    assert "the rest comes in other sessions" in page


# -- the upper bound --------------------------------------------------------------------------


def test_the_bound_of_a_run_is_joint_training_on_the_same_stream() -> None:
    paper = load_paper()
    row = paper.method_rows["joint"]
    table = paper.table("main")
    records = [
        record_of(experiment_of(table, row, "idigits_mini", "nd", seed)) for seed in (1993, 1994)
    ]
    params = shown_params("method=der")
    bound = bound_of(paper, params, records)
    assert bound is not None
    assert (bound.seeds, bound.by_session) == ([1993], records[0].details["accuracy_by_session"])
    both = bound_of(paper, params | {"seed": 7}, records)
    assert both is not None
    assert both.seeds == [1993, 1994]
    averages = [record.metrics["average_incremental_accuracy"] for record in records]
    assert both.average == pytest.approx(sum(averages) / 2, abs=1e-4)
    for other in ("split=nc", "train.epochs=3", "data.per_pair=5", "model.backbone=resnet32"):
        assert bound_of(paper, shown_params("method=der", other), records) is None
    assert bound_of(paper, shown_params("method=joint"), records) is None
    assert memory_words(shown_params("method=joint")).endswith("breaks the protocol")
    assert memory_words(shown_params("method=finetune")) == "none"


def shown_params(*overrides: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "params.yaml"
        compose(["benchmark=idigits_mini", "split=nd", *overrides], path)
        return load_params(path).model_dump(mode="json", by_alias=True)
