"""The splits: the paper's counts, every pair once, nothing seen twice, and clear errors."""

from collections import Counter
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dacr.config import Data
from dacr.data import splits
from dacr.data.session_table import read_session
from dacr.data.shares import apportion, deal, images_by_session, read_with_shares
from dacr.data.splits import session_table
from dacr.errors import UserError
from tests.schedules import make_schedule, section, write_split

SCHEDULES = Path(__file__).parents[1] / "data" / "schedules"

NC, ND = {"rule": "nc"}, {"rule": "nd"}
NCD = {"rule": "ncd", "domain_order": "shuffled"}
DIGITS: dict[str, Any] = {"classes": 10, "domains": 4, "domain_order": "listed"}
CIFAR: dict[str, Any] = {"classes": 20, "domains": 5, "domain_order": "shuffled"}
DOMAINNET: dict[str, Any] = {"classes": 100, "domains": 6, "domain_order": "listed"}
DIGITS_NCD = NCD | {"sessions": 10, "new_classes": [4, 3, 2, 1, 0, 0, 0, 0, 0, 0]}

PAPER: dict[str, dict[str, Any]] = {
    "idigits_nc": DIGITS | NC | {"sessions": 5},
    "idigits_nd": DIGITS | ND | {"sessions": 4, "domains_per_session": [1, 1, 1, 1]},
    "idigits_ncd": DIGITS | DIGITS_NCD,
    "icifar20_nc": CIFAR | NC | {"sessions": 5},
    "icifar20_nd": CIFAR | ND | {"sessions": 5, "domains_per_session": [1, 1, 1, 1, 1]},
    "icifar20_nd3": CIFAR | ND | {"sessions": 3, "domains_per_session": [1, 2, 2]},
    "icifar20_ncd": CIFAR | NCD | {"sessions": 10, "new_classes": [10, 5, 3, 1, 1, 0, 0, 0, 0, 0]},
    "idomainnet_nc": DOMAINNET | NC | {"sessions": 10},
    "idomainnet_nd": DOMAINNET | ND | {"sessions": 6, "domains_per_session": [1, 1, 1, 1, 1, 1]},
    "idomainnet_ncd": DOMAINNET
    | NCD
    | {"sessions": 10, "new_classes": [60, 10, 10, 10, 10, 0, 0, 0, 0, 0]},
}
PAPER |= {name.replace("idigits", "idigits_mini"): PAPER[name] for name in list(PAPER)[:3]}
BLURRY = {"rule": "blurry", "leak": 0.1, "leaks_into": 2, "disjoint": 0.0}
STREAMS: dict[str, dict[str, Any]] = {
    f"{benchmark}_{stream['rule']}": {**shape, **stream}
    for benchmark, shape, nc_sessions in (
        ("idigits", DIGITS, 5), ("idigits_mini", DIGITS, 5), ("icifar20", CIFAR, 5),
        ("idomainnet", DOMAINNET, 10),
    )
    for stream in (
        {"rule": "vil", "class_groups": 5, "sessions": 5 * shape["domains"]},
        {"rule": "uil", "sessions": 10},
        BLURRY | {"sessions": nc_sessions},
        {"rule": "repeat", "times": 2, "sessions": 10},
    )
}  # fmt: skip
"""The splits of the field, as conf/split has them."""


def pairs_by_session(schedule: pd.DataFrame) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for session, label, domain, *_ in schedule.itertuples(index=False):
        found.setdefault(session, []).append((label, domain))
    return found


def new_class_counts(schedule: pd.DataFrame) -> list[int]:
    """Counted by walking through the sessions, not from the new_class column."""
    seen: set[int] = set()
    counts = []
    for pairs in pairs_by_session(schedule).values():
        here = {label for label, _ in pairs}
        counts.append(len(here - seen))
        seen |= here
    return counts


def check_any(schedule: pd.DataFrame, classes: int, domains: int) -> None:
    """What holds for every rule: sorted, every pair once, new_class true at first sight only."""
    assert list(schedule.columns) == ["session", "class", "domain", "new_class"]
    rows = list(schedule[["session", "class", "domain"]].itertuples(index=False, name=None))
    assert rows == sorted(rows)
    assert sorted(row[1:] for row in rows) == [
        (c, z) for c in range(classes) for z in range(domains)
    ]
    assert list(pairs_by_session(schedule)) == list(range(1, rows[-1][0] + 1))
    first: dict[int, int] = {}
    for session, label, _ in rows:
        first.setdefault(label, session)
    assert list(schedule["new_class"]) == [int(first[row[1]] == row[0]) for row in rows]


