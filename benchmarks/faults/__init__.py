"""Random faults over tiny runs of all kinds: ``python -m benchmarks faults --rounds 200 --seed 1``.

A round copies a tiny project, starts one command, does one thing to it (a signal, a full disk, a
damaged file …), undoes what can be undone, and runs the same command again. What it must end in is
known from an undisturbed run. ``docs/reliability.md`` has the results.

| module | |
|---|---|
| ``plan`` | the rounds, which follow from the seed |
| ``nursery`` | a process that has torch and DVC loaded, and forks what a round starts |
| ``places`` | the projects, their copies, and whether a copy has the right bytes |
| ``commands`` | what is run under faults |
| ``kinds`` | the faults |
| ``driver`` | the loop, the judgement and the table |
"""
