"""`robot-rl faults`: what goes wrong with a robot that learns, injected, measured, judged.

    case.py         a case of the table, what it measured, its verdict
    table.py        all cases; the results for terminals and programs
    running.py      runs them; beside.py: those that need no graph, in a process beside
    worlds.py       the graphs that cases share
    stopwatch.py    what the arm is told, and when
    driving.py      somebody drives, something breaks, the arm is told to stand: how soon
    page.py         faults.html; docs.py: docs/faults.md
    people.py, devices.py, gate.py, cameras.py, processes.py, learning.py, link.py, intruders.py,
    storage.py, rewards.py
                    the cases, by what is broken

The other modules inject: clocks that jump (`stepped`), an actor that fails inside (`poisoned`), a
gamepad (`pad`), a bad network (`network`, `pair`), hostile frames (`messages`), power cuts
(`power`), adversarial commands (`adversary`, `gate_bench`).
"""
