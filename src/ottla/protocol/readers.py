"""Compiles the reader of one version of a message: flat Python source, made and executed at first use.

The whole message, nested structs and arrays included, becomes one function, so nothing is called per
field or per element. Fixed-width fields that stand next to each other, with the length byte that follows
them, are one `struct`; a short string and the fixed-width fields behind it are another.

The generated function takes the bytes (`b`) and the position (`p`) of the message, and the message must
end where the bytes end. It raises ProtocolError and nothing else. No length is trusted: a count is held
against the bytes that are left before anything is allocated, and a string that claims more than there is
leaves `p` behind the end, where the next read or the last check fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from struct import calcsize
from struct import error as struct_error
from typing import Any, TypeVar

from ottla.errors import ProtocolError
from ottla.protocol import wire
from ottla.protocol.schema import Field, Kind, Message, element_bytes_min, fields_of

ELEMENTS_MAX = 2**22
"""Elements that all arrays of one message may hold together. Every element takes at least one byte, so only
messages of more bytes than this are counted."""

M = TypeVar("M", bound=Message)
Reader = Callable[[wire.Buffer, int], M]


class TrailingBytes(ProtocolError):
    """More bytes came than the message has; the message itself is whole."""

    def __init__(self, complaint: str, message: Message) -> None:
        super().__init__(complaint)
        self.message = message


def reader(message: type[M], version: int) -> Reader[M]:
    """The function that reads this version of a message; made once, then kept.

    Raises ProtocolError if the message has no such version.
    """
    read: Reader[M] = compiled(message, version)
    return read


def counting_reader(message: type[M], version: int) -> Reader[M]:
    """As `reader`, for bytes so many that the elements have to be counted."""
    read: Reader[M] = compiled_counting(message, version)
    return read


@cache
def compiled(message: type[Message], version: int) -> Any:
    """What `reader` returns, without its type: one call less on the hot path."""
    return _execute(_Source(message, version, counted=False))


@cache
def compiled_counting(message: type[Message], version: int) -> Any:
    """What `counting_reader` returns, without its type."""
    return _execute(_Source(message, version, counted=True))


def _execute(source: _Source) -> Any:
    exec(compile(source.function(), f"<reader of {source.title}>", "exec"), source.names)
    return source.names["read"]


def reader_source(message: type[Message], version: int) -> str:
    """The generated source, for people who want to see it."""
    return _Source(message, version, counted=False).function()


class _Source:
    """The source of one reader while it is being written.

    What has to be read next but has no line yet is kept in `_text` (a string whose length is known) and
    `_run` (fixed-width values), until `_flush` turns both into one call.
    """

    def __init__(self, message: type[Message], version: int, *, counted: bool) -> None:
        if version not in message.VERSIONS:
            raise ProtocolError(f"{message.__name__} has versions {message.VERSIONS}, not {version}")
        self._message = message
        self._version = version
        self._flexible = message.VERSIONS.flexible(version)
        self._counted = counted
        self.title = f"{message.__name__} v{version}"
        self._lines: list[str] = []
        self._indent = 2
        self._text: tuple[str, str, bool] | None = None
        self._run: list[tuple[str, str]] = []
        self.names: dict[str, Any] = {
            "ProtocolError": ProtocolError,
            "TrailingBytes": TrailingBytes,
            "struct_error": struct_error,
            "read_long_varint": wire.read_long_varint,
            "read_long_text": wire.read_long_compact_text if self._flexible else wire.read_long_text,
            "read_unknown_tags": wire.read_unknown_tags,
            "read_tag_count": wire.read_tag_count,
            "read_tag": wire.read_tag,
        }

    def function(self) -> str:
        """The source of the whole function."""
        self._struct(self._message, "message", 0)
        if self._counted:
            self._lines.insert(0, f"        left = {ELEMENTS_MAX}")
        body = "\n".join(self._lines)
        few = f"type(b) is bytes and end <= {wire.COPIED_BYTES_MAX}"
        view = f"    view = b if {few} else memoryview(b)\n" if "view[" in body else ""
        return (
            "def read(b, p):\n"
            "    end = len(b)\n"
            f"{view}"
            "    try:\n"
            f"{body}\n"
            "    except (IndexError, UnicodeDecodeError, struct_error) as cause:\n"
            f"        raise ProtocolError(f'{self.title}: {{cause}}') from cause\n"
            "    if p != end:\n"
            f"        complaint = f'{self.title}: {{end - p}} bytes are left over'\n"
            "        raise TrailingBytes(complaint, message) if p < end else ProtocolError(complaint)\n"
            "    return message\n"
        )

    # Lines and pending reads.

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def _block(self, opening: str) -> Iterator[None]:
        self._line(opening)
        self._indent += 1
        yield
        self._indent -= 1

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

    def _flush(self) -> None:
        """Write the lines for what is pending."""
        text, run = self._text, self._run
        self._text, self._run = None, []
        if text is None:
            self._read_run(run)
            return
        name, length, may_be_null = text
        codes = "".join(code for _, code in run)
        size = calcsize(">" + codes)
        null = 0 if self._flexible else -1
        layouts = wire.text_layouts("", codes, null=null, method="unpack_from")
        targets = ", ".join([name, *(target for target, _ in run)])
        with self._block(f"if {null} < {length} < 128:"):
            self._line(f"{targets}{'' if run else ','} = {self._name('text_', layouts)}[{length}](b, p)")
            self._line(f"p += {length} + {size - null - 1}" if size != null + 1 else f"p += {length}")
            self._line(f"{name} = {name}.decode()")
        with self._block("else:"):
            if may_be_null:
                with self._block(f"if {length} == {null}:"):
                    self._line(f"{name} = None")
                with self._block("else:"):
                    self._line(f"{name}, p = read_long_text(b, p, {length})")
            else:
                self._line(f"{name}, p = read_long_text(b, p, {length})")
            self._read_run(run)

    def _read_run(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        if len(run) == 1 and run[0][1] == "B":
            self._line(f"{run[0][0]} = b[p]")
            self._line("p += 1")
            return
        codes = "".join(code for _, code in run)
        targets = ", ".join(target for target, _ in run)
        layout = self._name("run_", wire.layout(codes, method="unpack_from"))
        self._line(f"{targets}{',' if len(run) == 1 else ''} = {layout}(b, p)")
        self._line(f"p += {calcsize('>' + codes)}")

    # Structs and fields.

    def _struct(self, struct: type[Message], target: str, depth: int) -> None:
        """Read one struct into `target`; the depth keeps the names of its fields apart from its parent's."""
        arguments: list[str] = []
        tagged: list[Field] = []
        for field in fields_of(struct):
            name = f"{field.name}_{depth}"
            if not field.is_in(self._version):
                arguments.append(self._constant(field.default))
                continue
            arguments.append(name)
            if field.tag is None:
                self._field(field, name, depth)
            else:
                tagged.append(field)
        fields = fields_of(struct)
        # Trailing defaults are left to the constructor, which is quicker at it.
        while arguments and not fields[len(arguments) - 1].is_in(self._version):
            arguments.pop()
        make = f"{target} = {self._name('Struct_', struct)}("
        if not self._flexible:
            self._flush()
            self._line(f"{make}{', '.join(arguments)})")
            return
        count = f"tags_{depth}"
        self._run.append((count, "B"))
        self._flush()
        for field in tagged:
            self._line(f"{field.name}_{depth} = {self._constant(field.default)}")
        with self._block(f"if {count}:"):
            self._tags(tagged, count, depth)
            self._line(f"{make}{', '.join([*arguments, f'unknown_tags=unknown_{depth}'])})")
        with self._block("else:"):
            self._line(f"{make}{', '.join(arguments)})")

    def _constant(self, value: object) -> str:
        if value is None or isinstance(value, bool | int | str | bytes) or value == ():
            return repr(value)
        return self._name("default_", value)

    def _tags(self, tagged: list[Field], count: str, depth: int) -> None:
        unknown = f"unknown_{depth}"
        if not tagged:
            self._line(f"{unknown}, p = read_unknown_tags(b, p, {count})")
            return
        self._line(f"{count}, p = read_tag_count(b, p, {count})")
        self._line(f"{unknown} = []")
        with self._block(f"for {count} in range({count}):"):
            self._line(f"tag_{depth}, p, tag_end_{depth} = read_tag(b, p)")
            keyword = "if"
            for field in tagged:
                with self._block(f"{keyword} tag_{depth} == {field.tag}:"):
                    self._field(field, f"{field.name}_{depth}", depth)
                    self._flush()
                keyword = "elif"
            with self._block("else:"):
                self._line(f"{unknown}.append((tag_{depth}, bytes(b[p:tag_end_{depth}])))")
                self._line(f"p = tag_end_{depth}")
            self._refuse(f"if p != tag_end_{depth}:", "a tagged field is not as long as it says")
        self._line(f"{unknown} = tuple({unknown})")

    def _field(self, field: Field, name: str, depth: int) -> None:
        if field.is_array:
            self._array(field, name, depth)
        elif field.struct is not None:
            self._nested(field, field.struct, name, depth)
        elif field.kind.is_fixed:
            self._run.append((name, field.kind.value))
        elif field.kind is Kind.STRING:
            self._string(name, may_be_null=field.may_be_null(self._version))
        else:
            self._blob(field, name)

    def _nested(self, field: Field, struct: type[Message], name: str, depth: int) -> None:
        if not field.may_be_null(self._version):
            self._struct(struct, name, depth + 1)
            return
        self._run.append((f"{name}_mark", "b"))
        self._flush()
        with self._block(f"if {name}_mark < 0:"):
            self._line(f"{name} = None")
        with self._block("else:"):
            self._struct(struct, name, depth + 1)

    def _string(self, name: str, *, may_be_null: bool) -> None:
        self._run.append((f"{name}_n", "B" if self._flexible else "h"))
        self._flush()
        self._text = (name, f"{name}_n", may_be_null)

    def _blob(self, field: Field, name: str) -> None:
        """Bytes are copied; records are a view, or a copy where that is cheaper."""
        length = f"{name}_n"
        self._run.append((length, "B" if self._flexible else "i"))
        self._flush()
        if self._flexible:
            self._long_length(length, field.kind)
        with self._block(f"if {length}:" if self._flexible else f"if {length} >= 0:"):
            self._line(f"q = p + {length}{' - 1' if self._flexible else ''}")
            self._line(f"{name} = view[p:q]" if field.kind is Kind.RECORDS else f"{name} = bytes(b[p:q])")
            self._line("p = q")
        self._null(field, name, length)

    def _long_length(self, length: str, kind: Kind | None = None) -> None:
        """The bytes of a varint after its first. Those of records are two or three, so they stand inline."""
        with self._block(f"if {length} > 127:"):
            if kind is not Kind.RECORDS:
                self._line(f"{length}, p = read_long_varint(b, p, {length})")
                return
            self._line("c = b[p]")
            with self._block("if c < 128:"):
                self._line(f"{length} += (c << 7) - 128")
                self._line("p += 1")
            with self._block("elif b[p + 1] < 128:"):
                self._line(f"{length} += (c << 7) + (b[p + 1] << 14) - 16512")
                self._line("p += 2")
            with self._block("else:"):
                self._line(f"{length}, p = read_long_varint(b, p, {length})")

    def _null(self, field: Field, name: str, length: str) -> None:
        """The branch for a length or count that says null; any other negative one is refused."""
        if field.may_be_null(self._version):
            with self._block("else:" if self._flexible else f"elif {length} == -1:"):
                self._line(f"{name} = None")
            if self._flexible:
                return
        self._refuse("else:", f"{field.name} has an impossible length, or is null where it may not be")

    # Arrays.

    def _array(self, field: Field, name: str, depth: int) -> None:
        count = f"{name}_n"
        self._run.append((count, "B" if self._flexible else "i"))
        self._flush()
        if self._flexible:
            self._long_length(count)
        with self._block(f"if {count} > {int(self._flexible)}:"):
            if self._flexible:
                self._line(f"{count} -= 1")
            if self._counted:
                self._line(f"left -= {count}")
                self._refuse("if left < 0:", f"more than {ELEMENTS_MAX} elements")
            size = element_bytes_min(field, self._version, flexible=self._flexible)
            needed = count if size == 1 else f"{count} * {size}"
            self._refuse(f"if {needed} > end - p:", f"{field.name} has more elements than the bytes can hold")
            if field.struct is None and field.kind.is_fixed:
                layouts = wire.array_layouts(("", field.kind.value, ""), method="unpack_from")
                self._line(f"{name} = {self._name('array_', layouts)}[{count}](b, p)")
                self._line(f"p += {count} * {field.kind.size}")
            else:
                self._elements(field, name, count, depth)
        with self._block(f"elif {count} == {int(self._flexible)}:"):
            self._line(f"{name} = ()")
        self._null(field, name, count)

    def _elements(self, field: Field, name: str, count: str, depth: int) -> None:
        """A loop whose first round makes a tuple at once: most arrays have one element."""
        element = f"{name}_element"
        self._line(f"{name} = None")
        with self._block("while True:"):
            if field.struct is not None:
                self._struct(field.struct, element, depth + 1)
            else:
                self._string(element, may_be_null=False)
                self._flush()
            self._line(f"{count} -= 1")
            with self._block(f"if {name} is None:"):
                with self._block(f"if not {count}:"):
                    self._line(f"{name} = ({element},)")
                    self._line("break")
                self._line(f"{name} = [{element}]")
            with self._block("else:"):
                self._line(f"{name}.append({element})")
                with self._block(f"if not {count}:"):
                    self._line(f"{name} = tuple({name})")
                    self._line("break")
