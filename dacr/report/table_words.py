"""The scale, data and machine of a table's experiments in plain words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dacr.experiments.results import Results


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def facts(results: Results) -> list[str]:
    """What ran, and where; what the settings are that differ from the paper's, if any do."""
    other = results.other_settings
    said = [f"Settings that are not the paper's: {'; '.join(other)}."] if other else []
    return [scale(results), where(results), *said]


def scale(results: Results) -> str:
    records = results.all_records
    images = _every(_images(record.data) for record in records)
    parts = _every(_part(record.setting) for record in records)
    parts = "" if parts == "all training images" else f"{parts}; "
    setting = {
        key: _every(record.setting[key] for record in records)
        for key in ("backbone", "epochs", "batch_size", "memory", "threads")
    }
    return (
        f"Run: {counted(len(records), 'experiment')} on {results.benchmark}: {images}; {parts}"
        f"{setting['backbone']}, {setting['epochs']} epochs per session, batch "
        f"{setting['batch_size']}, memory {setting['memory']}; "
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
    return " ".join(said)


def beside(results: Results) -> str:
    if results.reference is None:
        return "The paper has no numbers here."
    if results.reference == results.benchmark:
        how = "with its settings" if results.comparable else "with other settings"
        return f"The paper's numbers are of the same benchmark, {how}."
    return (
        f"The paper's numbers are those of {results.reference_name}: other data at another scale. "
        "Directions and gains may be compared, values may not."
    )
