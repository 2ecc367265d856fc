"""Settings of TLS and logins: what is refused, what says so, and what never shows."""

from __future__ import annotations

import pickle
import ssl
from typing import Any

import pytest

from ottla.client.errors import InvalidSetting
from ottla.client.settings import ClientSettings

LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"ssl_ca_location": "ca.pem"}, "ssl_ca_location"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname"),
        ({"security_protocol": "SASL_PLAINTEXT", "ssl_ca_pem": "x", **LOGIN}, "ssl_ca_pem"),
        ({"security_protocol": "SSL", "ssl_ca_location": "a", "ssl_ca_pem": "b"}, "ssl_ca_location"),
        ({"security_protocol": "SSL", "ssl_key_location": "a"}, "ssl_key_location"),
        ({"security_protocol": "SSL", "ssl_key_password": "a"}, "ssl_key_password"),
        (LOGIN, "sasl_mechanism"),
        ({"security_protocol": "SSL", **LOGIN}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"}, "sasl_password"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_password": ""}, "sasl_password"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_token": "t"}, "sasl_token"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_username": "a\0b"}, "sasl_username"),
        ({"security_protocol": "SASL_SSL", **LOGIN, "sasl_password": "\ud800"}, "sasl_password"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "sasl_token"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_token": "a\x01b"}, "sasl_token"),
    ],
)
def test_a_security_setting_that_cannot_be_or_has_no_effect_is_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^{named}"):
        ClientSettings(**given)


def test_a_context_takes_the_place_of_the_other_settings() -> None:
    context = ssl.create_default_context()

    assert ClientSettings(security_protocol="SSL", ssl_context=context).ssl_context is context
    with pytest.raises(InvalidSetting, match="ssl_context"):
        ClientSettings(security_protocol="SSL", ssl_context=context, ssl_ca_location="ca.pem")


def test_no_secret_stands_in_the_representation() -> None:
    settings = ClientSettings(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="hush-1",
        ssl_certificate_pem="hush-2",
        ssl_key_pem="hush-3",
        ssl_key_password="hush-4",
    )

    assert "alice" in repr(settings)
    assert "hush" not in repr(settings)


def test_no_token_stands_in_the_representation() -> None:
    settings = ClientSettings(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_token="hush")

    assert "hush" not in repr(settings)


def test_no_secret_stands_in_a_refusal() -> None:
    with pytest.raises(InvalidSetting) as refused:
        ClientSettings(sasl_password="hush")

    assert "hush" not in str(refused.value)


def test_settings_travel_to_another_process() -> None:
    settings = ClientSettings(security_protocol="SASL_SSL", ssl_ca_pem="x", **LOGIN)  # type: ignore[arg-type]

    assert pickle.loads(pickle.dumps(settings)) == settings
