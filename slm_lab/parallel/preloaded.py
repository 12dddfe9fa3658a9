"""The imports of every Session, for the fork server of the Sessions."""

from contextlib import suppress

from slm_lab.core.process import importing

# a Session that imports it again reports the error
with importing(), suppress(Exception):
    from slm_lab.session import session  # noqa: F401
