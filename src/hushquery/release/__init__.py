"""Release: public tables, what their publication promises, and the manifest that says how they were made."""

from __future__ import annotations

from hushquery.release.release import Release, check_target, load
from hushquery.release.signature import PublicKey, SigningKey
from hushquery.release.verification import Verification, verify

__all__ = ["PublicKey", "Release", "SigningKey", "Verification", "check_target", "load", "verify"]
