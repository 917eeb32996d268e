"""Contexts: the user's names for brokers and the current one of them, kept in one small JSON file."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from goqueue.model.errors import InvalidRequest, NotFound
from goqueue.model.fields import did_you_mean, shown

FILE_VARIABLE = "GOQUEUE_CONTEXTS"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_MOST = 1_000


class NoSuchContext(NotFound):
    """No context has this name."""

    remedy = "'goqueue context list' shows those that there are; 'goqueue context add NAME URL' makes one."


class InvalidContexts(InvalidRequest):
    """The name is not valid for a context, or there are too many contexts."""

    remedy = "Names have 1 to 60 ASCII letters, digits, '_' or '-'; 'goqueue context remove NAME' forgets one."


class UnusableFile(InvalidRequest):
    """The contexts file cannot be read or written."""

    remedy = f"See that the file and its folder may be read and written, or name another file: {FILE_VARIABLE}=FILE."


class DamagedFile(InvalidRequest):
    """The contexts file does not hold what ``goqueue context`` writes."""

    remedy = "Mend that file or delete it; 'goqueue context add NAME URL' makes a new one."


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """A broker's address. Without ``grpc``, its gRPC address is asked of the broker."""

    server: str
    grpc: str = ""


class Contexts(msgspec.Struct, omit_defaults=True):
    current: str = ""
    contexts: dict[str, Context] = {}

    def get(self, name: str) -> Context:
        try:
            return self.contexts[name]
        except KeyError:
            hint = did_you_mean(name, list(self.contexts))
            raise NoSuchContext(f"there is no context {shown(name)}{hint}") from None

    def add(self, name: str, context: Context) -> None:
        if not can_be_name(name):
            raise InvalidContexts(f"{shown(name)} is no name for a context")
        if len(self.contexts) >= _MOST and name not in self.contexts:
            raise InvalidContexts(f"there are {_MOST} contexts already; remove one first")
        self.contexts[name] = context


def can_be_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def file_path() -> Path:
    if given := os.environ.get(FILE_VARIABLE):
        return Path(given)
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "goqueue" / "contexts.json"


def load() -> Contexts:
    path = file_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise DamagedFile(f"{path} is not as it should be: {error}") from None


def save(contexts: Contexts) -> None:
    """Replace the file atomically: an interrupted command leaves the old one."""
    path = file_path()
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Readable by the owner only: addresses may hold a user name and a password.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise UnusableFile(f"{path} cannot be written: {error.strerror}") from None
