"""TLS for both faces: the context that a client's settings ask for, and failures told as what to set.

Loaded only by clients that use TLS. Opens no connection; reads the files of certificates that the settings name.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ottla.client.errors import InvalidSetting, Unreachable
from ottla.client.security_errors import UntrustedConnection
from ottla.client.security_settings import SecuritySettings
from ottla.client.settings import Address
from ottla.errors import OttlaError


def tls_context(settings: SecuritySettings) -> ssl.SSLContext:
    """What connections are made safe with."""
    if settings.ssl_context is not None:
        return settings.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.ssl_check_hostname
    _trust(context, settings)
    _identify(context, settings)
    return context


def _trust(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    location, text = settings.ssl_ca_location, settings.ssl_ca_pem
    if location is None and text is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    name = "ssl_ca_pem" if location is None else f"ssl_ca_location={location!r}"
    try:
        if location is None:
            context.load_verify_locations(cadata=text)
        elif Path(location).is_dir():
            context.load_verify_locations(capath=location)
        else:
            context.load_verify_locations(cafile=location)
    except ssl.SSLError as e:
        raise InvalidSetting(f"{name}: holds no certificate in PEM{_STORE_HINT}") from e
    except OSError as e:
        raise InvalidSetting(f"{name}: {e.strerror or e}") from e


_STORE_HINT = (
    "; a Java store becomes PEM by `keytool -list -rfc -keystore STORE` (certificates) "
    "or `openssl pkcs12 -in STORE.p12` (with the key)"
)


def _identify(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    """The certificate by which the broker may know this client."""
    if settings.ssl_certificate_location is None and settings.ssl_certificate_pem is None:
        return

    def password() -> str:
        # Without this the library would ask on the terminal, and a server would wait there for ever.
        if settings.ssl_key_password is None:
            raise InvalidSetting("the client's key is encrypted: set ssl_key_password")
        return settings.ssl_key_password

    with ExitStack() as files:
        certificate, key = settings.ssl_certificate_location, settings.ssl_key_location
        if settings.ssl_certificate_pem is not None:
            certificate = files.enter_context(_in_memory(settings.ssl_certificate_pem, "ssl_certificate_pem"))
        if settings.ssl_key_pem is not None:
            key = files.enter_context(_in_memory(settings.ssl_key_pem, "ssl_key_pem"))
        assert certificate is not None, "one of the two was given"
        try:
            context.load_cert_chain(certificate, key, password)
        except ssl.SSLError as e:
            why = e.reason or "unreadable"
            raise InvalidSetting(
                f"the client's certificate or key is not usable ({why}): ssl_certificate_location and ssl_key_location "
                f"must be PEM and belong together, and ssl_key_password must open the key{_STORE_HINT}"
            ) from e
        except OSError as e:
            where = " or ".join(path for path in dict.fromkeys((certificate, key)) if path is not None)
            raise InvalidSetting(f"the client's certificate or key ({where}): {e.strerror or e}") from e


@contextmanager
def _in_memory(text: str, name: str) -> Iterator[str]:
    """A path under which the library finds this text; a key that was given as text touches no disk."""
    if not hasattr(os, "memfd_create"):
        raise InvalidSetting(f"{name}: can be used on Linux only; give the file's name instead")
    descriptor = os.memfd_create(name)
    try:
        content = memoryview(text.encode())
        while content:
            content = content[os.write(descriptor, content) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


# --- failures ------------------------------------------------------------------------------------------


def connecting_failed(address: Address, error: OSError) -> OttlaError:
    """Why no safe connection came about, and what to set."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _not_verified(address, error)
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, BrokenPipeError)):
        return Unreachable(
            f"{address}: the broker hung up instead of talking TLS; if its listener is a plain one, "
            "set security_protocol to PLAINTEXT or SASL_PLAINTEXT"
        )
    if isinstance(error, ssl.SSLError):
        return _refused(address, error)
    return Unreachable(f"no connection to {address}: {error}")


def refusal(address: Address, error: OSError) -> OttlaError | None:
    """What a broker says after the connection was made; it may look at our certificate only then."""
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return _refused(address, error)
    return None


def _not_verified(address: Address, error: ssl.SSLCertVerificationError) -> OttlaError:
    why = error.verify_message.rstrip(".")
    if error.verify_code in (_X509_V_ERR_HOSTNAME_MISMATCH, _X509_V_ERR_IP_ADDRESS_MISMATCH):
        return UntrustedConnection(
            f"{address}: the broker's certificate is for another host ({why}): connect by a name that stands in it, "
            "or set ssl_check_hostname to False"
        )
    return UntrustedConnection(
        f"{address}: the broker's certificate is not trusted ({why}): "
        "set ssl_ca_location to the certificate of the authority that signed it"
    )


_X509_V_ERR_HOSTNAME_MISMATCH = 62
_X509_V_ERR_IP_ADDRESS_MISMATCH = 64


def _refused(address: Address, error: ssl.SSLError) -> OttlaError:
    reason = error.reason or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return UntrustedConnection(
            f"{address}: what answers there is not TLS: set security_protocol to PLAINTEXT or SASL_PLAINTEXT"
        )
    if "CERTIFICATE" in reason or reason.endswith(("HANDSHAKE_FAILURE", "UNKNOWN_CA", "ACCESS_DENIED")):
        return UntrustedConnection(
            f"{address}: the broker does not accept this client ({reason}): it may want a certificate that it trusts, "
            "set ssl_certificate_location and ssl_key_location"
        )
    if "PROTOCOL" in reason or "CIPHER" in reason:
        return UntrustedConnection(f"{address}: the broker and this client share no version of TLS ({reason})")
    # Whatever else it is may pass, as with a broker that is about to stop.
    return Unreachable(f"{address}: no safe connection: {reason}")
