"""Tokenizer for ``.proto`` text: words, numbers, strings and symbols."""

from __future__ import annotations

import re
from collections.abc import Iterator

from goqueue.model.errors import InvalidSchema

WORD, NUMBER, STRING, SIGN, END = 1, 2, 3, 4, 5

# Possessive quantifiers: a text that does not match is refused after one pass, however long it is.
_TOKEN = re.compile(
    r"""(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*.*?\*/)*+
    (?:
      ([A-Za-z_][A-Za-z0-9_]*+)
    | (\.?[0-9](?:[eE][+-]|[0-9A-Za-z_.])*+)
    | ("(?:[^"\\\n\0]|\\[^\n\0])*+"|'(?:[^'\\\n\0]|\\[^\n\0])*+')
    | ([;{}=\[\]()<>,.:\-+]|/(?!\*))
    | (\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_BLANKS = re.compile(r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_WHOLE = re.compile(r"0[xX][0-9A-Fa-f]+|0[0-7]*|[1-9][0-9]*")
_FRACTION = re.compile(r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+")
_ESCAPE = re.compile(
    r"""\\(?:([abfnrtv?\\'"])|([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))"""
)
_PLAIN_ESCAPES = dict(zip("abfnrtv?\\'\"", "\a\b\f\n\r\t\v?\\'\"", strict=True))
MAX_DIGITS = 400
"""Limit on the digits of a number. Longer ones fit no type, and converting them is slow."""


class Tokens:
    """Cursor over the tokens of a ``.proto`` text: ``kind``, ``text`` and ``at`` describe the current token."""

    __slots__ = ("_next", "_source", "at", "kind", "text")

    def __init__(self, source: str) -> None:
        self._source = source
        self._next = 0
        self.kind = END
        self.text = ""
        self.at = 0
        self.advance()

    def advance(self) -> None:
        """Advance to the next token."""
        found = _TOKEN.match(self._source, self._next)
        if found is None:
            raise self._not_a_token()
        kind = found.lastindex or END
        self.kind = kind
        self.text = found[kind]
        self.at = found.start(kind)
        self._next = found.end()

    def error(self, message: str, at: int | None = None) -> InvalidSchema:
        """An error with its line and column."""
        return InvalidSchema(f"{self.where(self.at if at is None else at)}: {message}")

    def where(self, at: int) -> str:
        """Line and column of a position in the text, both counted from 1."""
        line = self._source.count("\n", 0, at) + 1
        return f"line {line}, column {at - (self._source.rfind(chr(10), 0, at) + 1) + 1}"

    def found(self) -> str:
        """The current token, for an error's text."""
        if self.kind == END:
            return "the text ends"
        return f"found {shortened(self.text)}"

    def take(self, text: str) -> bool:
        """Consume this word or symbol if it is the current token."""
        if self.text != text or self.kind == END:
            return False
        self.advance()
        return True

    def expect(self, text: str, why: str = "") -> None:
        """Consume this word or symbol, which must be the current token."""
        if not self.take(text):
            raise self.error(f"expected {text!r}{why}, but {self.found()}")

    def block(self) -> Iterator[None]:
        """Consume a block in braces: yields where a statement begins, which the caller consumes."""
        self.expect("{")
        while not self.take("}"):
            if not self.take(";"):
                yield

    def listed(self) -> Iterator[None]:
        """Consume a list: yields where an item begins, which the caller consumes, and consumes the commas."""
        yield
        while self.take(","):
            yield

    def word(self, what: str) -> str:
        """Consume an identifier."""
        if self.kind != WORD:
            raise self.error(f"expected {what}, but {self.found()}")
        text = self.text
        self.advance()
        return text

    def dotted(self, what: str, *, leading_dot: bool = False) -> str:
        """Consume one or more identifiers separated by dots."""
        parts: list[str] = []
        if leading_dot and self.take("."):
            parts.append("")
        parts.append(self.word(what))
        while self.take("."):
            parts.append(self.word(f"the rest of {what}"))
        return ".".join(parts)

    def whole_number(self, what: str, lowest: int, highest: int) -> int:
        """Consume a whole number from ``lowest`` to ``highest``; a minus sign is accepted if ``lowest`` is negative."""
        at = self.at
        negative = lowest < 0 and self.take("-")
        if self.kind != NUMBER or not _WHOLE.fullmatch(self.text):
            raise self.error(f"expected {what}, a whole number, but {self.found()}")
        value = whole(self.text)
        if negative:
            value = -value
        if not lowest <= value <= highest:
            raise self.error(f"{what} must lie between {lowest} and {highest}, but is {shortened(self.text)}", at)
        self.advance()
        return value

    def string(self, what: str) -> str:
        """Consume a string, which may consist of several adjacent literals."""
        at = self.at
        try:
            return self.string_bytes(what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not UTF-8", at) from None

    def string_bytes(self, what: str) -> bytes:
        """Consume a string as bytes: escapes can produce any byte."""
        if self.kind != STRING:
            raise self.error(f"expected {what}, a string in quotes, but {self.found()}")
        pieces = []
        while self.kind == STRING:
            pieces.append(self._unescaped(self.text[1:-1]))
            self.advance()
        return b"".join(pieces)

    def _unescaped(self, text: str) -> bytes:
        if "\\" not in text:
            return self._utf8(text)
        pieces: list[bytes] = []
        end = 0
        for found in _ESCAPE.finditer(text):
            pieces.append(self._utf8(text[end : found.start()]))
            end = found.end()
            plain, octal, hexadecimal, short, long, unknown = found.groups()
            if plain is not None:
                pieces.append(_PLAIN_ESCAPES[plain].encode())
            elif unknown is not None:
                raise self.error(f"the string has the unknown escape {shortened(found[0])}")
            elif octal is not None or hexadecimal is not None:
                pieces.append(bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF]))
            else:
                code = int(short or long, 16)
                if code > 0x10FFFF:
                    raise self.error(f"the string's escape {found[0]} is no Unicode character")
                pieces.append(self._utf8(chr(code)))
        pieces.append(self._utf8(text[end:]))
        return b"".join(pieces)

    def _utf8(self, text: str) -> bytes:
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:
            raise self.error("the string has half of a surrogate pair, which is no character") from None

    def _not_a_token(self) -> InvalidSchema:
        skipped = _BLANKS.match(self._source, self._next)
        at = skipped.end() if skipped else self._next
        sign = self._source[at : at + 1]
        if self._source.startswith("/*", at):
            return self.error("the comment that begins here never ends; end it with */", at)
        if sign in ("'", '"'):
            return self.error("the string that begins here does not end on its line", at)
        return self.error(f"{sign!a} has no place in a .proto text outside strings and comments", at)


def shortened(text: str) -> str:
    """A token for an error's text, in quotes and shortened."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def is_whole(text: str) -> bool:
    """Whether a number token is a whole number."""
    return _WHOLE.fullmatch(text) is not None


def is_fraction(text: str) -> bool:
    """Whether a number token has a decimal point or an exponent."""
    return len(text) <= MAX_DIGITS and _FRACTION.fullmatch(text) is not None


def whole(text: str) -> int:
    """Value of a whole number token; one with too many digits for any type gives a number too large for any type."""
    if len(text) > MAX_DIGITS:
        return 1 << 128
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8 if text[0] == "0" else 10)
