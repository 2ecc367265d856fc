"""Kafka's security settings as they reach the client: both families of names, and what is refused with its fix."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.settings import ClientSettings
from ottla.spark.errors import InvalidOption
from ottla.spark.jaas import login_module
from ottla.spark.security_options import is_security_name, security_settings

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "plaintext"},
        {"ssl.endpoint.identification.algorithm": "https", "sasl.username": ""},
    ],
)
def test_without_a_protocol_nothing_is_set(given: dict[str, str]) -> None:
    assert security_settings(given) == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"}, {"ssl_ca_location": "/ca.pem"}),
        ({"ssl.truststore.location": "/ca.crt"}, {"ssl_ca_location": "/ca.crt"}),
        ({"ssl.truststore.certificates": "-----BEGIN", "ssl.truststore.type": "PEM"}, {"ssl_ca_pem": "-----BEGIN"}),
        ({"ssl.truststore.location": "/ca.pem", "ssl.truststore.password": "x"}, {"ssl_ca_location": "/ca.pem"}),
        ({"ssl.ca.location": "/ca.pem"}, {"ssl_ca_location": "/ca.pem"}),
        ({"ssl.ca.location": "probe"}, {}),
        ({"ssl.ca.pem": "-----BEGIN"}, {"ssl_ca_pem": "-----BEGIN"}),
        (
            {"ssl.keystore.location": "/me.pem", "ssl.keystore.type": "pem", "ssl.key.password": "k"},
            {"ssl_certificate_location": "/me.pem", "ssl_key_password": "k"},
        ),
        (
            {"ssl.keystore.location": "/me.pem", "ssl.keystore.password": "s"},
            {"ssl_certificate_location": "/me.pem", "ssl_key_password": "s"},
        ),
        (
            {"ssl.keystore.certificate.chain": "C", "ssl.keystore.key": "K", "ssl.keystore.type": "PEM"},
            {"ssl_certificate_pem": "C", "ssl_key_pem": "K"},
        ),
        (
            {"ssl.certificate.location": "/c.pem", "ssl.key.location": "/k.pem"},
            {"ssl_certificate_location": "/c.pem", "ssl_key_location": "/k.pem"},
        ),
        ({"ssl.certificate.pem": "C", "ssl.key.pem": "K"}, {"ssl_certificate_pem": "C", "ssl_key_pem": "K"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl_check_hostname": False}),
        ({"ssl.endpoint.identification.algorithm": "none"}, {"ssl_check_hostname": False}),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, {}),
    ],
)
def test_tls_settings_reach_the_client(given: dict[str, str], expected: dict[str, Any]) -> None:
    found = security_settings({"security.protocol": "ssl", **given})

    assert found == {"security_protocol": "SSL", **expected}
    assert ClientSettings(**found).uses_tls


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("way", ["jaas", "names"])
def test_a_login_reaches_the_client(mechanism: str, name: str, way: str) -> None:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    line = f'{module} required username="alice" password="s=e;c\\"r,e\\\\t" ;'
    who = {"sasl.jaas.config": line} if way == "jaas" else {"sasl.username": "alice", "sasl.password": 's=e;c"r,e\\t'}

    found = security_settings({"security.protocol": "SASL_PLAINTEXT", name: mechanism, **who})

    expected = {"sasl_mechanism": mechanism, "sasl_username": "alice", "sasl_password": 's=e;c"r,e\\t'}
    assert found == {"security_protocol": "SASL_PLAINTEXT", **expected}
    assert ClientSettings(**found).uses_sasl


def test_a_token_reaches_the_client() -> None:
    found = security_settings({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.token": "abc"})

    assert ClientSettings(**found).sasl_token == "abc"


@pytest.mark.parametrize(
    ("given", "option", "told"),
    [
        ({"security.protocol": "TLS"}, "security.protocol", "SASL_SSL"),
        ({"sasl.jaas.config": "x"}, "sasl.jaas.config", "Set kafka.security.protocol to SASL_SSL"),
        ({"ssl.truststore.location": "/ca.pem"}, "ssl.truststore.location", "Set kafka.security.protocol to SSL"),
        ({"sasl.token": "abc"}, "sasl.token", "no effect with PLAINTEXT"),
        ({"sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name", "no effect with PLAINTEXT"),
        ({"ssl.truststore.certificates": "C"}, "ssl.truststore.certificates", "no effect with PLAINTEXT"),
        ({"ssl.keystore.key": "K"}, "ssl.keystore.key", "no effect with PLAINTEXT"),
        ({"ssl.ca.pem": "C"}, "ssl.ca.pem", "no effect with PLAINTEXT"),
        ({"security.protocol": "PLAINTEXT", "sasl.password": "x"}, "sasl.password", "no effect with PLAINTEXT"),
        ({"security.protocol": "SSL", "sasl.username": "u"}, "sasl.username", "no effect with SSL"),
        ({**LOGIN, "security.protocol": "SASL_PLAINTEXT", "ssl.ca.pem": "C"}, "ssl.ca.pem", "which does not use TLS"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism", "SCRAM-SHA-512"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "'GSSAPI' is not supported"),
        (LOGIN, "sasl.jaas.config", "kafka.sasl.username and kafka.sasl.password"),
        ({**LOGIN, "sasl.username": "u"}, "sasl.jaas.config", "a user name and a password"),
        ({**LOGIN, "sasl.jaas.config": f'{PLAIN_MODULE} required username="u";'}, "sasl.jaas.config", "a password"),
        (
            {**LOGIN, "sasl.jaas.config": f'{PLAIN_MODULE} required username="u" password="p";', "sasl.password": "p"},
            "sasl.password",
            "either",
        ),
        (
            {**LOGIN, "sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="p";'},
            "sasl.jaas.config",
            "ScramLoginModule does not belong to PLAIN",
        ),
        (
            {
                **LOGIN,
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="p" tokenauth="true";',
            },
            "sasl.jaas.config",
            "delegation tokens",
        ),
        (
            {**LOGIN, "sasl.login.callback.handler.class": "com.example.Handler"},
            "sasl.login.callback.handler.class",
            "Java class",
        ),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "sasl.token", "Set kafka.sasl.token"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_set(given: dict[str, str], option: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=told) as refused:
        security_settings(given)
    assert refused.value.option == f"kafka.{option}"


@pytest.mark.parametrize(
    ("given", "option", "told"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "ssl.truststore.location", "keytool -list -rfc -keystore /t.jks"),
        (
            {"ssl.truststore.location": "/t.pem", "ssl.truststore.type": "JKS"},
            "ssl.truststore.location",
            "keytool -list -rfc",
        ),
        ({"ssl.truststore.location": "/t.P12"}, "ssl.truststore.location", "keytool"),
        ({"ssl.keystore.location": "/k.jks"}, "ssl.keystore.location", "openssl pkcs12 -in keystore.p12"),
        (
            {"ssl.keystore.location": "/k", "ssl.keystore.type": "pkcs12"},
            "ssl.keystore.location",
            "-srckeystore /k -destkeystore",
        ),
        ({"ssl.keystore.location": "/k", "ssl.keystore.type": "DKS"}, "ssl.keystore.type", "Use PEM"),
        ({"ssl.ca.location": "/ca.pem", "ssl.ca.pem": "x"}, "ssl.truststore.location", "either the file or the text"),
        ({"ssl.keystore.key": "K"}, "ssl.keystore.key", "kafka.ssl.keystore.certificate.chain"),
        (
            {"ssl.endpoint.identification.algorithm": "ldaps"},
            "ssl.endpoint.identification.algorithm",
            "empty to switch the check off",
        ),
        (
            {"enable.ssl.certificate.verification": "false"},
            "enable.ssl.certificate.verification",
            "kafka.ssl.ca.location",
        ),
    ],
)
def test_tls_that_cannot_be_is_refused_with_what_to_do(given: dict[str, str], option: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=told) as refused:
        security_settings({"security.protocol": "SSL", **given})
    assert refused.value.option == f"kafka.{option}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("M required a=b;", {"a": "b"}),
        ("x.y.M REQUIRED\n  a = 'b c'\t// why\n /* no; */ d=\"\";", {"a": "b c", "d": ""}),
        ('M required a="\\t\\x\\101\\"";', {"a": '\tx\101"'}),
        ("M optional;", {}),
    ],
)
def test_a_jaas_line_is_read_as_java_reads_it(line: str, expected: dict[str, str]) -> None:
    module = login_module(line)

    assert (module.name, module.options) == ("M", expected)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "does not begin"),
        ("M;", "does not begin"),
        ('M required password="hush"', "semicolon"),
        ('M required password="hush;', "quotation mark"),
        ('M required password "hush";', "name=value"),
        ("M required password=;", "name=value"),
        ("M required a=hush; N required b=hush;", "more than one"),
    ],
)
def test_a_jaas_line_that_cannot_be_read_is_refused_without_its_secrets(line: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=told) as refused:
        login_module(line)
    assert "hush" not in str(refused.value)


def test_a_login_module_does_not_show_its_secrets() -> None:
    assert "hush" not in repr(login_module("M required password=hush;"))


def test_names_that_have_an_effect_are_known() -> None:
    assert is_security_name("ssl.truststore.location")
    assert not is_security_name("ssl.cipher.suites")
    assert not is_security_name("max.poll.records")