@pytest.mark.parametrize("name", sorted(PAPER | STREAMS))
def test_committed_tables_are_reproduced(name: str) -> None:
    committed = (SCHEDULES / f"{name}.csv").read_bytes()
    made = make_schedule(**(PAPER | STREAMS)[name], seed=1993)
    assert made.to_csv(index=False, lineterminator="\n").encode() == committed


def test_every_committed_table_is_checked() -> None:
    assert {path.stem for path in SCHEDULES.glob("*.csv")} == set(PAPER | STREAMS)


def test_domain_order_does_not_depend_on_the_rule() -> None:
    """The sequence of domains of a class is the same in ND, in the m-study and in NCD."""

    def sequences(name: str) -> dict[int, list[set[int]]]:
        found: dict[int, list[set[int]]] = {}
        for pairs in pairs_by_session(make_schedule(**PAPER[name])).values():
            for label in {label for label, _ in pairs}:
                domains = {domain for other, domain in pairs if other == label}
                found.setdefault(label, []).append(domains)
        return found

    one_by_one = sequences("icifar20_nd")
    assert sequences("icifar20_ncd") == one_by_one
    merged = {c: [a, b | d, e | f] for c, (a, b, d, e, f) in one_by_one.items()}
    assert sequences("icifar20_nd3") == merged
    assert len({str(order) for order in one_by_one.values()}) > 10  # shuffled a class, not once


