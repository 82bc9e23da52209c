"""Streams of the field beside the paper's three splits: which pairs each session brings.

A rule gives one entry per session. Where every pair comes once the entry is a list of pairs; where
pairs come in parts it maps each pair to the share of its training images that the session brings.
All training images come exactly once in the whole stream, whatever the rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dacr.errors import UserError

Pair = tuple[int, int]
Shares = dict[Pair, float]
"""Of a session: what part of each pair's training images it brings."""
DIGITS = 6
"""A share is written with so many decimals."""


def versatile(
    order: Sequence[int], domains: int, groups: int, random: np.random.RandomState
) -> list[list[Pair]]:
    """VIL: a session is a group of classes in one domain; all of them come in random order.

    Versatile incremental learning (Park et al., ECCV 2024). Groups are consecutive in ``order``, as
    large as each other, or one class larger.
    """
    if not 1 <= groups <= len(order):
        raise UserError(
            f"schedule.class_groups is {groups} for {len(order)} classes; "
            "the rule vil needs between one group and one per class"
        )
    blocks = np.array_split(np.array(order), groups)
    sessions = [[(int(c), z) for c in block] for block in blocks for z in range(domains)]
    return [sessions[i] for i in random.permutation(len(sessions))]


def universal(
    classes: int, domains: int, sessions: int, random: np.random.RandomState
) -> list[list[Pair]]:
    """UIL: a session brings some classes in some domains, with random numbers of both.

    As in universal incremental learning (Luo et al., 2025) neither what comes next nor how much of
    it is known. All pairs are one block at first; blocks are cut at random, between classes or
    between domains, until there is one for each session. So every session is a rectangle of classes
    × domains, and every number of sessions up to that of pairs can be had.
    """
    pairs = classes * domains
    if not 1 <= sessions <= pairs:
        raise UserError(
            f"schedule.sessions lists {sessions} sessions for {pairs} class-domain pairs; "
            "the rule uil needs between one session and one per pair (facts.mixed_sessions)"
        )
    shuffled = [int(c) for c in random.permutation(classes)]
    blocks = [(shuffled, [int(z) for z in random.permutation(domains)])]
    while len(blocks) < sessions:
        sizes = np.array([len(own) * len(others) - 1 for own, others in blocks])
        chosen = int(random.choice(len(blocks), p=sizes / sizes.sum()))
        own, others = blocks.pop(chosen)
        # Each place where it can be cut is as likely as the others.
        cut = int(random.randint(1, len(own) + len(others) - 1))
        if cut < len(own):
            blocks += [(own[:cut], others), (own[cut:], others)]
        else:
            at = cut - len(own) + 1
            blocks += [(own, others[:at]), (own, others[at:])]
    brought = [[(c, z) for c in own for z in others] for own, others in blocks]
    return [brought[i] for i in random.permutation(sessions)]


def blurry(
    order: Sequence[int],
    domains: int,
    sessions: int,
    *,
    leak: float,
    leaks_into: int,
    disjoint: float,
    random: np.random.RandomState,
) -> list[Shares]:
    """Blurry boundaries: a class is at home in one session, and a share of it leaks into others.

    After si-Blurry (Moon et al., ICCV 2023): sessions have random numbers of classes, and a share
    ``disjoint`` of the classes does not leak. Of each pair of the others a share ``leak`` is spread
    over ``leaks_into`` other sessions, drawn for each pair. The share is one of each pair's own
    images, so that large classes do not drown small ones.
    """
    classes = len(order)
    if not 2 <= sessions <= classes:
        raise UserError(
            f"schedule.sessions lists {sessions} sessions for {classes} classes; "
            "the rule blurry needs between two sessions and one per class (facts.nc_sessions)"
        )
    if not 1 <= leaks_into < sessions:
        raise UserError(
            f"schedule.leaks_into is {leaks_into} for {sessions} sessions; "
            f"the rule blurry needs between 1 and {sessions - 1}, the other sessions"
        )
    cuts = np.sort(random.choice(np.arange(1, classes), sessions - 1, replace=False))
    homes = np.split(np.array(order), cuts)
    kept = {int(c) for c in random.permutation(classes)[: round(disjoint * classes)]}
    brought: list[Shares] = [{} for _ in range(sessions)]
    for home, block in enumerate(homes):
        others = [t for t in range(sessions) if t != home]
        for c in (int(c) for c in block):
            for z in range(domains):
                if c in kept:
                    brought[home][c, z] = 1.0
                    continue
                brought[home][c, z] = round(1 - leak, DIGITS)
                for t in random.choice(others, leaks_into, replace=False):
                    brought[t][c, z] = round(leak / leaks_into, DIGITS)
    return brought


def repeated(
    classes: int, domains: int, sessions: int, times: int, random: np.random.RandomState
) -> list[Shares]:
    """Classes and domains come back: every pair comes ``times`` times, with new images each time.

    Sec. 3.1 of the paper: "previously observed categories or domains may repeatedly appear". A
    session brings as many pairs as the others, or one less, each at most once. A pair that has to
    come in all sessions that are left is taken; the others are drawn, those that come more often
    with more chance. With the larger sessions first this always works out.
    """
    pairs = [(c, z) for c in range(classes) for z in range(domains)]
    if not 2 <= times <= sessions <= len(pairs) * times:
        raise UserError(
            f"schedule.times is {times} for {sessions} sessions and {len(pairs)} class-domain "
            "pairs; the rule repeat needs at least 2, at most one per session, and a pair for "
            "every session (facts.mixed_sessions)"
        )
    left = np.full(len(pairs), times)
    small, larger = divmod(len(pairs) * times, sessions)
    brought: list[Shares] = []
    for t in range(sessions):
        due = left == sessions - t
        chosen = np.flatnonzero(due)
        if more := small + (t < larger) - len(chosen):
            chance = np.where(due, 0, left)
            drawn = random.choice(len(pairs), more, replace=False, p=chance / chance.sum())
            chosen = np.concatenate([chosen, drawn])
        left[chosen] -= 1
        brought.append({pairs[i]: round(1 / times, DIGITS) for i in chosen})
    return brought
