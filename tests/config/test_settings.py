"""Settings: reading a value, and which of several sources wins."""

from __future__ import annotations

import tomllib

import pytest

from ottla.config import Kind, Setting, Settings, Source, Synonym, Table, Value
from ottla.errors import InvalidConfig


def _even(value: Value) -> str | None:
    return "it must be even" if isinstance(value, int) and value % 2 else None


TABLE = Table(
    "setting",
    (
        Setting(name="port", kind=Kind.INT, default=9092, at_least=0, at_most=65_535, help=""),
        Setting(
            name="log.retention.ms",
            kind=Kind.LONG,
            default=1_000,
            at_least=-1,
            help="",
            synonyms=(Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", 3_600_000)),
        ),
        Setting(name="log.policy", kind=Kind.LIST, default=("delete",), choices=("compact", "delete"), help=""),
        Setting(name="log.kind", kind=Kind.STRING, default="a", choices=("a", "b"), help=""),
        Setting(name="log.ratio", kind=Kind.DOUBLE, default=0.5, at_least=0, at_most=1, help=""),
        Setting(name="enable", kind=Kind.BOOLEAN, default=True, help=""),
        Setting(name="small", kind=Kind.SHORT, default=2, check=_even, help=""),
        Setting(name="secret", kind=Kind.PASSWORD, default=None, sensitive=True, help=""),
    ),
)


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("port", " +80 ", 80),
        ("port", 80, 80),
        ("enable", "TRUE", True),
        ("enable", False, False),
        ("log.ratio", "1", 1.0),
        ("log.ratio", 0, 0.0),
        ("log.policy", " compact , delete", ("compact", "delete")),
        ("log.policy", ["compact"], ("compact",)),
        ("log.policy", "", ()),
        ("log.kind", " b ", "b"),
        ("secret", " blank ", " blank "),
    ],
)
def test_a_text_or_a_toml_value_is_read_by_its_kind(name: str, raw: object, value: Value) -> None:
    assert TABLE[name].parse(raw) == value


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("port", "65536"),
        ("port", "-1"),
        ("port", "1_000"),
        ("port", "٣"),
        ("port", "80.0"),
        ("port", True),
        ("port", ""),
        ("small", 2**15),
        ("small", "3"),
        ("log.retention.ms", str(2**63)),
        ("log.retention.ms", "9" * 40),
        ("log.ratio", "nan"),
        ("log.ratio", "1.01"),
        ("log.ratio", True),
        ("log.ratio", "half"),
        ("enable", "yes"),
        ("enable", 1),
        ("log.policy", "compact,compact"),
        ("log.policy", "compact,"),
        ("log.policy", "shred"),
        ("log.policy", [1]),
        ("log.kind", "c"),
        ("log.kind", 1),
    ],
)
def test_a_value_that_is_none_is_refused_with_the_name_of_the_setting(name: str, raw: object) -> None:
    with pytest.raises(InvalidConfig, match=name):
        TABLE[name].parse(raw)


@pytest.mark.parametrize("setting", [*TABLE], ids=lambda setting: setting.name)
def test_what_is_formatted_is_read_back(setting: Setting) -> None:
    text = setting.format(setting.default)

    assert (None if text is None else setting.parse(text)) == setting.default


def test_a_refusal_does_not_tell_a_secret() -> None:
    secret = Setting(name="key", kind=Kind.PASSWORD, default=None, sensitive=True, help="", check=lambda _: "too short")

    with pytest.raises(InvalidConfig) as refused:
        secret.parse("hunter2")

    assert "hunter2" not in str(refused.value)


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    file = {"port": 1, "enable": False, "log.kind": "b"}
    environment = {"OTTLA_PORT": "2", "OTTLA_ENABLE": "true"}

    settings = Settings.resolve(TABLE, file=file, environment=environment, flags={"port": "3"})

    found = {name: (settings[name].value, settings[name].source) for name in ("port", "enable", "log.kind", "small")}
    assert found == {
        "port": (3, Source.FLAG),
        "enable": (True, Source.ENVIRONMENT),
        "log.kind": ("b", Source.FILE),
        "small": (2, Source.DEFAULT),
    }


def test_a_value_knows_the_variable_that_set_it() -> None:
    settings = Settings.resolve(TABLE, environment={"OTTLA_LOG_RETENTION_HOURS": "1"})

    assert settings["log.retention.ms"].given_as == "OTTLA_LOG_RETENTION_HOURS"


@pytest.mark.parametrize(
    "document", ['"log.kind" = "b"\nport = 5', 'port = 5\n[log]\nkind = "b"', 'log.kind = "b"\nport = 5']
)
def test_a_file_may_use_dotted_names_or_tables(document: str) -> None:
    settings = Settings.resolve(TABLE, file=tomllib.loads(document))

    assert (settings.text("log.kind"), settings.integer("port")) == ("b", 5)


def test_a_name_that_stands_twice_in_a_file_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="set twice"):
        Settings.resolve(TABLE, file={"log.kind": "a", "log": {"kind": "b"}})


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.ms": "9"}, 9),
    ],
)
def test_a_synonym_converts_its_unit_and_the_finest_one_wins(given: dict[str, str], value: int) -> None:
    assert Settings.resolve(TABLE, flags=given).integer("log.retention.ms") == value


def test_a_synonym_of_a_stronger_source_beats_the_name_of_a_weaker_one() -> None:
    settings = Settings.resolve(TABLE, file={"log.retention.ms": 5}, flags={"log.retention.hours": "1"})

    assert settings.integer("log.retention.ms") == 3_600_000


def test_a_synonym_that_overflows_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        Settings.resolve(TABLE, flags={"log.retention.hours": str(2**62)})


@pytest.mark.parametrize(
    ("sources", "place"),
    [
        ({"flags": {"log.retenton.ms": "1"}}, "in the flag"),
        ({"file": {"log": {"retenton": {"ms": 1}}}}, "in the file"),
        ({"environment": {"OTTLA_LOG_RETENTON_MS": "1"}}, "OTTLA_LOG_RETENTON_MS"),
    ],
)
def test_an_unknown_name_is_refused_with_its_place_and_the_nearest_name(
    sources: dict[str, dict[str, str]], place: str
) -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean log\.retention\.ms\?") as refused:
        Settings.resolve(TABLE, **sources)

    assert place in str(refused.value)


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(InvalidConfig) as refused:
        Settings.resolve(TABLE, flags={"zzzzzz": "1"})

    assert "did you mean" not in str(refused.value)


def test_a_wrong_value_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidConfig, match="in the environment: port=high"):
        Settings.resolve(TABLE, environment={"OTTLA_PORT": "high"})


def test_variables_of_others_are_left_alone() -> None:
    environment = {"HOME": "/", "OTTLA_CONFIG": "x.toml", "OTTLA_PORT": "7"}

    settings = Settings.resolve(TABLE, environment=environment, other_variables={"OTTLA_CONFIG"})

    assert settings.integer("port") == 7


def test_a_secret_is_not_shown() -> None:
    settings = Settings.resolve(TABLE, flags={"secret": "hunter2"})

    assert (settings["secret"].text, settings.text("secret")) == ("[hidden]", "hunter2")
