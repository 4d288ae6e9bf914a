"""An in-context learner: choices by the words of the prompt's own rules."""

from __future__ import annotations

import functools
import math
from collections import Counter

import attrs

from promptgraft.adapters.offline.names import names_of
from promptgraft.adapters.offline.rules import read_rules
from promptgraft.adapters.offline.words import terms

P = dict(alpha=0.3, n0=10.0, against=0.5, pair=0.0, idfp=1.0, lines=200, name=1.0, tf=1.0)

@attrs.frozen
class Lesson:
    """What a prompt teaches: for each stem, what it says for each choice."""

    size: int
    weights: dict[str, tuple[tuple[int, float], ...]]
    pairs: dict[str, tuple[tuple[str, int, float], ...]]

    def scores(self, text: str) -> list[float]:
        totals = [0.0] * self.size
        stems = set(terms(text))
        weights = self.weights
        for stem in stems & weights.keys():
            for choice, weight in weights[stem]:
                totals[choice] += weight
        for stem in stems & self.pairs.keys():
            for other, choice, weight in self.pairs[stem]:
                if other in stems:
                    totals[choice] += weight
        return totals


@functools.lru_cache(maxsize=256)
def learn(text: str, choices: tuple[str, ...], attention: int) -> Lesson:
    names = names_of(choices)
    said: list[Counter[str]] = [Counter() for _ in choices]
    against: list[Counter[str]] = [Counter() for _ in choices]
    heard = [0] * len(choices)
    pairs: list[set[tuple[str, str]]] = [set() for _ in choices]
    for clause in read_rules(text, names, lines=P["lines"]):
        c = clause.choice
        ts = clause.terms[: max(0, attention - heard[c])]
        heard[c] += len(ts)
        (against if clause.against else said)[c].update(ts)
        if not clause.against:
            pairs[c].update((a, b) for a, b in zip(ts, ts[1:]) if a != b)
    words: list[dict[str, float]] = []
    for index in range(len(choices)):
        for t in names.terms_of(index):
            said[index][t] += 1
        w = {t: 1 + P["tf"] * math.log(n) for t, n in said[index].items()}
        for t, n in against[index].items():
            w[t] = w.get(t, 0) - P["against"]
        words.append(w)
    df: dict[str, int] = {}
    for ws in words:
        for t, v in ws.items():
            if v > 0:
                df[t] = df.get(t, 0) + 1
    n = len(choices)
    full = math.log(1 + n)
    idf = {t: (math.log(1 + n / d) / full) ** P["idfp"] for t, d in df.items()}
    weights: dict[str, list[tuple[int, float]]] = {}
    pw: dict[str, list[tuple[str, int, float]]] = {}
    for index, ws in enumerate(words):
        norm = (len(ws) + P["n0"]) ** -P["alpha"]
        for t, v in ws.items():
            weights.setdefault(t, []).append((index, v * idf.get(t, 1.0) * norm))
        if P["pair"]:
            for a, b in sorted(pairs[index]):
                pw.setdefault(a, []).append((b, index, P["pair"] * norm * (idf.get(a,0) + idf.get(b,0)) / 2))
    return Lesson(n, {k: tuple(v) for k, v in weights.items()}, {k: tuple(v) for k, v in pw.items()})