@pytest.mark.parametrize("name", [name for name in sorted(PAPER) if "mini" not in name])
def test_paper_counts_for_many_seeds(name: str) -> None:
    """Only NCD can fail for some orders and not for others: 200 seeds for it, 20 else."""
    setting = PAPER[name]
    seeds = 200 if setting["rule"] == "ncd" else 20
    classes, domains, sessions = setting["classes"], setting["domains"], setting["sessions"]
    distinct = set()
    for seed in range(seeds):
        schedule = make_schedule(**setting, seed=seed)
        check_any(schedule, classes, domains)
        brought = pairs_by_session(schedule)
        distinct.add(str(brought))
        if setting["rule"] == "nc":
            assert new_class_counts(schedule) == [classes // sessions] * sessions
            assert schedule["new_class"].all()
        elif setting["rule"] == "nd":
            for t, size in enumerate(setting["domains_per_session"], start=1):
                assert Counter(c for c, _ in brought[t]) == dict.fromkeys(range(classes), size)
        else:
            assert new_class_counts(schedule) == setting["new_classes"]
            for pairs in brought.values():
                assert len(pairs) == classes * domains / 10
                assert len({c for c, _ in pairs}) == len(pairs)
    listed_nd = setting["rule"] == "nd" and setting["domain_order"] == "listed"
    assert len(distinct) == (1 if listed_nd else seeds)


@pytest.mark.parametrize("name", ["idigits_nd", "idomainnet_nd"])
def test_listed_domains_come_in_the_order_of_listing(name: str) -> None:
    for _, rows in make_schedule(**PAPER[name]).groupby("class"):
        assert list(rows["domain"]) == sorted(rows["domain"])


def test_class_order_is_the_numpy_one() -> None:
    order = list(np.random.RandomState(1993).permutation(10))
    nc = make_schedule(**PAPER["idigits_nc"])
    ncd = make_schedule(**PAPER["idigits_ncd"])
    for schedule, counts in ((nc, [2] * 5), (ncd, [4, 3, 2, 1])):
        new = schedule[schedule["new_class"] == 1]
        ends = np.cumsum(counts)
        for t, (end, count) in enumerate(zip(ends, counts, strict=True), start=1):
            expected = set(order[end - count : end])
            assert set(new.loc[new["session"] == t, "class"]) == expected


def test_uneven_nc_blocks_differ_by_at_most_one() -> None:
    schedule = make_schedule("nc", 10, 2, sessions=4)
    check_any(schedule, 10, 2)
    assert sorted(new_class_counts(schedule)) == [2, 2, 3, 3]


@pytest.mark.parametrize("sessions", [1, 10])
def test_nc_has_from_one_session_to_one_per_class(sessions: int) -> None:
    schedule = make_schedule("nc", 10, 2, sessions=sessions)
    check_any(schedule, 10, 2)
    assert new_class_counts(schedule) == [10 // sessions] * sessions


def test_one_number_of_domains_is_that_of_every_session() -> None:
    each, listed = (
        make_schedule("nd", 3, 4, sessions=2, domains_per_session=number) for number in (2, [2, 2])
    )
    check_any(each, 3, 4)
    pd.testing.assert_frame_equal(each, listed)


def test_numbers_alone_tell_that_a_rule_cannot_be_met() -> None:
    """Before there are data; a table of the user's is left for later."""
    numbers = Data.model_construct(classes=4, domains=["photo", "sketch"])
    splits.check_schedule(section("nc", 4), numbers)
    splits.check_schedule(section("table", 4, table="no/such.csv"), numbers)
    with pytest.raises(UserError, match="5 sessions for 4 classes"):
        splits.check_schedule(section("nc", 5), numbers)


@cache
def feasible(left: tuple[int, ...], future: tuple[int, ...], domains: int, pairs: int) -> bool:
    """Exhaustive: can seen classes with ``left`` domains fill the sessions of ``future``?"""
    if not future:
        return not any(left)
    new, *rest = future
    if new > pairs:
        return False
    open_classes = [i for i, n in enumerate(left) if n]
    for chosen in combinations(open_classes, pairs - new):
        after = [n - (i in chosen) for i, n in enumerate(left)] + [domains - 1] * new
        if feasible(tuple(sorted(after)), tuple(rest), domains, pairs):
            return True
    return False


def test_ncd_finds_a_schedule_exactly_when_there_is_one() -> None:
    """All counts up to 5 sessions, 6 classes and 4 domains."""
    found = 0
    for sessions, domains in product(range(1, 6), range(1, 5)):
        for new_classes in product(range(4), repeat=sessions):
            classes = sum(new_classes)
            pairs, rest = divmod(classes * domains, sessions)
            if not 1 <= classes <= 6 or rest:
                continue
            possible = feasible((), new_classes, domains, pairs)
            try:
                schedule = make_schedule(
                    "ncd", classes, domains, sessions=sessions, new_classes=new_classes
                )
            except UserError:
                assert not possible
            else:
                assert possible
                check_any(schedule, classes, domains)
                found += 1
    assert found > 30


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"rule": "nc", "sessions": 5}, "5 sessions for 4 classes"),
        ({"rule": "nc", "sessions": 0}, "0 sessions for 4 classes"),
        ({"rule": "nd", "sessions": 3}, "domains_per_session is missing"),
        ({"rule": "nd", "sessions": 2, "domains_per_session": [1, 1]}, "sum is 3"),
        ({"rule": "nd", "sessions": 3, "domains_per_session": [3, 0, 0]}, "at least 1"),
        ({"rule": "nd", "sessions": 3, "domains_per_session": [1, 2]}, "make params"),
        ({"rule": "nd", "sessions": 1, "domains_per_session": []}, "sum is 3"),
        ({"rule": "ncd", "sessions": 3}, "new_classes is missing"),
        ({"rule": "ncd", "sessions": 3, "new_classes": [2, 1, 0]}, "sum is 4"),
        ({"rule": "ncd", "sessions": 3, "new_classes": []}, "sum is 4"),
        ({"rule": "ncd", "sessions": 3, "new_classes": [4, 1, -1]}, "at least 0"),
        ({"rule": "ncd", "sessions": 5, "new_classes": [2, 2, 0, 0, 0]}, "do not divide the 12"),
        ({"rule": "ncd", "sessions": 3, "new_classes": [3, 1, 0]}, "session 1 must bring 4 pairs"),
        ({"rule": "ncd", "sessions": 6, "new_classes": [2, 0, 0, 0, 1, 1]}, "session 4 must bring"),
        ({"rule": "ncd", "sessions": 4, "new_classes": [4, 0, 0, 0]}, "has 4 new classes"),
        ({"rule": "ncd", "sessions": 5, "new_classes": [4, 0, 0]}, "make params"),
        ({"rule": "vil", "sessions": 3}, "class_groups is missing"),
        ({"rule": "vil", "sessions": 15, "class_groups": 5}, "5 for 4 classes"),
        ({"rule": "vil", "sessions": 4, "class_groups": 2}, "make params"),
        ({"rule": "uil", "sessions": 13}, "13 sessions for 12 class-domain pairs"),
        (BLURRY | {"sessions": 5}, "5 sessions for 4 classes"),
        (BLURRY | {"sessions": 1}, "between two sessions"),
        (BLURRY | {"sessions": 2}, "leaks_into is 2 for 2 sessions"),
        ({"rule": "blurry", "sessions": 3}, "leak is missing"),
        ({"rule": "repeat", "sessions": 3, "times": 4}, "times is 4 for 3 sessions"),
        ({"rule": "repeat", "sessions": 3, "times": 1}, "at least 2"),
        ({"rule": "repeat", "sessions": 25, "times": 2}, "a pair for every session"),
        ({"rule": "table", "sessions": 3}, "table is missing"),
        ({"rule": "table", "sessions": 3, "table": "no/such.csv"}, "cannot be read"),
    ],
)
def test_wrong_settings_are_one_clear_line(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        make_schedule(classes=4, domains=3, **setting)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def from_table(path: Path, text: str | bytes, sessions: int) -> pd.DataFrame:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return make_schedule(
        "table",
        3,
        2,
        sessions=sessions,
        table=str(path),
        class_names=["cat", "dog", "emu"],
        domain_names=["photo", "sketch"],
    )


def test_user_table_by_ids_names_and_in_any_order(tmp_path: Path) -> None:
    text = "\ufeffsession, class, domain\r\n2,emu,photo\r\n1,dog,1\r\n\r\n2,1,0\r\n"
    schedule = from_table(tmp_path / "t.csv", text, sessions=2)
    assert schedule.to_csv(index=False, lineterminator=" ") == (
        "session,class,domain,new_class 1,1,1,1 2,1,0,0 2,2,0,1 "
    )


def test_a_name_wins_over_an_id(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("session,class,domain\n1,0,0\n2,7,0\n")
    schedule = make_schedule("table", 2, 1, sessions=2, table=str(path), class_names=["7", "0"])
    assert list(schedule["class"]) == [1, 0]


def test_a_name_is_the_same_in_either_unicode_form(tmp_path: Path) -> None:
    """As an editor on one system writes it, and a folder on another."""
    path = tmp_path / "t.csv"
    path.write_text("session,class,domain\n1,cafe\u0301,0\n", encoding="utf-8")
    schedule = make_schedule(
        "table", 2, 1, sessions=1, table=str(path), class_names=["a", "caf\xe9"]
    )
    assert list(schedule["class"]) == [1]


def test_a_committed_schedule_is_a_valid_user_table() -> None:
    setting = PAPER["icifar20_ncd"]
    path = str(SCHEDULES / "icifar20_ncd.csv")
    read = make_schedule("table", 20, 5, sessions=10, table=path)
    pd.testing.assert_frame_equal(read, make_schedule(**setting))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: give the columns"),
        ("session;class;domain\n1;0;0\n", "line 1: give the columns"),
        ("session,class,domain\n", "line 1: no pair follows"),
        ("session,class,domain\n1,0,0\nx,1,0\n", "line 3: session 'x'"),
        ("session,class,domain\n0,0,0\n", "line 2: session '0'"),
        ("session,class,domain\n1,0,0\n1,3,0\n", "line 3: class '3'"),
        ("session,class,domain\n1,0,0\n1,cow,0\n", "line 3: class 'cow'"),
        ("session,class,domain\n1,-1,0\n", "line 2: class '-1'"),
        ("session,class,domain\n1,0,2\n", "line 2: domain '2'"),
        ("session,class,domain\n1,0\n", "line 2: domain ''"),
        ("session,class,domain\n1,0,0\n1,1,0\n2,cat,photo\n", "line 4: the pair of line 2"),
        ("session,class,domain\n1,0,0\n3,1,0\n", "line 3: session 3 comes without a session 2"),
        ("session,class,domain\n1,0,0\n3,1,0\n1,2,0\n", "line 3: session 3 comes without"),
        ("session,class,domain\n2,0,0\n", "line 2: session 2 comes without a session 1"),
        ("session,class,domain\n1,0,0\n", "make params"),
        (b"session,class,domain\n1,\xff,0\n", "cannot be read"),
    ],
)
def test_wrong_user_tables_name_the_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UserError) as error:
        from_table(tmp_path / "t.csv", text, sessions=2)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def make_index(classes: int, domains: int, seed: int = 0, most: int = 3) -> pd.DataFrame:
    """A benchmark's index with some train (as many as ``most``) and no to two test images a pair.

    There are images enough for a pair in three parts where ``most`` is larger.
    """
    random = np.random.RandomState(seed)
    least = min(3, most - 2)
    cells = [
        (c, z, part)
        for c in range(classes)
        for z in range(domains)
        for part, count in (
            ("train", random.randint(least, most + 1)),
            ("test", random.randint(0, 3)),
        )
        for _ in range(count)
    ]
    random.shuffle(cells)
    frame = pd.DataFrame(cells, columns=["label", "domain", "part"])
    frame.insert(0, "id", np.arange(len(cells)))
    pixels = [f"{i:016x}" for i in random.randint(0, 2**31, len(cells))]
    return frame.assign(source_id=[f"s{i}" for i in frame["id"]], pixels=pixels)


