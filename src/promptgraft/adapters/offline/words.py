"""Words: how the embedded model cuts text up. Nothing here knows of any task."""

from __future__ import annotations

import functools
import re

_TOKEN = re.compile(r"[^\W_]+")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[^\s@]{1,64}@[^\s@]{1,255}")
_LONGEST_WORD = 30
_VOWEL = re.compile(r"[aeiouy]")

_ENDINGS = (
    "ization", "isation", "ations", "ation", "ements", "ement", "ments", "ment", "nesses", "ness",
    "ities", "ity", "ances", "ance", "ences", "ence", "ables", "able", "ibly", "ably", "ings",
    "ing", "ions", "ion", "ally", "edly", "ers", "ors", "ies", "ied", "ives", "ive", "ed", "er",
    "or", "ly", "es", "al", "s", "y", "e",
)  # fmt: skip

STOP_WORDS = frozenset(
    """
    a able about above across actually after again against ago ain all almost alone along already
    also although always am among an and another any anybody anyone anything anyway are aren
    around as ask asked asking asks at away back be became because become been before being below
    best better between big both but by bye call called came can cannot cause certain come comes
    coming could couldn couple cos day days dear did didn different do does doesn doing don done
    down due during each either else end enough etc even ever every everybody everyone everything
    exactly far few find first five for found four from full further gave get gets getting give
    given gives giving go goes going gone good got great had hadn happen happened happening
    happens hardly has hasn hate have haven having he hello help her here hers herself hey hi him
    himself his hope how however i idea if im in indeed instead into is isn it its itself just
    keep keeps kept kind knew know known knows last late later least left less let lets like
    likely ll little long longer look looked looking looks lot made make makes making many matter
    may maybe me mean means meant might mine minute minutes month months more most much must my
    myself name namely near nearly need needed needs neither never new next nice no nobody none
    nor not nothing now of off often ok okay old on once one only onto or other others otherwise
    ought our ours ourselves out over own part past per perhaps place please point possible
    probably put quite rather re real really reason regards right said same saw say saying says
    second see seem seems seen sent several shall she should shouldn show shown shows since
    six so some somebody somehow someone something sometimes soon sort sorry start started still
    stop stopped such sure take taken takes taking tell ten th than thank thanks that the their
    theirs them themselves then there these they thing things think third this those though
    thought three through time times to today together told tomorrow too took toward towards
    tried tries try trying turn turned twice two under unless until up upon us use used uses using
    usual usually ve very via want wanted wants was wasn way ways we week weeks well went were
    weren what whatever when whenever where whether which while who whoever whole whom whose why
    will wish with within without won wonder word words work worked working works would wouldn
    write wrote year years yes yesterday yet you your yours yourself yourselves
    """.split()
)


def terms(text: str) -> list[str]:
    """Return the stems of the content words of ``text``, in order, in linear time."""
    stems = map(term, _TOKEN.findall(text.lower()))
    return [stem for stem in stems if stem]


def content_words(text: str) -> list[str]:
    """Return the content words of ``text`` as they are spelled, in lower case.

    Web and mail addresses, and words with digits, are left out: they name one thing, not a kind.
    """
    tokens = _TOKEN.findall(_ADDRESS.sub(" ", text).lower())
    return [token for token in tokens if token.isalpha() and len(token) > 2 and term(token)]


@functools.lru_cache(maxsize=16384)
def term(word: str) -> str:
    """Return the stem of a lower-case word; empty for stop words, numbers and single letters."""
    if word in STOP_WORDS or len(word) < 2 or len(word) > _LONGEST_WORD or word.isdigit():
        return ""
    return stem(word)


def stem(word: str) -> str:
    """Cut one common English ending off, as long as a word remains.

    A light stemmer in the manner of Lovins (1968): the longest ending that leaves at least
    four letters with a vowel among them, then a doubled last consonant is made single.
    """
    if word.endswith("ss") or not word.isascii():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if len(rest) >= MIN and _VOWEL.search(rest):
                return rest[:-1] if rest[-1] == rest[-2] and rest[-1] not in "aeiouls" else rest
    return word
MIN = 4


def runs(text: str) -> list[list[str]]:
    """Return the runs of neighbouring content words."""
    found: list[list[str]] = []
    for piece in re.split(r"[^\w\s'’-]+|\n", _ADDRESS.sub(" , ", text).lower()):
        run: list[str] = []
        for token in _TOKEN.findall(piece):
            if token.isalpha() and len(token) > 2 and term(token):
                run.append(token)
            elif run:
                found.append(run)
                run = []
        if run:
            found.append(run)
    return found
