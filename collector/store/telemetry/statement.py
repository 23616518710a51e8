"""What a statement is: reading or writing, its output format, and where an INSERT's data begin.

The lexer knows ClickHouse's tokens, not its grammar. Where it cannot be sure that it sees what the engine will see, it
refuses: a quote that hides code from it would open the files of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SYNTAX_ERROR = 62
NOT_IMPLEMENTED = 48
ACCESS_DENIED = 497

READING = frozenset({"select", "with", "show", "describe", "desc", "exists", "explain", "check"})
WRITING = frozenset(
    {"create", "alter", "drop", "optimize", "truncate", "rename", "exchange", "delete", "system", "kill"}
)
# Files and addresses of this machine; read-only mode stops most of these, but neither file() nor python().
DENIED_FUNCTIONS = frozenset(
    {"file", "filecluster", "filesystem", "python", "executable", "eval", "url", "urlcluster", "remote", "remotesecure"}
    | {"cluster", "clusterallreplicas", "mysql", "postgresql", "mongodb", "redis", "sqlite", "odbc", "jdbc", "bigquery"}
    | {"ytsaurus", "arrowstream", "s3", "s3cluster", "gcs", "oss", "cosn", "hdfs", "hdfscluster", "hudi"}
    | {"azureblobstorage", "azureblobstoragecluster", "iceberg", "icebergs3", "icebergazure", "iceberghdfs"}
    | {"iceberglocal", "deltalake", "deltalakes3", "deltalakeazure", "deltalakelocal", "paimon", "paimons3"}
    | {"paimonazure", "paimonhdfs", "paimonlocal"}
)
DENIED_WORDS = frozenset({"outfile", "infile"})
# May be tightened in the URL, where the engine can see it.
DENIED_SETTINGS = frozenset({"max_threads", "max_memory_usage", "max_execution_time", "max_result_bytes", "readonly"})
DENIED_SYSTEM = frozenset({"shutdown", "kill", "suspend"})
# An INSERT's own text (table and columns), without its data, fits well into this.
MAX_INSERT_HEAD_BYTES = 64 << 10

_TOKEN = re.compile(
    rb"""(?P<space>\s+|--[^\n]*|\#[ !][^\n]*|/\*.*?\*/)
    |(?P<string>'(?:[^'\\]|\\.|'')*'|\xe2\x80\x98.*?\xe2\x80\x99|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*"|\xe2\x80\x9c.*?\xe2\x80\x9d)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_QUOTE_STARTS = (b"'", b"`", b'"', b"\xe2", b"$")


class RefusedStatementError(Exception):
    """A statement that the front does not run; `code` is ClickHouse's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. For an INSERT with data, `sql` ends before FORMAT, and the data begin at `data_offset` bytes."""

    sql: str
    is_reading: bool
    format: str | None = None
    settings: str = ""
    data_offset: int | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: bytes
    start: int
    end: int

    @property
    def word(self) -> str:
        """Return the lower-case word, unquoted, or an empty string."""
        if self.kind == "word":
            return self.text.decode().lower()
        return self.text[1:-1].decode(errors="replace").lower() if self.kind == "quoted" else ""


def read_statement(text: bytes) -> Statement:
    """Return the statement that `text` begins with; what follows an INSERT's FORMAT or VALUES is left unread.

    Raises:
        RefusedStatementError: it is empty, several, of an unknown kind, or reaches for this machine's files.
    """
    tokens = _tokens(text)
    first = next(tokens, None)
    while first is not None and first.text == b"(":
        first = next(tokens, None)
    verb = first.word if first is not None and first.kind == "word" else ""
    if verb == "insert":
        return _read_insert(text, tokens)
    if verb in ("set", "use"):
        raise RefusedStatementError(NOT_IMPLEMENTED, f"{verb.upper()} needs a session, which this store does not keep")
    if verb not in READING and verb not in WRITING:
        raise RefusedStatementError(SYNTAX_ERROR, f"Syntax error: a statement cannot begin with {verb!r}")
    rest = list(tokens)
    _refuse_denied(rest)
    if verb == "system" and rest and rest[0].word in DENIED_SYSTEM:
        raise RefusedStatementError(ACCESS_DENIED, "Not enough privileges to stop the store")
    return Statement(
        sql=_without_semicolon(text, rest).decode(), is_reading=verb in READING, format=_trailing_format(rest)
    )


def _read_insert(text: bytes, tokens: Iterator[_Token]) -> Statement:
    seen: list[_Token] = []
    settings_at: int | None = None
    depth = 0
    for token in tokens:
        depth += (token.text == b"(") - (token.text == b")")
        keyword = token.word if token.kind == "word" and depth == 0 else ""
        if keyword == "settings":
            settings_at = token.start
        elif keyword in ("format", "values"):
            return _insert_with_data(text, token, tokens, settings_at)
        elif keyword in ("select", "with"):
            rest = [*seen, *tokens]
            _refuse_denied(rest)
            return Statement(sql=_without_semicolon(text, rest).decode(), is_reading=False)
        seen.append(token)
        _refuse_denied(seen[-2:])
    raise RefusedStatementError(SYNTAX_ERROR, "Syntax error: an INSERT needs FORMAT, VALUES or SELECT")


def _insert_with_data(text: bytes, keyword: _Token, tokens: Iterator[_Token], settings_at: int | None) -> Statement:
    name, end = "Values", keyword.end
    if keyword.word == "format":
        token = next(tokens, None)
        if token is None or token.kind != "word":
            raise RefusedStatementError(SYNTAX_ERROR, "Syntax error: FORMAT needs a name")
        name, end = token.text.decode(), token.end
        # As the server does: blanks and one line feed after the name belong to the statement, the rest are data.
        blanks = re.compile(rb"[ \t\r]*\n?").match(text, end)
        end = blanks.end() if blanks else end
    head = text[: keyword.start if settings_at is None else settings_at]
    settings = "" if settings_at is None else text[settings_at : keyword.start].decode()
    return Statement(sql=head.decode(), is_reading=False, format=name, settings=settings, data_offset=end)


def _tokens(text: bytes) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        kind = "string" if kind == "tag" else kind
        if kind == "space":
            if match[0].startswith(b"/*") and b"/*" in match[0][2:]:
                raise RefusedStatementError(SYNTAX_ERROR, "Syntax error: comments cannot nest")
            continue
        if kind == "other" and (match[0] in _QUOTE_STARTS or text.startswith(b"/*", match.start())):
            raise RefusedStatementError(SYNTAX_ERROR, f"Syntax error: unclosed {match[0]!r} at byte {match.start()}")
        yield _Token(kind, match[0], match.start(), match.end())


def _refuse_denied(tokens: list[_Token]) -> None:
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        is_call = after is not None and after.text == b"("
        if (token.kind == "word" and token.word in DENIED_WORDS) or (is_call and token.word in DENIED_FUNCTIONS):
            raise RefusedStatementError(ACCESS_DENIED, f"Not enough privileges: {token.word} is not served")
        if after is not None and after.text == b"=" and token.word in DENIED_SETTINGS:
            raise RefusedStatementError(ACCESS_DENIED, f"Not enough privileges: set {token.word} in the URL instead")


def _without_semicolon(text: bytes, tokens: list[_Token]) -> bytes:
    for index, token in enumerate(tokens):
        if token.text == b";" and token.kind == "other":
            if any(after.text != b";" for after in tokens[index:]):
                raise RefusedStatementError(SYNTAX_ERROR, "Syntax error: Multi-statements are not allowed")
            return text[: token.start]
    return text


def _trailing_format(tokens: list[_Token]) -> str | None:
    words = [token for token in tokens if token.text != b";"]
    for index in range(len(words) - 2, -1, -1):
        if words[index].kind == "word" and words[index].word == "format" and words[index + 1].kind == "word":
            follows = words[index + 2].word if index + 2 < len(words) else "settings"
            return words[index + 1].text.decode() if follows == "settings" else None
    return None
