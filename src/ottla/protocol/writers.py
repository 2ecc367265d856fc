"""Compiles the writer of one version of a message: flat Python source, made and executed at first use.

As in `readers`, the whole message becomes one function. What is written together is gathered in a
`_Chunk`: fixed-width fields, the lengths between them, and a short string or short arrays of numbers
become one `struct`. A chunk that could not be packed so after all (a length above 127, tagged fields
that are there) is written piece by piece by the slow lines that stand beside the quick one.

The generated function takes the message and gives a list of buffers: record batches of some size are in
it as they were handed in, everything else is joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from struct import error as struct_error
from typing import Any

from ottla.errors import ProtocolError
from ottla.protocol import wire
from ottla.protocol.schema import Field, Kind, Message, fields_of

RECORDS_COPIED_MAX = 2048
"""Record bytes up to here are copied into the buffer around them: one buffer more costs more than that."""

Writer = Callable[[Message], list[wire.Buffer]]

_VARINTS = (
    ("{n} < 128", ("{n}",)),
    ("{n} < 16384", ("{n} & 127 | 128", "{n} >> 7")),
    ("{n} < 2097152", ("{n} & 127 | 128", "{n} >> 7 & 127 | 128", "{n} >> 14")),
)
"""How the length of records is packed: for each number of bytes the condition and the bytes."""


@cache
def writer(message: type[Message], version: int) -> Writer:
    """The function that writes this version of a message; made once, then kept.

    Raises ProtocolError if the message has no such version.
    """
    source = _Source(message, version)
    exec(compile(source.function(), f"<writer of {source.title}>", "exec"), source.names)
    write: Writer = source.names["write"]
    return write


def writer_source(message: type[Message], version: int) -> str:
    """The generated source, for people who want to see it."""
    return _Source(message, version).function()


@dataclass(slots=True)
class _Chunk:
    """What will be packed by one call."""

    pieces: list[str] = field(default_factory=lambda: [""])
    """Struct codes; around a string or arrays they alternate as `wire.ArrayLayouts` describes."""
    values: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """The lengths or counts that choose the layout."""
    holds_text: bool = False
    guards: list[str] = field(default_factory=list)
    """If one of these holds, the chunk cannot be packed in one go."""
    slow: list[str] = field(default_factory=list)
    """The lines for that case."""

    def fixed(self, code: str, value: str | None) -> None:
        self.pieces[-1] += code
        if value is not None:
            self.values.append(value)


class _Source:
    """The source of one writer while it is being written."""

    def __init__(self, message: type[Message], version: int) -> None:
        if version not in message.VERSIONS:
            raise ProtocolError(f"{message.__name__} has versions {message.VERSIONS}, not {version}")
        self._message = message
        self._version = version
        self._flexible = message.VERSIONS.flexible(version)
        self.title = f"{message.__name__} v{version}"
        self._lines: list[str] = []
        self._indent = 2
        self._chunk = _Chunk()
        self._has_records = False
        self.names: dict[str, Any] = {
            "ProtocolError": ProtocolError,
            "struct_error": struct_error,
            "varint": wire.varint,
            "text_length": wire.text_length,
            "tag_section": wire.tag_section,
        }

    def function(self) -> str:
        """The source of the whole function."""
        self._struct(self._message, "m_0", 0)
        self._flush()
        self._line("out.append(b''.join(parts))" if self._has_records else "return [b''.join(parts)]")
        if self._has_records:
            self._line("return out")
        opening = "    out = []\n" if self._has_records else ""
        body = "\n".join(self._lines)
        return (
            "def write(m_0):\n"
            f"{opening}"
            "    parts = []\n"
            "    try:\n"
            f"{body}\n"
            "    except (UnicodeEncodeError, struct_error) as cause:\n"
            f"        raise ProtocolError(f'{self.title}: {{cause}}') from cause\n"
        )

    # Lines and chunks.

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def _block(self, opening: str) -> Iterator[None]:
        self._line(opening)
        self._indent += 1
        yield
        self._indent -= 1

    @contextmanager
    def _aside(self) -> Iterator[list[str]]:
        """Collect lines, without indentation, for use elsewhere; the chunk outside is left alone."""
        lines, chunk, indent = self._lines, self._chunk, self._indent
        self._lines, self._chunk, self._indent = [], _Chunk(), 0
        yield self._lines
        self._lines, self._chunk, self._indent = lines, chunk, indent

    def _refuse(self, condition: str, complaint: str) -> None:
        with self._block(condition):
            self._line(f"raise ProtocolError({f'{self.title}: {complaint}'!r})")

    def _name(self, prefix: str, value: object) -> str:
        """A global name of the generated module that stands for `value`."""
        for name, known in self.names.items():
            if known is value and name.startswith(prefix):
                return name
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def _fixed(self, code: str, value: str | None) -> None:
        """One fixed-width value; code `x` is a zero byte and has none."""
        self._chunk.fixed(code, value)
        pack = self._name("pack_", wire.layout(code, method="pack"))
        self._chunk.slow.append(f"parts.append({pack}({value or ''}))")

    def _length(self, code: str, variable: str, *, is_text: bool = False) -> None:
        """A length or count: one byte if it is short, else the slow lines write it."""
        if not self._flexible:
            self._fixed(code, variable)
            return
        self._chunk.fixed("B", variable)
        self._chunk.guards.append(f"{variable} > {wire.SHORT_MAX}")
        self._chunk.slow.append(f"parts.append({'text_length' if is_text else 'varint'}({variable}))")

    def _flush(self) -> None:
        """Write the lines for the chunk and begin a new one."""
        chunk, self._chunk = self._chunk, _Chunk()
        if not chunk.slow:
            return
        quick = f"parts.append({self._pack(chunk)})"
        if not chunk.guards:
            self._line(quick)
            return
        with self._block(f"if {' or '.join(chunk.guards)}:"):
            for line in chunk.slow:
                self._line(line)
        with self._block("else:"):
            self._line(quick)

    def _pack(self, chunk: _Chunk) -> str:
        values = ", ".join(chunk.values)
        if chunk.pieces == ["x"]:
            return "b'\\0'"
        if not chunk.keys:
            return f"{self._name('pack_', wire.layout(chunk.pieces[0], method='pack'))}({values})"
        if chunk.holds_text:
            null = 0 if self._flexible else -1
            before, after = chunk.pieces
            table: object = wire.text_layouts(before, after, null=null, method="pack")
        else:
            table = wire.array_layouts(tuple(chunk.pieces), method="pack")
        return f"{self._name('layouts_', table)}[{', '.join(chunk.keys)}]({values})"

    # Structs and fields.

    def _struct(self, struct: type[Message], source: str, depth: int) -> None:
        """Write the struct that the variable `source` holds."""
        tagged: list[Field] = []
        for each in fields_of(struct):
            if not each.is_in(self._version):
                if not each.since.ignorable:
                    self._refuse(
                        f"if {self._differs(each, f'{source}.{each.name}')}:",
                        f"{each.name} is not in this version and must keep its default",
                    )
            elif each.tag is not None:
                tagged.append(each)
            else:
                self._field(each, source, depth)
        if self._flexible:
            self._tags(tagged, source, depth)

    def _differs(self, each: Field, value: str) -> str:
        """An expression that is true when a value is not the field's default."""
        default = each.default
        if default is None:
            return f"{value} is not None"
        if each.is_array:
            # Any empty sequence will do, not only the empty tuple.
            return f"({value} is None or {value})" if each.is_nullable else value
        if each.struct is not None:
            name = self._name("default_", default)
            return f"{value} is not {name} and {value} != {name}"
        return f"{value} != {default!r}"

    def _tags(self, tagged: list[Field], source: str, depth: int) -> None:
        present = f"tags_{depth}"
        conditions = [f"{source}.unknown_tags", *(self._differs(each, f"{source}.{each.name}") for each in tagged)]
        self._line(f"{present} = {' or '.join(conditions)}")
        with self._aside() as lines:
            known = f"known_{depth}"
            self._line(f"{known} = {{}}")
            for each in tagged:
                with self._block(f"if {self._differs(each, f'{source}.{each.name}')}:"):
                    self._line(f"outside_{depth} = parts")
                    self._line("parts = []")
                    self._field(each, source, depth)
                    self._flush()
                    self._line(f"{known}[{each.tag}] = b''.join(parts)")
                    self._line(f"parts = outside_{depth}")
            self._line(f"parts.append(tag_section({known}, {source}.unknown_tags))")
        chunk = self._chunk
        chunk.fixed("x", None)
        chunk.guards.append(present)
        chunk.slow.append(f"if {present}:")
        chunk.slow += ["    " + line for line in lines]
        chunk.slow.append("else:")
        chunk.slow.append("    parts.append(b'\\0')")

    def _field(self, each: Field, source: str, depth: int) -> None:
        value = f"{source}.{each.name}"
        name = f"{each.name}_{depth}"
        if each.kind.is_fixed and not each.is_array:
            if each.kind is Kind.UUID:
                # `struct` would cut or fill an id of another length without a word.
                self._refuse(f"if len({value}) != 16:", f"{each.name} is not 16 bytes long")
            self._fixed(each.kind.value, value)
            return
        if each.struct is not None and not each.is_array:
            self._line(f"{name} = {value}")
            self._nested(each, each.struct, name, depth)
            return
        may_be_null = each.may_be_null(self._version)
        if each.is_nullable and not may_be_null:
            self._refuse(f"if {value} is None:", f"{each.name} may not be null in this version")
        if each.is_array:
            self._array(each, name, value, depth, may_be_null=may_be_null)
        elif each.kind is Kind.STRING:
            self._string(name, value, may_be_null=may_be_null)
        else:
            self._measure(name, value, "b''", may_be_null=may_be_null)
            if each.kind is Kind.RECORDS:
                self._records(name)
            else:
                self._length("i", f"{name}_n")
                self._flush()
                self._line(f"parts.append({name})")

    def _measure(self, name: str, value: str, empty: str, convert: str = "", *, may_be_null: bool) -> None:
        """Lines that put the value into `<name>`, an empty one for null, and its length into `<name>_n`."""
        size = f"len({name}) + 1" if self._flexible else f"len({name})"
        if not may_be_null:
            self._line(f"{name} = {value}{convert}")
            self._line(f"{name}_n = {size}")
            return
        self._line(f"{name} = {value}")
        with self._block(f"if {name} is None:"):
            self._line(f"{name} = {empty}")
            self._line(f"{name}_n = {0 if self._flexible else -1}")
        with self._block("else:"):
            if convert:
                self._line(f"{name} = {name}{convert}")
            self._line(f"{name}_n = {size}")

    def _string(self, name: str, value: str, *, may_be_null: bool) -> None:
        self._measure(name, value, "b''", ".encode()", may_be_null=may_be_null)
        if self._chunk.keys:
            self._flush()
        self._length("h", f"{name}_n", is_text=True)
        chunk = self._chunk
        if not self._flexible:
            chunk.guards.append(f"{name}_n > {wire.SHORT_MAX}")
        chunk.holds_text = True
        chunk.keys.append(f"{name}_n")
        chunk.values.append(name)
        chunk.pieces.append("")
        chunk.slow.append(f"parts.append({name})")

    def _nested(self, each: Field, struct: type[Message], name: str, depth: int) -> None:
        if not each.may_be_null(self._version):
            self._struct(struct, name, depth + 1)
            return
        self._flush()
        with self._block(f"if {name} is None:"):
            self._line("parts.append(b'\\xff')")
        with self._block("else:"):
            self._fixed("b", "1")
            self._struct(struct, name, depth + 1)
            self._flush()

    def _records(self, name: str) -> None:
        """Records with their length. Compact, that is two or three bytes for most, so each has its quick line."""
        self._has_records = True
        length = f"{name}_n"
        if self._flexible:
            if self._chunk.keys or self._chunk.guards:
                self._flush()
            chunk, self._chunk = self._chunk, _Chunk()
            keyword = "if"
            for condition, varint_bytes in _VARINTS:
                codes = chunk.pieces[0] + "B" * len(varint_bytes)
                values = [*chunk.values, *(each.format(n=length) for each in varint_bytes)]
                pack = self._name("pack_", wire.layout(codes, method="pack"))
                with self._block(f"{keyword} {condition.format(n=length)}:"):
                    self._line(f"parts.append({pack}({', '.join(values)}))")
                keyword = "elif"
            with self._block("else:"):
                for line in [*chunk.slow, f"parts.append(varint({length}))"]:
                    self._line(line)
        else:
            self._length("i", length)
            self._flush()
        with self._block(f"if {length} > {RECORDS_COPIED_MAX}:"):
            self._line("out.append(b''.join(parts))")
            self._line(f"out.append({name})")
            self._line("parts = []")
        with self._block("else:"):
            self._line(f"parts.append({name})")

    # Arrays.

    def _array(self, each: Field, name: str, value: str, depth: int, *, may_be_null: bool) -> None:
        self._measure(name, value, "()", may_be_null=may_be_null)
        if each.struct is None and each.kind.is_fixed:
            self._numbers(each, name)
            return
        self._length("i", f"{name}_n")
        self._flush()
        element = f"m_{depth + 1}" if each.struct is not None else f"{name}_element"
        with self._block(f"for {element} in {name}:"):
            if each.struct is not None:
                self._struct(each.struct, element, depth + 1)
            else:
                self._string(element, element, may_be_null=False)
            self._flush()

    def _numbers(self, each: Field, name: str) -> None:
        """An array of fixed-width values joins the chunk, beside other such arrays but not beside a string."""
        if self._chunk.holds_text:
            self._flush()
        self._length("i", f"{name}_n")
        chunk = self._chunk
        if not self._flexible:
            chunk.guards.append(f"{name}_n > {wire.SHORT_MAX}")
        alone = self._name("layouts_", wire.array_layouts(("", each.kind.value, ""), method="pack"))
        chunk.keys.append(f"len({name})")
        chunk.values.append(f"*{name}")
        chunk.pieces += [each.kind.value, ""]
        chunk.slow.append(f"parts.append({alone}[len({name})](*{name}))")
