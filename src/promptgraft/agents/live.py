"""Live files: the sources themselves hold one candidate at a time."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.agents.delivery import RunScope
from promptgraft.agents.sources import Sources
from promptgraft.agents.writing import LEFT, WriteRecord, difference, why_not
from promptgraft.errors import CallerError, ConfigError
from promptgraft.ground.files import make_folder, write_atomically
from promptgraft.ground.folders import remove_tree
from promptgraft.runtime.deadline import LONGEST_WAIT, Deadline

_Key = tuple[str, ...]


@attrs.frozen(eq=False)
class _Rollout:
    """A rollout that waits for its candidate or runs with it."""

    key: _Key


class LiveFiles:
    """Writes a candidate into the sources themselves while its rollouts run.

    For agents that cannot receive their texts in another way: everything that reads the sources
    meanwhile sees candidates. Rollouts of other candidates wait in order of arrival; those of the
    same candidate run together. The sources are written when the candidate changes, and keep the
    last one until the run ends.

    The original content is saved in the folder ``originals`` of the run before the first write, and
    restored at the end, or by the next command if the process is killed. If something else writes
    a source meanwhile, the run ends and that source is left alone.

    Args:
        sources: the texts, of files and callbacks.
    """

    kind = "live"

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._writer = sources.writer()
        self._scope = RunScope()
        # A condition's lock is reentrant: a signal handler may interrupt the thread that holds it.
        self._changed = threading.Condition()
        self._end("live: the sources are not taken over; begin the run with `opened(folder)`")

    def _end(self, why: str) -> None:
        """Refuse every rollout from now on."""
        self._failure: CallerError | None = ConfigError(why)
        self._waiting: list[_Rollout] = []
        self._active: set[_Rollout] = set()

    def opened(self, folder: Path) -> contextlib.AbstractContextManager[None]:
        """Take over the sources for the duration of the context, then restore them.

        Raises:
            ConfigError: a source has changed since it was read, or cannot be put back.
            JournalLockedError: another process writes the sources.
            OSError: the file system refuses.
        """
        return self._scope.entered(self._opened(folder))

    def check_opening(self) -> None:
        """Raise a ``ConfigError`` if a source has changed since it was read, or is gone."""
        self._writer.check_unchanged(self._sources.held(name) for name in self._sources.texts)

    @contextlib.contextmanager
    def _opened(self, folder: Path) -> Iterator[None]:
        with self._writer.held():
            self._held = {name: self._sources.held(name) for name in self._sources.texts}
            # Before anything is recorded: an edit since the sources were read must not be reverted.
            self._writer.check_unchanged(self._held.values())
            originals = folder / "originals"
            remove_tree(originals)  # an agent of an earlier process may have left a link there
            make_folder(originals, under=folder)
            for name, text in self._held.items():
                path = originals / f"{name}{Path(text.path).suffix}"
                # For people; recovery reads the record, which holds the same contents.
                write_atomically(path, text.old.encode())
            self._by = f"run {folder.name}"
            self._key: _Key = tuple(self._sources.texts.values())
            # From here on a killed run leaves a record, and the next command restores the sources.
            self._record(self._key)
            self._failure = None
            try:
                yield
            finally:
                self._put_back()

    def _put_back(self) -> None:
        with self._changed:
            failure = self._failure
            self._end("live: the run has ended")
            self._changed.notify_all()
        try:
            self._writer.settle()
        except ConfigError:
            if failure is None:  # otherwise the run has already ended with that error
                raise

    @contextlib.contextmanager
    def deliver(
        self, texts: Mapping[str, str], *, deadline: Deadline | None = None
    ) -> Iterator[Path]:
        """Return a context in which the sources hold ``texts``; blocks while others are in use.

        Raises:
            ConfigError: the sources are not taken over, cannot be written, or were written by
                something else.
            LimitReachedError: the deadline has passed, or the run was cancelled.
        """
        rollout = _Rollout(tuple(texts[name] for name in self._sources.texts))
        with contextlib.ExitStack() as stack:
            if deadline is not None and deadline.cancellation is not None:
                stack.callback(deadline.cancellation.listen(self._wake))
            # Registered before entering: a wait that is given up must leave the queue too.
            stack.callback(self._leave, rollout)
            self._enter(rollout, deadline)
            yield self._sources.folder
            with self._changed:
                # Files only: calling the user's functions after each rollout could cost more than
                # the rollout.
                self._check(self._sources.files)
            if self._failure is not None:
                raise self._failure

    def _enter(self, rollout: _Rollout, deadline: Deadline | None) -> None:
        """Wait until the sources hold the candidate of a rollout."""
        with self._changed:
            self._waiting.append(rollout)
            self._admit()
            while rollout not in self._active:
                if self._failure is not None:
                    raise self._failure
                seconds = LONGEST_WAIT
                if deadline is not None:
                    deadline.check()
                    # Not every cancellation wakes its listeners.
                    seconds = min(seconds, deadline.remaining, deadline.look_every)
                self._changed.wait(seconds)

    def _leave(self, rollout: _Rollout) -> None:
        with self._changed:
            self._active.discard(rollout)
            self._waiting = [
                waiting_rollout
                for waiting_rollout in self._waiting
                if waiting_rollout is not rollout
            ]
            self._admit()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _admit(self) -> None:
        """Admit the rollouts that need not wait any longer; the lock is held."""
        ready: Iterable[_Rollout] = self._waiting
        if self._active:
            # No rollout overtakes one that waits for another candidate, which might starve.
            ready = itertools.takewhile(lambda one: one.key == self._key, self._waiting)
        elif self._waiting and self._failure is None and self._waiting[0].key != self._key:
            self._switch(self._waiting[0].key)
        if self._failure is None:
            self._active.update(
                waiting_rollout for waiting_rollout in ready if waiting_rollout.key == self._key
            )
            self._waiting = [
                waiting_rollout
                for waiting_rollout in self._waiting
                if waiting_rollout not in self._active
            ]
        self._changed.notify_all()

    def _switch(self, key: _Key) -> None:
        """Write another candidate into the sources; the lock is held."""
        # An edit since the last rollout would be overwritten, and the next answers be of unknown
        # texts.
        self._check(self._held)
        try:
            if self._failure is None:
                # Before the first source changes: it names both candidates, so that either is
                # recognized.
                self._record(key)
                texts = self._named(key)
                for name, before in self._named(self._key).items():
                    if before != texts[name]:
                        self._writer.put(self._held[name], self._sources.content(name, texts))
                self._key = key
        except (OSError, CallerError) as error:
            self._failure = ConfigError(f"live: a candidate cannot be written: {error}")

    def _named(self, key: _Key) -> Mapping[str, str]:
        """Return the texts of a candidate by name."""
        return dict(zip(self._held, key, strict=True))

    def _record(self, key: _Key) -> None:
        """Record durably what the sources may hold from now on."""
        both = (self._named(self._key), self._named(key))
        texts = tuple(
            attrs.evolve(
                text, new=tuple(self._sources.content(name, texts_held) for texts_held in both)
            )
            for name, text in self._held.items()
        )
        self._writer.begin(WriteRecord(by=self._by, goal="old", texts=texts))

    def _check(self, names: Iterable[str]) -> None:
        """Set the failure if something else has written a source; the lock is held."""
        expected = self._named(self._key)
        for name in () if self._failure else names:
            text = self._held[name]
            try:
                text_now = self._writer.now(text)
                content = self._sources.content(name, expected)
                why = "" if text_now == content else difference(content, text_now)
            except (OSError, CallerError) as error:
                why = why_not(text, error).removeprefix(text.where)
            if why:
                self._failure = ConfigError(
                    f"live: {text.where}:{why}; something else wrote it while the run had a "
                    f"candidate there, so the run ends; {LEFT}"
                )
                return
