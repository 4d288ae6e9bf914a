"""Store of overrides in a SQL database, with a history of every tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import attrs
from sqlalchemy import ColumnElement, Connection, Table, and_, func, insert, select, update

from promptgraft.errors import InvalidIdentifierError, RevisionNotFoundError, StoreError
from promptgraft.overrides.base_store import Changes
from promptgraft.overrides.codec import decode_revision, encode_revision, make_revision, marked
from promptgraft.overrides.parts.descriptors import PromptDescriptor
from promptgraft.overrides.parts.validation import check_key
from promptgraft.overrides.revisioned import (
    RevisionedStore,
    check_expected,
    check_revision,
    one_id,
    wanted_revision,
)
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.overrides.types import PromptOverride, Provenance, Revision
from promptgraft.service.database.engine import Database
from promptgraft.service.database.tables import MOST_NS_CHARS


class ProtectedTagError(StoreError):
    """A protected tag was to move without a request that people have approved."""


@attrs.frozen
class _Approval:
    """Leave to move protected tags, and what records in a database that it was used."""

    database: Database
    record: Callable[[Connection], object]

    def use(self, connection: Connection, database: Database) -> None:
        """Record the move in the transaction that makes it, if the store is in the database."""
        if (database.secret_url, database.prefix) == (
            self.database.secret_url,
            self.database.prefix,
        ):
            self.record(connection)


_APPROVAL: ContextVar[_Approval | None] = ContextVar("approval", default=None)


@contextmanager
def approved_move(database: Database, record: Callable[[Connection], object]) -> Iterator[None]:
    """Let stores move protected tags while the context is open, in this thread.

    Stores in ``database`` call ``record`` in the transaction of a move, which it may refuse.
    """
    before = _APPROVAL.set(_Approval(database, record))
    try:
        yield
    finally:
        _APPROVAL.reset(before)


class SqlPromptOverridesStore(RevisionedStore):
    """Store of overrides with revisions in a database; a write of several prompts is atomic.

    It holds the documents of :class:`LocalPromptOverridesStore`. Writers lock the rows of the
    tags that they write; readers lock nothing. Times are the database's.

    A write that moves a protected tag of the project is refused with a ``ProtectedTagError``,
    except inside of :func:`approved_move`.

    Args:
        database: the database, or its URL.
        project: a project whose prompts are apart from those of others with the same addresses;
            empty for the prompts that all programs of the database share.

    Raises:
        ConfigError: the URL is not that of a supported database.
        InvalidIdentifierError: the project is not the name of one.
    """

    def __init__(self, database: Database | str, *, project: str = "") -> None:
        self._database = database if isinstance(database, Database) else Database(database)
        # No namespace has a colon, so that no project can reach the prompts of another.
        self._scope = f"{check_key(project, 'name of a project')}:" if project else ""
        self._project = project
        self._recent: dict[OverrideAddress, Revision] = {}

    @property
    def place(self) -> str:
        return f"{self._database.name}{self._project and f'#{self._project}'}"

    @property
    def is_of_machine(self) -> bool:
        return self._database.dialect == "sqlite"

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        address = OverrideAddress(descriptor.ns, descriptor.key, tag)
        with self._database.reading() as connection:
            present = self._present(connection, address)
        return present.override if present else None

    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, PromptOverride]:
        return self._database.write(
            lambda connection: self._mutated(connection, changes, provenance or Provenance())
        )

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        address = OverrideAddress(ns, prompt_key, tag)
        self._database.write(lambda connection: self._point(connection, address, None))

    def addresses(self) -> tuple[OverrideAddress, ...]:
        tags = self._database.tables.tags
        with self._database.reading() as connection:
            rows = connection.execute(
                select(tags.c.ns, tags.c.prompt_key, tags.c.tag).where(tags.c.revision.is_not(None))
            ).all()
        scoped_rows = [(*row.ns.rpartition(":"), row.prompt_key, row.tag) for row in rows]
        return tuple(
            sorted(
                OverrideAddress(ns, key, tag)
                for project, _, ns, key, tag in scoped_rows
                if project == self._project
            )
        )

    def current(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> Revision | None:
        with self._database.reading() as connection:
            return self._present(connection, OverrideAddress(ns, prompt_key, tag))

    def history(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> tuple[Revision, ...]:
        address = OverrideAddress(ns, prompt_key, tag)
        with self._database.reading() as connection:
            return tuple(self._known(connection, address).values())

    def rollback_all(
        self,
        revisions: Mapping[OverrideAddress, str | None],
        *,
        expected: Mapping[OverrideAddress, str] | None = None,
    ) -> dict[OverrideAddress, Revision | None]:
        for revision in revisions.values():
            check_revision(revision)

        def roll_back(connection: Connection) -> dict[OverrideAddress, Revision | None]:
            present = self._locked(connection, [*revisions])
            check_expected(present, expected)
            targets = {
                address: self._target(connection, address, present[address], revision)
                for address, revision in revisions.items()
            }
            for address, target in targets.items():
                self._point(connection, address, target)
            return targets

        return self._database.write(roll_back)

    def _target(
        self,
        connection: Connection,
        address: OverrideAddress,
        present: Revision | None,
        revision: str | None,
    ) -> Revision | None:
        """Return the revision that a tag should point at; None for none."""
        known_revisions = self._known(connection, address)
        where = f"tag `{address.tag}` of prompt `{address.ns}/{address.prompt_key}`"
        if not known_revisions:
            raise RevisionNotFoundError(f"{where} has no revisions; there is nothing to roll back")
        goal = wanted_revision(present, revision, where)
        return None if goal is None else known_revisions[one_id(known_revisions, goal, where)]

    def _mutated(
        self, connection: Connection, changes: Changes, provenance: Provenance
    ) -> dict[OverrideAddress, PromptOverride]:
        present = self._locked(connection, changes)
        before = {
            at: revision.override if revision else at.empty() for at, revision in present.items()
        }
        after = {address: change(before[address]) for address, change in changes.items()}
        # A change without an effect makes no revision, which would be one more to roll back.
        changed = [address for address in changes if after[address] != before[address]]
        if not changed:
            return after
        now = self._database.now(connection)
        written = marked(
            make_revision(
                number=self._latest(connection, address) + 1,
                parent=revision.id if (revision := present[address]) else None,
                time=now,
                provenance=provenance,
                override=after[address],
            )
            for address in changed
        )
        for address, revision in zip(changed, written, strict=True):
            connection.execute(
                insert(self._database.tables.revisions).values(
                    **self._columns(address),
                    number=revision.number,
                    id=revision.id,
                    document=encode_revision(revision),
                )
            )
            self._point(connection, address, revision)
        return after

    def _locked(
        self, connection: Connection, addresses: Changes | list[OverrideAddress]
    ) -> Mapping[OverrideAddress, Revision | None]:
        """Lock tags against other writers, and return the revisions that they point at."""
        tags = self._database.tables.tags
        if (approval := _APPROVAL.get()) is not None:
            approval.use(connection, self._database)
        # All writers lock in the same order, which rules out deadlocks between them.
        for address in sorted(addresses):
            lock = select(tags.c.tag).where(self._at(tags, address)).with_for_update()
            if connection.scalar(lock) is None:
                # A row that does not exist cannot be locked.
                self._database.insert_missing(
                    connection, tags, **self._columns(address), revision=None
                )
                connection.execute(lock)
        return {address: self._present(connection, address) for address in addresses}

    def _present(self, connection: Connection, address: OverrideAddress) -> Revision | None:
        tags, revisions = self._database.tables.tags, self._database.tables.revisions
        revision_id = connection.scalar(select(tags.c.revision).where(self._at(tags, address)))
        if revision_id is None:
            return None
        recent = self._recent.get(address)
        # Revisions never change, so that one of the same id need not be read again.
        if recent is not None and recent.id == revision_id:
            return recent
        document = connection.scalar(
            select(revisions.c.document).where(
                self._at(revisions, address), revisions.c.id == revision_id
            )
        )
        revision = decode_revision(document or b"", address, where=self._where(address))
        self._recent[address] = revision
        return revision

    def _known(self, connection: Connection, address: OverrideAddress) -> dict[str, Revision]:
        """Return the revisions of a tag by id, the oldest first."""
        revisions = self._database.tables.revisions
        rows = connection.execute(
            select(revisions.c.id, revisions.c.document)
            .where(self._at(revisions, address))
            .order_by(revisions.c.number)
        )
        where = self._where(address)
        return {id_: decode_revision(document, address, where=where) for id_, document in rows}

    def _latest(self, connection: Connection, address: OverrideAddress) -> int:
        revisions = self._database.tables.revisions
        latest = select(func.max(revisions.c.number)).where(self._at(revisions, address))
        return connection.scalar(latest) or 0

    def _point(
        self, connection: Connection, address: OverrideAddress, revision: Revision | None
    ) -> None:
        self._check_movable(connection, address.tag)
        at = None if revision is None else revision.id
        tags = self._database.tables.tags
        connection.execute(update(tags).where(self._at(tags, address)).values(revision=at))

    def _check_movable(self, connection: Connection, tag: str) -> None:
        if not self._project or _APPROVAL.get() is not None:
            return
        table = self._database.tables.protections
        of_tag = (table.c.project == self._project, table.c.tag == tag, table.c.ended.is_(None))
        if connection.scalar(select(table.c.tag).where(*of_tag)) is not None:
            raise ProtectedTagError(
                f"tag `{tag}` of project `{self._project}` is protected and was not moved; ask for "
                "it on the page of the server, or with `promptgraft jobs`"
            )

    def _where(self, address: OverrideAddress) -> str:
        at = f"{address.ns}/{address.prompt_key}/{address.tag}"
        return f"database {self.place}, overrides of `{at}`"

    def _columns(self, address: OverrideAddress) -> dict[str, str]:
        ns = f"{self._scope}{address.ns}"
        if len(ns) > MOST_NS_CHARS:
            raise InvalidIdentifierError(
                f"ns: expected at most {MOST_NS_CHARS - len(self._scope)} characters in the store "
                f"of project `{self._project}`, found {len(address.ns)}; shorten the namespace"
            )
        return {"ns": ns, "prompt_key": address.prompt_key, "tag": address.tag}

    def _at(self, table: Table, address: OverrideAddress) -> ColumnElement[bool]:
        return and_(*(table.c[name] == value for name, value in self._columns(address).items()))
