"""The scale, data and machine of a table's experiments, and what its gains are worth, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dacr.evaluation.formats import decimals
from dacr.experiments.gains import CONFIDENCE, Gain
from dacr.experiments.reading import some
from dacr.experiments.results import Results
from dacr.experiments.tables import size_text

HELD_OUT = (
    "These numbers are of held-out training images and serve to choose settings: no test image was "
    "used, and no result is reported from here."
)


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def facts(results: Results) -> list[str]:
    """What ran, and where; what the settings are that differ from the paper's, if any do."""
    other = results.other_settings
    said = [f"Settings that are not the paper's: {'; '.join(other)}."] if other else []
    return [scale(results), where(results), *said, *about_headroom(results)]


def about_headroom(results: Results) -> list[str]:
    """What the column headroom is, where a table has one."""
    table = results.table
    if not any(results.has_headroom(split, own) for split in table.splits for own in table.metrics):
        return []
    return [
        "Headroom: joint training minus the row. Joint training keeps every image, which breaks "
        "the protocol: it is one network's bound, and no method to compare with. It may be below a "
        "method that has more networks."
    ]


def scale(results: Results) -> str:
    records = results.all_records
    images = _every(_images(record.data) for record in records)
    parts = _every(_part(record.setting) for record in records)
    parts = "" if parts == "all training images" else f"{parts}; "
    setting = {
        key: _every(record.setting[key] for record in records)
        for key in ("backbone", "epochs", "batch_size", "threads")
    }
    kept = (r.setting["memory"] for r in records if not results.paper.is_bound(r.method))
    memory = _every(kept) or "as bounds have it"
    benchmarks = ", ".join(dict.fromkeys(record.benchmark for record in records))
    return (
        f"Run: {counted(len(records), 'experiment')} on {benchmarks}: {images}; {parts}"
        f"{setting['backbone']}, {setting['epochs']} epochs per session, batch "
        f"{setting['batch_size']}, memory {memory}; "
        f"{setting['threads']} thread{'s' * (setting['threads'] != '1')} per experiment."
    )


def _every(values: Iterable[Any]) -> str:
    """All different values, since records of one table may come from different configurations."""
    return " or ".join(map(str, sorted(set(values))))


def _images(data: dict[str, Any]) -> str:
    kinds = ", ".join(sorted(set(data["origins"].values()))) or "made from installed packages"
    return (
        f"{len(data['classes'])} classes × {len(data['domains'])} domains, "
        f"{data['counts']['train']:,} training and {data['counts']['test']:,} test images of "
        f"{data['image_size']} × {data['image_size']} ({kinds})"
    )


def _part(setting: dict[str, Any]) -> str:
    match setting["per_pair"]:
        case None:
            limited = "all training images"
        case dict() as by_domain:
            few = ", ".join(f"{most:,} per class of {name}" for name, most in by_domain.items())
            limited = f"all training images, but {few}"
        case most:
            limited = f"{most} training images per pair"
    return limited + (", evaluated on held-out ones" if setting["validation"] else "")


def where(results: Results) -> str:
    records = results.all_records
    machines = sorted(
        {
            f"{m['cores']} cores of {m['processor']}, device {m['device']}, torch {m['torch']}"
            for m in (record.machine for record in records)
        }
    )
    revisions = sorted({r.revision[:8] for r in records})
    said = [f"Machine: {'; '.join(machines)}. Revision {', '.join(revisions)}."]
    if older := sum(record.name in results.older for record in records):
        said.append(
            f"{older} of {len(records)} were measured with other code or settings than the "
            "committed ones: `dacr paper plan` names them, `--redo changed` measures them again."
        )
    if any(len({record.code for record in own}) > 1 for own in results.records.values()):
        said.append("Some rows mix seeds measured with different code.")
    return " ".join([*said, *left_out(results)])


def left_out(results: Results) -> list[str]:
    """Which measurements are not shown, because their images are not those of the others."""
    number = len(results.elsewhere)
    if not number:
        return []
    were = "was" if number == 1 else "were"
    return [
        f"{counted(number, 'experiment')} of this table {were} measured on other images of the "
        "same benchmark (another mirror or release) and not shown; the file keeps them, "
        "`dacr paper plan` names them."
    ]


def beside(results: Results) -> str:
    if not results.table.splits:
        return "What each row should have stands beside it, and who says so."
    if results.reference is None:
        return "The paper has no numbers here."
    if results.reference == results.benchmark:
        how = "with its settings" if results.comparable else "with other settings"
        return f"The paper's numbers are of the same benchmark, {how}."
    return (
        f"The paper's numbers are those of {results.reference_name}: other data at another scale. "
        "Directions and gains may be compared, values may not."
    )


