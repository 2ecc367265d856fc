"""From `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*` to the client's own settings. Pure.

Takes the names of Kafka's Java clients and of librdkafka. Reads no file and opens no connection; what the
settings do is the client's business. No message holds a password, a key or a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.errors import InvalidSetting
from ottla.client.security_settings import MECHANISMS, PROTOCOLS, check_token
from ottla.spark.errors import InvalidOption
from ottla.spark.jaas import LoginModule, login_module

_NAMES = frozenset(
    {
        "security.protocol",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "enable.ssl.certificate.verification",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.token",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
    }
)
"""A trust store's password is among them for those who have just converted theirs: PEM needs none."""
_HOST_NAME_CHECK = "ssl.endpoint.identification.algorithm"
_JAVA_CLASSES = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class")
_JAVA_STORES = ("JKS", "PKCS12", "BCFKS")
_JAVA_ENDINGS = (".jks", ".p12", ".pfx", ".pkcs12", ".keystore", ".truststore", ".bcfks")
_MODULES = {"PLAIN": "PlainLoginModule", "SCRAM-SHA-256": "ScramLoginModule", "SCRAM-SHA-512": "ScramLoginModule"}


def is_security_name(name: str) -> bool:
    """Whether a Kafka setting (named without `kafka.`) has an effect here."""
    return name in _NAMES


