"""Read a download: each notebook in it with whose it is, which lab, and when it was handed in."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from compaction.files import write_whole
from grader.autograde.intake.files import (
    MAX_HANDED_IN_BYTES,
    MAX_HANDED_IN_FILES,
    Found,
    Refusal,
    filling_fault,
    paths_of,
    unzip,
    walk,
)
from grader.autograde.intake.journal import HandIn
from grader.autograde.intake.names import Named, Parts, lab_named, owners, tree_of, version_of
from grader.errors import BadInput, printable
from grader.notebooks.lab import NotebookError, lab_of


@dataclass
class _Upload:
    """One hand-in while it is read: its owner, what it holds, what it has cost."""

    named: Named
    at: Parts
    hand_ins: list[HandIn] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    files: int = 0
    size: int = 0
    when: datetime | None = None
    is_over: bool = False


def read_download(
    source: Path,
    keep: Path,
    knows: Callable[[str], bool] = lambda name: False,
    zone: tzinfo | None = None,
) -> list[HandIn]:
    """Return what is in a folder or a zip archive; its notebooks are kept in ``keep``.

    Raises BadInput when there is no such folder, no archive, or no notebook in it.
    """
    received = _received(source)
    mark = "/" if source.is_dir() else "!"
    name = source.name or source.resolve().name
    owned = owners(tree_of(paths_of(source)), re.sub(r"\.zip$", "", name, flags=re.I), knows, zone)
    uploads: dict[Parts, _Upload] = {}
    strays = _Upload(Named("plain", ""), ())
    reader = _Reader(f"{printable(name)}{mark}", printable(name), keep, received)
    for found in walk(source):
        at = next((found.parts[:n] for n in range(1, len(found.parts) + 1)
                   if found.parts[:n] in owned), None)  # fmt: skip
        if at is not None:
            if at not in uploads:
                uploads[at] = _Upload(_checked_owner(owned[at], source, at), at)
            reader.add(uploads[at], found, zone)
        elif found.fault:
            reader.refuse(strays, found, found.fault)
    hand_ins = [*strays.hand_ins]
    for upload in uploads.values():
        hand_ins += reader.finish(upload)
    if not hand_ins:
        expected = "expected .ipynb files, or folders of them"
        raise BadInput(f"{source}: no notebook in it; {expected}")
    return hand_ins


def _received(source: Path) -> datetime:
    """Return when an archive was downloaded; of a folder nobody knows: now."""
    now = datetime.now(UTC).replace(tzinfo=None)
    if not source.is_file():
        return now
    return min(now, datetime.fromtimestamp(source.stat().st_mtime, UTC).replace(tzinfo=None))


def _checked_owner(named: Named, source: Path, at: Parts) -> Named:
    """Return an owner in nbgrader's exchange, in doubt unless the folder belongs to them.

    The learner's own program writes the name and the times; the system says whose folder it is,
    and when it was last changed.
    """
    if named.platform != "nbgrader":
        return named
    folder = source.joinpath(*at)
    try:
        status = folder.stat(follow_symlinks=False) if source.is_dir() else None
    except OSError:
        status = None
    if status is None:
        doubt = "an archive of nbgrader's exchange does not say who owned the folder"
        return replace(named, doubt=doubt, when=None)
    owner = owner_of(status.st_uid)
    when = datetime.fromtimestamp(status.st_mtime, UTC).replace(tzinfo=None)
    doubt = ""
    if owner != named.student:
        whose = f"belongs to {printable(owner)}" if owner else "belongs to an account that is gone"
        doubt = f"says it is {printable(named.student)}'s, but its folder {whose}"
    return replace(named, when=when, doubt=doubt)


def owner_of(uid: int) -> str:
    """Return the name of an account; "" where there is none (any more)."""
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return ""


class _Reader:
    """Read the files of hand-ins, each within its bounds."""

    def __init__(self, prefix: str, source: str, keep: Path, received: datetime) -> None:
        self._prefix, self._source, self._keep, self._received = prefix, source, keep, received

    def add(self, upload: _Upload, found: Found, zone: tzinfo | None) -> None:
        """Take one file of a hand-in: a notebook, an archive, a time, or something else."""
        if upload.is_over:
            return
        upload.files += 1
        if upload.files > MAX_HANDED_IN_FILES or upload.size > MAX_HANDED_IN_BYTES:
            upload.is_over = True
            bound = f"{MAX_HANDED_IN_FILES:,} files or {MAX_HANDED_IN_BYTES // 10**6} MB"
            self.refuse(upload, found, f"more than {bound} in one hand-in; the rest is not read")
        elif found.fault:
            self.refuse(upload, found, found.fault)
        elif found.parts == (*upload.at, "timestamp.txt") and upload.named.platform == "sakai":
            upload.when = _sakai_time(found, zone)
        elif found.is_archive:
            self._open(upload, found)
        elif found.is_notebook:
            self._notebook(upload, found)
        elif not _is_platforms_own(found.parts):
            upload.others.append(found.parts[-1])

    def _open(self, upload: _Upload, found: Found) -> None:
        """Look into an archive that a learner handed in; not into one in it."""
        try:
            data = found.read()
        except Refusal as refusal:
            self.refuse(upload, found, str(refusal))
            return
        upload.size += len(data)
        for inner in unzip(data, found.parts):
            if upload.is_over:
                return
            if inner.is_archive and not inner.fault and inner.parts != found.parts:
                inner = replace(inner, fault="an archive in an archive; expected the notebook")
            if inner.parts == found.parts and not inner.fault:
                continue
            self.add(upload, inner, None)

    def _notebook(self, upload: _Upload, found: Found) -> None:
        try:
            data = found.read()
        except Refusal as refusal:
            self.refuse(upload, found, str(refusal))
            return
        upload.size += len(data)
        digest = hashlib.sha256(data).hexdigest()
        path = self._keep / f"{digest}.ipynb"
        if not path.exists():
            self._keep.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        slug, fault = "", filling_fault(data)
        try:
            slug = "" if fault else lab_of(path)
        except NotebookError as error:
            fault = fault_of(error, path)
        if fault:
            if upload.named.platform != "github" or "lab of this course" not in fault:
                self.refuse(upload, found, fault, digest)
            return
        named = version_of(upload.named, found.parts[len(upload.at) :])
        upload.hand_ins.append(self._hand_in(named, found, slug=slug, digest=digest))

    def refuse(self, upload: _Upload, found: Found, fault: str, digest: str = "") -> None:
        """Keep in mind what could not be taken in, and why."""
        slug = lab_named(found.parts)
        upload.hand_ins.append(
            self._hand_in(upload.named, found, slug=slug, digest=digest, fault=fault)
        )

    def _hand_in(
        self, named: Named, found: Found, *, slug: str, digest: str = "", fault: str = ""
    ) -> HandIn:
        origin = self._prefix + printable("/".join(found.parts))
        when, received = named.when, self._received
        return HandIn(origin, named, self._source, slug, digest, when, received, fault)

    def finish(self, upload: _Upload) -> Iterator[HandIn]:
        """Yield what a hand-in holds; a hand-in without any notebook is named."""
        if not upload.hand_ins and upload.others:
            files = upload.others
            listed = ", ".join(map(printable, files[:3])) + (" …" if len(files) > 3 else "")
            origin = self._prefix + printable("/".join(upload.at))
            fault = f"handed in, but no notebook: {listed}; expected .ipynb"
            yield HandIn(origin, upload.named, self._source, "", "", upload.named.when,
                         self._received, fault)  # fmt: skip
        for one in upload.hand_ins:
            yield replace(one, when=upload.when or one.when)


def _is_platforms_own(parts: Parts) -> bool:
    """Return True for what platforms add: comments, feedback, the data of an attempt, times."""
    own = ("timestamp.txt", "comments.txt", "submission_secret.txt", "feedbackText.html")
    name = parts[-1]
    return name in own or bool(re.search(r"_attempt_\d{4}(-\d\d){5}\.txt$", name[-60:]))


def _sakai_time(found: Found, zone: tzinfo | None) -> datetime | None:
    """Return the time in Sakai's own file: yyyyMMddHHmmssSSS, in the time of the place."""
    try:
        digits = found.read()[:14].decode("ascii", "replace")
        told = datetime.strptime(digits, "%Y%m%d%H%M%S")
        return told.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None)
    except (Refusal, ValueError, OverflowError):
        return None


def fault_of(error: NotebookError, path: Path) -> str:
    """Return what is wrong with a notebook, without its path and the advice to its learner."""
    return str(error).removeprefix(f"{path}: ").partition("; move this file away")[0]


def same_folder(one: Path, other: Path) -> bool:
    """Return True if both paths lead to the same place."""
    return os.path.realpath(one) == os.path.realpath(other)
