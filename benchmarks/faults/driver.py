"""The loop: a fault, the same command again, a judgement, a table."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.commands import COMMANDS, Command, Known
from benchmarks.faults.kinds import KINDS, Scene, Skip, clock_skips, small_disk
from benchmarks.faults.places import (
    CACHE,
    Nursery,
    Place,
    Reference,
    Said,
    damaged_objects,
    lost_files,
    make_templates,
)
from benchmarks.faults.plan import Round, rounds

SAME, LINE, VERIFY, LOSS, SKIPPED = (
    "same bytes", "one clear line", "found by verify", "loss", "skipped",
)  # fmt: skip
OUTCOMES = (SAME, LINE, VERIFY, LOSS, SKIPPED)
MENDINGS = 4
"""How often somebody does what the lines say before giving up."""


@dataclass(frozen=True)
class Verdict:
    outcome: str
    why: str = ""
    during: str = ""
    """What the command said while the fault lasted, if it failed."""


@dataclass
class Laboratory:
    """What all rounds share: templates, nurseries, and how commands behave undisturbed."""

    folder: Path
    known: dict[str, Known] = field(default_factory=dict)
    usual: dict[tuple[str, bool], tuple[float, int]] = field(default_factory=dict)
    nurseries: dict[bool, Nursery] = field(default_factory=dict)

    def nursery(self, clock: bool = False) -> Nursery:
        if clock not in self.nurseries:
            name = "clock" if clock else "nursery"
            self.nurseries[clock] = Nursery(self.folder / name, clock)
        return self.nurseries[clock]

    def of_method(self, method: str) -> Known:
        if method not in self.known:
            make_templates(self.folder / "templates", method)
            project = self.folder / f"templates/{method}-finished/project"
            self.known[method] = Known(Reference.of(project), {})
        return self.known[method]

    @contextmanager
    def place(
        self, name: str, method: str, command: Command, real: bool, **how: bool
    ) -> Iterator[Place]:
        """A copy in the state that the command starts from."""
        with ExitStack() as stack:
            folder = self.folder / "rounds" / name
            folder.mkdir(parents=True)
            folder.chmod(0o755)
            if how.get("disk"):
                stack.enter_context(small_disk(folder))
            place = Place(folder, self.nursery(how.get("clock", False)), method, real)
            place.fill(self.folder / f"templates/{method}-{command.template}")
            if not how.get("bare"):
                command.prepare(place)
            yield place

    def undisturbed(self, command: Command, method: str, real: bool) -> tuple[float, int]:
        """Seconds and bytes that the command takes; checks that it ends as it must."""
        known = self.of_method(method)
        asked = command.answer is not None and command.name not in known.answers
        if (command.name, real) in self.usual and not asked:
            return self.usual[command.name, real]
        name = f"undisturbed-{len(self.usual)}-{len(known.answers)}-{method}"
        with self.place(name, method, command, real) as place:
            before = _size(place.folder)
            said = place.run(*command.spelled(method))
            growth = _size(place.folder) - before
            if command.answer:
                known.answers.setdefault(command.name, command.answer(place, said))
            wrong = command.check(place, known, said) if said.code == 0 else ["it failed"]
            if wrong:
                raise RuntimeError(f"{command.name} fails undisturbed: {wrong}\n{said.text}")
            place.remove()
        self.usual.setdefault((command.name, real), (said.seconds, growth))
        return self.usual[command.name, real]

    def close(self) -> None:
        for nursery in self.nurseries.values():
            nursery.close()


def _size(folder: Path) -> int:
    return sum(
        -(-file.lstat().st_size // 4096) * 4096 for file in folder.rglob("*") if not file.is_dir()
    )


# -- a round -----------------------------------------------------------------------------------


def play(laboratory: Laboratory, own: Round) -> tuple[Verdict, list[str]]:
    """One round; what was done, in words."""
    fault, _ = KINDS[own.kind]
    command = COMMANDS[own.command]
    clock, disk = fault.__name__ == "clock", fault.__name__ == "full_disk"
    if clock and (reason := clock_skips()):
        return Verdict(SKIPPED, reason), []
    known = laboratory.of_method(own.method)
    real = own.real and not clock  # a real process has the real clock
    usual, growth = laboratory.undisturbed(command, own.method, real)
    how = {"clock": clock, "disk": disk, "bare": fault.__name__ == "shallow"}
    name = f"round-{own.number}"
    try:
        with laboratory.place(name, own.method, command, real, **how) as place:
            scene = Scene(place, command, own.draws(), usual, growth)
            during = fault(scene)
            verdict = judge(scene, known, during)
            if verdict.outcome != LOSS:
                place.remove()
            elif disk:  # whose file system ends with the round
                kept = place.folder.with_name(f"{name}-kept")
                shutil.copytree(place.folder, kept, symlinks=True)
    except Skip as reason:
        return Verdict(SKIPPED, str(reason)), []
    return verdict, scene.details


def judge(scene: Scene, known: Known, during: Sequence[Said]) -> Verdict:
    """Run the same command again, and see what it ends in."""
    place, command = scene.place, scene.command
    for said in during:
        if not said.clear:
            return Verdict(LOSS, f"during the fault: {_last(said)}")
    failed = "; ".join(line for said in during if said.code > 0 for line in said.lines[:1])
    words = command.spelled(place.method)
    done = [said for said in during if command.once and said.code == 0 and said.words == words]
    again = done[0] if done else place.run(*words, real=False)
    verdict = _end(scene, known, again)
    lost = lost_files(place.project)
    if lost:
        return Verdict(LOSS, "; ".join(lost), failed)
    return Verdict(verdict.outcome, verdict.why, failed)


def _end(scene: Scene, known: Known, again: Said) -> Verdict:
    place, command = scene.place, scene.command
    if not again.clear or again.code < 0:
        return Verdict(LOSS, f"again: {_last(again)}")
    if again.code > 0 and command.once and not command.check(place, known, again):
        return Verdict(LINE, again.lines[0])  # it was killed when it was done
    if again.code > 0:
        outcome = VERIFY if command.name == "dacr verify" else LINE
        why, told = again.lines[0], again
    else:
        wrong = _wrong(place, command, known, again)
        if not wrong:
            return Verdict(SAME)
        told = _verify(place, command)
        if told.code == 0:
            return Verdict(LOSS, f"nobody notices: {'; '.join(wrong[:3])}")
        if not told.clear:
            return Verdict(LOSS, f"verify: {_last(told)}")
        outcome, why = VERIFY, told.lines[0]
    left, asked = mend(scene, known, told)
    if left:
        return Verdict(LOSS, f"{why} → {left}")
    return Verdict(VERIFY if asked else outcome, why)


def _verify(place: Place, command: Command) -> Said:
    """What somebody asks who does not trust the outcome."""
    remote = ["--remote"] if command.name == "dvc push" else []
    return place.run("dacr", "verify", *remote, real=False)


def _wrong(place: Place, command: Command, known: Known, said: Said) -> list[str]:
    bad = [
        f"{file.name} is damaged in the cache" for file in damaged_objects(place.project / CACHE)
    ]
    return command.check(place, known, said) + bad


def mend(scene: Scene, known: Known, told: Said) -> tuple[str, bool]:
    """Do what the lines say, then the same command; ask verify where that does not help.

    What is still wrong in the end, and whether verify was asked.
    """
    place, command = scene.place, scene.command
    place.mended = True
    left, asked = "nothing to do is said", False
    for attempt in range(MENDINGS):
        if not heed(place, told.lines, attempt) and asked:
            break
        again = place.run(*command.spelled(place.method), real=False)
        if not again.clear:
            return _last(again), asked
        wrong = _wrong(place, command, known, again)
        if again.code and not command.once:
            wrong.insert(0, _last(again))
        if not wrong:
            return "", asked
        left = "; ".join(wrong[:3])
        told, asked = _verify(place, command), True
        if told.code == 0:
            return f"nobody notices: {left}", asked
    return left, asked


def heed(place: Place, lines: Sequence[str], attempt: int) -> bool:
    """Do what lines say: remove what they name, and run what they offer; whether that was much."""
    acted = False
    offered: dict[str, None] = {}  # each once, in their order
    for line in lines:
        removed, commands = advice(place, line)
        for target in removed:
            acted |= target.exists()
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
        if commands:
            offered[commands[min(attempt, len(commands) - 1)]] = None
    for command in offered:
        for words in map(shlex.split, command.split(" && ")):
            if words[0] == "git":
                subprocess.run(words, cwd=place.project, check=False)
            else:
                place.run(*words, real=False)
    return acted or bool(offered)


def advice(place: Place, line: str) -> tuple[list[Path], list[str]]:
    """What a line says is to be removed, and the commands that it offers, the first one first."""
    if "user name and email must be configured" in line:
        return [], ["git config user.name test && git config user.email test@example.org"]
    if "the index is locked" in line:  # DVC's line; docs/reliability.md says what to do
        return [place.project / ".git/index.lock"], []
    if found := re.match(r"FAULT\s+code\s+(\S+) .*restore it or", line):
        return [], [f"git restore {found[1]}"]
    if found := re.search(r"object ([0-9a-f]{32}(?:\.dir)?) is corrupted", line):
        # DVC's own line; docs/sharing.md says what to do.
        name = f"{found[1][:2]}/{found[1][2:]}"
        stores = (place.project / CACHE, place.folder / "store/files/md5")
        return [store / name for store in stores], ["dvc repro && dvc push"]
    named = re.findall(r"\bremove (?:the file )?'?([^\s';,]+)", line)
    named += re.findall(r"'([^']+(?:\.lock|/rwlock))'", line)
    commands = [one for one in re.findall(r"`([^`]+)`", line) if one.startswith(("dvc ", "git "))]
    return [place.project / name for name in named], commands


def _last(said: Said) -> str:
    """The end of what it said, in one line."""
    if said.hung:
        return f"`{shlex.join(said.words)}` hangs"
    lines = [line for line in said.text.splitlines() if line.strip()]
    shown = (said.lines or lines)[-1:] if "Traceback" not in said.text else lines[-1:]
    kind = "traceback: " * ("Traceback" in said.text)
    return f"{kind}{' '.join(shown)[:300]} (exit code {said.code})"


# -- the loop ----------------------------------------------------------------------------------


@dataclass
class Tally:
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failed_in_fault: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, kind: str, verdict: Verdict) -> None:
        self.counts.setdefault(kind, Counter())[verdict.outcome] += 1
        self.failed_in_fault[kind] += bool(verdict.during)

    def lines(self) -> Iterator[str]:
        yield f"| fault | rounds | {' | '.join(OUTCOMES)} |"
        yield f"|---|{'---:|' * (len(OUTCOMES) + 1)}"
        for kind in (kind for kind in KINDS if kind in self.counts):
            yield self._row(kind, self.counts[kind])
        yield self._row("all", sum(self.counts.values(), Counter()))

    def _row(self, kind: str, counts: Counter[str]) -> str:
        cells = " | ".join(str(counts[outcome] or "") for outcome in OUTCOMES)
        return f"| {kind} | {counts.total()} | {cells} |"


def chosen(
    seed: int, count: int, only: str | None = None, numbers: Sequence[int] = ()
) -> list[Round]:
    commands = {kind: names for kind, (_, names) in KINDS.items()}
    own = rounds(seed, max(numbers, default=count), commands)
    if numbers:
        return [own[number - 1] for number in numbers]
    return [one for one in own if only in (None, one.kind)]


def faults(count: int, seed: int, only: str | None = None, numbers: Sequence[int] = ()) -> bool:
    """Play the rounds and print the table; whether nothing was lost."""
    if only is not None and only not in KINDS:
        raise SystemExit(f"there is no fault {only!r}; choose one of: {', '.join(KINDS)}")
    # What a shell runs in the background is born deaf to ^C, and so would be all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="dacr-faults-"))
    folder.chmod(0o755)
    laboratory, tally = Laboratory(folder), Tally()
    began = time.monotonic()
    try:
        for own in chosen(seed, count, only, numbers):
            started = time.monotonic()
            try:
                verdict, details = play(laboratory, own)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                verdict, details = Verdict(LOSS, f"the round itself failed: {error}"), []
            tally.add(own.kind, verdict)
            print(
                f"{own.number:>4}  {own.kind:<28}{own.command:<30}{own.method:<10}"
                f"{'real' if own.real else '':<5}{time.monotonic() - started:5.1f} s  "
                f"{verdict.outcome:<15} {'; '.join(details)}",
                flush=True,
            )
            for text in filter(None, (verdict.during, verdict.why)):
                print(f"{'':<6}{text[:400]}", flush=True)
            if verdict.outcome == LOSS:
                again = f"python -m benchmarks faults --seed {seed} --round {own.number}"
                print(f"{'':<6}kept in {folder}/rounds/round-{own.number}*; again: {again}")
    except KeyboardInterrupt:
        print("interrupted: the table so far")
    finally:
        laboratory.close()
    print(*tally.lines(), sep="\n")
    total = sum(tally.counts.values(), Counter())
    print(f"seed {seed}, {total.total()} rounds, {(time.monotonic() - began) / 60:.0f} minutes")
    if not total[LOSS]:
        shutil.rmtree(folder, ignore_errors=True)
    return not total[LOSS]
