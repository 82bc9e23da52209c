"""The scenario as a table: which (class, domain) pairs each session brings.

A *schedule* is a sorted table (session, class, domain, new_class) with sessions from 1. A pair
comes once; or in several sessions, each with a ``share`` of its training images, a fifth column. A
*split* is a schedule applied to the index of a benchmark: one table (id, label, domain, part,
pixels) per session. NC, ND and NCD are the paper's three splits (Experiments, and "Details of
Splits" in the appendix); those of ``streams`` are others' and ours; ``table`` is any other stream,
written by hand.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from dacr.config import Data, Schedule
from dacr.data import streams
from dacr.data.session_table import COLUMNS, session_file
from dacr.data.shares import SHARE, deal, first_appearances, read_with_shares
from dacr.data.streams import Pair, Shares
from dacr.errors import UserError
from dacr.names import one_form
from dacr.rng import derive_seed

Brought = Sequence[Sequence[Pair]] | Sequence[Shares]
"""Of each session: its pairs, or what share of each pair it brings."""
Given = TypeVar("Given")

SCHEDULE = "schedule.csv"


def make_schedule(params: Schedule, classes: Sequence[str], domains: Sequence[str]) -> pd.DataFrame:
    """The schedule of ``params`` for the pairs of ``classes`` and ``domains``.

    It must have as many sessions as the pipeline, which ``params.sessions`` lists.
    """
    shape, seed, sessions = (len(classes), len(domains)), params.seed, len(params.sessions)
    brought: Brought
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
        case "vil":
            groups = _given("class_groups", rule, params.class_groups)
            ordered, random = _class_order(shape[0], seed), _random_state(seed, rule)
            brought = streams.versatile(ordered, shape[1], groups, random)
        case "uil":
            brought = streams.universal(*shape, sessions, _random_state(seed, rule))
        case "blurry":
            brought = streams.blurry(
                _class_order(shape[0], seed),
                shape[1],
                sessions,
                leak=_given("leak", rule, params.leak),
                leaks_into=_given("leaks_into", rule, params.leaks_into),
                disjoint=_given("disjoint", rule, params.disjoint),
                random=_random_state(seed, rule),
            )
        case "repeat":
            times = _given("times", rule, params.times)
            brought = streams.repeated(*shape, sessions, times, _random_state(seed, rule))
        case "table":
            path = Path(_given("table", rule, params.table))
            brought = _read_table(path, _ids(classes), _ids(domains))
    if len(brought) != sessions:
        raise UserError(
            f"params.yaml is inconsistent: the {rule} schedule has {len(brought)} sessions, "
            f"schedule.sessions lists {sessions}; recompose it with `make params`"
        )
    return _schedule(brought)


def check_schedule(params: Schedule, data: Data) -> None:
    """Refuse a rule that these numbers of classes and domains cannot satisfy; no data are needed.

    The names in a user's table may come with the data, so that one is read later.
    """
    if params.rule != "table":
        make_schedule(params, [str(number) for number in range(data.classes)], data.domains)


def _given(name: str, rule: str, value: Given | None) -> Given:
    if value is None:
        raise UserError(f"schedule.{name} is missing; the rule {rule} needs it")
    return value


def _schedule(brought: Brought) -> pd.DataFrame:
    rows = [(t, *pair) for t, pairs in enumerate(brought, start=1) for pair in sorted(pairs)]
    schedule = pd.DataFrame(rows, columns=["session", "class", "domain"], dtype="int64")
    first = schedule.groupby("class")["session"].transform("min")
    schedule = schedule.assign(new_class=(schedule["session"] == first).astype("int64"))
    shares = [own[pair] for own in brought if isinstance(own, Mapping) for pair in sorted(own)]
    return schedule.assign(share=shares) if shares else schedule


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
    named = ("class", "domain")
    return [(line, row | {own: one_form(row[own]) for own in named}) for line, row in rows]


def _read_table(
    path: Path, class_ids: dict[str, int], domain_ids: dict[str, int]
) -> list[list[Pair]] | list[Shares]:
    """The pairs of each session from a user's CSV with columns session, class, domain.

    A ``new_class`` column, as in ``schedule.csv``, may stand there too; it is derived anew. With a
    ``share`` column a pair may come in several sessions.
    """
    line_of: dict[tuple[int, ...], int] = {}
    brought: dict[int, Shares] = {}
    rows = _read_rows(path)
    shared = SHARE in rows[0][1]
    for line, row in rows:
        here = f"{path}, line {line}"
        if not (row["session"].isdecimal() and int(row["session"]) >= 1):
            raise UserError(f"{here}: session {row['session']!r} is not a number from 1; mend it")
        for column, ids in (("class", class_ids), ("domain", domain_ids)):
            if row[column] not in ids:
                raise UserError(
                    f"{here}: {column} {row[column]!r} is not in the benchmark; "
                    f"give a {column} name or an id from 0 to {max(ids.values())}"
                )
        session, pair = int(row["session"]), (class_ids[row["class"]], domain_ids[row["domain"]])
        place = (*pair, session) if shared else pair
        if place in line_of:
            raise UserError(f"{here}: the pair of line {line_of[place]} again; remove one of them")
        line_of[place] = line
        brought.setdefault(session, {})[pair] = _share(row[SHARE], here) if shared else 1.0
    for expected, session in enumerate(sorted(brought), start=1):
        if session != expected:
            first = next(iter(brought[session]))
            line = line_of[(*first, session) if shared else first]
            raise UserError(
                f"{path}, line {line}: session {session} comes without a "
                f"session {expected}; number the sessions 1, 2, 3 …"
            )
    ordered = [brought[t] for t in sorted(brought)]
    if not shared:
        return [list(own) for own in ordered]
    _check_shares(ordered, path)
    return ordered


def _share(text: str, here: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UserError(f"{here}: share {text!r} is not a number above 0 and up to 1; mend it")
    return share


def _check_shares(brought: Sequence[Shares], path: Path) -> None:
    for c, z in sorted({pair for own in brought for pair in own}):
        total = sum(own.get((c, z), 0.0) for own in brought)
        if abs(total - 1) > 1e-3:
            raise UserError(
                f"{path}: the shares of class {c} in domain {z} make {total:g}, not 1; mend them"
            )


def session_table(schedule: pd.DataFrame, index: pd.DataFrame, t: int) -> pd.DataFrame:
    """Session ``t`` as (id, label, domain, part, pixels), sorted by id.

    Train rows are D_t. Test rows are those of every pair seen up to ``t``, as in Eq. 1: from the
    first session on that brings any part of the pair.
    """
    first = first_appearances(schedule)[["session", "class", "domain"]]
    rows = index.merge(first.rename(columns={"class": "label"}), on=["label", "domain"])
    train = rows["part"] == "train"
    seen_test = ~train & (rows["session"] <= t)
    comes = deal(schedule, rows[train]) if SHARE in schedule.columns else rows["session"]
    incoming = train & (comes.reindex(rows.index, fill_value=0) == t)
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
    table = session_table(read_with_shares(folder / SCHEDULE), index, int(key))
    table.to_csv(session_file(folder, key), index=False, lineterminator="\n")


def _check_images(schedule: pd.DataFrame, index: pd.DataFrame) -> None:
    train = index[index["part"] == "train"]
    images = train.groupby(["label", "domain"]).size().to_dict()
    parts = schedule.groupby(["class", "domain"])["session"].transform("size")
    columns = schedule[["session", "class", "domain"]].assign(parts=parts)
    for session, label, domain, parts in columns.itertuples(index=False):
        if (found := images.get((label, domain), 0)) < parts:
            one = "no training image" if not found else f"{found} training images for {parts} parts"
            raise UserError(
                f"session {session} brings class {label} in domain {domain}, which has {one}; "
                "change the schedule, or rebuild the benchmark with `dvc repro build`"
            )
