"""Prints the table of mistakes with the grade of each message: `python -m cli.mistakes`."""

from __future__ import annotations

from statistics import fmean

from cli.mistakes.table import MISTAKES
from cli.mistakes.world import told_of

if __name__ == "__main__":
    grades = []
    for mistake in MISTAKES:
        told = told_of(mistake)
        grades.append(told.grade(mistake))
        missing = ", ".join(told.missing(mistake))
        print(f"{grades[-1]}  {mistake.name}" + (f": no {missing}" if missing else ""))
        if grades[-1] < 3:
            print(f"   exit code {told.code}", *told.lines[-12:], sep="\n   ")
    print(f"{len(grades)} mistakes, mean {fmean(grades):.2f}, lowest {min(grades)}")
