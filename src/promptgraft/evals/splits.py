"""Cases in a train, a validation and a test set, so that none is on two sides."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.plain import Names
from promptgraft.evals.rows import SETS, CaseFaults
from promptgraft.evals.types import Case
from promptgraft.ground.notebook import Card, Shown, Table
from promptgraft.ground.serde import (
    Json,
    canonical_json,
    did_you_mean,
    shown,
)
from promptgraft.ground.strict.checks import SHARE, instance
from promptgraft.ground.text import counted, listed

NAMES = ("train", "validation", "test")
# The middle of each place in the order, so that the sizes are the nearest to the shares.
_EVEN = 0.5


_DATASET = attrs.evolve(instance(Dataset), mend="write `promptgraft.Dataset.of(CASES)`")


@attrs.frozen
class Splits(Shown):
    """The training, validation and test sets of a search, which share no case.

    Attributes:
        train: shown to reflectors.
        validation: decides which candidates are kept; never shown.
        test: judged once, at the end. Without one, a run cannot report its gain on unseen cases.
        dropped: how many rows of the files were left out because they repeat another one.

    Raises:
        DataFormatError: two sets come from the same file, or share an id or a question; the error
            lists all faults.
    """

    train: Dataset
    validation: Dataset
    test: Dataset | None = None
    dropped: int = attrs.field(default=0, eq=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        for name, part in self.parts().items():
            _DATASET.hold(name, part)
        faults = CaseFaults("splits")
        _check_sources({name: part.source for name, part in self.parts().items()}, faults)
        if not faults:  # all cases of the same file overlap, and one fault says so
            _check_cases(self.parts(), faults)
        faults.raise_all()

    def parts(self) -> dict[str, Dataset]:
        """Return the sets by name."""
        parts = {"train": self.train, "validation": self.validation}
        return parts if self.test is None else {**parts, "test": self.test}

    def narrowed(self, only: Mapping[str, Collection[str]]) -> Splits:
        """Return the splits with only the named cases, in their original order.

        Args:
            only: ids of cases by the name of their set; a set that is not named stays whole.

        Raises:
            ConfigError: there is no such set, or it has no such case.
        """
        parts = self.parts()
        for name, ids in only.items():
            if name not in parts:
                raise ConfigError(f"expected a set among {listed(parts)}, found {shown(name)}")
            if not ids:
                raise ConfigError(f"{name}: expected ids of cases, found none")
            part_ids = parts[name].ids
            if strange := sorted({*ids}.difference(part_ids)):
                near = did_you_mean(strange[0], list(part_ids))
                raise ConfigError(f"{name}: there is no case `{strange[0]}` in this set{near}")
            parts[name] = parts[name].subset({*ids}, f"{parts[name].name}, {len({*ids})} of them")
        return Splits(**parts, dropped=self.dropped) if only else self

    @classmethod
    def load(
        cls,
        train: str | Path,
        validation: str | Path | None = None,
        test: str | Path | None = None,
        *,
        fields: Names | None = None,
        keep: Collection[str] = (),
    ) -> Splits:
        """Read each set from its own file; naming a file twice is refused before reading.

        Raises:
            ConfigError: an argument is unusable.
            DataFormatError: a file is faulty, or two sets overlap.
        """
        named_paths = {"train": train, "validation": validation, "test": test}
        paths = {name: path for name, path in named_paths.items() if path is not None}
        faults = CaseFaults("splits")
        _check_sources({name: Path(path) for name, path in paths.items()}, faults)
        faults.raise_all()
        sets = {n: Dataset.load(path, fields=fields, keep=keep) for n, path in paths.items()}
        return cls.of_sets(sets)

    @classmethod
    def of_sets(cls, sets: Mapping[str, Dataset], *, dropped: int = 0) -> Splits:
        """Return sets by name; without validation cases a third of the training cases are taken."""
        named_sets = {SETS.get(name, name): part for name, part in sets.items()}
        if not {"train"} <= named_sets.keys() <= {*NAMES}:
            raise ConfigError(f"sets: expected {listed(NAMES)}, found {listed(sets)}")
        train, validation = named_sets["train"], named_sets.get("validation")
        if validation is None:
            parts = cls.by_ratio(train, train=2 / 3, validation=1 / 3, test=0)
            train, validation = parts.train, parts.validation
        return cls(train, validation, named_sets.get("test"), dropped=dropped)

    @classmethod
    def by_field(cls, dataset: Dataset, field: str, *, names: Mapping[str, str] = SETS) -> Splits:
        """Split a data set by the value of ``Case.fields[field]``.

        Args:
            dataset: the data set.
            field: a field that was kept when the file was loaded.
            names: the split for each value of the field, whose letter case may differ.

        Raises:
            ConfigError: ``names`` has a split other than train, validation and test.
            DataFormatError: a case lacks the field or has another value; the training set would
                be empty; or two sets overlap.
        """
        if strange := sorted(set(names.values()) - set(NAMES)):
            raise ConfigError(f"names: expected splits among {NAMES}, found {shown(strange[0])}")
        faults = CaseFaults(dataset.name)
        chosen: dict[str, str] = {}
        for case in dataset:
            value = _field(case, field, faults)
            if isinstance(value, str) and (name := names.get(value, names.get(value.casefold()))):
                chosen[case.id] = name
            elif value is not None:
                expected = f"expected one of {listed(names)}, found {shown(value)}"
                faults.add_of(case, f"{field}: {expected}")
        faults.raise_all()
        return _parted(dataset, chosen, f"name more of them in the field `{field}`", ["train"])

    @classmethod
    def by_ratio(
        cls,
        dataset: Dataset,
        *,
        train: float = 0.6,
        validation: float = 0.2,
        test: float = 0.2,
        seed: int = 0,
        stratify: str | None = None,
    ) -> Splits:
        """Split a data set at random, but reproducibly, by shares.

        The set of a case depends on the seed and on the rank of its id among the hashes of all
        ids, not on the order of the file. Adding a case moves at most one other case across each
        border. Cases that ask the same question, or are of one family, stay together and count as
        one.

        Args:
            dataset: the data set.
            train: share of the training set; if all are less than 1, other cases are in no set.
            validation: share of the validation set.
            test: share of the test set; 0 for none.
            seed: different seeds give different splits.
            stratify: a field in ``Case.fields`` whose values are spread over the sets in the same
                shares, to within one group of cases that stay together.

        Raises:
            ConfigError: a share is not between 0 and 1, or they add up to more than 1.
            DataFormatError: a set would be empty, or a case lacks the field.
        """
        _DATASET.hold("dataset", dataset)
        shares = dict(zip(NAMES, (train, validation, test), strict=True))
        for name, share in shares.items():
            if SHARE.fits(share) in (None, 1) or (share == 0 and name != "test"):
                raise ConfigError(f"{name}: expected a share between 0 and 1, found {shown(share)}")
        if (total := sum(shares.values())) > 1 + 1e-9:
            raise ConfigError(f"expected shares that sum to 1 or less, found {total:g}")
        faults = CaseFaults(dataset.name)
        chosen: dict[str, str] = {}
        for stratum, groups in (strata := _strata(dataset, stratify, faults)).items():
            # With the same offset, all small strata would be rounded to the same set.
            offset = _EVEN if stratify is None else _unit(seed, "stratum", stratum)
            ordered = sorted(groups, key=lambda ids: _unit(seed, "case", ids[0]))
            for rank, ids in enumerate(ordered):
                if name := _split_at((rank + offset) / len(ordered), shares):
                    chosen.update(dict.fromkeys(ids, name))
        faults.raise_all()
        names_wanted = [name for name, share in shares.items() if share]
        mend = _more_cases(len(dataset), sum(map(len, strata.values())))
        return _parted(dataset, chosen, mend, names_wanted)

    def _card(self) -> Card:
        parts = self.parts()
        whole = sum(len(part) for part in parts.values())
        rows = (
            (name, f"{len(part)}", f"{len(part) / whole:.0%}", part.name)
            for name, part in parts.items()
        )
        return Card(
            title="splits",
            lead=f"{counted(whole, 'case')}, each in one set",
            blocks=(Table(head=("set", "cases", "share", "from"), rows=rows),),
        )


def _check_sources(sources: Mapping[str, Path | None], faults: CaseFaults) -> None:
    there = {name: path for name, path in sources.items() if path is not None and path.exists()}
    for first, second in combinations(there, 2):
        # By inode: a link or another spelling of the path is no way around this.
        if there[first].samefile(there[second]):
            faults.add(0, f"{first} and {second} are the same file {there[second].resolve()}")


def _check_cases(parts: Mapping[str, Dataset], faults: CaseFaults) -> None:
    by_id = {name: {case.id: case for case in part} for name, part in parts.items()}
    digests = {name: part.question_digests for name, part in parts.items()}
    by_digest = {n: {digests[n][case.id]: case for case in part} for n, part in parts.items()}
    for first, second in combinations(parts, 2):
        for case in parts[second]:
            if twin := by_id[first].get(case.id):
                faults.add(0, f"{first} and {second} share the id{_places(twin, case)}", case.id)
            elif twin := by_digest[first].get(digests[second][case.id]):
                overlap = f"`{twin.id}` in {first} asks the same as `{case.id}` in {second}"
                faults.add(0, f"{overlap}{_places(twin, case)}")


def _places(one: Case, other: Case) -> str:
    return f" ({one.origin}, {other.origin})" if one.origin and other.origin else ""


def _field(case: Case, field: str, faults: CaseFaults) -> Json:
    value = case.fields.get(field)
    if value is None:
        faults.add_of(case, f"lacks the field `{field}`; name it in `keep` when loading")
    return value


def _more_cases(cases: int, questions: int) -> str:
    advice = "a search needs 20 or more, and about 50 in the test set to prove a gain"
    if questions > 20:
        return f"split them more evenly, or without `stratify`; {advice}"
    same = f", as these {cases} ask only {counted(questions, 'question')}"
    return f"add cases{same if questions < cases else ''}: {advice}"


def _parted(
    dataset: Dataset, chosen: Mapping[str, str], mend: str, needed: Collection[str]
) -> Splits:
    ids: dict[str, set[str]] = {name: set() for name in NAMES}
    for case_id, name in chosen.items():
        ids[name].add(case_id)
    if empty := [name for name in NAMES if name in needed and not ids[name]]:
        counts = ", ".join(f"{name} {len(ids[name])}" for name in NAMES)
        raise DataFormatError(
            f"{dataset.name}: no cases for {' and '.join(empty)} ({counts}); {mend}"
        )
    sets = {n: dataset.subset(ids[n], f"{dataset.name}[{n}]") for n in NAMES if ids[n]}
    return Splits.of_sets(sets)


def _split_at(place: float, shares: Mapping[str, float]) -> str:
    border, name = 0.0, ""
    for name in (name for name, share in shares.items() if share):
        border += shares[name]
        if place < border:
            return name
    return name if border > 1 - 1e-9 else ""  # rounding must leave no case out


def _strata(
    dataset: Dataset, stratify: str | None, faults: CaseFaults
) -> dict[str, list[tuple[str, ...]]]:
    """Return groups of cases that stay together, by the stratum of the smallest id of the group."""
    strata: dict[str, list[tuple[str, ...]]] = {}
    for cases in _together(dataset):
        values = {c.id: None if stratify is None else _field(c, stratify, faults) for c in cases}
        # The smallest id stands for its group, whatever the order of the file.
        ids = tuple(sorted(values))
        strata.setdefault(canonical_json(values[ids[0]]), []).append(ids)
    return strata


def _together(dataset: Dataset) -> Iterable[list[Case]]:
    """Return the groups of cases that ask the same or are of one family, directly or by others."""
    first: dict[str, str] = {}

    def root(key: str) -> str:
        while first.setdefault(key, key) != key:
            key = first[key]
        return key

    digests = dataset.question_digests
    for case in (case for case in dataset if case.family):
        first[root(digests[case.id])] = root(f"family {case.family}")
    groups: dict[str, list[Case]] = {}
    for case in dataset:
        groups.setdefault(root(digests[case.id]), []).append(case)
    return groups.values()


def _unit(seed: int, kind: str, text: str) -> float:
    """Return a number from 0 to below 1 that depends on the arguments only."""
    # Not by `random`: a case keeps its number when others are added, whatever Python runs this.
    data = f"{seed}/{kind}/{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(data).digest()[:8]) / 2**64
