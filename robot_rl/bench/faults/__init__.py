"""`robot-rl faults`: what goes wrong with a robot that learns, injected, measured, judged.

case.py       a case of the table, what it measured, its verdict
table.py      runs the cases, shares started graphs among them, writes faults.json
worlds.py     the graphs that cases share
page.py       faults.html;  docs.py: docs/faults.md
people.py, gate.py, cameras.py, processes.py, learning.py, link.py, storage.py
              the cases, by what is broken
"""
