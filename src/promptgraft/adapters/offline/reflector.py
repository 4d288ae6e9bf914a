"""Writes rules out of failures, as a reflection model would."""

from __future__ import annotations

from promptgraft.adapters.offline.metaprompt import Task
from promptgraft.adapters.offline.names import names_of
from promptgraft.adapters.offline.learner import learn
from promptgraft.adapters.offline.rules import opening_choice
from promptgraft.adapters.offline.words import content_words, term

P = dict(k=8, ks=4, drop=3, chars=2000, phrase=4, att=100, maxown=99, slack=1.0)


def wanted_of(ex, names):
    said = names.named_in(ex.output)
    given = said[0] if len(said) == 1 else None
    if ex.score is None:
        return None, None
    if ex.score >= 1:
        return given, given
    other = [i for i in names.named_in(ex.feedback) if i != given]
    return (other[0] if other else None), given


def rewrite(task: Task) -> str:
    names = names_of(task.choices)
    lesson = learn(task.current + "\n\n" + task.neighbours, task.choices, P["att"])
    cases = []
    for ex in task.examples:
        w, g = wanted_of(ex, names)
        if w is not None:
            cases.append((list(dict.fromkeys(content_words(ex.input[: P["chars"]]))), w, g))
    if all(w == g for _, w, g in cases):
        return task.current
    seen = {}
    for ws, w, g in cases:
        for t in {term(x) for x in ws}:
            seen.setdefault(t, []).append(w)

    def strength(t, c):
        return sum(w for i, w in lesson.weights.get(t, ()) if i == c)

    adds = {}
    for ws, w, g in cases:
        quota = P["k"] if w != g else P["ks"]
        cand = []
        for pos, x in enumerate(ws):
            t = term(x)
            if any(o != w for o in seen[t]):
                continue
            if any(strength(t, i) > P["slack"] * strength(t, w) for i in range(len(task.choices)) if i != w):
                continue
            cand.append((-len(seen[t]), pos, x))
        cand.sort()
        chosen = [x for _, _, x in sorted(cand[:quota], key=lambda c: c[1])]
        for i in range(0, len(chosen), P["phrase"]):
            ph = " ".join(chosen[i : i + P["phrase"]])
            if ph not in adds.setdefault(w, []):
                adds[w].append(ph)
    drops = {}
    for ws, w, g in cases:
        if w == g or g is None:
            continue
        stems = list(dict.fromkeys(term(x) for x in ws))
        mis = [t for t in stems if strength(t, g) > 0 and not any(o == g for o in seen[t])]
        drops.setdefault(g, set()).update(mis[: P["drop"]])
    out = []
    done = set()
    for line in task.current.split("\n"):
        op = opening_choice(line, names)
        if op and op[1].strip():
            c = op[0]
            head = line[: len(line) - len(op[1])]
            items = op[1].split(", ")
            keep = []
            for n, it in enumerate(items):
                ws = it.split()
                if all(w.isalpha() and term(w) for w in ws) and n:
                    it = " ".join(w for w in ws if term(w) not in drops.get(c, ()))
                if it:
                    keep.append(it)
            body = ", ".join(keep)
            if c in adds and c not in done:
                old = {i.strip(" .") for i in keep}
                new = [p for p in adds[c] if p not in old]
                body = ", ".join([body.rstrip(" ."), *new])
                done.add(c)
            line = head + body
        out.append(line)
    rest = [c for c in sorted(adds) if c not in done and adds[c]]
    if rest:
        if out and out[-1].strip() and not out[-1].startswith("-"):
            out.append("")
        for c in rest:
            out.append(f"- {task.choices[c]}: " + ", ".join(adds[c]))
    return "\n".join(out)
