"""What every Session imports, for the fork server of the Sessions."""

from slm_lab.core.process import importing

with importing():
    from slm_lab.session import session  # noqa: F401