@pytest.mark.parametrize("name", ["idigits_nc", "icifar20_nd3", "icifar20_ncd"])
def test_sessions_against_a_slow_reading_of_the_definition(name: str) -> None:
    setting = PAPER[name]
    schedule = make_schedule(**setting)
    index = make_index(setting["classes"], setting["domains"])
    brought = pairs_by_session(schedule)
    used: list[int] = []
    for t in brought:
        expected = []
        for image, label, domain, part, _, pixels in index.itertuples(index=False):
            since = next(s for s in brought if (label, domain) in brought[s])
            if since == t if part == "train" else since <= t:
                expected.append((image, label, domain, part, pixels))
        table = session_table(schedule, index, t)
        assert list(table.itertuples(index=False, name=None)) == expected
        used += table.loc[table["part"] == "train", "id"].tolist()
    assert len(used) == len(set(used))
    assert set(used) == set(index.loc[index["part"] == "train", "id"])
    last = table.loc[table["part"] == "test", "id"]
    assert set(last) == set(index.loc[index["part"] == "test", "id"])


# -- the splits of the field ------------------------------------------------------------------


def shares_of(schedule: pd.DataFrame) -> dict[tuple[int, int], dict[int, float]]:
    found: dict[tuple[int, int], dict[int, float]] = {}
    for session, label, domain, _, share in schedule.itertuples(index=False):
        assert session not in found.setdefault((label, domain), {})
        found[label, domain][session] = share
    return found


