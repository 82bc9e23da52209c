"""Is this run whole, is it what it says, and is it the committed one?

DVC trusts a file whose size and time did not change, by default what it pulls, and whatever
``dvc.lock`` says or leaves out. This reads every byte instead, and makes again what can be made
again in seconds:

- ``pipeline``: ``dvc.lock`` against ``dvc.yaml`` and ``params.yaml``
- ``code``: the code here against the code that ran
- ``outs``: outs and inputs against ``dvc.lock``, the cache against its own names
- ``remote``: every object in a DVC remote, where one asks for it
- ``made``: what each session was trained with, by its own note, against ``dvc.lock``
- ``data``, ``results``, ``derived``: tables, predictions, metrics and the page made again
- ``reference``: ``dvc.lock`` and ``dvc.yaml`` against those in git's HEAD

``replay`` trains sessions again, which is the only proof that the training took place.
"""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

from dacr.config import load_params
from dacr.experiments.reading import (
    LOCK,
    Workspace,
    lock_records,
    parse_record,
    project_root,
    some,
)
from dacr.experiments.verification.artifacts import Artifacts
from dacr.experiments.verification.code import check_code
from dacr.experiments.verification.data import check_data
from dacr.experiments.verification.derived import Maker, check_derived
from dacr.experiments.verification.findings import Report
from dacr.experiments.verification.made import check_made
from dacr.experiments.verification.outs import check_chain, check_outs
from dacr.experiments.verification.pipeline import (
    changed_params,
    in_order,
    other_commands,
    unlike_declared,
    unreadable,
)
from dacr.experiments.verification.reference import check_reference
from dacr.experiments.verification.remote import Remote, check_remote
from dacr.experiments.verification.results import check_results

__all__ = ["Report", "verify"]


def verify(
    page: Maker | None = None, seed: int = 0, everything: bool = False, remote: str | None = None
) -> Report:
    """All checks of the project around the current folder.

    ``page`` makes the page of the run; ``seed`` chooses the predictions that are made again; with
    ``everything`` images are packed again however long that takes; ``remote`` is the name of a DVC
    remote that must have the run, too ('' is the default one).
    """
    with chdir(project_root()):
        return _verify(page, seed, everything, remote)


def _verify(page: Maker | None, seed: int, everything: bool, remote: str | None) -> Report:
    report, here = Report(), Workspace(Path())
    params, records = load_params(), lock_records(here.read(LOCK), here.name)
    if faults := unreadable(records):  # DVC refuses some of these, without saying where
        report.add("run", faults, "")
        return report
    artifacts = Artifacts()
    store = None if remote is None else Remote(artifacts.repo, remote)
    # DVC keeps the stages of an earlier split in the lock.
    records = {name: records[name] for name in artifacts.stages if name in records}
    counted = f"{len(records)} of {len(artifacts.stages)} stages are recorded"
    if not records:
        report.add("run", [f"was never made: {counted} in dvc.lock; run `dvc repro`"], "")
        return report
    recorded = {name: parse_record(record) for name, record in records.items()}
    lock = {name: recorded[name] for name in in_order(recorded)}
    missing = [name for name in artifacts.stages if name not in lock]
    unfinished = [f"is not finished: {counted}, {name} is not; run `dvc repro`" for name in missing]
    pipeline = unlike_declared(lock, artifacts.stages) + other_commands(artifacts.stages)
    report.add("run", unfinished[:1] + pipeline, counted)
    if changed := changed_params(lock):
        text = f"params.yaml changed since the run ({some(changed, 3)}); run `dvc repro`"
        report.add("parameters", [text], "")
    check_code(report, artifacts, lock, params)
    check_outs(report, artifacts, lock, records)
    if store:
        check_remote(report, artifacts, lock, store)
    if report.ok:
        check_chain(report, artifacts, lock)
    if report.ok:
        check_made(report, lock, params)
        check_data(report, params, everything)
    if report.ok:
        check_results(report, params, seed)
        check_derived(report, lock, page)
    check_reference(report, lock)
    return report