# -- gains ------------------------------------------------------------------------------------


def gain_rule(results: Results) -> str:
    """Over what the gains of a table are, in half a sentence."""
    if results.table.gain:
        return results.table.gain
    if results.has_fair_hosts:
        return "over the better of the host as published and the fair host, split by split"
    return "over the host"


def significance(results: Results) -> list[str]:
    """Which gains are more than chance, split by split, and over all splits."""
    found = []
    for metric in results.table.claims:
        for split in results.table.splits:
            if gains := results.gains(split, metric):
                name = f"{split.upper()}, {metric.replace('_', ' ')}"
                found.append(f"{name}. {_sorted_out(results, gains, decimals(metric))}")
        found += _trends(results, metric) if results.table.along else _ranks(results, metric)
    return [*found, *_unmeasured_hosts(results)]


def _unmeasured_hosts(results: Results) -> list[str]:
    """A gain over the better of two is one over the other where only that was measured."""
    missing = [
        f"{results.rows[host].label} on {split.upper()}"
        for split in results.table.splits
        for key, row in results.rows.items()
        if len(row.hosts) > 1 and results.records[key, split]
        for host in row.hosts
        if not results.records[host, split]
    ]
    told = (
        f"Not measured, so that gains are over the other host: {some([*dict.fromkeys(missing)])}."
    )
    return [told] if missing else []


def _sorted_out(results: Results, gains: dict[str, Gain], digits: int) -> str:
    """Of rows at many sizes the sheets tell; here is how many of them."""
    kinds: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for key, gain in gains.items():
        kinds[gain.significant].append(_claim(results, key, gain, digits))
    titles = {True: "Significant", False: "Not significant", None: "One seed, no interval"}
    if results.table.along:
        number = f"{len(kinds[True])} of {counted(len(gains), 'gain')}"
        alone = f"; {len(kinds[None])} with one seed, which have no interval" if kinds[None] else ""
        return f"{number} significant{alone}."
    sentences = [f"{titles[kind]}: {'; '.join(told)}." for kind, told in kinds.items() if told]
    return " ".join(sentences)


def _claim(results: Results, key: str, gain: Gain, digits: int) -> str:
    told = f"{results.label(key)} over {results.label(gain.over)} {gain.mean:+.{digits}f}"
    return _with_interval(told, gain, digits)


def _ranks(results: Results, metric: str) -> list[str]:
    """Wilcoxon's signed-rank test over the pairs of all splits."""
    digits = decimals(metric)
    told = [
        f"{label} {test.median:+.{digits}f} in the median of "
        f"{test.pairs} pairs, p = {test.p:.2g}" + ("" if test.significant else ", not significant")
        for label, test in results.rank_tests(metric).items()
    ]
    name = metric.replace("_", " ")
    start = f"All together, {name}, Wilcoxon's signed-rank test of all pairs"
    return [f"{start}: {'; '.join(told)}."] if told else []


def _trends(results: Results, metric: str) -> list[str]:
    """Whether the gain of a method grows with the sizes of a parameter."""
    rows = {row.place.row: row.place.label for row in results.rows.values() if row.place}
    ours = [row for row in rows if results.paper.has_ours(row)]
    name = metric.replace("_", " ")
    found = []
    for axis in results.table.along:
        for split in results.table.splits:
            for row in ours:
                if trend := results.trend(row, axis, split, metric):
                    sizes = f"{size_text(trend.first)} to {size_text(trend.last)}"
                    found.append(
                        f"{split.upper()}, {name}, {axis.symbol} from {sizes}: the gain of "
                        f"{rows[row]} changes by {_change(trend.change, decimals(metric))}."
                    )
    return found


def _change(change: Gain, digits: int) -> str:
    told = _with_interval(f"{change.mean:+.{digits}f}", change, digits)
    if change.significant is None:
        return f"{told}, on one seed"
    grows = "it grows" if change.mean > 0 else "it shrinks"
    return f"{told}: {grows if change.significant else 'not significant'}"


def _with_interval(text: str, gain: Gain, digits: int) -> str:
    if gain.interval is None:
        return text
    low, high = gain.interval
    return f"{text} ({low:+.{digits}f} … {high:+.{digits}f})"


def about_significance(results: Results) -> str:
    """How to read those sentences."""
    percent = f"{100 * CONFIDENCE:g} %"
    return (
        f"A gain is {gain_rule(results)}, on the seeds that both have. In brackets is its "
        f"{percent} interval by the paired t-test over seeds; it is significant if 0 is outside. "
        "The intervals are not corrected for their number: of twenty gains that are none one looks "
        "significant."
    )