@pytest.mark.parametrize("name", [name for name in STREAMS if name.endswith("vil")])
def test_vil_brings_each_group_of_classes_in_each_domain(name: str) -> None:
    setting = STREAMS[name]
    classes, domains = setting["classes"], setting["domains"]
    orders = set()
    for seed in range(20):
        schedule = make_schedule(**setting, seed=seed)
        check_any(schedule, classes, domains)
        sessions = pairs_by_session(schedule).values()
        assert all(len({z for _, z in pairs}) == 1 for pairs in sessions)
        groups = [frozenset(c for c, _ in pairs) for pairs in sessions]
        assert set(map(len, groups)) == {classes // 5}
        assert set(Counter(groups).values()) == {domains}  # groups are the same in every domain
        orders.add(tuple(pairs[0][1] for pairs in sessions))
    assert len(orders) == 20
    assert make_schedule(**STREAMS["idigits_vil"])["session"].max() == 20  # Park et al.


@pytest.mark.parametrize("name", [name for name in STREAMS if name.endswith("uil")])
def test_uil_sessions_are_rectangles_of_random_sizes(name: str) -> None:
    setting = STREAMS[name]
    sizes = set()
    for seed in range(20):
        schedule = make_schedule(**setting, seed=seed)
        check_any(schedule, setting["classes"], setting["domains"])
        for pairs in pairs_by_session(schedule).values():
            here, domains = {c for c, _ in pairs}, {z for _, z in pairs}
            assert set(pairs) == set(product(here, domains))
            sizes.add((len(here), len(domains)))
    assert {domains for _, domains in sizes} == set(range(1, setting["domains"] + 1))
    assert len({classes for classes, _ in sizes}) > setting["classes"] / 3


@pytest.mark.parametrize("sessions", [1, 2, 7, 12])
def test_uil_has_as_many_sessions_as_asked_for(sessions: int) -> None:
    check_any(make_schedule("uil", 4, 3, sessions=sessions), 4, 3)


@pytest.mark.parametrize("name", [name for name in STREAMS if name.endswith("blurry")])
def test_blurry_classes_have_a_home_and_leak(name: str) -> None:
    setting = STREAMS[name]
    counts = set()
    for seed in range(20):
        shares = shares_of(make_schedule(**setting, seed=seed))
        assert set(shares) == set(product(range(setting["classes"]), range(setting["domains"])))
        homes: dict[int, set[int]] = {}
        for (label, _), own in shares.items():
            assert sorted(own.values()) == [0.05, 0.05, 0.9]
            homes.setdefault(label, set()).add(max(own, key=own.__getitem__))
        assert all(len(own) == 1 for own in homes.values())  # all domains of a class together
        at_home = Counter(own.pop() for own in homes.values())
        assert set(at_home) == set(range(1, setting["sessions"] + 1))
        counts |= set(at_home.values())
    assert len(counts) > 3  # random numbers of classes


def test_blurry_without_its_disjoint_classes_is_si_blurry() -> None:
    schedule = make_schedule(**STREAMS["icifar20_blurry"] | {"disjoint": 0.5})
    parts = {pair: len(own) for pair, own in shares_of(schedule).items()}
    leaking = {c for (c, _), n in parts.items() if n == 3}
    assert len(leaking) == 10
    assert all(n == (3 if c in leaking else 1) for (c, _), n in parts.items())


@pytest.mark.parametrize("name", [name for name in STREAMS if name.endswith("repeat")])
def test_repeated_pairs_come_back_in_other_sessions(name: str) -> None:
    setting = STREAMS[name]
    pairs = list(product(range(setting["classes"]), range(setting["domains"])))
    for seed in range(20):
        schedule = make_schedule(**setting, seed=seed)
        assert all(list(own.values()) == [0.5, 0.5] for own in shares_of(schedule).values())
        brought = pairs_by_session(schedule)
        assert sorted(pair for own in brought.values() for pair in own) == sorted(pairs * 2)
        assert {len(own) for own in brought.values()} == {len(pairs) // 5}
        before: set[tuple[int, int]] = set()
        early = 0  # pairs that come back before all have come
        for own in brought.values():
            early += len(before & set(own)) * (len(before) < len(pairs))
            before |= set(own)
        assert early > len(pairs) / 10


@pytest.mark.parametrize(("times", "sessions"), [*product(range(2, 6), range(2, 25))])
def test_repeat_works_out_wherever_it_can(times: int, sessions: int) -> None:
    if times > sessions:
        return
    for seed in range(5):
        schedule = make_schedule("repeat", 4, 3, sessions=sessions, times=times, seed=seed)
        assert set(map(len, shares_of(schedule).values())) == {times}
        sizes = Counter(schedule["session"]).values()
        assert len(sizes) == sessions
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("images", "shares", "parts"),
    [
        (10, [0.5, 0.5], [5, 5]),
        (11, [0.5, 0.5], [6, 5]),
        (100, [0.05, 0.9, 0.05], [5, 90, 5]),
        (52, [0.05, 0.05, 0.9], [3, 2, 47]),  # 2.6, 2.6, 46.8
        (4, [0.3, 0.7], [1, 3]),  # 1.2, 2.8
        # 0.1 each, 3.4 and 6.2: three too many after the ones, taken where most is too much
        (10, [0.01, 0.01, 0.01, 0.01, 0.34, 0.62], [1, 1, 1, 1, 2, 4]),
        (3, [0.05, 0.9, 0.05], [1, 1, 1]),
        (4, [0.05, 0.9, 0.05], [1, 2, 1]),
        (7, [0.333333, 0.333333, 0.333333], [3, 2, 2]),
        (1, [1.0], [1]),
        (0, [1.0], [0]),
    ],
)
def test_images_are_apportioned_by_largest_remainders(
    images: int, shares: list[float], parts: list[int]
) -> None:
    assert apportion(images, np.array(shares)).tolist() == parts


def test_every_share_of_every_size_is_dealt_out_whole() -> None:
    random = np.random.RandomState(0)
    for _ in range(500):
        shares = random.dirichlet(np.ones(random.randint(1, 8)) * 0.3) + 1e-3
        images = int(random.randint(len(shares), 200))
        parts = apportion(images, shares)
        exact = images * shares / shares.sum()
        assert parts.sum() == images
        assert parts.min() >= 1
        if exact.min() >= 1:
            assert (abs(parts - exact) < 1).all()


@pytest.mark.parametrize("name", ["idigits_blurry", "icifar20_repeat"])
def test_an_image_comes_once_and_its_pair_is_tested_from_its_first_part_on(name: str) -> None:
    setting = STREAMS[name]
    schedule = make_schedule(**setting)
    shares = shares_of(schedule)
    index = make_index(setting["classes"], setting["domains"], most=9)
    used: list[int] = []
    for t in range(1, setting["sessions"] + 1):
        table = session_table(schedule, index, t)
        train, test = (table[table["part"] == part] for part in ("train", "test"))
        brought = set(zip(train["label"], train["domain"], strict=True))
        assert brought == {pair for pair, own in shares.items() if t in own}
        seen = {pair for pair, own in shares.items() if min(own) <= t}
        wanted = [
            i
            for i, label, domain, part in index[["id", "label", "domain", "part"]].values
            if part == "test" and (label, domain) in seen
        ]
        assert sorted(test["id"]) == sorted(wanted)
        used += train["id"].tolist()
    assert sorted(used) == sorted(index.loc[index["part"] == "train", "id"])


def test_an_image_keeps_its_session_when_other_pairs_grow() -> None:
    schedule = make_schedule(**STREAMS["idigits_repeat"])
    index = make_index(10, 4, most=9)
    more = index[index["label"] == 3].assign(
        id=lambda own: own["id"] + 10_000, pixels=lambda own: own["pixels"].str[::-1]
    )
    for t in (1, 5):
        before = session_table(schedule, index, t)
        after = session_table(schedule, pd.concat([index, more]), t)
        others = after[after["label"] != 3].reset_index(drop=True)
        pd.testing.assert_frame_equal(others, before[before["label"] != 3].reset_index(drop=True))


def test_a_pair_with_fewer_images_than_parts_is_an_error(tmp_path: Path) -> None:
    index = make_index(10, 4, most=9)
    pair = (index["label"] == 7) & (index["domain"] == 2) & (index["part"] == "train")
    few = index.drop(index.index[pair][2:])
    with pytest.raises(UserError, match="class 7 in domain 2, which has 2 training images for 3"):
        write_split(make_schedule(**STREAMS["idigits_blurry"]), few, tmp_path)


def test_a_written_stream_is_read_back_with_its_shares(tmp_path: Path) -> None:
    schedule = make_schedule(**STREAMS["idigits_blurry"])
    index = make_index(10, 4, most=9)
    write_split(schedule, index, tmp_path)
    for t in range(1, 6):
        read = read_session(tmp_path / f"session-{t:02d}.csv")
        pd.testing.assert_frame_equal(read, session_table(schedule, index, t))
    path = tmp_path / "schedule.csv"
    path.write_text(path.read_text().replace(",0.9\n", ",nine\n", 1))
    with pytest.raises(UserError, match=r"damaged .*dvc repro -f schedule"):
        splits.write_session(tmp_path, "01", index)


@pytest.mark.parametrize(("share", "good"), [("1", True), ("0", False), ("1.5", False)])
def test_a_share_that_is_read_back_is_above_0_and_up_to_1(
    tmp_path: Path, share: str, good: bool
) -> None:
    path = tmp_path / "schedule.csv"
    path.write_text(f"session,class,domain,new_class,share\n1,0,0,1,{share}\n1,1,0,1,0.5\n")
    if good:
        assert read_with_shares(path)["share"].tolist() == [1, 0.5]
    else:
        with pytest.raises(UserError, match="a share is none"):
            read_with_shares(path)


@pytest.mark.parametrize("setting", [PAPER["idigits_nd"], STREAMS["idigits_blurry"]])
def test_images_are_counted_by_session_as_they_are_dealt(setting: dict[str, Any]) -> None:
    """Pairs that the schedule does not bring come in no session."""
    schedule = make_schedule(**setting)
    schedule = schedule[schedule["domain"] != 3]
    train = make_index(10, 4, most=9).query("part == 'train'")
    counts = Counter(zip(train["label"], train["domain"], strict=True))
    found = images_by_session(schedule, counts)
    assert sorted(found) == sorted(schedule["session"].unique())
    for t, own in found.items():
        table = session_table(schedule, train, t)
        assert own == Counter(zip(table["label"], table["domain"], strict=True))


def test_images_of_pairs_that_are_not_brought_are_dealt_to_no_session() -> None:
    schedule = make_schedule(**STREAMS["idigits_blurry"])
    train = make_index(10, 4, most=9).query("part == 'train'")
    dealt = deal(schedule[schedule["domain"] != 3], train).reindex(train.index)
    assert ((dealt == 0) == (train["domain"] == 3)).all()


@pytest.mark.parametrize("name", ["icifar20_blurry", "icifar20_repeat", "icifar20_vil"])
def test_a_committed_stream_is_a_valid_user_table(name: str) -> None:
    setting = STREAMS[name]
    path = str(SCHEDULES / f"{name}.csv")
    read = make_schedule("table", 20, 5, sessions=setting["sessions"], table=path)
    pd.testing.assert_frame_equal(read, make_schedule(**setting))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,0,0,0.5\n1,0,0,0.5\n", "line 3: the pair of line 2"),
        ("1,0,0,0.5\n2,0,0,0.4\n", "class 0 in domain 0 make 0.9"),
        ("1,0,0,0.5\n2,0,0,half\n", "line 3: share 'half'"),
        ("1,0,0,0\n", "line 2: share '0'"),
        ("1,0,0,1.5\n", "line 2: share '1.5'"),
        ("".join(f"1,{c},{z},0.5\n" for c in (2, 1, 0) for z in (1, 0)), "class 0 in domain 0"),
        ("1,0,0,0.5\n3,0,0,0.5\n", "line 3: session 3 comes without a session 2"),
    ],
)
def test_wrong_shares_of_a_user_table_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        from_table(tmp_path / "t.csv", f"session,class,domain,share\n{text}", sessions=2)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_share_may_be_the_whole(tmp_path: Path) -> None:
    text = "session,class,domain,share\n1,0,0,1\n1,1,0,0.25\n2,1,0,0.75\n"
    assert from_table(tmp_path / "t.csv", text, sessions=2)["share"].tolist() == [1, 0.25, 0.75]