def security_settings(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Keywords of `ClientSettings` from Kafka's settings, which are named without the prefix `kafka.`.

    What belongs to TLS or to logins is refused where the protocol has no use for it; unless it is set it is PLAINTEXT.
    """
    given = {name.lower(): value for name, value in kafka.items()}
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise InvalidOption("kafka.security.protocol", f"{protocol!r} is not one of {', '.join(PROTOCOLS)}")
    _refuse_unprotected(given, protocol)
    settings: dict[str, Any] = {}
    if protocol != "PLAINTEXT":
        settings["security_protocol"] = protocol
    if protocol in ("SSL", "SASL_SSL"):
        settings |= _tls(given)
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        settings |= _sasl(given)
    return settings


def _refuse_unprotected(given: Mapping[str, str], protocol: str) -> None:
    """Whoever gives a password or a certificate means to use it; Kafka would pass over it and connect without."""
    for name, value in given.items():
        if not value or name == _HOST_NAME_CHECK:
            # The last is often written out where it changes nothing, and takes no protection away.
            continue
        if name.startswith("sasl.") and not protocol.startswith("SASL_"):
            raise InvalidOption(
                f"kafka.{name}",
                f"has no effect with {protocol}, which does not log in",
                fix="Set kafka.security.protocol to SASL_SSL (or SASL_PLAINTEXT, which sends it in the clear), or "
                "leave it out",
            )
        if name.startswith("ssl.") and not protocol.endswith("SSL"):
            raise InvalidOption(
                f"kafka.{name}",
                f"has no effect with {protocol}, which does not use TLS",
                fix="Set kafka.security.protocol to SSL or SASL_SSL, or leave it out",
            )


# --- TLS -----------------------------------------------------------------------------------------------


def _tls(given: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    _put(settings, "ssl_ca_pem", given, ("ssl.truststore.certificates", "ssl.ca.pem"))
    _put(settings, "ssl_ca_location", given, ("ssl.ca.location", "ssl.truststore.location"))
    _put(settings, "ssl_certificate_pem", given, ("ssl.keystore.certificate.chain", "ssl.certificate.pem"))
    _put(settings, "ssl_certificate_location", given, ("ssl.certificate.location", "ssl.keystore.location"))
    _put(settings, "ssl_key_pem", given, ("ssl.keystore.key", "ssl.key.pem"))
    _put(settings, "ssl_key_location", given, ("ssl.key.location",))
    if settings.get("ssl_ca_location") == "probe":
        # librdkafka's word for whatever the system trusts.
        del settings["ssl_ca_location"]
    for pem, location, option in (
        ("ssl_ca_pem", "ssl_ca_location", "kafka.ssl.truststore.location"),
        ("ssl_certificate_pem", "ssl_certificate_location", "kafka.ssl.keystore.location"),
        ("ssl_key_pem", "ssl_key_location", "kafka.ssl.key.location"),
    ):
        if pem in settings and location in settings:
            raise InvalidOption(option, "the same is also given as text", fix="Give either the file or the text")
    _check_store(given, "truststore", _TRUST_STORE_FIX)
    _check_store(given, "keystore", _KEY_STORE_FIX)
    has_certificate = "ssl_certificate_pem" in settings or "ssl_certificate_location" in settings
    if has_certificate:
        # What `openssl pkcs12` makes of a Java store is protected by one password for all.
        _put(settings, "ssl_key_password", given, ("ssl.key.password", "ssl.keystore.password"))
    elif "ssl_key_pem" in settings or "ssl_key_location" in settings:
        raise InvalidOption(
            "kafka.ssl.keystore.key", "has no certificate beside it", fix="Set kafka.ssl.keystore.certificate.chain"
        )
    if not _checks_host_name(given):
        settings["ssl_check_hostname"] = False
    return settings


def _put(settings: dict[str, Any], keyword: str, given: Mapping[str, str], names: tuple[str, ...]) -> None:
    """The first of these that is there; Kafka takes an empty text for none."""
    for name in names:
        if given.get(name):
            settings[keyword] = given[name]
            return


_TRUST_STORE_FIX = (
    "Convert it: keytool -list -rfc -keystore {path} > truststore.pem; "
    "then set kafka.ssl.truststore.location to truststore.pem and kafka.ssl.truststore.type to PEM"
)
_KEY_STORE_FIX = (
    "Convert it: keytool -importkeystore -srckeystore {path} -destkeystore keystore.p12 -deststoretype PKCS12; "
    "openssl pkcs12 -in keystore.p12 -out keystore.pem; then set kafka.ssl.keystore.location to keystore.pem, "
    "kafka.ssl.keystore.type to PEM and kafka.ssl.key.password to the password that openssl asked for last"
)


def _check_store(given: Mapping[str, str], store: str, fix: str) -> None:
    """Java's own formats are refused; a file whose type is not said is one of them if its name says so."""
    path = given.get(f"ssl.{store}.location", "")
    kind = given.get(f"ssl.{store}.type", "").strip().upper()
    if kind in ("", "JKS") and not path:
        return
    if kind in _JAVA_STORES or (not kind and path.lower().endswith(_JAVA_ENDINGS)):
        what = f"{path} is a Java store ({kind or 'by its name'})" if path else f"{kind} is a Java store"
        raise InvalidOption(
            f"kafka.ssl.{store}.{'location' if path else 'type'}",
            f"{what}, which only Java can read; PEM is supported",
            fix=fix.format(path=path or "STORE"),
        )
    if kind not in ("", "PEM"):
        raise InvalidOption(f"kafka.ssl.{store}.type", f"{kind!r} is not supported", fix="Use PEM")


def _checks_host_name(given: Mapping[str, str]) -> bool:
    verification = given.get("enable.ssl.certificate.verification", "true").strip().lower()
    if verification != "true":
        raise InvalidOption(
            "kafka.enable.ssl.certificate.verification",
            "a connection to nobody in particular is not offered",
            fix="Give the certificate of the broker's authority as kafka.ssl.ca.location",
        )
    algorithm = given.get(_HOST_NAME_CHECK, "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise InvalidOption(
            f"kafka.{_HOST_NAME_CHECK}", f"{algorithm!r} is not https, and not empty to switch the check off"
        )
    return algorithm == "https"


# --- SASL ----------------------------------------------------------------------------------------------


def _sasl(given: Mapping[str, str]) -> dict[str, Any]:
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "").strip().upper()
    if mechanism not in MECHANISMS:
        problem = f"{mechanism!r} is not supported" if mechanism else "is not set, and Kafka's default is Kerberos"
        raise InvalidOption("kafka.sasl.mechanism", problem, fix=f"Use one of {', '.join(MECHANISMS)}")
    for name in _JAVA_CLASSES:
        if given.get(name):
            raise InvalidOption(
                f"kafka.{name}", "names a Java class, which cannot run here", fix="Leave it out; " + _fix_of(mechanism)
            )
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_token": _token(given)}
    username, password = given.get("sasl.username"), given.get("sasl.password")
    if given.get("sasl.jaas.config"):
        if username or password:
            name = "username" if username else "password"
            raise InvalidOption(
                f"kafka.sasl.{name}", "kafka.sasl.jaas.config is given too", fix="Give either of the two"
            )
        username, password = _name_and_password(login_module(given["sasl.jaas.config"]), mechanism)
    if not username or not password:
        raise InvalidOption(
            "kafka.sasl.jaas.config", f"{mechanism} needs a user name and a password", fix=_fix_of(mechanism)
        )
    return {"sasl_mechanism": mechanism, "sasl_username": username, "sasl_password": password}


def _fix_of(mechanism: str) -> str:
    if mechanism == "OAUTHBEARER":
        return "Set kafka.sasl.token to a token"
    return "Set kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password"


def _token(given: Mapping[str, str]) -> str:
    token = given.get("sasl.token", "").strip()
    if not token:
        raise InvalidOption(
            "kafka.sasl.token",
            "OAUTHBEARER needs a token; fetching one, as Kafka's Java login modules do, is not offered here",
            fix=_fix_of("OAUTHBEARER"),
        )
    try:
        check_token(token)
    except InvalidSetting as e:
        raise InvalidOption("kafka.sasl.token", "must be visible ASCII characters without spaces") from e
    return token


def _name_and_password(module: LoginModule, mechanism: str) -> tuple[str | None, str | None]:
    option, expected = "kafka.sasl.jaas.config", _MODULES[mechanism]
    if module.name != expected:
        raise InvalidOption(
            option,
            f"{module.name} does not belong to {mechanism}",
            fix=f"Use {expected}, or set kafka.sasl.mechanism to what the module is for",
        )
    if module.options.get("tokenauth", "").lower() == "true":
        raise InvalidOption(option, "delegation tokens (tokenauth) are not supported", fix="Use a user's own password")
    return module.options.get("username"), module.options.get("password")
