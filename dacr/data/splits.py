"""The scenario as a table: which (class, domain) pairs each session brings.

A *schedule* is a sorted table (session, class, domain, new_class) with sessions from 1; a pair
comes at most once. A *split* is a schedule applied to the index of a benchmark: one table
(id, label, domain, part, pixels) per session. NC, ND and NCD are the paper's three splits
(Experiments, and "Details of Splits" in the appendix); ``table`` is any other stream, written by
hand.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from dacr.config import Schedule
from dacr.data.session_table import COLUMNS, read_schedule, session_file
from dacr.errors import UserError
from dacr.rng import derive_seed

Pair = tuple[int, int]
Given = TypeVar("Given")

SCHEDULE = "schedule.csv"


def make_schedule(params: Schedule, classes: Sequence[str], domains: Sequence[str]) -> pd.DataFrame:
    """The schedule of ``params`` for the pairs of ``classes`` and ``domains``.

    It must have as many sessions as the pipeline, which ``params.sessions`` lists.
    """
    shape, seed, sessions = (len(classes), len(domains)), params.seed, len(params.sessions)
    match rule := params.rule:
        case "nc":
            brought = _new_class(*shape, seed, sessions)
        case "nd":
            each = params.domains_per_session
            sizes = [each] * sessions if isinstance(each, int) else each
            order = _domain_orders(*shape, seed, params.domain_order)
            brought = _new_domain(order, _given("domains_per_session", rule, sizes))
        case "ncd":
            order = _domain_orders(*shape, seed, params.domain_order)
            brought = _new_class_and_domain(
                order, seed, _given("new_classes", rule, params.new_classes)
            )
        case "table":
            path = Path(_given("table", rule, params.table))
            brought = _read_table(path, _ids(classes), _ids(domains))
    if len(brought) != sessions:
        raise UserError(
            f"params.yaml is inconsistent: the {rule} schedule has {len(brought)} sessions, "
            f"schedule.sessions lists {sessions}; recompose it with `make params`"
        )
    return _schedule(brought)


def _given(name: str, rule: str, value: Given | None) -> Given:
    if value is None:
        raise UserError(f"schedule.{name} is missing; the rule {rule} needs it")
    return value


def _schedule(brought: Iterable[Iterable[Pair]]) -> pd.DataFrame:
    rows = [(t, *pair) for t, pairs in enumerate(brought, start=1) for pair in sorted(pairs)]
    schedule = pd.DataFrame(rows, columns=["session", "class", "domain"], dtype="int64")
    first = schedule.groupby("class")["session"].transform("min")
    return schedule.assign(new_class=(schedule["session"] == first).astype("int64"))


def _class_order(classes: int, seed: int) -> list[int]:
    """The usual order of class-incremental learning; the legacy generator never changes."""
    return [int(c) for c in np.random.RandomState(seed).permutation(classes)]


def _random_state(seed: int, purpose: str) -> np.random.RandomState:
    return np.random.RandomState(derive_seed(seed, "schedule", purpose) % 2**32)


def _domain_orders(
    classes: int, domains: int, seed: int, domain_order: str
) -> npt.NDArray[np.int64]:
    """[classes, domains]: the domains of each class in the order in which they come."""
    listed = np.tile(np.arange(domains, dtype=np.int64), (classes, 1))
    if domain_order == "listed":
        return listed
    random = _random_state(seed, "domain order")
    return np.stack([random.permutation(row) for row in listed])


def _new_class(classes: int, domains: int, seed: int, sessions: int) -> list[list[Pair]]:
    """NC: equal blocks of classes, all domains of a class together."""
    if not 1 <= sessions <= classes:
        raise UserError(
            f"schedule.sessions lists {sessions} sessions for {classes} classes; "
            "the rule nc needs between one session and one per class"
        )
    blocks = np.array_split(np.array(_class_order(classes, seed)), sessions)
    return [[(int(c), z) for c in block for z in range(domains)] for block in blocks]


def _new_domain(order: npt.NDArray[np.int64], sizes: Sequence[int]) -> list[list[Pair]]:
    """ND: every class in every session, each time in ``sizes[t]`` domains new to it."""
    domains = order.shape[1]
    if min(sizes, default=0) < 1 or sum(sizes) != domains:
        raise UserError(
            f"schedule.domains_per_session is {list(sizes)}; "
            f"give numbers of at least 1 whose sum is {domains}, the number of domains"
        )
    arriving = np.split(order, np.cumsum(sizes)[:-1], axis=1)
    return [[(c, int(z)) for c, row in enumerate(part) for z in row] for part in arriving]


def _new_class_and_domain(
    order: npt.NDArray[np.int64], seed: int, new_classes: Sequence[int]
) -> list[list[Pair]]:
    """NCD: a constant number of pairs per session, each class at most once in it.

    ``new_classes[t]`` of them are new classes, the others seen classes in a domain new to them.
    Taking the seen classes with most domains left first meets every count that can be met:
    iDomainNet has no slack, its last new classes must come back in each of the five sessions left.
    """
    classes, domains = order.shape
    if min(new_classes, default=0) < 0 or sum(new_classes) != classes:
        raise UserError(
            f"schedule.new_classes is {list(new_classes)}; "
            f"give numbers of at least 0 whose sum is {classes}, the number of classes"
        )
    pairs, rest = divmod(classes * domains, len(new_classes))
    if rest:
        raise UserError(
            f"schedule.new_classes has {len(new_classes)} sessions, which do not divide the "
            f"{classes * domains} class-domain pairs; choose a number of sessions that does"
        )
    unseen = iter(_class_order(classes, seed))
    ties = _random_state(seed, "ties")
    left: dict[int, list[int]] = {}  # of each seen class, the domains still to come
    brought = []
    for t, n_new in enumerate(new_classes, start=1):
        tie = ties.permutation(classes)
        seen = [c for c in sorted(left, key=lambda c: (-len(left[c]), tie[c])) if left[c]]
        if not 0 <= pairs - n_new <= len(seen):
            raise UserError(
                f"schedule.new_classes cannot be met: session {t} must bring {pairs} pairs and "
                f"has {n_new} new classes and {len(seen)} seen ones with a domain left; change it"
            )
        new = [next(unseen) for _ in range(n_new)]
        left |= {c: order[c].tolist() for c in new}
        brought.append([(c, left[c].pop(0)) for c in new + seen[: pairs - n_new]])
    return brought


def _ids(names: Sequence[str]) -> dict[str, int]:
    """What may stand for an id in a table: a name, or else the id itself."""
    return {str(i): i for i in range(len(names))} | {name: i for i, name in enumerate(names)}


def _read_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV with their line numbers; spreadsheet habits (BOM, spaces) are let pass."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True, restval="")
            header = reader.fieldnames or []
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read ({error}); check schedule.table") from None
    if not {"session", "class", "domain"} <= set(header):
        raise UserError(f"{path}, line 1: give the columns session,class,domain")
    if not rows:
        raise UserError(f"{path}, line 1: no pair follows; give at least one")
    return rows


def _read_table(
    path: Path, class_ids: dict[str, int], domain_ids: dict[str, int]
) -> list[list[Pair]]:
    """The pairs of each session from a user's CSV with columns session, class, domain.

    A ``new_class`` column, as in ``schedule.csv``, may stand there too; it is derived anew.
    """
    line_of: dict[Pair, int] = {}
    brought: dict[int, list[Pair]] = {}
    for line, row in _read_rows(path):
        here = f"{path}, line {line}"
        if not (row["session"].isdecimal() and int(row["session"]) >= 1):
            raise UserError(f"{here}: session {row['session']!r} is not a number from 1; mend it")
        for column, ids in (("class", class_ids), ("domain", domain_ids)):
            if row[column] not in ids:
                raise UserError(
                    f"{here}: {column} {row[column]!r} is not in the benchmark; "
                    f"give a {column} name or an id from 0 to {max(ids.values())}"
                )
        pair = class_ids[row["class"]], domain_ids[row["domain"]]
        if pair in line_of:
            raise UserError(f"{here}: the pair of line {line_of[pair]} again; remove one of them")
        line_of[pair] = line
        brought.setdefault(int(row["session"]), []).append(pair)
    for expected, session in enumerate(sorted(brought), start=1):
        if session != expected:
            raise UserError(
                f"{path}, line {line_of[brought[session][0]]}: session {session} comes without a "
                f"session {expected}; number the sessions 1, 2, 3 …"
            )
    return [brought[t] for t in sorted(brought)]


def session_table(schedule: pd.DataFrame, index: pd.DataFrame, t: int) -> pd.DataFrame:
    """Session ``t`` as (id, label, domain, part, pixels), sorted by id.

    Train rows are D_t. Test rows are those of every pair seen up to ``t``, as in Eq. 1.
    """
    pairs = schedule[["session", "class", "domain"]].rename(columns={"class": "label"})
    rows = index.merge(pairs, on=["label", "domain"])
    incoming = (rows["part"] == "train") & (rows["session"] == t)
    seen_test = (rows["part"] == "test") & (rows["session"] <= t)
    return rows.loc[incoming | seen_test, list(COLUMNS)].sort_values("id", ignore_index=True)


def write_schedule(schedule: pd.DataFrame, index: pd.DataFrame, folder: Path) -> None:
    """``schedule.csv`` in ``folder``, once every pair is known to have images in ``index``."""
    _check_images(schedule, index)
    folder.mkdir(parents=True, exist_ok=True)
    # No stage owns the sessions that a longer schedule left behind.
    for file in folder.glob("session-*.csv"):
        if int(file.stem.removeprefix("session-")) > schedule["session"].max():
            file.unlink()
    schedule.to_csv(folder / SCHEDULE, index=False, lineterminator="\n")


def write_session(folder: Path, key: str, index: pd.DataFrame) -> None:
    """``session-<key>.csv`` in ``folder``, by the ``schedule.csv`` that is there."""
    table = session_table(read_schedule(folder / SCHEDULE), index, int(key))
    table.to_csv(session_file(folder, key), index=False, lineterminator="\n")


def _check_images(schedule: pd.DataFrame, index: pd.DataFrame) -> None:
    train = index[index["part"] == "train"]
    present = set(zip(train["label"], train["domain"], strict=True))
    for session, label, domain, _ in schedule.itertuples(index=False):
        if (label, domain) not in present:
            raise UserError(
                f"session {session} brings class {label} in domain {domain}, which has no training "
                "image; change the schedule, or rebuild the benchmark with `dvc repro build`"
            )