def test_a_partial_table_leaves_the_other_pairs_out(tmp_path: Path) -> None:
    schedule = from_table(tmp_path / "t.csv", "session,class,domain\n1,0,1\n", sessions=1)
    table = session_table(schedule, make_index(3, 2, seed=3), 1)
    assert set(zip(table["label"], table["domain"], strict=True)) == {(0, 1)}


def test_written_split_does_not_depend_on_the_order_of_the_index(tmp_path: Path) -> None:
    schedule = make_schedule(**PAPER["idigits_ncd"])
    index = make_index(10, 4)
    write_split(schedule, index, tmp_path / "a")
    write_split(schedule, index.sample(frac=1, random_state=1), tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["schedule.csv", *(f"session-{t:02d}.csv" for t in range(1, 11))]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a/schedule.csv").read_bytes() == (
        SCHEDULES / "idigits_ncd.csv"
    ).read_bytes()
    for t in range(1, 11):
        read = read_session(tmp_path / "a" / f"session-{t:02d}.csv")
        pd.testing.assert_frame_equal(read, session_table(schedule, index, t))


def test_writing_a_shorter_split_leaves_no_old_sessions(tmp_path: Path) -> None:
    index = make_index(10, 4)
    write_split(make_schedule(**PAPER["idigits_ncd"]), index, tmp_path)
    write_split(make_schedule(**PAPER["idigits_nd"]), index, tmp_path)
    assert len(list(tmp_path.glob("session-*.csv"))) == 4


def test_writing_a_schedule_again_keeps_its_sessions_and_makes_its_folder(tmp_path: Path) -> None:
    index, schedule = make_index(10, 4), make_schedule(**PAPER["idigits_nd"])
    folder = tmp_path / "data" / "split"
    write_split(schedule, index, folder)
    splits.write_schedule(schedule, index, folder)
    assert len(list(folder.glob("session-*.csv"))) == 4


def test_a_pair_without_training_images_is_an_error(tmp_path: Path) -> None:
    index = make_index(10, 4)
    gone = (index["label"] == 7) & (index["domain"] == 2) & (index["part"] == "train")
    with pytest.raises(UserError, match="class 7 in domain 2, which has no training image"):
        write_split(make_schedule(**PAPER["idigits_nd"]), index[~gone], tmp_path)


HEAD, PIXELS = b"id,label,domain,part,pixels\n", b"0123456789abcdef"


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"id,label,domain,part\n1,0,0,train\n",
        HEAD + b"1,0,0,train,%b\n2,0,0,tes" % PIXELS,
        HEAD + b"1,0,0,train,%b\n2,0,0,test,0123" % PIXELS,
        HEAD + b"1,0,0,train,%b\n2,0" % PIXELS,
        HEAD + b"1,0,0,train,%b\n2.5,0,0,test,%b\n" % (PIXELS, PIXELS),
        HEAD + b"1,0,0,train,%b\n1,0,0,test,%b\n" % (PIXELS, PIXELS),
        HEAD + b"1,-1,0,train,%b\n" % PIXELS,
        HEAD + b"1,0,0,train,%b,9\n" % PIXELS,
        HEAD + b"1,0,0,train,not sixteen hex.\n",
        b"id,label,domain,pixels\n1,0,0,%b\n" % PIXELS,
        b"<<<<<<< HEAD\n" + HEAD + b"1,0,0,train,%b\n" % PIXELS,
        HEAD + b"1,0,0,train,%b\n\x00\xff\xfe\x00" % PIXELS,
    ],
)
def test_a_damaged_session_file_says_what_to_run(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "session-01.csv"
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"session-01\.csv is damaged .*dvc repro split") as error:
        read_session(path)
    assert "\n" not in str(error.value)


def test_a_missing_session_file_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dvc repro split"):
        read_session(tmp_path / "session-09.csv")
